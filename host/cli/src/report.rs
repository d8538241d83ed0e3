//! What several commands report about tools: whether they can be called, what some clients refuse, and why a call failed.

pub(crate) mod call_error;
pub(crate) mod large_sources;
pub(crate) mod long_names;
pub(crate) mod readiness;
pub(crate) mod schema_losses;

use toolbay::View;
use toolbay_core::registry::AbsentSource;
use toolbay_policy::similar;

use crate::output::CommandError;

/// The error for a name that no tool of a view has.
pub(crate) fn unknown_tool(view: &View, name: &str) -> CommandError {
    if let Some(reason) = view.left_out_reason(name) {
        let error = CommandError::new("unknown_tool", format!("there is no tool `{name}`: {}", reason.text));
        return match &reason.hint {
            Some(hint) => error.with_help(hint.to_string()),
            None => error,
        };
    }
    if let Some(AbsentSource { label, state }) = view.absent_source_of(name) {
        let text = format!("there is no tool `{name}`: its source `{label}` {}", state.describe());
        return CommandError::new("unknown_tool", text).with_help("`toolbay status` shows each source");
    }
    let suggestion = similar::did_you_mean(&view.similar(name));
    let help = suggestion.unwrap_or_else(|| "`toolbay list --all` shows all tools".to_owned());
    CommandError::new("unknown_tool", format!("there is no tool `{name}`")).with_help(help)
}
