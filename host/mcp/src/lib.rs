//! Toolbay as an MCP server: a registry and a pipeline in, the Model Context Protocol out. And as a client of other
//! servers, whose tools it takes ([`client`]).
//!
//! Both eras of the protocol are served by the same object: the handshake of 2024-11-05 to 2025-11-25 (here:
//! *legacy*) and the stateless requests of 2026-07-28 (*modern*). Most clients still speak the first.
//!
//! The wire types are rmcp's and stay inside this crate. Its service loop and transports are not used: they give no place
//! to the bounds that this server keeps (docs/decisions/0051).
//!
//! | folder | question |
//! |---|---|
//! | `protocol` | what messages mean, in both eras and both directions; no I/O |
//! | [`server`] | what is answered to which request |
//! | [`stdio`], [`http`] | how bytes come in and go out, and when a connection ends |
//! | `auth` | who sent a request, and which profiles are open to them |
//! | [`client`] | how other servers become sources of tools |
//!
//! A request goes from its framing (a line, a body) to `protocol::incoming`, gets a `RequestContext` from its
//! `McpConnection`, is answered there, and leaves as one line of JSON, alone or as the last of several events.
//!
//! ```
//! use std::sync::Arc;
//! use toolbay_core::{audit::LogAudit, pipeline::Pipeline, registry::{Registry, view::Filter}};
//! use toolbay_mcp::{Ends, Options, Server};
//!
//! # async fn serve() -> anyhow::Result<()> {
//! let registry = Arc::new(Registry::default());
//! let pipeline = Pipeline::new(Arc::new(LogAudit));
//! let server = Server::new(registry, pipeline, Filter::default(), Options::default());
//! toolbay_mcp::serve_stdio(server, Ends::default()).await
//! # }
//! ```
//!
//! Nothing here prints: the protocol owns stdout, everything else goes to `tracing`.

mod auth;
pub mod client;
mod protocol;
pub mod server;
mod transport;

pub use auth::{FetchKeys, check_tokens};
pub use client::Bridge;
pub use server::changes::MAX_WATCHED;
pub use server::tasks::{MAX_ALL_TASKS, MAX_TASK_BYTES, MAX_TASKS};
pub use server::{Options, Server};
pub use tokio_util::sync::CancellationToken;
pub use transport::http::{self, Ends, Http};
pub use transport::stdio::{self, serve, serve_stdio};
