//! Requests of the host itself to URLs that its operator wrote: the keys of an authorization server, the collector of
//! traces. One request, no redirects, a bounded response; over the same client as MCP servers, with the checks of
//! [`OperatorTarget`].

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Response, StatusCode};
use ipnet::IpNet;
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::name::PluginId;
use toolbay_policy::route::OutboundRoute;
use url::Url;

use super::HttpClient;
use super::body::{self, ResponseBody};
use super::connect::ConnectionUser;
use super::dispatch::{USER_AGENT_VALUE, build_request};
use super::operator_target::OperatorTarget;

/// The name that its lookups count for; a plugin with this name shares them.
pub(super) const LOOKUP_NAME: &str = "host";
/// Most bytes of a response that is only drained, so that its connection can be used again.
const MAX_DRAINED: usize = 64 << 10;

/// Where a URL of the operator may lead.
#[derive(Debug, Clone, Copy)]
pub struct OperatorNetworks<'a> {
    /// The private networks that its host may resolve to.
    pub private: &'a [IpNet],
    /// The table of the policy that lists them in `net_private`.
    pub table: &'static str,
}

/// Returns the body of a response with status 200. The caller bounds the time.
pub(super) async fn get(
    client: &HttpClient,
    url: &str,
    most: u64,
    networks: OperatorNetworks<'_>,
) -> Result<Vec<u8>, String> {
    let url = Url::parse(url).map_err(|e| e.to_string())?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let response = send(client, "GET", &url, (headers, Bytes::new()), networks).await?;
    if response.status() != StatusCode::OK {
        return Err(format!("the response has status {}", response.status()));
    }
    if body::has_content_coding(response.headers()) {
        return Err("the response has a content coding that was not requested".to_owned());
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let body = Limited::new(response.into_body(), most).collect().await;
    Ok(body
        .map_err(|_| format!("the response ended early or has more than {most} bytes"))?
        .to_bytes()
        .to_vec())
}

/// Sends a body and returns the status of the response. The caller bounds the time.
pub(super) async fn post(
    client: &HttpClient,
    url: &Url,
    headers: &[(String, String)],
    body: Vec<u8>,
    networks: OperatorNetworks<'_>,
) -> Result<u16, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || format!("the header `{name}` cannot be sent");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        // Any of them may be a credential.
        value.set_sensitive(true);
        map.insert(name, value);
    }
    let response = send(client, "POST", url, (map, Bytes::from(body)), networks).await?;
    let status = response.status().as_u16();
    // Read for the connection's sake only: what it says is not needed.
    drop(Limited::new(response.into_body(), MAX_DRAINED).collect().await);
    Ok(status)
}

async fn send(
    client: &HttpClient,
    method: &str,
    url: &Url,
    (mut headers, body): (HeaderMap, Bytes),
    networks: OperatorNetworks<'_>,
) -> Result<Response<ResponseBody>, String> {
    let target = NetTarget::request(method, url)?;
    let name = PluginId::new(LOOKUP_NAME).map_err(|e| e.to_string())?;
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(USER_AGENT, USER_AGENT_VALUE);
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let request = build_request(&target, url, headers, body).map_err(|e| e.to_string())?;
    let OperatorNetworks { private, table } = networks;
    let table = format!("[{table}]");
    let route = OutboundRoute::default();
    let named = OperatorTarget {
        target: &target,
        private,
        grants_written: true,
        network_list: (&table, "net_private"),
        route: &route,
        has_ca: false,
    };
    client
        .send_to_operator_target(ConnectionUser::Host, &name, named, request)
        .await
        .map_err(|error| error.into_refusal().for_operator())
}
