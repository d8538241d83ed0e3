//! The signature of a tool: its name, description, arguments and return type.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Attribute, FnArg, Ident, Item, ItemFn, LitStr, Result, ReturnType, Safety, Signature, Type};

use crate::argument::ToolArgument;
use crate::contract::NAME_CHARS;
use crate::docs;

/// What the signature and the doc comment of a function say about a tool.
#[derive(Debug)]
pub struct ToolSignature {
    /// The name that a model uses.
    pub name: LitStr,
    /// The description for the model.
    pub description: String,
    /// The arguments, in order.
    pub arguments: Vec<ToolArgument>,
    /// The type of the result.
    pub output: Type,
    /// Whether the function is `async`.
    pub is_async: bool,
}

impl ToolSignature {
    /// Parses a signature, and removes our attributes from its arguments. `name` replaces the function's name. The model
    /// passes the inputs for which `is_argument` is true.
    ///
    /// # Errors
    /// The function cannot be a tool.
    pub fn take(
        name: Option<&LitStr>,
        attributes: &[Attribute],
        signature: &mut Signature,
        is_argument: impl Fn(&FnArg) -> bool,
    ) -> Result<Self> {
        if !signature.generics.params.is_empty() {
            let message = "a tool has no type parameters or lifetimes, for its arguments come out of JSON: name the types";
            return Err(syn::Error::new_spanned(&signature.generics, message));
        }
        if let Safety::Unsafe(unsafety) = &signature.safety {
            return Err(syn::Error::new_spanned(
                unsafety,
                "a tool is called with whatever a model writes: it cannot be `unsafe`",
            ));
        }
        let name = tool_name(name, &signature.ident)?;
        let description = docs::text(attributes).ok_or_else(|| missing_docs(&signature.ident))?;
        let inputs = signature.inputs.iter_mut().filter(|input| is_argument(input));
        let arguments = inputs.map(ToolArgument::take).collect::<Result<Vec<_>>>()?;
        let output = match &signature.output {
            ReturnType::Default => syn::parse_quote!(()),
            ReturnType::Type(_, ty) => ty.as_ref().clone(),
        };
        Ok(Self { name, description, arguments, output, is_async: signature.asyncness.is_some() })
    }
}

/// Returns the item that `#[tool]` annotates.
///
/// # Errors
/// Fails if the item is not a function.
pub fn function(item: TokenStream) -> Result<ItemFn> {
    let item: Item = syn::parse2(item)?;
    match item {
        Item::Fn(function) => Ok(function),
        other => Err(syn::Error::new_spanned(
            other,
            "`#[tool]` stands above a function; for methods, write `#[tools]` above the `impl` block",
        )),
    }
}

/// Returns the empty type that has the name of a function and carries what the macro derives from it. Types and functions
/// have different namespaces, so both have one path, also after `use`.
#[must_use]
pub fn companion_type(function: &ItemFn) -> TokenStream {
    let (vis, ident) = (&function.vis, &function.sig.ident);
    quote! {
        #[doc(hidden)]
        #[derive(Debug)]
        #[allow(non_camel_case_types, reason = "the type describes the function of the same name")]
        #vis struct #ident {}
    }
}

fn tool_name(name: Option<&LitStr>, ident: &Ident) -> Result<LitStr> {
    let name = name.cloned().unwrap_or_else(|| LitStr::new(&ident.unraw().to_string(), ident.span()));
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
