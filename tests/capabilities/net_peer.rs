//! `http-client`: no response of a server harms the host.

use std::time::{Duration, Instant};

use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder};
use integration_tests::{TestHost, fault, outcome, structured};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{Filter, Host, PluginId, ToolCall, TurnContext};

use crate::loopback::{LoopbackReply, LoopbackServer, redirect, response, tls_config};

use super::net_fixture::{SOON, WaitingCalls, fetch, hello, host, kind, lines, message, open};

/// Encodes `bytes` with one of the encoders.
macro_rules! encode {
    ($encoder:ident, $bytes:expr) => {{
        let mut encoder = $encoder::new(Vec::new());
        encoder.write_all($bytes).await.unwrap();
        encoder.shutdown().await.unwrap();
        encoder.into_inner()
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_make_room_for_waiting_requests() {
    let slow = |_: &crate::loopback::ReceivedRequest| {
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(200)));
        response(200, "", "late")
    };
    let (one, two) = (LoopbackServer::new(slow).await, LoopbackServer::new(slow).await);
    let lines = super::net_fixture::lines(&[&one, &two], &["127.0.0.1"]);
    let host = super::net_fixture::host(&format!("{lines}\n[host]\nhttp_connections = 1")).await;
    let call = |server: &LoopbackServer| {
        toolbay::ToolCall::new(
            server.port().to_string(),
            "net__fetch",
            json!({ "url": server.url("/") }).to_string(),
        )
    };
    let view = host.host.view(toolbay::Filter::default());
    let start = std::time::Instant::now();
    let both = host.host.call_all(&view, vec![call(&one), call(&two)], TurnContext::default()).await;
    for delivered in &both {
        assert_eq!(structured(delivered)["status"], 200, "{delivered:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_decoded_and_bounded() {
    let text = "hello ".repeat(100);
    // Eighty times the limit, in a tenth of it.
    let bomb = encode!(GzipEncoder, &vec![0; 20 << 20]);
    assert!(bomb.len() < 25 << 10);
    let twice = encode!(GzipEncoder, &bomb);
    let zipped = encode!(GzipEncoder, text.as_bytes());
    let brotli = encode!(BrotliEncoder, text.as_bytes());
    let zlib = encode!(ZlibEncoder, text.as_bytes());
    // An empty stored block: it decodes to nothing, and another block may follow.
    let mut nothing = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    nothing.extend([0, 0, 0, 0xff, 0xff].repeat(1000));
    let server = LoopbackServer::new(move |seen| match seen.path() {
        "/gzip" => response(200, "content-encoding: gzip\r\n", &zipped),
        "/br" => response(200, "content-encoding: br\r\n", &brotli),
        "/deflate" => response(200, "content-encoding: deflate\r\n", &zlib),
        "/cut" => response(200, "content-encoding: gzip\r\n", &zipped[..zipped.len() - 12]),
        "/not" => response(200, "content-encoding: gzip\r\n", "plain"),
        "/none" => response(204, "content-encoding: gzip\r\n", ""),
        "/bomb" => response(200, "content-encoding: gzip\r\n", &bomb),
        "/twice" => response(200, "content-encoding: gzip, gzip\r\n", &twice),
        "/nothing" => LoopbackReply::Endless(
            b"HTTP/1.1 200 X\r\ncontent-encoding: gzip\r\n\r\n"
                .to_vec()
                .into_iter()
                .chain(nothing.clone())
                .collect(),
            [0, 0, 0, 0xff, 0xff].repeat(2000),
            Duration::from_micros(1),
        ),
        "/endless" => LoopbackReply::Endless(
            b"HTTP/1.1 200 X\r\n\r\n".to_vec(),
            vec![b'x'; 65_536],
            Duration::from_micros(1),
        ),
        "/big" => response(200, "", vec![b'x'; 1 << 20]),
        _ => response(200, "", seen.body.len().to_string()),
    })
    .await;
    let limits = "[plugins.net.limits]\nhttp_bytes = \"256KiB\"";
    let host = host(&format!("{}\n{limits}", lines(&[&server], &["127.0.0.1"]))).await;
    for path in ["/gzip", "/br", "/deflate"] {
        let said = fetch(&host, json!({ "url": server.url(path) })).await;
        assert_eq!(said["body"], text, "{path}: {said}");
        assert!(!said["headers"].to_string().contains("content-encoding"), "{said}");
    }
    for path in ["/cut", "/not"] {
        let said = fetch(&host, json!({ "url": server.url(path) })).await;
        assert_eq!(kind(&said), "transport", "{path}: {said}");
    }
    assert_eq!(fetch(&host, json!({ "url": server.url("/none") })).await["status"], 204);
    assert_eq!(fetch(&host, json!({ "url": server.url("/twice") })).await["status"], 200, "left as it is");
    for path in ["/bomb", "/nothing", "/endless", "/big"] {
        let said = structured(&host.provoke("net__fetch", json!({ "url": server.url(path) }), SOON).await);
        assert_eq!(kind(&said), "denied", "{path}: {said}");
        assert!(message(&said).contains("the limit `http_bytes` is 256KiB"), "{path}: {said}");
    }
    for path in ["/bomb", "/endless", "/big"] {
        let said = fetch(&host, json!({ "url": server.url(path), "max": 1000 })).await;
        assert_eq!(
            (said["len"].as_u64(), said["truncated"].as_bool()),
            (Some(1000), Some(true)),
            "{path}: {said}"
        );
    }
    let said = fetch(&host, json!({ "url": server.url("/gzip"), "max": text.len() })).await;
    assert_eq!((said["len"].as_u64(), said["truncated"].as_bool()), (Some(text.len() as u64), Some(false)));
    let said = fetch(&host, json!({ "url": server.url("/gzip"), "max": 0 })).await;
    assert_eq!((said["len"].as_u64(), said["truncated"].as_bool()), (Some(0), Some(true)), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sent_and_received_bytes_are_counted() {
    let server = LoopbackServer::new(|seen| response(200, "", seen.body.len().to_string())).await;
    let limits = "[plugins.net.limits]\nhttp_bytes = \"2MiB\"";
    let host = host(&format!("{}\n{limits}", lines(&[&server], &["127.0.0.1"]))).await;
    let said =
        fetch(&host, json!({ "url": server.url("/x"), "method": "POST", "body_bytes": 1 << 20 })).await;
    assert_eq!(said["body"], (1 << 20).to_string(), "{said}");
    let before = server.seen().len();
    let said =
        fetch(&host, json!({ "url": server.url("/x"), "method": "POST", "body_bytes": 3 << 20 })).await;
    assert!(kind(&said) == "denied" && message(&said).contains("http_bytes"), "{said}");
    assert_eq!(server.seen().len(), before);
    let all = host.ask(
        "net__repeat",
        json!({ "url": server.url("/x"), "method": "POST", "body_bytes": 500_000, "n": 6 }),
    );
    let all = all.await;
    assert_eq!(all["good"], 4, "the bytes of a call are one sum: {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_byte_limit_bounds_bodies() {
    let server = LoopbackServer::new(|_| response(200, "", vec![b'x'; 2 << 20])).await;
    let limits = "[plugins.net.limits]\nhost_call_bytes = \"1MiB\"";
    let host = host(&format!("{}\n{limits}", lines(&[&server], &["127.0.0.1"]))).await;
    let said = fetch(&host, json!({ "url": server.url("/") })).await;
    assert!(message(&said).contains("`host_call_bytes`"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn time_is_bounded_and_abandoned_connections_are_closed() {
    let head = b"HTTP/1.1 200 X\r\ncontent-length: 100000\r\n\r\n";
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/silent" => LoopbackReply::Silence,
        "/slow" => LoopbackReply::Endless(head.to_vec(), b"x".to_vec(), Duration::from_millis(50)),
        "/flood" => LoopbackReply::Endless(
            Vec::new(),
            b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100),
            Duration::from_micros(1),
        ),
        "/head" => {
            LoopbackReply::Endless(b"HTTP/1.1 200 X\r\n".to_vec(), b"x".to_vec(), Duration::from_millis(50))
        }
        _ => response(200, "", ""),
    })
    .await;
    let paths = ["/silent", "/slow", "/flood", "/head"];
    let grant = lines(&[&server], &["127.0.0.1"]);
    let policy = format!(
        "[plugins.net.grant]\n{grant}\n[plugins.brief.grant]\n{grant}\n[plugins.brief.limits]\ntimeout = \"1s\""
    );
    let host = TestHost::new(&["net", "brief"].map(|id| (id, guest_artifacts::CAP_NET)), &policy).await;
    for path in paths {
        let said = structured(
            &host.provoke("net__fetch", json!({ "url": server.url(path), "timeout_ms": 300 }), SOON).await,
        );
        assert_eq!(kind(&said), "timeout", "{path}: {said}");
        server.all_closed(Duration::from_secs(5)).await;
    }
    // The timeout of the call.
    let delivered = host.provoke("brief__fetch", json!({ "url": server.url("/slow") }), SOON).await;
    let timed_out = outcome(&delivered) == "ok" && kind(&structured(&delivered)) == "timeout";
    assert!(timed_out || fault(&delivered).kind == FaultKind::Deadline, "{delivered:?}");
    server.all_closed(Duration::from_secs(5)).await;
    // A cancelled call.
    for path in paths {
        let cancel = CancellationToken::new();
        let turn = TurnContext { cancel: cancel.clone(), ..TurnContext::default() };
        let args = json!({ "url": server.url(path) }).to_string();
        let before = server.seen().len();
        let seen = async {
            while server.seen().len() == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Some of the response arrives.
            tokio::time::sleep(Duration::from_millis(100)).await;
            cancel.cancel();
            Instant::now()
        };
        let (delivered, cancelled) = tokio::join!(host.call_in("net__fetch", &args, turn), seen);
        assert!(cancelled.elapsed() < Duration::from_secs(3), "{path}");
        assert_eq!(fault(&delivered).kind, FaultKind::Cancelled, "{path}: {delivered:?}");
        server.all_closed(Duration::from_secs(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_breaks_the_protocol_is_an_error() {
    let server = LoopbackServer::new(|seen| {
        let head = "HTTP/1.1 200 X\r\n";
        let text = match seen.path() {
            "/two-lengths" => format!("{head}content-length: 5\r\ncontent-length: 6\r\n\r\nhello!"),
            "/length-list" => format!("{head}content-length: 5, 6\r\n\r\nhello!"),
            "/length-minus" => format!("{head}content-length: -1\r\n\r\nhello"),
            "/length-plus" => format!("{head}content-length: +5\r\n\r\nhello"),
            "/short" => format!("{head}content-length: 50\r\n\r\nhello"),
            "/chunk" => format!("{head}transfer-encoding: chunked\r\n\r\n5\r\nhel"),
            "/chunk-size" => format!("{head}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nhel"),
            "/garbage" => "SSH-2.0-OpenSSH_9.6\r\n\r\n".to_owned(),
            "/old" => "hello".to_owned(),
            "/empty" => String::new(),
            "/space" => format!("{head}x : y\r\ncontent-length: 0\r\n\r\n"),
            "/fold" => format!("{head}x: y\r\n z\r\ncontent-length: 0\r\n\r\n"),
            "/nul" => format!("{head}x: a\0b\r\ncontent-length: 0\r\n\r\n"),
            "/many" => format!("{head}{}\r\n", "x: y\r\n".repeat(1000)),
            "/huge" => format!("{head}x: {}\r\n\r\n", "y".repeat(1 << 20)),
            "/upgrade" => "HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned(),
            path => panic!("{path}"),
        };
        LoopbackReply::Last(text.into_bytes())
    })
    .await;
    let host = open(&[&server]).await;
    for path in [
        "/two-lengths",
        "/length-list",
        "/length-minus",
        "/length-plus",
        "/short",
        "/chunk",
        "/chunk-size",
        "/garbage",
        "/old",
        "/empty",
        "/space",
        "/fold",
        "/nul",
        "/many",
        "/huge",
        "/upgrade",
    ] {
        let said = structured(&host.provoke("net__fetch", json!({ "url": server.url(path) }), SOON).await);
        assert_eq!(kind(&said), "transport", "{path}: {said}");
        assert!(message(&said).len() < 500, "{path}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_redirects_included() {
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/twice" => redirect(302, "/end"),
        _ => response(200, "", ""),
    })
    .await;
    let limits = "[plugins.net.limits]\nhttp_requests = 5";
    let host = host(&format!("{}\n{limits}", lines(&[&server], &["127.0.0.1"]))).await;
    for (path, good, seen) in [("/", 5, 5), ("/twice", 2, 5)] {
        let before = server.seen().len();
        let said = host.ask("net__repeat", json!({ "url": server.url(path), "n": 20 })).await;
        assert_eq!((&said["good"], server.seen().len() - before), (&json!(good), seen), "{said}");
        assert!(message(&said["last"]).contains("the limit `http_requests` is 5; the operator"), "{said}");
        if path == "/" {
            assert_eq!(server.opened(), 1, "one connection was used for all");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connections_of_the_host_are_bounded_and_no_plugin_uses_anothers() {
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/wait" => LoopbackReply::Endless(Vec::new(), Vec::new(), Duration::from_secs(60)),
        _ => response(200, "", ""),
    })
    .await;
    let grant = lines(&[&server], &["127.0.0.1"]);
    let policy =
        format!("[host]\nhttp_connections = 8\n[plugins.net.grant]\n{grant}\n[plugins.two.grant]\n{grant}");
    let host =
        TestHost::new(&[("net", guest_artifacts::CAP_NET), ("two", guest_artifacts::CAP_NET)], &policy).await;
    for (tool, opened) in [("net", 1), ("net", 1), ("two", 2), ("net", 2)] {
        let said = host.ask(&format!("{tool}__fetch"), json!({ "url": server.url("/") })).await;
        assert_eq!((said["status"].as_u64(), server.opened()), (Some(200), opened), "{tool}: {said}");
    }
    let wait = |n: u64, args: Value| {
        (0..n).map(|n| ToolCall::new(n.to_string(), "net__fetch", args.to_string())).collect::<Vec<_>>()
    };
    let before = server.seen().len();
    let first = WaitingCalls::start(&host.host, wait(2, json!({ "url": server.url("/wait") })));
    while server.seen().len() < before + 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let others = wait(4, json!({ "url": server.url("/wait"), "timeout_ms": 500 }));
    let view = host.host.view(Filter::default());
    let others = host.host.call_all(&view, others, TurnContext::default()).await;
    assert_eq!(server.seen().len(), before + 2, "the others find no place");
    assert!(others.iter().all(|one| kind(&structured(one)) == "timeout"), "{others:?}");
    let (ended, waited) = first.cancel().await;
    assert_eq!(waited, 2, "{ended:?}");
    // The other plugin keeps its connection for its next request.
    server.all_closed_but(1, SOON).await;
    assert_eq!(
        host.ask("two__fetch", json!({ "url": server.url("/") })).await["status"],
        200,
        "the places are free again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_verifies_the_requested_name() {
    let (server, pem) = LoopbackServer::tls(&["localhost"], hello).await;
    let port = server.port();
    let net = json!([format!("https://localhost:{port}"), format!("https://127.0.0.1:{port}")]);
    let text = format!("[plugins.net.grant]\nnet = {net}\nnet_private = [\"127.0.0.0/8\", \"::1\"]");
    let untrusting = TestHost::new(&[("net", guest_artifacts::CAP_NET)], &text).await;
    let said = fetch(&untrusting, json!({ "url": format!("https://localhost:{port}/") })).await;
    assert_eq!(kind(&said), "transport", "{said}");
    let host = trusting(&text, &pem).await;
    for (name, expected) in [("localhost", "ok"), ("127.0.0.1", "transport")] {
        let said = ask(&host, json!({ "url": format!("https://{name}:{port}/") })).await;
        assert_eq!(kind(&said), expected, "{name}: {said}");
    }
    assert_eq!(server.seen().len(), 1);
    // The same port without TLS is another scheme.
    let said = ask(&host, json!({ "url": format!("http://localhost:{port}/") })).await;
    assert_eq!(kind(&said), "denied", "{said}");
    let policy = integration_tests::policy(&text, std::path::Path::new("/"));
    assert!(Host::builder(policy.clone()).tls_roots_pem("no PEM").build().is_err());
}

async fn trusting(policy: &str, pem: &str) -> Host {
    let policy = integration_tests::policy(policy, std::path::Path::new("/"));
    let host =
        Host::builder(policy).cache_dir(integration_tests::cache_dir()).tls_roots_pem(pem).build().unwrap();
    host.load_file(PluginId::new("net").unwrap(), std::path::Path::new(guest_artifacts::CAP_NET))
        .await
        .unwrap();
    host
}

async fn ask(host: &Host, args: Value) -> Value {
    let calls = vec![ToolCall::new("1", "net__fetch", args.to_string())];
    structured(&host.call_all(&host.view(Filter::default()), calls, TurnContext::default()).await[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_spoken_where_the_peer_offers_it() {
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let (mut config, pem) = tls_config(&["localhost"]);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (ended, mut ends) = tokio::sync::mpsc::channel(10);
    let server = tokio::spawn(async move {
        loop {
            let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let service =
                hyper::service::service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                    if request.uri().path() == "/hang" {
                        std::future::pending::<()>().await;
                    }
                    let said = format!(
                        "{:?} {} {:?}",
                        request.version(),
                        request.uri(),
                        request.headers().get("host")
                    );
                    let body = request.into_body().collect().await?.to_bytes();
                    let said = format!("{said} {}", body.len());
                    Ok::<_, hyper::Error>(hyper::Response::new(Full::new(bytes::Bytes::from(said))))
                });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let served = http.serve_connection(TokioIo::new(stream), service);
            let ended = ended.clone();
            tokio::spawn(async move {
                drop(served.await);
                ended.send(()).await.unwrap();
            });
        }
    });
    let origin = format!("https://localhost:{port}");
    let host = trusting(
        &format!("[plugins.net.grant]\nnet = [{origin:?}]\nnet_private = [\"127.0.0.0/8\", \"::1\"]"),
        &pem,
    )
    .await;
    for n in [0, 500_000] {
        let args = json!({ "url": format!("{origin}/a?b"), "method": "POST", "body_bytes": n });
        let said = ask(&host, args).await;
        assert_eq!(said["body"], format!("HTTP/2.0 {origin}/a?b None {n}"), "{said}");
    }
    assert!(ends.try_recv().is_err(), "the connection is kept");
    let said = ask(&host, json!({ "url": format!("{origin}/hang"), "timeout_ms": 300 })).await;
    assert_eq!(kind(&said), "timeout", "{said}");
    tokio::time::timeout(SOON, ends.recv()).await.expect("what is given up is closed");
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsolicited_response_is_not_matched_to_the_next_request() {
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/poison" => {
            let one = "HTTP/1.1 200 X\r\ncontent-length: 4\r\n\r\n";
            LoopbackReply::Bytes(format!("{one}real{one}fake").into_bytes())
        }
        _ => response(200, "", "good"),
    })
    .await;
    let host = open(&[&server]).await;
    for _ in 0..20 {
        let all = json!([{ "url": server.url("/poison") }, { "url": server.url("/") }]);
        let said = host.ask("net__fetch_all", json!({ "all": all })).await;
        assert_eq!(said["all"][0]["body"], "real", "{said}");
        assert_ne!(said["all"][1]["body"], "fake", "{said}");
    }
}
