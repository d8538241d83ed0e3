//! What stays after attacks: nothing. Each test runs in a process of its own, which can be counted.

use std::fs;
use std::time::Duration;

use integration_tests::{NEIGHBOUR, TestHost, in_a_process, said_in_a_process, value};
use serde_json::json;
use toolbay::{Filter, PluginId, ToolCall, TurnContext};

use super::compile_bombs::children;

/// What this process holds.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) threads: usize,
    pub(crate) files: usize,
    pub(crate) children: usize,
    pub(crate) resident_mib: u64,
}

impl Process {
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
pub(crate) struct Memory(u64);

impl Memory {
    pub(crate) fn peak_from_here() -> Self {
        fs::write("/proc/self/clear_refs", "5").unwrap();
        Self(field("VmHWM"))
    }

    pub(crate) fn more_mib(&self) -> u64 {
        field("VmHWM") - self.0
    }
}

const POLICY: &str =
    "[host]\nparallel_calls = 16\nbreaker_faults = 0\n[limits]\nfuel = 200_000_000\ntimeout = \"1s\"";

/// Every guest but those of other capabilities' tests, and every tool of it, called with nothing and with nonsense.
async fn attack(host: &TestHost) -> String {
    let mut said = String::new();
    for (name, path) in guest_artifacts::ALL_GUESTS {
        let id = PluginId::new(&name.replace('_', "-")).unwrap();
        let loaded = host.host.load_file(id.clone(), path.as_ref()).await;
        said += &format!("{loaded:?}\n");
        let view = host.host.view(Filter::default());
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
        for delivered in host.host.call_all(&view, calls, TurnContext::default()).await {
            said += &format!("{delivered:?}\n");
        }
        host.host.unload(&id);
    }
    said += &format!("{:?}", host.audit.take());
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_after_attacks() {
    if in_a_process("sandbox::leaks::nothing_stays_after_attacks", "ulimit -c 0") {
        return;
    }
    let host = TestHost::new(&[], POLICY).await;
    // The first rounds fill pools, caches and the allocator's arenas.
    for _ in 0..2 {
        attack(&host).await;
    }
    // The allocator's arenas settle, sooner or later; what is lost in each round never does.
    let (mut before, mut after) = (Process::now(), Process::now());
    for _ in 0..4 {
        before = after;
        for _ in 0..2 {
            attack(&host).await;
        }
        after = Process::now();
        println!("{before:?}\n{after:?}");
        if after.resident_mib < before.resident_mib + 64 {
            break;
        }
    }
    // The runtime keeps threads for blocking work ten seconds after they had some; then they go.
    for _ in 0..300 {
        if after.threads <= before.threads + 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        after.threads = Process::now().threads;
    }
    assert_eq!(host.host.free_places(), 16);
    assert!(after.resident_mib < before.resident_mib + 64, "{before:?}, then {after:?}");
    assert!(after.threads <= before.threads + 2 && after.files <= before.files, "{before:?}, then {after:?}");
    assert_eq!((before.children, after.children), (0, 0));
    assert_eq!(fs::read_dir(host.root()).unwrap().count(), 0, "a file is left in the workspace");
    assert_eq!(value(&host.call(&format!("{NEIGHBOUR}__echo"), json!({})).await), "{}");
}

/// A secret of the host's environment, and what guests print, come out nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_environment_is_nowhere_and_stdout_is_ours() {
    const NAME: &str = "sandbox::leaks::a_secret_of_the_environment_is_nowhere_and_stdout_is_ours";
    const CANARY: &str = "canary-5e1f0c";
    let environment = format!("ulimit -c 0; export AWS_SECRET_ACCESS_KEY={CANARY} TOOLBAY_X={CANARY}");
    if let Some((stdout, stderr)) = said_in_a_process(NAME, &environment) {
        assert!(!stdout.contains(CANARY) && !stderr.contains(CANARY), "{stdout:.2000}");
        // What libtest prints about one test, and not a line of a guest.
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
