//! The options of a native `#[tool(…)]`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{LitInt, LitStr, Result, Token};
use toolbay_sdk_syntax::options::{self, CommonOptions};

/// Keys beside those of every tool.
const KEYS: [&str; 3] = ["search_hint", "serial", "cache_ms"];

/// The content of `#[tool(…)]`.
#[derive(Debug, Default)]
pub(crate) struct ToolOptions {
    pub(crate) common: CommonOptions,
    search_hint: Option<LitStr>,
    serial: Option<SerialOption>,
    cache_ms: Option<LitInt>,
}

/// The queue of a serial tool.
#[derive(Debug)]
enum SerialOption {
    /// The tool's own.
    Own,
    /// A named one.
    Named(LitStr),
}

impl Parse for ToolOptions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut all = Self::default();
        options::each(input, |key, input| all.parse_one(key, input))?;
        Ok(all)
    }
}

impl ToolOptions {
    fn parse_one(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        match key.to_string().as_str() {
            "search_hint" => options::once(&mut self.search_hint, key, input),
            "serial" => {
                let queue = match input.parse::<Option<Token![=]>>()? {
                    Some(_) => SerialOption::Named(input.parse()?),
                    None => SerialOption::Own,
                };
                match self.serial.replace(queue) {
                    Some(_) => Err(syn::Error::new(key.span(), "`serial` is given twice")),
                    None => Ok(()),
                }
            }
            "cache_ms" => options::above_zero(&mut self.cache_ms, key, input),
            _ if self.common.parse(key, input)? => Ok(()),
            _ => Err(options::unknown(key, &KEYS, &[], "")),
        }
    }

    /// Returns the calls of the builder that set the options.
    pub(crate) fn builder_calls(&self, name: &LitStr) -> TokenStream {
        let Self { common, search_hint, serial, cache_ms } = self;
        let CommonOptions { title, toolset, tags, max_result_chars, timeout_ms, traits, .. } = common;
        let title = title.iter();
        let toolset = toolset.iter();
        let hint = search_hint.iter();
        let most = max_result_chars.iter();
        let timeout = timeout_ms.iter();
        let cache = cache_ms.iter();
        let serial = serial.iter().map(|serial| match serial {
            SerialOption::Own => name,
            SerialOption::Named(queue) => queue,
        });
        quote! {
            #(.title(#title))*
            #(.toolset(#toolset))*
            #(.tag(#tags))*
            #(.search_hint(#hint))*
            .traits(::toolbay::__private::ToolTraits {
                #(#traits: true,)*
                ..::core::default::Default::default()
            })
            #(.max_result_chars(#most))*
            #(.timeout(::core::time::Duration::from_millis(#timeout)))*
            #(.serial(#serial))*
            #(.cache(::core::time::Duration::from_millis(#cache)))*
        }
    }
}
