//! How the cost of many granted plugins grows: the first start, a restart, and one edit of the policy.
//!
//! `cargo bench --bench all -- growth`. Targets: 1,600 plugins take at most 4.4 times the processor time and the written
//! bytes of 400. All plugins are the same component, which is compiled before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;
use toolbay::{FileConsents, Host, Policy};

use crate::figures::keep;

const FEW: usize = 400;
const MANY: usize = 1600;
const STEPS: [&str; 3] = ["first start", "restart", "policy edit"];
const MAX_RATIO: f64 = 4.4;
const STABLE_AGE: Duration = Duration::from_secs(4);

/// What this process has spent so far.
#[derive(Clone, Copy)]
struct Spending {
    cpu_ms: f64,
    written: f64,
}

pub(crate) fn run() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let [compiled, few, many] = [("compiled", 1), ("few", FEW), ("many", MANY)]
        .map(|(name, count)| GrantedPlugins::create(dir.path().join(name), count));
    // The host reads files again that are younger, because their time of change may not show the next change.
    std::thread::sleep(STABLE_AGE);
    compiled.measure(&cache);
    let (few, many) = (few.measure(&cache), many.measure(&cache));
    println!(
        "\n| granted plugins | CPU ms of {FEW} | of {MANY} | ratio | KB written by {FEW} | by {MANY} | ratio |"
    );
    println!("|---|---|---|---|---|---|---|");
    for ((step, few), many) in STEPS.iter().zip(few).zip(many) {
        let (time, bytes) = (many.cpu_ms / few.cpu_ms.max(1.0), many.written / few.written.max(1.0));
        println!(
            "| {step} | {:.0} | {:.0} | {time:.2} | {:.0} | {:.0} | {bytes:.2} |",
            few.cpu_ms,
            many.cpu_ms,
            few.written / 1e3,
            many.written / 1e3
        );
        let name = step.replace(' ', "_");
        keep(&format!("growth_{name}_cpu_ratio"), time);
        keep(&format!("growth_{name}_bytes_ratio"), bytes);
        assert!(time <= MAX_RATIO && bytes <= MAX_RATIO, "{step}: {time:.2} and {bytes:.2}");
    }
}

/// A folder of plugins, and the policy that grants something to each.
struct GrantedPlugins {
    folder: PathBuf,
    policy: String,
    count: usize,
}

impl GrantedPlugins {
    fn create(folder: PathBuf, count: usize) -> Self {
        let plugins = folder.join("plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        let mut policy = "version = 1\n".to_owned();
        for n in 0..count {
            std::fs::copy(guest_artifacts::BENCH_GRANTED, plugins.join(format!("p{n:04}.wasm"))).unwrap();
            policy += &format!("[plugins.p{n:04}.grant]\nkv = [\"plugin\"]\nclock = true\n");
        }
        Self { folder, policy, count }
    }

    /// What each step costs.
    fn measure(&self, cache: &Path) -> [Spending; 3] {
        let parse = |text: &str| Policy::parse(text, &self.folder, None).unwrap();
        // Threads end with their runtime, and their time counts for the process.
        let runtime = Runtime::new().unwrap();
        let start = || {
            let consents = FileConsents::new(self.folder.join("state"));
            let host = Host::builder(parse(&self.policy))
                .cache_dir(cache)
                .consents(std::sync::Arc::new(consents))
                .build()
                .unwrap();
            let loaded = runtime.block_on(host.load_dir(&self.folder.join("plugins"))).unwrap().loaded.len();
            assert_eq!(loaded, self.count);
            host
        };
        let first = spent(|| drop(start()));
        let mut host = None;
        let restart = spent(|| host = Some(start()));
        let edited = format!("{}[limits]\ntimeout = \"7s\"\n", self.policy);
        let edit = spent(|| drop(runtime.block_on(host.unwrap().reload_policy(parse(&edited))).unwrap()));
        [first, restart, edit]
    }
}

fn spent(step: impl FnOnce()) -> Spending {
    let before = Spending::so_far();
    step();
    let after = Spending::so_far();
    Spending { cpu_ms: after.cpu_ms - before.cpu_ms, written: after.written - before.written }
}

impl Spending {
    fn so_far() -> Self {
        let spent = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
        let io = std::fs::read_to_string("/proc/self/io").unwrap();
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        Self { cpu_ms: spent.as_secs_f64() * 1e3, written: written.parse().unwrap() }
    }
}
