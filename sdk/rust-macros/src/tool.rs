//! `#[tool]`: keeps the function and generates its description.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, FnArg, Result, Signature, Type};
use toolbay_sdk_syntax::argument::ToolArgument;
use toolbay_sdk_syntax::signature::{self, ToolSignature};

use crate::argument;
use crate::tool_options::ToolOptions;

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: ToolOptions = syn::parse2(options)?;
    let mut function = signature::function(item)?;
    let spec = spec(&options, &function.attrs, &mut function.sig, &CallerArgument::Function)?;
    let (companion, ident) = (signature::companion_type(&function), &function.sig.ident);
    Ok(quote! {
        #[allow(clippy::needless_pass_by_value, reason = "arguments come out of JSON, so they are owned")]
        #function

        #companion

        impl ::toolbay_sdk::__private::Tool for #ident {
            const SPEC: ::toolbay_sdk::__private::ToolSpec = #spec;
        }
    })
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
    let is_argument = |input: &FnArg| match caller {
        CallerArgument::Function => true,
        CallerArgument::Method(_) => matches!(input, FnArg::Typed(_)),
    };
    let name = options.common.name.as_ref();
    let ToolSignature { name, description, arguments, output, is_async } =
        ToolSignature::take(name, attributes, signature, is_argument)?;
    let fields = arguments.iter().map(argument::field);
    let reads = arguments.iter().enumerate().map(|(place, argument)| argument::read(argument, place));
    let names: Vec<_> = arguments.iter().map(ToolArgument::json_name).collect();
    let option_fields = options.fields();
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
    let function = if is_async {
        quote!(Async(|__args| ::std::boxed::Box::pin(async move {
            #read
            ::toolbay_sdk::IntoOutput::into_output(#call.await)
        })))
    } else {
        quote!(Blocking(|__args| { #read ::toolbay_sdk::IntoOutput::into_output(#call) }))
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
