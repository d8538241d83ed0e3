//! A cache of compiled code that is not what it should be: full, not to be written, of another version, with its files
//! swapped. Each is noticed, told, and the component compiled again; a plugin works whatever its cache is.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_tests::{outcome, policy, said_in_a_process};
use sha2::{Digest, Sha256};
use toolbay::{Filter, Host, LoadEvent, ToolCall, TurnContext};

/// Two plugins and the folder of their cache.
struct Two {
    dir: tempfile::TempDir,
    cache: PathBuf,
}

const PLUGINS: [(&str, &str, &str, &str); 2] = [
    ("echo", guest_artifacts::BENCH_ECHO, "echo__echo", "{}"),
    ("text", guest_artifacts::PLUGIN_TEXT, "text__word_count", r#"{"text":"a b"}"#),
];

impl Two {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("plugins")).unwrap();
        for (id, file, ..) in PLUGINS {
            fs::copy(file, dir.path().join("plugins").join(id).with_extension("wasm")).unwrap();
        }
        let cache = dir.path().join("cache");
        Self { dir, cache }
    }

    /// Starts a host, calls both, and tells how many were compiled, when they were loaded or when they were called.
    async fn start(&self) -> usize {
        let compiled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&compiled);
        let listener = move |event: LoadEvent<'_>| {
            if matches!(event, LoadEvent::Compiled { .. }) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        let builder = Host::builder(policy("", self.dir.path())).cache_dir(&self.cache);
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

/// Exchanges two files, as somebody would who is allowed to.
fn swap(one: &Path, other: &Path) {
    let [first, second] = [one, other].map(|path| fs::read(path).unwrap());
    for (path, bytes) in [(one, second), (other, first)] {
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_another_component_is_not_used() {
    let two = Two::new();
    assert_eq!((two.start().await, two.start().await), (2, 0));
    let ([echo_json, echo_code], [text_json, text_code]) = (two.files(0), two.files(1));
    let before = [&echo_json, &echo_code, &text_json, &text_code].map(|file| fs::read(file).unwrap());
    // The code alone: its digest is another.
    swap(&echo_code, &text_code);
    assert_eq!(two.start().await, 2, "compiled when it is called");
    // Metadata and code: it says of which component it is.
    swap(&echo_code, &text_code);
    swap(&echo_json, &text_json);
    assert_eq!(two.start().await, 2);
    let after = [&echo_json, &echo_code, &text_json, &text_code].map(|file| fs::read(file).unwrap());
    assert!(before.iter().zip(&after).all(|(before, after)| before.len() == after.len()), "all is as it was");
    assert_eq!(two.start().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_engine_compiled_is_not_used() {
    let two = Two::new();
    two.start().await;
    let [json, code] = two.files(0);
    let ours = fs::read(&code).unwrap().len();
    // What wasmtime compiles with its own settings, under our name, with a digest that fits.
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
async fn a_full_disk_is_told_once_and_stops_nobody() {
    // Files may be as large as a component, but not as what is compiled of the larger one.
    let largest = PLUGINS.iter().map(|(_, file, ..)| fs::metadata(file).unwrap().len()).max().unwrap();
    let limit = format!("trap '' XFSZ; ulimit -f {}", largest.div_ceil(512) + 8);
    let name = "plugins::cache::a_full_disk_is_told_once_and_stops_nobody";
    let Some((_, stderr)) = said_in_a_process(name, &limit) else {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        let two = Two::new();
        // Twice what does not fit; what is small enough does.
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
    assert_eq!(stderr.matches("compiled code is not stored").count(), 1, "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_nobody_can_write_is_no_reason_to_fail() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    // It is ours, nobody else may write there, and neither can we, not even root.
    let two = Two { cache: PathBuf::from("/proc/self/fdinfo"), ..Two::new() };
    assert_eq!((two.start().await, two.start().await), (2, 2));
}
