//! The arguments of `toolbay mcp`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

use super::pair;

/// The commands below `toolbay mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add a server to the policy: a program behind `--`, or a URL.
    Add(Box<AddArgs>),
    /// List the servers of the policy.
    List,
    /// Remove a server from the policy, with the secrets that `add` wrote.
    Remove {
        /// The server's name.
        name: String,
        /// Show what would change, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Connect to a server and show its state, its tools and their problems.
    Check {
        /// The server's name.
        name: String,
        /// Treat warnings as failures.
        #[arg(long)]
        strict: bool,
    },
    /// Log in to a server with OAuth, in a browser. The credentials are saved in the state directory.
    Login {
        /// The server's name.
        name: String,
        /// Print the address, and open no browser.
        #[arg(long)]
        no_browser: bool,
    },
    /// Remove the credentials of a login, and revoke its tokens where the authorization server can.
    Logout {
        /// The server's name.
        name: String,
    },
}

/// The arguments of `toolbay mcp add`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// The server's name: letters, digits, `-` and `_`. Its tools are named `mcp__NAME__TOOL`.
    pub(crate) name: String,
    /// The URL of a remote server.
    #[arg(value_hint = ValueHint::Url, conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// The program and its arguments. A program without a path is resolved now and written with its path.
    #[arg(last = true, required_unless_present = "url", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
    /// An environment variable of the program: `NAME` with the host's value, or `NAME=VALUE`. Repeatable.
    #[arg(long, value_name = "NAME[=VALUE]", conflicts_with = "url")]
    pub(crate) env: Vec<String>,
    /// An environment variable with a secret: `NAME=SECRET` of the policy, or `NAME=env:VARIABLE`, `NAME=file:/path`,
    /// `NAME=keyring:ENTRY`. Repeatable.
    #[arg(long, value_name = "NAME=SECRET", conflicts_with = "url", value_parser = pair('='))]
    pub(crate) env_secret: Vec<(String, String)>,
    /// A folder that the program may read. Repeatable.
    #[arg(long, value_name = "PATH", conflicts_with = "url", value_hint = ValueHint::AnyPath)]
    pub(crate) fs_read: Vec<String>,
    /// A folder that the program may write. Repeatable.
    #[arg(long, value_name = "PATH", conflicts_with = "url", value_hint = ValueHint::AnyPath)]
    pub(crate) fs_write: Vec<String>,
    /// A folder whose programs and libraries the program may run, in addition to the system's. Repeatable.
    #[arg(long, value_name = "PATH", conflicts_with = "url", value_hint = ValueHint::AnyPath)]
    pub(crate) execute: Vec<String>,
    /// Let the program use the network.
    #[arg(long, conflicts_with = "url")]
    pub(crate) network: bool,
    /// Let the program change modes, owners and attributes of all your files.
    #[arg(long, conflicts_with = "url")]
    pub(crate) chmod: bool,
    /// What happens where the kernel cannot confine the program: `required` or `best-effort`; `none` disables the
    /// sandbox.
    #[arg(long, value_name = "WORD", conflicts_with = "url")]
    pub(crate) sandbox: Option<String>,
    /// The secret for the bearer token: its name in the policy, or `env:VARIABLE`, `file:/path`, `keyring:ENTRY`.
    #[arg(long, value_name = "SECRET", requires = "url")]
    pub(crate) bearer: Option<String>,
    /// A header of every request, `NAME: VALUE`. Repeatable.
    #[arg(long, value_name = "NAME: VALUE", requires = "url", value_parser = pair(':'))]
    pub(crate) header: Vec<(String, String)>,
    /// A file with certificates (PEM) of authorities to trust, for the server and its login.
    #[arg(long, value_name = "FILE", requires = "url", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<String>,
    /// The HTTP proxy to the server and its login: `http://HOST:PORT`.
    #[arg(long, value_name = "URL", requires = "url", value_hint = ValueHint::Url)]
    pub(crate) proxy: Option<String>,
    /// Include only these tools; `*` matches any characters. Repeatable.
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Vec<String>,
    /// Exclude these tools. Repeatable.
    #[arg(long, value_name = "TOOL")]
    pub(crate) exclude: Vec<String>,
    /// Require approval for every call.
    #[arg(long)]
    pub(crate) ask: bool,
    /// Replace a server of the same name.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Show the new lines, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The commands below `toolbay setup`.
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
    /// Create an `.mcpb` bundle for clients that install bundles: this program, the plugins and the policy.
    Mcpb {
        /// The file to write.
        #[arg(value_hint = ValueHint::FilePath)]
        out: PathBuf,
        /// The bundle's name.
        #[arg(long, default_value = "toolbay")]
        name: String,
        /// The bundle's author.
        #[arg(long, default_value = "Toolbay")]
        author: String,
    },
}

/// How to configure a client.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    /// Merge the entry into the client's file, with a backup beside it.
    #[arg(long)]
    pub(crate) write: bool,
    /// The client's file. Default: where the client keeps it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// The name of the server in the client.
    #[arg(long, default_value = "toolbay")]
    pub(crate) name: String,
}

/// The arguments of `toolbay setup server-json`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerJsonArgs {
    /// The name in the registry: a reversed domain, a slash, a name.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "io.github.example/toolbay")]
    pub(crate) name: String,
    /// The URL of the bundle.
    #[arg(long, requires = "bundle")]
    pub(crate) url: Option<String>,
    /// The bundle of `toolbay setup mcpb`, for its digest.
    #[arg(long, value_name = "FILE", requires = "url", value_hint = ValueHint::FilePath)]
    pub(crate) bundle: Option<PathBuf>,
}
