//! Checks the `Host` and `Origin` headers. They reveal requests that a page of another site makes a browser send (DNS
//! rebinding).

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};
use toolbay_policy::excerpt;
use toolbay_policy::hint::{LineValue, PolicyLine, Remedy};
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::serve::ServePolicy;

/// Longest name in an error response, in characters.
const MAX_SHOWN: usize = 100;

/// The names of this server, and the origins that may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllowedHosts {
    hosts: BTreeSet<String>,
    origins: BTreeSet<String>,
    /// The listen addresses.
    pub(super) listens: Vec<SocketAddr>,
    /// Whether pages from this machine may send requests.
    local_pages: bool,
}

impl AllowedHosts {
    /// The names of a server that listens on these addresses.
    pub(super) fn new(serve: &ServePolicy, listens: Vec<SocketAddr>) -> Self {
        let mut hosts = serve.hosts.clone();
        hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(ToOwned::to_owned));
        for address in listens.iter().filter(|address| !address.ip().is_unspecified()) {
            hosts.insert(match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        let public = serve.public_url.as_deref().and_then(|url| url.split_once("://"));
        hosts.extend(public.map(|(_, authority)| authority.to_owned()));
        let local_pages = listens.iter().all(|address| address.ip().is_loopback());
        Self { hosts, origins: serve.origins.clone(), listens, local_pages }
    }

    /// Checks the host of a request, and returns it.
    ///
    /// # Errors
    /// The host is not a name of this server. The hint says how to add it.
    pub(super) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<String, PolicyRefusal> {
        let mut values = headers.get_all(HOST).iter();
        let values = (values.next(), values.next());
        // An absolute request target overrides Host (RFC 9112, 3.2.2), so both must be valid.
        if let (Some(target), (Some(_), None)) = (uri.authority(), values) {
            self.match_host(target.as_str())?;
        }
        // Fast path for the usual form; everything else is parsed.
        if let (Some(host), None) = values
            && let Ok(host) = host.to_str()
            && self.hosts.contains(without_port(host))
        {
            return Ok(host.to_owned());
        }
        let host = match values {
            (Some(host), None) => host.to_str().ok().and_then(|host| Authority::try_from(host).ok()),
            (None, None) => uri.authority().cloned(),
            (_, Some(_)) => None,
        };
        let host = host.ok_or("the request needs one valid Host header")?;
        self.match_host(host.as_str())
    }

    /// Normalizes a host, and checks that it is a name of this server.
    fn match_host(&self, host: &str) -> Result<String, PolicyRefusal> {
        if host.contains('@') {
            return Err("the request needs one valid Host header".into());
        }
        let host = host.to_ascii_lowercase();
        let bare = Authority::try_from(host.as_str()).map(|host| host.host().to_owned()).unwrap_or_default();
        if self.hosts.contains(&host) || self.hosts.contains(&bare) {
            return Ok(host);
        }
        let shown = excerpt::one_line(&host, MAX_SHOWN);
        let text = format!("`{shown}` is not a name of this server");
        Err(PolicyRefusal::new(text, serve_hint("to add it", "hosts", shown)))
    }

    /// Checks the origin of a request. Returns it if the policy lists it, so that the page may read the response.
    ///
    /// # Errors
    /// The origin is not allowed. The hint says how to allow it.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<Option<String>, PolicyRefusal> {
        let mut values = headers.get_all(ORIGIN).iter();
        let Some(origin) = values.next() else { return Ok(None) };
        let text = origin.to_str().ok().filter(|_| values.next().is_none());
        let origin = text.ok_or("the Origin header is invalid")?.to_ascii_lowercase();
        if self.origins.contains(&origin) || self.origins.contains(&format!("{}:*", without_port(&origin))) {
            return Ok(Some(origin));
        }
        if self.local_pages && is_local_origin(&origin) {
            return Ok(None);
        }
        let shown = excerpt::one_line(&origin, MAX_SHOWN);
        let text = format!("pages from `{shown}` may not use this server");
        Err(PolicyRefusal::new(text, serve_hint("to allow them", "origins", shown)))
    }
}

/// The line of `[serve]` that accepts a name.
fn serve_hint(purpose: &str, key: &str, name: String) -> Remedy {
    let line = PolicyLine::new("[serve]", key, LineValue::List(vec![name]));
    Remedy::Set { purpose: purpose.to_owned(), line }
}

/// Removes the port of an origin or a host.
fn without_port(origin: &str) -> &str {
    let port = origin.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    port.map_or(origin, |(base, _)| base)
}

