//! Requests around a call: the one that asked for it, and those that its tool makes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{CallTrace, MAX_HTTP_SPANS, TraceParent};

/// Longest accepted `tracestate`, in bytes: what every implementation passes on.
const MAX_TRACESTATE: usize = 512;
/// Longest accepted `baggage`, in bytes: what every implementation passes on.
const MAX_BAGGAGE: usize = 8192;
/// Longest URL of a span, in characters.
const MAX_URL: usize = 300;

/// The transport of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestTransport {
    /// Stdin and stdout.
    Pipe,
    /// HTTP from a client at this address.
    Tcp(IpAddr),
}

/// A request to a protocol server: its trace context, and what its span shows.
#[derive(Debug, Clone)]
pub struct RequestTrace {
    /// The span that the message itself names as its parent.
    pub parent: Option<TraceParent>,
    /// The span of the transport, such as that of an HTTP request.
    pub link: Option<TraceParent>,
    /// `tracestate` of the message.
    pub tracestate: Option<String>,
    /// `baggage` of the message.
    pub baggage: Option<String>,
    /// The id of the request.
    pub id: String,
    /// The version of the protocol.
    pub version: Option<String>,
    /// Whether the protocol has sessions.
    pub has_session: bool,
    /// The transport.
    pub transport: RequestTransport,
}

impl RequestTrace {
    /// A `tracestate` of a caller, if every implementation would pass it on.
    #[must_use]
    pub fn parse_tracestate(text: &str) -> Option<String> {
        parse_header(text, MAX_TRACESTATE)
    }

    /// A `baggage` of a caller, if every implementation would pass it on.
    #[must_use]
    pub fn parse_baggage(text: &str) -> Option<String> {
        parse_header(text, MAX_BAGGAGE)
    }
}

/// A value that can be sent as a header.
fn parse_header(text: &str, most: usize) -> Option<String> {
    let text = text.trim();
    let is_valid = !text.is_empty() && text.len() <= most && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    is_valid.then(|| text.to_owned())
}

/// An HTTP request that a tool made, up to the head of its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequestSpan {
    /// The id of its span.
    pub span_id: [u8; 8],
    /// The method.
    pub method: String,
    /// The URL without its query, redacted and cut.
    pub url: String,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The time from the arrival of the call to the request.
    pub start: Duration,
    /// The time from the request to the head of the response.
    pub duration: Duration,
    /// The status of the response.
    pub status: Option<u16>,
    /// The kind of error, if there is no response.
    pub error: Option<&'static str>,
}

/// A request that has no response yet. Dropping it records the request as cancelled.
#[derive(Debug)]
pub struct HttpSpanGuard {
    trace: Arc<CallTrace>,
    span: HttpRequestSpan,
}

impl CallTrace {
    /// Begins a request that the tool makes. `url` has no query.
    #[must_use]
    pub fn begin_request(self: &Arc<Self>, method: &str, url: &str, host: &str, port: u16) -> HttpSpanGuard {
        let span = HttpRequestSpan {
            span_id: self.next_span(),
            method: method.to_owned(),
            url: url.chars().take(MAX_URL).collect(),
            host: host.to_owned(),
            port,
            start: self.elapsed(),
            duration: Duration::ZERO,
            status: None,
            error: Some("cancelled"),
        };
        HttpSpanGuard { trace: Arc::clone(self), span }
    }
}

impl HttpSpanGuard {
    /// The context that the receiver gets: this request is the parent of its spans.
    #[must_use]
    pub fn context(&self) -> TraceParent {
        self.trace.context().with_span(self.span.span_id)
    }

    /// Records the status of the response, or the kind of error.
    pub fn finish(mut self, result: Result<u16, &'static str>) {
        self.span.status = result.ok();
        self.span.error = result.err();
    }
}

impl Drop for HttpSpanGuard {
    fn drop(&mut self) {
        if !self.trace.context().is_sampled() {
            return;
        }
        self.span.duration = self.trace.elapsed().saturating_sub(self.span.start);
        let mut notes = self.trace.notes.lock();
        if notes.http.len() < MAX_HTTP_SPANS {
            notes.http.push(self.span.clone());
        } else {
            notes.http_not_kept = notes.http_not_kept.saturating_add(1);
        }
    }
}
