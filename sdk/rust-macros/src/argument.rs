//! An argument of a tool: a field of its schema, and the code that reads it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprCall, ExprLit, ExprMethodCall, Lit, Type};
use toolbay_sdk_syntax::argument::ToolArgument;
use toolbay_sdk_syntax::limits::number_json;

use crate::limits;

/// Returns the argument as a `Field` of the SDK.
pub(crate) fn field(argument: &ToolArgument) -> TokenStream {
    let ToolArgument { description, ty, options, .. } = argument;
    let name = argument.json_name();
    let limits = limits::tokens(&options.limits);
    let default = default_value(argument);
    let input = match options.default {
        Some(_) => quote!(Optional),
        None => quote!(Required),
    };
    quote! {
        ::toolbay_sdk::schema::Field {
            description: #description,
            limits: #limits,
            default: #default,
            input: ::toolbay_sdk::schema::Presence::#input,
            ..::toolbay_sdk::schema::Field::new(#name, ::toolbay_sdk::schema::of::<#ty>)
        }
    }
}

/// Returns the expression that reads the argument from the members of a call, at this index.
pub(crate) fn read(argument: &ToolArgument, place: usize) -> TokenStream {
    let ty = &argument.ty;
    match argument.default_expr() {
        Some(default) => quote!(__members.take_or::<#ty>(#place, || #default)?),
        None => quote!(__members.take::<#ty>(#place)?),
    }
}

fn default_value(argument: &ToolArgument) -> TokenStream {
    let (Some(value), Some(expr)) = (&argument.options.default, argument.default_expr()) else {
        return quote!(::toolbay_sdk::schema::DefaultValue::None);
    };
    if let Some(json) = literal_json(value, &argument.ty) {
        return quote!(::toolbay_sdk::schema::DefaultValue::Json(#json));
    }
    let ty = &argument.ty;
    quote! {
        ::toolbay_sdk::schema::DefaultValue::Made(|| {
            let value: #ty = #expr;
            ::toolbay_sdk::__private::default_json(&value)
        })
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
