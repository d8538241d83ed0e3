//! What one call may do on the network, and what it did so far. Shared by `http-client`, `wasi:http` and
//! `wasi:sockets`, so that a guest gains nothing by changing between them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use parking_lot::Mutex;
use toolbay_core::output::redact::Redactor;
use toolbay_policy::Key;
use toolbay_policy::capability::net::address::{self, NotPublic};
use toolbay_policy::capability::net::{self, Allowed, Target};
use toolbay_policy::capability::reach;
use toolbay_policy::limits::Limit;
use url::Url;

use super::Client;
use super::connect::User;
use super::places::Place;
use crate::capability::secrets::{Held, Tokens};
use crate::capability::{Capabilities, Granted, Principal};

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NetError {
    /// The policy, or a limit, says no.
    #[error("{0}")]
    Denied(String),
    /// A host leads to an address that the policy does not allow.
    #[error("{0}")]
    Address(String),
    /// The guest wrote something that is no request.
    #[error("{0}")]
    Invalid(String),
    /// The time of the request is up.
    #[error("the time was up")]
    Timeout,
    /// The name, the connection or the peer failed.
    #[error("{0}")]
    Transport(String),
}

/// What a call used of the network. One for all interfaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Spent>);

#[derive(Debug, Default)]
struct Spent {
    requests: AtomicU32,
    open: AtomicU32,
    bytes: AtomicU64,
    raw: Mutex<Raw>,
}

/// What raw sockets know: which names led to an address, and with whom datagrams are exchanged.
#[derive(Debug, Default)]
struct Raw {
    names: BTreeMap<IpAddr, BTreeSet<String>>,
    peers: BTreeSet<SocketAddr>,
    leases: Vec<(Lease, Place)>,
}

/// One of the requests and connections that a call may have open at once.
#[derive(Debug)]
pub(super) struct Lease(std::sync::Weak<Spent>);

impl Lease {
    /// One that counts for no call.
    pub(super) fn of_the_host() -> Self {
        Self(std::sync::Weak::new())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(spent) = self.0.upgrade() {
            spent.open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The network as one call sees it.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(super) who: Principal,
    pub(super) granted: Arc<Granted>,
    deadline: Instant,
    spent: Arc<Spent>,
    pub(super) tokens: Tokens,
    /// The request that the host made itself, for a service.
    own: Option<Arc<Own>>,
}

/// A request that the host made itself.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) method: &'static str,
    pub(super) url: Url,
    /// Secrets whose values stand in its query, each with the parameter's name.
    pub(super) query: Vec<(String, Arc<Held>)>,
}

impl Capabilities {
    /// The network as this call sees it; `None` for sealed entries, which have none.
    pub(crate) fn session(&self) -> Option<Session> {
        Some(Session {
            who: self.who.clone(),
            granted: Arc::clone(self.who.granted.as_ref()?),
            deadline: self.times?.deadline,
            spent: Arc::clone(&self.http.0),
            tokens: self.tokens.clone(),
            own: None,
        })
    }
}

impl Session {
    /// The network as one request of a service sees it.
    pub(super) fn of_service(
        who: Principal,
        deadline: Instant,
        own: Own,
        tokens: Tokens,
    ) -> Result<Self, NetError> {
        let granted = who.granted.clone().ok_or_else(|| NetError::Denied(who.nothing_now()))?;
        Ok(Self { who, granted, deadline, spent: Arc::default(), tokens, own: Some(Arc::new(own)) })
    }

    /// For whom connections are kept.
    pub(super) fn user(&self) -> User {
        let name = self.who.plugin.clone();
        if self.granted.service.is_some() { User::Service(name) } else { User::Plugin(name) }
    }

    /// What knows the values of secrets.
    pub(super) fn redactor(&self) -> &Redactor {
        self.who.ctx.as_ref().map_or(&self.granted.services.redactor, |ctx| ctx.redactor())
    }

