//! The process that compiles untrusted components has access to its pipes only.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use integration_tests::{policy, said_in_a_process};
use serde_json::Value;
use toolbay::{Host, PluginId};

use super::compile_bombs::soon;

const WORKER: &str = env!("CARGO_BIN_EXE_compile-worker");

/// A worker with a request that waits for the component.
fn waiting(bytes: usize) -> Child {
    let mut worker = Command::new(WORKER)
        .arg(toolbay::COMPILE_WORKER)
        .env_clear()
        .env("RAYON_NUM_THREADS", "2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let job = format!(
        "{{\"bytes\":{bytes},\"engine\":{{\"metering\":\"Fuel\",\"async_support\":\"Off\"}},\"memory\":4294967296,\"seconds\":60}}\n"
    );
    worker.stdin.as_mut().unwrap().write_all(job.as_bytes()).unwrap();
    worker
}

fn status(worker: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(":\t"));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// Whether the kernel denies it everything but computing.
fn is_held(worker: u32) -> bool {
    status(worker).get("Seccomp").is_some_and(|mode| mode == "2")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_is_held_before_it_reads_the_component() {
    let component = std::fs::read(guest_artifacts::API_ECHO).unwrap();
    let mut worker = waiting(component.len());
    soon("it is not held", || is_held(worker.id())).await;
    let now = status(worker.id());
    assert_eq!((now["NoNewPrivs"].as_str(), now["Threads"].as_str()), ("1", "1"), "{now:?}");
    let bounds = std::fs::read_to_string(format!("/proc/{}/limits", worker.id())).unwrap();
    let bound = |name: &str| {
        let line = bounds.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).take(2).collect::<Vec<_>>()
    };
    for (name, most) in [
        ("Max open files", "3"),
        ("Max file size", "0"),
        ("Max core file size", "0"),
        ("Max address space", "4294967296"),
        ("Max cpu time", "60"),
    ] {
        assert_eq!(bound(name), [most, most], "{name}");
    }
    // The sandboxed worker still compiles.
    let mut stdin = worker.stdin.take().unwrap();
    stdin.write_all(&component).unwrap();
    let mut stdout = BufReader::new(worker.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(said["sandbox"]["seccomp"], true, "{said}");
    let mut code = Vec::new();
    stdout.read_to_end(&mut code).unwrap();
    assert_eq!(said["answer"]["Code"]["bytes"], code.len(), "{said}");
    assert!(worker.wait().unwrap().success());
}

/// The open files of a process, from `/proc`.
fn open_files(process: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_inherits_no_file_of_the_host() {
    let test = "sandbox::compile_worker::the_worker_inherits_no_file_of_the_host";
    // A handle that the host process inherited, and that its child processes inherit.
    let Some(_) = said_in_a_process(test, "exec 7</etc/passwd") else {
        let me = std::process::id();
        assert!(open_files(me).contains(&PathBuf::from("/etc/passwd")), "{:?}", open_files(me));
        let builder = Host::builder(policy("", Path::new("/"))).no_cache();
        let host = builder.compile_worker(WORKER).build().unwrap();
        let id = PluginId::new("slow").unwrap();
        let load = host.load_bytes(id, super::compile_bombs::slow());
        let watch = async {
            // From then on it can open nothing.
            soon("no worker is held", || workers().into_iter().any(is_held)).await;
            workers().into_iter().flat_map(open_files).collect::<Vec<_>>()
        };
        let seen = tokio::select! { seen = watch => seen, done = load => panic!("{done:?}") };
        assert!(!seen.is_empty() && seen.len() <= 3, "{seen:?}");
        assert!(seen.iter().all(|file| file.to_string_lossy().starts_with("pipe:")), "{seen:?}");
        return;
    };
}

/// The compile workers that this process started.
fn workers() -> Vec<u32> {
    let me = std::process::id().to_string();
    let all = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_ours = |process: &u32| {
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
        let parent = read("stat")
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned));
        parent.is_some_and(|parent| parent == me) && read("cmdline").contains(toolbay::COMPILE_WORKER)
    };
    all.filter(is_ours).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_reports_the_sandbox_of_its_compile_worker() {
    let with = Host::builder(policy("", Path::new("/"))).compile_worker(WORKER).build().unwrap();
    let held = with.compile_worker_sandbox().await.unwrap().unwrap();
    assert!(held.contains("seccomp"), "{held}");
    let wrong = Host::builder(policy("", Path::new("/"))).compile_worker("/nowhere").build().unwrap();
    let error = wrong.compile_worker_sandbox().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("does not start"), "{error}");
    let without = Host::builder(policy("", Path::new("/"))).build().unwrap();
    assert!(without.compile_worker_sandbox().await.is_none());
}
