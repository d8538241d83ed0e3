//! Marks untrusted text, so that a model can distinguish it from instructions.
//!
//! ```text
//! <untrusted source="plugin:web" tool="web__fetch">
//! …
//! </untrusted>
//! ```
//!
//! Inside the mark, the text is [neutral](crate::neutral_text): it cannot close the mark. Text with the same mark is not
//! marked twice; a mark with other names is treated as text.

use std::borrow::Cow;

use toolbay_policy::excerpt::one_line;
use toolbay_policy::output::Truncation;

use crate::neutral_text::fold::fold;
use crate::neutral_text::{neutral_text, neutralize};
use crate::output::budget;

/// Longest attribute of the mark, in characters.
pub const MAX_ATTRIBUTE: usize = 256;

const CLOSE: &str = "\n</untrusted>";

/// The mark for the texts of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntrustedMark {
    open: String,
}

impl UntrustedMark {
    /// The mark for texts of `tool` from `source`.
    #[must_use]
    pub fn new(source: &str, tool: &str) -> Self {
        Self {
            open: format!(
                "<untrusted source=\"{}\" tool=\"{}\">\n",
                attribute_value(source),
                attribute_value(tool)
            ),
        }
    }

    /// The number of characters that the mark adds.
    #[must_use]
    pub fn chars(&self) -> usize {
        self.open.chars().count() + CLOSE.chars().count()
    }

    /// Wraps a neutralized text in the mark.
    fn wrap(&self, body: &str) -> String {
        format!("{}{body}{CLOSE}", self.open)
    }

    /// The text inside the mark, or the whole text if it has no such mark. Use it for output to people, who see the
    /// source.
    #[must_use]
    pub fn strip_mark<'t>(&self, text: &'t str) -> &'t str {
        text.strip_prefix(&*self.open).and_then(|rest| rest.strip_suffix(CLOSE)).unwrap_or(text)
    }

    /// The neutralized text inside the mark, or the neutralized whole text if it has no such mark. Hidden text is
    /// escaped.
    #[must_use]
    pub fn neutral_body<'t>(&self, text: &'t str) -> Cow<'t, str> {
        neutral_text(self.strip_mark(text))
    }

    /// The whole text, neutralized, inside the mark.
    #[must_use]
    pub fn wrap_text(&self, text: &str) -> String {
        self.wrap(&self.neutral_body(text))
    }

    /// The marked text in at most `budget` characters. `total` is the length of the original, and `rest` tells how to
    /// read it. An empty text stays empty.
    #[must_use]
    pub fn fit(&self, text: &str, budget: usize, mode: Truncation, total: usize, rest: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let Some(room) = budget.checked_sub(self.chars()).filter(|room| *room > 0) else {
            let note = format!("[{total} characters of untrusted text left out: they do not fit{rest}]");
            return note.chars().take(budget).collect();
        };
        let text = self.strip_mark(text);
        // Cut first: the work follows the budget, not the text.
        if budget::char_count_if_over(text, room).is_none() {
            let body = neutral_text(text);
            if budget::char_count_if_over(&body, room).is_none() {
                return self.wrap(&body);
            }
        }
        self.wrap(&budget::shorten_with(text, room, mode, total, rest, neutral_text))
    }
}

fn attribute_value(value: &str) -> String {
    let value = one_line(&neutralize(value), MAX_ATTRIBUTE);
    let (mut out, mut used) = (String::new(), 0);
    for c in value.chars() {
        let escaped = match fold(c) {
            Some('&') => "&amp;",
            Some('<') => "&lt;",
            Some('>') => "&gt;",
            Some('"') => "&quot;",
            _ => "",
        };
        used += escaped.len().max(1);
        if used > MAX_ATTRIBUTE {
            break;
        }
        if escaped.is_empty() {
            out.push(c);
        } else {
            out.push_str(escaped);
        }
    }
    out
}

#[cfg(test)]
#[path = "untrusted_tests.rs"]
mod tests;
