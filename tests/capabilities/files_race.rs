//! `files`: a second thread swaps folders and files for links during calls.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use integration_tests::TestHost;
use serde_json::{Value, json};

const POLICY: &str = r#"
    [plugins.f.grant]
    fs_read = ["$workspace/in", "!**/secret"]
    fs_write = ["$workspace/in", "!**/secret"]
    [plugins.f.limits]
    timeout = "60s"
    file_entries = 100_000
"#;

/// Swaps until it is dropped.
pub(crate) struct LinkSwapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl LinkSwapper {
    pub(crate) fn start(mut swap: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let swaps = Arc::new(AtomicU64::new(0));
        let thread = thread::spawn({
            let (stop, swaps) = (Arc::clone(&stop), Arc::clone(&swaps));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    swap();
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { stop, swaps, thread: Some(thread) }
    }

    /// Whether enough swaps happened. One minute is enough as well.
    fn enough(&self, start: Instant) -> bool {
        self.swaps.load(Ordering::Relaxed) > 200 || start.elapsed() > Duration::from_secs(60)
    }

    pub(crate) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for LinkSwapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn host() -> TestHost {
    let host = TestHost::empty(POLICY);
    let root = host.root();
    for folder in ["in/real", "in/secret", "outside"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("in/real/file"), "inside").unwrap();
    fs::write(root.join("in/secret/file"), "canary").unwrap();
    fs::write(root.join("outside/file"), "canary").unwrap();
    host.load("f", guest_artifacts::CAP_FILES).await;
    host
}

/// `at` is the real folder or file, then a link to each of `targets`, repeatedly.
fn swapping(at: &Path, real: &Path, targets: &'static [&'static str]) -> LinkSwapper {
    let (at, real, link) = (at.to_path_buf(), real.to_path_buf(), at.with_extension("link"));
    LinkSwapper::start(move || {
        for target in targets {
            fs::rename(&real, &at).ok();
            thread::yield_now();
            fs::rename(&at, &real).ok();
            fs::remove_file(&link).ok();
            symlink(target, &link).ok();
            fs::rename(&link, &at).ok();
            thread::yield_now();
            fs::remove_file(&at).ok();
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_swapped_for_a_link_never_leads_out() {
    let host = host().await;
    let root = host.root();
    let swapper = swapping(
        &root.join("in/folder"),
        &root.join("in/real"),
        &["../outside", "secret", "/etc", "../in/secret"],
    );
    let mut inside = 0;
    let start = Instant::now();
    while inside == 0 || !swapper.enough(start) {
        let said = host.ask("f__read_many", json!({"path": "in/folder/file", "n": 500})).await;
        assert!(!said.to_string().contains("canary"), "{said}");
        inside += said["inside"].as_u64().unwrap_or(0);
    }
    swapper.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_in_a_folder_swapped_for_a_link() {
    let host = host().await;
    let root = host.root();
    let swapper = swapping(
        &root.join("in/folder"),
        &root.join("in/real"),
        &["../outside", "secret", "../in/secret", "real/../../outside"],
    );
    let mut made = 0;
    let start = Instant::now();
    while made == 0 || !swapper.enough(start) {
        let args = json!({"path": "in/folder/made", "n": 100, "bytes": 9});
        made += host.ask("f__write_many", args).await["ok"].as_u64().unwrap_or(0);
    }
    swapper.end();
    for folder in ["outside", "in/secret"] {
        let left: Vec<_> = fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["file"], "{folder}");
        assert_eq!(fs::read_to_string(root.join(folder).join("file")).unwrap(), "canary", "{folder}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_swapped_for_a_link_is_never_written_through() {
    let host = host().await;
    let root = host.root();
    fs::write(root.join("in/kept"), "inside").unwrap();
    let swapper = swapping(
        &root.join("in/target"),
        &root.join("in/kept"),
        &["../outside/file", "secret/file", "/dev/null"],
    );
    let mut written = 0;
    let start = Instant::now();
    while written == 0 || !swapper.enough(start) {
        let said = host.ask("f__write_many", json!({"path": "in/target", "n": 100, "bytes": 9})).await;
        written += said["ok"].as_u64().unwrap_or(0);
    }
    swapper.end();
    for file in ["outside/file", "in/secret/file"] {
        assert_eq!(fs::read_to_string(root.join(file)).unwrap(), "canary", "{file}");
    }
    let left: Vec<_> = fs::read_dir(root.join("in")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains(".tmp")), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_swapped_for_a_fifo_is_never_waited_for() {
    let host = host().await;
    let root = host.root();
    let (at, fifo) = (root.join("in/target"), root.join("in/fifo"));
    let swapper = LinkSwapper::start(move || {
        fs::write(&at, "inside").ok();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        fs::rename(&fifo, &at).ok();
        fs::remove_file(&at).ok();
    });
    for _ in 0..10 {
        let said: Value = host.ask("f__read_many", json!({"path": "in/target", "n": 1000})).await;
        assert!(said.is_object(), "{said}");
    }
    swapper.end();
}
