//! The admin listener: the page, the control API and metrics for operators with a token.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use axum::middleware;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::task::AbortOnDropHandle;
use toolbay_policy::admin::{AdminAddress, AdminPolicy};

use crate::control::ServerControl;
use crate::gate::AdminGate;
use crate::listener::{self, Acceptor};
use crate::{api, authentication, page, socket};

/// The admin listener of a policy. Dropping it ends it.
#[derive(Debug)]
pub struct AdminServer {
    address: String,
    socket: Option<PathBuf>,
    _serving: AbortOnDropHandle<()>,
}

impl AdminServer {
    /// Listens as a policy says. Requires a tokio runtime.
    ///
    /// # Errors
    /// The address is taken, or the socket cannot be created.
    pub async fn listen(policy: &AdminPolicy, control: ServerControl) -> io::Result<Self> {
        let (acceptor, address, bound, socket) = match &policy.listen {
            AdminAddress::Loopback(address) => {
                let listener = TcpListener::bind(address).await?;
                let bound = listener.local_addr()?;
                (Acceptor::Loopback(listener), format!("http://{bound}"), Some(bound), None)
            }
            AdminAddress::Socket(path) => {
                let acceptor = Acceptor::Socket(bind_socket(path)?);
                (acceptor, format!("unix:{}", path.display()), None, Some(path.clone()))
            }
        };
        let gate = AdminGate::new(control.clone(), policy, bound);
        let router = api::router(control)
            .merge(page::router(gate.clone()))
            .layer(middleware::from_fn_with_state(gate, authentication::authenticate))
            .layer(middleware::from_fn(page::security_headers));
        let serving = tokio::spawn(listener::serve(acceptor, router));
        Ok(Self { address, socket, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Where operators reach it: `http://127.0.0.1:8081`, or `unix:/path`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        if let Some(path) = &self.socket
            && let Err(error) = socket::remove(path)
        {
            tracing::debug!(%error, "the socket of the admin listener was not removed");
        }
    }
}

/// Binds a socket, in place of one that an ended server left.
fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let is_left = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(is_left) {
        socket::remove(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
