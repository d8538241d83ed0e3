//! Name lookup, once for each connection: the client connects only to addresses that were checked.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use toolbay_policy::name::PluginId;
use toolbay_sandbox::admission::FairSemaphore;

use super::call_network::NetError;

/// Concurrent lookups of the host. Each blocks a thread that cannot be cancelled, even when its call ends.
const MAX_LOOKUPS: u32 = 32;
/// Concurrent lookups of one plugin, so that slow names of one plugin do not delay the others.
const MAX_LOOKUPS_PER_PLUGIN: u32 = 8;
/// Maximum number of waiting lookups: many times the default number of connections.
const MAX_WAITING_LOOKUPS: u32 = 4096;

/// Returns all addresses of a name, in order of preference. Blocks.
type LookupFn = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Resolves host names, with fair limits between plugins.
#[derive(Debug)]
pub(super) struct Resolver {
    look_up: LookupFn,
    permits: FairSemaphore,
}

impl Resolver {
    /// Uses the resolver of the system.
    pub(super) fn new() -> Self {
        Self::with_lookup(|name, port| (name, port).to_socket_addrs().map(Vec::from_iter))
    }

    pub(super) fn with_lookup(look_up: LookupFn) -> Self {
        Self { look_up, permits: FairSemaphore::new(MAX_LOOKUPS, MAX_WAITING_LOOKUPS) }
    }

    /// Returns every address of a host, in the system's order of preference.
    pub(super) async fn resolve(
        &self,
        plugin: &PluginId,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, NetError> {
        if let Some(address) = parse_ip_literal(host) {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let permit = self.permits.acquire(plugin, MAX_LOOKUPS_PER_PLUGIN).await.map_err(|_| {
            NetError::Transport(format!(
                "busy: {MAX_WAITING_LOOKUPS} name lookups are waiting; try again later"
            ))
        })?;
        let (name, look_up) = (host.to_owned(), self.look_up);
        // The task ends with the lookup.
        let found = tokio::task::spawn_blocking(move || {
            // The thread holds the permit, so that it is released when the thread ends, not when the caller gives up.
            let _permit = permit;
            look_up(&name, port)
        });
        let found = found.await.map_err(|_| NetError::Transport(format!("the lookup of `{host}` failed")))?;
        match found {
            Ok(addresses) if !addresses.is_empty() => Ok(addresses),
            Ok(_) => Err(NetError::Transport(format!("`{host}` has no address"))),
            Err(_) => Err(NetError::Transport(format!("the host `{host}` cannot be resolved"))),
        }
    }
}

/// Parses a host that is an IP address; `None` for a name.
pub(super) fn parse_ip_literal(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// Whether a host is a name of this machine.
pub(super) fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}
