//! `http-client`: requests through the one client of the host, under the policy of the tool.
//!
//! `wasi:http` goes through the same client ([`wasi`]), `wasi:sockets` through the same checks
//! ([`super::sockets`]). A request passes, for every hop: the rules ([`session`]), the limits, the vault ([`seam`]),
//! one look-up ([`resolve`]), the check of every address, and a connection to a checked address ([`dispatch`], [`connect`]). The
//! environment's proxies are ignored: a proxy would look names up again, unchecked.

mod body;
mod connect;
mod dispatch;
mod exchange;
mod headers;
mod named;
mod outward;
mod own;
mod places;
pub(crate) mod recorded;
mod resolve;
mod seam;
pub(crate) mod service;
pub(super) mod session;
pub(crate) mod wasi;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use session::{Meter, NetError};

use ipnet::IpNet;
use toolbay_policy::{Key, Policy};

use super::Capabilities;
use crate::engine::bindings::host::http_client::{Host, HttpError, HttpRequest, HttpResponse};

/// The one client of a host.
#[derive(Debug)]
pub(crate) struct Client {
    resolver: resolve::Resolver,
    pool: Arc<connect::Pool>,
    trust: connect::Trust,
    places: places::Places,
    recorded: OnceLock<Arc<dyn recorded::RecordedHttp>>,
}

impl Client {
    /// A client within the bounds of the host.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            resolver: resolve::Resolver::new(),
            pool: Arc::default(),
            trust: connect::Trust::default(),
            places: places::Places::new(policy.host()),
            recorded: OnceLock::new(),
        }
    }

    /// Trusts these roots, too.
    pub(crate) fn trust(&self, pem: &[u8]) -> Result<(), String> {
        self.trust.add(pem)
    }

    /// Puts a record in front of the network; the first one stays.
    pub(crate) fn record(&self, recorded: Arc<dyn recorded::RecordedHttp>) {
        self.recorded.get_or_init(|| recorded);
    }

    /// What stands in front of the network, if anything does.
    fn recorded(&self) -> Option<&Arc<dyn recorded::RecordedHttp>> {
        self.recorded.get()
    }

    /// A place for a raw connection, if there is one now.
    fn try_place(&self, user: &connect::User) -> Option<places::Place> {
        self.places.try_take(user, &self.pool)
    }
}

impl Client {
    /// Gets what is at an address that the operator wrote: no plugin's, so that no grant is asked. See [`own`].
    pub(crate) async fn get(&self, url: &str, most: u64, private: &[IpNet]) -> Result<Vec<u8>, String> {
        own::get(self, url, most, private).await
    }
}

impl Host for Capabilities {
    async fn fetch(&mut self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some(session) = self.session() else {
            return Err(HttpError::Denied(self.who.refuse(Key::Net, &request.url)));
        };
        let asked = request.timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let left = session.time(None);
        // In a box: it is passed on several times before it runs.
        let fetching = Box::pin(exchange::fetch(&session, request));
        // At the end of the call's own time the guest ends, and hears of nothing: that has a timer already.
        let fetched = match asked.filter(|asked| *asked < left) {
            Some(time) => tokio::time::timeout(time, fetching).await.unwrap_or(Err(NetError::Timeout)),
            None => fetching.await,
        };
        fetched.map_err(|error| match seam::error(&session, error) {
            NetError::Denied(why) | NetError::Address(why) => HttpError::Denied(why),
            NetError::Invalid(why) => HttpError::InvalidRequest(why),
            NetError::Timeout => HttpError::Timeout,
            NetError::Transport(why) => HttpError::Transport(why),
        })
    }
}
