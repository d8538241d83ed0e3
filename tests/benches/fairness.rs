//! How much a quiet plugin is delayed by a busy one and by the host's own work for others, and the cost of an unused grant,
//! as ratios in one run.
//!
//! `cargo bench --bench all -- fairness`. Two workers on any machine. Targets: the quiet plugin's p99 beside 64 spinning
//! calls is within ten times its p99 alone, and no call takes a second; the p99 of a fifth plugin beside 100 sleeping calls on
//! four plugins is below a second under the default limits; its p99 beside unknown names and long results of others is below
//! 250 ms; a plugin with every grant costs at most 1.15 times a plugin
//! without grants.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::figures::{keep, rounds};
use crate::registry::tool;
use tokio::runtime::Runtime;
use toolbay::core::tool::content::ToolOutput;
use toolbay::{Filter, Host, PluginId, Policy, ToolCall, TurnContext, View, native_tool};

const CALLS: usize = 2000;
const ROUNDS: usize = 15;

/// The declarations of the guest `bench_granted` as grants of a policy, one per line.
const GRANTS: &[(&str, &str)] = &[
    ("", "fs_read = [\"$workspace\"]"),
    ("", "fs_write = [\"$workspace\"]"),
    ("", "net = [\"https://api.example.com\"]"),
    ("[programs.git]\npath = \"/usr/bin/git\"", "process = [\"git\"]"),
    (
        "[secrets.token]\nfrom = \"env:TOKEN\"\norigins = [\"https://api.example.com\"]",
        "secrets = [\"token\"]",
    ),
    ("", "kv = [\"plugin\"]"),
    ("", "env = [\"LANG\"]"),
    ("", "attachments = [\"read\"]"),
    ("", "clock = true"),
    ("", "random = true"),
];

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    neighbours(&runtime);
    sleepers(&runtime);
    host_work(&runtime);
    grants(&runtime);
}

fn host(runtime: &Runtime, policy: &str, guests: &[(&str, &str)], workspace: &Path) -> (Host, View) {
    let policy = Policy::parse(&format!("version = 1\n{policy}"), workspace, None).unwrap();
    let host = Host::builder(policy).build().unwrap();
    for (id, path) in guests {
        let bytes = std::fs::read(path).unwrap();
        runtime.block_on(host.load_bytes(PluginId::new(id).unwrap(), bytes)).unwrap();
    }
    let view = host.view(Filter::default());
    (host, view)
}

async fn call(host: &Host, view: &View, tool: &str) -> f64 {
    let start = Instant::now();
    let calls = vec![ToolCall::new("1", tool, "{}")];
    let results = host.call_all(view, calls, TurnContext::default()).await;
    assert!(results[0].result.is_ok(), "{:?}", results[0].result);
    start.elapsed().as_secs_f64() * 1e6
}

