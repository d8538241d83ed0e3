//! The first start of a directory: quick plugins do not wait for slow ones, and the final state is the same as if all
//! had been ready at once.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use integration_tests::{outcome, policy};
use toolbay::core::registry::event::HostEvent;
use toolbay::{ChangeKind, Filter, Host, LoadReport, PluginChange, ToolCall, TurnContext};

use crate::sandbox::compile_bombs::with_functions;

/// Takes far longer to compile than the others, and comes first by name.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let plugins = dir.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::write(plugins.join("a-slow.wasm"), with_functions(200)).unwrap();
    fs::copy(guest_artifacts::API_ECHO, plugins.join("b-quick.wasm")).unwrap();
    fs::write(plugins.join("c-broken.wasm"), "broken").unwrap();
    fs::copy(guest_artifacts::HOSTILE_STATE, plugins.join("d-quick.wasm")).unwrap();
    dir
}

fn host(dir: &Path) -> Host {
    Host::builder(policy("", dir)).cache_dir(dir.join("cache")).build().unwrap()
}

async fn call(host: &Host, tool: &str, args: &str) -> &'static str {
    let view = host.view(Filter::default());
    let delivered = host.call_all(&view, vec![ToolCall::new("1", tool, args)], TurnContext::default()).await;
    outcome(&delivered[0])
}

fn tools(host: &Host) -> Vec<String> {
    host.registry().snapshot().tools().map(|entry| entry.def.name.to_string()).collect()
}

fn ids(report: &LoadReport) -> Vec<&str> {
    report.loaded.iter().map(toolbay::PluginId::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn quick_plugins_do_not_wait_for_slow_ones() {
    let dir = directory();
    let host = host(dir.path());
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hear = Arc::clone(&heard);
    host.events().listen(move |event| match event {
        HostEvent::Registered { source, .. } => hear.lock().unwrap().push(source.clone()),
        HostEvent::Replaced { source, .. } | HostEvent::Unregistered { source, .. } => {
            hear.lock().unwrap().push(format!("again {source}"));
        }
        HostEvent::NotLoaded { file, .. } => hear.lock().unwrap().push(file.clone()),
        _ => {}
    });
    let load = {
        let (host, plugins) = (host.clone(), dir.path().join("plugins"));
        tokio::spawn(async move { host.load_dir(&plugins).await.unwrap() })
    };
    let start = Instant::now();
    while host.plugin("b-quick").is_none() || host.plugin("d-quick").is_none() {
        assert!(!load.is_finished(), "it waited for the slow one");
        assert!(start.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(call(&host, "b-quick__echo", r#"{"text":"a b"}"#).await, "ok");
    assert_eq!(call(&host, "d-quick__count", "{}").await, "ok");
    assert!(!load.is_finished() && host.plugin("a-slow").is_none(), "the slow one is still compiled");
    let report = load.await.unwrap();
    assert_eq!(ids(&report), ["a-slow", "b-quick", "d-quick"], "the load waits for all");
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    let changes: Vec<_> =
        report.changes.iter().map(|PluginChange { plugin, kind, .. }| (plugin.as_str(), *kind)).collect();
    assert_eq!(
        changes,
        [("a-slow", ChangeKind::Added), ("b-quick", ChangeKind::Added), ("d-quick", ChangeKind::Added)]
    );
    let heard = heard.lock().unwrap().clone();
    assert_eq!(heard.len(), 4, "each is reported once: {heard:?}");
    assert_eq!(heard.last().map(String::as_str), Some("plugin:a-slow"), "{heard:?}");
    // The same tools in the same order as a start with everything compiled.
    let again = self::host(dir.path());
    let warm = again.load_dir(&dir.path().join("plugins")).await.unwrap();
    assert!(again.plugins().iter().all(|plugin| plugin.from_cache));
    assert_eq!((ids(&warm), tools(&again)), (ids(&report), tools(&host)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_of_an_id_does_not_depend_on_load_order() {
    let dir = directory();
    // Two files claim the id `z`. The first by name gets it, though the other would be ready earlier.
    fs::copy(guest_artifacts::HOSTILE_STATE, dir.path().join("plugins/z.wasm")).unwrap();
    let text = "[plugins.z]\nfile = \"a-slow.wasm\"";
    let host = Host::builder(policy(text, dir.path())).no_cache().build().unwrap();
    let load = {
        let (host, plugins) = (host.clone(), dir.path().join("plugins"));
        tokio::spawn(async move { host.load_dir(&plugins).await.unwrap() })
    };
    let is_the_first = || host.plugin("z").is_none_or(|z| z.file.unwrap().ends_with("a-slow.wasm"));
    while !load.is_finished() {
        assert!(is_the_first());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let report = load.await.unwrap();
    assert_eq!(ids(&report), ["z", "b-quick", "d-quick"]);
    assert!(is_the_first() && report.problems.len() == 2, "{:?}", report.problems);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_changes_are_one_change() {
    let dir = directory();
    let plugins = dir.path().join("plugins");
    fs::remove_file(plugins.join("a-slow.wasm")).unwrap();
    let host = host(dir.path());
    host.load_dir(&plugins).await.unwrap();
    // A quick and a slow change in one batch: no view has only one of them.
    fs::write(plugins.join("a-slow.wasm"), with_functions(50)).unwrap();
    fs::copy(guest_artifacts::HOSTILE_SPIN, plugins.join("e-quick.wasm")).unwrap();
    let load = {
        let host = host.clone();
        tokio::spawn(async move { host.rescan().await })
    };
    while !load.is_finished() {
        assert_eq!(host.plugin("a-slow").is_some(), host.plugin("e-quick").is_some());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(ids(&load.await.unwrap()), ["a-slow", "b-quick", "d-quick", "e-quick"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_waits_for_the_plugin_that_reduces_it() {
    let dir = directory();
    let text = "[plugins.a-slow.grant]\nreduce = [\"b-quick__echo\"]";
    let host = Host::builder(policy(text, dir.path())).cache_dir(dir.path().join("cache")).build().unwrap();
    let load = {
        let (host, plugins) = (host.clone(), dir.path().join("plugins"));
        tokio::spawn(async move { host.load_dir(&plugins).await.unwrap() })
    };
    let mut quick_came_first = false;
    while !load.is_finished() {
        let [slow, waits, quick] = ["a-slow", "b-quick", "d-quick"].map(|id| host.plugin(id).is_some());
        // The slow one may arrive between two of these checks.
        assert!(!waits || host.plugin("a-slow").is_some(), "its results would be whole");
        quick_came_first |= quick && !slow;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(quick_came_first, "what nobody is to reduce waits for nobody");
    let report = load.await.unwrap();
    assert_eq!(ids(&report), ["a-slow", "b-quick", "d-quick"]);
    assert_eq!(call(&host, "b-quick__echo", r#"{"text":"a b"}"#).await, "ok");
    // It does not wait for a plugin that cannot be loaded either.
    fs::write(dir.path().join("plugins/a-slow.wasm"), "broken").unwrap();
    let host = Host::builder(policy(text, dir.path())).build().unwrap();
    assert_eq!(ids(&host.load_dir(&dir.path().join("plugins")).await.unwrap()), ["b-quick", "d-quick"]);
}
