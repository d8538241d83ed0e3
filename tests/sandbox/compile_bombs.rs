//! Components that are expensive before they run: each is refused or compiled within limits, in this process and in a
//! worker process, while calls of another plugin continue.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use integration_tests::{in_a_process, policy, structured};
use serde_json::json;
use toolbay::{Filter, Host, LoadError, PluginId, ToolCall, TurnContext};

use super::attacks::sections;

/// The longest time for a bomb: the timeout of the host below, and what a loaded machine adds.
const MOST: Duration = Duration::from_secs(60);

/// The smallest plugin, so that the time to compile a bomb is that of the bomb.
const PLAIN: &str = r#"(component
    (core module $m (func (export "one") (result i32) i32.const 1))
    (core instance $i (instantiate $m))
    (func (export "one") (result u32) (canon lift (core func $i "one"))))"#;

/// A host without a cache, so that nobody stores bombs.
fn host(worker: bool, limits: &str) -> Host {
    let builder = Host::builder(policy(&format!("[host]\n{limits}"), Path::new("/"))).no_cache();
    let builder = if worker { builder.compile_worker(env!("CARGO_BIN_EXE_compile-worker")) } else { builder };
    builder.build().unwrap()
}

fn plain() -> Vec<u8> {
    wat::parse_str(PLAIN).unwrap()
}

fn section(bytes: &mut Vec<u8>, id: u8, content: &[u8]) {
    bytes.push(id);
    bytes.extend(number(content.len()));
    bytes.extend_from_slice(content);
}

