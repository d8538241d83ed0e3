//! Requests of the host itself to URLs that its operator wrote: the keys of an authorization server, the collector of
//! traces. One request, no redirects, a bounded response; over the same client as MCP servers, with the checks of
//! [`OperatorTarget`].

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use ipnet::IpNet;
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::name::PluginId;
use toolbay_policy::route::OutboundRoute;
use url::Url;

use super::HttpClient;
use super::body::{self, ResponseBody};
use super::connect::ConnectionUser;
use super::operator_target::OperatorTarget;

/// The name that its lookups count for; a plugin with this name shares them.
pub(super) const LOOKUP_NAME: &str = "host";
/// Maximum number of bytes of a response that is only drained, so that its connection can be used again.
const MAX_DRAINED: usize = 64 << 10;

/// The private networks that a URL of the operator may lead to.
#[derive(Debug, Clone, Copy)]
pub struct OperatorNetworks<'a> {
    /// The private networks that its host may resolve to.
    pub private: &'a [IpNet],
    /// The table of the policy that lists them in `net_private`.
    pub table: &'static str,
}

impl HttpClient {
    /// Gets a URL that the operator wrote, and returns the body of a response with status 200, at most `max_bytes`. The
    /// URL belongs to no plugin, so no grant is checked. The caller bounds the time.
    pub async fn get(
        &self,
        url: &str,
        max_bytes: u64,
        networks: OperatorNetworks<'_>,
    ) -> Result<Vec<u8>, String> {
        let url = Url::parse(url).map_err(|e| e.to_string())?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self.send_as_host("GET", &url, (headers, Bytes::new()), networks).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("the response has status {}", response.status()));
        }
        if body::has_content_coding(response.headers()) {
            return Err("the response has a content coding that was not requested".to_owned());
        }
        let max = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let body = Limited::new(response.into_body(), max).collect().await;
        let body = body.map_err(|_| format!("the response ended early or has more than {max} bytes"))?;
        Ok(body.to_bytes().to_vec())
    }

    /// Sends a body to a URL that the operator wrote, and returns the status of the response. The URL belongs to no plugin,
    /// so no grant is checked. The caller bounds the time.
    pub async fn post(
        &self,
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
        let response = self.send_as_host("POST", url, (map, Bytes::from(body)), networks).await?;
        let status = response.status().as_u16();
        // Read only so that the connection can be used again.
        drop(Limited::new(response.into_body(), MAX_DRAINED).collect().await);
        Ok(status)
    }

    async fn send_as_host(
        &self,
        method: &str,
        url: &Url,
        content: (HeaderMap, Bytes),
        networks: OperatorNetworks<'_>,
    ) -> Result<Response<ResponseBody>, String> {
        let target = NetTarget::request(method, url)?;
        let looks_up = PluginId::new(LOOKUP_NAME).map_err(|e| e.to_string())?;
        let (table, route) = (format!("[{}]", networks.table), OutboundRoute::default());
        let named = OperatorTarget {
            target: &target,
            private: networks.private,
            grants_written: true,
            network_list: (&table, "net_private"),
            route: &route,
            has_ca: false,
        };
        let sent = self.send_to_operator_target(ConnectionUser::Host, &looks_up, named, url, content).await;
        sent.map_err(|error| error.into_refusal().for_operator())
    }
}
