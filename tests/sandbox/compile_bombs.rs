//! Components that are expensive before they run: each is refused or compiled within limits, in this process and in a
//! worker process, while calls of another plugin continue.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use integration_tests::{TestHost, cache_dir, in_a_process, policy, value};
use toolbay::{Filter, Host, LoadError, PluginId, ToolCall, TurnContext};

use super::attacks::sections;

/// The longest time for a bomb: the timeout of the host below, and what a loaded machine adds.
const MOST: Duration = Duration::from_secs(60);

fn host(worker: bool, limits: &str) -> Host {
    let text = format!("[host]\n{limits}");
    let builder = Host::builder(policy(&text, Path::new("/"))).cache_dir(cache_dir());
    let builder = if worker { builder.compile_worker(env!("CARGO_BIN_EXE_compile-worker")) } else { builder };
    builder.build().unwrap()
}

fn section(bytes: &mut Vec<u8>, id: u8, content: &[u8]) {
    bytes.push(id);
    let mut length = content.len();
    while length > 0x7f {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
}

/// A plugin with this core module. Nothing instantiates it, but it is compiled.
pub(crate) fn carrying(module: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(guest_artifacts::API_ECHO).unwrap();
    section(&mut bytes, 1, &wat::parse_str(format!("(module {module})")).unwrap());
    bytes
}

/// A plugin with these component types.
fn with_types(types: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(guest_artifacts::API_ECHO).unwrap();
    let component = wat::parse_str(format!("(component {types})")).unwrap();
    section(&mut bytes, 4, &component);
    assert!(sections(&bytes).contains(&4));
    bytes
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut all, n| {
        _ = write!(all, "{}", line(n));
        all
    })
}

/// A type that doubles with each level.
fn doubling(levels: usize) -> Vec<u8> {
    let first = "(type $t0 (record (field \"a\" u8)))".to_owned();
    with_types(
        &(first
            + &lines(levels, |n| {
                format!("(type $t{} (record (field \"a\" $t{n}) (field \"b\" $t{n})))", n + 1)
            })),
    )
}

fn chain(levels: usize) -> Vec<u8> {
    with_types(&("(type $t0 u8)".to_owned() + &lines(levels, |n| format!("(type $t{} (list $t{n}))", n + 1))))
}

fn function(body: &str) -> Vec<u8> {
    carrying(&format!("(memory 1) (func (param i32) {body})"))
}

/// A component within every limit that takes the compiler many seconds.
pub(crate) fn slow() -> Vec<u8> {
    with_functions(2400)
}

/// A component whose compile time grows with the number of its functions.
pub(crate) fn with_functions(count: usize) -> Vec<u8> {
    let branches = lines(390, |_| "(block (br_if 0 (local.get 0)))".to_owned());
    carrying(&lines(count, |_| format!("(func (param i32) {branches})")))
}

/// Name, component, and a part of the refusal; `None` if the component is small enough to be compiled.
fn bombs() -> Vec<(&'static str, Vec<u8>, Option<&'static str>)> {
    let branches = |n: usize| lines(n, |_| "(block (br_if 0 (local.get 0)))".to_owned());
    let flow = |branches: usize| {
        let set = |n| {
            format!("(if (local.get 0) (then (local.set {} (local.get {}))))", 1 + n % 400, 1 + n * 7 % 400)
        };
        function(&("(local i32)".repeat(400) + &lines(branches, set)))
    };
    let blocks = |n: usize| function(&("block ".repeat(n) + &"end ".repeat(n)));
    let targets = |n: usize| function(&format!("(br_table {} (local.get 0))", "0 ".repeat(n)));
    let sum = |n: usize| {
        let (terms, adds) = ("(local.get 0)".repeat(n), "i32.add ".repeat(n - 1));
        carrying(&format!("(func (param i32) (result i32) {terms} {adds})"))
    };
    vec![
        ("60 000 branches", function(&branches(60_000)), Some("branches in one function")),
        ("6000 branches", function(&branches(6000)), None),
        ("branches times locals", flow(13_000), Some("branches times locals")),
        ("fewer branches times locals", flow(4000), None),
        ("16 levels of doubling", doubling(16), None),
        ("18 levels of doubling", doubling(18), None),
        ("40 levels of doubling", doubling(40), Some("effective type size")),
        ("90 types in one another", chain(90), None),
        ("200 types in one another", chain(200), Some("not a valid component")),
        ("100 000 types", chain(100_000), Some("types; at most")),
        ("10 000 blocks in one another", blocks(10_000), None),
        ("20 000 blocks in one another", blocks(20_000), Some("nested blocks")),
        ("100 000 locals", function(&"(local i32)".repeat(100_000)), Some("locals")),
        ("20 000 locals", function(&"(local i32)".repeat(20_000)), None),
        ("a million targets", targets(1_000_000), Some("br_table")),
        ("60 000 targets", targets(60_000), None),
        (
            "a million segments",
            carrying(&format!("(memory 1) {}", "(data \"\")".repeat(1_000_000))),
            Some("segments"),
        ),
        (
            "90 000 segments",
            carrying(&format!("(memory 1) {}", "(data (i32.const 0) \"x\")".repeat(90_000))),
            None,
        ),
        (
            "3 MB in one function",
            function(&"(drop (i32.load (local.get 0)))".repeat(500_000)),
            Some("bytes in one function"),
        ),
        ("200 000 loads", function(&"(drop (i32.load (local.get 0)))".repeat(200_000)), None),
        ("a sum of 100 000 terms", sum(100_000), None),
    ]
}

