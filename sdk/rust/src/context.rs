//! The running call: its context, progress and cancellation.
//!
//! Every call has its own instance, so these functions need no handle. A getter returns `None` if the host does not know
//! the value or does not reveal it.

use serde::de::DeserializeOwned;

use crate::host::context as host;
use crate::{Error, Result};

pub use crate::bindings::imports::toolbay::plugin::context::Audience;

/// Reports progress to the user of the conversation; `percent` is 0 to 100.
pub fn progress(message: &str, percent: impl Into<Option<f32>>) {
    progress_to(Audience::User, message, percent);
}

/// Reports progress to another audience.
pub fn progress_to(audience: Audience, message: &str, percent: impl Into<Option<f32>>) {
    host::progress(message, percent.into(), audience);
}

/// Returns true once the caller has cancelled the call. Poll it in long loops.
pub fn cancelled() -> bool {
    host::cancelled()
}

/// Returns an error once the caller has cancelled the call, for use with `?` in long loops.
pub fn check_cancelled() -> Result<()> {
    if cancelled() { Err(Error::failed("the call was cancelled").at("cancelled")) } else { Ok(()) }
}

/// Returns how many characters the output may have before the host truncates it.
pub fn budget_chars() -> u32 {
    host::budget_chars()
}

/// Returns the milliseconds until the deadline of the call.
pub fn remaining_ms() -> Option<u64> {
    host::remaining_ms()
}

/// Returns true for a dry run: the tool should describe its effect and do nothing.
pub fn dry_run() -> bool {
    host::dry_run()
}

/// Returns the id of this call.
pub fn call_id() -> String {
    host::call_id()
}

/// Returns the id of the session.
pub fn session_id() -> Option<String> {
    host::session_id()
}

/// Returns the readable key of the session, such as `cli:my-repo`.
pub fn session_key() -> Option<String> {
    host::session_key()
}

/// Returns the channel of the conversation: `cli`, `mcp`, `telegram`, …
pub fn platform() -> Option<String> {
    host::platform()
}

/// Returns the directory to which relative paths refer.
pub fn working_dir() -> Option<String> {
    host::working_dir()
}

/// Returns the id of the acting agent.
pub fn agent_id() -> Option<String> {
    host::agent_id()
}

/// Returns the id of the agent's personality.
pub fn personality_id() -> Option<String> {
    host::personality_id()
}

/// Returns the id of the agent's team.
pub fn team_id() -> Option<String> {
    host::team_id()
}

/// Returns the turn of the session, counted from 1.
pub fn turn() -> Option<u32> {
    host::turn()
}

/// Returns the number of messages in the session.
pub fn message_count() -> Option<u32> {
    host::message_count()
}

/// Returns an attribute that the host defined (`memory-scope`, `traceparent`, …), if it has that type.
pub fn attribute<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_str(&host::attribute(name)?).ok()
}
