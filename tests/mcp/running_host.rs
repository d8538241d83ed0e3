//! A started host: the tools of all sources in one call, and what changes while it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use integration_tests::policy;
use toolbay::mcp::client::ServerState;
use toolbay::{Filter, Host, RunningHost, WatchOptions};

use super::bridge_stdio::{SOON, section};

/// The namespaces of the tools in a new view.
fn sources(host: &RunningHost) -> Vec<String> {
    let view = host.view(Filter::default());
    let mut all: Vec<String> =
        view.definitions().filter_map(|entry| entry.def.namespace().map(str::to_owned)).collect();
    all.sort();
    all.dedup();
    all
}

async fn until(host: &RunningHost, expected: &[&str]) {
    let start = Instant::now();
    while sources(host) != expected {
        assert!(start.elapsed() < SOON, "{expected:?}: {:?} {:?}", sources(host), host.problems());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_started_host_has_the_tools_of_all_sources_and_follows_changes() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::copy(guest_artifacts::API_ECHO, plugins.join("echo.wasm")).unwrap();
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/openapi/petstore-3.0.json");
    let services = format!("[openapi.pets]\ndocument = {document:?}\nserver = \"https://api.example.com\"\n");
    let text = format!("{services}{}", section("s", "good", ""));
    let mut host = Host::builder(policy(&text, folder.path())).start(&plugins).await.unwrap();
    assert_eq!(sources(&host), ["echo", "mcp__s", "pets"], "{:?} {:?}", host.report(), host.servers());
    assert_eq!(host.services()[0].error, None);
    assert_eq!(host.servers()[0].state, ServerState::Ready);
    assert_eq!(host.report().loaded.len(), 1);

    let often = Duration::from_millis(100);
    host.watch(WatchOptions { settle: Duration::from_millis(10), poll: often, ..WatchOptions::default() })
        .await;
    std::fs::copy(guest_artifacts::API_ECHO, plugins.join("other.wasm")).unwrap();
    until(&host, &["echo", "mcp__s", "other", "pets"]).await;
    host.reload_policy(policy(&services, folder.path())).await.unwrap();
    until(&host, &["echo", "other", "pets"]).await;
    host.reload_policy(policy(&text, folder.path())).await.unwrap();
    until(&host, &["echo", "mcp__s", "other", "pets"]).await;
    let clone = Host::clone(&host);
    host.close().await;
    let view = clone.view(Filter::default());
    assert!(view.definitions().all(|entry| entry.def.namespace() != Some("mcp__s")), "the servers are gone");
}
