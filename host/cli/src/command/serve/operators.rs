//! What operators reach a server by: its control socket, and the admin listener of the policy.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use toolbay::Host;
use toolbay_admin::client::ServerClient;
use toolbay_admin::server::AdminServer;
use toolbay_admin::socket::ControlSocket;
use toolbay_admin::{AdminState, ServerControl, ServerTransport};

use super::operator_files::ServerFiles;
use crate::output::{Printer, host_failure};
use crate::setup::{self, SetupArgs};

/// The open ways to a server. Dropping it closes them.
#[derive(Debug)]
pub(super) struct OperatorAccess {
    pub(super) control: ServerControl,
    _socket: Option<ControlSocket>,
    _admin: Option<AdminServer>,
}

impl OperatorAccess {
    /// Opens them.
    pub(super) async fn open(
        args: &SetupArgs,
        host: &Host,
        transport: ServerTransport,
        state: Option<AdminState>,
    ) -> Result<Self> {
        let is_stdio = transport == ServerTransport::Stdio;
        let files = Arc::new(ServerFiles::new(args.clone(), host.clone()));
        let control = ServerControl::new(host.clone(), setup::stop_order(args)?, transport, files, state);
        let admin = match open_admin(args.printer, host, &control).await {
            // Several clients start servers under one policy; the first one has the listener.
            Err(error) if is_stdio => {
                args.printer.warning(&format!("{error:#}"));
                None
            }
            // The address cannot be listened on.
            Err(error) if error.is::<io::Error>() => return Err(host_failure(error)),
            opened => opened?,
        };
        let state_dir = setup::state_dir(args)?;
        // Removes the sockets of servers that were killed.
        if let Err(error) = ServerClient::find_all(&state_dir).await {
            tracing::debug!(%error, "the sockets of other servers cannot be listed");
        }
        let socket = open_socket(args.printer, &state_dir, &control);
        Ok(Self { control, _socket: socket, _admin: admin })
    }
}

async fn open_admin(printer: Printer, host: &Host, control: &ServerControl) -> Result<Option<AdminServer>> {
    let policy = host.policy();
    let Some(admin) = policy.admin() else { return Ok(None) };
    let shown = admin.tokens.display();
    let checked = toolbay_admin::require_tokens(&admin.tokens).map_err(anyhow::Error::msg);
    checked.with_context(|| format!("[admin] `tokens`: `{shown}`"))?;
    let opened = AdminServer::listen(admin, control.clone()).await;
    let server = opened.with_context(|| format!("[admin] `listen`: `{}`", admin.listen))?;
    printer.note(&format!("operators reach it on {}", server.address()));
    Ok(Some(server))
}

/// Opens the control socket. A server works without one.
fn open_socket(printer: Printer, state_dir: &Path, control: &ServerControl) -> Option<ControlSocket> {
    let opened = ControlSocket::listen(state_dir, control.clone());
    opened
        .inspect_err(|error| {
            printer.warning(&format!(
                "`toolbay ps`, `cancel` and `stop` do not reach this server: no control socket in `{}`: {error}",
                state_dir.display()
            ));
        })
        .ok()
}
