//! Batches of 64 calls of an echo, as models make them: in the sandbox beside bare wasmtime, and in-process tools beside
//! what people use instead.
//!
//! `cargo bench --bench all -- batch`; `cargo xtask peers` runs it with the peers that can be installed. A peer is named
//! by the variable `TOOLBAY_PEERS`, `NAME=COMMAND;…`: the command prints its calls a second for each line it reads.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use toolbay::core::content::ToolOutput;
use toolbay::{Filter, Host, PluginId, Policy, ToolCall, TurnContext, native_tool};

use crate::figures::{median, rounds};
use crate::floor::{ARGS, Bare};

const BATCH: usize = 64;
const ROUNDS: usize = 9;
const SPAN: Duration = Duration::from_millis(500);

pub(crate) fn run() {
    let runtime = Runtime::new().unwrap();
    let bare = Arc::new(Bare::new());
    let host = Arc::new(host(&runtime));
    let mut peers = peers();
    let (mut floor, mut sandbox, mut native, mut outside) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // As agents do: in a task of the runtime.
    let in_task = |tool: &'static str| {
        let host = Arc::clone(&host);
        runtime.block_on(runtime.spawn(async move { batches(&host, tool).await })).unwrap()
    };
    for _ in 0..rounds(ROUNDS) {
        floor.push(two_threads(&bare));
        sandbox.push(in_task("bench__echo"));
        outside.push(runtime.block_on(batches(&host, "bench__echo")));
        native.push(in_task("native"));
        peers.iter_mut().for_each(Peer::round);
    }
    let [floor, sandbox, native, outside] =
        [floor, sandbox, native, outside].map(|mut rates| median(&mut rates));
    println!("\n| batches of 64 calls, two processors | calls/s | to bare wasmtime |\n|---|---|---|");
    println!("| bare wasmtime, two threads, no batch | {floor:.0} | 1 |");
    println!("| `call_all`, each call in a fresh instance | {sandbox:.0} | {:.2} |", sandbox / floor);
    println!(
        "| the same, from a thread that is none of the runtime's | {outside:.0} | {:.2} |",
        outside / floor
    );
    println!("| `call_all`, a native tool | {native:.0} | {:.2} |", native / floor);
    for peer in &mut peers {
        let (name, rate) = (&peer.name, median(&mut peer.rates));
        println!(
            "| {name} | {rate:.0} | sandbox {:.1} times, native {:.1} times as many |",
            sandbox / rate,
            native / rate
        );
    }
}

fn host(runtime: &Runtime) -> Host {
    let audit = Arc::new(crate::calls::Counted::default());
    let host = Host::builder(Policy::deny_all(Path::new("/"))).audit(audit).build().unwrap();
    let bytes = std::fs::read(guest_artifacts::BENCH_ECHO).unwrap();
    runtime.block_on(host.load_bytes(PluginId::new("bench").unwrap(), bytes)).unwrap();
    let echo = native_tool("native")
        .description("Says the text again.")
        .input_schema(serde_json::json!({"type": "object", "properties": {"text": {"type": "string"}}}))
        .run(|args, _| async move { Ok(ToolOutput::text(args["text"].as_str().unwrap_or_default())) })
        .unwrap();
    host.register(vec![echo]).unwrap();
    host
}

async fn batches(host: &Host, tool: &str) -> f64 {
    let view = &host.view(Filter::default());
    let (start, mut done) = (Instant::now(), 0u32);
    while start.elapsed() < SPAN {
        let calls = (0..BATCH).map(|n| ToolCall::new(n.to_string(), tool, ARGS)).collect();
        let results = host.call_all(view, calls, TurnContext::default()).await;
        assert!(results.len() == BATCH && results.iter().all(|r| r.result.is_ok()), "{:?}", results[0]);
        done += BATCH as u32;
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}

fn two_threads(bare: &Arc<Bare>) -> f64 {
    let threads = [(); 2].map(|()| {
        let bare = Arc::clone(bare);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (start, mut done) = (Instant::now(), 0u32);
            while start.elapsed() < SPAN {
                (0..BATCH).for_each(|_| runtime.block_on(bare.call(false)));
                done += BATCH as u32;
            }
            f64::from(done) / start.elapsed().as_secs_f64()
        })
    });
    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
}

/// Another program that measures itself when it is told to.
struct Peer {
    name: String,
    child: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    rates: Vec<f64>,
}

impl Peer {
    fn round(&mut self) {
        writeln!(self.ask.as_mut().unwrap()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        self.rates.push(answer.trim().parse().unwrap());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.ask.take());
        drop(self.child.wait());
    }
}

fn peers() -> Vec<Peer> {
    let named = std::env::var("TOOLBAY_PEERS").unwrap_or_default();
    let peer = |entry: &str| {
        let (name, command) = entry.split_once('=').unwrap();
        let mut words = command.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Peer { name: name.to_owned(), ask: child.stdin.take(), answers, child, rates: Vec::new() }
    };
    named.split(';').filter(|entry| !entry.is_empty()).map(peer).collect()
}
