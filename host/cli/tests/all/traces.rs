//! `toolbay serve` exports traces and metrics to an OTLP collector, which may be down, slow or broken.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::{Value, json};

use crate::fixture::{HANGS, HostFolder, ServerProcess, wait_until};

/// SHA-256 of `test`.
const TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
/// A caller's span, and its trace.
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00";
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID: &str = "00f067aa0ba902b7";

/// An HTTP request that a server of the test received.
#[derive(Debug, Clone)]
struct Received {
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// An HTTP server that records its requests and answers all of them in the same way.
struct Recorder {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Recorder {
    fn start(status: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || answer_all(&stream, status, delay, &kept));
            }
        });
        Self { address, received }
    }

    fn all(&self, path: &str) -> Vec<Received> {
        self.received.lock().unwrap().iter().filter(|one| one.path == path).cloned().collect()
    }

    /// The spans of all exports so far.
    fn spans(&self) -> Vec<Span> {
        let exports = self.all("/v1/traces");
        let decoded = exports.iter().map(|one| ExportTraceServiceRequest::decode(&*one.body).unwrap());
        let scopes = decoded.flat_map(|export| export.resource_spans).flat_map(|one| one.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// Waits for this many spans.
    fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        wait_until("the spans arrive", || self.spans().len() >= count);
        self.spans()
    }
}

