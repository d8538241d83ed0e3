//! The spans of a call.
//!
//! | span | kind | parent |
//! |---|---|---|
//! | `tools/call {tool}` | server | the `_meta` of the request; linked to the span of its HTTP headers |
//! | `execute_tool {tool}` | internal | the calling tool, or the caller's `traceparent` |
//! | `queue`, `run` | internal | the call |
//! | `GET`, … | client | the call |

use std::time::Duration;

use toolbay_core::call::trace::{HttpRequestSpan, RequestTrace, RequestTransport, TraceParent};
use toolbay_core::tool::ToolSource;
use toolbay_core::tool::refusal::RefusalReason;

use super::buffer::FinishedCall;
use super::protobuf::{Attribute, AttributeValue, Message};
use super::resource::Resource;
use crate::conventions as names;

/// `SpanKind` of OTLP.
#[derive(Debug, Clone, Copy)]
enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// `STATUS_CODE_ERROR` of OTLP.
const STATUS_ERROR: u64 = 2;
/// Bits of `flags`: it is known whether the parent is remote, and it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// One span.
struct Span<'a> {
    context: TraceParent,
    span_id: [u8; 8],
    parent: Option<[u8; 8]>,
    has_remote_parent: bool,
    tracestate: Option<&'a str>,
    name: String,
    kind: SpanKind,
    /// Times since the epoch.
    start: Duration,
    end: Duration,
    attributes: Vec<Attribute<'a>>,
    link: Option<TraceParent>,
    error: Option<&'a str>,
}

/// Writes the export request of calls.
pub(super) fn export_request(resource: &Resource, calls: &[FinishedCall]) -> Vec<u8> {
    resource.export_request(|scope| {
        for call in calls {
            call.write(scope);
        }
    })
}

impl FinishedCall {
    fn write(&self, scope: &mut Message) {
        self.write_call(scope);
        self.write_run(scope);
        self.notes.http.iter().for_each(|request| self.write_request(scope, request));
    }

    /// The request whose server span this is; `None` for nested calls and calls of a library.
    fn request(&self) -> Option<&RequestTrace> {
        self.trace.request().filter(|_| !self.is_nested)
    }

    /// The name of the tool. A caller chooses the names of unknown tools.
    fn tool_name(&self) -> &str {
        if self.source.is_some() { &self.tool } else { names::OTHER }
    }

    fn start(&self) -> Duration {
        self.end.saturating_sub(self.duration)
    }

