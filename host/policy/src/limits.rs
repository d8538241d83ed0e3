//! Every number that bounds a call, with its default and the reason for it.
//!
//! The operator sets them in `[limits]` for all plugins and in `[plugins.ID.limits]` for one; a tool's author may
//! only ask for less. All are on by default. A limit is one entry of its table ([`table`]) and one place that enforces it.

mod call;
mod hit;
mod host;
pub mod table;

use serde::Serialize;

pub(crate) use call::limit_rows;
pub use call::{DEFAULT_RESULT_BYTES, Limit, CallLimits, CallLimitsPatch, MAX_MEMORY_BYTES};
pub use hit::LimitHit;
pub use host::{HostLimits, HostLimitsPatch, MIN_GUEST_MEMORY, MIN_OUTBOX, MIN_RESULT_MEMORY};

use crate::name::ToolName;

/// Where a limit was set, if not in a table for the whole plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitOrigin {
    /// In the policy's section for this tool.
    Tool(ToolName),
    /// By the tool's author, who may ask for less than the operator allows.
    Author,
    /// By the host, for entries that are no calls.
    Host,
}

/// What one guest entry used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Fuel consumed; `None`: a guest ran whose work is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Wall time in microseconds, without waiting for a place.
    pub wall_us: u64,
    /// Time spent waiting for a place, in microseconds.
    pub queued_us: u64,
    /// Largest sum of linear memories, in bytes.
    pub peak_memory_bytes: u64,
    /// Bytes of the arguments.
    pub args_bytes: u64,
    /// Bytes of the result as the guest returned it.
    pub result_bytes: u64,
}

impl Default for Usage {
    /// Nothing ran.
    fn default() -> Self {
        Self { fuel: Some(0), wall_us: 0, queued_us: 0, peak_memory_bytes: 0, args_bytes: 0, result_bytes: 0 }
    }
}