/// Answers the requests of a connection until it is closed.
fn answer_all(stream: &TcpStream, status: u16, delay: Duration, kept: &Mutex<Vec<Received>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let path = next_line(&mut reader)?.split(' ').nth(1)?.to_owned();
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = next_line(&mut reader)?.split_once(':') {
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        kept.lock().unwrap().push(Received { path, headers, body });
        std::thread::sleep(delay);
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
        (&mut &*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn next_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    Some(line.trim_end().to_owned())
}

/// A span with its attributes by name.
fn attributes(of: &[KeyValue]) -> BTreeMap<&str, Value> {
    let value = |any: &Option<AnyValue>| match any.as_ref().and_then(|any| any.value.as_ref()) {
        Some(AttributeValue::StringValue(text)) => json!(text),
        Some(AttributeValue::IntValue(number)) => json!(number),
        Some(AttributeValue::BoolValue(is)) => json!(is),
        other => panic!("{other:?}"),
    };
    of.iter().map(|pair| (pair.key.as_str(), value(&pair.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The one span with this name.
fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let one = found.next().unwrap_or_else(|| panic!("no `{name}` in {spans:#?}"));
    assert!(found.next().is_none(), "more than one `{name}`");
    one
}

/// The names of the spans below a span, in order.
fn children<'a>(spans: &'a [Span], parent: &Span) -> Vec<&'a str> {
    let below = spans.iter().filter(|span| span.parent_span_id == parent.span_id);
    let mut names: Vec<_> = below.map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// The one span below a span with this name.
fn child<'a>(spans: &'a [Span], parent: &Span, name: &str) -> &'a Span {
    spans.iter().find(|span| span.parent_span_id == parent.span_id && span.name == name).unwrap()
}

/// A policy with a collector, and the plugins `n`, which sends requests to `api`, and `i`, which calls `n` and `e`.
fn folder(collector: SocketAddr, telemetry: &str, api: Option<SocketAddr>) -> HostFolder {
    let net = api.map_or_else(String::new, |api| {
        format!("[plugins.n.grant]\nnet = [\"http://{api}\"]\nnet_private = [\"127.0.0.1\"]\n")
    });
    HostFolder::new(&format!(
        "[telemetry]\notlp = \"http://{collector}\"\n{telemetry}\n[plugins.i.grant]\ninvoke = [\"n__fetch\", \"e__echo\"]\n{net}"
    ))
    .with_plugin("n", guest_artifacts::CAP_NET)
    .with_plugin("i", guest_artifacts::CAP_INVOKE)
    .with_plugin("e", guest_artifacts::API_ECHO)
}

fn serve(folder: &HostFolder) -> ServerProcess {
    let mut server = ServerProcess::serve(folder);
    server.initialize();
    server
}

/// Calls a tool with `_meta`.
fn call(server: &mut ServerProcess, id: u64, tool: &str, args: &Value, meta: &Value) -> Value {
    server.send(id, "tools/call", &json!({"name": tool, "arguments": args, "_meta": meta}));
    server.result_or_error(id)
}

/// Ends a server, which sends what is left.
fn end(server: &mut ServerProcess) {
    drop(server.stdin.take());
    assert_eq!(server.exit_code(), 0);
}

#[test]
fn the_spans_of_a_call_are_a_tree_below_the_span_of_its_caller() {
    let (collector, api) = (Recorder::start(200, Duration::ZERO), Recorder::start(200, Duration::ZERO));
    let propagate = format!("propagate = [\"http://{}\"]", api.address);
    let folder = folder(collector.address, &propagate, Some(api.address));
    let mut server = serve(&folder);
    let url = format!("http://{}/a?secret=1", api.address);
    let own = json!({"url": url, "headers": [["traceparent", "00-1"], ["baggage", "own=1"]]});
    let args = json!({"calls": [["n__fetch", own]]});
    let meta = json!({"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "user=2"});
    assert_eq!(call(&mut server, 7, "i__invoke", &args, &meta)["result"]["isError"], json!(false));
    let spans = collector.wait_for_spans(7);
    end(&mut server);

    let top = named(&spans, "tools/call i__invoke");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE_ID && span.trace_state == "vendor=1"));
    assert_eq!((hex(&top.parent_span_id), top.kind), (SPAN_ID.to_owned(), SpanKind::Server as i32));
    assert_eq!(top.flags, 0x301);
    assert_eq!(children(&spans, top), ["execute_tool n__fetch", "queue", "run"]);
    let nested = named(&spans, "execute_tool n__fetch");
    assert_eq!(nested.kind, SpanKind::Internal as i32);
    assert_eq!(children(&spans, nested), ["GET", "queue", "run"]);
    for span in &spans {
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        assert!(span.end_time_unix_nano <= top.end_time_unix_nano + 1_000_000, "{span:?}");
        assert!(span.start_time_unix_nano + 1_000_000 >= top.start_time_unix_nano, "{span:?}");
        assert!(span.status.is_none() && span.links.is_empty(), "{span:?}");
    }

    let about = attributes(&top.attributes);
    for (name, expected) in [
        ("mcp.method.name", json!("tools/call")),
        ("gen_ai.operation.name", json!("execute_tool")),
        ("gen_ai.tool.name", json!("i__invoke")),
        ("jsonrpc.request.id", json!("7")),
        ("mcp.protocol.version", json!("2025-11-25")),
        ("network.transport", json!("pipe")),
        ("toolbay.outcome", json!("ok")),
    ] {
        assert_eq!(about.get(name), Some(&expected), "{name}: {about:?}");
    }
    assert!(about["mcp.session.id"].is_string());
    for absent in ["error.type", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "client.address"] {
        assert!(!about.contains_key(absent), "{absent}: {about:?}");
    }
    let run = attributes(&child(&spans, nested, "run").attributes);
    assert!(run["toolbay.plugin.id"] == "n" && run["toolbay.plugin.digest"].as_str().unwrap().len() == 64);
    assert!(run["toolbay.fuel"].as_u64() > Some(0) && run["toolbay.memory_peak"].as_u64() > Some(0));

    let request = named(&spans, "GET");
    let about = attributes(&request.attributes);
    assert_eq!(request.kind, SpanKind::Client as i32);
    assert_eq!(about["url.full"], json!(format!("http://{}/a", api.address)), "without its query");
    assert_eq!(
        (&about["http.response.status_code"], &about["http.request.method"]),
        (&json!(200), &json!("GET"))
    );
    assert_eq!(
        (&about["server.address"], &about["server.port"]),
        (&json!("127.0.0.1"), &json!(api.address.port()))
    );
    // The receiver continues the trace below the request, not below what the guest wrote.
    let sent = &api.all("/a?secret=1")[0].headers;
    assert_eq!(sent["traceparent"], format!("00-{TRACE_ID}-{}-01", hex(&request.span_id)));
    assert_eq!((sent["tracestate"].as_str(), sent["baggage"].as_str()), ("vendor=1", "user=2"));
}

#[test]
fn an_origin_that_is_not_listed_gets_no_context() {
    let (collector, api) = (Recorder::start(200, Duration::ZERO), Recorder::start(404, Duration::ZERO));
    let folder = folder(collector.address, "propagate = [\"https://api.example\"]", Some(api.address));
    let mut server = serve(&folder);
    let fetch = json!({"url": format!("http://{}/b", api.address)});
    call(&mut server, 1, "n__fetch", &fetch, &json!({"traceparent": PARENT, "tracestate": "a=1"}));
    let refused = json!({"url": "http://127.0.0.1:1/"});
    call(&mut server, 2, "n__fetch", &refused, &json!({}));
    end(&mut server);
    let sent = &api.all("/b")[0].headers;
    assert!(!sent.contains_key("traceparent") && !sent.contains_key("tracestate"), "{sent:?}");
    let errors: Vec<_> = (collector.spans().iter())
        .filter(|span| span.name == "GET")
        .map(|span| (attributes(&span.attributes)["error.type"].clone(), span.status.clone().unwrap().code))
        .collect();
    assert_eq!(errors, [(json!("404"), 2), (json!("denied"), 2)]);
}

#[test]
fn the_headers_of_http_are_a_link() {
    let collector = Recorder::start(200, Duration::ZERO);
    let folder = folder(collector.address, "", None);
    let process = ServerProcess::start(folder.command(&["serve", "--http", "127.0.0.1:0"]));
    let line = process.until_told("listening on http://");
    let address = line.rsplit("http://").next().unwrap().trim().trim_end_matches("/mcp").to_owned();
    let message = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {
        "name": "e__echo", "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }})
    .to_string();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: e__echo\r\n\
         traceparent: {PARENT}\r\ncontent-length: {}\r\n\r\n{message}",
        message.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let spans = collector.wait_for_spans(3);
    let top = named(&spans, "tools/call e__echo");
    assert!(top.parent_span_id.is_empty() && hex(&top.trace_id) != TRACE_ID);
    assert_eq!(top.links.len(), 1);
    assert_eq!(
        (hex(&top.links[0].trace_id).as_str(), hex(&top.links[0].span_id).as_str()),
        (TRACE_ID, SPAN_ID)
    );
    let about = attributes(&top.attributes);
    assert_eq!((&about["network.transport"], &about["client.address"]), (&json!("tcp"), &json!("127.0.0.1")));
    assert!(!about.contains_key("mcp.session.id"), "there are no sessions in this era: {about:?}");
}

#[test]
fn a_parent_decides_and_other_traces_are_sampled_by_the_share() {
    let collector = Recorder::start(200, Duration::ZERO);
    let folder = folder(collector.address, "sample = 0", None);
    let mut server = serve(&folder);
    for (id, meta) in
        [(1, json!({})), (2, json!({"traceparent": UNSAMPLED})), (3, json!({"traceparent": PARENT}))]
    {
        call(&mut server, id, "e__echo", &json!({}), &meta);
    }
    end(&mut server);
    let spans = collector.spans();
    assert_eq!(
        spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(),
        ["tools/call e__echo", "queue", "run"]
    );
    assert_eq!(attributes(&spans[0].attributes)["jsonrpc.request.id"], "3");
}

#[test]
fn names_of_callers_are_bounded_and_errors_have_a_type() {
    let collector = Recorder::start(200, Duration::ZERO);
    let folder = folder(collector.address, "arguments = true", None);
    let mut server = serve(&folder);
    for id in 0..20 {
        let name = format!("unknown_{id}\u{202e}{}", "x".repeat(10_000));
        call(&mut server, 100 + id, &name, &json!({}), &json!({"traceparent": "forged", "baggage": "é"}));
    }
    call(&mut server, 1, "e__error", &json!({"code": "not_found"}), &json!({}));
    call(&mut server, 2, "e__echo", &json!({"text": "x".repeat(9000)}), &json!({}));
    end(&mut server);
    let spans = collector.spans();
    let unknown = spans.iter().filter(|span| span.name == "tools/call _OTHER");
    assert_eq!(unknown.clone().count(), 20);
    for span in unknown {
        assert_eq!(attributes(&span.attributes)["gen_ai.tool.name"], "_OTHER");
        assert!(children(&spans, span).is_empty());
    }
    let failed = named(&spans, "tools/call e__error");
    let about = attributes(&failed.attributes);
    assert_eq!((&about["error.type"], failed.status.as_ref().unwrap().code), (&json!("tool_error"), 2));
    assert_eq!(about["gen_ai.tool.call.arguments"], json!("{\"code\":\"not_found\"}"));
    let content =
        attributes(&named(&spans, "tools/call e__echo").attributes)["gen_ai.tool.call.result"].clone();
    assert_eq!(content.as_str().unwrap().chars().count(), 4096);
    // The metrics have the same names.
    let exports = collector.all("/v1/metrics");
    let export = ExportMetricsServiceRequest::decode(&*exports.last().unwrap().body).unwrap();
    let metric = &export.resource_metrics[0].scope_metrics[0].metrics[0];
    assert_eq!((metric.name.as_str(), metric.unit.as_str()), ("mcp.server.operation.duration", "s"));
    let Some(Data::Histogram(histogram)) = &metric.data else { panic!("{metric:?}") };
    let counts: BTreeMap<_, _> = (histogram.data_points.iter())
        .map(|point| {
            assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
            assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
            (attributes(&point.attributes)["gen_ai.tool.name"].to_string(), point.count)
        })
        .collect();
    let expected = [("\"_OTHER\"", 20), ("\"e__echo\"", 1), ("\"e__error\"", 1)];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
}

#[test]
fn a_collector_that_is_down_slow_or_broken_delays_no_call_and_lost_spans_are_counted() {
    let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (broken, slow) = (Recorder::start(500, Duration::ZERO), Recorder::start(200, HANGS));
    for (place, told) in [
        (down, "refused"),
        (broken.address, "responds with status 500"),
        (slow.address, "does not respond within 500 ms"),
    ] {
        let admin = "\n[admin]\nlisten = \"127.0.0.1:0\"\ntokens = \"admin.toml\"\nmetrics = \"open\"";
        let folder = folder(place, admin, None);
        folder.write_private(
            "admin.toml",
            &format!("[[token]]\nname = \"a\"\nsha256 = \"{TEST}\"\nrole = \"view\"\n"),
        );
        let mut command = folder.command(&["serve"]);
        command.stdin(std::process::Stdio::piped()).env("OTEL_EXPORTER_OTLP_TIMEOUT", "500");
        let mut server = ServerProcess::start(command);
        let line = server.until_told("operators reach it on http://");
        let admin = line.rsplit("http://").next().unwrap().trim().to_owned();
        server.initialize();
        let start = Instant::now();
        for id in 1..=50 {
            assert!(call(&mut server, id, "e__echo", &json!({}), &json!({}))["result"].is_object());
        }
        assert!(start.elapsed() < HANGS, "{told}");
        let warning = server.until_told("spans were lost");
        assert!(warning.contains(told), "{warning}");
        let lost = || {
            let mut stream = TcpStream::connect(&admin).unwrap();
            write!(stream, "GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n").unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).unwrap();
            let line = page.lines().find_map(|line| line.strip_prefix("toolbay_spans_lost_total "));
            line.unwrap().parse::<u64>().unwrap()
        };
        wait_until("all spans are counted", || lost() == 150);
    }
}

#[test]
fn a_table_without_a_collector_needs_the_environment() {
    let desk = HostFolder::new("[telemetry]\n");
    desk.run(&["serve"]).says(3, &["[telemetry]", "OTEL_EXPORTER_OTLP_ENDPOINT"]);
    desk.run(&["policy", "check"]).says(0, &[]);
    desk.write_policy("[telemetry]\nsample = 2\n");
    desk.run(&["policy", "check"]).says(2, &["between 0 and 1"]);
    let collector = Recorder::start(200, Duration::ZERO);
    let desk = desk.with_plugin("e", guest_artifacts::API_ECHO);
    desk.write_policy("[telemetry]\n");
    let mut command = desk.command(&["serve"]);
    command.stdin(std::process::Stdio::piped());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address));
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t").env("OTEL_SERVICE_NAME", "mine");
    let mut server = ServerProcess::start(command);
    server.initialize();
    call(&mut server, 1, "e__echo", &json!({}), &json!({}));
    end(&mut server);
    let export = &collector.all("/v1/traces")[0];
    assert_eq!(export.headers["authorization"], "Bearer t");
    assert_eq!(export.headers["content-type"], "application/x-protobuf");
    let decoded = ExportTraceServiceRequest::decode(&*export.body).unwrap();
    let resource = decoded.resource_spans[0].resource.as_ref().unwrap();
    let about = attributes(&resource.attributes);
    assert_eq!((&about["service.name"], about.len()), (&json!("mine"), 3), "{about:?}");
}