fn is_local_origin(origin: &str) -> bool {
    let base = without_port(origin);
    ["http", "https"].iter().any(|scheme| {
        let host = base.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
        host.is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn names(listens: &str) -> AllowedHosts {
        let serve = ServePolicy {
            hosts: ["tools.example.com".to_owned(), "only.example:8443".to_owned()].into(),
            origins: ["https://app.example".to_owned(), "http://dev.example:*".to_owned()].into(),
            public_url: Some("https://mcp.example:444".to_owned()),
            ..ServePolicy::default()
        };
        AllowedHosts::new(&serve, vec![listens.parse().unwrap()])
    }

    fn headers(name: &axum::http::HeaderName, values: &[&str]) -> HeaderMap {
        let value = |value: &&str| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        values.iter().map(value).collect()
    }

    #[test]
    fn only_hosts_of_this_server_are_accepted() {
        let names = names("192.0.2.7:80");
        let ok =
            |values: &[&str]| names.check_host(&Uri::from_static("/mcp"), &headers(&HOST, values)).is_ok();
        for good in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "[::1]:9",
            "192.0.2.7",
            "tools.example.com",
            "tools.example.com:444",
            "only.example:8443",
            "mcp.example:444",
        ] {
            assert!(ok(&[good]), "{good}");
        }
        for evil in [
            "",
            "evil.example",
            "localhost.evil.example",
            "only.example",
            "only.example:1",
            "evil.example@localhost",
            "localhost@evil.example",
            "127.0.0.1.nip.example",
            "[::2]",
            "loc alhost",
            "127.1",
            "\u{e9}",
        ] {
            assert!(!ok(&[evil]), "{evil}");
        }
        for (target, good) in [
            ("http://localhost/mcp", true),
            ("http://tools.example.com:81/mcp", true),
            ("http://evil.example/mcp", false),
            ("http://evil.example:80/mcp", false),
            ("http://localhost@evil.example/mcp", false),
            ("http://evil@localhost/mcp", false),
        ] {
            let uri = Uri::from_static(target);
            assert_eq!(names.check_host(&uri, &headers(&HOST, &["localhost"])).is_ok(), good, "{target}");
            assert_eq!(names.check_host(&uri, &headers(&HOST, &[])).is_ok(), good, "{target}");
        }
        assert!(!ok(&[]) && !ok(&["localhost", "localhost"]) && !ok(&["localhost", "evil.example"]));
    }

    #[test]
    fn only_configured_and_local_origins_are_accepted() {
        let near = names("127.0.0.1:80");
        let ask = |names: &AllowedHosts, values: &[&str]| names.check_origin(&headers(&ORIGIN, values));
        assert_eq!(ask(&near, &[]), Ok(None));
        for local in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080"] {
            assert_eq!(ask(&near, &[local]), Ok(None), "{local}");
            assert!(ask(&names("192.0.2.7:80"), &[local]).is_err(), "{local}");
        }
        for named in ["https://app.example", "http://dev.example:1234", "http://dev.example"] {
            assert_eq!(ask(&near, &[named]), Ok(Some(named.to_owned())));
        }
        for evil in [
            "null",
            "",
            "https://evil.example",
            "http://app.example",
            "https://app.example:8443",
            "http://localhost.evil.example",
            "http://localhost:80.evil.example",
            "file://localhost",
            "http://localhost@evil",
            "\u{e9}",
        ] {
            assert!(ask(&near, &[evil]).is_err(), "{evil}");
        }
        assert!(ask(&near, &["https://app.example", "https://evil.example"]).is_err());
    }

    #[test]
    fn a_refused_name_has_its_policy_line_in_the_hint_only() {
        let names = names("127.0.0.1:80");
        let host = names.check_host(&Uri::from_static("/mcp"), &headers(&HOST, &["evil.example"]));
        let origin = names.check_origin(&headers(&ORIGIN, &["https://evil.example"]));
        for (refusal, hint) in [
            (host.unwrap_err(), r#"to add it, write in the policy: [serve] hosts = ["evil.example"]"#),
            (
                origin.unwrap_err(),
                r#"to allow them, write in the policy: [serve] origins = ["https://evil.example"]"#,
            ),
        ] {
            assert_eq!(refusal.hint.as_ref().map(ToString::to_string).as_deref(), Some(hint));
            assert!(!refusal.text.contains("[serve"), "{}", refusal.text);
        }
    }
}
