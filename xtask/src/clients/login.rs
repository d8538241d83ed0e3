//! `toolbay mcp login` at the authorization servers that come with the MCP Python SDK (1 and 2) and with FastMCP.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::ClientEnvironments;
use crate::{cargo, folder};

/// Logs in at each server, and at one that publishes no metadata of its resource.
pub(super) fn run(workspace: &Path, clients: &ClientEnvironments) -> Result<()> {
    let servers = [
        ("mcp-1", &clients.langchain, &["--library", "mcp"][..]),
        ("mcp-2", &clients.python, &["--library", "mcp"]),
        ("without-metadata", &clients.python, &["--library", "mcp", "--without-metadata"]),
        ("fastmcp", &clients.fastmcp, &["--library", "fastmcp"]),
        ("basic", &clients.fastmcp, &["--library", "fastmcp", "--registers", "client_secret_basic"]),
    ];
    for (name, python, args) in servers {
        let home = clients.target.join("clients-login").join(name);
        folder::emptied(&home)?;
        let mut user = Command::new(&clients.python);
        user.arg(clients.folder.join("login.py")).arg("--toolbay").arg(cargo::host(workspace));
        user.arg("--folder").arg(&home);
        if args.contains(&"--without-metadata") {
            user.arg("--with-issuer");
        }
        user.arg("--").arg(python).arg(clients.folder.join("authorization_server.py")).args(args);
        clients.shell_in(&mut user, &home)?;
    }
    Ok(())
}
