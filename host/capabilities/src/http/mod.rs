//! `http-client`: requests through the host's HTTP client, under the policy of the tool.
//!
//! `wasi:http` uses the same client (`wasi`), `wasi:sockets` the same checks (`sockets`). Every hop of a
//! request passes the rules (`call_network`), the limits, secret injection (`secret_injection`), one name lookup
//! (`resolve`) and the check of every address; then the client connects to a checked address (`dispatch`, `connect`).
//! Only requests to hosts that the operator names, such as registries and MCP servers, use a proxy (`proxy`). Requests
//! of guests never do, because a proxy resolves names again, unchecked.

mod body;
pub(super) mod call_network;
mod connect;
mod contract;
mod dispatch;
mod exchange;
mod head_limit;
mod headers;
mod host_request;
mod mcp_server;
mod oauth;
mod operator_target;
mod outbound_limiter;
mod proxy;
pub mod recorded;
#[cfg(feature = "registry")]
pub mod registry;
mod resolve;
mod secret_injection;
pub mod service;
mod sockets;
mod tls;
mod trace;
pub(crate) mod wasi;

use std::sync::{Arc, OnceLock};

pub use call_network::NetError;
pub(crate) use call_network::NetworkUsage;
pub use host_request::OperatorNetworks;
pub use tls::check_certificates;

use toolbay_policy::limits::CallLimits;
use toolbay_policy::{GrantKey, Policy};
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;
use wasmtime_wasi::WasiCtxBuilder;

use super::Capabilities;
use crate::HasCapabilities;
use crate::bindings::host;
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};

/// Requests and connections to the granted hosts.
pub(crate) struct Network;

impl Capability for Network {
    const KEYS: &'static [GrantKey] = &[GrantKey::Net, GrantKey::NetPrivate];

    type State = NetworkUsage;

    fn begin(_: &CallLimits) -> NetworkUsage {
        NetworkUsage::default()
    }

    fn link(linker: &mut Linker<GuestState>, async_support: AsyncSupport) -> wasmtime::Result<()> {
        host::http_client::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)?;
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
        sockets::link(linker)?;
        if async_support == AsyncSupport::On {
            wasmtime_wasi_http::p3::add_to_linker(linker)?;
            wasmtime_wasi::p3::sockets::add_to_linker(linker)?;
            sockets::link_async(linker)?;
        }
        Ok(())
    }

    fn configure(wasi: &mut WasiCtxBuilder, of: &Capabilities) {
        sockets::allow_sockets(wasi, of);
    }
}

/// The HTTP client of a host.
#[derive(Debug)]
pub struct HttpClient {
    resolver: resolve::Resolver,
    pool: Arc<connect::ConnectionPool>,
    tls_roots: Arc<tls::TlsRoots>,
    limiter: outbound_limiter::OutboundLimiter,
    recorded: OnceLock<Arc<dyn recorded::RecordedHttp>>,
    environment_proxies: proxy::ProxyRules,
}

impl HttpClient {
    /// Creates a client with the connection limits of the policy's host section.
    pub fn new(policy: &Policy) -> Self {
        Self {
            resolver: resolve::Resolver::new(),
            pool: Arc::default(),
            tls_roots: Arc::default(),
            limiter: outbound_limiter::OutboundLimiter::new(policy.host()),
            recorded: OnceLock::new(),
            environment_proxies: proxy::ProxyRules::from_environment(),
        }
    }

    /// Adds trusted TLS roots, in PEM.
    pub fn add_tls_roots(&self, pem: &[u8]) -> Result<(), String> {
        self.tls_roots.add(pem)
    }

    /// Sets the recorder in front of the network; only the first call has an effect.
    pub fn set_recorded(&self, recorded: Arc<dyn recorded::RecordedHttp>) {
        self.recorded.get_or_init(|| recorded);
    }
}
