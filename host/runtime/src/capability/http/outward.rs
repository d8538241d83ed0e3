//! Requests of the host itself, as a client of an MCP server that the policy names. They go through the same look-up,
//! the same check of addresses and the same connections as those of plugins; who is asked is the policy's section
//! instead of a tool's grant.
//!
//! The operator wrote the URL: an address that stands in it, and `localhost`, are thereby granted. What a *name* leads
//! to must be public, or in the section's `net_private`. A redirect is followed within its origin only, so no header
//! ever goes where the policy did not say.

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyDataStream, BodyExt as _, Full};
use hyper::Response;
use hyper::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use ipnet::IpNet;
use toolbay_core::call::outside::{self, OutsideError};
use toolbay_policy::capability::net::Target;
use toolbay_policy::mcp_server::{Endpoint, SecretHeader};
use toolbay_policy::name::PluginId;
use toolbay_policy::text::one_line;
use url::Url;
use zeroize::Zeroizing;

use super::Client;
use super::body::{self, Inbound};
use super::connect::{Outgoing, User};
use super::dispatch::{AGENT, cause, request};
use super::named::{MAX_SHOWN, Named};
use super::session::NetError;
use crate::capability::secrets::Vault;

/// Redirects within one origin that are followed: a slash at the end, a version in the path.
const MAX_HOPS: usize = 3;

impl Client {
    /// Sends a request to a server's URL and returns when the head of its response is there.
    pub(crate) async fn send_outward(
        &self,
        name: &PluginId,
        endpoint: &Endpoint,
        request: outside::Request,
        secrets: &Vault,
    ) -> Result<outside::Response, OutsideError> {
        let bad = |what: String| OutsideError::Denied(what);
        let mut url = Url::parse(&endpoint.url).map_err(|e| bad(format!("`url`: {e}")))?;
        let first = Target::request(request.method, &url).map_err(bad)?;
        let headers = headers(endpoint, &request, &first, secrets).map_err(bad)?;
        let body = Bytes::from(request.body);
        for _ in 0..=MAX_HOPS {
            let target = Target::request(request.method, &url).map_err(bad)?;
            let response = self.hop(name, endpoint, (&target, &url), headers.clone(), body.clone()).await?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return answer(response);
            }
            url = next(&target, &url, &response)?;
        }
        Err(OutsideError::Failed(format!("more than {MAX_HOPS} redirects")))
    }

    async fn hop(
        &self,
        name: &PluginId,
        endpoint: &Endpoint,
        (target, url): (&Target, &Url),
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Inbound>, OutsideError> {
        let body: Outgoing = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let request = request(target, url, headers, body).map_err(failed)?;
        let hint = |net: IpNet| format!("write in the policy: [mcp.{name}] net_private = [\"{net}\"]");
        let named = Named { target, private: &endpoint.net_private, hint: &hint };
        self.send_named(User::Server(name.clone()), name, named, request).await.map_err(failed)
    }
}

/// The headers of every hop: those of the protocol, those of the section, the values of secrets.
fn headers(
    endpoint: &Endpoint,
    request: &outside::Request,
    target: &Target,
    secrets: &Vault,
) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    let written = request.headers.iter().map(|(name, value)| (name, value)).chain(&endpoint.headers);
    for (name, value) in written {
        let bad = || format!("the header `{}` cannot be sent", one_line(name, MAX_SHOWN));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        map.insert(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?);
    }
    for SecretHeader { header, prefix, secret } in &endpoint.secrets {
        let bad = || format!("the value of the secret `{secret}` cannot stand in a header");
        // The section was checked against the policy it came with. A later one may mean another value by the name, and
        // another place to send it to.
        let rule = secrets.rule(secret)?;
        if !rule.goes_to(target) || !rule.headers.contains(header) {
            return Err(format!("the secret `{secret}` may not be sent to this server any more"));
        }
        let value = Zeroizing::new(format!("{prefix}{}", secrets.value(secret)?));
        let mut value = HeaderValue::from_str(&value).map_err(|_| bad())?;
        // Keeps it out of what libraries print, and out of the tables of HTTP/2's header compression.
        value.set_sensitive(true);
        map.insert(HeaderName::from_bytes(header.as_bytes()).map_err(|_| bad())?, value);
    }
    map.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    map.insert(USER_AGENT, AGENT);
    Ok(map)
}

/// Where a redirect leads, if that is within the origin.
fn next(target: &Target, url: &Url, response: &Response<Inbound>) -> Result<Url, OutsideError> {
    let host = target.host();
    let refused = |why: String| Err(OutsideError::Denied(format!("`{host}` redirects {why}")));
    let kept = matches!(response.status().as_u16(), 307 | 308) || target.method() == "GET";
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let Some(mut to) = location.and_then(|location| url.join(location).ok()) else {
        return refused("to nowhere".to_owned());
    };
    to.set_fragment(None);
    let Ok(there) = Target::request(target.method(), &to) else {
        return refused("to what is no URL of a server, which is not followed".to_owned());
    };
    if !there.same_origin(target) {
        let origin = one_line(&to.origin().ascii_serialization(), MAX_SHOWN);
        return refused(format!(
            "to another origin, `{origin}`, which is not followed: if that is where the server is, write it as `url`"
        ));
    }
    if !kept {
        return refused(format!(
            "with status {}, which would make another request of it: write the right path in `url`",
            response.status().as_u16()
        ));
    }
    Ok(to)
}

fn answer(response: Response<Inbound>) -> Result<outside::Response, OutsideError> {
    let (parts, body) = response.into_parts();
    if body::is_coded(&parts.headers) {
        return Err(OutsideError::Failed("the response is in a coding that nobody asked for".to_owned()));
    }
    let headers = parts.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let parted = BodyDataStream::new(body).map(|part| match part {
        Ok(bytes) => Ok(bytes.to_vec()),
        Err(error) => Err(one_line(&cause(&*error), MAX_SHOWN)),
    });
    Ok(outside::Response {
        status: parts.status.as_u16(),
        headers: headers.collect(),
        body: Box::pin(parted),
    })
}

fn failed(error: NetError) -> OutsideError {
    match error {
        NetError::Denied(why) | NetError::Address(why) | NetError::Invalid(why) => OutsideError::Denied(why),
        NetError::Transport(why) => OutsideError::Failed(why),
        NetError::Timeout => OutsideError::Failed("the time was up".to_owned()),
    }
}
