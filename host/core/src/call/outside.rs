//! The ports through which other MCP servers are reached: who starts a program, and who sends a request, decides what
//! either may reach. Values of secrets stay on the far side: only their names go through here.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use toolbay_policy::mcp_server::{Child, Endpoint};
use toolbay_policy::name::PluginId;

use crate::call::invoke::BoxFuture;

/// Bytes that come in.
pub type Input = Pin<Box<dyn AsyncRead + Send>>;
/// Bytes that go out.
pub type Output = Pin<Box<dyn AsyncWrite + Send>>;
/// The parts of a body as they come; an error is what a person may read of the end of it.
pub type Body = Pin<Box<dyn Stream<Item = Result<Vec<u8>, String>> + Send>>;

/// Starts programs and sends requests for a server of the policy.
pub trait Outside: Send + Sync + fmt::Debug {
    /// Starts a server's program, in its sandbox.
    fn start<'a>(
        &'a self,
        name: &'a PluginId,
        child: &'a Child,
    ) -> BoxFuture<'a, Result<Started, OutsideError>>;

    /// Sends one request to a server's URL, with the section's own headers, and returns the response as soon as its
    /// head is there. Redirects lead to nowhere but the same origin.
    fn send<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a Endpoint,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, OutsideError>>;

    /// A mark of what a program would be handed now beside what its section says: another one when the value of one of
    /// its secrets is another.
    fn handed(&self, child: &Child) -> u64;

    /// What was kept last for a server, of at most `most` bytes; `None`: nothing, or it cannot be read. Whoever reads it
    /// checks it like what the server says.
    fn recall<'a>(&'a self, name: &'a PluginId, most: usize) -> BoxFuture<'a, Option<Vec<u8>>>;

    /// Keeps something for a server, in place of what was kept before, for the next start of the host. Where there is no
    /// place for it, nothing is kept.
    fn remember<'a>(&'a self, name: &'a PluginId, bytes: Vec<u8>) -> BoxFuture<'a, ()>;

    /// A text without the values of secrets, for logs and lists.
    fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str>;
}

/// Why a server could not be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutsideError {
    /// The policy, or a bound, says no: trying again is no remedy.
    #[error("{0}")]
    Denied(String),
    /// The program, the connection or the peer failed.
    #[error("{0}")]
    Failed(String),
}

/// A program that runs. Dropping it kills it with all it started.
pub struct Started {
    /// Its stdin.
    pub stdin: Output,
    /// Its stdout.
    pub stdout: Input,
    /// Its stderr.
    pub stderr: Input,
    /// What holds it, for people: `landlock+seccomp`, `no sandbox`.
    pub confinement: &'static str,
    /// Kept for as long as it is to run.
    pub life: Box<dyn Life>,
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("confinement", &self.confinement).finish_non_exhaustive()
    }
}

/// A program's life, from outside. Dropping it ends the program.
pub trait Life: Send + Sync + fmt::Debug {
    /// Waits for the end of the program's first process; tells how it ended.
    fn ended(&mut self) -> BoxFuture<'_, String>;
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `POST`, `GET` or `DELETE`.
    pub method: &'static str,
    /// Headers beside those of the section.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A response, of which the body is still to come. Dropping it closes the connection.
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

impl Response {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}
