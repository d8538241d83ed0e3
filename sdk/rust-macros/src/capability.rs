//! The capabilities that a tool declares: `fs_read = "**", reason = "…"`, or `clock`, which has no target.
//!
//! The macro checks the kinds because the host denies unknown ones: a typo would otherwise make the tool
//! unavailable at run time, far from its source.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Expr, LitStr, Result, Token};
use toolbay_sdk_syntax::contract::{KINDS, KV_SCOPES, SWITCHES};
use toolbay_sdk_syntax::options::{option, strings};
use toolbay_sdk_syntax::suggestion;

/// One capability in the description of the tool.
#[derive(Debug)]
pub(crate) struct CapabilityAttribute {
    kind: &'static str,
    target: String,
    optional: bool,
    reason: Option<String>,
}

/// All capabilities of one tool, in source order.
#[derive(Debug, Default)]
pub(crate) struct CapabilityAttributes {
    all: Vec<CapabilityAttribute>,
    /// The number of last capabilities that a following `reason` explains.
    unexplained: usize,
}

impl CapabilityAttributes {
    /// Parses the value of `key` if it is a kind of capability. Returns whether it was.
    pub(crate) fn parse(&mut self, key: &Ident, input: ParseStream<'_>, optional: bool) -> Result<bool> {
        let Some((_, kind)) = KINDS.iter().find(|(name, _)| key == name) else { return Ok(false) };
        if let Some((_, target)) = SWITCHES.iter().find(|(switch, _)| switch == kind) {
            if input.peek(Token![=]) {
                let message = format!("`{kind}` has no target: write `{kind}` alone");
                return Err(syn::Error::new(key.span(), message));
            }
            let target = (*target).to_owned();
            self.all.push(CapabilityAttribute { kind, target, optional, reason: None });
            self.unexplained = 1;
            return Ok(true);
        }
        input.parse::<Token![=]>()?;
        let targets = strings(&input.parse::<Expr>()?)?;
        self.unexplained = targets.len();
        for target in targets {
            if *kind == "kv" && !KV_SCOPES.contains(&target.value().as_str()) {
                let known = KV_SCOPES.join("`, `");
                return Err(syn::Error::new(target.span(), format!("unknown kv scope; known are `{known}`")));
            }
            self.all.push(CapabilityAttribute { kind, target: target.value(), optional, reason: None });
        }
        Ok(true)
    }

    /// Parses the `= "…"` of a `reason`.
    pub(crate) fn parse_reason(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        input.parse::<Token![=]>()?;
        let reason = input.parse::<LitStr>()?.value();
        if self.unexplained == 0 {
            return Err(syn::Error::new(
                key.span(),
                "`reason` explains the capability right before it, and there is none: \
                 write `fs_read = \"**\", reason = \"…\"`",
            ));
        }
        for capability in self.all.iter_mut().rev().take(self.unexplained) {
            capability.reason = Some(reason.clone());
        }
        self.unexplained = 0;
        Ok(())
    }

    /// Parses the `(…)` of an `optional`.
    pub(crate) fn parse_optional(&mut self, input: ParseStream<'_>) -> Result<()> {
        let inner;
        syn::parenthesized!(inner in input);
        while !inner.is_empty() {
            let key: Ident = inner.parse()?;
            if key == "reason" {
                self.parse_reason(&key, &inner)?;
            } else if !self.parse(&key, &inner, true)? {
                let known = KINDS.map(|(name, _)| name).join("`, `");
                let suggested = suggestion::of(&key.to_string(), KINDS.map(|(name, _)| name));
                let message =
                    format!("unknown capability `{key}`{suggested}; known are `{known}`, and `reason`");
                return Err(syn::Error::new(key.span(), message));
            }
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        self.unexplained = 0;
        Ok(())
    }

    /// Returns the capabilities as elements of a slice of `CapabilitySpec`.
    pub(crate) fn tokens(&self) -> Vec<TokenStream> {
        let element = |capability: &CapabilityAttribute| {
            let CapabilityAttribute { kind, target, optional, reason } = capability;
            let reason = option(reason.as_ref());
            quote! {
                ::toolbay_sdk::__private::CapabilitySpec {
                    kind: #kind, target: #target, optional: #optional, reason: #reason,
                }
            }
        };
        self.all.iter().map(element).collect()
    }
}

/// Parses `[path, path]`.
pub(crate) fn list<T: syn::parse::Parse>(input: ParseStream<'_>) -> Result<Vec<T>> {
    let inner;
    syn::bracketed!(inner in input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&inner)?.into_iter().collect())
}
