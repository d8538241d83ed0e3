//! The cost of a guest's request through the host, as a ratio to native clients of the same server on the loopback
//! interface: hyper's pooling client, which parses an address and finds an idle connection for each request as the host
//! does; and, as the lower bound, one connection of hyper, without addresses. The same guest over bare wasmtime, with
//! hyper's client behind its import, shows the cost of the transfer to the guest.
//!
//! `cargo bench --bench all -- http` prints the table. The sides alternate in short rounds.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use crate::floor;
use crate::library::LibraryBench;
use bindings::toolbay::plugin::http_client::{HttpError, HttpRequest, HttpResponse};

mod bindings {
    #![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "generated")]
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "package toolbay:bench; world only { import toolbay:plugin/http-client@0.1.0; }",
        world: "toolbay:bench/only",
        imports: { default: async },
    });
}

const ROUNDS: usize = 40;
const REQUESTS: usize = 200;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!(
        "| GET over one kept connection | hyper, one connection, µs | hyper's client, µs | that, handed to a guest by bare wasmtime, µs | from a guest, µs | to the client | to the client in a guest |\n|---|---|---|---|---|---|---|"
    );
    for bytes in [100, 10_000, 100_000] {
        // In a task, as in a server.
        runtime.block_on(runtime.spawn(compare(bytes))).unwrap();
    }
}

async fn compare(bytes: usize) {
    let address = serve(bytes).await;
    let mut bare = BareHost::new(address).await;
    let client = Pooled::new(address);
    let (library, args) = (library(address).await, args(address));
    let handed = FixedResponse::new(address);
    let (mut direct, mut pooled, mut floor, mut guest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..REQUESTS {
            assert_eq!(bare.get().await, bytes);
        }
        direct.push(start.elapsed());
        let start = Instant::now();
        for _ in 0..REQUESTS {
            assert_eq!(client.get().await, bytes);
        }
        pooled.push(start.elapsed());
        let start = Instant::now();
        assert_eq!(handed.get().await, (bytes * REQUESTS).to_string());
        floor.push(start.elapsed());
        let start = Instant::now();
        assert_eq!(library.call("bench__fetch", &args).await, (bytes * REQUESTS).to_string());
        guest.push(start.elapsed());
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e6 / REQUESTS as f64
    };
    let [direct, pooled, floor, guest] = [direct, pooled, floor, guest].map(median);
    println!(
        "| {bytes} bytes | {direct:.1} | {pooled:.1} | {floor:.1} | {guest:.1} | {:.2} | {:.2} |",
        guest / pooled,
        guest / floor
    );
}

/// Answers every request with this number of bytes.
async fn serve(bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let body = Bytes::from(vec![b'x'; bytes]);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let body = body.clone();
            let service = hyper::service::service_fn(move |_: Request<Incoming>| {
                let body = body.clone();
                async move { Ok::<_, hyper::Error>(Response::new(Full::new(body))) }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    address
}

struct BareHost {
    sender: http1::SendRequest<Empty<Bytes>>,
    host: String,
}

impl BareHost {
    async fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, host: address.to_string() }
    }

    async fn get(&mut self) -> usize {
        self.sender.ready().await.unwrap();
        let request = Request::get("/").header("host", &self.host).body(Empty::new()).unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes().len()
    }
}

/// The client that a program would use.
struct Pooled {
    client: Client<HttpConnector, Empty<Bytes>>,
    url: String,
}

impl Pooled {
    fn new(address: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Self { client, url: format!("http://{address}/") }
    }

    async fn get(&self) -> usize {
        let request = Request::get(&self.url).body(Empty::new()).unwrap();
        // With a timeout, as every program has one.
        let response = tokio::time::timeout(Duration::from_secs(30), self.client.request(request));
        response.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes().len()
    }
}

/// The same guest over bare wasmtime: hyper's client behind the import, without grants, limits or record.
struct FixedResponse {
    bare: floor::BareStore,
    args: String,
}

impl FixedResponse {
    fn new(address: SocketAddr) -> Self {
        let client = Pooled::new(address).client;
        let fetch = move |request: HttpRequest| {
            let client = client.clone();
            async move {
                let mut builder = Request::builder().method(request.method.as_str()).uri(&request.url);
                for (name, value) in &request.headers {
                    builder = builder.header(name, value);
                }
                let sent = client.request(builder.body(Empty::new()).unwrap());
                let (head, body) = sent.await.unwrap().into_parts();
                let text = |value: &hyper::header::HeaderValue| {
                    String::from_utf8_lossy(value.as_bytes()).into_owned()
                };
                let headers =
                    head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
                let body = body.collect().await.unwrap().to_bytes().into();
                HttpResponse {
                    status: head.status.as_u16(),
                    url: request.url,
                    headers,
                    body,
                    truncated: false,
                }
            }
        };
        let bare = floor::BareStore::over(guest_artifacts::BENCH_HTTP, |linker| {
            let mut at = linker.instance("toolbay:plugin/http-client@0.1.0").unwrap();
            at.func_wrap_async("fetch", move |_, (request,): (HttpRequest,)| {
                let response = fetch(request);
                Box::new(async move { Ok((Ok::<HttpResponse, HttpError>(response.await),)) })
            })
            .unwrap();
        });
        Self { bare, args: args(address) }
    }

    async fn get(&self) -> String {
        self.bare.tool("fetch", &self.args, false).await
    }
}

/// The arguments of the guest.
fn args(address: SocketAddr) -> String {
    format!("{{\"url\":\"http://{address}/\",\"n\":{REQUESTS}}}")
}

/// The guest in a host that may reach the server.
async fn library(address: SocketAddr) -> LibraryBench {
    let policy = format!(
        "[plugins.bench.grant]\nnet = [\"http://{address}\"]\nnet_private = [\"127.0.0.1\"]\n\
         [plugins.bench.limits]\nhttp_requests = 1_000_000\nhttp_bytes = \"1GiB\"\ntimeout = \"10m\""
    );
    LibraryBench::of(guest_artifacts::BENCH_HTTP, &policy, Path::new("/"), |builder| builder).await
}
