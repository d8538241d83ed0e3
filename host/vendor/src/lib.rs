//! Tools, calls and results in the formats of model vendors.
//!
//! Each tool has one canonical schema. It is changed only where a vendor's subset of JSON Schema requires it, and all
//! losses are reported. Validation loses nothing: the host validates arguments against the canonical schema.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod calls;
mod definitions;
mod results;
mod subset;

pub use calls::{FormatError, call_message, parse_calls};
pub use definitions::{Definitions, definitions, view_definitions};
pub use results::result_messages;
pub use subset::SchemaLoss;

use std::str::FromStr;

/// The format of a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// The OpenAI Chat Completions API.
    OpenaiChat,
    /// The OpenAI Responses API.
    OpenaiResponses,
    /// The Anthropic Messages API.
    Anthropic,
    /// The Google Gemini API (`generateContent`).
    Gemini,
    /// Model Context Protocol.
    Mcp,
}

impl Vendor {
    /// All formats.
    pub const ALL: [Self; 5] =
        [Self::OpenaiChat, Self::OpenaiResponses, Self::Anthropic, Self::Gemini, Self::Mcp];

    /// The name of the format on the command line and in options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Mcp => "mcp",
        }
    }
}

/// The error of an unknown format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}`; use openai-chat, openai-responses, anthropic, gemini or mcp")]
pub struct UnknownVendor(String);

impl FromStr for Vendor {
    type Err = UnknownVendor;

    fn from_str(text: &str) -> Result<Self, UnknownVendor> {
        let known = Self::ALL.into_iter().find(|vendor| vendor.as_str() == text);
        known.ok_or_else(|| UnknownVendor(toolbay_policy::excerpt::one_line(text, 40)))
    }
}

#[cfg(test)]
mod tests;
