//! A faulty cache of compiled code: full, read-only, of another version, or with swapped files. The host notices each
//! fault, reports it, and compiles again. A plugin works whatever the state of its cache.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_tests::{outcome, policy, said_in_a_process};
use sha2::{Digest, Sha256};
use toolbay::{Filter, Host, HostBuilder, LoadEvent, PluginId, ToolCall, TurnContext};

/// Two plugins and the folder of their cache.
struct CachedPair {
    dir: tempfile::TempDir,
    cache: PathBuf,
}

const PLUGINS: [(&str, &str, &str, &str); 2] = [
    ("echo", guest_artifacts::BENCH_ECHO, "echo__echo", "{}"),
    ("api", guest_artifacts::API_ECHO, "api__echo", "{}"),
];

impl CachedPair {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("plugins")).unwrap();
        for (id, file, ..) in PLUGINS {
            fs::copy(file, dir.path().join("plugins").join(id).with_extension("wasm")).unwrap();
        }
        let cache = dir.path().join("cache");
        Self { dir, cache }
    }

    /// Starts a host, calls both plugins, and returns how many were compiled at load or at a call.
    async fn start(&self) -> usize {
        self.start_with(|builder| builder.cache_dir(&self.cache)).await
    }

    /// The same with other settings of the cache.
    async fn start_with(&self, settings: impl FnOnce(HostBuilder) -> HostBuilder) -> usize {
        let compiled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&compiled);
        let listener = move |event: LoadEvent<'_>| {
            if matches!(event, LoadEvent::Compiled { .. }) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        let builder = settings(Host::builder(policy("", self.dir.path())));
        let host = builder.on_load(Arc::new(listener)).build().unwrap();
        let report = host.load_dir(&self.dir.path().join("plugins")).await.unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        for (_, _, tool, args) in PLUGINS {
            let calls = vec![ToolCall::new("1", tool, args)];
            let view = host.view(Filter::default());
            assert_eq!(
                outcome(&host.call_all(&view, calls, TurnContext::default()).await[0]),
                "ok",
                "{tool}"
            );
        }
        compiled.load(Ordering::Relaxed)
    }

    /// The files of a plugin in the cache: metadata and code.
    fn files(&self, plugin: usize) -> [PathBuf; 2] {
        let digest = hex(&fs::read(PLUGINS[plugin].1).unwrap());
        ["json", "cwasm"].map(|kind| {
            let names = fs::read_dir(&self.cache).unwrap().map(|entry| entry.unwrap().path());
            let is_it = |path: &PathBuf| {
                path.extension().is_some_and(|e| e == kind)
                    && path.file_name().unwrap().to_str().unwrap().starts_with(&digest)
            };
            names.into_iter().find(is_it).unwrap()
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exchanges two files, as a user with access could.
fn swap(one: &Path, other: &Path) {
    let [first, second] = [one, other].map(|path| fs::read(path).unwrap());
    for (path, bytes) in [(one, second), (other, first)] {
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_of_another_component_is_not_used() {
    let two = CachedPair::new();
    assert_eq!((two.start().await, two.start().await), (2, 0));
    let ([echo_json, echo_code], [text_json, text_code]) = (two.files(0), two.files(1));
    let before = [&echo_json, &echo_code, &text_json, &text_code].map(|file| fs::read(file).unwrap());
    // Only the code: its digest does not match.
    swap(&echo_code, &text_code);
    assert_eq!(two.start().await, 2, "compiled when it is called");
    // Metadata and code: the metadata names another component.
    swap(&echo_code, &text_code);
    swap(&echo_json, &text_json);
    assert_eq!(two.start().await, 2);
    let after = [&echo_json, &echo_code, &text_json, &text_code].map(|file| fs::read(file).unwrap());
    assert!(before.iter().zip(&after).all(|(before, after)| before.len() == after.len()), "no file changed");
    assert_eq!(two.start().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_of_another_engine_is_not_used() {
    let two = CachedPair::new();
    two.start().await;
    let [json, code] = two.files(0);
    let ours = fs::read(&code).unwrap().len();
    // Code that wasmtime compiled with its default settings, under our name and with a matching digest.
    let engine = wasmtime::Engine::default();
    let other = engine.precompile_component(&fs::read(PLUGINS[0].1).unwrap()).unwrap();
    let mut stored: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    stored["code"] = hex(&other).into();
    for (file, bytes) in [(&code, other), (&json, stored.to_string().into_bytes())] {
        fs::remove_file(file).unwrap();
        fs::write(file, bytes).unwrap();
    }
    assert_eq!(two.start().await, 1, "compiled when it is called");
    assert_eq!(fs::read(&code).unwrap().len(), ours, "and put in its place");
    // Metadata of another format.
    stored["format"] = 4.into();
    fs::write(&json, stored.to_string()).unwrap();
    assert_eq!((two.start().await, two.start().await), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_from_bytes_is_cached_and_outlives_its_entry() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let (id, file, tool, args) = PLUGINS[0];
    let bytes = fs::read(file).unwrap();
    for is_cached in [false, true, true] {
        let host = Host::builder(policy("", dir.path())).cache_dir(&cache).build().unwrap();
        host.load_bytes(PluginId::new(id).unwrap(), bytes.clone()).await.unwrap();
        assert_eq!(host.plugin(id).unwrap().from_cache, is_cached);
        if is_cached {
            for entry in fs::read_dir(&cache).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|kind| kind == "cwasm") {
                    fs::remove_file(path).unwrap();
                }
            }
        }
        let calls = vec![ToolCall::new("1", tool, args)];
        let view = host.view(Filter::default());
        let result = host.call_all(&view, calls, TurnContext::default()).await;
        assert_eq!(outcome(&result[0]), "ok", "compiled again from the bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_once_and_stops_nothing() {
    // A file-size limit that fits each component but not the compiled code of the larger one.
    let largest = PLUGINS.iter().map(|(_, file, ..)| fs::metadata(file).unwrap().len()).max().unwrap();
    let limit = format!("trap '' XFSZ; ulimit -f {}", largest.div_ceil(512) + 8);
    let name = "plugins::cache::a_full_disk_is_reported_once_and_stops_nothing";
    let Some((_, stderr)) = said_in_a_process(name, &limit) else {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        let two = CachedPair::new();
        // Two files that do not fit, and one that does.
        fs::copy(PLUGINS[1].1, two.dir.path().join("plugins/twin.wasm")).unwrap();
        assert_eq!(two.start().await, 3);
        let small = hex(&fs::read(PLUGINS[0].1).unwrap());
        for entry in fs::read_dir(&two.cache).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_index = name.ends_with(".index");
            assert!(is_index || name.starts_with(&small), "no part of a file stays: {name}");
        }
        return;
    };
    assert_eq!(stderr.matches("compiled code could not be cached").count(), 1, "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_cache_folder_is_not_fatal() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    // The folder is ours, and nobody may write to it, not even root.
    let two = CachedPair { cache: PathBuf::from("/proc/self/fdinfo"), ..CachedPair::new() };
    assert_eq!((two.start().await, two.start().await), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_programs_of_a_user_share_a_cache() {
    let name = "plugins::cache::all_programs_of_a_user_share_a_cache";
    let home = tempfile::tempdir().unwrap();
    let variables = format!("unset TOOLBAY_CACHE; export XDG_CACHE_HOME='{}'", home.path().display());
    let Some(_) = said_in_a_process(name, &variables) else {
        let two = CachedPair::new();
        assert_eq!(
            (two.start_with(|builder| builder).await, two.start_with(|builder| builder).await),
            (2, 0)
        );
        assert_eq!(two.start_with(HostBuilder::no_cache).await, 2);
        return;
    };
    let names = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["toolbay"]);
    assert!(fs::read_dir(home.path().join("toolbay")).unwrap().count() >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_a_home_is_warned_once_and_has_no_cache() {
    let name = "plugins::cache::a_user_without_a_home_is_warned_once_and_has_no_cache";
    let Some((_, stderr)) = said_in_a_process(name, "unset TOOLBAY_CACHE XDG_CACHE_HOME; export HOME=none")
    else {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        let two = CachedPair::new();
        assert_eq!(
            (two.start_with(|builder| builder).await, two.start_with(|builder| builder).await),
            (2, 2)
        );
        return;
    };
    assert_eq!(stderr.matches("no home for a compile cache").count(), 1, "{stderr}");
}

#[test]
fn a_shared_folder_that_others_can_write_is_reported_once() {
    let name = "plugins::cache::a_shared_folder_that_others_can_write_is_reported_once";
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let variable = format!("export TOOLBAY_CACHE='{}'", folder.path().display());
    let Some((_, stderr)) = said_in_a_process(name, &variable) else {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        for _ in 0..2 {
            drop(Host::builder(policy("", Path::new("/"))).build().unwrap());
        }
        return;
    };
    assert_eq!(stderr.matches("the compile cache is not used").count(), 1, "{stderr}");
}
