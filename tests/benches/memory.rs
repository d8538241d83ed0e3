//! The memory of each layer: bare wasmtime, the library, the library with one native tool. Each runs in a separate
//! process of this program. Servers are measured from outside.
//!
//! `cargo bench --bench all -- memory`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use toolbay::core::tool::content::ToolOutput;
use toolbay::{Filter, Host, PluginId, Policy, ToolCall, TurnContext, native_tool};

use crate::figures::keep;
use crate::floor::{ARGS, BareStore};
use crate::process::{RunningProgram, status_kib};

/// The variable that turns this program into one of the processes.
pub(crate) const ALONE: &str = "TOOLBAY_ALONE";
const SIDES: [(&str, &str); 3] =
    [("floor", "bare wasmtime"), ("library", "`call_all`"), ("native_tool", "`call_all`, a native tool")];
const CALLS: usize = 10_000;

pub(crate) fn run() {
    println!("\n| a process of its own | idle, MB | at most in {CALLS} calls, MB |\n|---|---|---|");
    for (side, name) in SIDES {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--bench").env(ALONE, side).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = RunningProgram(command.spawn().unwrap());
        let mut said = BufReader::new(child.0.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let idle = resident(&child, "VmRSS");
        child.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\ndone\n", "of {side}");
        let most = resident(&child, "VmHWM");
        println!("| {name} | {idle:.1} | {most:.1} |");
        keep(&format!("{side}_idle_mb"), idle);
        keep(&format!("{side}_most_mb"), most);
    }
}

fn resident(child: &RunningProgram, key: &str) -> f64 {
    status_kib(child.0.id(), key).unwrap() as f64 / 1024.0
}

/// One of the processes: prepares, calls, then waits for its end.
pub(crate) fn alone(side: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let told = |word: &str| println!("{word}");
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    if side == "floor" {
        let bare = BareStore::new();
        runtime.block_on(bare.call(false));
        told("ready");
        input.read_line(&mut line).unwrap();
        (0..CALLS).for_each(|_| runtime.block_on(bare.call(false)));
    } else {
        let (host, tool) = runtime.block_on(host(side));
        let view = host.view(Filter::default());
        let call = || async {
            let calls = vec![ToolCall::new("1", tool, ARGS)];
            assert!(host.call_all(&view, calls, TurnContext::default()).await[0].result.is_ok());
        };
        runtime.block_on(call());
        told("ready");
        input.read_line(&mut line).unwrap();
        (0..CALLS).for_each(|_| runtime.block_on(call()));
    }
    told("done");
    input.read_line(&mut line).unwrap();
}

async fn host(side: &str) -> (Host, &'static str) {
    let host = Host::builder(Policy::deny_all(Path::new("/"))).no_cache().build().unwrap();
    if side == "library" {
        let bytes = std::fs::read(guest_artifacts::BENCH_ECHO).unwrap();
        host.load_bytes(PluginId::new("bench").unwrap(), bytes).await.unwrap();
        return (host, "bench__echo");
    }
    let echo = native_tool("echo").description("Says the text again.");
    let echo =
        echo.run(|args, _| async move { Ok(ToolOutput::text(args["text"].as_str().unwrap_or_default())) });
    host.register(vec![echo.unwrap()]).unwrap();
    (host, "echo")
}
