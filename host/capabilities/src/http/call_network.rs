//! The network access of one call and its use so far. Shared by `http-client`, `wasi:http` and `wasi:sockets`, so
//! that a guest gains nothing by switching between them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use parking_lot::Mutex;
use toolbay_core::output::redact::Redactor;
use toolbay_policy::capability::net::address::{self, AddressError};
use toolbay_policy::capability::net::{self, AddressScope, NetTarget};
use toolbay_policy::capability::path_rule;
use toolbay_policy::limits::Limit;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::{Advice, GrantKey};
use url::Url;

use super::HttpClient;
use super::connect::{ConnectionUser, Route};
use super::operator_target;
use super::outbound_limiter::OutboundPermit;
use crate::secrets::{SecretEntry, SecretPlaceholders};
use crate::{Capabilities, Grantee, ResolvedGrants};

/// The error of a request or connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// The policy or a limit refuses it.
    #[error("{0}")]
    Denied(String),
    /// The host resolves to an address that the policy does not allow. A call has its hints already; the host's own
    /// requests have theirs here.
    #[error("{}", .0.text)]
    Address(PolicyRefusal),
    /// The guest's request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The request timed out.
    #[error("the request timed out")]
    Timeout,
    /// The lookup, the connection or the peer failed.
    #[error("{0}")]
    Transport(String),
}

/// The network use of a call, across all interfaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct NetworkUsage(Arc<NetworkCounters>);

#[derive(Debug, Default)]
struct NetworkCounters {
    requests: AtomicU32,
    open: AtomicU32,
    bytes: AtomicU64,
    raw: Mutex<RawSockets>,
}

/// The state of raw sockets: the names that resolved to each address, and the peers of datagrams.
#[derive(Debug, Default)]
struct RawSockets {
    names: BTreeMap<IpAddr, BTreeSet<String>>,
    peers: BTreeSet<SocketAddr>,
    connections: Vec<(OpenConnectionGuard, OutboundPermit)>,
}

/// Counts one open request or connection of a call while it exists.
#[derive(Debug)]
pub(super) struct OpenConnectionGuard(std::sync::Weak<NetworkCounters>);

impl OpenConnectionGuard {
    /// A guard that counts for no call.
    pub(super) fn uncounted() -> Self {
        Self(std::sync::Weak::new())
    }
}

