//! The arguments of `toolbay log`.

use clap_complete::ArgValueCandidates;

use crate::args::candidates;

/// The arguments of `toolbay log`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LogArgs {
    /// Keep showing new records until interrupted.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Calls of this tool.
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(candidates::tools))]
    pub(crate) tool: Option<String>,
    /// Calls of this plugin and decisions about it.
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(candidates::plugins))]
    pub(crate) plugin: Option<String>,
    /// Calls of this session.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Calls and requests of this client: an agent or a token (`token:ci`, `ci`), a program, a platform, or an address.
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
    /// Calls with this outcome: `ok`, an error code, a fault, or `host_failed`.
    #[arg(long, value_name = "OUTCOME", conflicts_with = "failed")]
    pub(crate) outcome: Option<String>,
    /// Calls that did not succeed.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Calls and plugins that were refused something.
    #[arg(long)]
    pub(crate) refused: bool,
    /// Records since a time: `10m`, `12h` or `90d` ago, or `2026-02-03T04:05:06Z`.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Records until a time, written as for `--since`.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// The maximum number of records: the last ones are shown.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Count the calls by tool and outcome.
    #[arg(long, conflicts_with = "follow")]
    pub(crate) stats: bool,
    /// What to count the calls by. By client, the tokens of `[serve]` without a call are listed, too.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "stats")]
    pub(crate) by: StatsGroup,
}

/// What `toolbay log --stats` counts calls by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatsGroup {
    /// The tool.
    #[default]
    Tool,
    /// The client: the agent or token, else the program, else the platform.
    Client,
}
