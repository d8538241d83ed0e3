//! Toolbay as an MCP server: a registry and a pipeline in, the Model Context Protocol out. And as a client of other
//! servers, whose tools it takes ([`client`]).
//!
//! Both eras of the protocol are served by the same object: the handshake of 2024-11-05 to 2025-11-25 (here:
//! *legacy*) and the stateless requests of 2026-07-28 (*modern*). Most clients still speak the first.
//!
//! The wire types are rmcp's and stay inside this crate; rmcp has had three majors in half a year. What it does not
//! do, or does otherwise than clients need, is done here: a bound on calls in flight, answers to lines that are too
//! long, object-shaped output for legacy clients, an answer even after a panic.
//!
//! | file | question |
//! |---|---|
//! | [`server`] | what is answered to which request |
//! | `calls` | how a call goes from its request to its answer |
//! | `asking` | how the client is asked while its call runs |
//! | `seal` | what a client brings back with the answers, and that it is what it was given |
//! | `tasks` | what becomes of calls that take long |
//! | `changes` | who is told what has changed |
//! | `convert` | how a tool and a result look on the wire |
//! | `shelf` | how prompts and resources do |
//! | `pages` | how long lists are cut |
//! | `outputs` | how what was cut from results can be read |
//! | `handed` | how files that tools hand back can be read |
//! | `legacy` | what older clients get instead of output that is no object |
//! | `progress` | which progress events go out, and with which numbers |
//! | [`client`] | how other servers become sources of tools |
//! | [`stdio`] | how lines come in and go out, and when a connection ends |
//! | `lines` | how lines are bounded |
//! | `message` | what a line is, and what is answered to one that is no message |
//! | [`http`] | how requests come in over HTTP, whose they are and what each may take |
//! | `auth` | who sent a request, and which profiles are open to them |
//! | `trace` | which trace a request is part of |
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
//! Nothing here prints: the protocol owns stdout, everything else goes to `tracing`. Set rmcp's own targets to
//! `warn` in the subscriber: at `info` it logs notifications, at `debug` whole requests and results.

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