    /// A URL as it is sent: with the values of secrets that stand in the query of what the host made itself.
    pub(super) fn with_query<'u>(&self, target: &Target, url: &'u Url) -> Result<Cow<'u, Url>, NetError> {
        let own = self.own.as_ref().filter(|_| self.is_own(target, url));
        let Some(own) = own.filter(|own| !own.query.is_empty()) else { return Ok(Cow::Borrowed(url)) };
        let mut sent = url.clone();
        for (name, held) in &own.query {
            held.put_into_query(target, name, &mut sent)
                .map_err(|why| NetError::Denied(self.who.tell(why)))?;
        }
        Ok(Cow::Owned(sent))
    }

    pub(super) fn client(&self) -> &Client {
        &self.granted.services.http
    }

    /// Time for one request: what the guest asks for, at most what is left of the call.
    pub(super) fn time(&self, asked: Option<Duration>) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        asked.map_or(left, |asked| asked.min(left))
    }

    /// Asks the rules about a request.
    pub(super) fn admit(&self, target: &Target, url: &Url) -> Result<Allowed, NetError> {
        let judged = match &self.granted.service {
            None => net::judge(&self.granted.grants.net, target),
            Some(service) => service.judge(target, url, self.is_own(target, url)),
        };
        match judged {
            Ok(allowed) => {
                self.who.note(Key::Net, &target.wish(), true);
                Ok(allowed)
            }
            Err(_) if self.is_own(target, url) && self.who.profile().is_some() => {
                self.who.note(Key::Net, &target.wish(), false);
                let profile = self.who.profile().unwrap_or_default();
                let text = format!("`{}` is beyond the profile `{profile}`", target.wish());
                let hint = || format!("See `net` in [profile.{profile}].");
                Err(NetError::Denied(self.who.refuse_with(&text, hint)))
            }
            Err(why) => {
                let refusal = self.who.refuse(Key::Net, &target.wish());
                Err(NetError::Denied(why.map_or(refusal.clone(), |why| format!("{why}; {refusal}"))))
            }
        }
    }

    fn is_own(&self, target: &Target, url: &Url) -> bool {
        self.own.as_ref().is_some_and(|own| own.is(target, url))
    }

    /// Checks every address that a host stands for. One that may not be connected to refuses them all: whoever
    /// answers for the name chooses the order.
    pub(super) fn check(
        &self,
        target: &Target,
        allowed: Allowed,
        addresses: &[SocketAddr],
    ) -> Result<(), NetError> {
        addresses.iter().try_for_each(|one| self.check_one(target, allowed, one.ip()))
    }

    fn check_one(&self, target: &Target, allowed: Allowed, ip: IpAddr) -> Result<(), NetError> {
        let Err(problem) = address::judge(target.host(), ip, self.private(allowed)) else { return Ok(()) };
        // Who was granted every public host is not told what the names of private ones mean.
        let net = IpNet::from(address::unmapped(ip)).to_string();
        let host = target.host();
        let refusal = match (allowed, problem) {
            (Allowed::Public, _) => {
                self.who.note(Key::Net, &reach::shown(&target.wish()), false);
                let text = format!(
                    "`{host}` has an address that is not public, and it is granted with public addresses only"
                );
                // The host by its name, and then the network.
                let hint = || {
                    let advice = |key, wish: &str| self.granted.advice(&self.who.plugin, key, wish).hint();
                    let named = advice(Key::Net, &target.wish());
                    format!("{named}\n{}", advice(Key::NetPrivate, &net))
                };
                self.who.refuse_with(&text, hint)
            }
            (Allowed::Named, NotPublic::Special(..) | NotPublic::Metadata(_)) => {
                format!("`{host}`: {problem}; {}", self.who.refuse(Key::NetPrivate, &net))
            }
        };
        Err(NetError::Address(refusal))
    }

    /// The private networks that a rule's hosts may lead to.
    pub(super) fn private(&self, allowed: Allowed) -> &[IpNet] {
        match allowed {
            Allowed::Named => &self.granted.grants.net_private,
            Allowed::Public => &[],
        }
    }

    /// Counts one more request, hop, look-up or raw connection.
    pub(super) fn count_request(&self) -> Result<(), NetError> {
        let counted = count(&self.spent.requests, self.who.limits.http_requests);
        counted.ok_or_else(|| NetError::Denied(self.limit(Limit::HttpRequests)))
    }

    /// Opens one more request or connection.
    pub(super) fn lease(&self) -> Result<Lease, NetError> {
        let counted = count(&self.spent.open, self.who.limits.http_connections);
        counted.ok_or_else(|| NetError::Denied(self.limit(Limit::HttpConnections)))?;
        Ok(Lease(Arc::downgrade(&self.spent)))
    }

    /// Counts bytes of a request's or a response's body.
    pub(super) fn count_bytes(&self, bytes: usize) -> Result<(), NetError> {
        let before = self.spent.bytes.fetch_add(bytes as u64, Ordering::AcqRel);
        if before.saturating_add(bytes as u64) > self.who.limits.http_bytes {
            return Err(NetError::Denied(self.limit(Limit::HttpBytes)));
        }
        Ok(())
    }

    /// Bytes of bodies that are left, and how many may be handed over at once.
    pub(super) fn bytes_left(&self) -> (u64, Limit) {
        let left = self.who.limits.http_bytes.saturating_sub(self.spent.bytes.load(Ordering::Acquire));
        if left <= self.who.limits.host_call_bytes {
            (left, Limit::HttpBytes)
        } else {
            (self.who.limits.host_call_bytes, Limit::HostCallBytes)
        }
    }

    /// Names a limit that was reached.
    pub(super) fn limit(&self, limit: Limit) -> String {
        self.who.over("no more is sent or received", limit)
    }
}

