//! `clients`: third-party MCP clients in several languages list and call tools of the built program, over stdio and HTTP.
//! `docs/reference/mcp.md` lists the results.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::foreign::{NodeRuntime, python_with, shell};
use crate::programs::RunningProgram;
use crate::{cargo, plugins};

/// The call that each client makes, and the text that its result must contain.
const CALL: [&str; 6] =
    ["--tool", "text__word_count", "--args", r#"{"text":"a b a"}"#, "--expect", r#""words":3"#];

/// How a client reaches the server.
enum ClientTransport {
    /// The client starts this program.
    Stdio(Vec<OsString>),
    /// The server already listens at this URL.
    Http(String),
}

impl ClientTransport {
    fn add(&self, command: &mut Command) {
        match self {
            Self::Stdio(program) => command.arg("--").args(program),
            Self::Http(url) => command.args(["--url", url]),
        };
    }
}

/// The clients, installed.
pub(crate) struct ClientEnvironments {
    folder: PathBuf,
    target: PathBuf,
    python: PathBuf,
    langchain: PathBuf,
    node: NodeRuntime,
}

/// Installs the clients.
pub(crate) fn install(workspace: &Path) -> Result<ClientEnvironments> {
    let folder = workspace.join("tests/mcp-client");
    let target = wasm::target_dir(workspace);
    Ok(ClientEnvironments {
        python: python_with(&target.join("venv-clients"), &folder)?,
        langchain: python_with(&target.join("venv-langchain"), &folder.join("langchain"))?,
        node: NodeRuntime::with(workspace, "npm-clients", &folder.join("node"))?,
        folder,
        target,
    })
}

/// Runs all clients.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let clients = install(workspace)?;
    let program = clients.program(workspace);
    // A test of stdio framing. It does not apply to HTTP.
    let mut own = Command::new(&clients.python);
    own.arg(clients.folder.join("client.py")).args(CALL).arg("--").args(&program);
    clients.shell(&mut own)?;
    clients.all(&ClientTransport::Stdio(program.clone()))?;
    let mut server = Command::new(cargo::host(workspace));
    server.args(program.iter().skip(1)).args(["--http", "127.0.0.1:0"]).env("TOOLBAY_STATE", clients.state());
    let mut server = RunningProgram::start(server.stderr(Stdio::piped()))?;
    clients.all(&ClientTransport::Http(server.logged("listening on ")?))
}

impl ClientEnvironments {
    /// The program and the plugins that it serves.
    fn program(&self, workspace: &Path) -> Vec<OsString> {
        vec![
            cargo::host(workspace).into(),
            "serve".into(),
            "--plugins".into(),
            plugins::folder(workspace).into(),
            "--cache-dir".into(),
            self.target.join("cache").into(),
        ]
    }

    /// The state directory of the servers, apart from the user's own.
    fn state(&self) -> PathBuf {
        self.target.join("clients-state")
    }

    fn shell(&self, command: &mut Command) -> Result<()> {
        shell(command.env("TOOLBAY_STATE", self.state()).current_dir(&self.target))
    }

    fn all(&self, way: &ClientTransport) -> Result<()> {
        let run = |command: &mut Command| {
            command.args(CALL);
            way.add(command);
            self.shell(command)
        };
        run(Command::new(&self.python).arg(self.folder.join("agents_sdk.py")))?;
        run(Command::new(&self.langchain).arg(self.folder.join("langchain/client.py")))?;
        for (library, era) in [("sdk", "legacy"), ("client", "legacy"), ("client", "modern")] {
            let mut client = self.node.run_own(&self.folder.join("node/client.mjs"))?;
            run(client.args(["--library", library, "--era", era]))?;
        }
        self.inspector(way)
    }

    /// MCP Inspector has a different command line.
    fn inspector(&self, way: &ClientTransport) -> Result<()> {
        let mut inspector = self.node.run("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
        inspector.arg("--cli");
        match way {
            ClientTransport::Stdio(program) => inspector.args(program),
            ClientTransport::Http(url) => inspector.args([url, "--transport", "http"]),
        };
        let call = ["--method", "tools/call", "--tool-name", "text__word_count", "--tool-arg", "text=a b a"];
        self.shell(inspector.args(call).args(["--format", "json"]))
    }
}
