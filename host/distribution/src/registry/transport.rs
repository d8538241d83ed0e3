//! The port through which requests to registries leave. Its implementation resolves names, checks addresses and holds
//! the trusted certificates.

use std::fmt;

use bytes::Bytes;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::{ConnectorError, ConnectorResponse};
use url::Url;

/// Sends requests to a registry and to the hosts that it names.
pub trait RegistryTransport: Send + Sync + fmt::Debug {
    /// Sends one request, and returns as soon as the head of the response has arrived. Follows no redirect.
    fn send(&self, request: RegistryRequest) -> BoxFuture<'_, Result<ConnectorResponse, ConnectorError>>;
}

/// Who wrote the origin of a URL. It decides which addresses are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlAuthor {
    /// The operator: an IP address in it is granted, and the networks of `net_private` are.
    Operator,
    /// A registry, in a redirect or a challenge: only public addresses, and the networks of `redirect_private`.
    Registry,
}

/// An HTTP request.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryRequest {
    /// The method.
    pub method: &'static str,
    /// The URL.
    pub url: Url,
    /// Who wrote its origin.
    pub author: UrlAuthor,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl RegistryRequest {
    /// A GET.
    pub(super) fn get(url: Url, author: UrlAuthor, headers: Vec<(String, String)>) -> Self {
        Self { method: "GET", url, author, headers, body: Bytes::new() }
    }
}

impl fmt::Debug for RegistryRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers and body contain credentials.
        f.debug_struct("RegistryRequest")
            .field("method", &self.method)
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}
