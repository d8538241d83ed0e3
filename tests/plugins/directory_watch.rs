//! A watched directory: files are added, changed and removed while the host runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

use integration_tests::{another_build, cache_dir, outcome, policy, value};
use tokio::sync::broadcast::Receiver;
use toolbay::core::registry::event::HostEvent;
use toolbay::{
    ChangeKind, Filter, Host, HostBuilder, LoadError, PluginId, ToolCall, TurnContext, WatchHandle,
    WatchOptions,
};

/// An operation that takes this long hangs.
pub(crate) const HANGS: Duration = Duration::from_secs(60);

/// A host that watches its directory.
pub(crate) struct WatchedHost {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) host: Host,
    pub(crate) events: Receiver<HostEvent>,
    pub(crate) watch: WatchHandle,
}

pub(crate) fn quick() -> WatchOptions {
    WatchOptions { settle: Duration::from_millis(50), poll: Duration::from_millis(500), files: vec![] }
}

impl WatchedHost {
    pub(crate) async fn new(text: &str) -> Self {
        Self::with(text, quick(), |builder, _| builder).await
    }

    pub(crate) async fn with(
        text: &str,
        options: WatchOptions,
        settings: impl FnOnce(HostBuilder, &Path) -> HostBuilder,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("plugins")).unwrap();
        let builder = Host::builder(policy(text, dir.path())).cache_dir(cache_dir());
        let host = settings(builder, dir.path()).build().unwrap();
        let events = host.events().stream();
        let watch = host.watch(&dir.path().join("plugins"), options).await;
        Self { dir, host, events, watch }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("plugins").join(name)
    }

    /// Installs a file atomically: written elsewhere, then renamed.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        put(&self.at(name), bytes);
    }

    /// The next event that satisfies a condition.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&HostEvent) -> bool) -> HostEvent {
        let found = async {
            loop {
                // Events about lagging streams and refused calls are skipped.
                match self.events.recv().await {
                    Ok(HostEvent::ToolError { .. }) | Err(RecvError::Lagged(_)) => {}
                    Ok(event) if wanted(&event) => return event,
                    Ok(_) => {}
                    Err(error @ RecvError::Closed) => panic!("{error}"),
                }
            }
        };
        tokio::time::timeout(HANGS, found).await.expect("an event that should have come")
    }

    pub(crate) async fn until_added(&mut self, id: &str) {
        let wanted = format!("plugin:{id}");
        self.until(|event| matches!(event, HostEvent::Registered { source, .. } if *source == wanted)).await;
    }

    pub(crate) async fn until_replaced(&mut self, id: &str) {
        let wanted = format!("plugin:{id}");
        self.until(|event| matches!(event, HostEvent::Replaced { source, .. } if *source == wanted)).await;
    }

    pub(crate) async fn until_removed(&mut self, id: &str) {
        let wanted = format!("plugin:{id}");
        self.until(|event| matches!(event, HostEvent::Unregistered { source, .. } if *source == wanted))
            .await;
    }

    pub(crate) async fn call(&self, tool: &str, args: &str) -> (&'static str, String) {
        call(&self.host, tool, args).await
    }

    pub(crate) fn digest(&self, id: &str) -> Option<String> {
        self.host.plugin(id).map(|info| info.digest.to_string())
    }
}

pub(crate) fn put(file: &Path, bytes: &[u8]) {
    let beside = file.with_extension("new");
    fs::write(&beside, bytes).unwrap();
    fs::rename(beside, file).unwrap();
}

pub(crate) async fn call(host: &Host, tool: &str, args: &str) -> (&'static str, String) {
    let view = host.view(Filter::default());
    let calls = vec![ToolCall::new("1", tool, args)];
    let delivered = host.call_all(&view, calls, TurnContext::default()).await.pop().unwrap();
    let text = delivered.result.as_ref().map_or_else(ToString::to_string, |output| output.value.clone());
    (outcome(&delivered), text)
}

