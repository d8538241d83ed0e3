//! `#[reducer("tool")]`: keeps the function and describes it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemFn, LitStr, Result};

use crate::capability::option;
use crate::docs;

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let (vis, ident) = (&function.vis, &function.sig.ident);
    let tool: LitStr = syn::parse2(options).map_err(|_| {
        let message = "a reducer names the tool whose results it takes: write `#[reducer(\"read_file\")]`";
        syn::Error::new(ident.span(), message)
    })?;
    let description = option(docs::text(&function.attrs));

    Ok(quote! {
        #function

        #[doc(hidden)]
        #[derive(Debug)]
        #[allow(non_camel_case_types, reason = "the type describes the function of the same name")]
        #vis struct #ident {}

        impl ::toolbay_sdk::__private::Reducer for #ident {
            const SPEC: ::toolbay_sdk::__private::ReducerSpec = ::toolbay_sdk::__private::ReducerSpec {
                tool_name: #tool,
                description: #description,
                reduce: #ident,
            };
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reducer_without_a_tool_says_what_to_write() {
        let message = expand(
            quote!(),
            quote!(
                fn f() {}
            ),
        )
        .unwrap_err()
        .to_string();
        assert!(message.contains("#[reducer(\"read_file\")]"), "{message}");
    }
}
