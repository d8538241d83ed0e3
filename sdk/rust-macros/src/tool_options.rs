//! The options of `#[tool(…)]`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use serde_json::Value;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, LitInt, LitStr, Result, Token};

use crate::capability::{CapabilityAttributes, KINDS, option, strings};
use crate::example::Example;
use crate::suggestion;

/// The flags of a tool. The contract's constant is the same word in capitals.
const TRAITS: [&str; 8] = [
    "read_only",
    "additive",
    "idempotent",
    "closed_world",
    "always_include",
    "untrusted_output",
    "needs_approval",
    "deferred",
];

/// The other options. All but the last take a value.
const KEYS: [&str; 10] = [
    "name",
    "title",
    "toolset",
    "tags",
    "max_result_chars",
    "timeout_ms",
    "optional",
    "reason",
    "example",
    "internal_reads",
];

/// The content of `#[tool(…)]`.
#[derive(Debug, Default)]
pub(crate) struct ToolOptions {
    pub(crate) name: Option<LitStr>,
    title: Option<LitStr>,
    toolset: Option<LitStr>,
    tags: Vec<LitStr>,
    max_result_chars: Option<LitInt>,
    timeout_ms: Option<LitInt>,
    traits: Vec<Ident>,
    capabilities: CapabilityAttributes,
    examples: Vec<Value>,
    internal_reads: bool,
}

impl Parse for ToolOptions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            options.parse_one(&key, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl ToolOptions {
    fn parse_one(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        match key.to_string().as_str() {
            "name" => once(&mut self.name, key, input),
            "title" => once(&mut self.title, key, input),
            "toolset" => once(&mut self.toolset, key, input),
            "max_result_chars" => once(&mut self.max_result_chars, key, input)
                .and_then(|()| above_zero(self.max_result_chars.as_ref())),
            "timeout_ms" => {
                once(&mut self.timeout_ms, key, input).and_then(|()| above_zero(self.timeout_ms.as_ref()))
            }
            "tags" => {
                input.parse::<Token![=]>()?;
                self.tags.extend(strings(&input.parse::<Expr>()?)?);
                Ok(())
            }
            "example" => {
                self.examples.push(Example::parse(input)?.0);
                Ok(())
            }
            "internal_reads" => {
                self.internal_reads = true;
                Ok(())
            }
            "optional" => self.capabilities.parse_optional(input),
            "reason" => self.capabilities.parse_reason(key, input),
            word if TRAITS.contains(&word) => {
                self.traits.push(key.clone());
                Ok(())
            }
            _ if self.capabilities.parse(key, input, false)? => Ok(()),
            _ => Err(unknown(key)),
        }
    }

    /// Returns the fields of a `ToolSpec` that the options set.
    pub(crate) fn fields(&self) -> TokenStream {
        let Self { title, toolset, tags, max_result_chars, timeout_ms, traits, capabilities, .. } = self;
        let title = option(title.as_ref());
        let toolset = option(toolset.as_ref());
        let max_result_chars = option(max_result_chars.as_ref());
        let timeout_ms = option(timeout_ms.as_ref());
        let traits = traits.iter().map(|word| format_ident!("{}", word.to_string().to_uppercase()));
        let capabilities = capabilities.tokens();
        let meta = option(self.meta());
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

impl ToolOptions {
    /// The metadata of the tool, as JSON.
    fn meta(&self) -> Option<String> {
        let examples = (!self.examples.is_empty()).then(|| ("examples", self.examples.clone().into()));
        let internal_reads = self.internal_reads.then_some(("internal_reads", Value::Bool(true)));
        let members = examples.into_iter().chain(internal_reads).map(|(key, value)| (key.to_owned(), value));
        let members: serde_json::Map<String, Value> = members.collect();
        (!members.is_empty()).then(|| Value::Object(members).to_string())
    }
}

/// Parses `= value` into an empty slot.
fn once<T: Parse>(slot: &mut Option<T>, key: &Ident, input: ParseStream<'_>) -> Result<()> {
    input.parse::<Token![=]>()?;
    if slot.replace(input.parse()?).is_some() {
        return Err(syn::Error::new(key.span(), format!("`{key}` is given twice")));
    }
    Ok(())
}

/// Zero would let nothing pass. Leave the option out for no limit.
fn above_zero(number: Option<&LitInt>) -> Result<()> {
    match number {
        Some(number) if !number.base10_parse::<u32>().is_ok_and(|number| number > 0) => {
            let most = u32::MAX;
            Err(syn::Error::new(number.span(), format!("write a number from 1 to {most}, or leave it out")))
        }
        _ => Ok(()),
    }
}

fn unknown(key: &Ident) -> syn::Error {
    let traits = TRAITS.join("`, `");
    let keys = KEYS.join("`, `");
    let kinds = KINDS.map(|(name, _)| name);
    let all = TRAITS.into_iter().chain(KEYS).chain(kinds);
    let kinds = kinds.join("`, `");
    let message = format!(
        "unknown option `{key}`{}; known are the traits `{traits}`, the options `{keys}`, and the capabilities `{kinds}`",
        suggestion::of(&key.to_string(), all)
    );
    syn::Error::new(key.span(), message)
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
            internal_reads"#;
        let options = syn::parse_str::<ToolOptions>(text).unwrap();
        assert_eq!(options.traits.len(), TRAITS.len());
        assert_eq!(options.capabilities.tokens().len(), 13);
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
