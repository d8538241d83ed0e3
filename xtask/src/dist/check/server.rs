//! The server of an installed Debian package, with the settings of its unit.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::privileged;

/// Time for the server to compile the plugins.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The revision of MCP in which a call stands alone.
const REVISION: &str = "2026-07-28";

/// A running server. Its process namespace ends with it.
#[derive(Debug)]
pub(super) struct PackageServer {
    child: Child,
    address: String,
}

impl Drop for PackageServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
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
        let mut child = serve.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut log = BufReader::new(child.stderr.take().context("no stderr")?);
        let mut server = Self { child, address: String::new() };
        let mut said = String::new();
        while server.address.is_empty() {
            let mut line = String::new();
            ensure!(log.read_line(&mut line)? > 0, "the server ends: {said}");
            if let Some((_, url)) = line.trim().split_once("listening on http://") {
                url.trim_end_matches("/mcp").clone_into(&mut server.address);
            }
            said.push_str(&line);
        }
        // A full pipe would stop the server. The thread ends with it.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let start = Instant::now();
        while self.request("/readyz", &[]).is_err() {
            if start.elapsed() > START_TIMEOUT {
                bail!("the server is not ready");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
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
        self.request("/mcp", &options)
    }

    fn request(&self, path: &str, options: &[&str]) -> Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "60"]).args(options);
        let output = curl.arg(format!("http://{}{path}", self.address)).output()?;
        ensure!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// The variables that a unit sets.
fn environment(unit: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
    lines.flat_map(|line| line.split(' ').filter_map(|pair| pair.split_once('=')))
}
