//! `#[tools] impl TYPE { … }`: the methods with `#[tool]`.

use proc_macro2::TokenStream;
use syn::parse::Parse;
use syn::{FnArg, ImplItem, ImplItemFn, ItemImpl, ReceiverKind, Result};

/// What `self` is in the tools of a crate, for messages.
#[derive(Debug, Clone, Copy)]
pub struct ReceiverMeaning {
    /// What `&self` is.
    pub is: &'static str,
    /// Why it is not owned.
    pub because: &'static str,
}

/// Parses the block of `#[tools]`, calls `each` for every method with `#[tool(…)]`, and returns the block without these
/// attributes.
///
/// # Errors
/// The block cannot hold tools, or `each` failed.
pub fn take_tools<O: Parse + Default>(
    options: TokenStream,
    item: TokenStream,
    receiver: ReceiverMeaning,
    mut each: impl FnMut(&O, &mut ImplItemFn) -> Result<()>,
) -> Result<ItemImpl> {
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
    let mut count = 0;
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        let Some(place) = method.attrs.iter().position(|attribute| attribute.path().is_ident("tool")) else {
            continue;
        };
        let attribute = method.attrs.remove(place);
        let options = match &attribute.meta {
            syn::Meta::Path(_) => O::default(),
            _ => attribute.parse_args()?,
        };
        check_receiver(method, receiver)?;
        each(&options, method)?;
        count += 1;
    }
    if count == 0 {
        return Err(syn::Error::new_spanned(
            &block.self_ty,
            "this block has no tool: write `#[tool(…)]` above a method",
        ));
    }
    Ok(block)
}

fn check_receiver(method: &ImplItemFn, receiver: ReceiverMeaning) -> Result<()> {
    let ReceiverMeaning { is, because } = receiver;
    match method.sig.inputs.first() {
        Some(FnArg::Receiver(own)) if matches!(own.kind, ReceiverKind::Reference(_, _, None)) => Ok(()),
        Some(FnArg::Receiver(own)) => {
            Err(syn::Error::new_spanned(own, format!("a tool takes `&self`: {because}")))
        }
        _ => {
            let message =
                format!("a tool in `#[tools]` takes `&self`, {is}; write one without it as a plain function");
            Err(syn::Error::new_spanned(&method.sig, message))
        }
    }
}
