//! `#[data]`: the three derives, through the SDK's own copies of their crates.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Result};

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !options.is_empty() {
        let message = "`#[data]` takes no options; `#[serde(…)]` and `#[schemars(…)]` go below it";
        return Err(syn::Error::new_spanned(options, message));
    }
    let item: DeriveInput = syn::parse2(item)?;
    Ok(quote! {
        #[derive(
            ::toolbay_sdk::__private::serde::Serialize,
            ::toolbay_sdk::__private::serde::Deserialize,
            ::toolbay_sdk::__private::schemars::JsonSchema,
        )]
        #[serde(crate = "::toolbay_sdk::__private::serde")]
        #[schemars(crate = "::toolbay_sdk::__private::schemars")]
        #item
    })
}