/// Counts one more, if there may be.
fn count(so_far: &AtomicU32, most: u32) -> Option<()> {
    let more = |n| (n < most).then_some(n + 1);
    so_far.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(drop)
}

impl Own {
    fn is(&self, target: &Target, url: &Url) -> bool {
        self.method.eq_ignore_ascii_case(target.method()) && self.url == *url
    }
}

/// Raw sockets.
impl Session {
    /// Whether there is any grant for a scheme of raw connections.
    pub(crate) fn has_raw(&self, scheme: net::Scheme) -> bool {
        self.granted.grants.net.iter().any(|rule| rule.scheme == scheme)
    }

    /// Looks a name up for raw connections, if a grant names it, and remembers what it led to.
    pub(crate) async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, NetError> {
        /// Addresses that are remembered of a call.
        const MOST: usize = 256;
        let target = Target::raw(net::Scheme::Tcp, name, 1).map_err(NetError::Invalid)?;
        let Some(allowed) = net::judge_lookup(&self.granted.grants.net, target.host()) else {
            let wish = format!("tcp://{}:*", target.host());
            let text = self.who.refuse(Key::Net, &wish);
            self.who.unheard(&text);
            return Err(NetError::Denied(text));
        };
        self.count_request()?;
        let found = self.client().resolver.addresses(&self.who.plugin, target.host(), 0);
        let found = tokio::time::timeout(self.time(None), found).await.map_err(|_| NetError::Timeout)??;
        self.check(&target, allowed, &found)?;
        let mut raw = self.spent.raw.lock();
        for address in &found {
            if raw.names.len() < MOST || raw.names.contains_key(&address.ip()) {
                raw.names.entry(address.ip()).or_default().insert(target.host().to_owned());
            }
        }
        Ok(found.iter().map(SocketAddr::ip).collect())
    }

    /// Whether a raw connection to an address may be made: the address is granted itself, or it is what a granted
    /// name was found to mean in this call.
    pub(crate) fn may_connect(&self, scheme: net::Scheme, peer: SocketAddr) -> bool {
        if self.spent.raw.lock().peers.contains(&peer) && scheme == net::Scheme::Udp {
            return true;
        }
        let literal = match peer.ip() {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let names = self.spent.raw.lock().names.get(&peer.ip()).cloned().unwrap_or_default();
        let granted = names.into_iter().chain([literal]).filter_map(|host| {
            let target = Target::raw(scheme, &host, peer.port()).ok()?;
            let allowed = net::judge(&self.granted.grants.net, &target).ok()?;
            address::judge(&host, peer.ip(), self.private(allowed)).ok().map(|()| target)
        });
        let Some(target) = granted.into_iter().next() else {
            let text = self.who.refuse(Key::Net, &format!("{}://{peer}", scheme.name()));
            self.who.unheard(&text);
            return false;
        };
        self.who.note(Key::Net, &target.wish(), true);
        if self.count_request().is_err() {
            return false;
        }
        // wasmtime does not say when a socket is closed: a raw connection counts as open until the call ends.
        let (Ok(lease), Some(place)) = (self.lease(), self.client().try_place(&self.user())) else {
            return false;
        };
        let mut raw = self.spent.raw.lock();
        raw.leases.push((lease, place));
        if scheme == net::Scheme::Udp {
            raw.peers.insert(peer);
        }
        true
    }

    /// Whether datagrams of a peer may be received: those with whom the guest speaks.
    pub(crate) fn is_peer(&self, peer: SocketAddr) -> bool {
        self.spent.raw.lock().peers.contains(&peer)
    }
}
