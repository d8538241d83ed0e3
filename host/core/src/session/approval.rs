//! Answers of a person that last as long as the session.

use std::sync::Arc;

use toolbay_policy::permission::Rule;

use super::Session;
use crate::tool::{ToolDef, ToolSource};

/// Most answers that are kept; a later one counts once.
const MAX_APPROVALS: usize = 256;

/// What was said yes to for good: a tool as it was then, and the rule that asked. Another version of the plugin is
/// another tool, and another rule another question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Approval {
    tool: String,
    source: Arc<ToolSource>,
    rule: Option<Rule>,
    of_profile: Option<String>,
}

impl Approval {
    pub(crate) fn new(tool: &ToolDef, rule: Option<&Rule>, of_profile: Option<&str>) -> Self {
        Self {
            tool: tool.name.as_str().to_owned(),
            source: tool.source.clone(),
            rule: rule.cloned(),
            of_profile: of_profile.map(str::to_owned),
        }
    }
}

impl Session {
    /// Whether the question was answered for good before.
    pub(crate) fn approved(&self, approval: &Approval) -> bool {
        self.approvals.lock().contains(approval)
    }

    /// Waits until nobody else asks: one thing at a time, or an answer for all would come too late for most.
    pub(crate) async fn asks(&self) -> impl Sized + use<'_> {
        self.asking.lock().await
    }

    /// Keeps an answer for good.
    pub(crate) fn approve(&self, approval: Approval) {
        let mut kept = self.approvals.lock();
        if kept.len() < MAX_APPROVALS && !kept.contains(&approval) {
            kept.push(approval);
        }
    }
}
