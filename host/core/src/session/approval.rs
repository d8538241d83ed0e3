//! Approvals that last for the rest of a session.

use std::sync::Arc;

use serde_json::Value;
use toolbay_policy::permission::PermissionRule;

use super::Session;
use crate::tool::canonical::{self, Digest};
use crate::tool::{ToolDef, ToolSource};

/// Most standing approvals of a session. A later one applies to its call only.
const MAX_APPROVALS: usize = 256;

/// An approval of one tool under one rule. It does not cover another version of the plugin or another rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StandingApproval {
    tool: String,
    source: Arc<ToolSource>,
    rule: Option<PermissionRule>,
    of_profile: Option<String>,
}

impl StandingApproval {
    pub(crate) fn new(tool: &ToolDef, rule: Option<&PermissionRule>, of_profile: Option<&str>) -> Self {
        Self {
            tool: tool.name.as_str().to_owned(),
            source: tool.source.clone(),
            rule: rule.cloned(),
            of_profile: of_profile.map(str::to_owned),
        }
    }

    /// A digest by which replicas share approvals. A version of Toolbay that shows a rule differently has another digest,
    /// and asks again.
    pub(crate) fn digest(&self) -> Digest {
        canonical::sha256(&Value::String(format!("{self:?}")))
    }
}

impl Session {
    /// Whether the session has this standing approval.
    pub(crate) fn is_approved(&self, approval: &StandingApproval) -> bool {
        self.approvals.lock().contains(approval)
    }

    /// Waits until no other approval request of the session is open. With one request at a time, a standing approval
    /// covers the calls that wait.
    pub(crate) async fn lock_approvals(&self) -> impl Sized + use<'_> {
        self.approval_lock.lock().await
    }

    /// Adds a standing approval.
    pub(crate) fn add_approval(&self, approval: StandingApproval) {
        let mut approvals = self.approvals.lock();
        if approvals.len() < MAX_APPROVALS && !approvals.contains(&approval) {
            approvals.push(approval);
        }
    }
}
