//! The requests of a flow, through the host's guarded client. Every response is bounded in size and time, and one flow
//! sends a bounded number of requests, whatever the peers answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use toolbay_core::call::server_connector::{ConnectorResponse, OAuthRequest, ServerConnector};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::mcp_server::HttpServerConfig;
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity;
use url::{Host, Url};

use super::OAuthError;
use super::credentials::SecretText;

/// Bytes of one response. The largest known metadata have about 10 KiB.
pub(super) const MAX_BODY: usize = 256 << 10;
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Most requests of one flow: two places of resource metadata, three of server metadata, a registration, two token
/// requests, and a few for a second server.
const MAX_REQUESTS: u32 = 16;
/// Longest URL that a peer names, in bytes.
const MAX_URL: usize = 4096;
/// Longest text of a peer in a message, in characters.
const MAX_SHOWN: usize = 200;

/// Sends the requests of one flow.
#[derive(Debug)]
pub(super) struct FlowClient {
    pub(super) name: PluginId,
    pub(super) endpoint: HttpServerConfig,
    pub(super) connector: Arc<dyn ServerConnector>,
    sent: AtomicU32,
    /// What the flow sends and no message may repeat.
    concealed: Mutex<Vec<SecretText>>,
}

/// A response that was read whole.
#[derive(Debug)]
pub(super) struct FlowResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl FlowClient {
    pub(super) fn new(
        name: PluginId,
        endpoint: HttpServerConfig,
        connector: Arc<dyn ServerConnector>,
    ) -> Self {
        Self { name, endpoint, connector, sent: AtomicU32::new(0), concealed: Mutex::default() }
    }

    /// Keeps secrets out of what [`Self::show`] returns: an error of a peer may quote what it was sent.
    pub(super) fn conceal<'a>(&self, secrets: impl IntoIterator<Item = &'a SecretText>) {
        self.concealed.lock().extend(secrets.into_iter().cloned());
    }

    /// Sends a request and reads its response.
    pub(super) async fn send(&self, request: OAuthRequest) -> Result<FlowResponse, OAuthError> {
        if self.sent.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
            return Err(OAuthError::new(format!("the authorization took more than {MAX_REQUESTS} requests")));
        }
        let shown = self.show(&request.url);
        let sent = async {
            let response = self.connector.send_oauth(&self.name, &self.endpoint, request).await;
            let response = response.map_err(|error| OAuthError::new(error.into_refusal()))?;
            let status = response.status;
            Ok(FlowResponse { status, body: read_body(response, &shown).await? })
        };
        match tokio::time::timeout(TIMEOUT, sent).await {
            Ok(response) => response,
            Err(_) => Err(OAuthError::new(format!(
                "`{shown}` did not answer within {}",
                quantity::show_duration(TIMEOUT)
            ))),
        }
    }

    /// Fetches a JSON document. `None` if there is none at this URL.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, url: &Url) -> Result<Option<T>, OAuthError> {
        let headers = vec![("accept".to_owned(), "application/json".to_owned())];
        let request = OAuthRequest {
            method: "GET",
            url: url.to_string(),
            headers,
            body: Vec::new(),
            client_secret: None,
        };
        let response = self.send(request).await?;
        match response.status {
            200 => parse_json(&response.body, &self.show(url.as_str())).map(Some),
            // Absent, not allowed, or moved: a redirect could lead anywhere.
            300..=499 => Ok(None),
            status => {
                Err(OAuthError::new(format!("`{}` answered with status {status}", self.show(url.as_str()))))
            }
        }
    }

    /// Makes a text of a peer safe to show.
    pub(super) fn show(&self, text: &str) -> String {
        let mut shown = self.connector.redact(text).into_owned();
        for secret in self.concealed.lock().iter() {
            shown = shown.replace(secret.expose(), "[secret]");
        }
        one_line(&shown, MAX_SHOWN)
    }
}

/// Parses a JSON document of a peer. A message does not quote it, since it may contain credentials.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8], shown: &str) -> Result<T, OAuthError> {
    // RFC 8259, section 8.1: a parser may ignore a byte order mark.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        OAuthError::new(format!(
            "the document at `{shown}` is not as its standard says (line {line}, column {column})"
        ))
    })
}

async fn read_body(response: ConnectorResponse, shown: &str) -> Result<Vec<u8>, OAuthError> {
    let (mut body, mut bytes) = (response.body, Vec::new());
    while let Some(part) = body.next().await {
        let part = part.map_err(|why| OAuthError::new(format!("`{shown}` broke off: {why}")))?;
        if bytes.len() + part.len() > MAX_BODY {
            let most = quantity::show_bytes(MAX_BODY as u64);
            return Err(OAuthError::new(format!("`{shown}` answered with more than {most}")));
        }
        bytes.extend(part);
    }
    Ok(bytes)
}

/// Parses a URL that a peer named: `https`, or `http` on the loopback interface (RFC 9700, section 2.6; RFC 8252,
/// section 7.3).
pub(super) fn parse_url(what: &str, text: &str) -> Result<Url, OAuthError> {
    let bad = |why: &str| OAuthError::new(format!("{what} `{}` {why}", one_line(text, MAX_SHOWN)));
    if text.len() > MAX_URL {
        return Err(bad("is too long"));
    }
    let url = Url::parse(text).map_err(|_| bad("is no URL"))?;
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(bad("contains a user name or a fragment"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(bad("does not use https")),
    }
}

/// Whether the host of a URL is this machine by its name or address.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_peer_is_https_or_on_this_machine() {
        for url in ["https://a.example/x?y=1", "http://localhost:1/", "http://127.0.0.1/", "http://[::1]:8/"]
        {
            assert!(parse_url("the issuer", url).is_ok(), "{url}");
        }
        for (url, part) in [
            ("http://a.example/", "https"),
            ("http://10.0.0.1/", "https"),
            ("http://localhost.example/", "https"),
            ("file:///etc/passwd", "https"),
            ("javascript:alert(1)", "https"),
            ("https://u:p@a.example/", "user name"),
            ("https://a.example/#x", "fragment"),
            ("a b", "no URL"),
            (&format!("https://a.example/{}", "x".repeat(MAX_URL)), "too long"),
        ] {
            let why = parse_url("the issuer", url).unwrap_err().to_string();
            assert!(why.contains(part), "{url}: {why}");
        }
    }
}
