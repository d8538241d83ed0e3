//! A started host: the tools of all sources in one call, and what changes while it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use integration_tests::policy;
use toolbay::mcp::client::ServerState;
use toolbay::{DocumentState, Filter, Host, RunningHost, WatchOptions};

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
    let mut host =
        Host::builder(policy(&text, folder.path())).source_wait(SOON).start(&plugins).await.unwrap();
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

/// A document and a server that accept connections and never answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_hangs_delays_nothing_but_itself() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::copy(guest_artifacts::API_ECHO, plugins.join("echo.wasm")).unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let private = "net_private = [\"127.0.0.1\"]\n";
    let text = format!(
        "[openapi.slow]\ndocument = \"http://{address}/o.json\"\nserver = \"http://{address}\"\n{private}\
         [mcp.silent]\nurl = \"http://{address}/mcp\"\n{private}"
    );
    let builder = Host::builder(policy(&text, folder.path())).source_wait(Duration::from_millis(100));
    let host = tokio::time::timeout(SOON, builder.start(&plugins)).await.unwrap().unwrap();
    assert_eq!(sources(&host), ["echo"]);
    assert_eq!(host.services()[0].state, DocumentState::Loading);
    assert_eq!(host.servers()[0].state, ServerState::Connecting);
    assert!(host.registry().has_pending_sources());
    // A new policy waits for neither.
    let reload = host.swap_policy(policy("", folder.path()));
    tokio::time::timeout(SOON, reload).await.unwrap().unwrap();
    host.close().await;
}
