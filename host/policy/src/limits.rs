//! The limits of calls, of the host and of sessions, each with its default and the reason for it.
//!
//! The operator sets call limits in `[limits]` for all plugins and in `[plugins.ID.limits]` for one. A tool's author
//! can only ask for less. All limits are on by default. A limit is declared as one entry of its table ([`table`]) and
//! enforced in one place.

mod call;
mod hit;
mod host;
pub mod table;

use serde::{Deserialize, Serialize};

pub(crate) use call::limit_rows;
pub use call::{CallLimits, CallLimitsPatch, DEFAULT_RESULT_BYTES, Limit, MAX_MEMORY_BYTES};
pub use hit::{LimitHit, LimitSetting};
pub use host::{HostLimits, HostLimitsPatch, MIN_GUEST_MEMORY, MIN_OUTBOX, MIN_RESULT_MEMORY};

use crate::name::ToolName;

/// The place that set a limit, if it is not a table for the whole plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitOrigin {
    /// The policy's section for this tool.
    Tool(ToolName),
    /// The tool's author, who may ask for less than the operator allows.
    Author,
    /// The host, for entries that are not calls.
    Host,
}

/// Resources that one guest entry used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Fuel consumed. `None` if fuel was not counted for this guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Wall time in microseconds, without time in the queue.
    #[serde(default)]
    pub wall_us: u64,
    /// Time in the queue, in microseconds.
    #[serde(default)]
    pub queued_us: u64,
    /// Largest total size of the linear memories, in bytes.
    #[serde(default)]
    pub peak_memory_bytes: u64,
    /// Size of the arguments, in bytes.
    #[serde(default)]
    pub args_bytes: u64,
    /// Size of the result as the guest returned it, in bytes.
    #[serde(default)]
    pub result_bytes: u64,
}

impl Default for Usage {
    /// The usage if no guest ran.
    fn default() -> Self {
        Self { fuel: Some(0), wall_us: 0, queued_us: 0, peak_memory_bytes: 0, args_bytes: 0, result_bytes: 0 }
    }
}
