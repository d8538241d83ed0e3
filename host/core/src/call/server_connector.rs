//! The ports through which the MCP client reaches other servers. The implementation starts programs and sends requests
//! under the policy. Values of secrets stay in the implementation: only their names cross these ports.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::pin::Pin;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use toolbay_policy::mcp_server::{HttpServerConfig, StdioServerConfig};
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::PolicyRefusal;

use crate::call::invoke::BoxFuture;

/// An incoming byte stream.
pub type ByteReader = Pin<Box<dyn AsyncRead + Send>>;
/// An outgoing byte stream.
pub type ByteWriter = Pin<Box<dyn AsyncWrite + Send>>;
/// The chunks of a response body. An error is a message for people.
pub type BodyStream = Pin<Box<dyn Stream<Item = Result<Vec<u8>, String>> + Send>>;

/// Starts the programs of MCP servers and sends requests to MCP servers, as the policy allows.
///
/// The default methods for loading and saving store nothing, as on a host without a state directory.
pub trait ServerConnector: Send + Sync + fmt::Debug {
    /// Starts a server's program in its sandbox.
    fn start<'a>(
        &'a self,
        name: &'a PluginId,
        child: &'a StdioServerConfig,
    ) -> BoxFuture<'a, Result<ServerProcess, ConnectorError>>;

    /// Sends one request to a server's URL, with the headers of its policy section, and returns as soon as the response
    /// head has arrived. Only redirects to the same origin are followed.
    fn send<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a HttpServerConfig,
        request: ConnectorRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>>;

    /// Sends one request of an OAuth flow of a server. A peer chose the URL. So an address that is not public needs the
    /// `net_private` of the section, unless the URL has the origin of the section's URL. No header of the section is sent,
    /// and no redirect is followed.
    fn send_oauth<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a HttpServerConfig,
        request: OAuthRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>>;

    /// Loads the credentials that were saved for a server, if they have at most `most` bytes.
    ///
    /// The error is a message for people, without the credentials.
    fn load_credentials<'a>(
        &'a self,
        _name: &'a PluginId,
        _most: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, String>> {
        Box::pin(async { Ok(None) })
    }

    /// Saves the credentials of a server where only this user can read them, or removes them. They replace the ones
    /// saved before. Returns `false` if the host has no place for them: a host without a state directory.
    ///
    /// The error is a message for people, without the credentials.
    fn save_credentials<'a>(
        &'a self,
        _name: &'a PluginId,
        _bytes: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async { Ok(false) })
    }

    /// Locks the saved credentials of a server against other tasks and processes with the same state directory, until the
    /// lock is dropped. Waits while another holder has the lock. A host without a state directory has nothing to lock.
    ///
    /// The error is a message for people.
    fn lock_credentials<'a>(&'a self, _name: &'a PluginId) -> BoxFuture<'a, Result<CredentialsLock, String>> {
        Box::pin(async { Ok(CredentialsLock::none()) })
    }

    /// A fingerprint of the secrets that a server's program gets. It changes when the value of one of them changes.
    fn secrets_fingerprint(&self, child: &StdioServerConfig) -> u64;

    /// Loads the tool list that was saved last for a server, if it has at most `most` bytes. The caller must validate
    /// it like a list from the server.
    fn load_tool_list<'a>(&'a self, _name: &'a PluginId, _most: usize) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async { None })
    }

    /// Saves the tool list of a server for the next start of the host. It replaces the list saved before. A host
    /// without a state directory saves nothing.
    fn save_tool_list<'a>(&'a self, _name: &'a PluginId, _bytes: Vec<u8>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Whether the name of a path overlaps a protected path, which no policy can allow. Reads no file system, since the
    /// path may come from a server.
    fn is_protected_path(&self, path: &Path, writing: bool) -> bool;

    /// Removes the values of secrets from a text, for logs and lists.
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str>;
}

/// A lock on the saved credentials of a server. Dropping it releases them.
pub struct CredentialsLock(Option<Box<dyn Send + Sync>>);

impl CredentialsLock {
    /// A lock that `guard` releases when it is dropped.
    #[must_use]
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// The lock of a host that saves no credentials.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }
}

impl fmt::Debug for CredentialsLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CredentialsLock").field(&self.0.is_some()).finish()
    }
}

/// The error of a connection attempt. Its `Display` has no policy lines: they are the hint of [`Self::into_refusal`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// The policy or a limit refuses the connection; a retry does not help.
    #[error("{}", .0.text)]
    Denied(PolicyRefusal),
    /// The peer redirects with this status to where the request is not sent.
    #[error("the server answered with status {0}: {1}")]
    Redirected(u16, String),
    /// The program, the connection or the peer failed.
    #[error("{}", .0.text)]
    Failed(PolicyRefusal),
}

impl ConnectorError {
    /// What happened, and the hint for the operator.
    #[must_use]
    pub fn into_refusal(self) -> PolicyRefusal {
        match self {
            Self::Denied(why) | Self::Failed(why) => why,
            redirected @ Self::Redirected(..) => redirected.to_string().into(),
        }
    }
}

/// A running program of a server. Dropping it kills the program with all its child processes.
pub struct ServerProcess {
    /// The program's stdin.
    pub stdin: ByteWriter,
    /// The program's stdout.
    pub stdout: ByteReader,
    /// The program's stderr.
    pub stderr: ByteReader,
    /// The kind of sandbox, for people: `landlock+seccomp`, `no sandbox`.
    pub confinement: &'static str,
    /// Owns the process.
    pub handle: Box<dyn ProcessHandle>,
}

impl fmt::Debug for ServerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerProcess").field("confinement", &self.confinement).finish_non_exhaustive()
    }
}

/// A handle to a running program. Dropping it kills the program.
pub trait ProcessHandle: Send + Sync + fmt::Debug {
    /// Waits until the program's first process exits, and describes its exit status.
    fn wait(&mut self) -> BoxFuture<'_, String>;
}

/// An HTTP request to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorRequest {
    /// `POST`, `GET` or `DELETE`.
    pub method: &'static str,
    /// Headers in addition to those of the policy section.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// An HTTP request of an OAuth flow, to a URL that a peer named.
#[derive(Clone, PartialEq, Eq)]
pub struct OAuthRequest {
    /// `POST` or `GET`.
    pub method: &'static str,
    /// The URL.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// A secret of the policy that authenticates the client.
    pub client_secret: Option<ClientSecretUse>,
}

impl fmt::Debug for OAuthRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers and body contain credentials.
        f.debug_struct("OAuthRequest")
            .field("method", &self.method)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// How a request carries the policy's secret of an OAuth client (RFC 6749, section 2.3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSecretUse {
    /// The client id.
    pub client_id: String,
    /// The name of the secret.
    pub secret: String,
    /// Where the secret goes.
    pub placement: ClientSecretPlacement,
}

/// The part of a token request that carries a client secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientSecretPlacement {
    /// `Authorization: Basic …` (`client_secret_basic`).
    Header,
    /// A parameter of the form (`client_secret_post`).
    Form,
}

/// An HTTP response whose body is still to be read. Dropping it closes the connection.
pub struct ConnectorResponse {
    /// The status code.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: BodyStream,
}

impl ConnectorResponse {
    /// The value of a header; `name` is in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for ConnectorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectorResponse").field("status", &self.status).finish_non_exhaustive()
    }
}
