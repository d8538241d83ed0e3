//! HTTP proxies of the operator: a tunnel to the host (`CONNECT`, RFC 9110, section 9.3.6), in which TLS begins. The proxy
//! resolves the name, so its addresses cannot be checked here; an address that is written in a URL still is. Guests have
//! no proxy.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use toolbay_core::http_challenge::HttpChallenge;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity;
use url::Url;

use super::call_network::NetError;
use super::connect::dial;
use super::resolve::Resolver;

/// Maximum size of the head of a proxy's response, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Timeout of a tunnel. The proxy connects to the host before it answers. Shorter than the timeouts of the callers, so
/// that the message names the proxy.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The port of a proxy without one.
const HTTP_PORT: u16 = 80;
/// The variable for credentials of a proxy of the policy.
const CREDENTIALS_VARIABLE: &str = "HTTPS_PROXY";
/// Maximum length of a proxy's text in a message, in characters.
const MAX_SHOWN: usize = 100;

/// The proxy for each host. `Debug` hides its credentials.
pub(super) struct ProxyRules {
    /// The text of the variable. Empty: no proxy.
    proxy: String,
    /// The name of the variable.
    variable: &'static str,
    exceptions: Vec<NoProxyEntry>,
}

/// An entry of `NO_PROXY`.
struct NoProxyEntry {
    /// A name, which includes all names below it; an address, a network, or `*`.
    host: String,
    /// `None`: every port.
    port: Option<u16>,
}

impl fmt::Debug for ProxyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyRules(…)")
    }
}

/// A proxy.
pub(super) struct HttpProxy {
    host: String,
    port: u16,
    /// The value of `proxy-authorization`.
    authorization: Option<HeaderValue>,
    /// Whether the policy names it. Otherwise the variable does.
    is_of_policy: bool,
    /// The variable for its credentials.
    variable: &'static str,
}

impl NoProxyEntry {
    /// Reads an entry, which may be `*.example.com` and may have a port after a colon.
    fn parse(text: &str) -> Self {
        let (host, port) = match text.rsplit_once(':') {
            // More than one colon: an IPv6 address.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => (text, None),
            },
            _ => (text, None),
        };
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        // A dot at the end stands for the root of all names.
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        Self { host: host.to_owned(), port }
    }
}

impl ProxyRules {
    /// The proxies of `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capital or small letters. As with curl, this machine is
    /// no exception unless `NO_PROXY` has it.
    pub(super) fn from_environment() -> Self {
        let first = |names: &[&'static str]| {
            let mut set = names.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?)));
            set.find(|(_, value)| !value.is_empty())
        };
        let proxy = first(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]);
        let (variable, proxy) = proxy.unwrap_or((CREDENTIALS_VARIABLE, String::new()));
        let exceptions = first(&["NO_PROXY", "no_proxy"]).map(|(_, value)| value);
        Self::new(variable, &proxy, &exceptions.unwrap_or_default())
    }

    fn new(variable: &'static str, proxy: &str, exceptions: &str) -> Self {
        let entries = exceptions.split([',', ' ']).map(NoProxyEntry::parse);
        let exceptions = entries.filter(|entry| !entry.host.is_empty()).collect();
        Self { proxy: proxy.trim().to_owned(), variable, exceptions }
    }

    /// The proxy for a host; `None` if it is reached without one.
    pub(super) fn find(&self, host: &str, port: u16) -> Result<Option<HttpProxy>, NetError> {
        if self.proxy.is_empty() || self.is_excepted(host, port)? { Ok(None) } else { self.read().map(Some) }
    }

    /// The proxy that the policy names, for all hosts. If the environment names the same proxy, its credentials are
    /// used.
    pub(super) fn find_named(&self, proxy: &Url) -> HttpProxy {
        let host = proxy.host_str().unwrap_or_default();
        let port = proxy.port_or_known_default().unwrap_or(HTTP_PORT);
        let own = self.read().ok().filter(|own| own.host.eq_ignore_ascii_case(host) && own.port == port);
        let (authorization, variable) =
            own.map_or((None, CREDENTIALS_VARIABLE), |own| (own.authorization, own.variable));
        HttpProxy { host: host.to_owned(), port, authorization, is_of_policy: true, variable }
    }

    fn is_excepted(&self, host: &str, port: u16) -> Result<bool, NetError> {
        let name = host.strip_suffix('.').unwrap_or(host);
        let uri: Uri =
            format!("https://{name}:{port}/").parse().map_err(|_| NetError::Invalid(host.to_owned()))?;
        let entries = self.exceptions.iter().filter(|entry| entry.port.is_none_or(|own| own == port));
        let entries: Vec<&str> = entries.map(|entry| entry.host.as_str()).collect();
        let any = Matcher::builder().https("http://proxy.invalid").no(entries.join(",")).build();
        Ok(any.intercept(&uri).is_none())
    }

    /// Reads the text of the variable.
    fn read(&self) -> Result<HttpProxy, NetError> {
        let unusable = || {
            NetError::Transport(format!(
                "the proxy of `{}` is not an HTTP proxy: write `http://HOST:PORT`, or exceptions into `NO_PROXY`",
                self.variable
            ))
        };
        let any = Uri::from_static("https://host.invalid/");
        let found = Matcher::builder().https(self.proxy.as_str()).build().intercept(&any);
        let found = found.filter(|found| found.uri().scheme_str() == Some("http")).ok_or_else(unusable)?;
        let authority = found.uri().authority().ok_or_else(unusable)?;
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("" | ":") => HTTP_PORT,
            // An invalid port counts as absent there.
            _ => authority.port_u16().filter(|port| *port != 0).ok_or_else(unusable)?,
        };
        if authority.host().is_empty() {
            return Err(unusable());
        }
        Ok(HttpProxy {
            host: authority.host().to_owned(),
            port,
            authorization: found.basic_auth().cloned(),
            is_of_policy: false,
            variable: self.variable,
        })
    }
}

