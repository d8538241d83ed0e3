//! A refusal: the message for the model, and the hint for the operator.
//!
//! A [`Hint`] holds the policy lines that would allow the refused use. A model that reads them could talk a person into
//! granting more, so the hint is a separate field from the start. The command line, the audit and `explain` show
//! hints. MCP shows them only if the policy sets `[results] policy_hints`.

use crate::excerpt::one_line;
use serde::{Serialize, Serializer};

use crate::hint::{self, Hint};

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
    /// What would allow it, for the operator. `None` if nothing would.
    pub hint: Option<Hint>,
}

impl PolicyRefusal {
    /// Creates a refusal that the operator can lift.
    #[must_use]
    pub fn new(text: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self { text: text.into(), hint: Some(hint.into()) }
    }

    /// Changes the text and keeps the hint.
    #[must_use]
    pub fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        Self { text: change(self.text), hint: self.hint }
    }

    /// Changes all texts in the same way: removes the values of secrets from them, or cuts them.
    #[must_use]
    pub fn map_texts(self, change: impl Fn(String) -> String) -> Self {
        Self { hint: self.hint.map(|hint| hint.map_texts(&change)), text: change(self.text) }
    }

    /// Appends a further hint to the present one.
    #[must_use]
    pub fn with_further_hint(self, further: Option<Hint>) -> Self {
        let hint = match (self.hint, further) {
            (Some(hint), Some(further)) => Some(format!("{hint}; {further}").into()),
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
        format_for_operator(&self.text, self.hint.as_ref())
    }
}

impl Serialize for PolicyRefusal {
    /// Writes the message for the operator.
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.for_operator())
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
pub fn format_for_operator(text: &str, hint: Option<&Hint>) -> String {
    hint.map_or_else(|| text.to_owned(), |hint| hint::append(text, &hint.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{LineValue, PolicyLine, Remedy};

    #[test]
    fn models_and_operators_get_different_texts() {
        let lines =
            vec![PolicyLine::new("[plugins.p.grant]", "kv", LineValue::List(vec!["tool".to_owned()]))];
        let refusal = PolicyRefusal::new("`a` is not granted", Remedy::Allow { first: None, lines });
        let expected = "`a` is not granted: not permitted; `toolbay explain p__t` tells the operator what would allow it";
        assert_eq!(refusal.for_model("p__t"), expected);
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
        assert_eq!(named.for_operator(), whole);
        let cut = named.map_texts(|text| text.chars().take(10).collect());
        assert_eq!(cut, PolicyRefusal::new("the server", "to give it"));
        let both = cut.with_further_hint(None).with_further_hint(Some("or wait".into()));
        assert_eq!(both.hint, Some("to give it; or wait".into()));
        let plain = PolicyRefusal::from("it is gone").with_further_hint(Some("start it".into()));
        assert_eq!(plain, PolicyRefusal::new("it is gone", "start it"));
        assert_eq!(PolicyRefusal::from("it is gone").for_operator(), "it is gone");
    }
}
