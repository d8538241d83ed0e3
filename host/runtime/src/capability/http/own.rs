//! What the host itself wants from an address that its operator wrote, the keys of an authorization server for
//! instance. One request, no redirects, no more bytes than wanted; over TLS like all others.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use toolbay_core::name::PluginId;
use toolbay_core::net::Scheme;
use url::Url;

use super::Client;
use super::connect::{Connection, Key, User};
use super::session::NetError;

/// Under which name its look-ups are counted; a plugin of this name shares them.
const NAME: &str = "host";

/// Gets the body of a response of status 200. The caller bounds the time.
pub(super) async fn get(client: &Client, url: &str, most: u64) -> Result<Vec<u8>, String> {
    let url = Url::parse(url).map_err(|e| e.to_string())?;
    let scheme = match url.scheme() {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        other => return Err(format!("`{other}` is not spoken here")),
    };
    let host = url.host_str().ok_or("the address has no host")?.to_owned();
    let port = url.port_or_known_default().ok_or("the address has no port")?;
    let plugin = PluginId::new(NAME).map_err(|e| e.to_string())?;
    let addresses: Vec<SocketAddr> =
        client.resolver.addresses(&plugin, &host, port).await.map_err(|e| show(&e))?;
    let tls = match scheme {
        Scheme::Https => Some(client.trust.config().await.map_err(|e| show(&e))?),
        Scheme::Http | Scheme::Tcp | Scheme::Udp => None,
    };
    let key = Key { user: User::Server(plugin), scheme, host, port, private: Vec::new() };
    let place = client.place().await.map_err(|e| show(&e))?;
    let mut connection = Connection::open(&addresses, &key, tls, place).await.map_err(|e| show(&e))?;
    let authority = url.authority();
    let request = Request::get(url.as_str())
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("toolbay/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync())
        .map_err(|e| e.to_string())?;
    let response = connection.send(request).await.map_err(|(e, _)| e.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("the answer is {}", response.status()));
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let body = Limited::new(response.into_body(), most).collect().await;
    Ok(body.map_err(|_| format!("the answer broke off, or has more than {most} bytes"))?.to_bytes().to_vec())
}

fn show(error: &NetError) -> String {
    match error {
        NetError::Denied(why)
        | NetError::Address(why)
        | NetError::Invalid(why)
        | NetError::Transport(why) => why.clone(),
        NetError::Timeout => "it took too long".to_owned(),
    }
}
