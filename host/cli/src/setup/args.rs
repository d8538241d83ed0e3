//! The options of all commands.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use clap::builder::{PathBufValueParser, TypedValueParser};
use toolbay_policy::quantity::parse_duration;
use toolbay_shared::nats::SharedAddress;
use toolbay_shared::publication::{Publication, PublishedEpoch};

use crate::output::{LogFormat, Printer};

/// The options of all commands: where plugins, the policy and the cache are.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct SetupArgs {
    /// Directory of plugins: every `.wasm` file in it is loaded. Default: `toolbay/plugins` in the user's data
    /// directory.
    #[arg(long, global = true, value_parser = absolute_path(), value_name = "DIR", env = "TOOLBAY_PLUGINS", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub(crate) plugins: Option<PathBuf>,
    /// The policy: what plugins may reach. Default: `toolbay/toolbay.toml` in the user's configuration directory.
    /// Without that file nothing is granted. The current directory is never searched.
    #[arg(long, global = true, value_parser = absolute_path(), value_name = "FILE", env = "TOOLBAY_CONFIG", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// The directory that `$workspace` means, instead of the policy's. Default without a policy: the current directory.
    #[arg(long, global = true, value_parser = absolute_path(), value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Directory of compiled code, writable by this user only. Default: `toolbay` in the user's cache directory.
    #[arg(long, global = true, value_parser = absolute_path(), value_name = "DIR", env = "TOOLBAY_CACHE", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Compile at every start and cache nothing on disk, also if `TOOLBAY_CACHE` names a directory.
    #[arg(long, global = true)]
    pub(crate) no_cache: bool,
    /// Let the policy grant this protected path: key files, shell histories, `/proc`, the host's own files. Repeatable.
    #[arg(long, global = true, value_parser = absolute_path(), value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) allow_protected_path: Vec<PathBuf>,
    /// Directory of consents, the audit and the state of plugins. Default: `toolbay` in the user's state directory.
    #[arg(long, global = true, value_parser = absolute_path(), value_name = "DIR", env = "TOOLBAY_STATE", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// How long to wait for other processes that write to the state directory, for instance `5s`.
    #[arg(long, global = true, value_name = "DURATION", env = "TOOLBAY_STATE_WAIT", hide_env_values = true, default_value = "30s", value_parser = parse_duration)]
    pub(crate) state_wait: Duration,
    /// How long to wait for MCP servers and OpenAPI documents that are not ready, for instance `30s`. The others answer
    /// meanwhile, and those that are late are named.
    #[arg(long, global = true, value_name = "DURATION", env = "TOOLBAY_SOURCE_WAIT", hide_env_values = true, default_value = "10s", value_parser = parse_duration)]
    pub(crate) source_wait: Duration,
    /// File of the audit: one JSON line for each call and each decision. Default: `audit.jsonl` in the state directory.
    #[arg(long, global = true, value_parser = absolute_path(), value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) audit: Option<PathBuf>,
    /// Write no audit.
    #[arg(long, global = true, conflicts_with = "audit")]
    pub(crate) no_audit: bool,
    /// The profile of the policy that bounds the tools of this command.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Print the result as JSON, and errors, too.
    // Among the options of the command, above `--help`.
    #[arg(long, global = true, display_order = 998, help_heading = None::<&'static str>)]
    pub(crate) json: bool,
    /// What to log on stderr: `error`, `warn`, `info`, `debug`, or a filter such as `toolbay::guest=info`.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "TOOLBAY_LOG",
        hide_env_values = true,
        // Too long for a line of the help, and no person writes it.
        hide_default_value = true,
        default_value = "error,toolbay_shared=warn,toolbay::audit=warn,toolbay::telemetry=warn,toolbay::guest=off"
    )]
    pub(crate) log: String,
    /// The form of messages and of the log on stderr.
    #[arg(
        long,
        global = true,
        value_name = "FORM",
        env = "TOOLBAY_LOG_FORMAT",
        hide_env_values = true,
        value_enum,
        default_value_t
    )]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) shared: SharedArgs,
    /// How the command prints, from `json` and `log_format`.
    #[arg(skip)]
    pub(crate) printer: Printer,
    /// The folder of consents, switches and the order to stop, if it is not the state directory.
    #[arg(skip)]
    pub(crate) decisions_dir: Option<PathBuf>,
    /// The number of the published epoch that has the policy.
    #[arg(skip)]
    pub(crate) epoch: Option<u64>,
    /// The published files that the command edits.
    #[arg(skip)]
    pub(crate) pulled: Option<Arc<PulledEpoch>>,
}

/// Where the shared state is, and how to prove who one is there.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Shared state")]
pub(crate) struct SharedArgs {
    /// Use the state that identical servers share in NATS: `nats://HOST:PORT`, or `tls://`, with commas between several
    /// servers.
    #[arg(long, global = true, value_name = "URL", env = "TOOLBAY_SHARED", hide_env_values = true)]
    pub(crate) shared: Option<String>,
    /// The `.creds` file of NATS.
    #[arg(long, global = true, value_name = "FILE", value_parser = absolute_path(), env = "TOOLBAY_SHARED_CREDENTIALS", hide_env_values = true, value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) shared_credentials: Option<PathBuf>,
    /// A file with the seed of an nkey.
    #[arg(long, global = true, value_name = "FILE", value_parser = absolute_path(), env = "TOOLBAY_SHARED_NKEY", hide_env_values = true, value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) shared_nkey: Option<PathBuf>,
    /// Certificates of the authorities that sign those of NATS, in PEM. Default: those of the system.
    #[arg(long, global = true, value_name = "FILE", value_parser = absolute_path(), env = "TOOLBAY_SHARED_CA", hide_env_values = true, value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) shared_ca: Option<PathBuf>,
    /// The certificate of this client for NATS, in PEM.
    #[arg(long, global = true, value_name = "FILE", value_parser = absolute_path(), env = "TOOLBAY_SHARED_CERT", hide_env_values = true, value_hint = ValueHint::FilePath, requires = "shared_key", hide_short_help = true)]
    pub(crate) shared_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, global = true, value_name = "FILE", value_parser = absolute_path(), env = "TOOLBAY_SHARED_KEY", hide_env_values = true, value_hint = ValueHint::FilePath, requires = "shared_cert", hide_short_help = true)]
    pub(crate) shared_key: Option<PathBuf>,
}

/// The published files that a command edits.
#[derive(Debug)]
pub(crate) struct PulledEpoch {
    pub(crate) publication: Publication,
    /// Where the shared state is.
    pub(crate) address: SharedAddress,
    /// The published epoch that the command took.
    pub(crate) current: PublishedEpoch,
    /// The folder with the files that the command changes.
    pub(crate) dir: PathBuf,
}

/// Parses a path. It becomes absolute here, where it enters: what it names does not depend on who uses it later.
pub(crate) fn absolute_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}
