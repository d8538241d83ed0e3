//! From a host to its addresses, once for each connection: what was checked is what is connected to.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use toolbay_core::name::PluginId;

use super::session::NetError;

/// Look-ups of the whole host at once. Each takes a thread that nothing can call back, whatever becomes of the call.
const MOST: usize = 32;
/// Look-ups of one plugin at once, so that one with slow names keeps no other waiting.
const MOST_OF_PLUGIN: usize = 8;

/// All addresses of a name, in order of preference. Blocks.
type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Looks names up.
#[derive(Debug)]
pub(super) struct Resolver {
    look_up: LookUp,
    places: Arc<Semaphore>,
    of_plugins: Mutex<BTreeMap<PluginId, Arc<Semaphore>>>,
}

impl Resolver {
    /// The system's.
    pub(super) fn new() -> Self {
        Self::with(|name, port| (name, port).to_socket_addrs().map(Vec::from_iter))
    }

    pub(super) fn with(look_up: LookUp) -> Self {
        Self { look_up, places: Arc::new(Semaphore::new(MOST)), of_plugins: Mutex::default() }
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
        let failed = |_| NetError::Transport("the host is shutting down".to_owned());
        let own = Arc::clone(
            self.of_plugins
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(plugin.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_PLUGIN))),
        );
        let own = own.acquire_owned().await.map_err(failed)?;
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(failed)?;
        let (name, look_up) = (host.to_owned(), self.look_up);
        let found = tokio::task::spawn_blocking(move || {
            // The places are free again when the thread is, not when the caller has gone.
            let _places = (own, place);
            look_up(&name, port)
        });
        let found =
            found.await.map_err(|_| NetError::Transport(format!("`{host}` could not be looked up")))?;
        match found {
            Ok(addresses) if !addresses.is_empty() => Ok(addresses),
            Ok(_) => Err(NetError::Transport(format!("`{host}` has no address"))),
            Err(_) => Err(NetError::Transport(format!("`{host}` can not be found"))),
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
