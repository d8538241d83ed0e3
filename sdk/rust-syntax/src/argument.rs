//! An argument of a tool.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, ExprLit, FnArg, Ident, Lit, Pat, PatType, Result, Token, Type};

use crate::docs;
use crate::limits::LimitsAttribute;
use crate::suggestion;

/// An argument of a `#[tool]` function.
#[derive(Debug)]
pub struct ToolArgument {
    /// The name in the code.
    pub name: Ident,
    /// The description for the model, possibly empty.
    pub description: String,
    /// The type.
    pub ty: Type,
    /// The options.
    pub options: ArgumentOptions,
}

/// The options between the parentheses of `#[arg(…)]`.
#[derive(Debug, Default)]
pub struct ArgumentOptions {
    /// The value of an omitted argument.
    pub default: Option<Expr>,
    /// The constraints beyond the type.
    pub limits: LimitsAttribute,
}

impl Parse for ArgumentOptions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if key == "default" {
                input.parse::<Token![=]>()?;
                options.default = Some(input.parse()?);
            } else if !options.limits.parse(&key, input)? {
                let suggested = suggestion::of(&key.to_string(), ["default", "range", "length", "regex"]);
                let message = format!(
                    "unknown option `{key}`{suggested}; known are `default = …`, `range(min = …, max = …)`, \
                     `length(min = …, max = …)`, `regex(\"…\")`"
                );
                return Err(syn::Error::new(key.span(), message));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl ArgumentOptions {
    /// Rejects defaults that violate visible constraints, because the host would refuse each call without the argument.
    fn check(&self, ty: &Type) -> Result<()> {
        self.limits.check_type(ty)?;
        self.default.as_ref().map_or(Ok(()), |default| self.limits.check_default(default))
    }
}

impl ToolArgument {
    /// Parses one argument and removes our attributes from it.
    ///
    /// # Errors
    /// Fails if the input is not an argument of a tool, or an option is wrong.
    pub fn take(input: &mut FnArg) -> Result<Self> {
        let FnArg::Typed(PatType { attrs, pat, ty, .. }) = input else {
            return Err(syn::Error::new_spanned(
                input,
                "a tool is a plain function, without `self`; for methods, write `#[tools]` above the `impl` block",
            ));
        };
        let Pat::Ident(pattern) = pat.as_ref() else {
            return Err(syn::Error::new_spanned(pat, "an argument of a tool needs a plain name"));
        };
        if let Type::Reference(reference) = ty.as_ref() {
            let message = "arguments come out of JSON, so they are owned: take `String` instead of `&str`, `Vec<T>` instead of `&[T]`";
            return Err(syn::Error::new_spanned(reference, message));
        }
        let name = pattern.ident.clone();
        let description = docs::text(attrs).unwrap_or_default();
        let mut options = ArgumentOptions::default();
        for attribute in std::mem::take(attrs) {
            if attribute.path().is_ident("arg") {
                options = attribute.parse_args()?;
            } else if !attribute.path().is_ident("doc") {
                attrs.push(attribute);
            }
        }
        options.check(ty)?;
        Ok(Self { name, description, ty: ty.as_ref().clone(), options })
    }

    /// Returns the name in the JSON.
    #[must_use]
    pub fn json_name(&self) -> String {
        self.name.unraw().to_string()
    }

    /// The expression of the default. A string literal is converted to the type.
    #[must_use]
    pub fn default_expr(&self) -> Option<TokenStream> {
        Some(match self.options.default.as_ref()? {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => quote!(::core::convert::Into::into(#text)),
            other => quote!(#other),
        })
    }
}
