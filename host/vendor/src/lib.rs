//! Tools, calls and results in the formats of model vendors.
//!
//! One canonical schema per tool, rewritten as little as a vendor's subset demands, with a report of what was lost in
//! it. Nothing is lost for the check of a call: the host validates the arguments against the canonical schema whatever
//! a vendor was shown.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod calls;
mod definitions;
mod results;
mod subset;

pub use calls::{FormatError, call_message, parse_calls};
pub use definitions::{Definitions, definitions, of_view};
pub use results::result_messages;
pub use subset::Loss;

use std::str::FromStr;

/// Whose format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// OpenAI, chat completions.
    OpenaiChat,
    /// OpenAI, responses.
    OpenaiResponses,
    /// Anthropic, messages.
    Anthropic,
    /// Google Gemini, generate content.
    Gemini,
    /// Model Context Protocol.
    Mcp,
}

impl Vendor {
    /// All formats.
    pub const ALL: [Self; 5] =
        [Self::OpenaiChat, Self::OpenaiResponses, Self::Anthropic, Self::Gemini, Self::Mcp];

    /// The format's name on the command line and in options.
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

/// A format that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}`: there are openai-chat, openai-responses, anthropic, gemini and mcp")]
pub struct UnknownVendor(String);

impl FromStr for Vendor {
    type Err = UnknownVendor;

    fn from_str(text: &str) -> Result<Self, UnknownVendor> {
        let known = Self::ALL.into_iter().find(|vendor| vendor.as_str() == text);
        known.ok_or_else(|| UnknownVendor(toolbay_policy::text::one_line(text, 40)))
    }
}

#[cfg(test)]
mod tests;
