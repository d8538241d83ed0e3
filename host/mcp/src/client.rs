//! The MCP client: other MCP servers as sources of tools.
//!
//! A [`Bridge`] keeps connections to the servers of a policy (`[mcp.NAME]`) and registers their tools as
//! `mcp__NAME__TOOL`. The pipeline processes a call of such a tool like any other call; only the last step goes to
//! another server.
//!
//! Servers are not trusted. Everything that a server can make this client do has a limit (`bounds`). Text from a server
//! is data and marked as such. An invalid tool costs only that tool. This module parses messages itself instead of
//! using the client of rmcp, which parses a list of tools as one value, so that one invalid tool costs the whole list,
//! and which spawns a task for every unsolicited message (decision 24).
//!
//! | file | contents |
//! |---|---|
//! | `bridge` | the set of servers |
//! | `supervisor`, `status` | connecting, reconnecting and the status of one server |
//! | `session` | the handshake and the requests of a session |
//! | `link`, `stdio`, `http` | sending and receiving messages |
//! | `inbox`, `elicit` | unsolicited messages and requests of a server |
//! | `list`, `tools`, `registration` | listing, importing and registering tools |
//! | `saved_list` | the last known list of tools, saved between two starts |
//! | `oauth` | tokens of authorization servers |
//! | `resources`, `address` | listing and reading resources |
//! | `remote`, `result` | calling a tool and converting its result |

mod address;
mod bounds;
mod bridge;
mod elicit;
mod http;
mod inbox;
mod link;
mod list;
mod oauth;
mod registration;
mod remote;
mod resources;
mod result;
mod saved_list;
mod session;
mod status;
mod stdio;
mod supervisor;
mod tools;

pub(crate) use address::ResourceAddress;
pub use bridge::Bridge;
pub use elicit::{Elicitation, ElicitationHandler, ElicitationOutcome};
pub use oauth::{AuthorizationHandler, LoginOutcome, OAuthError, login, logout, requires_login};
pub use status::{ServerState, ServerStatus};
pub use supervisor::ReducerLookup;
