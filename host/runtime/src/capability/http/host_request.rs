//! GET requests of the host itself to URLs that its operator wrote, such as the keys of an authorization server. One
//! request, no redirects, a bounded response; over the same client as MCP servers, with the checks of
//! [`OperatorTarget`].

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Response, StatusCode};
use ipnet::IpNet;
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::name::PluginId;
use url::Url;

use super::HttpClient;
use super::body::{self, ResponseBody};
use super::connect::ConnectionUser;
use super::dispatch::{USER_AGENT_VALUE, build_request};
use super::operator_target::OperatorTarget;

/// The name that its lookups count for; a plugin with this name shares them.
pub(super) const LOOKUP_NAME: &str = "host";

/// Returns the body of a response with status 200. `private` lists the private networks that the host may resolve to.
/// The caller bounds the time.
pub(super) async fn get(
    client: &HttpClient,
    url: &str,
    most: u64,
    private: &[IpNet],
) -> Result<Vec<u8>, String> {
    let url = Url::parse(url).map_err(|e| e.to_string())?;
    let target = NetTarget::request("GET", &url)?;
    let response = send_get(client, &target, &url, private).await?;
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

async fn send_get(
    client: &HttpClient,
    target: &NetTarget,
    url: &Url,
    private: &[IpNet],
) -> Result<Response<ResponseBody>, String> {
    let name = PluginId::new(LOOKUP_NAME).map_err(|e| e.to_string())?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(USER_AGENT, USER_AGENT_VALUE);
    let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
    let request = build_request(target, url, headers, body).map_err(|e| e.to_string())?;
    let hint = |net: IpNet| format!("write in the policy: [serve.oauth] net_private = [\"{net}\"]");
    let named = OperatorTarget { target, private, grants_written: true, hint: &hint };
    client
        .send_to_operator_target(ConnectionUser::Host, &name, named, request)
        .await
        .map_err(|e| e.to_string())
}
