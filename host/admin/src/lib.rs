//! Control of a running server: its calls, its metrics, and the operator's actions.
//!
//! ```text
//! toolbay ps, cancel, stop ──► client ──► socket: STATE/servers/PID.sock ─┐
//!                                                                         ├► listener ─► operator ─► api ─► control ─► host
//! Prometheus, operators with a token ──► server: [admin] listen ──────────┘
//! ```

pub mod api;
pub mod client;
mod control;
mod listener;
mod operator;
pub mod server;
pub mod socket;

pub use control::{ServerControl, ServerInfo, ServerTransport};
pub use operator::check_tokens;
