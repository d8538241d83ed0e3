//! Arguments of the commands for running servers and their state.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueHint;

/// The id of a call in progress: `PID-NUMBER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallNumber {
    /// The process id of the server.
    pub(crate) pid: u32,
    /// The number of the call in the server.
    pub(crate) number: u64,
}

impl fmt::Display for CallNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.number)
    }
}

impl FromStr for CallNumber {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (pid, number) = text.split_once('-')?;
            Some(Self { pid: pid.parse().ok()?, number: number.parse().ok()? })
        };
        parse().ok_or("an id has the form `4711-12`, as `toolbay ps` shows it")
    }
}

/// `toolbay backup` and `toolbay restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// The directory of the backup. It holds what plugins stored and the credentials of MCP servers.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}
