use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use toolbay::{Filter, Host, Policy, ToolCall, TurnContext};
use toolbay_core::audit::observer::AuditObserver as _;
use toolbay_core::audit::{AuditRecord, MemoryAudit};
use toolbay_core::call::Identity;
use toolbay_core::call::trace::{TraceParent, Tracer};
use toolbay_core::tool::ToolSource;
use toolbay_policy::telemetry::TelemetryPolicy;

use super::buffer::ExportBuffer;
use super::protobuf::{AttributeValue, Message};
use super::resource::Resource;
use super::spans;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

/// The record of a traced call of an unknown tool, to be changed.
async fn record() -> AuditRecord {
    let audit = Arc::new(MemoryAudit::default());
    let policy = TelemetryPolicy {
        otlp: None,
        net_private: Vec::new(),
        sample: 1.0,
        propagate: BTreeSet::new(),
        arguments: false,
    };
    let builder = Host::builder(Policy::deny_all(Path::new("/srv"))).tracer(Tracer::new(&policy));
    let host = builder.audit(Arc::clone(&audit) as _).build().unwrap();
    let identity = Identity { traceparent: TraceParent::parse(PARENT), ..Identity::default() };
    let turn = TurnContext { identity, ..TurnContext::default() };
    host.call_all(&host.view(Filter::default()), vec![ToolCall::new("c1", "unknown", "{}")], turn).await;
    audit.take().pop().unwrap()
}

fn spans(buffer: &ExportBuffer) -> Vec<Span> {
    let (calls, _) = buffer.take_batch().unwrap();
    let request = spans::export_request(&Resource::new(Vec::new()), &calls);
    let mut request = ExportTraceServiceRequest::decode(&*request).unwrap();
    request.resource_spans.remove(0).scope_spans.remove(0).spans
}

fn text<'a>(span: &'a Span, name: &str) -> Option<&'a str> {
    let found = span.attributes.iter().find(|pair| pair.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[tokio::test]
async fn a_call_of_a_library_is_an_internal_span_below_its_caller() {
    let buffer = ExportBuffer::new(None);
    buffer.observe_call(&record().await);
    let spans = spans(&buffer);
    assert_eq!(spans.len(), 1, "no tool ran");
    let span = &spans[0];
    assert_eq!((span.name.as_str(), span.kind, span.flags), ("execute_tool _OTHER", 1, 0x301));
    let parent = TraceParent::parse(PARENT).unwrap();
    assert_eq!(
        (&span.trace_id[..], &span.parent_span_id[..]),
        (&parent.trace_id()[..], &parent.span_id()[..])
    );
    assert_eq!((text(span, "gen_ai.tool.call.id"), text(span, "mcp.method.name")), (Some("c1"), None));
    assert_eq!(text(span, "error.type"), text(span, "toolbay.outcome"));
    assert_eq!(span.status.as_ref().unwrap().code, 2);
}

#[tokio::test]
async fn a_full_buffer_loses_spans_and_counts_them() {
    let (buffer, record) = (ExportBuffer::new(None), record().await);
    for _ in 0..8192 {
        buffer.observe_call(&record);
    }
    assert_eq!(buffer.lost(), 0);
    (0..5).for_each(|_| buffer.observe_call(&record));
    assert_eq!(buffer.lost(), 5);
    let sizes: Vec<_> = std::iter::from_fn(|| buffer.take_batch().map(|(calls, _)| calls.len())).collect();
    assert_eq!(sizes, [512; 16]);
    buffer.observe_call(&record);
    assert_eq!((buffer.lost(), spans(&buffer).len()), (5, 1));
    let untraced = AuditRecord { trace: None, ..record };
    buffer.observe_call(&untraced);
    assert!(buffer.take_batch().is_none());
}

#[tokio::test]
async fn durations_have_series_for_a_bounded_number_of_tools() {
    let (buffer, mut record) = (ExportBuffer::new(None), record().await);
    (record.source, record.outcome) = (Some(Arc::new(ToolSource::Builtin)), "ok");
    for n in 0..2500 {
        record.tool = format!("tool_{n}").into();
        record.duration_us = n;
        buffer.observe_call(&record);
    }
    let request = buffer.durations().export_request(&Resource::new(Vec::new())).unwrap();
    let request = ExportMetricsServiceRequest::decode(&*request).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    assert_eq!((metrics.len(), metrics[0].name.as_str()), (1, "gen_ai.execute_tool.duration"));
    let Some(Data::Histogram(histogram)) = &metrics[0].data else { panic!("{metrics:?}") };
    assert_eq!(histogram.data_points.len(), 2001);
    assert_eq!(histogram.data_points.iter().map(|point| point.count).sum::<u64>(), 2500);
    let other = histogram.data_points.iter().find(|point| point.count == 500).unwrap();
    assert_eq!(other.bucket_counts.iter().sum::<u64>(), 500);
}

#[test]
fn numbers_of_any_size_are_written() {
    for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), i64::MAX.unsigned_abs(), u64::MAX] {
        let mut span = Message::default();
        span.fixed64(7, number);
        span.varint(10, number.min(u64::from(u32::MAX)));
        span.attribute(9, ("n", AttributeValue::Int(number)));
        span.attribute(9, ("empty", AttributeValue::Text("")));
        let span = Span::decode(&*span.into_bytes()).unwrap();
        assert_eq!(span.start_time_unix_nano, number);
        assert_eq!(u64::from(span.dropped_attributes_count), number.min(u64::from(u32::MAX)));
        let value = |at: usize| span.attributes[at].value.clone().unwrap().value;
        assert_eq!(value(0), Some(Value::IntValue(i64::try_from(number).unwrap_or(i64::MAX))));
        assert_eq!(value(1), Some(Value::StringValue(String::new())));
    }
}