impl Drop for OpenConnectionGuard {
    fn drop(&mut self) {
        if let Some(counters) = self.0.upgrade() {
            counters.open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The network access of one call.
#[derive(Debug, Clone)]
pub(crate) struct CallNetwork {
    pub(super) grantee: Grantee,
    pub(super) granted: Arc<ResolvedGrants>,
    deadline: Instant,
    counters: Arc<NetworkCounters>,
    pub(super) placeholders: SecretPlaceholders,
    /// The request that the host built for a service.
    host_request: Option<Arc<HostRequest>>,
}

/// A request that the host built itself.
#[derive(Debug)]
pub(super) struct HostRequest {
    pub(super) method: &'static str,
    pub(super) url: Url,
    /// Secrets for its query, each with the name of the parameter.
    pub(super) query: Vec<(String, Arc<SecretEntry>)>,
}

impl Capabilities {
    /// The network access of this call; `None` for sealed entries.
    pub(crate) fn network(&self) -> Option<CallNetwork> {
        Some(CallNetwork {
            grantee: self.grantee.clone(),
            granted: Arc::clone(self.grantee.granted.as_ref()?),
            deadline: self.times?.deadline,
            counters: Arc::clone(&self.network_usage.0),
            placeholders: self.placeholders.clone(),
            host_request: None,
        })
    }
}

impl CallNetwork {
    /// The network access of one request of a service.
    pub(super) fn for_service(
        grantee: Grantee,
        deadline: Instant,
        host_request: HostRequest,
        placeholders: SecretPlaceholders,
    ) -> Result<Self, NetError> {
        let granted = grantee.granted.clone().ok_or_else(|| NetError::Denied(grantee.sealed_error()))?;
        Ok(Self {
            grantee,
            granted,
            deadline,
            counters: Arc::default(),
            placeholders,
            host_request: Some(Arc::new(host_request)),
        })
    }

    /// The user of the connections.
    pub(super) fn user(&self) -> ConnectionUser {
        let name = self.grantee.plugin.clone();
        if self.granted.service.is_some() {
            ConnectionUser::Service(name)
        } else {
            ConnectionUser::Plugin(name)
        }
    }

    /// How the connections are made: only those of a service follow the operator's proxy.
    pub(super) fn route(&self) -> Route {
        match &self.granted.service {
            Some(service) => Route::Operator(service.section.route.clone()),
            None => Route::Direct,
        }
    }

    /// The error of a request to a server that no trusted authority vouches for. The advice is for the operator.
    pub(super) fn unknown_authority(&self, why: &str) -> NetError {
        let table =
            self.granted.service.as_ref().map(|service| format!("[openapi.{}]", service.section.name));
        let hint = operator_target::authority_hint(table.as_deref());
        NetError::Transport(self.grantee.advise(why, hint))
    }

    /// The redactor of the call.
    pub(super) fn redactor(&self) -> &Redactor {
        self.grantee.ctx.as_ref().map_or(&self.granted.services.redactor, |ctx| ctx.redactor())
    }

    /// The URL to send: with the values of secrets in the query, if the host built the request.
    pub(super) fn with_secret_query<'u>(
        &self,
        target: &NetTarget,
        url: &'u Url,
    ) -> Result<Cow<'u, Url>, NetError> {
        let host_request = self.host_request.as_ref().filter(|_| self.is_host_request(target, url));
        let Some(host_request) = host_request.filter(|built| !built.query.is_empty()) else {
            return Ok(Cow::Borrowed(url));
        };
        let mut sent = url.clone();
        for (name, entry) in &host_request.query {
            entry
                .append_to_query(target, name, &mut sent)
                .map_err(|why| NetError::Denied(self.grantee.report_refusal(why)))?;
        }
        Ok(Cow::Owned(sent))
    }

    pub(super) fn client(&self) -> &HttpClient {
        &self.granted.services.http
    }

    /// The time for one request: the guest's timeout, at most the time left to the call.
    pub(super) fn time_left(&self, asked: Option<Duration>) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        asked.map_or(left, |asked| asked.min(left))
    }

    /// Checks a request against the rules.
    pub(super) fn admit(&self, target: &NetTarget, url: &Url) -> Result<AddressScope, NetError> {
        let checked = match &self.granted.service {
            None => net::match_rules(&self.granted.grants.net, target),
            Some(service) => service.check(target, url, self.is_host_request(target, url)),
        };
        match checked {
            Ok(allowed) => {
                self.grantee.note(GrantKey::Net, &target.to_rule(), true);
                Ok(allowed)
            }
            Err(_) if self.is_host_request(target, url) && self.grantee.profile().is_some() => {
                self.grantee.note(GrantKey::Net, &target.to_rule(), false);
                let profile = self.grantee.profile().unwrap_or_default();
                let text = format!("the profile `{profile}` does not allow `{}`", target.to_rule());
                let hint = || format!("See `net` in [profile.{profile}].").into();
                Err(NetError::Denied(self.grantee.refuse_with(&text, hint)))
            }
            Err(why) => {
                let refusal = self.grantee.refuse(GrantKey::Net, &target.to_rule());
                Err(NetError::Denied(why.map_or(refusal.clone(), |why| format!("{why}; {refusal}"))))
            }
        }
    }

    fn is_host_request(&self, target: &NetTarget, url: &Url) -> bool {
        self.host_request.as_ref().is_some_and(|host_request| host_request.matches(target, url))
    }

    /// Checks every address of a host. One refused address refuses the connection: the DNS server chooses their
    /// order.
    pub(super) fn check_addresses(
        &self,
        target: &NetTarget,
        allowed: AddressScope,
        addresses: &[SocketAddr],
    ) -> Result<(), NetError> {
        addresses.iter().try_for_each(|one| self.check_address(target, allowed, one.ip()))
    }

