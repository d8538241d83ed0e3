//! Constraints on a value, as the SDK's constants.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, LitStr};
use toolbay_sdk_syntax::limits::{LimitsAttribute, number_json};

/// Returns the constraints as a `Limits` of the SDK.
pub(crate) fn tokens(limits: &LimitsAttribute) -> TokenStream {
    let LimitsAttribute { minimum, maximum, min_length, max_length, pattern } = limits;
    let numbers = [minimum, maximum, min_length, max_length];
    if numbers.iter().all(|limit| limit.is_none()) && pattern.is_none() {
        return quote!(::toolbay_sdk::schema::Limits::NONE);
    }
    let pattern = pattern.as_ref().map_or_else(String::new, LitStr::value);
    let [minimum, maximum, min_length, max_length] = numbers.map(|limit| number(limit.as_ref()));
    quote! {
        ::toolbay_sdk::schema::Limits {
            minimum: #minimum, maximum: #maximum, min_length: #min_length, max_length: #max_length,
            pattern: #pattern,
        }
    }
}

/// A constraint: a literal as JSON, anything else as a constant.
fn number(value: Option<&Expr>) -> TokenStream {
    let Some(value) = value else { return quote!(::toolbay_sdk::schema::Limit::None) };
    match number_json(value) {
        Some(json) => quote!(::toolbay_sdk::schema::Limit::Json(#json)),
        None => quote!(::toolbay_sdk::schema::Limit::Whole((#value) as i64)),
    }
}
