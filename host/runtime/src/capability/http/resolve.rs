//! From a host to its addresses, once for each connection: what was checked is what is connected to.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use toolbay_policy::name::PluginId;

use super::session::NetError;
use crate::engine::admission::FairSemaphore;

/// Look-ups of the whole host at once. Each takes a thread that nothing can call back, whatever becomes of the call.
const MOST: u32 = 32;
/// Look-ups of one plugin at once, so that one with slow names keeps no other waiting.
const MOST_OF_PLUGIN: u32 = 8;
/// Look-ups that wait: one for each connection that a host may have open by default, many times over.
const MOST_WAITING: u32 = 4096;

/// All addresses of a name, in order of preference. Blocks.
type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Looks names up.
#[derive(Debug)]
pub(super) struct Resolver {
    look_up: LookUp,
    places: FairSemaphore,
}

impl Resolver {
    /// The system's.
    pub(super) fn new() -> Self {
        Self::with(|name, port| (name, port).to_socket_addrs().map(Vec::from_iter))
    }

    pub(super) fn with(look_up: LookUp) -> Self {
        Self { look_up, places: FairSemaphore::new(MOST, MOST_WAITING) }
    }

    /// Every address of a host, in the system's order of preference.
    pub(super) async fn addresses(
        &self,
        plugin: &PluginId,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, NetError> {
        if let Some(address) = literal(host) {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let place = self.places.acquire(plugin, MOST_OF_PLUGIN).await.map_err(|_| {
            NetError::Transport(format!("busy: {MOST_WAITING} look-ups of names wait; try again later"))
        })?;
        let (name, look_up) = (host.to_owned(), self.look_up);
        // Ends with the lookup.
        let found = tokio::task::spawn_blocking(move || {
            // The place is free again when the thread is, not when the caller has gone.
            let _place = place;
            look_up(&name, port)
        });
        let found =
            found.await.map_err(|_| NetError::Transport(format!("`{host}` could not be looked up")))?;
        match found {
            Ok(addresses) if !addresses.is_empty() => Ok(addresses),
            Ok(_) => Err(NetError::Transport(format!("`{host}` has no address"))),
            Err(_) => Err(NetError::Transport(format!("`{host}` cannot be found"))),
        }
    }
}

/// The address that a host is, if it is one.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}