    /// A span below the call.
    fn child<'a>(&'a self, span_id: [u8; 8], name: &str, kind: SpanKind) -> Span<'a> {
        Span {
            context: self.trace.context(),
            span_id,
            parent: Some(self.trace.context().span_id()),
            has_remote_parent: false,
            tracestate: self.trace.request().and_then(|request| request.tracestate.as_deref()),
            name: name.to_owned(),
            kind,
            start: self.start(),
            end: self.end,
            attributes: Vec::new(),
            link: None,
            error: None,
        }
    }

    fn write_call(&self, scope: &mut Message) {
        let (tool, request) = (self.tool_name(), self.request());
        let is_error = self.outcome != "ok";
        let (name, kind, error) = match request {
            Some(_) => (format!("{} {tool}", names::TOOLS_CALL), SpanKind::Server, names::TOOL_ERROR),
            None => (format!("{} {tool}", names::EXECUTE_TOOL), SpanKind::Internal, self.outcome),
        };
        let mut span = Span {
            parent: self.trace.parent(),
            has_remote_parent: self.trace.has_remote_parent(),
            link: request.and_then(|request| request.link),
            error: is_error.then_some(error),
            ..self.child(self.trace.context().span_id(), &name, kind)
        };
        span.text(names::OPERATION_NAME, names::EXECUTE_TOOL);
        span.text(names::TOOL_NAME, tool);
        span.text(names::OUTCOME, self.outcome);
        span.text_if(names::REFUSAL, self.refusal.map(RefusalReason::as_str));
        let transport = request.map(|request| request.transport);
        let client = match transport {
            Some(RequestTransport::Tcp(address)) => Some(address.to_string()),
            Some(RequestTransport::Pipe) | None => None,
        };
        match request {
            None => span.text(names::TOOL_CALL_ID, &self.call_id),
            Some(request) => {
                span.text(names::METHOD_NAME, names::TOOLS_CALL);
                span.text(names::REQUEST_ID, &request.id);
                span.text_if(names::PROTOCOL_VERSION, request.version.as_deref());
                span.text_if(names::SESSION_ID, self.session_id.as_deref().filter(|_| request.has_session));
                span.text(names::NETWORK_TRANSPORT, if client.is_some() { "tcp" } else { "pipe" });
                span.text_if(names::CLIENT_ADDRESS, client.as_deref());
            }
        }
        if self.is_cached {
            span.attributes.push((names::CACHED, AttributeValue::Bool(true)));
        }
        if self.notes.http_not_kept > 0 {
            span.number(names::REQUESTS_NOT_KEPT, self.notes.http_not_kept.into());
        }
        span.text_if(names::TOOL_CALL_ARGUMENTS, self.notes.arguments.as_deref());
        span.text_if(names::TOOL_CALL_RESULT, self.notes.result.as_deref());
        span.write(scope);
    }

    /// The time in the queue and the run of the tool.
    fn write_run(&self, scope: &mut Message) {
        let Some(began) = self.trace.began() else { return };
        let began = (self.start() + began).min(self.end);
        if self.queues() {
            let mut queue = self.child(self.trace.next_span(), "queue", SpanKind::Internal);
            let waited = Duration::from_micros(self.usage.queued_us);
            (queue.start, queue.end) = (began.saturating_sub(waited).max(self.start()), began);
            queue.write(scope);
        }
        let mut run = self.child(self.trace.next_span(), "run", SpanKind::Internal);
        run.start = began;
        if self.usage.wall_us > 0 {
            run.end = (began + Duration::from_micros(self.usage.wall_us)).min(self.end);
        }
        if let Some(ToolSource::Plugin { id, digest, .. }) = self.source.as_deref() {
            run.text(names::PLUGIN_ID, id.as_str());
            run.text(names::PLUGIN_DIGEST, digest);
            run.number(names::MEMORY_PEAK, self.usage.peak_memory_bytes);
            if let Some(fuel) = self.usage.fuel {
                run.number(names::FUEL, fuel);
            }
        }
        run.text_if(names::PROFILE, self.profile.as_deref());
        run.write(scope);
    }

    fn write_request(&self, scope: &mut Message, request: &HttpRequestSpan) {
        let method = names::http_method(&request.method);
        let name = if method == names::OTHER { "HTTP" } else { method };
        let mut span = self.child(request.span_id, name, SpanKind::Client);
        span.start = (self.start() + request.start).min(self.end);
        span.end = (span.start + request.duration).min(self.end);
        span.text(names::HTTP_METHOD, method);
        span.text(names::URL_FULL, &request.url);
        span.text(names::SERVER_ADDRESS, &request.host);
        span.number(names::SERVER_PORT, request.port.into());
        let status = request.status.map(|status| status.to_string());
        if let Some(status) = request.status {
            span.number(names::HTTP_STATUS, status.into());
        }
        // By the conventions of HTTP clients, a status from 400 is an error.
        let failed = status.as_deref().filter(|_| request.status.is_some_and(|status| status >= 400));
        span.error = request.error.or(failed);
        span.write(scope);
    }
}

impl<'a> Span<'a> {
    fn text(&mut self, name: &'static str, value: &'a str) {
        self.attributes.push((name, AttributeValue::Text(value)));
    }

    fn text_if(&mut self, name: &'static str, value: Option<&'a str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    fn number(&mut self, name: &'static str, value: u64) {
        self.attributes.push((name, AttributeValue::Int(value)));
    }

    /// Writes it as a `Span` of a `ScopeSpans`.
    fn write(mut self, scope: &mut Message) {
        if let Some(error) = self.error {
            self.text(names::ERROR_TYPE, error);
        }
        let flags = u32::from(self.context.is_sampled()) | HAS_IS_REMOTE;
        scope.message(2, |span| {
            span.bytes(1, &self.context.trace_id());
            span.bytes(2, &self.span_id);
            span.text(3, self.tracestate.unwrap_or_default());
            span.bytes(4, self.parent.as_ref().map_or(&[], |parent| parent.as_slice()));
            span.text(5, &self.name);
            span.varint(6, self.kind as u64);
            span.fixed64(7, nanos(self.start));
            span.fixed64(8, nanos(self.end));
            for attribute in &self.attributes {
                span.attribute(9, *attribute);
            }
            if let Some(linked) = self.link {
                span.message(13, |link| {
                    link.bytes(1, &linked.trace_id());
                    link.bytes(2, &linked.span_id());
                    link.fixed32(6, u32::from(linked.is_sampled()) | HAS_IS_REMOTE | IS_REMOTE);
                });
            }
            if self.error.is_some() {
                span.message(15, |status| status.varint(3, STATUS_ERROR));
            }
            span.fixed32(16, if self.has_remote_parent { flags | IS_REMOTE } else { flags });
        });
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
