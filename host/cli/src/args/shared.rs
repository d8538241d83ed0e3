//! Arguments for state that servers share.

use std::path::PathBuf;

use clap::ValueHint;

use super::precedence::absolute_path;

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

/// `toolbay shared`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SharedCommand {
    /// Publish the policy, the lock and the plugin directory to all servers, as the next epoch. Decisions stay: disabled
    /// tools, consents, and the order to stop.
    Publish {
        /// Print the epoch as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the epoch, the servers and the settings of NATS that endanger a promise.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the permissions that a user of NATS needs, as a block of its configuration.
    Permissions {
        /// For an operator, who may publish. Without it, for a server.
        #[arg(long)]
        operator: bool,
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
}
