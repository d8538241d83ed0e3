//! A server of MCP on stdin and stdout.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::programs::RunningProgram;

/// The revision of MCP in which a request stands alone.
const REVISION: &str = "2026-07-28";

/// A running server.
#[derive(Debug)]
pub(super) struct StdioServer {
    program: RunningProgram,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The number of the last request.
    last_id: u64,
}

impl StdioServer {
    /// Starts a server.
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let mut program = RunningProgram::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let input = program.child.stdin.take().context("stdin is no pipe")?;
        let output = BufReader::new(program.child.stdout.take().context("stdout is no pipe")?);
        Ok(Self { program, input, output, last_id: 0 })
    }

    /// The names of the tools.
    pub(super) fn tools(&mut self) -> Result<Vec<String>> {
        let listed = self.request("tools/list", json!({}))?;
        let tools = listed.get("tools").and_then(Value::as_array).context("no list of tools")?;
        Ok(tools.iter().filter_map(|tool| tool.get("name")?.as_str().map(str::to_owned)).collect())
    }

    /// The text of the result of a call.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Result<String> {
        let result = self.request("tools/call", json!({"name": tool, "arguments": arguments}))?;
        let text = result.pointer("/content/0/text").and_then(Value::as_str);
        Ok(text.with_context(|| format!("the result has no text: {result}"))?.to_owned())
    }

    fn request(&mut self, method: &str, mut params: Value) -> Result<Value> {
        if let Some(members) = params.as_object_mut() {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": REVISION,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            members.insert("_meta".to_owned(), meta);
        }
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        writeln!(self.input, "{request}")?;
        loop {
            let mut line = String::new();
            ensure!(self.output.read_line(&mut line)? > 0, "the server ended before it answered `{method}`");
            let answer: Value = serde_json::from_str(&line)?;
            if answer.get("id").is_some() {
                let result = answer.get("result").with_context(|| format!("`{method}` failed: {answer}"))?;
                return Ok(result.clone());
            }
        }
    }

    /// The number of the process that was started.
    pub(super) fn id(&self) -> u32 {
        self.program.child.id()
    }

    /// Closes stdin, and waits for the end.
    pub(super) fn end(mut self) -> Result<ExitStatus> {
        drop(self.input);
        Ok(self.program.child.wait()?)
    }

    /// Waits for the end of the process, and of all others that could write to its stdout.
    pub(super) fn wait(&mut self) -> Result<ExitStatus> {
        self.output.read_to_end(&mut Vec::new())?;
        Ok(self.program.child.wait()?)
    }
}