impl HttpProxy {
    /// The addresses of the proxy. The operator wrote it, so any address is granted.
    pub(super) async fn addresses(
        &self,
        resolver: &Resolver,
        looks_up: &PluginId,
    ) -> Result<Vec<SocketAddr>, NetError> {
        let found = resolver.resolve(looks_up, &self.host, self.port).await;
        found.map_err(|error| NetError::Transport(self.describe(&format!("cannot be reached: {error}"))))
    }

    /// Connects to one of its addresses, and opens a tunnel to a host.
    pub(super) async fn open_tunnel(
        &self,
        addresses: &[SocketAddr],
        host: &str,
        port: u16,
    ) -> Result<TcpStream, String> {
        let opened = async {
            let mut stream = dial(addresses).await.map_err(|error| format!("cannot be reached: {error}"))?;
            self.connect(&mut stream, host, port).await?;
            Ok(stream)
        };
        let late = || format!("did not answer within {}", quantity::show_duration(TIMEOUT));
        let opened = tokio::time::timeout(TIMEOUT, opened).await.unwrap_or_else(|_| Err(late()));
        opened.map_err(|why| self.describe(&why))
    }

    /// Adds to a problem which proxy it concerns, and where that is configured.
    fn describe(&self, why: &str) -> String {
        let written =
            if self.is_of_policy { "the key `proxy`".to_owned() } else { format!("`{}`", self.variable) };
        format!("the proxy `{}`, port {}, of {written} {why}", self.host, self.port)
    }

