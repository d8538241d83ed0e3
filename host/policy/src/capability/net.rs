//! Network rules: methods, scheme, host, port and path on one line. The same matcher serves declarations, the policy,
//! requests, redirects and the origins of secrets.
//!
//! | text | means |
//! |---|---|
//! | `https://api.example.com` | any method, port 443, any path |
//! | `GET,HEAD https://api.example.com:8443/repos/*` | these methods, that port, paths below `/repos/` |
//! | `https://*.example.com` | every host below `example.com`, not `example.com` itself |
//! | `https://*` | every host at a public address |
//! | `https://*.example.com public` | these hosts at public addresses only, whatever `net_private` allows |
//! | `http://10.0.0.7:8080`, `https://[fd00::7]` | that address, if `net_private` includes it |
//! | `https://api.example.com:*` | any port |
//! | `tcp://db.example.com:5432`, `udp://…:53` | raw connections to that host and port |
//! | `!vault.example.com`, `!*.internal.example.com`, `!203.0.113.7` | excludes these hosts from all lines of the list |
//! | `https://* & !vault.example.com` | the same for one line |
//!
//! Hosts are compared in the canonical form of the WHATWG URL standard: lower case, punycode, every spelling of an
//! IPv4 address (`0x7f.1`, `2130706433`) as that address. One trailing dot is dropped. [`address`] decides which
//! addresses a name may resolve to.

pub mod address;
mod exclusion;
mod path;

use core::net::IpAddr;
use std::collections::BTreeSet;
use std::path::Path;

use schemars::{Schema, json_schema};
use url::Url;

use crate::capability::excluding_list;
use crate::excerpt::one_line;
use crate::problem::PolicyProblem;
use crate::rule::{self, GrantRule};
use crate::url_parts::has_credentials;
pub use exclusion::excluded_address;
use path::RequestPath;
pub use path::{PathPattern, is_ambiguous};

/// One line of a `net` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetRule {
    /// Upper-case methods. `None` allows all.
    pub methods: Option<BTreeSet<String>>,
    /// The scheme.
    pub scheme: Scheme,
    /// The hosts.
    pub host: HostPattern,
    /// The allowed addresses of the hosts.
    pub addresses: AddressScope,
    /// The port. `None` allows all.
    pub port: Option<u16>,
    /// The path pattern. `None` allows all paths.
    pub path: Option<PathPattern>,
    /// Excluded hosts, for all methods, schemes, ports and paths.
    pub except: BTreeSet<HostPattern>,
}

/// The protocol of a request or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// HTTP over TLS.
    Https,
    /// HTTP without TLS.
    Http,
    /// A raw TCP connection.
    Tcp,
    /// Raw UDP datagrams.
    Udp,
}

/// A set of hosts. Names are lower-case ASCII (IDNA) without a trailing dot; IPv6 addresses are in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPattern {
    /// Every host. In a policy, only at public addresses.
    Any,
    /// Every subdomain of this host.
    Subdomains(String),
    /// This host name or address.
    Exact(String),
}

/// The target of a request or raw connection, which rules are matched against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetTarget {
    method: Option<String>,
    scheme: Scheme,
    host: String,
    port: u16,
    path: Option<RequestPath>,
}

/// The addresses that a rule allows for a target. The narrower scope is the smaller value, and an intersection takes
/// the smaller one. If one side names a host and the other allows all hosts, only its public addresses are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressScope {
    /// Public addresses only: the rule allows every host.
    PublicOnly,
    /// Public addresses, and private ones that `net_private` allows.
    IncludingPrivate,
}

/// The suffix that restricts a rule to public addresses. Methods, hosts and paths contain no space, so the suffix is
/// unambiguous.
const PUBLIC_SUFFIX: &str = " public";
/// Longest host name (RFC 1035).
const MAX_NAME: usize = 253;
/// Most methods in a rule.
const MAX_METHODS: usize = 16;

impl Scheme {
    const ALL: [Self; 4] = [Self::Https, Self::Http, Self::Tcp, Self::Udp];

