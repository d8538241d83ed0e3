//! `toolbay.node`: the functions of [`toolbay_bridge::Bridge`] for Node. They take and return texts, bytes and numbers.
//!
//! An error has a JSON text as its message, which `lib/bridge.js` turns into the error that the program sees. The JavaScript
//! code beside this crate is the API.
//!
//! A process has several environments: the main thread and worker threads. All use one [`Bridge`]. Mailboxes and hosts
//! belong to the environment that opened them, and end with it.

// The macros hand over texts by value.
#![expect(clippy::needless_pass_by_value, reason = "napi reads a text into a `String`")]
// `cargo nextest list --lib` compiles every library as a test.
#![cfg_attr(test, allow(dead_code, reason = "napi exports nothing in a test"))]

use std::os::fd::IntoRawFd as _;
use std::sync::{Arc, LazyLock};

use napi::{Env, Error, Result};
use napi_derive::napi;
use toolbay_bridge::{Bridge, BridgeError};

/// All hosts of the process. It is never dropped, so that nothing waits for threads when Node ends.
static BRIDGE: LazyLock<Arc<Bridge>> = LazyLock::new(Arc::default);

fn thrown<T>(answer: std::result::Result<T, BridgeError>) -> Result<T> {
    answer.map_err(|error| Error::from_reason(error.to_json()))
}

/// A number as JavaScript has it. Numbers of the bridge count from 1 and stay far below 2^53.
fn to_js(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number of the bridge. A negative one names nothing.
fn from_js(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The version of the module.
#[napi]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Opens a mailbox, which is closed with its environment. Returns its number, and the file descriptor of its socket, which
/// the caller closes.
#[napi]
fn open_mailbox(env: Env) -> Result<(i64, i32)> {
    let mailbox = thrown(BRIDGE.open_mailbox())?;
    // An error means that the bridge failed, and then nothing is left to close.
    env.add_env_cleanup_hook(mailbox.id, |id| drop(BRIDGE.close_mailbox(id)))?;
    Ok((to_js(mailbox.id), mailbox.socket.into_raw_fd()))
}

/// Closes a host when its environment ends, and waits for its calls, at most five seconds.
#[napi]
fn close_with_environment(env: Env, host: i64) -> Result<()> {
    env.add_env_cleanup_hook(from_js(host), |host| drop(BRIDGE.close_host(host)))?;
    Ok(())
}

/// Begins a request, and returns the number that its events have.
#[napi]
fn submit(mailbox: i64, request: String, payload: &[u8]) -> Result<i64> {
    thrown(BRIDGE.submit(from_js(mailbox), &request, payload.to_vec())).map(to_js)
}

/// Answers a request.
#[napi]
fn query(request: String, payload: String) -> Result<String> {
    thrown(BRIDGE.query(&request, &payload))
}

/// Takes the events of a mailbox.
#[napi]
fn drain(mailbox: i64) -> Result<String> {
    thrown(BRIDGE.drain(from_js(mailbox)))
}

/// Replies to a call of a native tool or to a request for approval.
#[napi]
fn reply(mailbox: i64, id: i64, reply: String) -> Result<()> {
    thrown(BRIDGE.reply(from_js(mailbox), from_js(id), &reply))
}

/// Cancels the calls of a request.
#[napi]
fn cancel(mailbox: i64, id: i64) -> Result<()> {
    thrown(BRIDGE.cancel(from_js(mailbox), from_js(id)))
}

/// Forgets a view or a session, and closes a host that nobody uses.
#[napi]
fn release(id: i64) -> Result<()> {
    thrown(BRIDGE.release(from_js(id)))
}

/// Closes all hosts of the process, and waits for their calls, at most five seconds.
#[napi]
fn shut_down() -> Result<()> {
    thrown(BRIDGE.shut_down())
}
