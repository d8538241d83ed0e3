//! Requests of the host as the client of an MCP server in the policy. They share the lookup, the address checks and
//! the connections with the requests of plugins; the rules come from the server's section instead of a tool's grants.
//!
//! The operator wrote the URL: an IP address in it, and `localhost`, are granted. A host *name* must resolve to
//! public addresses, or into the section's `net_private`. Redirects are followed only within the origin, so headers
//! never go to another one.

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::BodyDataStream;
use hyper::Response;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use toolbay_core::call::server_connector::{self, BodyStream, ConnectorError};
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::mcp_server::{HttpServerConfig, SecretHeader};
use toolbay_policy::name::PluginId;
use url::Url;
use zeroize::Zeroizing;

use super::HttpClient;
use super::body::{self, ResponseBody};
use super::connect::ConnectionUser;
use super::dispatch::root_cause;
use super::operator_target::{MAX_SHOWN, OperatorTarget};
use crate::secrets::SecretStore;

/// Maximum number of redirects within the origin: for a trailing slash, a version in the path.
const MAX_REDIRECTS: usize = 3;

impl HttpClient {
    /// Sends a request to a server's URL and returns with the head of the response.
    pub async fn send_to_mcp_server(
        &self,
        name: &PluginId,
        endpoint: &HttpServerConfig,
        request: server_connector::ConnectorRequest,
        secrets: &SecretStore,
    ) -> Result<server_connector::ConnectorResponse, ConnectorError> {
        let bad = |what: String| ConnectorError::Denied(what.into());
        let mut url = Url::parse(&endpoint.url).map_err(|e| bad(format!("`url`: {e}")))?;
        let first = NetTarget::request(request.method, &url).map_err(bad)?;
        let headers = request_headers(endpoint, &request, &first, secrets).map_err(bad)?;
        let body = Bytes::from(request.body);
        let table = format!("[mcp.{name}]");
        for _ in 0..=MAX_REDIRECTS {
            let target = NetTarget::request(request.method, &url).map_err(bad)?;
            let named = OperatorTarget {
                target: &target,
                private: &endpoint.net_private,
                grants_written: true,
                network_list: (&table, "net_private"),
                route: &endpoint.route,
                has_ca: true,
            };
            let content = (headers.clone(), body.clone());
            let user = ConnectionUser::Server(name.clone());
            let response = self.send_to_operator_target(user, name, named, &url, content).await?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(to_connector_response(response));
            }
            url = redirect_target(&target, &url, &response)?;
        }
        Err(ConnectorError::Failed(format!("more than {MAX_REDIRECTS} redirects").into()))
    }
}

/// The headers of every hop: of the protocol, of the section, and with the values of secrets.
fn request_headers(
    endpoint: &HttpServerConfig,
    request: &server_connector::ConnectorRequest,
    target: &NetTarget,
    secrets: &SecretStore,
) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    let written = request.headers.iter().map(|(name, value)| (name, value)).chain(&endpoint.headers);
    for (name, value) in written {
        let bad = || format!("the header `{}` cannot be sent", one_line(name, MAX_SHOWN));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        map.insert(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?);
    }
    for SecretHeader { header, prefix, secret } in &endpoint.secrets {
        let bad = || format!("the value of the secret `{secret}` is not a valid header value");
        // The section was checked against its own policy. A later policy can change the secret's value and its
        // allowed origins.
        let rule = secrets.rule(secret)?;
        if !rule.may_be_sent_to(target) || !rule.headers.contains(header) {
            return Err(format!("the policy no longer allows sending the secret `{secret}` to this server"));
        }
        let value = Zeroizing::new(format!("{prefix}{}", secrets.value(secret)?));
        let mut value = HeaderValue::from_str(&value).map_err(|_| bad())?;
        // Marked sensitive: libraries do not print it, and HTTP/2 keeps it out of its header tables.
        value.set_sensitive(true);
        map.insert(HeaderName::from_bytes(header.as_bytes()).map_err(|_| bad())?, value);
    }
    Ok(map)
}

/// The target of a redirect within the origin.
fn redirect_target(
    target: &NetTarget,
    url: &Url,
    response: &Response<ResponseBody>,
) -> Result<Url, ConnectorError> {
    let host = target.host();
    let status = response.status().as_u16();
    let refused = |why: String| Err(ConnectorError::Redirected(status, format!("`{host}` redirects {why}")));
    let kept = matches!(status, 307 | 308) || target.method() == "GET";
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let Some(mut to) = location.and_then(|location| url.join(location).ok()) else {
        return refused("to an invalid location".to_owned());
    };
    to.set_fragment(None);
    let Ok(there) = NetTarget::request(target.method(), &to) else {
        return refused("to a URL that is not followed: it names no server".to_owned());
    };
    if !there.same_origin(target) {
        let origin = one_line(&to.origin().ascii_serialization(), MAX_SHOWN);
        return refused(format!(
            "to another origin, `{origin}`, which is not followed; if the server is there, write it as `url`"
        ));
    }
    if !kept {
        return refused(format!(
            "with status {status}, which would change the method of the request; write the final URL as `url`"
        ));
    }
    Ok(to)
}

/// The response to the reader, which bounds its body. Some servers encode a body although the request accepts no
/// coding. A body that cannot be decoded fails the response, but not the connection to the server.
pub(super) fn to_connector_response(response: Response<ResponseBody>) -> server_connector::ConnectorResponse {
    let (mut parts, body) = response.into_parts();
    let body: BodyStream = match body::decode_stream(&mut parts.headers, BodyDataStream::new(body)) {
        Ok(chunks) => Box::pin(chunks.map(|chunk| match chunk {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(error) => Err(one_line(&root_cause(&error), MAX_SHOWN)),
        })),
        Err(why) => Box::pin(futures_util::stream::iter([Err(why)])),
    };
    let headers = parts.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    server_connector::ConnectorResponse { status: parts.status.as_u16(), headers: headers.collect(), body }
}
