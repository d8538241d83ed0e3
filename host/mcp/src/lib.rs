//! Toolbay as an MCP server, which serves a registry and a pipeline over the Model Context Protocol, and as an MCP
//! client, which adds the tools of other servers to the registry ([`client`]).
//!
//! One [`Server`] serves both eras of the protocol: the versions with a handshake, 2024-11-05 to 2025-11-25 (called
//! *legacy* here), and the stateless requests of 2026-07-28 (*modern*). Most clients still speak a legacy version.
//!
//! The wire types come from rmcp and stay inside this crate. Its service loop and transports are not used, since they
//! have no hooks for the limits of this server (docs/decisions/0051).
//!
//! | module | contents |
//! |---|---|
//! | `protocol` | the meaning of messages, in both eras and both directions; no I/O |
//! | [`server`] | the response to each request |
//! | [`stdio`], [`http`] | reading and writing bytes, and the end of a connection |
//! | `auth` | the sender of a request and the profiles it may use |
//! | [`client`] | other servers as sources of tools |
//!
//! `protocol::incoming` parses a request out of its framing (a line or a body). The `McpConnection` creates its
//! `RequestContext` and answers it. The response leaves as one line of JSON, alone or as the last of several events.
//!
//! ```
//! use std::sync::Arc;
//! use toolbay_core::{audit::LogAudit, pipeline::Pipeline, registry::{Registry, view::Filter}};
//! use toolbay_mcp::{Options, Server, ShutdownSignals};
//!
//! # async fn serve() -> anyhow::Result<()> {
//! let registry = Arc::new(Registry::default());
//! let pipeline = Pipeline::new(Arc::new(LogAudit));
//! let server = Server::new(registry, pipeline, Filter::default(), Options::default());
//! toolbay_mcp::serve_stdio(server, ShutdownSignals::default()).await
//! # }
//! ```
//!
//! The crate never prints: stdout belongs to the protocol, and logs go to `tracing`.

mod auth;
pub mod client;
mod protocol;
pub mod server;
mod transport;

/// The revisions of MCP that this crate speaks, as server and as client, the oldest first.
pub fn protocol_revisions() -> impl Iterator<Item = &'static str> {
    rmcp::model::ProtocolVersion::KNOWN_VERSIONS.iter().map(|version| version.as_str())
}

pub use auth::{
    KeyFetcher, check_issuer_keys, check_tokens, read_request_state_key, read_trusted as read_token_file,
    token_names,
};
pub use client::Bridge;
pub use server::changes::MAX_RESOURCE_SUBSCRIPTIONS;
pub use server::tasks::{MAX_ALL_TASKS, MAX_TASK_BYTES, MAX_TASKS};
pub use server::{Options, Server};
pub use tokio_util::sync::CancellationToken;
pub use transport::http::{self, McpHttpServer, ShutdownSignals};
pub use transport::stdio::{self, serve, serve_stdio};
