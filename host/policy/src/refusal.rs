//! A refusal with two texts: the message for the model, and the hint for the operator.
//!
//! A hint holds the policy lines that would allow the refused use. A model that reads them could talk a person into
//! granting more, so the hint is a separate field from the start. The command line, the audit and `explain` show
//! hints. MCP shows them only if the policy sets `[results] policy_hints`.

use crate::excerpt::one_line;

/// Most hints kept for one call. Equal hints are kept once.
pub const MAX_HINTS: usize = 16;
/// Longest hint, in bytes. A hint repeats a list of the policy, which the operator wrote.
pub const MAX_HINT_BYTES: usize = 8 << 10;
/// Longest tool name that a message repeats, in characters.
const MAX_NAME: usize = 128;

/// The reason of a refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRefusal {
    /// What happened, without policy lines. Safe for any reader.
    pub text: String,
    /// The policy lines that would allow it, for the operator. `None` if no line would.
    pub hint: Option<String>,
}

impl PolicyRefusal {
    /// Creates a refusal that the operator can lift.
    #[must_use]
    pub fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { text: text.into(), hint: Some(hint.into()) }
    }

    /// Changes the text and keeps the hint.
    #[must_use]
    pub fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        Self { text: change(self.text), hint: self.hint }
    }

    /// Changes both texts in the same way: removes the values of secrets from them, or cuts them.
    #[must_use]
    pub fn map_both(&self, change: impl Fn(&str) -> String) -> Self {
        Self { text: change(&self.text), hint: self.hint.as_deref().map(change) }
    }

    /// Adds a hint after the one that is there, if there is one to add.
    #[must_use]
    pub fn with_further_hint(self, further: Option<String>) -> Self {
        let hint = match (self.hint, further) {
            (Some(hint), Some(further)) => Some(format!("{hint}; {further}")),
            (hint, further) => hint.or(further),
        };
        Self { text: self.text, hint }
    }

    /// Returns the message for a model that called `tool`.
    #[must_use]
    pub fn for_model(&self, tool: &str) -> String {
        match &self.hint {
            Some(_) => format!("{}: {}", self.text, not_permitted_notice(tool)),
            None => self.text.clone(),
        }
    }

    /// Returns the message with the hint, for the operator.
    #[must_use]
    pub fn for_operator(&self) -> String {
        format_for_operator(&self.text, self.hint.as_deref())
    }

    /// Returns the message with the hint as its last clause, for the operator: for the hints of MCP servers, which begin in
    /// lower case.
    #[must_use]
    pub fn in_one_sentence(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.text),
            None => self.text.clone(),
        }
    }
}

impl From<String> for PolicyRefusal {
    fn from(text: String) -> Self {
        Self { text, hint: None }
    }
}

impl From<&str> for PolicyRefusal {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Formats a message with its hint, for the operator.
#[must_use]
pub fn format_for_operator(text: &str, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{}. {hint}", text.trim_end_matches('.')),
        None => text.to_owned(),
    }
}

/// The notice that replaces a grant hint in messages for models. The command shows the hint and changes nothing.
#[must_use]
pub fn not_permitted_notice(tool: &str) -> String {
    let tool = one_line(tool, MAX_NAME);
    format!("not permitted; `toolbay explain {tool}` tells the operator what would allow it")
}

/// What a message for models says of a use that no policy line would allow.
pub const NEVER_PERMITTED_NOTICE: &str = "not permitted, and no line of the policy would allow it";

/// What a message for models says of a limit of the policy.
pub const RAISE_NOTICE: &str = "the operator can raise it";

/// The notice that replaces a limit hint in messages for models. The command shows the hint and changes nothing.
#[must_use]
pub fn limit_notice(tool: &str) -> String {
    let tool = one_line(tool, MAX_NAME);
    format!("{RAISE_NOTICE}: `toolbay explain {tool}` tells them how")
}

/// Formats the hint that shows policy lines which allow a use.
#[must_use]
pub fn allow_hint(lines: &str) -> String {
    format!("To allow it, write in the policy:\n{lines}")
}

/// Formats the hint that names the setting of a limit.
#[must_use]
pub fn raise_hint(setting: &str) -> String {
    format!("To raise it, write in the policy: {setting}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_operators_get_different_texts() {
        let refusal =
            PolicyRefusal::new("`a` is not granted", allow_hint("[plugins.p.grant]\nkv = [\"tool\"]"));
        let told = "`a` is not granted: not permitted; `toolbay explain p__t` tells the operator what would allow it";
        assert_eq!(refusal.for_model("p__t"), told);
        let whole =
            "`a` is not granted. To allow it, write in the policy:\n[plugins.p.grant]\nkv = [\"tool\"]";
        assert_eq!(refusal.for_operator(), whole);
        let plain = PolicyRefusal::from("it is switched off");
        assert_eq!((plain.for_model("t"), plain.for_operator()), (plain.text.clone(), plain.text.clone()));
        // A tool name is caller input.
        assert!(!not_permitted_notice("a\nb").contains('\n'));
    }

    #[test]
    fn a_hint_stays_apart_from_the_text_until_it_is_shown() {
        let refusal =
            PolicyRefusal::new("it did not begin", "to give it longer, write in the policy: [mcp.x] a = …");
        let named = refusal.map_text(|text| format!("the server `x`: {text}"));
        assert_eq!(named.text, "the server `x`: it did not begin");
        let whole = "the server `x`: it did not begin; to give it longer, write in the policy: [mcp.x] a = …";
        assert_eq!(named.in_one_sentence(), whole);
        let cut = named.map_both(|text| text.chars().take(10).collect());
        assert_eq!(cut, PolicyRefusal::new("the server", "to give it"));
        let both = cut.with_further_hint(None).with_further_hint(Some("or wait".to_owned()));
        assert_eq!(both.hint.as_deref(), Some("to give it; or wait"));
        let plain = PolicyRefusal::from("it is gone").with_further_hint(Some("start it".to_owned()));
        assert_eq!(plain, PolicyRefusal::new("it is gone", "start it"));
        assert_eq!(PolicyRefusal::from("it is gone").in_one_sentence(), "it is gone");
    }
}
