//! `plugin! { offers: "offers.json" }`: prompts, resources and icons, embedded when the plugin is built.
//!
//! The host reads the same document, with one difference: instead of a text or bytes, a `"file"` may name a path
//! relative to the document. The host checks the rest when it loads the plugin.

use std::path::Path;

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::{Error, LitStr, Result};
use toolbay_sdk_syntax::offers;

/// The section of the component that the host reads.
const SECTION: &str = "toolbay:offers";

/// The section, and code that makes cargo rebuild when a file changes.
pub(crate) fn expand(file: &LitStr) -> Result<TokenStream> {
    let Some(crate_dir) = std::env::var_os("CARGO_MANIFEST_DIR") else {
        return Err(Error::new(file.span(), "`CARGO_MANIFEST_DIR` is not set: build with cargo"));
    };
    let (document, files) = offers::embed(Path::new(&crate_dir), &file.value())
        .map_err(|problem| Error::new(file.span(), problem))?;
    let bytes = Literal::byte_string(&document);
    let length = document.len();
    let files = files.iter().map(|file| file.to_string_lossy().into_owned());
    Ok(quote! {
        const _: &[&[u8]] = &[#(include_bytes!(#files)),*];
        #[cfg(target_family = "wasm")]
        #[allow(unsafe_code, reason = "a section of the component that nothing reads at run time")]
        #[unsafe(link_section = #SECTION)]
        #[used]
        static OFFERS: [u8; #length] = *#bytes;
    })
}
