//! Where a request comes from: its connection, and the address of its client.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use toolbay_policy::serve::ServePolicy;

use super::connections::{HttpConnection, client_network};
use super::forwarded;

/// The connection and the client address of a request.
#[derive(Debug, Clone)]
pub(super) struct RequestSource {
    /// The peer address of the connection.
    peer: IpAddr,
    /// Name of the peer with anonymous access.
    anonymous: Arc<str>,
    pub(super) connection: Arc<HttpConnection>,
}

impl RequestSource {
    /// The source of requests on a connection from `peer`.
    pub(super) fn new(peer: IpAddr, connection: &Arc<HttpConnection>) -> Self {
        let (peer, connection) = (peer.to_canonical(), Arc::clone(connection));
        Self { peer, anonymous: anonymous_name(peer), connection }
    }

    /// The client address of a request: the peer address, or the one that a trusted proxy reports.
    pub(super) fn client_address(&self, headers: &HeaderMap, serve: &ServePolicy) -> IpAddr {
        if serve.trusted_proxies.is_empty() {
            return self.peer;
        }
        forwarded::client_address(self.peer, headers, &serve.trusted_proxies)
    }

    /// Name of a client at this address with anonymous access.
    pub(super) fn anonymous(&self, client: IpAddr) -> Arc<str> {
        if client == self.peer { Arc::clone(&self.anonymous) } else { anonymous_name(client) }
    }
}

fn anonymous_name(address: IpAddr) -> Arc<str> {
    format!("anonymous:{}", client_network(address)).into()
}
