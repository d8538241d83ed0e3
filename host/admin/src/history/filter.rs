//! Which calls an operator asks for.

use serde::Deserialize;

use super::FinishedCall;

/// A filter of calls. Absent fields match all calls.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallFilter {
    /// A part of the tool, the call id, the session, the agent or the caller's reason.
    pub(crate) text: String,
    /// The plugin.
    pub(crate) plugin: String,
    /// The outcome; `failed` for all but `ok`.
    pub(crate) outcome: String,
}

impl CallFilter {
    pub(crate) fn matches(&self, call: &FinishedCall) -> bool {
        let record = &call.record;
        let is_outcome = match self.outcome.as_str() {
            "" => true,
            "failed" => record.outcome != "ok",
            outcome => record.outcome == outcome,
        };
        is_outcome
            && (self.plugin.is_empty() || call.plugin() == Some(self.plugin.as_str()))
            && self.has_text(call)
    }

    fn has_text(&self, call: &FinishedCall) -> bool {
        let record = &call.record;
        let texts = [
            Some(&*record.tool),
            Some(&*record.call_id),
            record.session_id.as_deref(),
            record.agent_id.as_deref(),
            record.reason.as_deref(),
        ];
        self.text.is_empty() || texts.into_iter().flatten().any(|text| text.contains(&self.text))
    }
}
