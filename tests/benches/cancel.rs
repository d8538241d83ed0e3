//! How long a call runs after it was cancelled, for several kinds of work.
//!
//! `cargo bench --bench all -- cancel` prints the table. The target for each is half a second.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use toolbay::core::pipeline::outcome;
use toolbay::{Filter, Host, PluginId, Policy, ToolCall, TurnContext};

use crate::figures::median;

const ROUNDS: usize = 40;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("\n| cancelled while | ended after, median ms | most ms |\n|---|---|---|");
    runtime.block_on(measure());
}

async fn measure() {
    let address = silent().await;
    let spin = (vec![("loud__spin", "{}".to_owned())], "it spins");
    let many = (vec![("loud__spin", "{}".to_owned()); 16], "sixteen spin on two workers");
    let sleep = (vec![("sleep__sleep", "{}".to_owned())], "it sleeps");
    let url = format!(r#"{{"url":"http://{address}/","n":1}}"#);
    let request = (vec![("http__fetch", url)], "a server does not answer");
    let child = r#"{"program":"sleep","args":["1000"]}"#.to_owned();
    let program = (vec![("p__run", child)], "a program runs");
    let queued = (vec![("sleep__sleep", "{}".to_owned()); 80], "64 sleep, 16 wait for a place");
    for (calls, what) in [spin, many, sleep, request, program, queued] {
        let host = host(address).await;
        let mut times: Vec<f64> = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            times.push(cancelled(&host, &calls).await.as_secs_f64() * 1e3);
        }
        let most = times.iter().copied().fold(0.0, f64::max);
        println!("| {what} | {:.1} | {most:.1} |", median(&mut times));
        assert!(most < 500.0, "{what}");
    }
}

async fn host(address: SocketAddr) -> Host {
    let policy = format!(
        "version = 1\n[programs.sleep]\npath = \"/bin/sleep\"\n[plugins.p.grant]\nprocess = [\"sleep *\"]\n\
         [plugins.http.grant]\nnet = [\"http://{address}\"]\nnet_private = [\"127.0.0.1\"]\n\
         [host]\nbreaker_faults = 0\n[limits]\nfuel = 1_000_000_000_000_000\ntimeout = \"600s\"\nconcurrency = 64"
    );
    let host = Host::builder(Policy::parse(&policy, Path::new("/tmp"), None).unwrap()).build().unwrap();
    for (id, path) in [
        ("loud", guest_artifacts::HOSTILE_SPIN),
        ("sleep", guest_artifacts::HOSTILE_SLEEP),
        ("http", guest_artifacts::BENCH_HTTP),
        ("p", guest_artifacts::CAP_PROCESS),
    ] {
        let bytes = std::fs::read(path).unwrap();
        host.load_bytes(PluginId::new(id).unwrap(), bytes).await.unwrap();
    }
    host
}

/// From the cancellation to the last result.
async fn cancelled(host: &Host, calls: &[(&str, String)]) -> Duration {
    let calls: Vec<ToolCall> = calls
        .iter()
        .enumerate()
        .map(|(n, (tool, args))| ToolCall::new(n.to_string(), *tool, args.as_str()))
        .collect();
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let (host, view) = (host.clone(), host.view(Filter::default()));
    let running = tokio::spawn(async move { host.call_all(&view, calls, turn).await });
    tokio::time::sleep(Duration::from_millis(60)).await;
    let start = Instant::now();
    cancel.cancel();
    let results = running.await.unwrap();
    let took = start.elapsed();
    assert!(results.iter().all(|r| outcome(&r.result) == "cancelled"), "{:?}", results[0].result);
    took
}

/// Accepts connections and sends nothing.
async fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    address
}
