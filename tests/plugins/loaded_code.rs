//! Compiled code that has not been called for long is dropped from memory, and loaded again on demand.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use integration_tests::{fill_cache, outcome, policy};
use toolbay::{Filter, Host, LoadedCode, PluginId, ToolCall, TurnContext};

/// Three plugins in a folder, and a cache for them alone.
struct CachedTrio {
    dir: tempfile::TempDir,
}

const GUESTS: [(&str, &str); 3] = [
    ("text", guest_artifacts::API_ECHO),
    ("state", guest_artifacts::HOSTILE_STATE),
    ("sleep", guest_artifacts::HOSTILE_SLEEP),
];
const CALLS: [(&str, &str); 3] =
    [("text__echo", "{}"), ("state__count", "{}"), ("sleep__sleep", r#"{"ms":1}"#)];

impl CachedTrio {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let this = Self { dir };
        fs::create_dir(this.plugins()).unwrap();
        for (name, from) in GUESTS {
            fs::copy(from, this.plugins().join(format!("{name}.wasm"))).unwrap();
        }
        fill_cache(&this.cache(), &GUESTS.map(|(_, from)| from)).await;
        this
    }

    fn plugins(&self) -> PathBuf {
        self.dir.path().join("plugins")
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    /// A host with this limit for code in memory, with the plugins loaded.
    async fn host(&self, code_bytes: u64) -> Host {
        let text = format!("[host]\ncode_bytes = {code_bytes}");
        let host = Host::builder(policy(&text, self.dir.path())).cache_dir(self.cache()).build().unwrap();
        let report = host.load_dir(&self.plugins()).await.unwrap();
        assert_eq!(report.loaded.len(), 3, "{:?}", report.problems);
        host
    }

    /// The size of each plugin's code, and the total.
    async fn sizes(&self) -> ([u64; 3], u64) {
        drop(self.host(u64::MAX).await);
        let host = self.host(u64::MAX).await;
        assert_eq!(host.loaded_code().bytes, 0, "nothing is mapped before the first call");
        let (mut sizes, mut before) = ([0; 3], 0);
        for (size, (tool, args)) in sizes.iter_mut().zip(CALLS) {
            call(&host, tool, args).await;
            *size = host.loaded_code().bytes - before;
            before += *size;
        }
        assert!(sizes.iter().all(|size| *size > 10_000), "{sizes:?}");
        (sizes, before)
    }

    /// How many cache files this process has mapped.
    fn mapped(&self) -> usize {
        let cache = self.cache().canonicalize().unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let files = maps.lines().filter_map(|line| line.split_once(cache.to_str().unwrap()));
        files.map(|(_, file)| file.to_owned()).collect::<std::collections::BTreeSet<_>>().len()
    }
}

async fn call(host: &Host, tool: &str, args: &str) {
    let view = host.view(Filter::default());
    let delivered = host.call_all(&view, vec![ToolCall::new("1", tool, args)], TurnContext::default()).await;
    assert_eq!(outcome(&delivered[0]), "ok", "{tool}");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_plugins_take_turns_in_the_room_of_two() {
    let three = CachedTrio::new().await;
    let (sizes, all) = three.sizes().await;
    let most = all - sizes.iter().min().unwrap();
    let host = three.host(most).await;
    for round in 0..10 {
        for (tool, args) in CALLS {
            call(&host, tool, args).await;
            let LoadedCode { plugins, bytes, limit: told, .. } = host.loaded_code();
            assert!(bytes <= most && told == most && plugins <= 2, "round {round}: {:?}", host.loaded_code());
            if cfg!(target_os = "linux") {
                assert!(three.mapped() <= 2, "what was dropped is not unmapped");
            }
        }
    }
    assert!(host.loaded_code().dropped >= 20, "{:?}", host.loaded_code());
    // Concurrent calls in any order: each has its code.
    let view = host.view(Filter::default());
    let calls = (0..300).map(|n| ToolCall::new(n.to_string(), CALLS[n % 3].0, CALLS[n % 3].1)).collect();
    let delivered = host.call_all(&view, calls, TurnContext::default()).await;
    assert!(delivered.iter().all(|one| outcome(one) == "ok"));
    assert!(host.loaded_code().bytes <= most);
}

#[tokio::test(flavor = "multi_thread")]
async fn recently_called_code_stays_in_memory() {
    let three = CachedTrio::new().await;
    let (_, all) = three.sizes().await;
    let host = three.host(all - 1).await;
    for (tool, args) in CALLS.iter().take(2) {
        call(&host, tool, args).await;
    }
    // The first plugin is called again after the clock of uses has advanced, so the second one is dropped.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(400) {
        call(&host, CALLS[0].0, CALLS[0].1).await;
    }
    call(&host, CALLS[2].0, CALLS[2].1).await;
    assert_eq!(host.loaded_code().dropped, 1);
    call(&host, CALLS[0].0, CALLS[0].1).await;
    assert_eq!(host.loaded_code().dropped, 1, "it was still there");
    call(&host, CALLS[1].0, CALLS[1].1).await;
    assert_eq!(host.loaded_code().dropped, 2, "it was not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_keeps_the_code_it_runs_on() {
    let three = CachedTrio::new().await;
    let _ = three.sizes().await;
    // The code that was mapped last stays, even alone above the limit.
    let host = three.host(1).await;
    let long = {
        let host = host.clone();
        tokio::spawn(async move { call(&host, "sleep__sleep", r#"{"ms":1500}"#).await })
    };
    while host.available_call_permits() == 64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (tool, args) in CALLS.iter().take(2) {
        call(&host, tool, args).await;
        assert_eq!(host.loaded_code().plugins, 1);
    }
    assert!(!long.is_finished(), "it was to be in flight meanwhile");
    assert_eq!(host.loaded_code().dropped, 2);
    long.await.unwrap();
    if cfg!(target_os = "linux") {
        assert_eq!(three.mapped(), 1, "it went with the call");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_cannot_be_reloaded_stays_in_memory() {
    let three = CachedTrio::new().await;
    let builder = Host::builder(policy("[host]\ncode_bytes = 1", three.dir.path()));
    let host = builder.no_cache().build().unwrap();
    host.load_dir(&three.plugins()).await.unwrap();
    for (tool, args) in CALLS {
        call(&host, tool, args).await;
    }
    assert_eq!((host.loaded_code().plugins, host.loaded_code().dropped), (3, 0));
    // Without the file.
    let host = three.host(1).await;
    let bytes = fs::read(guest_artifacts::HOSTILE_SPIN).unwrap();
    host.load_bytes(PluginId::new("hash").unwrap(), bytes).await.unwrap();
    for _ in 0..2 {
        for (tool, args) in CALLS {
            call(&host, tool, args).await;
        }
        assert_eq!(host.loaded_code().plugins, 2, "the one without a file, and the last one");
    }
    // The cache has lost an entry. No other code is dropped, and nothing is lost.
    for file in fs::read_dir(three.cache()).unwrap() {
        fs::remove_file(file.unwrap().path()).ok();
    }
    let before = host.loaded_code().dropped;
    call(&host, CALLS[0].0, CALLS[0].1).await;
    assert_eq!(host.loaded_code().dropped, before, "what the cache has no more is not dropped");
    call(&host, CALLS[2].0, CALLS[2].1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_version_that_still_runs_keeps_its_code() {
    let three = CachedTrio::new().await;
    let _ = three.sizes().await;
    let host = three.host(1).await;
    call(&host, CALLS[0].0, CALLS[0].1).await;
    fs::write(three.plugins().join("text.wasm"), "broken").unwrap();
    let report = host.rescan().await;
    assert!(report.problems[0].kept, "{:?}", report.problems);
    for (tool, args) in CALLS.iter().skip(1) {
        call(&host, tool, args).await;
    }
    fs::remove_dir_all(three.cache()).unwrap();
    call(&host, CALLS[0].0, CALLS[0].1).await;
    assert!(!Path::new(&three.cache()).exists());
}
