//! The keywords of a schema that the host does not check: keywords that it cannot evaluate, and invalid ones.

use std::fmt;

use serde::{Deserialize, Serialize};
use toolbay_policy::unchecked::UncheckedArguments;

/// Most keywords that are listed. The rest is counted.
const MAX_LISTED: usize = 20;
/// Longest pointer, in characters.
const MAX_POINTER: usize = 200;
/// Longest reason, in characters.
const MAX_REASON: usize = 200;
/// Most keywords in one line.
const MAX_SHOWN: usize = 3;

/// A keyword that is not checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedKeyword {
    /// The JSON pointer into the schema as its author wrote it, cleaned and cut.
    pub pointer: String,
    /// Why it is not checked.
    pub reason: String,
}

/// The keywords of one schema that are not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedKeywords {
    listed: Vec<DroppedKeyword>,
    count: usize,
    arguments: UncheckedArguments,
}

impl DroppedKeywords {
    /// Notes that a keyword is not checked. `clean` makes foreign text safe to show, and cuts it.
    pub(super) fn add(&mut self, pointer: &str, reason: &str, clean: &dyn Fn(&str, usize) -> String) {
        self.list(pointer, reason, clean);
        self.arguments.add(pointer);
    }

    /// Notes a part that has no effect, such as a repeated name.
    pub(super) fn list(&mut self, pointer: &str, reason: &str, clean: &dyn Fn(&str, usize) -> String) {
        self.count += 1;
        if self.listed.len() < MAX_LISTED {
            let (pointer, reason) = (clean(pointer, MAX_POINTER), clean(reason, MAX_REASON));
            self.listed.push(DroppedKeyword { pointer, reason });
        }
    }

    /// Appends the keywords of another list.
    pub(super) fn append(&mut self, other: Self) {
        let room = MAX_LISTED.saturating_sub(self.listed.len());
        self.listed.extend(other.listed.into_iter().take(room));
        self.count += other.count;
        self.arguments.append(other.arguments);
    }

    /// Completes the list with the schema that is checked.
    pub(super) fn finish(mut self, checked: &serde_json::Value) -> Option<Self> {
        self.arguments.set_types(checked);
        (self.count > 0).then_some(self)
    }

    /// The first dropped keywords, in the order of the schema.
    #[must_use]
    pub fn listed(&self) -> &[DroppedKeyword] {
        &self.listed
    }

    /// The number of dropped keywords, including those that are not listed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The arguments that are therefore not checked completely.
    #[must_use]
    pub fn unchecked_arguments(&self) -> &UncheckedArguments {
        &self.arguments
    }
}

impl fmt::Display for DroppedKeyword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = if self.pointer.is_empty() { "(root)" } else { &self.pointer };
        write!(f, "{pointer} ({})", self.reason)
    }
}

/// One line: `2 keywords: /a/pattern (…), /b/type (…)`.
impl fmt::Display for DroppedKeywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.count == 1 { "keyword" } else { "keywords" };
        write!(f, "{} {noun}: ", self.count)?;
        for (n, one) in self.listed.iter().take(MAX_SHOWN).enumerate() {
            let before = if n == 0 { "" } else { ", " };
            write!(f, "{before}{one}")?;
        }
        match self.count.saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_keywords_make_one_short_line_with_a_count() {
        let mut dropped = DroppedKeywords::default();
        let clean = |text: &str, most: usize| toolbay_policy::excerpt::one_line(text, most);
        for n in 0..10_000 {
            dropped.add(&format!("/properties/{n}{}/type", "x".repeat(1000)), "is odd\n\u{1b}[31m", &clean);
        }
        let line = dropped.to_string();
        assert!(line.starts_with("10000 keywords: /properties/0xx"), "{line}");
        assert!(line.ends_with("and 9997 more") && !line.contains(['\n', '\u{1b}']), "{line}");
        assert!(line.len() < 1500 && dropped.listed().len() == MAX_LISTED);
    }
}
