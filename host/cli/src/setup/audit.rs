//! The audit of a command.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use toolbay::core::audit::AuditSink;
use toolbay::policy::audit_policy::AuditPolicy;
use toolbay::{FileAudit, Retention};

use super::args::SetupArgs;
use super::paths::{audit_file, state_dir};
use super::policy_file::policy;
use crate::output::{CommandError, host_failure};

/// The audit; `None` with `--no-audit`.
pub(crate) fn audit(args: &SetupArgs, policy: &AuditPolicy) -> Result<Option<Arc<dyn AuditSink>>> {
    if args.no_audit && policy.required {
        bail!("--no-audit: the policy says `[audit] required = true`, so every call is recorded");
    }
    if args.no_audit {
        return Ok(None);
    }
    let retention = Retention::from(policy);
    let sink = match &args.audit {
        Some(file) => FileAudit::with_retention(file, retention),
        None => FileAudit::in_state_dir(&state_dir(args)?, retention),
    };
    let file = audit_file(args)?;
    let sink = sink.map_err(|error| {
        let why = format!("the audit `{}` cannot be opened: {error}", file.display());
        CommandError::new("unusable_path", why).with_help(
            "give another place with --audit FILE or --state-dir DIR, or keep none with --no-audit",
        )
    });
    Ok(Some(Arc::new(sink?)))
}

/// The audit for a decision of the operator. A decision that must be recorded and cannot be is refused.
pub(crate) fn audit_for_decision(args: &SetupArgs) -> Result<Option<Arc<dyn AuditSink>>> {
    audit_under(args, policy(args)?.audit())
}

/// As [`audit_for_decision`], under a policy that is not written yet.
pub(crate) fn audit_under(args: &SetupArgs, policy: &AuditPolicy) -> Result<Option<Arc<dyn AuditSink>>> {
    let sink = audit(args, policy)?;
    let problem = sink.as_ref().and_then(|sink| sink.health()).and_then(|health| health.problem);
    match problem {
        Some(problem) if policy.required => Err(host_failure(anyhow!(
            "nothing was changed: the policy says `[audit] required = true`, and the audit cannot be written ({problem})"
        ))),
        _ => Ok(sink),
    }
}
