//! `clients`: third-party MCP clients in several languages list and call tools of the built program, over stdio and HTTP.
//! `docs/reference/mcp.md` lists the results. The program itself is the client of servers that others wrote: it logs in to
//! them, and runs one as a module.

mod contract;
mod git;
mod login;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::foreign::{NodeRuntime, python_with, shell};
use crate::programs::RunningProgram;
use crate::{cargo, plugins};

/// The call that each client makes, and the text that its result must contain.
const CALL: [&str; 6] =
    ["--tool", "text__word_count", "--args", r#"{"text":"a b a"}"#, "--expect", r#""words":3"#];

/// The call that a client leaves before its result is there.
const SLOW_CALL: [&str; 4] = ["--slow-tool", "mcp__s__wait", "--slow-args", r#"{"ms": 1000}"#];
/// The official clients in JavaScript, and the eras that they speak.
const LIBRARIES: [(&str, &str); 3] = [("sdk", "legacy"), ("client", "legacy"), ("client", "modern")];

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
    /// With version 1 of the MCP SDK.
    langchain: PathBuf,
    fastmcp: PathBuf,
    semantic_kernel: PathBuf,
    /// With the server for git.
    git: PathBuf,
    node: NodeRuntime,
}

/// Installs the clients.
pub(crate) fn install(workspace: &Path) -> Result<ClientEnvironments> {
    let folder = workspace.join("tests/mcp-client");
    let target = wasm::target_dir(workspace);
    Ok(ClientEnvironments {
        python: python_with(&target.join("venv-clients"), &folder)?,
        langchain: python_with(&target.join("venv-langchain"), &folder.join("langchain"))?,
        fastmcp: python_with(&target.join("venv-fastmcp"), &folder.join("fastmcp"))?,
        semantic_kernel: python_with(&target.join("venv-semantic-kernel"), &folder.join("semantic-kernel"))?,
        git: python_with(&target.join("venv-git"), &folder.join("git"))?,
        node: NodeRuntime::with(workspace, "npm-clients", &folder.join("node"))?,
        folder,
        target,
    })
}

/// Runs all clients.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let clients = install(workspace)?;
    let program = clients.program(workspace);
    clients.compile(workspace, &plugins::folder(workspace))?;
    // A test of stdio framing. It does not apply to HTTP.
    let mut own = Command::new(&clients.python);
    own.arg(clients.folder.join("client.py")).args(CALL).arg("--").args(&program);
    clients.shell(&mut own)?;
    clients.all(&ClientTransport::Stdio(program.clone()))?;
    let mut server = Command::new(cargo::host(workspace));
    server.args(program.iter().skip(1)).args(["--http", "127.0.0.1:0"]).env("TOOLBAY_STATE", clients.state());
    let mut server = RunningProgram::start(server.stderr(Stdio::piped()))?;
    clients.all(&ClientTransport::Http(server.logged("listening on ")?))?;
    drop(server);
    login::run(workspace, &clients)?;
    contract::run(workspace, &clients)?;
    clients.load_all_tools(workspace)?;
    clients.leave(workspace)?;
    git::run(workspace, &clients)
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

    /// Compiles plugins into the cache: clients list the tools once, and a server answers without those that are late.
    fn compile(&self, workspace: &Path, plugins: &Path) -> Result<()> {
        let mut list = Command::new(cargo::host(workspace));
        list.arg("list").arg("--plugins").arg(plugins).arg("--cache-dir").arg(self.target.join("cache"));
        self.shell(&mut list)
    }

    /// The state directory of the servers, apart from the user's own.
    fn state(&self) -> PathBuf {
        self.target.join("clients-state")
    }

    fn shell(&self, command: &mut Command) -> Result<()> {
        self.shell_in(command, &self.target)
    }

    fn shell_in(&self, command: &mut Command, folder: &Path) -> Result<()> {
        shell(command.env("TOOLBAY_STATE", self.state()).current_dir(folder))
    }

    /// Semantic Kernel loads the tools of all first-party plugins: one schema that it cannot read costs it all of them.
    fn load_all_tools(&self, workspace: &Path) -> Result<()> {
        let mut client = Command::new(&self.semantic_kernel);
        client.arg(self.folder.join("semantic_kernel_client.py")).args(CALL).arg("--");
        client.args(self.program(workspace)).arg("--config").arg(self.folder.join("granted.toml"));
        self.shell(&mut client)
    }

    /// Clients leave the server, which must write nothing to the streams that they have closed.
    fn leave(&self, workspace: &Path) -> Result<()> {
        let folder = workspace.join("tests/mcp-servers");
        let policy = self.target.join("clients-leave.toml");
        let command = format!(r#"["/usr/bin/python3", "-I", "{}/server.py", "good", "s"]"#, folder.display());
        fs::write(&policy, format!("version = 1\n[mcp.s]\ncommand = {command}\nsandbox = \"none\"\n"))?;
        for (library, python) in [("mcp", &self.langchain), ("mcp", &self.python), ("fastmcp", &self.fastmcp)]
        {
            let mut client = Command::new(python);
            client.arg(self.folder.join("closing.py")).args(["--library", library]);
            let [tool, name, args, text, ..] = CALL;
            client.args([tool, name, args, text]).args(SLOW_CALL).arg("--");
            self.shell(client.args(self.program(workspace)).arg("--config").arg(&policy))?;
        }
        Ok(())
    }

    fn all(&self, way: &ClientTransport) -> Result<()> {
        let run = |command: &mut Command| {
            command.args(CALL);
            way.add(command);
            self.shell(command)
        };
        run(Command::new(&self.python).arg(self.folder.join("agents_sdk.py")))?;
        run(Command::new(&self.langchain).arg(self.folder.join("langchain_client.py")))?;
        for (library, era) in LIBRARIES {
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
