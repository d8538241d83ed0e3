//! A source that hangs delays nothing but itself: what is ready answers, and the rest is named with its state.

use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fixture::{HostFolder, ServerProcess};

/// Less than either source needs until it is given up: 20 s for a document, 60 s for a server.
const SOON: Duration = Duration::from_secs(15);

/// A server that accepts connections, and never answers. It ends with the process.
struct SilentServer {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl SilentServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::Release);
                open.push(stream);
            }
        });
        Self { port, connections }
    }
}

/// A folder with the plugin `quick`, and a document and a server that hang.
fn folder() -> (HostFolder, SilentServer) {
    let silent = SilentServer::start();
    let address = format!("127.0.0.1:{}", silent.port);
    let policy = format!(
        "[openapi.slow]\ndocument = \"http://{address}/openapi.json\"\nserver = \"http://127.0.0.1:1\"\nnet_private = [\"127.0.0.1\"]\n\
         [mcp.silent]\nurl = \"http://{address}/mcp\"\nnet_private = [\"127.0.0.1\"]\n"
    );
    (HostFolder::new(&policy).with_plugin("quick", guest_artifacts::BENCH_ECHO), silent)
}

#[test]
fn a_source_that_hangs_delays_no_listing() {
    let (folder, _silent) = folder();
    for (args, ready) in [
        (&["list"][..], "quick__echo"),
        (&["list", "--json"], "quick__echo"),
        (&["search", "echo"], "quick__echo"),
        (&["schemas"], "quick__echo"),
        (&["status"], "1 loaded"),
    ] {
        let begin = Instant::now();
        let mut command = folder.command(&["--source-wait", "1s"]);
        command.args(args);
        let ended = crate::fixture::CommandRun(command.output().unwrap()).says(0, &[ready, "slow", "silent"]);
        assert!(begin.elapsed() < SOON, "{args:?}: {:?}", begin.elapsed());
        let said = ended.out() + &ended.err();
        assert!(
            said.contains("loading") && (said.contains("starting") || said.contains("connecting")),
            "{said}"
        );
    }
    let services = folder.command(&["openapi", "list", "--json", "--source-wait", "1s"]).output().unwrap();
    let services = crate::fixture::CommandRun(services).says(1, &[]).json();
    assert_eq!(services[0]["state"], "loading", "{services}");
}

/// A document that hangs does not take the time of a server.
#[test]
fn documents_and_servers_start_together() {
    let (folder, silent) = folder();
    let begin = Instant::now();
    let mut command = folder.command(&["list", "--source-wait", "10m"]);
    let mut listing = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while silent.connections.load(Ordering::Acquire) < 2 && begin.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(10));
    }
    listing.kill().unwrap();
    listing.wait().unwrap();
    assert!(silent.connections.load(Ordering::Acquire) >= 2);
}

#[test]
fn a_call_waits_for_its_own_source_only() {
    let (folder, silent) = folder();
    let begin = Instant::now();
    folder.run(&["call", "quick__echo", "{}"]).says(0, &[]);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(silent.connections.load(Ordering::Acquire), 0, "a source that the call does not need");
}

#[test]
fn a_server_answers_with_what_is_ready_and_names_the_rest() {
    let (folder, _silent) = folder();
    let begin = Instant::now();
    let mut server = ServerProcess::serve(&folder);
    server.initialize();
    server.send(1, "tools/call", &json!({"name": "quick__echo", "arguments": {}}));
    assert!(server.result(1)["isError"].as_bool() != Some(true));
    server.send(2, "tools/list", &json!({}));
    let list = server.result(2);
    assert!(list["tools"].to_string().contains("quick__echo"), "{list}");
    let missing = &list["_meta"]["toolbay/missing"];
    assert_eq!(missing, &json!({"mcp:silent": "connecting", "openapi:slow": "loading"}), "{list}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

/// A source that failed is named with its state, also to those who call one of its tools.
#[test]
fn a_source_that_failed_is_named_to_lists_and_calls() {
    let folder = HostFolder::new(
        "[openapi.gone]\ndocument = \"http://127.0.0.1:1/openapi.json\"\nserver = \"http://127.0.0.1:1\"\n\
         net_private = [\"127.0.0.1\"]\n[mcp.lost]\nurl = \"http://127.0.0.1:1/mcp\"\nnet_private = [\"127.0.0.1\"]\n",
    );
    let failed = "its source `openapi:gone` has failed";
    folder.run(&["call", "gone__get", "{}"]).says(1, &["there is no tool `gone__get`", failed]);
    folder.run(&["call", "mcp__lost__get", "{}"]).says(1, &["its source `mcp:lost` has failed"]);
    let mut server = ServerProcess::serve(&folder);
    server.initialize();
    server.send(1, "tools/call", &json!({"name": "gone__get", "arguments": {}}));
    let refused = server.result_or_error(1);
    assert!(refused.to_string().contains(failed), "{refused}");
    server.send(2, "tools/list", &json!({}));
    let list = server.result(2);
    assert_eq!(list["_meta"]["toolbay/missing"]["openapi:gone"], "failed", "{list}");
}
