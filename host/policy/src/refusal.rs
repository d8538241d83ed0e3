//! A refusal in two voices: the text that a model reads, and the hint that only the operator reads.
//!
//! A hint holds the lines of the policy that would allow what was refused. A model that reads them can talk a person
//! into widening its reach, so a hint is a field of its own from the moment it is made. Each edge chooses: the command
//! line, the audit and `explain` show hints, MCP shows them only where the policy says so (`[results] policy_hints`).

use crate::text::one_line;

/// Most hints that are kept of one call; equal ones are kept once.
pub const MAX_HINTS: usize = 16;
/// Longest hint, in bytes: it repeats a list of the policy, which the operator wrote.
pub const MAX_HINT_BYTES: usize = 8 << 10;
/// Longest tool name that a text repeats, in characters.
const MAX_NAME: usize = 128;

/// Why something is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRefusal {
    /// What happened, for anybody: no line of the policy is in it.
    pub text: String,
    /// What would allow it, for the operator; `None`: nothing that the operator could write would.
    pub hint: Option<String>,
}

impl PolicyRefusal {
    /// A refusal that the operator could lift.
    #[must_use]
    pub fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { text: text.into(), hint: Some(hint.into()) }
    }

    /// Splits a text that was written for the operator: the clause that says what to write in the policy, and all behind
    /// it, is left out for a model.
    #[must_use]
    pub fn from_operator_text(text: &str) -> Self {
        let Some(at) = text.find("write in the policy") else { return text.into() };
        let before = text.get(..at).unwrap_or_default();
        let clause = before.rfind(';').and_then(|at| before.get(..at)).unwrap_or(before);
        Self::new(clause.trim_end_matches([' ', ':', ',']), text)
    }

    /// The text for a model that called `tool`.
    #[must_use]
    pub fn for_model(&self, tool: &str) -> String {
        match &self.hint {
            Some(_) => format!("{}: {}", self.text, not_permitted_notice(tool)),
            None => self.text.clone(),
        }
    }

    /// The text and the hint, for the operator.
    #[must_use]
    pub fn for_operator(&self) -> String {
        format_for_operator(&self.text, self.hint.as_deref())
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

/// A text with its hint, for the operator.
#[must_use]
pub fn format_for_operator(text: &str, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{}. {hint}", text.trim_end_matches('.')),
        None => text.to_owned(),
    }
}

/// What a model is told in place of a hint that allows something.
#[must_use]
pub fn not_permitted_notice(tool: &str) -> String {
    format!("not permitted; the operator can allow it with `toolbay explain {}`", one_line(tool, MAX_NAME))
}

/// What a model is told in place of a hint that raises a limit.
#[must_use]
pub fn limit_notice(tool: &str) -> String {
    format!("the operator can raise it: `toolbay explain {}` shows how", one_line(tool, MAX_NAME))
}

/// The hint that names one setting, or one line, of the policy.
#[must_use]
pub fn allow_hint(lines: &str) -> String {
    format!("To allow it, write in the policy:\n{lines}")
}

/// The hint that names the setting of a limit.
#[must_use]
pub fn raise_hint(setting: &str) -> String {
    format!("To raise it, write in the policy: {setting}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_gets_what_is_meant_for_it() {
        let refusal = PolicyRefusal::new("`a` is not granted", allow_hint("[plugins.p.grant]\nkv = [\"tool\"]"));
        let told = "`a` is not granted: not permitted; the operator can allow it with `toolbay explain p__t`";
        assert_eq!(refusal.for_model("p__t"), told);
        let whole =
            "`a` is not granted. To allow it, write in the policy:\n[plugins.p.grant]\nkv = [\"tool\"]";
        assert_eq!(refusal.for_operator(), whole);
        let plain = PolicyRefusal::from("it is switched off");
        assert_eq!((plain.for_model("t"), plain.for_operator()), (plain.text.clone(), plain.text.clone()));
        for (text, model) in [
            ("it did not begin; to give it longer, write in the policy: [mcp.x] a = …", "it did not begin"),
            (
                "status 401: it wants credentials; write in the policy: [mcp.x] b",
                "status 401: it wants credentials",
            ),
        ] {
            let split = PolicyRefusal::from_operator_text(text);
            assert_eq!((split.text.as_str(), split.hint.as_deref()), (model, Some(text)));
        }
        assert_eq!(PolicyRefusal::from_operator_text("it is gone"), "it is gone".into());
        // A name is a caller's text.
        assert!(!not_permitted_notice("a\nb").contains('\n'));
    }
}
