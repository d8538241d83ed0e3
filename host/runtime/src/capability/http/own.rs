//! What the host itself wants from an address that its operator wrote, the keys of an authorization server for
//! instance. One request, no redirects, no more bytes than wanted; over the same connections, and to addresses that the
//! operator named ([`Named`]), as those of the bridge.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Response, StatusCode};
use ipnet::IpNet;
use toolbay_policy::capability::net::Target;
use toolbay_policy::name::PluginId;
use url::Url;

use super::Client;
use super::body::{self, Inbound};
use super::connect::User;
use super::dispatch::{AGENT, request};
use super::named::Named;

/// Under which name its look-ups are counted; a plugin of this name shares them.
const NAME: &str = "host";

/// Gets the body of a response of status 200. `private` are the networks beside the public ones to which a name may lead.
/// The caller bounds the time.
pub(super) async fn get(client: &Client, url: &str, most: u64, private: &[IpNet]) -> Result<Vec<u8>, String> {
    let url = Url::parse(url).map_err(|e| e.to_string())?;
    let target = Target::request("GET", &url)?;
    let response = ask(client, &target, &url, private).await?;
    if response.status() != StatusCode::OK {
        return Err(format!("the answer is {}", response.status()));
    }
    if body::is_coded(response.headers()) {
        return Err("the answer is in a coding that nobody asked for".to_owned());
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let body = Limited::new(response.into_body(), most).collect().await;
    Ok(body.map_err(|_| format!("the answer broke off, or has more than {most} bytes"))?.to_bytes().to_vec())
}

async fn ask(
    client: &Client,
    target: &Target,
    url: &Url,
    private: &[IpNet],
) -> Result<Response<Inbound>, String> {
    let name = PluginId::new(NAME).map_err(|e| e.to_string())?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(USER_AGENT, AGENT);
    let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
    let request = request(target, url, headers, body).map_err(|e| e.to_string())?;
    let hint = |net: IpNet| format!("write in the policy: [serve.oauth] net_private = [\"{net}\"]");
    let named = Named { target, private, hint: &hint };
    client.send_named(User::Host, &name, named, request).await.map_err(|e| e.to_string())
}
