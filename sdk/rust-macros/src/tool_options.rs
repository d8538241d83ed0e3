//! The options of `#[tool(…)]`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use serde_json::Value;
use syn::parse::{Parse, ParseStream};
use syn::{LitStr, Result};
use toolbay_sdk_syntax::contract::KINDS;
use toolbay_sdk_syntax::options::{self, CommonOptions, option};

use crate::capability::CapabilityAttributes;
use crate::example::{self, Example};

/// Keys that take a value, beside those of every tool.
const KEYS: [&str; 4] = ["optional", "reason", "example", "meta"];

/// The content of `#[tool(…)]`.
#[derive(Debug, Default)]
pub(crate) struct ToolOptions {
    pub(crate) common: CommonOptions,
    capabilities: CapabilityAttributes,
    examples: Vec<Value>,
    meta: Option<LitStr>,
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
            "example" => self.examples.push(Example::parse(input)?.0),
            "meta" => {
                options::once(&mut self.meta, key, input)?;
                self.meta.as_ref().map(example::object).transpose()?;
            }
            "optional" => self.capabilities.parse_optional(input)?,
            "reason" => self.capabilities.parse_reason(key, input)?,
            _ if self.common.parse(key, input)? || self.capabilities.parse(key, input, false)? => {}
            _ => {
                let kinds = KINDS.map(|(name, _)| name);
                let end = format!(", and the capabilities `{}`", kinds.join("`, `"));
                return Err(options::unknown(key, &KEYS, &kinds, &end));
            }
        }
        Ok(())
    }

    /// Returns the fields of a `ToolSpec` that the options set.
    pub(crate) fn fields(&self) -> TokenStream {
        let Self { common, capabilities, examples, meta } = self;
        let CommonOptions { title, toolset, tags, max_result_chars, timeout_ms, traits, .. } = common;
        let title = option(title.as_ref());
        let toolset = option(toolset.as_ref());
        let max_result_chars = option(max_result_chars.as_ref());
        let timeout_ms = option(timeout_ms.as_ref());
        let traits = traits.iter().map(|word| format_ident!("{}", word.to_string().to_uppercase()));
        let capabilities = capabilities.tokens();
        // Checked when it was parsed.
        let mut meta = meta.as_ref().and_then(|text| example::object(text).ok()).unwrap_or_default();
        if !examples.is_empty() {
            meta.insert("examples".to_owned(), Value::from(examples.clone()));
        }
        let meta = option((!meta.is_empty()).then(|| Value::Object(meta).to_string()));
        quote! {
            title: #title,
            toolset: #toolset,
            tags: &[#(#tags),*],
            traits: ::toolbay_sdk::__private::ToolTraits::empty()
                #(.union(::toolbay_sdk::__private::ToolTraits::#traits))*,
            max_result_chars: #max_result_chars,
            timeout_ms: #timeout_ms,
            capabilities: &[#(#capabilities),*],
            meta: #meta,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        syn::parse_str::<ToolOptions>(text).unwrap_err().to_string()
    }

    #[test]
    fn everything_the_contract_knows_is_accepted() {
        let text = r#"name = "n", title = "t", toolset = "s", tags = ["a", "b"], read_only, additive, idempotent,
            closed_world, always_include, untrusted_output, needs_approval, deferred, max_result_chars = 5,
            timeout_ms = 7, fs_read = "**", reason = "r", fs_write = ["a", "b"], net = "GET https://x.example",
            process = "git status", secret = "TOKEN", kv = "session", env = "TZ", attachments = "*", clock, random,
            optional(fs_read = "c", reason = "q", clock, reason = "p"), example(args = "{}", contains = "x"),
            meta = "{\"a\": 1}","#;
        let all = syn::parse_str::<ToolOptions>(text).unwrap();
        assert_eq!(all.common.traits.len(), toolbay_sdk_syntax::contract::TRAITS.len());
        assert_eq!(all.capabilities.tokens().len(), 13);
        let fields = all.fields().to_string();
        assert!(fields.contains("\\\"a\\\"") && fields.contains("examples"), "{fields}");
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let message = error("fs_raed = \"**\"");
        for word in ["unknown option `fs_raed`", "`read_only`", "`timeout_ms`", "`fs_read`", "`attachments`"]
        {
            assert!(message.contains(word), "{word} is missing in: {message}");
        }
    }

    #[test]
    fn an_unknown_capability_in_optional_lists_the_known_ones() {
        let message = error("optional(files = \"**\")");
        assert!(
            message.contains("unknown capability `files`") && message.contains("`fs_write`"),
            "{message}"
        );
    }

    #[test]
    fn a_reason_needs_a_capability_before_it() {
        assert!(error("reason = \"r\", fs_read = \"**\"").contains("right before it"));
        assert!(error("fs_read = \"**\", reason = \"r\", reason = \"s\"").contains("right before it"));
    }

    #[test]
    fn the_metadata_is_an_object() {
        assert!(error("meta = \"[]\"").contains("a JSON object"));
        assert!(error("meta = \"{\"").contains("not JSON"));
    }

    #[test]
    fn a_kv_scope_is_checked() {
        assert!(error("kv = \"global\"").contains("`session`"));
    }

    #[test]
    fn a_switch_takes_no_target() {
        assert_eq!(error("clock = \"wall\""), "`clock` has no target: write `clock` alone");
        assert!(syn::parse_str::<ToolOptions>("random, reason = \"draws lots\"").is_ok());
    }

    #[test]
    fn the_same_key_twice_is_refused() {
        assert_eq!(error("toolset = \"a\", toolset = \"b\""), "`toolset` is given twice");
    }
}
