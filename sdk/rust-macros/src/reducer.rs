//! `#[reducer("tool")]`: keeps the function and generates its description.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, ItemFn, LitStr, Result, ReturnType, Safety, Signature, Type};
use toolbay_sdk_syntax::docs;
use toolbay_sdk_syntax::options::option;
use toolbay_sdk_syntax::signature::companion_type;

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let (companion, ident) = (companion_type(&function), &function.sig.ident);
    let tool: LitStr = syn::parse2(options).map_err(|_| {
        let message = "a reducer names the tool whose results it takes: write `#[reducer(\"read_file\")]`";
        syn::Error::new(ident.span(), message)
    })?;
    check_signature(&function.sig)?;
    let description = option(docs::text(&function.attrs));

    Ok(quote! {
        #function

        #companion

        impl ::toolbay_sdk::__private::Reducer for #ident {
            const SPEC: ::toolbay_sdk::__private::ReducerSpec = ::toolbay_sdk::__private::ReducerSpec {
                tool_name: #tool,
                description: #description,
                reduce: #ident,
            };
        }
    })
}

/// A reducer is a plain function of a result and its context. The compiler checks the types.
fn check_signature(signature: &Signature) -> Result<()> {
    let is_reference =
        |input: &FnArg| matches!(input, FnArg::Typed(typed) if matches!(*typed.ty, Type::Reference(_)));
    let plain = signature.asyncness.is_none() && matches!(signature.safety, Safety::Default);
    let plain = plain && signature.generics.params.is_empty();
    let takes = signature.inputs.len() == 2 && signature.inputs.iter().all(is_reference);
    if plain && takes && matches!(signature.output, ReturnType::Type(..)) {
        return Ok(());
    }
    let name = &signature.ident;
    Err(syn::Error::new_spanned(
        signature,
        format!("a reducer is `fn {name}(input: &ToolResult, ctx: &ReduceContext) -> Option<ToolResult>`"),
    ))
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
