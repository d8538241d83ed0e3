//! An argument of a tool: a field of its schema, and the code that reads it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, ExprCall, ExprLit, ExprMethodCall, FnArg, Ident, Lit, Pat, PatType, Result, Token, Type};

use crate::docs;
use crate::limits::{LimitsAttribute, number_json};
use crate::suggestion;

/// An argument of a `#[tool]` function.
pub(crate) struct ToolArgument {
    name: Ident,
    description: String,
    ty: Type,
    options: ArgumentOptions,
}

/// The options between the parentheses of `#[arg(…)]`.
#[derive(Default)]
struct ArgumentOptions {
    default: Option<Expr>,
    limits: LimitsAttribute,
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
                let meant = suggestion::of(&key.to_string(), ["default", "range", "length", "regex"]);
                let message = format!(
                    "unknown option `{key}`{meant}; known are `default = …`, `range(min = …, max = …)`, \
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
    pub(crate) fn take(input: &mut FnArg) -> Result<Self> {
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
    pub(crate) fn json_name(&self) -> String {
        self.name.unraw().to_string()
    }

    /// Returns the argument as a `Field` of the SDK.
    pub(crate) fn field(&self) -> Result<TokenStream> {
        let Self { description, ty, options, .. } = self;
        let name = self.json_name();
        let limits = options.limits.tokens()?;
        let default = self.default_value();
        let input = match options.default {
            Some(_) => quote!(Optional),
            None => quote!(Required),
        };
        Ok(quote! {
            ::toolbay_sdk::schema::Field {
                description: #description,
                limits: #limits,
                default: #default,
                input: ::toolbay_sdk::schema::Presence::#input,
                ..::toolbay_sdk::schema::Field::new(#name, ::toolbay_sdk::schema::of::<#ty>)
            }
        })
    }

    /// Returns the expression that reads the argument from the members of a call, at this index.
    pub(crate) fn read(&self, place: usize) -> TokenStream {
        let ty = &self.ty;
        match self.default_expr() {
            Some(default) => quote!(__members.take_or::<#ty>(#place, || #default)?),
            None => quote!(__members.take::<#ty>(#place)?),
        }
    }

    /// The expression of the default. A string literal is converted to the type.
    fn default_expr(&self) -> Option<TokenStream> {
        Some(match self.options.default.as_ref()? {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => quote!(::core::convert::Into::into(#text)),
            other => quote!(#other),
        })
    }

    fn default_value(&self) -> TokenStream {
        let (Some(value), Some(expr)) = (&self.options.default, self.default_expr()) else {
            return quote!(::toolbay_sdk::schema::DefaultValue::None);
        };
        if let Some(json) = literal_json(value, &self.ty) {
            return quote!(::toolbay_sdk::schema::DefaultValue::Json(#json));
        }
        let ty = &self.ty;
        quote! {
            ::toolbay_sdk::schema::DefaultValue::Made(|| {
                let value: #ty = #expr;
                ::toolbay_sdk::__private::default_json(&value)
            })
        }
    }
}

/// The JSON of a default that is a literal, so that the plugin needs no code to write it.
fn literal_json(value: &Expr, ty: &Type) -> Option<String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => Some(value.value.to_string()),
        // For other types, a string may be written as something else.
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if is_named(ty, "String") => {
            serde_json::to_string(&text.value()).ok()
        }
        Expr::MethodCall(ExprMethodCall { receiver, method, args, .. })
            if args.is_empty() && (method == "to_owned" || method == "to_string") =>
        {
            literal_json(receiver, ty)
        }
        Expr::Call(ExprCall { func, args, .. }) => {
            let func = quote!(#func).to_string();
            (args.is_empty() && func == "Vec :: new" && is_named(ty, "Vec")).then(|| "[]".to_owned())
        }
        Expr::Path(path) if path.path.is_ident("None") => Some("null".to_owned()),
        _ => number_json(value),
    }
}

fn is_named(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}