    /// The scheme as in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    const fn default_port(self) -> Option<u16> {
        match self {
            Self::Https => Some(443),
            Self::Http => Some(80),
            Self::Tcp | Self::Udp => None,
        }
    }

    const fn is_http(self) -> bool {
        self.default_port().is_some()
    }
}

impl HostPattern {
    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix('*') {
            Some("") => Ok(Self::Any),
            Some(rest) => {
                let parent =
                    rest.strip_prefix('.').ok_or("a `*` in a host stands alone, or is followed by a dot")?;
                match parse_host(parent)? {
                    (name, None) => Ok(Self::Subdomains(name)),
                    (_, Some(_)) => Err("an address has no subdomains".to_owned()),
                }
            }
            None => parse_host(text).map(|(name, _)| Self::Exact(name)),
        }
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, one) | (one, Self::Any) => Some(one.clone()),
            (Self::Exact(a), Self::Exact(b)) => (a == b).then(|| self.clone()),
            (Self::Exact(a), Self::Subdomains(b)) => is_below(a, b).then(|| self.clone()),
            (Self::Subdomains(a), Self::Exact(b)) => is_below(b, a).then(|| other.clone()),
            (Self::Subdomains(a), Self::Subdomains(b)) if a == b || is_below(a, b) => Some(self.clone()),
            (Self::Subdomains(a), Self::Subdomains(b)) => is_below(b, a).then(|| other.clone()),
        }
    }

    /// Whether a host may match both patterns.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.intersect(other).is_some()
    }

    /// The address, if the pattern is one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Exact(name) => parse_host(name).ok()?.1,
            Self::Any | Self::Subdomains(_) => None,
        }
    }

    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Subdomains(parent) => is_below(host, parent),
            Self::Exact(name) => name == host,
        }
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Subdomains(parent) => write!(f, "*.{parent}"),
            Self::Exact(name) => f.write_str(name),
        }
    }
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// Parses a host into its canonical form, and into the address if it is one.
fn parse_host(text: &str) -> Result<(String, Option<IpAddr>), String> {
    let found = url::Host::parse(text).ok();
    found.as_ref().and_then(canonical_host).ok_or_else(|| invalid_host(text))
}

fn invalid_host(text: &str) -> String {
    format!("`{}` is not a valid host", one_line(text, MAX_NAME))
}

