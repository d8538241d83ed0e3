//! The server of an installed Debian package, with the settings of its unit.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::privileged;
use crate::programs::{RunningProgram, fetched, retried};

/// Time for the server to compile the plugins.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The revision of MCP in which a call stands alone.
const REVISION: &str = "2026-07-28";

/// A running server. Its process namespace ends with it.
#[derive(Debug)]
pub(super) struct PackageServer {
    _program: RunningProgram,
    /// With the scheme, without a path.
    url: String,
}

impl PackageServer {
    /// Starts the program in a root and waits until it is ready.
    pub(super) fn start(root: &Path) -> Result<Self> {
        let unit = fs::read_to_string(root.join("usr/lib/systemd/system/toolbay.service"))?;
        let mut serve = privileged("unshare");
        serve.args(["--mount", "--pid", "--fork", "--kill-child"]);
        serve.arg(format!("--mount-proc={}", root.join("proc").display())).arg("chroot").arg(root);
        serve.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).envs(environment(&unit));
        let start =
            unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).context("no `ExecStart`")?;
        serve.args(start.replace("systemd", "127.0.0.1:0").split(' '));
        let mut program = RunningProgram::start(serve.stderr(Stdio::piped()))?;
        let url = program.logged("listening on ")?.trim_end_matches("/mcp").to_owned();
        retried(START_TIMEOUT, || fetched(&format!("{url}/readyz"), &[]))
            .context("the server is not ready")?;
        Ok(Self { _program: program, url })
    }

    /// Calls a tool and returns the text of its result.
    pub(super) fn call(&self, tool: &str, arguments: &str) -> Result<String> {
        let arguments: Value = serde_json::from_str(arguments)?;
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        let headers = [
            "content-type: application/json".to_owned(),
            "accept: application/json, text/event-stream".to_owned(),
            format!("mcp-protocol-version: {REVISION}"),
            "mcp-method: tools/call".to_owned(),
            format!("mcp-name: {tool}"),
        ];
        let mut options = vec!["--data-binary", &body];
        options.extend(headers.iter().flat_map(|header| ["--header", header]));
        fetched(&format!("{}/mcp", self.url), &options)
    }
}

/// The variables that a unit sets.
fn environment(unit: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
    lines.flat_map(|line| line.split(' ').filter_map(|pair| pair.split_once('=')))
}
