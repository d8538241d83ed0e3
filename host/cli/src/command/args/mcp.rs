//! The arguments of `toolbay mcp`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

/// What to do with other MCP servers.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Write a server into the policy: a program behind `--`, or a URL.
    Add(Box<AddArgs>),
    /// List the servers of the policy.
    List {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Take a server out of the policy, with the secrets that `add` wrote for it.
    Remove {
        /// The server's name.
        name: String,
        /// Show what would be done, do nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Connect to a server and show what it is, which tools it has, and what is wrong with them.
    Check {
        /// The server's name.
        name: String,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// A new server.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Its name: letters, digits, `-` and `_`; its tools are called `mcp__NAME__TOOL`.
    pub(crate) name: String,
    /// Where it is, if it is no program.
    #[arg(value_hint = ValueHint::Url, conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// The program and its arguments. A program without a path is looked for now, and written with its path.
    #[arg(last = true, required_unless_present = "url", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
    /// A variable that the program gets: `NAME` with the host's value, or `NAME=VALUE`. Can be given several times.
    #[arg(long, value_name = "NAME[=VALUE]", conflicts_with = "url")]
    pub(crate) env: Vec<String>,
    /// A variable that holds a secret: `NAME=SECRET` of the policy, or `NAME=env:VARIABLE`, `NAME=file:/path`,
    /// `NAME=keyring:ENTRY`. Can be given several times.
    #[arg(long, value_name = "NAME=SECRET", conflicts_with = "url")]
    pub(crate) env_secret: Vec<String>,
    /// A folder that the program may read. Can be given several times.
    #[arg(long, value_name = "PATH", conflicts_with = "url", value_hint = ValueHint::AnyPath)]
    pub(crate) fs_read: Vec<String>,
    /// A folder that the program may write. Can be given several times.
    #[arg(long, value_name = "PATH", conflicts_with = "url", value_hint = ValueHint::AnyPath)]
    pub(crate) fs_write: Vec<String>,
    /// A folder whose programs and libraries the program may run, beside the system's. Can be given several times.
    #[arg(long, value_name = "PATH", conflicts_with = "url", value_hint = ValueHint::AnyPath)]
    pub(crate) execute: Vec<String>,
    /// The program may use the network.
    #[arg(long, conflicts_with = "url")]
    pub(crate) network: bool,
    /// What happens where the kernel cannot confine the program: `required`, `best-effort`, or `none` for no sandbox at
    /// all.
    #[arg(long, value_name = "WORD", conflicts_with = "url")]
    pub(crate) sandbox: Option<String>,
    /// The secret that is sent as bearer token: its name in the policy, or `env:VARIABLE`, `file:/path`, `keyring:ENTRY`.
    #[arg(long, value_name = "SECRET", requires = "url")]
    pub(crate) bearer: Option<String>,
    /// A header of every request, `NAME: VALUE`. Can be given several times.
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub(crate) header: Vec<String>,
    /// Take only these of its tools; `*` stands for any run of characters. Can be given several times.
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Vec<String>,
    /// Leave these of its tools out. Can be given several times.
    #[arg(long, value_name = "TOOL")]
    pub(crate) exclude: Vec<String>,
    /// Ask about every call.
    #[arg(long)]
    pub(crate) ask: bool,
    /// Put it in place of a server of the same name.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Show what would be written, write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Which client is set up, or what is made for a registry.
#[derive(Debug, Subcommand)]
pub(crate) enum SetupCommand {
    /// Claude Desktop.
    ClaudeDesktop(ClientArgs),
    /// Claude Code: `.mcp.json` of the project in the current directory.
    ClaudeCode(ClientArgs),
    /// Visual Studio Code: `.vscode/mcp.json` of the project in the current directory.
    Vscode(ClientArgs),
    /// Cursor.
    Cursor(ClientArgs),
    /// Zed.
    Zed(ClientArgs),
    /// Codex.
    Codex(ClientArgs),
    /// Print a `server.json` for the MCP registry.
    ServerJson(ServerJsonArgs),
    /// Make an `.mcpb` bundle: this program, the plugins and the policy in one file, for clients that install such.
    Mcpb {
        /// The bundle.
        #[arg(value_hint = ValueHint::FilePath)]
        out: PathBuf,
        /// The bundle's name.
        #[arg(long, default_value = "toolbay")]
        name: String,
        /// Who made it.
        #[arg(long, default_value = "Toolbay")]
        author: String,
    },
}

/// How a client is set up.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    /// Merge it into the client's file; what is there before is kept beside it.
    #[arg(long)]
    pub(crate) write: bool,
    /// The client's file, if it is not where it usually is.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// The name under which the client knows it.
    #[arg(long, default_value = "toolbay")]
    pub(crate) name: String,
}

/// What a registry is told.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerJsonArgs {
    /// The name in the registry: a reversed domain, a slash, a name.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "io.github.example/toolbay")]
    pub(crate) name: String,
    /// Where the bundle can be had.
    #[arg(long, requires = "bundle")]
    pub(crate) url: Option<String>,
    /// The bundle, made by `toolbay setup mcpb`; its digest is written.
    #[arg(long, value_name = "FILE", requires = "url", value_hint = ValueHint::FilePath)]
    pub(crate) bundle: Option<PathBuf>,
}
