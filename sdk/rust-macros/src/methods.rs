//! `#[tools] impl Settings { … }`: each method with `#[tool]` becomes a tool, called on the operator's settings.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, ImplItem, ItemImpl, ReceiverKind, Result};

use crate::tool::{CallerArgument, spec};
use crate::tool_options::ToolOptions;

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !options.is_empty() {
        return Err(syn::Error::new_spanned(
            options,
            "`#[tools]` takes no options; those of a tool go to `#[tool(…)]`",
        ));
    }
    let mut block: ItemImpl = syn::parse2(item)?;
    if let Some((path, _)) = &block.trait_ {
        return Err(syn::Error::new_spanned(path, "`#[tools]` stands above `impl TYPE`, without a trait"));
    }
    if !block.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(
            &block.generics,
            "the type of tools has no parameters or lifetimes",
        ));
    }
    let ty = block.self_ty.clone();
    let mut specs = Vec::new();
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        let Some(place) = method.attrs.iter().position(|attribute| attribute.path().is_ident("tool")) else {
            continue;
        };
        let attribute = method.attrs.remove(place);
        let options = match &attribute.meta {
            syn::Meta::Path(_) => ToolOptions::default(),
            _ => attribute.parse_args()?,
        };
        if !matches!(method.sig.inputs.first(), Some(FnArg::Receiver(_))) {
            let message = "a tool in `#[tools]` takes `&self`, the operator's settings; write one without it as a plain function";
            return Err(syn::Error::new_spanned(&method.sig, message));
        }
        if let Some(FnArg::Receiver(receiver)) = method.sig.inputs.first()
            && !matches!(receiver.kind, ReceiverKind::Reference(_, _, None))
        {
            let message = "a tool takes `&self`: the settings are the operator's, read anew for each call";
            return Err(syn::Error::new_spanned(receiver, message));
        }
        specs.push(spec(&options, &method.attrs, &mut method.sig, &CallerArgument::Method(&ty))?);
    }
    if specs.is_empty() {
        return Err(syn::Error::new_spanned(
            &ty,
            "there is no tool in here: write `#[tool(…)]` above a method",
        ));
    }
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
