//! Control of a running server: its calls, its metrics, the operator's actions, and a page for browsers.
//!
//! ```text
//! toolbay ps, cancel, stop ──► client ──► socket: STATE/servers/PID.sock ─┐                      ┌► api ──┐
//!                                                                         ├► listener ─► gate ────┤        ├► control ─► host
//! browsers, Prometheus, programs with a token ──► server: [admin] listen ─┘                      └► page ─┘
//! ```

pub mod api;
mod attempts;
mod authentication;
pub mod client;
mod control;
pub mod files;
mod gate;
mod history;
mod listener;
mod operator;
mod page;
mod paths;
mod questions;
pub mod server;
mod session;
pub mod socket;
mod tokens;

pub use control::{AdminState, ServerControl, ServerInfo, ServerTransport};
pub use tokens::{check_tokens, require_tokens};