/// Returns the canonical form of a host from the URL parser. `None` if it is not a valid host name.
fn canonical_host<S: AsRef<str>>(host: &url::Host<S>) -> Option<(String, Option<IpAddr>)> {
    let name = match host {
        url::Host::Ipv4(v4) => return Some((v4.to_string(), Some((*v4).into()))),
        url::Host::Ipv6(v6) => return Some((format!("[{v6}]"), Some((*v6).into()))),
        url::Host::Domain(name) => name.as_ref(),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let sound = |label: &str| {
        !label.is_empty()
            && label.len() < 64
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    (name.len() <= MAX_NAME && name.split('.').all(sound)).then(|| (name.to_owned(), None))
}

fn parse_methods(text: &str) -> Result<BTreeSet<String>, String> {
    if text.contains('!') {
        return Err("methods cannot be excluded: list those that are allowed".to_owned());
    }
    let methods: BTreeSet<String> = text.split(',').map(str::to_ascii_uppercase).collect();
    if methods.len() > MAX_METHODS || !methods.iter().all(|method| is_token(method)) {
        return Err("separate methods by commas without spaces: `GET,HEAD https://…`".to_owned());
    }
    Ok(methods)
}

/// Whether a text is a token (RFC 9110).
fn is_token(text: &str) -> bool {
    const MARKS: &[u8] = b"!#$%&'*+-.^_`|~";
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || MARKS.contains(&b))
}

impl NetRule {
    fn parse_line(text: &str) -> Result<Self, String> {
        let (text, except) = exclusion::split_line(text)?;
        let (text, public) = match text.strip_suffix(PUBLIC_SUFFIX) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (before, rest) = match text.split_once(' ') {
            Some((before, rest)) => (Some(parse_methods(before)?), rest),
            None => (None, text),
        };
        let (scheme, rest) =
            rest.split_once("://").ok_or("write a URL, such as `https://api.example.com`")?;
        let scheme = Scheme::ALL
            .into_iter()
            .find(|one| one.name().eq_ignore_ascii_case(scheme))
            .ok_or("the scheme is `https`, `http`, `tcp` or `udp`")?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err("a rule cannot contain a user name".to_owned());
        }
        if !scheme.is_http() && (before.is_some() || !path.is_empty()) {
            return Err("a raw connection has no method and no path".to_owned());
        }
        let (name, port) = match authority.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (authority, None),
        };
        let port = match port {
            Some("*") => None,
            Some(port) => {
                let digits = port.bytes().all(|b| b.is_ascii_digit());
                let port: Option<u16> = port.parse().ok().filter(|port| digits && *port > 0);
                Some(port.ok_or("the port must be from 1 to 65535, or `*`")?)
            }
            None => Some(
                scheme.default_port().ok_or("a raw connection needs a port: `tcp://db.example.com:5432`")?,
            ),
        };
        let path = (!path.is_empty()).then(|| PathPattern::parse(path)).transpose()?;
        let host = HostPattern::parse(name)?;
        let addresses = if public || host == HostPattern::Any {
            AddressScope::PublicOnly
        } else {
            AddressScope::IncludingPrivate
        };
        let rule = Self { methods: before, scheme, host, addresses, port, path, except: BTreeSet::new() };
        rule.with_exclusions(&except).ok_or_else(|| "grants nothing: its exclusions cover it".to_owned())
    }

    /// Returns the addresses that this rule allows for a target. `None` if it does not match.
    ///
    /// # Errors
    /// The path is ambiguous, and this rule has a path pattern.
    pub fn allows(&self, target: &NetTarget) -> Result<Option<AddressScope>, String> {
        if self.scheme != target.scheme || self.port.is_some_and(|port| port != target.port) {
            return Ok(None);
        }
        let method = |methods: &BTreeSet<String>| target.method.as_ref().is_some_and(|m| methods.contains(m));
        if self.methods.as_ref().is_some_and(|methods| !method(methods)) {
            return Ok(None);
        }
        if !self.host.matches(&target.host) || self.excludes_host(&target.host) {
            return Ok(None);
        }
        let Some(pattern) = &self.path else { return Ok(Some(self.addresses)) };
        let Some(path) = &target.path else { return Ok(None) };
        Ok(pattern.matches(path.segments()?).then_some(self.addresses))
    }
}

impl GrantRule for NetRule {
    const PATTERN: &'static str = r"^(![^ !/]+|([^ !]+ )?([hH][tT][tT][pP][sS]?|[tT][cC][pP]|[uU][dD][pP])://[^ /?#]+[^ ]*( public)?( & ![^ !/]+)*)$";

    fn list_schema() -> Schema {
        // A list of exclusions alone grants nothing.
        let grants = json_schema!({"contains": {"type": "string", "pattern": "^[^!]"}});
        json_schema!({"type": "array", "items": Self::schema(), "anyOf": [{"maxItems": 0}, grants]})
    }

