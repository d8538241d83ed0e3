//! `#[tool]`: keeps the function and generates what makes the tool.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, FnArg, Pat, Result, Signature, Type};
use toolbay_sdk_syntax::argument::ToolArgument;
use toolbay_sdk_syntax::limits::LimitsAttribute;
use toolbay_sdk_syntax::signature::{self, ToolSignature};

use crate::options::ToolOptions;

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: ToolOptions = syn::parse2(options)?;
    let mut function = signature::function(item)?;
    let definition = definition(&options, &function.attrs, &mut function.sig, &ToolCaller::Function)?;
    let (companion, vis, ident) = (signature::companion_type(&function), &function.vis, &function.sig.ident);
    let docs = format!("Makes the native tool of the function `{ident}`.");
    Ok(quote! {
        #[allow(clippy::needless_pass_by_value, reason = "arguments come out of JSON, so they are owned")]
        #function

        #companion

        impl #ident {
            #[doc = #docs]
            #vis fn tool() -> ::core::result::Result<
                ::toolbay::__private::ToolEntry,
                ::toolbay::__private::DefinitionError,
            > {
                #definition
            }
        }
    })
}

/// How the function of a tool is called.
pub(crate) enum ToolCaller<'a> {
    /// By its name.
    Function,
    /// As a method of the shared `value`, which has this type.
    Method(&'a Type),
}

/// Returns a block that makes the tool of a function, and removes our attributes from its arguments.
pub(crate) fn definition(
    options: &ToolOptions,
    attributes: &[Attribute],
    signature: &mut Signature,
    caller: &ToolCaller<'_>,
) -> Result<TokenStream> {
    let is_argument = |input: &FnArg| match input {
        FnArg::Receiver(_) => matches!(caller, ToolCaller::Function),
        FnArg::Typed(typed) => !is_context(&typed.ty),
    };
    let name = options.common.name.as_ref();
    let ToolSignature { name, description, arguments, output, is_async } =
        ToolSignature::take(name, attributes, signature, is_argument)?;
    let (defaults, fields): (Vec<_>, Vec<_>) =
        arguments.iter().enumerate().map(|(place, argument)| field(place, argument)).unzip();
    let data = data_attributes(&TokenStream::new());
    let inputs = signature.inputs.iter().filter_map(|input| match input {
        FnArg::Receiver(_) => None,
        FnArg::Typed(typed) if is_context(&typed.ty) => Some(quote!(&__context)),
        FnArg::Typed(typed) => match typed.pat.as_ref() {
            Pat::Ident(pattern) => {
                let ident = &pattern.ident;
                Some(quote!(__arguments.#ident))
            }
            _ => None,
        },
    });
    let ident = &signature.ident;
    let (before, call) = match caller {
        ToolCaller::Function => (None, quote!(#ident(#(#inputs),*))),
        ToolCaller::Method(ty) => (
            Some(quote!(let __value = ::std::sync::Arc::clone(&__value);)),
            quote!(<#ty>::#ident(&__value, #(#inputs),*)),
        ),
    };
    let wait = is_async.then(|| quote!(.await));
    let calls = options.builder_calls(&name);
    Ok(quote! {
        #data
        #[serde(deny_unknown_fields)]
        struct __Arguments { #(#fields),* }
        #(#defaults)*
        let __tool = ::toolbay::native_tool(#name).description(#description) #calls;
        ::toolbay::__private::define::<__Arguments, #output, _, _>(__tool, move |__arguments, __context| {
            #before
            async move { #call #wait }
        })
    })
}

/// The derives of a type that is read from JSON, and written with `more`.
pub(crate) fn data_attributes(more: &TokenStream) -> TokenStream {
    quote! {
        #[derive(#more ::toolbay::__private::serde::Deserialize, ::toolbay::__private::schemars::JsonSchema)]
        #[serde(crate = "::toolbay::__private::serde")]
        #[schemars(crate = "::toolbay::__private::schemars")]
    }
}

/// Whether an input is the context of the call.
fn is_context(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    let Type::Path(path) = reference.elem.as_ref() else { return false };
    reference.mutability.is_none()
        && path.path.segments.last().is_some_and(|last| last.ident == "CallContext")
}

/// Returns the function of the default of an argument, if it has one, and the argument as a field.
fn field(place: usize, argument: &ToolArgument) -> (Option<TokenStream>, TokenStream) {
    let ToolArgument { name, description, ty, options } = argument;
    let function = format_ident!("__default_{place}");
    let path = function.to_string();
    let default = argument.default_expr().map(|value| quote!(fn #function() -> #ty { #value }));
    let from_default = default.as_ref().map(|_| quote!(#[serde(default = #path)]));
    let description = (!description.is_empty()).then(|| quote!(#[schemars(description = #description)]));
    let limits = limits(&options.limits);
    (default, quote!(#description #from_default #limits #name: #ty))
}

/// The constraints as the options of `schemars`.
fn limits(limits: &LimitsAttribute) -> TokenStream {
    let LimitsAttribute { minimum, maximum, min_length, max_length, pattern } = limits;
    let bounds = |least: &Option<syn::Expr>, most: &Option<syn::Expr>| {
        let (least, most) = (least.iter(), most.iter());
        quote!(#(min = #least,)* #(max = #most,)*)
    };
    let (range, length) = (bounds(minimum, maximum), bounds(min_length, max_length));
    let range = (!range.is_empty()).then(|| quote!(#[schemars(range(#range))]));
    let length = (!length.is_empty()).then(|| quote!(#[schemars(length(#length))]));
    let pattern = pattern.as_ref().map(|pattern| quote!(#[schemars(regex(pattern = #pattern))]));
    quote!(#range #length #pattern)
}
