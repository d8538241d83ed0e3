//! HTTP proxies of registries: a tunnel to the host (`CONNECT`, RFC 9110, section 9.3.6), in which TLS begins. The proxy
//! resolves the name, so its addresses cannot be checked here; an address that is written in a URL still is.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use toolbay_policy::name::PluginId;
use toolbay_policy::text::one_line;
use url::Url;

use super::call_network::NetError;
use super::resolve::Resolver;

/// Largest head of a proxy's response, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Timeout of a proxy's response. It connects to the host first.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Which proxy each host is reached through. `Debug` hides its credentials.
pub(super) struct ProxyRules(Matcher);

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
}

impl ProxyRules {
    /// One proxy for all hosts.
    pub(super) fn all_through(proxy: &Url) -> Self {
        Self(Matcher::builder().https(proxy.as_str()).build())
    }

    /// The proxies of `HTTPS_PROXY` and `NO_PROXY`.
    pub(super) fn from_environment() -> Self {
        Self(Matcher::from_env())
    }

    /// The proxy for a host; `None`: it is reached without one.
    pub(super) fn find(&self, host: &str, port: u16) -> Result<Option<HttpProxy>, NetError> {
        let uri: Uri =
            format!("https://{host}:{port}/").parse().map_err(|_| NetError::Invalid(host.to_owned()))?;
        let Some(found) = self.0.intercept(&uri) else { return Ok(None) };
        let proxy = found.uri();
        let name = proxy.host().unwrap_or_default().to_owned();
        if proxy.scheme_str() != Some("http") || name.is_empty() {
            let why = "the proxy of `HTTPS_PROXY` is not an HTTP proxy: `http://HOST:PORT` is expected";
            return Err(NetError::Transport(why.to_owned()));
        }
        let port = proxy.port_u16().unwrap_or(80);
        Ok(Some(HttpProxy { host: name, port, authorization: found.basic_auth().cloned() }))
    }
}

impl HttpProxy {
    /// The addresses of the proxy. The operator wrote it, so any address is granted.
    pub(super) async fn addresses(
        &self,
        resolver: &Resolver,
        looks_up: &PluginId,
    ) -> Result<Vec<SocketAddr>, NetError> {
        resolver.resolve(looks_up, &self.host, self.port).await
    }

    /// Opens a tunnel to a host.
    pub(super) async fn tunnel(&self, stream: &mut TcpStream, host: &str, port: u16) -> Result<(), String> {
        let opened = tokio::time::timeout(TIMEOUT, self.connect(stream, host, port)).await;
        let failed = |why: String| format!("the proxy `{}`, port {}, {why}", self.host, self.port);
        opened.unwrap_or_else(|_| Err("did not answer in time".to_owned())).map_err(failed)
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
        // Byte by byte: what follows the head belongs to the host.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= MAX_HEAD {
                return Err(format!("sends a head of more than {MAX_HEAD} bytes"));
            }
            head.push(stream.read_u8().await.map_err(broken)?);
        }
        let line = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default())
            .into_owned();
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok());
        match status {
            Some(200..=299) => Ok(()),
            Some(407) => Err("asks for credentials: write them into `HTTPS_PROXY`".to_owned()),
            Some(status) => Err(format!("refuses to connect: it answers with status {status}")),
            None => Err(format!("does not speak HTTP: `{}`", one_line(&line, 100))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn rules(proxy: &str, no: &str) -> ProxyRules {
        ProxyRules(Matcher::builder().https(proxy).no(no).build())
    }

    fn found(rules: &ProxyRules, host: &str) -> Option<(String, u16)> {
        rules.find(host, 443).unwrap().map(|proxy| (proxy.host, proxy.port))
    }

    #[test]
    fn a_host_is_reached_through_the_proxy_unless_it_is_excepted() {
        let proxy = || Some(("proxy.example".to_owned(), 3128));
        let all = ProxyRules::all_through(&Url::parse("http://proxy.example:3128").unwrap());
        assert_eq!(found(&all, "registry.example"), proxy());
        let some = rules("http://proxy.example:3128", "internal.example,.corp,10.0.0.0/8");
        for (host, is_excepted) in [
            ("registry.example", false),
            ("internal.example", true),
            ("a.internal.example", true),
            ("notinternal.example", false),
            ("a.corp", true),
            ("10.1.2.3", true),
            ("11.1.2.3", false),
        ] {
            assert_eq!(found(&some, host).is_none(), is_excepted, "{host}");
        }
        assert_eq!(found(&rules("http://proxy.example", "*"), "registry.example"), None);
        for proxy in ["https://proxy.example", "socks5://proxy.example"] {
            let error = rules(proxy, "").find("registry.example", 443).err().unwrap().to_string();
            assert!(error.contains("is not an HTTP proxy"), "{error}");
        }
        let secret = rules("http://user:password@proxy.example", "");
        assert!(!format!("{secret:?}").contains("password"));
        assert!(secret.find("registry.example", 443).unwrap().unwrap().authorization.is_some());
    }

    /// Opens a tunnel through a proxy that answers with these bytes. Returns what the proxy got, too.
    async fn open(answer: Vec<u8>) -> (Result<u8, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(&answer).await.ok();
            String::from_utf8(head).unwrap()
        });
        let authorization = Some(HeaderValue::from_static("Basic dTpw"));
        let proxy = HttpProxy { host: "proxy.example".to_owned(), port: address.port(), authorization };
        let mut stream = TcpStream::connect(address).await.unwrap();
        let opened = proxy.tunnel(&mut stream, "registry.example", 443).await;
        let next = match opened {
            Ok(()) => Ok(stream.read_u8().await.unwrap()),
            Err(why) => Err(why),
        };
        drop(stream);
        (next, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_tunnel_begins_after_the_head_of_the_response() {
        let (next, sent) = open(b"HTTP/1.1 200 OK\r\nvia: x\r\n\r\nT".to_vec()).await;
        assert_eq!(next, Ok(b'T'));
        assert_eq!(
            sent,
            "CONNECT registry.example:443 HTTP/1.1\r\nhost: registry.example:443\r\n\
             proxy-authorization: Basic dTpw\r\n\r\n"
        );
        for (answer, part) in [
            (b"HTTP/1.1 407 Auth\r\n\r\n".to_vec(), "asks for credentials"),
            (b"HTTP/1.0 502 Bad\r\n\r\n".to_vec(), "status 502"),
            (b"SSH-2.0-x\r\n\r\n".to_vec(), "does not speak HTTP"),
            (b"HTTP/1.1 20".to_vec(), "closed the connection"),
            ([b"HTTP/1.1 200 OK\r\n".to_vec(), vec![b'x'; MAX_HEAD]].concat(), "more than 16384 bytes"),
        ] {
            let why = open(answer).await.0.unwrap_err();
            assert!(
                why.contains(part) && why.contains("proxy.example") && !why.contains("dTpw"),
                "{part}: {why}"
            );
        }
    }
}
