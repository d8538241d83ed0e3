//! The port that sends requests.

use std::fmt;
use std::sync::Arc;

use toolbay_core::call::CallContext;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::service_request::{ServiceRequest, ServiceResponse};
use toolbay_core::tool::fault::Fault;

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
