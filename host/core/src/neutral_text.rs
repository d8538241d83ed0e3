//! Neutral text: third-party text without control tokens of chat templates, and without imitations of the mark that the
//! host puts around [untrusted text](crate::output::untrusted).
//!
//! Each token becomes [`STRIPPED`]. The bracket of each tag that resembles the mark, in any case, spacing or alphabet,
//! becomes `&lt;`. Tags, joiners and variation selectors without a function can encode hidden text, so [`neutral_text`]
//! escapes them ([`escape_smuggled`]). All other text is unchanged.

pub(crate) mod fold;
mod tokens;

use std::borrow::Cow;

use toolbay_policy::hidden_chars::escape_smuggled;

/// The replacement of a chat template token.
pub const STRIPPED: &str = "[STRIPPED-TEMPLATE-TOKEN]";

/// Neutralizes a text and escapes hidden text in it. The result can be put inside a mark.
#[must_use]
pub fn neutral_text(text: &str) -> Cow<'_, str> {
    match escape_smuggled(text) {
        Cow::Borrowed(text) => neutralize(text),
        Cow::Owned(text) => Cow::Owned(neutralize(&text).into_owned()),
    }
}

/// Neutralizes control tokens and imitations of the mark in a text.
#[must_use]
pub fn neutralize(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some((start, first)) = tokens::next_candidate(text, at) {
        let (length, instead) = match tokens::threat_at(text, start) {
            None => {
                at = start + first.len_utf8();
                continue;
            }
            Some(tokens::Threat::Token(length)) => (length, STRIPPED),
            Some(tokens::Threat::Bracket) => (first.len_utf8(), "&lt;"),
        };
        out.push_str(text.get(done..start).unwrap_or_default());
        out.push_str(instead);
        done = start + length;
        at = done;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}