    fn check_address(&self, target: &NetTarget, allowed: AddressScope, ip: IpAddr) -> Result<(), NetError> {
        if let Some(exclusion) = net::excluded_address(&self.granted.grants.net, ip) {
            self.grantee.note(GrantKey::Net, &path_rule::printable_path(&target.to_rule()), false);
            let text = format!("`{}` has an address that the policy excludes", target.host());
            let hint = || self.grantee.exclusion_hint(GrantKey::Net, &exclusion);
            return Err(NetError::Address(self.grantee.refuse_with(&text, hint).into()));
        }
        let Err(problem) = address::check_address(target.host(), ip, self.private_networks(allowed)) else {
            return Ok(());
        };
        // A tool that was granted all public hosts must not learn what private names resolve to.
        let net = IpNet::from(address::unmap_ipv4(ip)).to_string();
        let host = target.host();
        let refusal = match (allowed, problem) {
            (AddressScope::PublicOnly, _) => {
                self.grantee.note(GrantKey::Net, &path_rule::printable_path(&target.to_rule()), false);
                let text = format!(
                    "`{host}` has an address that is not public, and it is granted with public addresses only"
                );
                // Two lines are needed: one for the host by name, one for the network.
                let hint = || {
                    let (plugin, profile) = (&self.grantee.plugin, self.grantee.profile());
                    let advice = |key, entry: &str| self.granted.advice(plugin, profile, key, entry);
                    let named = advice(GrantKey::Net, &target.to_rule());
                    Advice::joint_hint([&named, &advice(GrantKey::NetPrivate, &net)])
                };
                self.grantee.refuse_with(&text, hint)
            }
            (AddressScope::IncludingPrivate, AddressError::Special(..) | AddressError::Metadata(_)) => {
                format!("`{host}`: {problem}; {}", self.grantee.refuse(GrantKey::NetPrivate, &net))
            }
        };
        Err(NetError::Address(refusal.into()))
    }

    /// The private networks that the hosts of a rule may resolve to.
    pub(super) fn private_networks(&self, allowed: AddressScope) -> &[IpNet] {
        match allowed {
            AddressScope::IncludingPrivate => &self.granted.grants.net_private,
            AddressScope::PublicOnly => &[],
        }
    }

    /// Counts a request, hop, lookup or raw connection.
    pub(super) fn count_request(&self) -> Result<(), NetError> {
        let counted = try_increment(&self.counters.requests, self.grantee.limits.http_requests);
        counted.ok_or_else(|| NetError::Denied(self.limit_error(Limit::HttpRequests)))
    }

    /// Counts an open request or connection.
    pub(super) fn count_connection(&self) -> Result<OpenConnectionGuard, NetError> {
        let counted = try_increment(&self.counters.open, self.grantee.limits.http_connections);
        counted.ok_or_else(|| NetError::Denied(self.limit_error(Limit::HttpConnections)))?;
        Ok(OpenConnectionGuard(Arc::downgrade(&self.counters)))
    }

    /// Counts bytes of a request or response body.
    pub(super) fn count_bytes(&self, bytes: usize) -> Result<(), NetError> {
        let before = self.counters.bytes.fetch_add(bytes as u64, Ordering::AcqRel);
        if before.saturating_add(bytes as u64) > self.grantee.limits.http_bytes {
            return Err(NetError::Denied(self.limit_error(Limit::HttpBytes)));
        }
        Ok(())
    }

    /// The body bytes left to the call, at most the limit of one host call; and the limit that applies.
    pub(super) fn bytes_left(&self) -> (u64, Limit) {
        let left = self.grantee.limits.http_bytes.saturating_sub(self.counters.bytes.load(Ordering::Acquire));
        if left <= self.grantee.limits.host_call_bytes {
            (left, Limit::HttpBytes)
        } else {
            (self.grantee.limits.host_call_bytes, Limit::HostCallBytes)
        }
    }

    /// Returns the error for a limit that was reached.
    pub(super) fn limit_error(&self, limit: Limit) -> String {
        self.grantee.limit_error("no more data is sent or received", limit)
    }
}