/// A number as the binary format writes it (LEB128).
fn number(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n > 0x7f {
        bytes.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

/// A core module in its binary form. As text, the million instructions of a bomb take seconds to parse.
struct Module {
    /// `i32` results of each function.
    results: usize,
    /// The bodies of the functions.
    functions: Vec<Vec<u8>>,
    /// The data segments, all with this content.
    segments: (usize, &'static [u8]),
}

/// `(block (br_if 0 (local.get 0)))`
const BRANCH: &[u8] = &[0x02, 0x40, 0x20, 0, 0x0d, 0, 0x0b];
/// `(drop (i32.load (local.get 0)))`
const LOAD: &[u8] = &[0x20, 0, 0x28, 2, 0, 0x1a];
/// `(data "")`
const EMPTY: &[u8] = &[1, 0];
/// `(data (i32.const 0) "x")`
const ONE_BYTE: &[u8] = &[0, 0x41, 0, 0x0b, 1, b'x'];

/// The body of a function with these instructions.
fn body(locals: usize, instructions: &[u8]) -> Vec<u8> {
    let group = if locals == 0 { vec![0] } else { [vec![1], number(locals), vec![0x7f]].concat() };
    [group.as_slice(), instructions, &[0x0b]].concat()
}

impl Module {
    /// One function with a parameter, these locals and these instructions.
    fn of(locals: usize, instructions: &[u8]) -> Self {
        Self { results: 0, functions: vec![body(locals, instructions)], segments: (0, &[]) }
    }

    fn with_segments(count: usize, segment: &'static [u8]) -> Self {
        Self { segments: (count, segment), ..Self::of(0, &[]) }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        let results = [number(self.results), vec![0x7f; self.results]].concat();
        // One type: `(func (param i32) (result i32))`. One memory of a page.
        section(&mut bytes, 1, &[vec![1, 0x60, 1, 0x7f], results].concat());
        section(&mut bytes, 3, &[number(self.functions.len()), vec![0; self.functions.len()]].concat());
        section(&mut bytes, 5, &[1, 0, 1]);
        let mut code = number(self.functions.len());
        for function in &self.functions {
            code.extend(number(function.len()));
            code.extend(function);
        }
        section(&mut bytes, 10, &code);
        let (count, segment) = self.segments;
        if count > 0 {
            section(&mut bytes, 11, &[number(count), segment.repeat(count)].concat());
        }
        bytes
    }
}

/// A plugin with this core module. Nothing instantiates it, but it is compiled.
fn carrying(mut plugin: Vec<u8>, module: &Module) -> Vec<u8> {
    section(&mut plugin, 1, &module.bytes());
    plugin
}

/// A plugin with this component, which has types only.
fn with_types(component: &[u8]) -> Vec<u8> {
    let mut bytes = plain();
    section(&mut bytes, 4, component);
    assert!(sections(&bytes).contains(&4));
    bytes
}

/// A type that doubles with each level.
fn doubling(levels: usize) -> Vec<u8> {
    let mut types = "(component (type $t0 (record (field \"a\" u8)))".to_owned();
    for n in 0..levels {
        _ = write!(types, "(type $t{} (record (field \"a\" $t{n}) (field \"b\" $t{n})))", n + 1);
    }
    with_types(&wat::parse_str(types + ")").unwrap())
}

/// A list of a list of … of a byte.
fn chain(levels: usize) -> Vec<u8> {
    // `(type $t0 u8)`, then `(type $tN (list $tM))`. The index is a signed number.
    let mut types = [number(levels + 1), vec![0x7d]].concat();
    for n in 0..levels {
        let mut index = number(n);
        if index.last().is_some_and(|last| last & 0x40 != 0) {
            *index.last_mut().unwrap() |= 0x80;
            index.push(0);
        }
        types.push(0x70);
        types.extend(index);
    }
    let mut component = b"\0asm\x0d\0\x01\0".to_vec();
    section(&mut component, 7, &types);
    with_types(&component)
}

/// A component within every limit that takes the compiler many seconds.
pub(crate) fn slow() -> Vec<u8> {
    with_functions(2400)
}

/// A plugin whose compile time grows with the number of its functions.
pub(crate) fn with_functions(count: usize) -> Vec<u8> {
    let functions = vec![body(0, &BRANCH.repeat(390)); count];
    let plugin = std::fs::read(guest_artifacts::API_ECHO).unwrap();
    carrying(plugin, &Module { results: 0, functions, segments: (0, &[]) })
}

/// Name, component, and a part of the refusal; `None` if the component is small enough to be compiled.
fn bombs() -> Vec<(&'static str, Vec<u8>, Option<&'static str>)> {
    let module = |module: Module| carrying(plain(), &module);
    let function = |instructions: &[u8]| module(Module::of(0, instructions));
    let locals = |count: usize| module(Module::of(count, &[]));
    // `(if (local.get 0) (then (local.set A (local.get B))))`
    let set = |n: usize| {
        let (to, from) = (number(1 + n % 400), number(1 + n * 7 % 400));
        [[0x20, 0, 0x04, 0x40, 0x20].as_slice(), &from, &[0x21], &to, &[0x0b]].concat()
    };
    let flow = |branches: usize| module(Module::of(400, &(0..branches).flat_map(set).collect::<Vec<u8>>()));
    let blocks = |n: usize| function(&[[0x02u8, 0x40].repeat(n), vec![0x0b; n]].concat());
    // `(br_table 0 0 … 0 (local.get 0))`: N targets, the default included.
    let targets = |n: usize| function(&[vec![0x20u8, 0, 0x0e], number(n - 1), vec![0; n]].concat());
    let sum = |n: usize| {
        let code = body(0, &[[0x20u8, 0].repeat(n), vec![0x6a; n - 1]].concat());
        module(Module { results: 1, functions: vec![code], segments: (0, &[]) })
    };
    vec![
        ("60 000 branches", function(&BRANCH.repeat(60_000)), Some("branches in one function")),
        ("6000 branches", function(&BRANCH.repeat(6000)), None),
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
        ("100 000 locals", locals(100_000), Some("locals")),
        ("20 000 locals", locals(20_000), None),
        ("a million targets", targets(1_000_000), Some("br_table")),
        ("60 000 targets", targets(60_000), None),
        ("a million segments", module(Module::with_segments(1_000_000, EMPTY)), Some("segments")),
        ("90 000 segments", module(Module::with_segments(90_000, ONE_BYTE)), None),
        ("3 MB in one function", function(&LOAD.repeat(500_000)), Some("bytes in one function")),
        ("200 000 loads", function(&LOAD.repeat(200_000)), None),
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
            let calls = vec![ToolCall::new("1", "neighbour__one", "{}")];
            let results = host.call_all(&view, calls, TurnContext::default()).await;
            assert_eq!(structured(&results[0]), json!({"result": 1}));
            longest = longest.max(start.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        longest
    });
    (calls, stop)
}

async fn with_neighbour(worker: bool, limits: &str) -> Host {
    let host = host(worker, limits);
    host.load_bytes(PluginId::new("neighbour").unwrap(), plain()).await.unwrap();
    host
}

async fn load(host: &Host, bytes: Vec<u8>) -> Result<(), LoadError> {
    host.load_bytes(PluginId::new("bomb").unwrap(), bytes).await.map(drop)
}

async fn every_bomb(worker: bool) {
    let host = with_neighbour(worker, "compile_timeout = \"50s\"").await;
    let view = host.view(Filter::default());
    for (name, bytes, refusal) in bombs() {
        let start = Instant::now();
        let loading = tokio::spawn({
            let host = host.clone();
            async move { load(&host, bytes).await }
        });
        let neighbour = async || {
            let calls = vec![ToolCall::new("1", "neighbour__one", "{}")];
            let results = host.call_all(&view, calls, TurnContext::default()).await;
            assert_eq!(structured(&results[0]), json!({"result": 1}));
        };
        let (loaded, delay) = canary::run_beside(loading, neighbour).await;
        let loaded = loaded.map_err(|error| error.to_string());
        assert!(start.elapsed() < MOST, "{name} took {:?}", start.elapsed());
        assert!(delay <= canary::MAX_DELAY, "{name}: a neighbour waited {delay:?}");
        match (loaded, refusal) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) => {
                assert!(error.contains(part) && error.chars().count() < 1000, "{name}: {error}");
            }
            (loaded, refusal) => panic!("{name}: {loaded:?}, expected {refusal:?}"),
        }
        host.unload(&PluginId::new("bomb").unwrap());
    }
    assert_eq!(host.available_call_permits(), 64);
}

#[tokio::test]
async fn every_bomb_is_refused_or_compiled() {
    every_bomb(false).await;
}

#[tokio::test]
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

/// Waits until `done`, for a minute at most: a loaded machine takes seconds for what is done at once.
pub(crate) async fn soon(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_takes_too_long_is_ended() {
    if in_a_process("sandbox::compile_bombs::a_worker_that_takes_too_long_is_ended", "ulimit -c 0") {
        return;
    }
    let host = with_neighbour(true, "compile_timeout = \"3s\"").await;
    let (calls, stop) = neighbour(&host);
    let (slow, start) = (slow(), Instant::now());
    let error = load(&host, slow).await.unwrap_err().to_string();
    assert!(error.contains("[host] compile_timeout = …") && error.contains("3s"), "{error}");
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
    let host = with_neighbour(false, "compile_timeout = \"1s\"").await;
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
    let calls = vec![ToolCall::new("1", "neighbour__one", "{}")];
    let results = host.call_all(&host.view(Filter::default()), calls, TurnContext::default()).await;
    assert_eq!(structured(&results[0]), json!({"result": 1}));
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
    let with_wasmtime = |release: &str| format!("{} with wasmtime {release}", env!("CARGO_PKG_VERSION"));
    let version = with_wasmtime(toolbay::WASMTIME_VERSION);
    let lie = |version: &str, bytes: usize| {
        let digest = "0".repeat(64);
        format!(
            "echo '{{\"version\":\"{version}\",\"sandbox\":{{\"landlock\":0,\"seccomp\":true}},\
             \"answer\":{{\"Code\":{{\"bytes\":{bytes},\"sha256\":\"{digest}\"}}}}}}'; printf code"
        )
    };
    for (file, part) in [
        (folder.path().join("nothing"), "does not start"),
        (script("silent", "exit 0"), "ended without an answer"),
        (script("loud", "echo oops >&2; exit 3"), "oops"),
        (script("lies", &lie(&version, 4)), "does not match its digest"),
        (script("short", &lie(&version, 9)), "does not match its digest"),
        (script("old", &lie("0.0.1 with wasmtime 48.0.1", 4)), "has version 0.0.1 with wasmtime 48.0.1"),
        (script("unversioned", &lie("", 4).replace(r#""version":"","#, "")), "has an older version"),
        (script("patch", &lie(&with_wasmtime("48.0.1"), 4)), "`cargo update -p wasmtime --precise 48.0.1`"),
        (script("garbage", "head -c 100000 /dev/zero"), "ended without an answer"),
        (script("endless", "exec sleep 100"), "compile_timeout"),
    ] {
        let timeout = if part == "compile_timeout" { "300ms" } else { "60s" };
        let text = format!("[host]\ncompile_timeout = \"{timeout}\"");
        let builder = Host::builder(policy(&text, Path::new("/"))).no_cache();
        let host = builder.compile_worker(&file).build().unwrap();
        let error = load(&host, plain()).await.unwrap_err().to_string();
        assert!(error.contains(part), "{}: {error}", file.display());
    }
}