fn neighbours(runtime: &Runtime) {
    let policy = "[host]\nparallel_calls = 128\nbreaker_faults = 0\n[plugins.loud.limits]\nfuel = 1_000_000_000_000_000\ntimeout = \"600s\"\nconcurrency = 64";
    let guests = [("loud", guest_artifacts::HOSTILE_SPIN), ("quiet", guest_artifacts::BENCH_ECHO)];
    let (host, view) = host(runtime, policy, &guests, Path::new("/"));
    println!(
        "\n| spinning calls on two workers | quiet p50 µs | p99 µs | most µs | p99 to alone |\n|---|---|---|---|---|"
    );
    let mut alone = 0.0;
    for spinning in [0, 1, 16, 64] {
        let turn = TurnContext::default();
        let cancel = turn.cancel.clone();
        let loud = (spinning > 0).then(|| {
            let (host, view) = (host.clone(), view.clone());
            let calls = (0..spinning).map(|n| ToolCall::new(n.to_string(), "loud__spin", "{}")).collect();
            runtime.spawn(async move { host.call_all(&view, calls, turn).await })
        });
        while host.available_call_permits() > 128 - spinning {
            std::thread::sleep(Duration::from_millis(1));
        }
        let count = if spinning == 0 { CALLS } else { CALLS / 2 };
        let (host, view) = (host.clone(), view.clone());
        let quiet = runtime.spawn(async move {
            let mut times = Vec::with_capacity(count);
            for _ in 0..count {
                // Like a request: in a new task, after a pause in which the runtime did something else.
                tokio::time::sleep(Duration::from_millis(2)).await;
                let (start, host, view) = (Instant::now(), host.clone(), view.clone());
                tokio::spawn(async move { call(&host, &view, "quiet__echo").await }).await.unwrap();
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            times
        });
        let mut times = runtime.block_on(quiet).unwrap();
        cancel.cancel();
        if let Some(loud) = loud {
            assert_eq!(runtime.block_on(loud).unwrap().len(), spinning);
        }
        times.sort_by(f64::total_cmp);
        let (p50, p99, most) = (times[count / 2], times[count * 99 / 100], times[count - 1]);
        alone = if spinning == 0 { p99 } else { alone };
        println!("| {spinning} | {p50:.0} | {p99:.0} | {most:.0} | {:.1} |", p99 / alone);
        match spinning {
            0 => keep("quiet_p99_us", p99),
            16 => keep("spin16_neighbour_p99_us", p99),
            _ => {}
        }
        assert!(most < 1e6, "a call took a second");
    }
}

/// Calls that only wait, on four plugins, and the calls of a fifth, under the default limits.
fn sleepers(runtime: &Runtime) {
    const SLEEPING: usize = 25;
    const FOUR: [&str; 4] = ["a", "b", "c", "d"];
    let mut guests = FOUR.map(|id| (id, guest_artifacts::HOSTILE_SLEEP)).to_vec();
    guests.push(("quiet", guest_artifacts::BENCH_ECHO));
    let (host, view) = host(runtime, "", &guests, Path::new("/"));
    println!("\n| sleeping calls on four plugins | fifth p50 µs | p99 µs | most µs |\n|---|---|---|---|");
    for sleeping in [0, SLEEPING] {
        let turn = TurnContext::default();
        let cancel = turn.cancel.clone();
        let free = host.available_call_permits();
        let asleep: Vec<_> = FOUR
            .iter()
            .filter(|_| sleeping > 0)
            .map(|id| {
                let (host, view, turn) = (host.clone(), view.clone(), turn.clone());
                let call =
                    |n: usize| ToolCall::new(n.to_string(), format!("{id}__sleep"), r#"{"ms": 29000}"#);
                let calls = (0..sleeping).map(call).collect();
                runtime.spawn(async move { host.call_all(&view, calls, turn).await })
            })
            .collect();
        // Each of the four runs up to its limit, and the rest waits.
        while sleeping > 0 && host.available_call_permits() > free / 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(200));
        let (quiet_host, quiet_view, count) = (host.clone(), view.clone(), CALLS / 2);
        let quiet = runtime.spawn(async move {
            let mut times = Vec::with_capacity(count);
            for _ in 0..count {
                tokio::time::sleep(Duration::from_millis(2)).await;
                times.push(call(&quiet_host, &quiet_view, "quiet__echo").await);
            }
            times
        });
        let mut times = runtime.block_on(quiet).unwrap();
        assert!(asleep.iter().all(|calls| !calls.is_finished()), "they slept all the time");
        cancel.cancel();
        for calls in asleep {
            assert_eq!(runtime.block_on(calls).unwrap().len(), sleeping);
        }
        times.sort_by(f64::total_cmp);
        let (p50, p99, most) = (times[count / 2], times[count * 99 / 100], times[count - 1]);
        println!("| {} | {p50:.0} | {p99:.0} | {most:.0} |", sleeping * FOUR.len());
        if sleeping > 0 {
            keep("sleep100_fifth_p99_us", p99);
            assert!(p99 < 1e6, "the fifth plugin waits for those that sleep");
        }
    }
}

/// Work that the host does around the calls of others: suggestions for unknown names among 1,850 tools, and long results that
/// are marked.
fn host_work(runtime: &Runtime) {
    const LONG: usize = 15 << 20;
    let (host, _) = host(runtime, "", &[("quiet", guest_artifacts::BENCH_ECHO)], Path::new("/"));
    let mut brackets = native_tool("brackets")
        .description("Returns brackets.")
        .run(|_, _| async { Ok(ToolOutput::text("[".repeat(LONG))) })
        .unwrap();
    Arc::make_mut(&mut brackets.def).traits.untrusted_output = true;
    host.register((0..1850).map(tool).chain([brackets]).collect::<Vec<_>>()).unwrap();
    let view = host.view(Filter::default());
    println!("\n| work of the host | quiet p50 µs | p99 µs | most µs |\n|---|---|---|---|");
    for (what, tool, count, keeps) in [
        ("64 unknown names", "space7__toool_0021", 64, "unknown64_quiet_p99_us"),
        ("250 unknown names", "space7__toool_0021", 250, "unknown250_quiet_p99_us"),
        ("4 results of 15 MB of brackets", "brackets", 4, "marking_quiet_p99_us"),
    ] {
        let busy: Vec<_> = (0..count)
            .map(|n| {
                let (host, view) = (host.clone(), view.clone());
                let call = ToolCall::new(n.to_string(), tool, "{}");
                runtime.spawn(async move { host.call_all(&view, vec![call], TurnContext::default()).await })
            })
            .collect();
        let (quiet_host, quiet_view) = (host.clone(), view.clone());
        let quiet = runtime.spawn(async move {
            let mut times = Vec::new();
            while times.len() < CALLS / 10 || busy.iter().any(|task| !task.is_finished()) {
                times.push(call(&quiet_host, &quiet_view, "quiet__echo").await);
            }
            times
        });
        let mut times = runtime.block_on(quiet).unwrap();
        times.sort_by(f64::total_cmp);
        let (p50, p99, most) =
            (times[times.len() / 2], times[times.len() * 99 / 100], times[times.len() - 1]);
        println!("| {what} | {p50:.0} | {p99:.0} | {most:.0} |");
        keep(keeps, p99);
        assert!(p99 < 250e3, "the quiet plugin waits for the host's work");
    }
}

fn grants(runtime: &Runtime) {
    let workspace = tempfile::tempdir().unwrap();
    // Capabilities that this build cannot grant are left out.
    let (mut tables, mut lines) = (String::new(), String::new());
    for (table, line) in GRANTS {
        let with = format!("{tables}{table}\n[plugins.granted.grant]\n{lines}{line}\n");
        if Policy::parse(&format!("version = 1\n{with}"), workspace.path(), None).is_ok() {
            tables += &format!("{table}\n");
            lines += &format!("{line}\n");
        } else {
            println!("\nnot granted: `{line}`");
        }
    }
    let policy = format!("{tables}[plugins.granted.grant]\n{lines}");
    let guests = [("bare", guest_artifacts::BENCH_GRANTED), ("granted", guest_artifacts::BENCH_GRANTED)];
    let (host, view) = host(runtime, &policy, &guests, workspace.path());
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds(ROUNDS) {
        for (times, tool) in times.iter_mut().zip(["bare__echo", "granted__echo"]) {
            let (host, view) = (host.clone(), view.clone());
            let round = runtime.spawn(async move {
                let mut times = Vec::with_capacity(CALLS);
                for _ in 0..CALLS {
                    times.push(call(&host, &view, tool).await);
                }
                times
            });
            times.extend(runtime.block_on(round).unwrap());
        }
    }
    let [bare, granted] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (times[times.len() / 2], times[times.len() * 99 / 100])
    });
    println!("\n| one plugin, nothing used | p50 µs | p99 µs | ratio of p50 |\n|---|---|---|---|");
    println!("| nothing granted | {:.1} | {:.1} | 1 |", bare.0, bare.1);
    println!("| everything granted | {:.1} | {:.1} | {:.2} |", granted.0, granted.1, granted.0 / bare.0);
}
