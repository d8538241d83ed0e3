//! The running servers of a state directory, which learn of decisions at once.

use anyhow::{Context as _, Result};
use toolbay_admin::client::{ControlError, ServerClient};

use super::args::SetupArgs;
use super::paths::{operator, state_dir};
use super::pulled;
use crate::output::host_failure;

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

/// Asks all running servers, and returns those that answered. A server that fails is reported and does not affect the
/// others. It reads state files within seconds on its own.
pub(crate) async fn ask_all<T>(
    args: &SetupArgs,
    ask: impl AsyncFn(&ServerClient) -> Result<T, ControlError>,
) -> Result<Vec<(ServerClient, T)>> {
    let mut answers = Vec::new();
    for server in find(args).await? {
        match ask(&server).await {
            Ok(answer) => answers.push((server, answer)),
            Err(error) => args.printer.warning(&error.to_string()),
        }
    }
    Ok(answers)
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
    for (server, ()) in ask_all(args, async |server| server.reload(&operator()).await).await? {
        args.printer.note(&format!("the running server (process {}) applies the change now", server.pid));
    }
    Ok(())
}
