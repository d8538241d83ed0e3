//! The port through which a request goes out, whatever sends it.

use std::fmt;
use std::sync::Arc;

use toolbay_core::call::CallContext;
use toolbay_core::call::fault::Fault;
use toolbay_core::call::invoke::BoxFuture;

use crate::security::Credential;

/// A request that an operation makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRequest {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// The whole URL, without what the credentials add.
    pub url: String,
    /// Header fields by name; no value has control characters.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Vec<u8>>,
    /// Secrets by name, each with the place its value goes to.
    pub credentials: Vec<Credential>,
}

/// What came back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceResponse {
    /// The status.
    pub status: u16,
    /// Header fields, names in small letters.
    pub headers: Vec<(String, String)>,
    /// The body, decoded.
    pub body: Vec<u8>,
    /// The body was longer.
    pub truncated: bool,
}

impl ServiceResponse {
    /// The first field of this name, which is written in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The policy does not allow it; the text names the line that would.
    #[error("{0}")]
    Denied(String),
    /// It was tried, and failed.
    #[error("{0}")]
    Failed(String),
    /// It ran into a limit of the call, or was given up.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Sends requests.
pub trait HttpExchange: Send + Sync + fmt::Debug {
    /// Sends one on behalf of a call. Dropping the future gives it up.
    fn send<'a>(
        &'a self,
        request: ServiceRequest,
        ctx: &'a Arc<CallContext>,
    ) -> BoxFuture<'a, Result<ServiceResponse, ExchangeError>>;

    /// Whether bytes of a media type may become an attachment of the call's turn, if that takes any.
    fn may_attach(&self, media: &str, ctx: &CallContext) -> bool {
        let _ = (media, ctx);
        true
    }
}
