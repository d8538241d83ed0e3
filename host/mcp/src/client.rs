//! Other MCP servers as sources of tools: the client side.
//!
//! A [`Bridge`] keeps the servers of a policy (`[mcp.NAME]`) there and puts their tools into a registry, as
//! `mcp__NAME__TOOL`. A call of one goes the way of every call; only who runs it is another server.
//!
//! A server is not trusted. Everything that it can make us do has a number (`bounds`); what it says is data, marked as
//! such; what is wrong with one of its tools costs that tool. The wire is read here and not by rmcp: its client reads a
//! list of tools as one value, of which one odd tool costs the whole, and makes a task for each message that a server
//! sends unasked (decision 24).
//!
//! | file | question |
//! |---|---|
//! | `bridge` | which servers run |
//! | `supervisor`, `status` | how one is kept there, and what is known of it |
//! | `session` | how a conversation begins, and what is asked in it |
//! | `link`, `stdio`, `http`, `sse`, `wire`, `bounded` | how messages go and come |
//! | `inbox`, `elicit` | what a server says and asks by itself |
//! | `list`, `tools`, `mirror`, `placing` | how its tools become ours |
//! | `memory` | how its last known list outlives us |
//! | `resources`, `address` | how its resources are listed and read |
//! | `remote`, `result` | how one is called, and what it answers |

mod address;
mod bounds;
mod bridge;
mod elicit;
mod http;
mod inbox;
mod link;
mod list;
mod memory;
mod placing;
mod remote;
mod resources;
mod result;
mod session;
mod status;
mod stdio;
mod supervisor;
mod tools;

pub(crate) use address::Address;
pub use bridge::Bridge;
pub use elicit::{Elicit, Elicitation, Elicited};
pub use status::{ServerState, ServerStatus};
pub use supervisor::FindReducer;
