//! Batches of 64 echo calls, as models make them: in the sandbox beside bare wasmtime, and native tools beside common
//! alternatives.
//!
//! `cargo bench --bench all -- batch`. `cargo xtask peers` runs it with the installable peers from a file. Each peer's
//! command prints its calls per second for each line it reads.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use toolbay::core::tool::content::ToolOutput;
use toolbay::{Filter, Host, PluginId, Policy, ToolCall, TurnContext, native_tool};

use crate::figures::{keep, median, print_table, rounds};
use crate::floor::{ARGS, BareStore};
use crate::peers::{named, strings};
use crate::process::RunningProgram;

const BATCH: usize = 64;
const ROUNDS: usize = 9;
const SPAN: Duration = Duration::from_millis(500);

pub(crate) fn run() {
    let runtime = Runtime::new().unwrap();
    let bare = Arc::new(BareStore::new());
    let host = Arc::new(host(&runtime));
    let mut peers = peers();
    let (mut floor, mut sandbox, mut native, mut outside) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // In a task of the runtime, as in an agent.
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
    keep("floor_batch_per_s", floor);
    keep("library_batch_per_s", sandbox);
    keep("native_batch_per_s", native);
    let mut text =
        "\n| batches of 64 calls, two processors | calls/s | to bare wasmtime |\n|---|---|---|\n".to_owned();
    for (name, rate) in [
        ("bare wasmtime, two threads, no batch", floor),
        ("`call_all`, each call in a fresh instance", sandbox),
        ("the same, from a thread that is none of the runtime's", outside),
        ("`call_all`, a native tool", native),
    ] {
        text += &format!("| {name} | {rate:.0} | {:.2} |\n", rate / floor);
    }
    text += &peers.iter_mut().map(|peer| peer.row(sandbox, native)).collect::<String>();
    print_table(&text);
}

fn host(runtime: &Runtime) -> Host {
    let audit = Arc::new(crate::library::CountedCall::default());
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

fn two_threads(bare: &Arc<BareStore>) -> f64 {
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

/// Another program that measures itself on request.
struct Peer {
    name: String,
    child: RunningProgram,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    rates: Vec<f64>,
    failed: bool,
}

impl Peer {
    fn of(named: &serde_json::Value) -> Self {
        let command = strings(&named["command"]);
        let mut child = Command::new(&command[0]);
        child.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let (name, ask) = (named["name"].as_str().unwrap_or_default().to_owned(), child.stdin.take());
        Self { name, ask, answers, child: RunningProgram(child), rates: Vec::new(), failed: false }
    }

    fn round(&mut self) {
        match self.rate().filter(|_| !self.failed) {
            Some(rate) => self.rates.push(rate),
            None => self.failed = true,
        }
    }

    fn rate(&mut self) -> Option<f64> {
        writeln!(self.ask.as_mut()?).ok()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).ok()?;
        answer.trim().parse().ok()
    }

    fn row(&mut self, sandbox: f64, native: f64) -> String {
        let name = &self.name;
        if self.failed {
            return format!("| {name} | failed, see what it printed | |\n");
        }
        let rate = median(&mut self.rates);
        keep(&format!("batch_sandbox_to_{name}"), sandbox / rate);
        keep(&format!("batch_native_to_{name}"), native / rate);
        format!(
            "| {name} | {rate:.0} | sandbox {:.1} times, native {:.1} times as many |\n",
            sandbox / rate,
            native / rate
        )
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.ask.take());
        // A program whose input ends stops. A failed program may not.
        if !self.failed {
            drop(self.child.0.wait());
        }
    }
}

fn peers() -> Vec<Peer> {
    named("batches").iter().map(Peer::of).collect()
}