/// Calls a neighbour repeatedly while the bomb is loaded. Returns the longest time of one call.
fn neighbour(host: &Host) -> (tokio::task::JoinHandle<Duration>, Arc<AtomicBool>) {
    let (host, stop) = (host.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let calls = tokio::spawn(async move {
        let view = host.view(Filter::default());
        let mut longest = Duration::ZERO;
        while !stopped.load(Ordering::Relaxed) {
            let start = Instant::now();
            let calls = vec![ToolCall::new("1", "neighbour__echo", "{}")];
            let results = host.call_all(&view, calls, TurnContext::default()).await;
            assert_eq!(value(&results[0]), "{}");
            longest = longest.max(start.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        longest
    });
    (calls, stop)
}

async fn with_neighbour(worker: bool, limits: &str) -> Host {
    let host = host(worker, limits);
    // Usually from the cache. A loaded machine takes seconds to compile it.
    drop(TestHost::new(&[], "").await);
    host.load_file(PluginId::new("neighbour").unwrap(), guest_artifacts::API_ECHO.as_ref()).await.unwrap();
    host
}

async fn load(host: &Host, bytes: Vec<u8>) -> Result<(), LoadError> {
    host.load_bytes(PluginId::new("bomb").unwrap(), bytes).await.map(drop)
}

async fn every_bomb(worker: bool) {
    let host = with_neighbour(worker, "compile_timeout = \"50s\"").await;
    let (calls, stop) = neighbour(&host);
    for (name, bytes, refusal) in bombs() {
        let start = Instant::now();
        let loaded = load(&host, bytes).await.map_err(|error| error.to_string());
        assert!(start.elapsed() < MOST, "{name} took {:?}", start.elapsed());
        match (loaded, refusal) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) => {
                assert!(error.contains(part) && error.chars().count() < 1000, "{name}: {error}");
            }
            (loaded, refusal) => panic!("{name}: {loaded:?}, expected {refusal:?}"),
        }
        host.unload(&PluginId::new("bomb").unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    let longest = calls.await.unwrap();
    assert!(longest < Duration::from_secs(2), "a neighbour's call took {longest:?}");
    assert_eq!(host.available_call_permits(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bomb_is_refused_or_compiled() {
    every_bomb(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bomb_is_refused_or_compiled_by_a_worker() {
    every_bomb(true).await;
}

/// The child processes of this process, zombies included.
pub(crate) fn children() -> usize {
    let me = std::process::id().to_string();
    let stat = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("stat")).ok();
    let parent = |stat: String| {
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned))
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| stat(entry.unwrap()));
    all.filter(|stat| parent(stat.clone()).is_some_and(|parent| parent == me)).count()
}

/// Waits until `done`, for ten seconds at most.
pub(crate) async fn soon(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_takes_too_long_is_ended() {
    if in_a_process("sandbox::compile_bombs::a_worker_that_takes_too_long_is_ended", "ulimit -c 0") {
        return;
    }
    let host = with_neighbour(true, "compile_timeout = \"2s\"").await;
    let (calls, stop) = neighbour(&host);
    let (slow, start) = (slow(), Instant::now());
    let error = load(&host, slow).await.unwrap_err().to_string();
    assert!(error.contains("[host] compile_timeout = …") && error.contains("2s"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    soon("the worker is still there", || children() == 0).await;
    // The permit is free again: the next component is compiled.
    let error = load(&host, wat::parse_str("(component)").unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("is not a Toolbay plugin"), "{error}");
    stop.store(true, Ordering::Relaxed);
    assert!(calls.await.unwrap() < Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compile_worker_ends_when_its_parent_does() {
    if in_a_process("sandbox::compile_bombs::a_compile_worker_ends_when_its_parent_does", "ulimit -c 0") {
        return;
    }
    let (host, slow) = (with_neighbour(true, "").await, slow());
    let loading = tokio::spawn({
        let host = host.clone();
        async move { load(&host, slow).await }
    });
    soon("no worker was started", || children() == 1).await;
    loading.abort();
    soon("the worker is still there", || children() == 0).await;
    assert_eq!(host.available_call_permits(), 64);
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().filter(|entry| {
        let prefix = format!("toolbay-{}-", std::process::id());
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(&prefix)
    });
    assert_eq!(left.count(), 0, "a temporary folder is left");
}

/// A thread cannot be killed. It keeps its permit, so there are never more threads than permits.
#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_takes_too_long_is_given_up_and_counted() {
    if in_a_process(
        "sandbox::compile_bombs::a_thread_that_takes_too_long_is_given_up_and_counted",
        "ulimit -c 0",
    ) {
        return;
    }
    let host = with_neighbour(false, "compile_timeout = \"2s\"").await;
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name.starts_with("toolbay-compile")).count()
    };
    // The compiler's shared thread pool is started by the first thread and carries its name.
    let small = wat::parse_str("(component (core module (func) (func)))").unwrap();
    assert!(load(&host, small).await.unwrap_err().to_string().contains("is not a Toolbay plugin"));
    let pool = threads();
    let slow = slow();
    let slots = std::thread::available_parallelism().unwrap().get().div_ceil(2);
    for n in 0..slots + 2 {
        let start = Instant::now();
        let error = load(&host, slow.clone()).await.unwrap_err().to_string();
        let too_long = error.contains("longer than the limit `compile_timeout`");
        // Beyond the permits, the result depends on whether the first compilation has ended. The number of threads is fixed.
        assert!(too_long || (n >= slots && error.contains("are still running")), "{n}: {error}");
        assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
        assert!(threads() <= pool + slots, "{n}");
    }
    let calls = vec![ToolCall::new("1", "neighbour__echo", "{}")];
    let results = host.call_all(&host.view(Filter::default()), calls, TurnContext::default()).await;
    assert_eq!(value(&results[0]), "{}");
}

/// The host trusts no output of a program that is not a worker, or of a worker that lies.
#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_false_compile_worker_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let file = folder.path().join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
        file
    };
    let lie = |bytes: usize| {
        let digest = "0".repeat(64);
        format!(
            "echo '{{\"sandbox\":{{\"landlock\":0,\"seccomp\":true}},\"answer\":{{\"Code\":{{\"bytes\":{bytes},\
             \"sha256\":\"{digest}\"}}}}}}'; printf code"
        )
    };
    for (file, part) in [
        (folder.path().join("nothing"), "does not start"),
        (script("silent", "exit 0"), "ended without an answer"),
        (script("loud", "echo oops >&2; exit 3"), "oops"),
        (script("lies", &lie(4)), "does not match its digest"),
        (script("short", &lie(9)), "does not match its digest"),
        (script("garbage", "head -c 100000 /dev/zero"), "ended without an answer"),
        (script("endless", "exec sleep 100"), "compile_timeout"),
    ] {
        let text = "[host]\ncompile_timeout = \"3s\"";
        let host = Host::builder(policy(text, Path::new("/"))).compile_worker(&file).build().unwrap();
        let bytes = std::fs::read(guest_artifacts::API_ECHO).unwrap();
        let error = load(&host, bytes).await.unwrap_err().to_string();
        assert!(error.contains(part), "{}: {error}", file.display());
    }
}
