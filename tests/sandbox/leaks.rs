//! Attacks leave no resources behind. Each test runs in its own process, so that its resources can be counted.

use std::fs;
use std::time::Duration;

use integration_tests::{NEIGHBOUR, TestHost, in_a_process, said_in_a_process, value};
use serde_json::json;
use toolbay::{Filter, PluginId, ToolCall, TurnContext};

use super::compile_bombs::children;

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

const POLICY: &str =
    "[host]\nparallel_calls = 16\nbreaker_faults = 0\n[limits]\nfuel = 200_000_000\ntimeout = \"1s\"";

/// Every guest except those of other capabilities' tests, and each of its tools, called with empty and invalid arguments.
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
async fn attacks_leave_no_resources_behind() {
    if in_a_process("sandbox::leaks::attacks_leave_no_resources_behind", "ulimit -c 0") {
        return;
    }
    let host = TestHost::new(&[], POLICY).await;
    // The first rounds fill pools, caches and the allocator's arenas.
    for _ in 0..2 {
        attack(&host).await;
    }
    // The allocator's arenas settle eventually. A leak in each round never does.
    let (mut before, mut after) = (ProcessResources::now(), ProcessResources::now());
    for _ in 0..4 {
        before = after;
        for _ in 0..2 {
            attack(&host).await;
        }
        after = ProcessResources::now();
        println!("{before:?}\n{after:?}");
        if after.resident_mib < before.resident_mib + 64 {
            break;
        }
    }
    // The runtime keeps idle threads for blocking work for ten seconds.
    for _ in 0..300 {
        if after.threads <= before.threads + 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        after.threads = ProcessResources::now().threads;
    }
    assert_eq!(host.host.available_call_permits(), 16);
    assert!(after.resident_mib < before.resident_mib + 64, "{before:?}, then {after:?}");
    assert!(after.threads <= before.threads + 2 && after.files <= before.files, "{before:?}, then {after:?}");
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
