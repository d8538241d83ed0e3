//! `#[tool]`: keeps the function and generates its description.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Attribute, Ident, Item, ItemFn, LitStr, Result, ReturnType, Safety, Signature, Type};

use crate::argument::ToolArgument;
use crate::docs;
use crate::tool_options::ToolOptions;

/// The contract's limit on a tool's name.
const NAME_CHARS: usize = 48;

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: ToolOptions = syn::parse2(options)?;
    let mut function = function(item)?;
    let spec = spec(&options, &function.attrs, &mut function.sig, &CallerArgument::Function)?;
    let (vis, ident) = (&function.vis, &function.sig.ident);
    Ok(quote! {
        #[allow(clippy::needless_pass_by_value, reason = "arguments come out of JSON, so they are owned")]
        #function

        #[doc(hidden)]
        #[derive(Debug)]
        #[allow(non_camel_case_types, reason = "the type describes the function of the same name")]
        #vis struct #ident {}

        impl ::toolbay_sdk::__private::Tool for #ident {
            const SPEC: ::toolbay_sdk::__private::ToolSpec = #spec;
        }
    })
}

/// The item that the attribute annotates.
fn function(item: TokenStream) -> Result<ItemFn> {
    let item: Item = syn::parse2(item)?;
    match item {
        Item::Fn(function) => Ok(function),
        other => Err(syn::Error::new_spanned(
            other,
            "`#[tool]` stands above a function; for methods, write `#[tools]` above the `impl` block",
        )),
    }
}

/// How the function of a tool is called.
pub(crate) enum CallerArgument<'a> {
    /// By its name.
    Function,
    /// As a method of the operator's settings, which have this type.
    Method(&'a Type),
}

/// Returns the `ToolSpec` of a function, and removes our attributes from its arguments.
pub(crate) fn spec(
    options: &ToolOptions,
    attributes: &[Attribute],
    signature: &mut Signature,
    caller: &CallerArgument<'_>,
) -> Result<TokenStream> {
    if !signature.generics.params.is_empty() {
        let message =
            "a tool has no type parameters or lifetimes, for its arguments come out of JSON: name the types";
        return Err(syn::Error::new_spanned(&signature.generics, message));
    }
    if let Safety::Unsafe(unsafety) = &signature.safety {
        return Err(syn::Error::new_spanned(
            unsafety,
            "a tool is called with whatever a model writes: it cannot be `unsafe`",
        ));
    }
    let name = tool_name(options, &signature.ident)?;
    let description = docs::text(attributes).ok_or_else(|| missing_docs(&signature.ident))?;
    let receiver = match caller {
        CallerArgument::Function => 0,
        CallerArgument::Method(_) => 1,
    };
    let arguments = signature.inputs.iter_mut().skip(receiver).map(ToolArgument::take);
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let fields = arguments.iter().map(ToolArgument::field).collect::<Result<Vec<_>>>()?;
    let reads: Vec<_> = arguments.iter().enumerate().map(|(place, argument)| argument.read(place)).collect();
    let names: Vec<_> = arguments.iter().map(ToolArgument::json_name).collect();
    let option_fields = options.fields();
    let output = match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, ty) => quote!(#ty),
    };
    let ident = &signature.ident;
    let (before, call) = match caller {
        CallerArgument::Function => (None, quote!(#ident(#(#reads),*))),
        CallerArgument::Method(ty) => {
            let before = quote!(let __settings: #ty = ::toolbay_sdk::config::all()?;);
            (Some(before), quote!(<#ty>::#ident(&__settings, #(#reads),*)))
        }
    };
    let read = quote! {
        let __members = ::toolbay_sdk::__private::Members::of_call(__args, &[#(#names),*])?;
        #before
    };
    let function = match signature.asyncness {
        None => quote!(Blocking(|__args| { #read ::toolbay_sdk::IntoOutput::into_output(#call) })),
        Some(_) => quote!(Async(|__args| ::std::boxed::Box::pin(async move {
            #read
            ::toolbay_sdk::IntoOutput::into_output(#call.await)
        }))),
    };
    Ok(quote! {
        ::toolbay_sdk::__private::ToolSpec {
            name: #name,
            description: #description,
            #option_fields
            arguments: &[#(#fields),*],
            output_schema: ::toolbay_sdk::__private::output_schema::<#output>,
            call: ::toolbay_sdk::__private::ToolFunction::#function,
        }
    })
}

fn tool_name(options: &ToolOptions, ident: &Ident) -> Result<LitStr> {
    let name = options.name.clone().unwrap_or_else(|| LitStr::new(&ident.unraw().to_string(), ident.span()));
    let text = name.value();
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.is_empty() || text.len() > NAME_CHARS || !text.chars().all(valid) {
        let message = format!("`{text}` cannot name a tool: 1 to {NAME_CHARS} of `a-z A-Z 0-9 _ -`");
        return Err(syn::Error::new(name.span(), message));
    }
    Ok(name)
}

fn missing_docs(ident: &Ident) -> syn::Error {
    let message = format!(
        "the tool `{ident}` has no description: write a doc comment above it, `/// What it does and when to use it.`; \
         the model reads it to decide whether to call the tool"
    );
    syn::Error::new(ident.span(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(options: TokenStream, item: TokenStream) -> String {
        expand(options, item).unwrap_err().to_string()
    }

    #[test]
    fn a_missing_doc_comment_says_what_to_write() {
        let message = error(
            quote!(),
            quote!(
                fn f() {}
            ),
        );
        assert!(
            message.contains("`f` has no description") && message.contains("/// What it does"),
            "{message}"
        );
    }

    #[test]
    fn what_json_can_not_carry_is_refused() {
        let cases = [
            (
                quote!(
                    #[doc = "d"]
                    fn f(a: &str) {}
                ),
                "take `String`",
            ),
            (
                quote!(
                    #[doc = "d"]
                    fn f((a, b): (u8, u8)) {}
                ),
                "plain name",
            ),
            (
                quote!(
                    #[doc = "d"]
                    fn f(&self) {}
                ),
                "without `self`",
            ),
            (
                quote!(
                    #[doc = "d"]
                    fn f<T>() {}
                ),
                "type parameters",
            ),
            (
                quote!(
                    #[doc = "d"]
                    fn f(#[arg(max = 3)] a: u8) {}
                ),
                "known are `default",
            ),
        ];
        for (item, expected) in cases {
            let message = error(quote!(), item);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_name_outside_the_contract_is_refused() {
        let item = quote!(
            #[doc = "d"]
            fn f() {}
        );
        assert!(error(quote!(name = "a b"), item.clone()).contains("cannot name a tool"));
        assert!(error(quote!(name = ""), item).contains("cannot name a tool"));
    }

    #[test]
    fn argument_attributes_do_not_stay_on_the_function() {
        let item = quote!(
            #[doc = "d"]
            fn f(
                #[doc = "a"]
                #[arg(default = 1)]
                a: u8,
            ) {
            }
        );
        let tokens = expand(quote!(), item).unwrap().to_string();
        assert!(tokens.contains("fn f (a : u8"), "{tokens}");
        assert!(tokens.contains("take_or :: < u8 > (0usize , || 1)"), "{tokens}");
        assert!(tokens.contains("DefaultValue :: Json (\"1\")"), "{tokens}");
    }
}
