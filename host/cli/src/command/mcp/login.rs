//! `toolbay mcp login` and `logout`: tokens of the authorization server of an MCP server.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;
use toolbay::core::call::invoke::BoxFuture;
use toolbay_mcp::client::{self, AuthorizationHandler, TokenRevocation};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::mcp_server::McpServer;

use crate::output::{self, CommandError, CommandStatus, Printer};
use crate::setup::{self, HostPurpose, SetupArgs};

/// How long the program that opens the browser may take.
const OPENER_TIMEOUT: Duration = Duration::from_secs(10);
/// The programs that open a URL in the user's browser.
const OPENERS: &[&str] = if cfg!(target_os = "macos") { &["/usr/bin/open"] } else { &["/usr/bin/xdg-open"] };

/// Prints the URL, and opens it in a browser unless `--no-browser` says otherwise.
#[derive(Debug)]
struct TerminalUser {
    browser: bool,
    printer: Printer,
}

impl AuthorizationHandler for TerminalUser {
    fn open<'a>(&'a self, server: &'a str, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.printer
                .note(&format!("to log in to `{server}`, open this address in a browser on this machine:"));
            self.printer.note(url);
            if self.browser {
                let url = url.to_owned();
                let opened = tokio::task::spawn_blocking(move || open_browser(&url));
                // Without a browser the user still has the address.
                drop(tokio::time::timeout(OPENER_TIMEOUT, opened).await);
            }
            Ok(())
        })
    }
}

/// Starts the browser. The URL is one argument, and it begins with `http`, so it is no option of the program.
fn open_browser(url: &str) {
    let opener = OPENERS.iter().find(|program| std::path::Path::new(program).is_file());
    let Some(opener) = opener else { return };
    let mut command = Command::new(opener);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.status() {
        tracing::debug!("the browser was not opened: {error}");
    }
}

/// A server of the policy.
fn find_server(host: &toolbay::Host, name: &str) -> Result<Arc<McpServer>> {
    let policy = host.policy();
    policy.mcp_server(name).cloned().ok_or_else(|| {
        super::unknown_server(name, policy.mcp_servers().map(|server| server.name.as_str())).into()
    })
}

pub(super) async fn login(args: &SetupArgs, name: &str, browser: bool) -> Result<CommandStatus> {
    let host = setup::host(args, HostPurpose::Inspect)?;
    let server = find_server(&host, name)?;
    let user = Arc::new(TerminalUser { browser, printer: args.printer });
    let done = match client::login(&server, host.server_connector(), user).await {
        Ok(done) => done,
        Err(error) => {
            let text = format!("the login to `{name}` failed, and nothing was saved: {error}");
            return Err(CommandError::new("login_failed", text).into());
        }
    };
    if args.printer.is_json() {
        return Ok(output::print_json(&json!({
            "server": name,
            "issuer": done.issuer,
            "scopes": done.scopes,
            "renewable": done.renewable,
        }))?);
    }
    let scopes =
        if done.scopes.is_empty() { String::new() } else { format!(" with {}", done.scopes.join(" ")) };
    args.printer.note(&format!("logged in to `{name}` at `{}`{scopes}", one_line(&done.issuer, 300)));
    if !done.renewable {
        args.printer
            .note("the authorization server gave no refresh token: log in again when the token expires");
    }
    args.printer.note(&format!("try it with `toolbay mcp check {name}`"));
    Ok(CommandStatus::Success)
}

pub(super) async fn logout(args: &SetupArgs, name: &str) -> Result<CommandStatus> {
    let host = setup::host(args, HostPurpose::Inspect)?;
    // The section may be gone, and its credentials still there.
    let id = toolbay_policy::name::PluginId::new(name).map_err(|e| anyhow!("{e}"))?;
    let policy = host.policy();
    let server = policy.mcp_server(name).map(Arc::as_ref);
    let done = client::logout(&id, server, host.server_connector()).await?;
    if !done.removed && server.is_none() {
        return Err(
            super::unknown_server(name, policy.mcp_servers().map(|server| server.name.as_str())).into()
        );
    }
    if args.printer.is_json() {
        let (revoked, reason) = match &done.revocation {
            TokenRevocation::Revoked(_) => (true, None),
            TokenRevocation::Failed(error) => (false, Some(error.to_string())),
            TokenRevocation::NoTokens | TokenRevocation::Unsupported(_) => (false, None),
        };
        let report = json!({"server": name, "removed": done.removed, "revoked": revoked, "reason": reason});
        return Ok(output::print_json(&report)?);
    }
    if !done.removed {
        args.printer.note(&format!("there are no credentials of `{name}`"));
        return Ok(CommandStatus::Success);
    }
    let shown = |issuer: &str| one_line(issuer, 300);
    match &done.revocation {
        TokenRevocation::NoTokens => args.printer.note(&format!("removed the credentials of `{name}`")),
        TokenRevocation::Revoked(issuer) => args.printer.note(&format!(
            "removed the credentials of `{name}`, and `{}` revoked its tokens",
            shown(issuer)
        )),
        TokenRevocation::Unsupported(issuer) => args.printer.note(&format!(
            "removed the credentials of `{name}`; `{}` cannot revoke tokens, so they are valid until they expire",
            shown(issuer)
        )),
        TokenRevocation::Failed(error) => {
            args.printer.note(&format!("removed the credentials of `{name}`"));
            args.printer.warning(&format!(
                "its tokens are valid until they expire, because they were not revoked: {error}"
            ));
        }
    }
    Ok(CommandStatus::Success)
}

/// Whether a server that was just added wants a login.
pub(super) async fn is_required(args: &SetupArgs, name: &str) -> Result<bool> {
    let host = setup::host(args, HostPurpose::Inspect)?;
    let server = find_server(&host, name)?;
    Ok(client::requires_login(&server, host.server_connector()).await?)
}