    fn parse_list(texts: &[String], workspace: &Path) -> Result<Vec<Self>, PolicyProblem> {
        let parse_exclusion = |host: &str| {
            exclusion::parse_excluded_host(host).map_err(|why| format!("`!{}`: {why}", one_line(host, 200)))
        };
        excluding_list::parse(texts, parse_exclusion, |text, except| {
            Ok(Self::parse(text, workspace)?.with_exclusions(except))
        })
    }

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let shown = one_line(text, 200);
        Self::parse_line(text).map_err(|why| format!("`{shown}`: {why}"))
    }

    /// A declaration of every host also asks for hosts that the operator names. The policy decides which addresses
    /// each may have.
    fn parse_declared(text: &str, workspace: &Path) -> Result<Self, String> {
        let declared = Self::parse(text, workspace)?;
        let public = text.split(excluding_list::AND).next().is_some_and(|rule| rule.ends_with(PUBLIC_SUFFIX));
        let all = declared.host == HostPattern::Any && !public;
        Ok(if all { Self { addresses: AddressScope::IncludingPrivate, ..declared } } else { declared })
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        if self.scheme != other.scheme {
            return None;
        }
        let port = match (self.port, other.port) {
            (None, one) | (one, None) => one,
            (Some(a), Some(b)) => Some((a == b).then_some(a)?),
        };
        let methods = match (&self.methods, &other.methods) {
            (None, one) | (one, None) => one.clone(),
            (Some(a), Some(b)) => Some(a.intersection(b).cloned().collect()),
        };
        if methods.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        let host = self.host.intersect(&other.host)?;
        let path = match (&self.path, &other.path) {
            (None, one) | (one, None) => one.clone(),
            (Some(a), Some(b)) => Some(a.intersect(b)?),
        };
        let addresses = self.addresses.min(other.addresses);
        let except = self.except.clone();
        Self { methods, scheme: self.scheme, host, addresses, port, path, except }
            .with_exclusions(&other.except)
    }

    fn grants(&self, declared: &Self) -> bool {
        // An exclusion removes hosts from the declaration. Another line would not restore them.
        rule::covers(&Self { except: BTreeSet::new(), ..self.clone() }, declared)
    }

    fn holds(&self, narrower: &Self) -> bool {
        // A line without methods narrows hosts alone, and one that names a host does not ask for private addresses.
        let methods = narrower.methods.clone().or_else(|| self.methods.clone());
        let addresses = narrower.addresses.min(self.addresses);
        let inherited = Self { methods, addresses, ..narrower.clone() };
        self.grants(&inherited) || rule::covers(self, &inherited)
    }

    fn permits(&self, used: &Self) -> bool {
        // Exclusions of other hosts do not matter.
        self.grants(used) && used.clone().with_exclusions(&self.except).is_some()
    }

    fn is_everything(&self) -> bool {
        self.host == HostPattern::Any
    }

    fn show_list(rules: &[Self], _: &Path) -> Vec<String> {
        let shared = excluding_list::shared_exclusions(rules, |rule| &rule.except);
        let lines = rules.iter().map(|rule| rule.show_except(rule.show_rule(), &shared));
        lines.chain(shared.iter().map(|except| format!("!{except}"))).collect()
    }

    fn show(&self, _: &Path) -> String {
        self.show_except(self.show_rule(), &BTreeSet::new())
    }

    fn proposed_line(&self, workspace: &Path) -> String {
        // For a declaration of every host, reading at the default port is proposed first.
        if self.host != HostPattern::Any || !self.scheme.is_http() {
            return self.show(workspace);
        }
        let reads = || ["GET", "HEAD"].map(str::to_owned).into();
        let methods = Some(self.methods.clone().unwrap_or_else(reads));
        Self { methods, port: self.port.or(self.scheme.default_port()), ..self.clone() }.show(workspace)
    }
}

impl NetRule {
    /// Formats the rule without its exclusions.
    fn show_rule(&self) -> String {
        let mut out = String::new();
        if let Some(methods) = &self.methods {
            out += &methods.iter().map(String::as_str).collect::<Vec<_>>().join(",");
            out.push(' ');
        }
        out += &format!("{}://{}", self.scheme.name(), self.host);
        match self.port {
            None => out += ":*",
            port if port == self.scheme.default_port() => {}
            Some(port) => out += &format!(":{port}"),
        }
        if let Some(path) = &self.path {
            out += &path.to_string();
        }
        if self.addresses == AddressScope::PublicOnly && self.host != HostPattern::Any {
            out += PUBLIC_SUFFIX;
        }
        out
    }
}

