//! Attacks leave no resources behind. Each test runs in its own process, so that its resources can be counted.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use integration_tests::{NEIGHBOUR, TestHost, in_a_process, said_in_a_process, value};
use serde_json::json;
use tokio::sync::Semaphore;
use toolbay::{Filter, HeapTrimmer, Host, PluginId, ToolCall, TurnContext};

use super::compile_bombs::{children, soon};

/// The resources of this process.
#[derive(Debug)]
pub(crate) struct ProcessResources {
    pub(crate) threads: usize,
    pub(crate) files: usize,
    pub(crate) children: usize,
    pub(crate) resident_mib: u64,
}

impl ProcessResources {
    pub(crate) fn now() -> Self {
        let count = |path| fs::read_dir(path).unwrap().count();
        Self {
            threads: count("/proc/self/task"),
            files: count("/proc/self/fd"),
            children: children(),
            resident_mib: field("VmRSS"),
        }
    }

    /// CPU time of all threads so far. A tick is a hundredth of a second on every Linux.
    pub(crate) fn cpu() -> Duration {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let ticks = rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap());
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }
}

fn field(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// The largest resident size since a moment.
pub(crate) struct MemoryCheck(u64);

impl MemoryCheck {
    pub(crate) fn peak_from_here() -> Self {
        fs::write("/proc/self/clear_refs", "5").unwrap();
        Self(field("VmHWM"))
    }

    pub(crate) fn more_mib(&self) -> u64 {
        field("VmHWM") - self.0
    }
}

/// Guests that wait or compute without end take this timeout in each round, and many of them do.
const POLICY: &str =
    "[host]\nparallel_calls = 16\nbreaker_faults = 0\n[limits]\nfuel = 200_000_000\ntimeout = \"300ms\"";

/// Guests that attack at the same time. Most of them wait most of the time.
const AT_ONCE: usize = 4;

/// Every guest except those of other capabilities' tests, and each of its tools, called with empty and invalid arguments.
async fn attack(host: &TestHost) -> String {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let attackers = guest_artifacts::ALL_GUESTS.iter().map(|(name, path)| {
        let (host, permits) = (host.host.clone(), Arc::clone(&permits));
        tokio::spawn(async move {
            let _permit = permits.acquire_owned().await.unwrap();
            attack_with(&host, name, path).await
        })
    });
    let mut said = String::new();
    for attacker in attackers.collect::<Vec<_>>() {
        said += &attacker.await.unwrap();
    }
    said += &format!("{:?}", host.audit.take());
    said
}

async fn attack_with(host: &Host, name: &str, path: &str) -> String {
    let id = PluginId::new(&name.replace('_', "-")).unwrap();
    let loaded = host.load_file(id.clone(), path.as_ref()).await;
    let mut said = format!("{loaded:?}\n");
    let view = host.view(Filter::default());
    let own = |tool: &&str| tool.starts_with(&format!("{id}__"));
    let tools: Vec<String> =
        view.definitions().map(|entry| entry.def.name.as_str()).filter(own).map(str::to_owned).collect();
    let calls = tools
        .iter()
        .flat_map(|tool| {
            [(tool, "{}"), (tool, r#"{"n": 5, "path": "/etc/passwd", "how": "abort", "mib": 4}"#)]
        })
        .enumerate()
        .map(|(n, (tool, args))| ToolCall::new(n.to_string(), tool.as_str(), args))
        .collect();
    for delivered in host.call_all(&view, calls, TurnContext::default()).await {
        said += &format!("{delivered:?}\n");
    }
    host.unload(&id);
    said
}

#[test]
fn attacks_leave_no_resources_behind() {
    // With few arenas, the allocator returns to the same size after each round.
    let limits = "ulimit -c 0; export MALLOC_ARENA_MAX=2";
    if in_a_process("sandbox::leaks::attacks_leave_no_resources_behind", limits) {
        return;
    }
    // A runtime keeps idle threads for blocking work for ten seconds, and the test would wait for their end.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_keep_alive(Duration::from_millis(200)).build().unwrap();
    runtime.block_on(nothing_is_left());
}

/// Waits until at most `threads` threads are left, for thirty seconds at most, and returns the resources.
async fn settled(threads: usize) -> ProcessResources {
    let mut now = ProcessResources::now();
    for _ in 0..300 {
        if now.threads <= threads {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        now = ProcessResources::now();
    }
    now
}

async fn nothing_is_left() {
    let host = TestHost::new(&[], POLICY).await;
    // The first round fills pools, caches and the allocator's arenas.
    attack(&host).await;
    let (mut before, mut after) = (ProcessResources::now(), ProcessResources::now());
    // The allocator's arenas settle eventually. A leak in each round never does.
    let has_grown = |before: &ProcessResources, after: &ProcessResources| {
        after.resident_mib >= before.resident_mib + 32
            || after.threads > before.threads + 1
            || after.files > before.files
    };
    for _ in 0..8 {
        before = after;
        attack(&host).await;
        after = settled(before.threads + 1).await;
        if !has_grown(&before, &after) {
            break;
        }
    }
    assert_eq!(host.host.available_call_permits(), 16);
    assert!(!has_grown(&before, &after), "{before:?}, then {after:?}");
    assert_eq!((before.children, after.children), (0, 0));
    assert_eq!(fs::read_dir(host.root()).unwrap().count(), 0, "a file is left in the workspace");
    assert_eq!(value(&host.call(&format!("{NEIGHBOUR}__echo"), json!({})).await), "{}");
}

/// Neither a secret in the environment of the host nor the output of guests appears anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_environment_is_nowhere_and_stdout_is_ours() {
    const NAME: &str = "sandbox::leaks::a_secret_of_the_environment_is_nowhere_and_stdout_is_ours";
    const CANARY: &str = "canary-5e1f0c";
    let environment = format!("ulimit -c 0; export AWS_SECRET_ACCESS_KEY={CANARY} TOOLBAY_X={CANARY}");
    if let Some((stdout, stderr)) = said_in_a_process(NAME, &environment) {
        assert!(!stdout.contains(CANARY) && !stderr.contains(CANARY), "{stdout:.2000}");
        // The output of libtest for one test, without a line of a guest.
        let foreign: Vec<_> = stdout
            .lines()
            .filter(|line| {
                !line.is_empty() && !line.starts_with("running 1 test") && !line.starts_with("test ")
            })
            .collect();
        assert_eq!(foreign, Vec::<&str>::new());
        assert!(stderr.contains("toolbay::guest"), "the log was written: {stderr:.500}");
        return;
    }
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .init();
    let host = TestHost::new(&[], POLICY).await;
    let said = attack(&host).await;
    assert!(said.len() > 10_000 && !said.contains(CANARY));
}

/// The C library keeps freed memory until it is asked to return it.
#[test]
fn memory_after_bombs_is_near_that_of_the_start() {
    const NAME: &str = "sandbox::leaks::memory_after_bombs_is_near_that_of_the_start";
    if in_a_process(NAME, "ulimit -c 0") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _trimmer = HeapTrimmer::start();
        let bombs = [("big", guest_artifacts::HOSTILE_OUTPUT), ("alloc", guest_artifacts::HOSTILE_ALLOC)];
        let host =
            TestHost::new(&bombs, "[host]\nbreaker_faults = 0\n[limits]\nresult_bytes = \"16MiB\"\n").await;
        let view = host.host.view(Filter::default());
        let bombs = ["big__structured", "big__text", "big__blob", "big__deep", "alloc__grow"];
        let calls = |count: usize, args: &str| -> Vec<_> {
            (0..count).map(|n| ToolCall::new(n.to_string(), bombs[n % bombs.len()], args)).collect()
        };
        // A host that has served calls, as one in use.
        drop(host.host.call_all(&view, calls(5, r#"{"mib": 1}"#), TurnContext::default()).await);
        let start = ProcessResources::now().resident_mib;
        let peak = MemoryCheck::peak_from_here();
        drop(host.host.call_all(&view, calls(10, r#"{"mib": 15}"#), TurnContext::default()).await);
        assert!(peak.more_mib() > start / 2, "{} MiB more than {start} are no bomb", peak.more_mib());
        soon("the memory stays", || ProcessResources::now().resident_mib * 2 <= start * 3).await;
    });
}
