//! `#[tools] impl Settings { … }`: each method with `#[tool]` becomes a tool, called on the operator's settings.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemImpl, Result};
use toolbay_sdk_syntax::methods::{ReceiverMeaning, take_tools};

use crate::tool::{CallerArgument, spec};

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let settings = ReceiverMeaning {
        is: "the operator's settings",
        because: "the settings belong to the operator, and each call reads them",
    };
    let ty: ItemImpl = syn::parse2(item.clone())?;
    let ty = ty.self_ty;
    let mut specs = Vec::new();
    let block = take_tools(options, item, settings, |options, method| {
        specs.push(spec(options, &method.attrs, &mut method.sig, &CallerArgument::Method(&ty))?);
        Ok(())
    })?;
    Ok(quote! {
        #[allow(clippy::needless_pass_by_value, reason = "arguments come out of JSON, so they are owned")]
        #block

        impl ::toolbay_sdk::__private::Toolset for #ty {
            const TOOLS: &'static [::toolbay_sdk::__private::ToolSpec] = &[#(#specs),*];
            const SETTINGS: ::core::option::Option<::toolbay_sdk::schema::SchemaOf> =
                ::core::option::Option::Some(::toolbay_sdk::schema::of::<#ty>);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_with_the_attribute_is_a_tool() {
        let tokens = expand(
            TokenStream::new(),
            quote! {
                impl Search {
                    /// Find.
                    #[tool(read_only)]
                    fn find(&self, /** What. */ words: String) -> String { words }
                    fn other(&self) {}
                }
            },
        );
        let tokens = tokens.unwrap().to_string();
        assert!(tokens.contains("name : \"find\"") && !tokens.contains("name : \"other\""), "{tokens}");
        assert!(tokens.contains("find (& __settings , "), "{tokens}");
        assert!(!tokens.contains("# [tool"), "{tokens}");
    }

    #[test]
    fn what_can_not_be_says_what_to_write() {
        for (item, part) in [
            (quote!(impl Search { fn find(&self) {} }), "write `#[tool(…)]` above a method"),
            (quote!(impl Search { #[doc = "d"] #[tool] fn find() {} }), "takes `&self`"),
            (quote!(impl Search { #[tool] fn find(&self) {} }), "has no description"),
            (quote!(impl Find for Search { #[tool] fn find(&self) {} }), "without a trait"),
            (
                quote!(
                    impl<T> Search<T> {}
                ),
                "no parameters",
            ),
        ] {
            let message = expand(TokenStream::new(), item).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
