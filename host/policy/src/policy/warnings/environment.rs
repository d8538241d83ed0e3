//! What a policy expects of the environment of the host, and of the other replicas that share its state.

use super::{CheckInput, CheckReport, PathKind};
use crate::capability::secret::SecretSource;
use crate::problem::PolicyProblem;
use crate::shared::SharedPolicy;

/// Adds a problem for each secret without a value, or with one that is not protected. A missing file is a problem of
/// its path.
pub(super) fn check_secrets(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (name, secret) in input.policy.secrets() {
        let message = match &secret.from {
            SecretSource::Env(variable) if !input.machine.has_variable(variable) => {
                Some(format!("the variable `{variable}` is not set here, so the secret has no value"))
            }
            SecretSource::File(file)
                if matches!(input.machine.path_kind(file), PathKind::Missing | PathKind::Folder) =>
            {
                None
            }
            _ => input.machine.secret_problem(name),
        };
        report
            .found
            .extend(message.map(|message| PolicyProblem::at_keys(["secrets", name, "from"], message)));
    }
}

/// Adds a problem if servers share state and have no common key of `requestState`: a client that is asked for input could
/// only come back to the server that asked.
pub(super) fn check_shared_key(input: &CheckInput<'_>, report: &mut CheckReport) {
    // `rerun_idempotent` holds without shared state, too.
    let alone =
        SharedPolicy { rerun_idempotent: input.policy.shared().rerun_idempotent, ..SharedPolicy::default() };
    if *input.policy.shared() != alone && input.policy.serve().request_state_key.is_none() {
        let message = "servers that share state have no common key, so a client that is asked for input must come back to \
                       the same server";
        let help = "give all of them one file with `request_state_key` of [serve]".to_owned();
        report.warn(["shared"], message.to_owned(), help);
    }
}
