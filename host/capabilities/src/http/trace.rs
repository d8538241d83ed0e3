//! The spans of requests, and the context that they pass on.
//!
//! Only origins that the operator listed in `propagate` receive the context of a trace. Values that a guest sets in
//! these headers are sent to other origins unchanged, like any header.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};
use toolbay_core::call::trace::HttpSpanGuard;
use toolbay_policy::capability::net::NetTarget;
use url::{Position, Url};

use super::body::ResponseBody;
use super::call_network::{CallNetwork, NetError};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// Begins the span of a request, if the call is traced, and adds its context for a receiver that the operator listed.
pub(super) fn begin(
    network: &CallNetwork,
    target: &NetTarget,
    url: &Url,
    headers: &mut HeaderMap,
) -> Option<HttpSpanGuard> {
    let trace = network.grantee.ctx.as_ref()?.trace.as_ref()?;
    // The query and the user are left out: both may be secret.
    let origin = target.origin();
    let shown = format!("{origin}{}", &url[Position::BeforePath..Position::AfterPath]);
    let shown = network.redactor().redact_text(&shown);
    let span = trace.begin_request(target.method(), &shown, target.host(), target.port());
    if trace.propagates_to(&origin) {
        let request = trace.request();
        let context = span.context().to_string();
        replace(headers, TRACEPARENT, Some(&context));
        replace(headers, TRACESTATE, request.and_then(|request| request.tracestate.as_deref()));
        replace(headers, BAGGAGE, request.and_then(|request| request.baggage.as_deref()));
    }
    Some(span)
}

/// Ends the span of a request.
pub(super) fn finish(span: HttpSpanGuard, sent: &Result<Response<ResponseBody>, NetError>) {
    span.finish(match sent {
        Ok(response) => Ok(response.status().as_u16()),
        Err(NetError::Denied(_) | NetError::Address(_)) => Err("denied"),
        Err(NetError::Invalid(_)) => Err("invalid_request"),
        Err(NetError::Timeout) => Err("timeout"),
        Err(NetError::Transport(_)) => Err("transport"),
    });
}

/// Sets a header, in place of the guest's.
fn replace(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    match value.and_then(|value| HeaderValue::from_str(value).ok()) {
        Some(value) => drop(headers.insert(name, value)),
        None => drop(headers.remove(name)),
    }
}
