//! One argument of a tool: a field of the hidden `Args` struct.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, ExprLit, FnArg, Ident, Lit, LitStr, Pat, PatType, Result, Token, Type};

/// An argument of a `#[tool]` function.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: Ident,
    docs: Vec<Attribute>,
    ty: Type,
    options: ArgumentOptions,
}

/// What stands between the parentheses of `#[arg(…)]`.
#[derive(Debug, Default)]
struct ArgumentOptions {
    default: Option<Expr>,
    /// Passed on to schemars as it is.
    schema: Vec<TokenStream>,
}

impl Parse for ArgumentOptions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "default" => {
                    input.parse::<Token![=]>()?;
                    options.default = Some(input.parse()?);
                }
                "range" | "length" => {
                    let inner;
                    syn::parenthesized!(inner in input);
                    let bounds: TokenStream = inner.parse()?;
                    options.schema.push(quote!(#key(#bounds)));
                }
                "regex" => {
                    let inner;
                    syn::parenthesized!(inner in input);
                    let pattern: LitStr = inner.parse()?;
                    options.schema.push(quote!(regex(pattern = #pattern)));
                }
                _ => {
                    let message = format!(
                        "unknown option `{key}`; known are `default = …`, `range(min = …, max = …)`, \
                         `length(min = …, max = …)`, `regex(\"…\")`"
                    );
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl Argument {
    /// Takes one argument apart and strips it of the attributes that are ours.
    pub(crate) fn take(input: &mut FnArg) -> Result<Self> {
        let FnArg::Typed(PatType { attrs, pat, ty, .. }) = input else {
            return Err(syn::Error::new_spanned(input, "a tool is a plain function, without `self`"));
        };
        let Pat::Ident(pattern) = pat.as_ref() else {
            return Err(syn::Error::new_spanned(pat, "an argument of a tool needs a plain name"));
        };
        if let Type::Reference(reference) = ty.as_ref() {
            let message = "arguments come out of JSON, so they are owned: take `String` instead of `&str`, `Vec<T>` instead of `&[T]`";
            return Err(syn::Error::new_spanned(reference, message));
        }
        let name = pattern.ident.clone();
        let mut docs = Vec::new();
        let mut options = ArgumentOptions::default();
        for attribute in std::mem::take(attrs) {
            if attribute.path().is_ident("doc") {
                docs.push(attribute);
            } else if attribute.path().is_ident("arg") {
                options = attribute.parse_args()?;
            } else {
                attrs.push(attribute);
            }
        }
        Ok(Self { name, docs, ty: ty.as_ref().clone(), options })
    }

    /// Returns the name as it stands in the JSON.
    pub(crate) fn json_name(&self) -> String {
        self.name.unraw().to_string()
    }

    /// Returns the function that makes the default value, and the field.
    pub(crate) fn field(&self) -> (Option<TokenStream>, TokenStream) {
        let Self { name, docs, ty, options } = self;
        let schema = &options.schema;
        let schema = (!schema.is_empty()).then(|| quote!(#[schemars(#(#schema),*)]));
        let Some(default) = &options.default else {
            return (None, quote! { #(#docs)* #schema #name: #ty });
        };
        let function = format_ident!("default_{}", self.json_name());
        let path = function.to_string();
        let value = match default {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => quote!(::core::convert::Into::into(#text)),
            other => quote!(#other),
        };
        let function = quote! { fn #function() -> #ty { #value } };
        (Some(function), quote! { #(#docs)* #[serde(default = #path)] #schema #name: #ty })
    }
}
