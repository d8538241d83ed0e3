//! Marks text that others wrote, so that a model can tell it from what it is told to do, and takes out of it what would
//! make it more than text: the control tokens of chat templates, and whatever could pass for the end of the mark.
//!
//! ```text
//! <untrusted source="plugin:web" tool="web__fetch">
//! …
//! </untrusted>
//! ```
//!
//! Inside, each token becomes [`STRIPPED`], and the bracket of each tag that reads like the mark's own, whatever its
//! case, its blanks or its alphabet, becomes `&lt;`. Tags, joiners and variation selectors that mean nothing where they
//! stand are spelt out ([`text::unsmuggled`]): they can carry a text that people do not see. All else stays as it is. Text that carries this very mark already
//! is not marked twice; a mark with other names in it is only text.

mod fold;
mod tokens;

use std::borrow::Cow;

use toolbay_policy::output::Truncation;
use toolbay_policy::text;

use crate::output::budget;

/// What stands where a control token of a chat template stood.
pub const STRIPPED: &str = "[STRIPPED-TEMPLATE-TOKEN]";
/// Longest attribute of the mark, in characters.
pub const MAX_ATTRIBUTE: usize = 256;

const CLOSE: &str = "\n</untrusted>";

/// The mark for the texts of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    open: String,
}

impl Mark {
    /// The mark for what `tool` says, which comes from `source`.
    #[must_use]
    pub fn new(source: &str, tool: &str) -> Self {
        Self { open: format!("<untrusted source=\"{}\" tool=\"{}\">\n", attribute(source), attribute(tool)) }
    }

    /// Characters that the mark adds to a text.
    #[must_use]
    pub fn chars(&self) -> usize {
        self.open.chars().count() + CLOSE.chars().count()
    }

    /// Puts the mark around what [`neutral`] gave.
    fn around(&self, body: &str) -> String {
        format!("{}{body}{CLOSE}", self.open)
    }

    /// What is inside of the mark, if `text` carries it; else the whole text. For people, who see where it comes from.
    #[must_use]
    pub fn inside<'t>(&self, text: &'t str) -> &'t str {
        text.strip_prefix(&*self.open).and_then(|rest| rest.strip_suffix(CLOSE)).unwrap_or(text)
    }

    /// What is inside of the mark, neutral, if `text` carries it already; else the whole text, neutral. What carries another
    /// text unseen is spelt out.
    #[must_use]
    pub fn body<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match text::unsmuggled(self.inside(text)) {
            Cow::Borrowed(text) => neutral(text),
            Cow::Owned(text) => Cow::Owned(neutral(&text).into_owned()),
        }
    }

    /// The text as it goes out, in at most `budget` characters. `total` is how long the whole of it is, and `rest` how
    /// to get that. An empty text stays one.
    #[must_use]
    pub fn fit(&self, text: &str, budget: usize, mode: Truncation, total: usize, rest: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let Some(room) = budget.checked_sub(self.chars()).filter(|room| *room > 0) else {
            let note = format!("[{total} characters that others wrote: no room for them{rest}]");
            return note.chars().take(budget).collect();
        };
        let mut body = self.body(text).into_owned();
        if budget::over(&body, room).is_some() {
            budget::shorten(&mut body, room, mode, total, rest);
        }
        self.around(&body)
    }
}

/// A text without control tokens, and without anything that reads like the mark.
#[must_use]
pub fn neutral(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some((start, first)) = tokens::next(text, at) {
        let (length, instead) = match tokens::threat(text, start) {
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

fn attribute(value: &str) -> String {
    let value = text::one_line(&neutral(value), MAX_ATTRIBUTE);
    let (mut out, mut used) = (String::new(), 0);
    for c in value.chars() {
        let escaped = match fold::fold(c) {
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
