//! `#[tools] impl TYPE { … }`: each method with `#[tool]` becomes a tool, called on a shared value.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemImpl, Result};
use toolbay_sdk_syntax::methods::{ReceiverMeaning, take_tools};

use crate::tool::{ToolCaller, definition};

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let shared =
        ReceiverMeaning { is: "the shared value", because: "all calls share the value, side by side" };
    let ty = syn::parse2::<ItemImpl>(item.clone())?.self_ty;
    let mut definitions = Vec::new();
    let block = take_tools(options, item, shared, |options, method| {
        let caller = ToolCaller::Method(&ty);
        definitions.push(definition(options, &method.attrs, &mut method.sig, &caller)?);
        Ok(())
    })?;
    let docs = format!("Makes the native tools of a shared `{}`.", quote!(#ty));
    Ok(quote! {
        #[allow(clippy::needless_pass_by_value, reason = "arguments come out of JSON, so they are owned")]
        #block

        impl #ty {
            #[doc = #docs]
            pub fn tools(value: ::std::sync::Arc<Self>) -> ::core::result::Result<
                ::toolbay::__private::Bundle,
                ::toolbay::__private::DefinitionError,
            > {
                let tools = ::std::vec![#({
                    let __value = ::std::sync::Arc::clone(&value);
                    let __tool: ::core::result::Result<_, ::toolbay::__private::DefinitionError> =
                        { #definitions };
                    __tool?
                }),*];
                ::core::result::Result::Ok(tools.into())
            }
        }
    })
}
