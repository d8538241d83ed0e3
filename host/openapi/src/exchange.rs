//! The port that sends requests.

use std::fmt;
use std::sync::Arc;

use toolbay_core::call::CallContext;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::tool::fault::Fault;

use crate::security::Credential;

/// A request of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRequest {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// The complete URL, without additions of the credentials.
    pub url: String,
    /// Header fields by name. Values have no control characters.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Vec<u8>>,
    /// Secrets by name, each with its location in the request.
    pub credentials: Vec<Credential>,
}

/// A response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceResponse {
    /// The status code.
    pub status: u16,
    /// Header fields with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The decoded body.
    pub body: Vec<u8>,
    /// Whether the body was truncated.
    pub truncated: bool,
}

impl ServiceResponse {
    /// The first field with this lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// The reasons for a missing response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The policy denies the request. The text names the line that would allow it.
    #[error("{0}")]
    Denied(String),
    /// The request failed.
    #[error("{0}")]
    Failed(String),
    /// The request reached a limit of the call, or the call was cancelled.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Sends requests.
pub trait HttpExchange: Send + Sync + fmt::Debug {
    /// Sends a request on behalf of a call. Dropping the future cancels it.
    fn send<'a>(
        &'a self,
        request: ServiceRequest,
        ctx: &'a Arc<CallContext>,
    ) -> BoxFuture<'a, Result<ServiceResponse, ExchangeError>>;

    /// Whether bytes of a media type may become an attachment of the turn, if the turn takes attachments.
    fn may_attach(&self, media: &str, ctx: &CallContext) -> bool {
        let _ = (media, ctx);
        true
    }
}
