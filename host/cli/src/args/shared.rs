//! The arguments of `toolbay shared`.

/// `toolbay shared`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SharedCommand {
    /// Publish the policy, the lock and the plugin directory to all servers, as the next epoch. Decisions stay: disabled
    /// tools, consents, and the order to stop.
    Publish,
    /// Show the epoch, the servers and the settings of NATS that endanger a promise.
    Status,
    /// Print the permissions that a user of NATS needs, as a block of its configuration.
    Permissions {
        /// For an operator, who may publish. Without it, for a server.
        #[arg(long)]
        operator: bool,
    },
}