/// Increments a counter; `None` at its maximum.
fn try_increment(so_far: &AtomicU32, max: u32) -> Option<()> {
    let more = |n| (n < max).then_some(n + 1);
    so_far.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(drop)
}

impl HostRequest {
    fn matches(&self, target: &NetTarget, url: &Url) -> bool {
        self.method.eq_ignore_ascii_case(target.method()) && self.url == *url
    }
}

/// Raw sockets.
impl CallNetwork {
    /// Whether any grant has this scheme of raw connections.
    pub(crate) fn has_raw_grant(&self, scheme: net::Scheme) -> bool {
        self.granted.grants.net.iter().any(|rule| rule.scheme == scheme)
    }

    /// Resolves a name for raw connections, if a grant has it, and remembers its addresses.
    pub(crate) async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, NetError> {
        /// Maximum number of addresses remembered for a call.
        const MAX_REMEMBERED: usize = 256;
        let target = NetTarget::connection(net::Scheme::Tcp, name, 1).map_err(NetError::Invalid)?;
        let Some(allowed) = net::lookup_scope(&self.granted.grants.net, target.host()) else {
            let entry = format!("tcp://{}:*", target.host());
            let text = self.grantee.refuse(GrantKey::Net, &entry);
            self.grantee.append_refusal(&text);
            return Err(NetError::Denied(text));
        };
        self.count_request()?;
        let found = self.client().resolver.resolve(&self.grantee.plugin, target.host(), 0);
        let found =
            tokio::time::timeout(self.time_left(None), found).await.map_err(|_| NetError::Timeout)??;
        self.check_addresses(&target, allowed, &found)?;
        let mut raw = self.counters.raw.lock();
        for address in &found {
            if raw.names.len() < MAX_REMEMBERED || raw.names.contains_key(&address.ip()) {
                raw.names.entry(address.ip()).or_default().insert(target.host().to_owned());
            }
        }
        Ok(found.iter().map(SocketAddr::ip).collect())
    }

    /// Admits a raw connection to an address: the address itself is granted, or a granted name resolved to it in this
    /// call.
    pub(crate) fn admit_raw(&self, scheme: net::Scheme, peer: SocketAddr) -> bool {
        if self.counters.raw.lock().peers.contains(&peer) && scheme == net::Scheme::Udp {
            return true;
        }
        let literal = match peer.ip() {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let names = self.counters.raw.lock().names.get(&peer.ip()).cloned().unwrap_or_default();
        let granted = names.into_iter().chain([literal]).filter_map(|host| {
            let target = NetTarget::connection(scheme, &host, peer.port()).ok()?;
            let rules = &self.granted.grants.net;
            let allowed = net::match_rules(rules, &target).ok()?;
            if net::excluded_address(rules, peer.ip()).is_some() {
                return None;
            }
            address::check_address(&host, peer.ip(), self.private_networks(allowed)).ok().map(|()| target)
        });
        let Some(target) = granted.into_iter().next() else {
            let text = self.grantee.refuse(GrantKey::Net, &format!("{}://{peer}", scheme.name()));
            self.grantee.append_refusal(&text);
            return false;
        };
        self.grantee.note(GrantKey::Net, &target.to_rule(), true);
        if self.count_request().is_err() {
            return false;
        }
        let client = self.client();
        // wasmtime does not report a closed socket, so a raw connection counts as open until the call ends.
        let (Ok(guard), Some(permit)) =
            (self.count_connection(), client.limiter.try_acquire(&self.user(), &client.pool))
        else {
            return false;
        };
        let mut raw = self.counters.raw.lock();
        raw.connections.push((guard, permit));
        if scheme == net::Scheme::Udp {
            raw.peers.insert(peer);
        }
        true
    }

    /// Whether datagrams of a peer may be received: only those of peers that the guest sent to.
    pub(crate) fn is_datagram_peer(&self, peer: SocketAddr) -> bool {
        self.counters.raw.lock().peers.contains(&peer)
    }
}
