//! Rules for nested calls: the tools that a tool may call (`invoke = ["files__*"]`).
//!
//! A rule is the name of one tool, or a prefix with a star. A nested call also needs a tool that the caller's view
//! includes, and passes all checks of a call.

use std::path::Path;

use crate::rule::GrantRule;

/// Longest rule, in bytes: longer than every name.
const MAX_RULE: usize = 128;

/// One line of an `invoke` list: `files__read_file`, `files__*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvokeRule {
    /// A qualified name, or a prefix of one.
    name: String,
    /// Whether `name` is a prefix.
    is_prefix: bool,
}

impl InvokeRule {
    /// Whether it allows calls of a tool.
    #[must_use]
    pub fn matches(&self, tool: &str) -> bool {
        if self.is_prefix { tool.starts_with(&self.name) } else { tool == self.name }
    }
}

impl GrantRule for InvokeRule {
    const PATTERN: &'static str = r"^([A-Za-z0-9_-]{1,128}|[A-Za-z0-9_-]{0,127}\*)$";

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let (name, open) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        let known = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if (name.is_empty() && !open) || text.len() > MAX_RULE || !name.chars().all(known) {
            return Err(format!(
                "`{}`: write the name of a tool, `files__read_file`, a prefix, `files__*`, or `*`",
                text.chars().take(MAX_RULE).collect::<String>()
            ));
        }
        Ok(Self { name: name.to_owned(), is_prefix: open })
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        match (self.is_prefix, other.is_prefix) {
            (true, true) if other.name.starts_with(&self.name) => Some(other.clone()),
            (true, true) if self.name.starts_with(&other.name) => Some(self.clone()),
            (true, true) => None,
            (true, false) => self.matches(&other.name).then(|| other.clone()),
            (false, _) => other.matches(&self.name).then(|| self.clone()),
        }
    }

    fn is_everything(&self) -> bool {
        self.is_prefix && self.name.is_empty()
    }

    fn show(&self, _: &Path) -> String {
        format!("{}{}", self.name, if self.is_prefix { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rule::covers;

    fn rule(text: &str) -> InvokeRule {
        InvokeRule::parse(text, Path::new("/")).unwrap()
    }

    #[test]
    fn a_rule_matches_names_or_prefixes() {
        for (text, tool, takes) in [
            ("files__read", "files__read", true),
            ("files__read", "files__read_file", false),
            ("files__*", "files__read", true),
            ("files__*", "files__", true),
            ("files__*", "file__read", false),
            ("*", "anything", true),
            ("*", "", true),
        ] {
            assert_eq!(rule(text).matches(tool), takes, "{text} {tool}");
        }
        for bad in ["", "a b", "*__read", "files__*_file", "a.b", "**", "é", &"a".repeat(129)] {
            let error = InvokeRule::parse(bad, Path::new("/")).unwrap_err();
            assert!(error.contains("write the name of a tool") && error.len() < 400, "{error}");
        }
    }

    proptest! {
        #[test]
        fn the_laws_of_rules_hold(a in "[ab_]{0,3}[ab*]", b in "[ab_]{0,3}[ab*]", tool in "[ab_]{0,5}") {
            let (a, b) = (rule(&a), rule(&b));
            prop_assert_eq!(rule(&a.show(Path::new("/"))), a.clone());
            prop_assert_eq!(a.intersect(&a), Some(a.clone()));
            prop_assert_eq!(a.intersect(&b), b.intersect(&a));
            let both = a.intersect(&b);
            prop_assert_eq!(both.as_ref().is_some_and(|both| both.matches(&tool)), a.matches(&tool) && b.matches(&tool));
            prop_assert!(both.is_none_or(|both| covers(&a, &both) && covers(&b, &both)));
        }
    }
}
