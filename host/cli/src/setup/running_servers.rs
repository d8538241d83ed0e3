//! The running servers of a state directory, which learn of decisions at once.

use anyhow::{Context as _, Result};
use toolbay_admin::client::{ControlError, ServerClient};

use super::args::SetupArgs;
use super::paths::{operator, state_dir};
use super::pulled;
use crate::output::{Printer, host_failure};

/// The running servers of the state directory.
pub(crate) async fn find(args: &SetupArgs) -> Result<Vec<ServerClient>> {
    if args.decisions_dir.is_some() {
        // The decision is published, and reaches the servers that share it.
        return Ok(Vec::new());
    }
    let dir = state_dir(args)?;
    let found = ServerClient::find_all(&dir).await;
    found.with_context(|| format!("the control sockets in `{}`", dir.display())).map_err(host_failure)
}

/// The answer of one of several servers. A server that fails is reported and does not affect the others. It reads state
/// files within seconds on its own.
pub(crate) fn answered<T>(printer: Printer, answer: Result<T, ControlError>) -> Option<T> {
    answer.inspect_err(|error| printer.warning(&error.to_string())).ok()
}

/// Applies a decision before a command reports it. With shared state, it is published. Otherwise the running servers of the
/// state directory reload, if the decision `changes` something for them; they would also notice it within seconds.
///
/// # Errors
/// Fails if the decision was not published. Nothing is changed then.
pub(crate) async fn apply_decision(args: &SetupArgs, changes: bool) -> Result<()> {
    if let Some(pulled) = &args.pulled {
        return pulled::publish(args, pulled).await;
    }
    if !changes {
        return Ok(());
    }
    for server in find(args).await? {
        if answered(args.printer, server.reload(&operator()).await).is_some() {
            args.printer.note(&format!("the running server (process {}) applies the change now", server.pid));
        }
    }
    Ok(())
}