pub(crate) fn echo(mark: u8) -> Vec<u8> {
    another_build(guest_artifacts::API_ECHO, mark)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_added_changed_and_removed() {
    let mut living = WatchedHost::new("").await;
    living.put("a.wasm", &echo(1));
    living.until_added("a").await;
    assert_eq!(living.call("a__echo", r#"{"a":1}"#).await, ("ok", r#"{"a":1}"#.to_owned()));
    let first = living.digest("a");

    living.put("a.wasm", &echo(2));
    living.until_replaced("a").await;
    assert_ne!(living.digest("a"), first);

    fs::rename(living.at("a.wasm"), living.at("b.wasm")).unwrap();
    living.until_added("b").await;
    if living.digest("a").is_some() {
        living.until_removed("a").await;
    }
    assert_eq!(living.call("a__echo", "{}").await.0, "not_available");

    // The same bytes, another timestamp, and files that are not plugins are no change.
    living.put("b.wasm", &echo(2));
    fs::File::options()
        .append(true)
        .open(living.at("b.wasm"))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    fs::write(living.at("notes.txt"), "x").unwrap();
    let before = Arc::as_ptr(living.host.registry().snapshot().get("b__echo").unwrap());
    living.put("z.wasm", &echo(3));
    let event = living.until(|_| true).await;
    assert!(matches!(&event, HostEvent::Registered { source, .. } if source == "plugin:z"), "{event:?}");
    assert_eq!(Arc::as_ptr(living.host.registry().snapshot().get("b__echo").unwrap()), before);

    fs::remove_file(living.at("b.wasm")).unwrap();
    living.until_removed("b").await;
    let WatchedHost { dir, host, watch, .. } = living;
    drop(watch);
    fs::remove_file(dir.path().join("plugins/z.wasm")).unwrap();
    // Longer than the interval at which a watch looks by itself.
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(host.plugins().len(), 1, "nobody watches");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_being_written_is_not_loaded() {
    use std::io::Write as _;
    let options = WatchOptions { settle: Duration::from_millis(1500), ..quick() };
    let mut living = WatchedHost::with("", options, |builder, _| builder).await;
    let bytes = echo(1);
    let mut file = fs::File::create(living.at("slow.wasm")).unwrap();
    for part in bytes.chunks(bytes.len() / 20) {
        file.write_all(part).unwrap();
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    drop(file);
    let event = living.until(|_| true).await;
    assert!(matches!(event, HostEvent::Registered { .. }), "it was read in part: {event:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_replacement_keeps_the_old_version_and_is_reported() {
    type Spoil = (&'static str, &'static str, fn(&Path));
    let cases: [Spoil; 8] = [
        ("empty", "is empty", |file| put(file, b"")),
        ("text", "is not WebAssembly", |file| put(file, b"hello\n")),
        ("half", "not a valid component", |file| put(file, &echo(9)[..5000])),
        ("folder", "is a folder", |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
        ("fifo", "is a FIFO", |file| {
            assert!(std::process::Command::new("mkfifo").arg(file).status().unwrap().success());
        }),
        ("dangling", "No such file", |file| symlink("nowhere", file).unwrap()),
        ("circle", "symbolic link", |file| symlink(file, file).unwrap()),
        ("large", "but the limit is", |file| {
            fs::File::create(file).unwrap().set_len(toolbay::MAX_COMPONENT_BYTES + 1).unwrap();
        }),
    ];
    let mut living = WatchedHost::new("").await;
    living.put("p.wasm", &echo(1));
    living.until_added("p").await;
    for (number, (case, problem, spoil)) in cases.into_iter().enumerate() {
        let file = living.at("p.wasm");
        if number > 2 {
            // A folder, which cannot be renamed over a file, replaces it.
            fs::remove_file(&file).or_else(|_| fs::remove_dir(&file)).unwrap();
            if case == "folder" {
                fs::write(&file, "").unwrap();
            }
        }
        spoil(&file);
        let told = living.until(|event| matches!(event, HostEvent::NotLoaded { .. })).await;
        let HostEvent::NotLoaded { file, problem: text, kept } = &told else { unreachable!() };
        assert!(file.ends_with("p.wasm") && text.contains(problem) && *kept, "{case}: {told:?}");
        assert_eq!(living.call("p__echo", "{}").await, ("ok", "{}".to_owned()), "{case}");
        let problems = living.host.problems();
        assert_eq!(problems.len(), 1, "{case}: {problems:?}");
        assert!(problems[0].kept && problems[0].to_string().ends_with("the older version stays loaded"));
    }
    fs::remove_file(living.at("p.wasm")).unwrap();
    living.put("p.wasm", &echo(2));
    living.until_replaced("p").await;
    assert!(living.host.problems().is_empty());
    // A new broken file is reported as well, and nothing else.
    living.put("q.wasm", b"junk");
    let told = living.until(|event| matches!(event, HostEvent::NotLoaded { .. })).await;
    assert!(matches!(told, HostEvent::NotLoaded { kept: false, .. }), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_end_on_the_version_they_began_with() {
    let granted = "[plugins.p.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]";
    let mut living = WatchedHost::new(granted).await;
    living.put("p.wasm", &fs::read(guest_artifacts::CAP_FILES).unwrap());
    living.until_added("p").await;
    let view = living.host.view(Filter::default());
    // Called once, so that all of them are compiled when the file changes.
    fs::write(living.dir.path().join("a"), "").unwrap();
    assert_eq!(living.call("p__read", r#"{"path":"a"}"#).await.0, "ok");
    // Each runs until there is a file `end`.
    let run = |count: usize| {
        let (host, view) = (living.host.clone(), view.clone());
        let args = r#"{"path":"a","until":"end","text":"x"}"#;
        let calls = (0..count).map(|n| ToolCall::new(n.to_string(), "p__read_wait_write", args)).collect();
        tokio::spawn(async move { host.call_all(&view, calls, TurnContext::default()).await })
    };
    let (one, batch) = (run(1), run(8));
    while living.host.available_call_permits() > 64 - 9 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    living.put("p.wasm", &echo(1));
    let changed = living.until(|event| matches!(event, HostEvent::Replaced { .. })).await;
    let HostEvent::Replaced { source, diff, .. } = changed else { unreachable!() };
    let lines: Vec<String> = diff.changes().iter().map(ToString::to_string).collect();
    assert_eq!(source, "plugin:p");
    assert!(lines.contains(&"`p__read` (breaking): removed".to_owned()), "{lines:?}");
    assert!(lines.contains(&"`p__echo` (compatible): added".to_owned()), "{lines:?}");
    assert!(!one.is_finished() && !batch.is_finished());
    assert_eq!(living.call("p__echo", "{}").await.0, "ok");
    assert_eq!(living.call("p__read", r#"{"path":"a"}"#).await.0, "not_available");
    fs::write(living.dir.path().join("end"), "").unwrap();
    for delivered in one.await.unwrap().iter().chain(&batch.await.unwrap()) {
        assert_eq!(outcome(delivered), "ok");
    }
    // An old view keeps working, also for tools that were not called before.
    let late = living.host.call_all(
        &view,
        vec![ToolCall::new("1", "p__stat", r#"{"path":"a"}"#)],
        TurnContext::default(),
    );
    assert_eq!(outcome(&late.await[0]), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_directory_keeps_its_plugins_and_may_return() {
    let mut living = WatchedHost::new("").await;
    living.put("p.wasm", &echo(1));
    living.until_added("p").await;
    let (place, aside) = (living.dir.path().join("plugins"), living.dir.path().join("aside"));
    fs::rename(&place, &aside).unwrap();
    let told = living.until(|event| matches!(event, HostEvent::NotLoaded { .. })).await;
    assert!(
        matches!(&told, HostEvent::NotLoaded { problem, .. } if problem.contains("stay loaded")),
        "{told:?}"
    );
    assert_eq!(living.call("p__echo", "{}").await.0, "ok");
    // A new directory of that name replaces the old one. Plugins that it lacks are removed.
    fs::create_dir(&place).unwrap();
    living.put("q.wasm", &echo(2));
    living.until_added("q").await;
    if living.digest("p").is_some() {
        living.until_removed("p").await;
    }
    assert!(living.host.problems().is_empty());
    fs::remove_dir_all(&place).unwrap();
    living.until(|event| matches!(event, HostEvent::NotLoaded { .. })).await;
    symlink(&aside, &place).unwrap();
    living.until_added("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_changes_is_reported_once_and_disturbs_no_call() {
    const FILES: usize = 300;
    let mut living = WatchedHost::new("").await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    living.host.events().listen(move |event| {
        if let HostEvent::NotLoaded { file, problem, .. } = event {
            tells.lock().unwrap().push(format!("{file}: {problem}"));
        }
    });
    // Each file is complete: an empty file while its writer waits for the CPU is another content.
    let junk: Vec<PathBuf> = (0..FILES).map(|n| living.at(&format!("junk-{n}.wasm"))).collect();
    for round in 0..20 {
        for file in &junk {
            put(file, b"junk");
        }
        assert_eq!(
            living.host.view(Filter::default()).definitions().count(),
            1,
            "{round}: `read_output` alone"
        );
    }
    living.put("a.wasm", &echo(1));
    living.until_added("a").await;
    let wait = async {
        while living.host.problems().len() < FILES {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(HANGS, wait).await.expect("all are judged in the end");
    for file in &junk {
        put(file, b"junk");
    }
    living.put("b.wasm", &echo(2));
    living.until_added("b").await;
    let mut told = told.lock().unwrap().clone();
    told.sort();
    let twice: Vec<_> = told.chunk_by(|one, other| one == other).filter(|same| same.len() > 1).collect();
    let other: Vec<_> = told.iter().filter(|told| !told.contains("junk-")).collect();
    assert!(told.len() == FILES, "the same file with the same content is reported once: {twice:?} {other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let plugins = dir.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    put(&plugins.join("a.wasm"), &echo(1));
    let host = Host::builder(policy("", dir.path())).cache_dir(cache_dir()).build().unwrap();
    host.load_dir(&plugins).await.unwrap();
    for n in 0..16_384 {
        fs::write(plugins.join(format!("junk-{n}.wasm")), "").unwrap();
    }
    let report = host.rescan().await;
    let problem = report.problems.iter().map(ToString::to_string).collect::<String>();
    assert!(
        problem.contains("more than 16384 `.wasm` files") && problem.contains("stay loaded"),
        "{problem}"
    );
    assert_eq!(call(&host, "a__echo", "{}").await.0, "ok", "loaded plugins stay");
    let fresh = Host::builder(policy("", dir.path())).build().unwrap();
    assert!(fresh.load_dir(&plugins).await.unwrap_err().to_string().contains("more than 16384"));
}

/// The loaded plugins, as a fresh start would have them.
fn running(host: &Host) -> Vec<(String, String)> {
    let catalog = host.registry().snapshot();
    let tools = catalog.tools().map(|entry| entry.def.name.to_string());
    let reducers = catalog.reducers().map(|one| format!("{} by {:?}", one.target, one.owner));
    let plugins = host.plugins().into_iter().map(|info| format!("{} {}", info.id, info.digest));
    tools.chain(reducers).chain(plugins).map(|text| (text, String::new())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happened_the_outcome_is_that_of_a_fresh_start() {
    // Two files could provide `twin`; two plugins want to reduce the results of one tool.
    let text = "[plugins.b]\nfile = \"b.wasm\"\n[plugins.twin]\nfile = \"a.wasm\"\n\
        [plugins.r1.grant]\nreduce = [\"b__long = produce\"]\n[plugins.r2.grant]\nreduce = [\"b__long = produce\"]\n";
    let dir = tempfile::tempdir().unwrap();
    let plugins = dir.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    let host = || Host::builder(policy(text, dir.path())).cache_dir(cache_dir()).build().unwrap();
    let living = host();
    living.load_dir(&plugins).await.unwrap();
    let reducer = fs::read(guest_artifacts::REDUCE_GOOD).unwrap();
    let contents = [echo(1), echo(2), reducer];
    // A random walk that is the same in each run.
    let mut state: u64 = 7;
    let mut next = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    let names = ["a.wasm", "b.wasm", "twin.wasm", "r1.wasm", "r2.wasm"];
    for step in 0..40 {
        for _ in 0..=next(2) {
            let name = names[next(names.len())];
            let file = plugins.join(name);
            match next(4) {
                0 => drop(fs::remove_file(&file)),
                _ if name.starts_with('r') => put(&file, &contents[2]),
                _ => put(&file, &contents[next(2)]),
            }
        }
        let report = living.rescan().await;
        let fresh = host();
        let expected = fresh.load_dir(&plugins).await.unwrap();
        assert_eq!(running(&living), running(&fresh), "step {step}");
        assert_eq!(report.loaded, expected.loaded, "step {step}");
        let shown = |problems: &[toolbay::LoadProblem]| -> Vec<String> {
            problems.iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown(&report.problems), shown(&expected.problems), "step {step}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_lists_the_changes() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::builder(policy("", dir.path())).cache_dir(cache_dir()).build().unwrap();
    put(&dir.path().join("p.wasm"), &echo(1));
    put(&dir.path().join("q.wasm"), &echo(1));
    let kinds = |report: &toolbay::LoadReport| -> Vec<(String, ChangeKind)> {
        report.changes.iter().map(|change| (change.plugin.to_string(), change.kind)).collect()
    };
    let report = host.load_dir(dir.path()).await.unwrap();
    assert_eq!(kinds(&report), [("p".into(), ChangeKind::Added), ("q".into(), ChangeKind::Added)]);
    assert!(host.rescan().await.changes.is_empty(), "the same bytes are no change");
    put(&dir.path().join("p.wasm"), &echo(2));
    fs::remove_file(dir.path().join("q.wasm")).unwrap();
    let report = host.rescan().await;
    assert_eq!(kinds(&report), [("q".into(), ChangeKind::Removed), ("p".into(), ChangeKind::Replaced)]);
    assert!(report.changes[0].tools.iter().all(|tool| tool.what == "removed"));
    assert!(report.changes[1].tools.is_empty(), "the tools are the same");
    // A plugin that was unloaded by hand stays out until its file changes or everything is reloaded.
    let id = PluginId::new("p").unwrap();
    assert!(host.unload(&id));
    put(&dir.path().join("p.wasm"), &echo(2));
    let watch = host.watch(dir.path(), quick()).await;
    let mut events = host.events().stream();
    put(&dir.path().join("q.wasm"), &echo(3));
    tokio::time::timeout(HANGS, events.recv()).await.unwrap().unwrap();
    assert!(host.plugin("q").is_some() && host.plugin("p").is_none());
    drop(watch);
    assert_eq!(kinds(&host.rescan().await), [("p".into(), ChangeKind::Added)]);
    // Plugins of the embedder take precedence over plugins of the directory.
    host.load_bytes(id.clone(), echo(4)).await.unwrap();
    let report = host.rescan().await;
    assert!(
        matches!(&*report.problems[0].error, LoadError::DuplicateId(taken) if *taken == id),
        "{report:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_holds_nothing_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let builder = Host::builder(policy("", dir.path())).cache_dir(&cache);
    let host = builder.cache_limits(0, Duration::from_secs(3600)).build().unwrap();
    let file = dir.path().join("p.wasm");
    for mark in 1..4 {
        put(&file, &echo(mark));
        host.load_dir(dir.path()).await.unwrap();
        assert_eq!(call(&host, "p__echo", "{}").await.0, "ok");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0, "files of versions that are gone are gone");
    }
    let view = host.view(Filter::default());
    let delivered =
        host.call_all(&view, vec![ToolCall::new("1", "p__echo", "{}")], TurnContext::default()).await;
    assert_eq!(value(&delivered[0]), "{}");
}