impl NetTarget {
    /// Creates the target of a request. The method becomes upper case.
    ///
    /// # Errors
    /// No rule could allow the request: the scheme is not HTTP, the URL has credentials or no host, or the method is
    /// not a token or not for requests (`CONNECT`, `TRACE`).
    pub fn request(method: &str, url: &Url) -> Result<Self, String> {
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return Err("only `https` and `http` URLs can be requested".to_owned()),
        };
        if has_credentials(url) {
            return Err("the URL contains a user name or password: use a header instead".to_owned());
        }
        let method = method.to_ascii_uppercase();
        if !is_token(&method) || matches!(method.as_str(), "CONNECT" | "TRACE") {
            return Err("the method is not supported".to_owned());
        }
        let read = url.host().ok_or("the URL has no host")?;
        let (host, _) =
            canonical_host(&read).ok_or_else(|| invalid_host(url.host_str().unwrap_or_default()))?;
        let port = url.port_or_known_default().ok_or("the URL has no port")?;
        if port == 0 {
            return Err("the port must be from 1 to 65535".to_owned());
        }
        Ok(Self { method: Some(method), scheme, host, port, path: Some(RequestPath::new(url.path())) })
    }

    /// Creates the target of a raw connection.
    ///
    /// # Errors
    /// The host is invalid.
    pub fn connection(scheme: Scheme, name: &str, port: u16) -> Result<Self, String> {
        let (host, _) = parse_host(name)?;
        Ok(Self { method: None, scheme, host, port, path: None })
    }

    /// The canonical host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The method, in upper case. Empty for a raw connection.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_deref().unwrap_or_default()
    }

    /// Whether both have the same scheme, host and port.
    #[must_use]
    pub fn same_origin(&self, other: &Self) -> bool {
        (self.scheme, self.host.as_str(), self.port) == (other.scheme, other.host.as_str(), other.port)
    }

    /// Scheme, host and port, as a rule writes them.
    #[must_use]
    pub fn origin(&self) -> String {
        let mut out = String::with_capacity(self.host.len() + 16);
        self.write_origin(&mut out);
        out
    }

    /// The rule that would allow this target with any path. The audit records it, too.
    #[must_use]
    pub fn to_rule(&self) -> String {
        let mut out = String::with_capacity(self.host.len() + 24);
        if let Some(method) = &self.method {
            out.extend([method, " "]);
        }
        self.write_origin(&mut out);
        out
    }

    /// Writes scheme, host and port.
    fn write_origin(&self, out: &mut String) {
        out.extend([self.scheme.name(), "://", &self.host]);
        if self.scheme.default_port() != Some(self.port) {
            out.extend([":", &self.port.to_string()]);
        }
    }
}

/// Matches a target against a list of rules and returns the widest address scope.
///
/// # Errors
/// No rule matches. The reason is given if the path is ambiguous.
pub fn match_rules(rules: &[NetRule], target: &NetTarget) -> Result<AddressScope, Option<String>> {
    let mut found = Err(None);
    for rule in rules {
        match rule.allows(target) {
            Ok(Some(AddressScope::IncludingPrivate)) => return Ok(AddressScope::IncludingPrivate),
            Ok(Some(AddressScope::PublicOnly)) => found = Ok(AddressScope::PublicOnly),
            Err(why) if found == Err(None) => found = Err(Some(why)),
            Ok(None) | Err(_) => {}
        }
    }
    found
}

/// Returns the address scope for a name lookup of raw connections to any port: the widest scope of the rules that
/// match the name.
#[must_use]
pub fn lookup_scope(rules: &[NetRule], name: &str) -> Option<AddressScope> {
    let (name, _) = parse_host(name).ok()?;
    let raw = rules.iter().filter(|rule| !rule.scheme.is_http());
    let matching = raw.filter(|rule| rule.host.matches(&name) && !rule.excludes_host(&name));
    matching.map(|rule| rule.addresses).max()
}

/// A private network that connections may reach (`net_private`).
impl GrantRule for ipnet::IpNet {
    const PATTERN: &'static str = "^([0-9]{1,3}(\\.[0-9]{1,3}){3}(/([0-9]|[12][0-9]|3[0-2]))?|\
                                   [0-9a-fA-F:.]*:[0-9a-fA-F:.]*(/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))?)$";

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let net = text.parse::<Self>().or_else(|_| text.parse::<IpAddr>().map(Self::from));
        net.map(|net| net.trunc())
            .map_err(|_| format!("`{text}`: write a network, `10.1.0.0/16`, or an address"))
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        if self.contains(other) { Some(*other) } else { other.contains(self).then_some(*self) }
    }

    /// A metadata service is allowed only by a line with its exact address, which no wider network replaces.
    fn includes(&self, inner: &Self) -> bool {
        self == inner || (self.contains(inner) && !address::is_metadata_network(*inner))
    }

    fn show(&self, _: &Path) -> String {
        self.to_string()
    }
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
