//! The recorded turns of an agent's conversations: `turn/<key>` in the scope of the agent, newest first.
//!
//! The host writes them (`Host::record_turn` in `toolbay`), with keys that sort the newest first. This plugin only reads
//! them.

use toolbay_sdk::kv::{self, Scope};
use toolbay_sdk::prelude::*;

/// The most turns that one call reads.
pub(crate) const MAX_TURNS: usize = 2000;
const PREFIX: &str = "turn/";
/// The number of keys in one listing.
const PAGE: u32 = 500;

/// One turn of a conversation.
#[data]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedTurn {
    /// The id of its session.
    pub(crate) session: String,
    /// Its speaker: `user`, `assistant` or another word of the host.
    pub(crate) role: String,
    /// Its time, in Unix milliseconds.
    pub(crate) at: u64,
    /// Its text.
    pub(crate) text: String,
}

/// Calls `visit` with the turns, newest first, until it returns false. Returns whether turns were left out.
pub(crate) fn each(mut visit: impl FnMut(RecordedTurn) -> bool) -> Result<bool> {
    let mut last: Option<String> = None;
    let mut count = 0;
    loop {
        let keys = kv::keys(Scope::Agent, PREFIX, last.as_deref(), PAGE)?;
        let Some(end) = keys.last().cloned() else { return Ok(false) };
        for key in keys {
            if count == MAX_TURNS {
                return Ok(true);
            }
            count += 1;
            // It may have expired since the listing.
            if let Some(turn) = kv::get_json(Scope::Agent, &key)?
                && !visit(turn)
            {
                return Ok(false);
            }
        }
        last = Some(end);
    }
}
