//! The MCP client: other MCP servers as sources of tools.
//!
//! A [`Bridge`] keeps connections to the servers of a policy (`[mcp.NAME]`) and registers their tools as
//! `mcp__NAME__TOOL`. The pipeline processes a call of such a tool like any other call; only the last step goes to
//! another server.
//!
//! Servers are not trusted. Everything that a server can make this client do has a limit (`bounds`). Text from a server
//! is data and marked as such. An invalid tool costs only that tool. This module parses messages itself instead of
//! using the client of rmcp, which parses a list of tools as one value, so that one invalid tool costs the whole list,
//! and which spawns a task for every unsolicited message (docs/decisions/0024).
//!
//! | file | contents |
//! |---|---|
//! | `bridge` | the set of servers |
//! | `supervisor`, `status` | connecting, reconnecting and the status of one server |
//! | `handshake`, `negotiated` | finding the era of a server, and the handshake in it |
//! | `session` | the requests of a session |
//! | `link`, `link_request`, `stdio`, `http` | sending and receiving messages |
//! | `denied_path` | the policy line for a path that the sandbox denied |
//! | `inbox`, `elicit` | unsolicited messages and requests of a server |
//! | `unusable_output` | what came instead of an answer |
//! | `list`, `tools`, `registration` | listing, importing and registering tools |
//! | `saved_list` | the last known list of tools, saved between two starts |
//! | `oauth` | tokens of authorization servers |
//! | `resources`, `resource_requests`, `address` | listing and reading resources |
//! | `remote`, `result` | calling a tool and converting its result |

mod address;
mod bounds;
mod bridge;
mod denied_path;
mod elicit;
mod handshake;
mod http;
mod inbox;
mod link;
mod link_request;
mod list;
mod negotiated;
mod oauth;
mod registration;
mod remote;
mod resource_requests;
mod resources;
mod result;
mod saved_list;
mod session;
mod status;
mod stdio;
mod supervisor;
mod tools;
mod unusable_output;

pub(crate) use address::ResourceAddress;
pub use bounds::MAX_SAVED_LIST_BYTES;
pub use bridge::Bridge;
pub use elicit::{Elicitation, ElicitationHandler, ElicitationOutcome};
pub use oauth::{
    AuthorizationHandler, LoginOutcome, LogoutOutcome, OAuthError, TokenRevocation, login, logout,
    requires_login,
};
pub use saved_list::{SavedTool, SavedTools, saved_tools};
pub use status::{ServerState, ServerStatus};
pub use supervisor::ReducerLookup;