    /// Explains a refused tunnel, such as a 407 (RFC 9110, section 15.5.8).
    fn explain_refusal(&self, head: &str) -> String {
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        let values = fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case("proxy-authenticate"));
        let challenges: Vec<_> =
            values.flat_map(|(_, value)| HttpChallenge::parse_all(value.trim())).collect();
        if !challenges.is_empty() && !challenges.iter().any(|challenge| challenge.has_scheme("basic")) {
            let schemes: Vec<_> = challenges.iter().map(HttpChallenge::scheme).collect();
            let schemes = one_line(&schemes.join(", "), MAX_SHOWN);
            return format!("asks for the authentication `{schemes}`, which is not supported; `basic` is");
        }
        match self.authorization {
            Some(_) => format!("refused the credentials of `{}`", self.variable),
            None => format!(
                "asks for credentials: set `{}` to this proxy with them, `http://USER:PASSWORD@HOST:PORT`",
                self.variable
            ),
        }
    }

    async fn connect(&self, stream: &mut TcpStream, host: &str, port: u16) -> Result<(), String> {
        let broken = |error: std::io::Error| format!("closed the connection: {error}");
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n").into_bytes();
        if let Some(value) = &self.authorization {
            request.extend_from_slice(b"proxy-authorization: ");
            request.extend_from_slice(value.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).await.map_err(broken)?;
        // Byte by byte, because the bytes after the head belong to the host.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= MAX_HEAD {
                return Err(format!("sends a head of more than {MAX_HEAD} bytes"));
            }
            head.push(stream.read_u8().await.map_err(broken)?);
        }
        let head = String::from_utf8_lossy(&head);
        let line = head.lines().next().unwrap_or_default();
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok());
        match status {
            Some(200..=299) => Ok(()),
            Some(407) => Err(self.explain_refusal(&head)),
            Some(status) => Err(format!("refuses to connect: it answers with status {status}")),
            None => Err(format!("does not speak HTTP: `{}`", one_line(line, MAX_SHOWN))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn rules(proxy: &str, exceptions: &str) -> ProxyRules {
        ProxyRules::new("HTTPS_PROXY", proxy, exceptions)
    }

    fn found(rules: &ProxyRules, host: &str) -> Option<(String, u16)> {
        rules.find(host, 443).unwrap().map(|proxy| (proxy.host, proxy.port))
    }

    #[test]
    fn a_host_is_reached_through_the_proxy_unless_it_is_excepted() {
        let proxy = || Some(("proxy.example".to_owned(), 3128));
        let some = rules(
            "http://proxy.example:3128",
            "internal.example,.corp, *.lan 10.0.0.0/8,x.example:8443,[fd00::1]:443,rooted.example.,.",
        );
        for (host, is_excepted) in [
            ("registry.example", false),
            ("internal.example", true),
            ("a.internal.example", true),
            ("notinternal.example", false),
            ("a.corp", true),
            ("10.1.2.3", true),
            ("11.1.2.3", false),
            ("a.lan", true),
            ("x.example", false),
            ("[fd00::1]", true),
            ("rooted.example", true),
            ("a.rooted.example", true),
            ("rooted.example.", true),
            ("internal.example.", true),
            ("localhost", false),
        ] {
            assert_eq!(found(&some, host).is_none(), is_excepted, "{host}");
        }
        assert!(some.find("x.example", 8443).unwrap().is_none(), "this port is excepted");
        assert_eq!(found(&rules("http://proxy.example", "*"), "registry.example"), None);
        assert_eq!(found(&rules("", "x"), "registry.example"), None);
        assert_eq!(found(&rules("proxy.example:3128", ""), "registry.example"), proxy());
        for proxy in [
            "https://proxy.example",
            "socks5://proxy.example",
            "http//proxy.example",
            "ftp://proxy.example",
            "http://proxy.example:99999",
            "http://user:password@proxy.example:99999",
            "proxy.example:65536",
            "http://proxy.example:0",
            "http://[fd00::1]:99999",
        ] {
            let error = rules(proxy, "").find("registry.example", 443).err().unwrap().to_string();
            assert!(error.contains("is not an HTTP proxy"), "{error}");
        }
        assert_eq!(found(&rules("http://[fd00::1]", ""), "a.example"), Some(("[fd00::1]".to_owned(), 80)));
        let secret = rules("http://user:password@proxy.example", "");
        assert!(!format!("{secret:?}").contains("password"));
        assert!(secret.find("registry.example", 443).unwrap().unwrap().authorization.is_some());
    }

    #[test]
    fn a_proxy_of_the_policy_gets_the_credentials_that_the_environment_has_for_it() {
        let secret = rules("http://user:password@Proxy.example:3128", "*");
        for (named, has_credentials) in [
            ("http://proxy.example:3128", true),
            ("http://proxy.example:3129", false),
            ("http://proxy.example", false),
            ("http://other.example:3128", false),
        ] {
            let proxy = secret.find_named(&Url::parse(named).unwrap());
            assert_eq!(proxy.authorization.is_some(), has_credentials, "{named}");
            assert!(proxy.describe("x").contains("of the key `proxy`"));
        }
        let named = Url::parse("http://proxy.example:80").unwrap();
        assert!(rules("user:password@proxy.example", "").find_named(&named).authorization.is_some());
        // A variable that cannot be used costs nothing here.
        assert_eq!(rules("socks5://a", "").find_named(&named).host, "proxy.example");
    }

    /// Opens a tunnel through a proxy that answers with these bytes. Returns what the proxy got, too.
    async fn open(answer: &[u8], authorization: Option<&'static str>) -> (Result<u8, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, answer) = (listener.local_addr().unwrap(), answer.to_vec());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(&answer).await.ok();
            String::from_utf8(head).unwrap()
        });
        let next = match proxy(authorization).open_tunnel(&[address], "registry.example", 443).await {
            Ok(mut stream) => Ok(stream.read_u8().await.unwrap()),
            Err(why) => Err(why),
        };
        (next, server.await.unwrap())
    }

    fn proxy(authorization: Option<&'static str>) -> HttpProxy {
        HttpProxy {
            host: "proxy.example".to_owned(),
            port: 3128,
            authorization: authorization.map(HeaderValue::from_static),
            is_of_policy: false,
            variable: "ALL_PROXY",
        }
    }

    #[tokio::test]
    async fn a_proxy_that_is_dead_or_silent_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::time::pause();
        // Nobody accepts, so nothing answers.
        let silent = proxy(None).open_tunnel(&[address], "registry.example", 443).await.unwrap_err();
        drop(listener);
        tokio::time::resume();
        let dead = proxy(None).open_tunnel(&[address], "registry.example", 443).await.unwrap_err();
        let resolver = Resolver::with_lookup(|_, _| Ok(Vec::new()));
        let unknown = proxy(None).addresses(&resolver, &"p".parse().unwrap()).await.unwrap_err().to_string();
        for (why, part) in
            [(silent, "did not answer within 10s"), (dead, "cannot be reached"), (unknown, "has no address")]
        {
            assert!(why.contains("the proxy `proxy.example`, port 3128, of `ALL_PROXY`"), "{why}");
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[tokio::test]
    async fn a_tunnel_begins_after_the_head_of_the_response() {
        let secret = Some("Basic dTpw");
        let (next, sent) = open(b"HTTP/1.1 200 OK\r\nvia: x\r\n\r\nT", secret).await;
        assert_eq!(next, Ok(b'T'));
        assert_eq!(
            sent,
            "CONNECT registry.example:443 HTTP/1.1\r\nhost: registry.example:443\r\n\
             proxy-authorization: Basic dTpw\r\n\r\n"
        );
        let long = ["HTTP/1.1 200 OK\r\n", &"x".repeat(MAX_HEAD)].concat();
        let of = |challenge: &str| {
            format!("HTTP/1.1 407 Auth\r\nvia: x\r\nProxy-Authenticate: {challenge}\r\n\r\n")
        };
        for (answer, authorization, part) in [
            ("HTTP/1.1 407 Auth\r\n\r\n", None, "set `ALL_PROXY` to this proxy"),
            (&of("Basic realm=\"x\""), None, "set `ALL_PROXY` to this proxy"),
            (&of("Negotiate, Basic realm=\"x\""), None, "set `ALL_PROXY` to this proxy"),
            (&of("Basic realm=\"x\""), secret, "refused the credentials of `ALL_PROXY`"),
            ("HTTP/1.1 407 Auth\r\n\r\n", secret, "refused the credentials of `ALL_PROXY`"),
            (&of("Negotiate"), None, "`negotiate`, which is not supported"),
            (
                &of("Negotiate\r\nproxy-authenticate: NTLM"),
                secret,
                "`negotiate, ntlm`, which is not supported",
            ),
            ("HTTP/1.0 502 Bad\r\n\r\n", secret, "status 502"),
            ("SSH-2.0-x\r\n\r\n", secret, "does not speak HTTP"),
            ("HTTP/1.1 20", secret, "closed the connection"),
            (&long, secret, "more than 16384 bytes"),
        ] {
            let why = open(answer.as_bytes(), authorization).await.0.unwrap_err();
            assert!(
                why.contains(part) && why.contains("proxy.example") && !why.contains("dTpw"),
                "{part}: {why}"
            );
        }
    }
}
