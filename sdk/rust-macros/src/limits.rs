//! What is true of a value beyond its type: `range`, `length` and `regex`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Expr, ExprLit, ExprUnary, Ident, Lit, LitStr, Result, Token, UnOp};

/// The limits of one argument or field.
#[derive(Default)]
pub(crate) struct Limits {
    minimum: Option<Expr>,
    maximum: Option<Expr>,
    min_length: Option<Expr>,
    max_length: Option<Expr>,
    pattern: Option<LitStr>,
}

impl Limits {
    /// Parses what follows `key` if it is a limit; tells whether it was.
    pub(crate) fn parse(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<bool> {
        let key = key.to_string();
        if !matches!(key.as_str(), "range" | "length" | "regex") {
            return Ok(false);
        }
        let inner;
        syn::parenthesized!(inner in input);
        match key.as_str() {
            "range" => bounds(&inner, &mut self.minimum, &mut self.maximum)?,
            "length" => bounds(&inner, &mut self.min_length, &mut self.max_length)?,
            _ => self.pattern = Some(pattern(&inner)?),
        }
        Ok(true)
    }

    /// Returns them as a `Limits` of the SDK.
    pub(crate) fn tokens(&self) -> Result<TokenStream> {
        let Self { minimum, maximum, min_length, max_length, pattern } = self;
        let limits = [minimum, maximum, min_length, max_length];
        if limits.iter().all(|limit| limit.is_none()) && pattern.is_none() {
            return Ok(quote!(::toolbay_sdk::schema::Limits::NONE));
        }
        let pattern = pattern.as_ref().map_or_else(String::new, LitStr::value);
        let [minimum, maximum, min_length, max_length] = limits.map(|limit| number(limit.as_ref()));
        Ok(quote! {
            ::toolbay_sdk::schema::Limits {
                minimum: #minimum, maximum: #maximum, min_length: #min_length, max_length: #max_length,
                pattern: #pattern,
            }
        })
    }
}

/// Parses `min = …, max = …` or `equal = …`.
fn bounds(input: ParseStream<'_>, least: &mut Option<Expr>, most: &mut Option<Expr>) -> Result<()> {
    while !input.is_empty() {
        let key: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let value: Expr = input.parse()?;
        match key.to_string().as_str() {
            "min" => *least = Some(value),
            "max" => *most = Some(value),
            "equal" => (*least, *most) = (Some(value.clone()), Some(value)),
            _ => return Err(syn::Error::new(key.span(), "write `min = …`, `max = …` or `equal = …`")),
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// Parses `"…"` or `pattern = "…"`.
fn pattern(input: ParseStream<'_>) -> Result<LitStr> {
    if input.peek(Ident::peek_any) && input.peek2(Token![=]) {
        input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
    }
    input.parse()
}

/// A limit: a literal as JSON, anything else as a constant.
fn number(value: Option<&Expr>) -> TokenStream {
    let Some(value) = value else { return quote!(::toolbay_sdk::schema::Limit::None) };
    match number_json(value) {
        Some(json) => quote!(::toolbay_sdk::schema::Limit::Json(#json)),
        None => quote!(::toolbay_sdk::schema::Limit::Whole((#value) as i64)),
    }
}

/// A literal number as JSON.
pub(crate) fn number_json(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Some(number.base10_digits().to_owned()),
        Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => {
            serde_json::to_string(&number.base10_parse::<f64>().ok()?).ok()
        }
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => Some(format!("-{}", number_json(expr)?)),
        Expr::Group(group) => number_json(&group.expr),
        _ => None,
    }
}
