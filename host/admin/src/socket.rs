//! The control sockets of a state directory: `servers/PID.sock`, one for each running server.

use std::io;
use std::path::{Path, PathBuf};

use axum::middleware;
use tokio::net::UnixListener;
use tokio_util::task::AbortOnDropHandle;

use crate::control::ServerControl;
use crate::listener::{self, Acceptor};
use crate::{api, operator};

/// The folder of the sockets in the state directory.
const FOLDER: &str = "servers";
/// The extension of a socket.
const EXTENSION: &str = "sock";
/// The extension of a socket that does not listen yet.
const UNNAMED: &str = "new";

/// A control socket. Dropping it ends the control API and removes the socket.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    _serving: AbortOnDropHandle<()>,
}

impl ControlSocket {
    /// Listens on the socket of this process, which only this user can reach. Requires a tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be created: the path is too long, or the folder cannot be written.
    pub fn listen(state_dir: &Path, control: ServerControl) -> io::Result<Self> {
        let folder = state_dir.join(FOLDER);
        create_private(&folder)?;
        let path = folder.join(format!("{}.{EXTENSION}", std::process::id()));
        // It gets its name once it listens: a socket that refuses connections is that of a server that was killed.
        let unnamed = path.with_extension(UNNAMED);
        remove(&unnamed)?;
        let socket = UnixListener::bind(&unnamed)?;
        std::fs::rename(&unnamed, &path)?;
        let router = api::router(control).layer(middleware::from_fn(operator::identify));
        let serving = tokio::spawn(listener::serve(Acceptor::OwnSocket(socket), router));
        Ok(Self { path, _serving: AbortOnDropHandle::new(serving) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::debug!(%error, "the control socket was not removed");
        }
    }
}

/// The process ids and sockets of the servers of a state directory, in the order of the ids. Those of servers that were
/// killed are among them.
///
/// # Errors
/// The folder cannot be read.
pub fn sockets(state_dir: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let entries = match std::fs::read_dir(state_dir.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_socket = path.extension().is_some_and(|extension| extension == EXTENSION);
        let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(pid) = pid.filter(|_| is_socket) {
            found.push((pid, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes a socket that may not exist.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn create_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // It may be older than this rule.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}
