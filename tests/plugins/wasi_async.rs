//! Components of WASI 0.3, plain and of the contract: asynchronous exports and imports under the same limits,
//! cancellation, grants and audit.

use std::time::Duration;

use integration_tests::{SETTLED, TestHost, fault, hints, outcome, refusal, structured, words as value};
use serde_json::{Value, json};
use toolbay::core::tool::content::ErrorCode;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{Filter, PluginId, TurnContext};

use crate::loopback::{LoopbackServer, response};

const SOON: Duration = Duration::from_secs(25);

async fn waiter(policy: &str) -> TestHost {
    TestHost::new(&[("w", guest_artifacts::FOREIGN_ASYNC)], policy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_functions_are_tools() {
    let host = waiter("").await;
    assert_eq!(value(&host.call("w__echo", json!({"text": "over there"})).await), "over there");
    assert_eq!(value(&host.call("w__wait", json!({"milliseconds": 5})).await), "waited");
    let refused = host.call("w__wait", json!({"milliseconds": 0})).await;
    assert_eq!(refusal(&refused).message, "there is nothing to wait for");
    assert_eq!(
        structured(&host.call("w__tickets", json!({"names": ["a", "b"]})).await),
        json!({"result": [{"number": 1, "name": "a"}, {"number": 2, "name": "b"}]})
    );
    assert_eq!(structured(&host.call("w__plain", json!({"a": 2, "b": 3})).await), json!({"result": 5}));
    let refused = host.call("w__echo", json!({"text": 1})).await;
    assert_eq!(refusal(&refused).code, ErrorCode::InputInvalid);
    let view = host.host.view(Filter::default());
    let tools: Vec<_> = view.definitions().map(|entry| entry.def.clone()).collect();
    let tickets = tools.iter().find(|def| def.name.as_str() == "w__tickets").unwrap();
    assert!(tickets.description.contains("tickets(names: list<string>) -> list<record>"), "{tickets:?}");
    assert!(!tools.iter().any(|def| def.name.as_str() == "w__stream-of"));
    let dropped = host.host.plugin("w").unwrap().dropped_functions;
    assert_eq!(
        dropped,
        [
            "its function `stream-of` is not a tool: its result is a future or a stream, which has no JSON form"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_and_randomness_of_wasi_0_3_are_granted_as_those_of_0_2() {
    let host = waiter("").await;
    assert_eq!(host.ask("w__now", json!({})).await, json!({"result": 1_735_689_600}));
    let number = host.ask("w__number", json!({})).await;
    assert_eq!(host.ask("w__number", json!({})).await, number, "fixed bytes");
    let told = hints(&host.call("w__now", json!({})).await);
    assert!(told.contains("clock = true"), "{told}");
    let host = waiter("[plugins.w.grant]\nclock = true\nrandom = true").await;
    assert!(host.ask("w__now", json!({})).await["result"].as_i64().unwrap() > 1_735_689_600);
    let number = host.ask("w__number", json!({})).await;
    assert_ne!(host.ask("w__number", json!({})).await, number);
}

/// The engine for WASI 0.3 is not that of the other plugins; both take code and metadata from the same cache.
#[tokio::test(flavor = "multi_thread")]
async fn it_comes_from_the_cache_as_any_other() {
    let cache = tempfile::tempdir().unwrap();
    for from_cache in [false, true] {
        let host = TestHost::built("", |builder, _| builder.cache_dir(cache.path().join("cache")));
        host.load("w", guest_artifacts::FOREIGN_ASYNC).await;
        assert_eq!(host.host.plugin("w").unwrap().from_cache, from_cache);
        assert_eq!(value(&host.call("w__echo", json!({"text": "a"})).await), "a");
    }
}

const MANIFEST: &str = r#"
version = 1
name = "program"
[tools.print]
description = "Print words."
args.words = { type = "array", items = { type = "string" } }
run.args = ["print", "--", "{words}"]
[tools.cat]
description = "Print the input."
args.text = { type = "string" }
run = { args = ["cat"], stdin = "{text}" }
[tools.flood]
description = "Print much."
args.n = { type = "integer" }
run.args = ["flood", "{n}"]
[tools.exit]
description = "End."
args.status = { type = "integer" }
run.args = ["exit", "{status}"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_wasi_0_3_is_a_tool() {
    let folder = tempfile::tempdir().unwrap();
    let component = folder.path().join("program.wasm");
    std::fs::copy(guest_artifacts::FOREIGN_ASYNC_PROGRAM, &component).unwrap();
    std::fs::write(folder.path().join("program.plugin.toml"), MANIFEST).unwrap();
    let policy = "[plugins.p.limits]\nhost_call_bytes = \"64KiB\"";
    let host = TestHost::new(&[("p", component.to_str().unwrap())], policy).await;
    assert_eq!(value(&host.call("p__print", json!({"words": ["a", "b"]})).await), "-- a b");
    assert_eq!(value(&host.call("p__cat", json!({"text": "from stdin"})).await), "from stdin");
    let failed = host.call("p__exit", json!({"status": 7})).await;
    assert_eq!(refusal(&failed).code, ErrorCode::ExecutionFailed);
    assert_eq!(refusal(&failed).subject.as_deref(), Some("exit-status-7"));
    assert!(refusal(&failed).message.contains("it went wrong"), "{:?}", refusal(&failed));
    let flooded = host.provoke("p__flood", json!({"n": 200_000}), SOON).await;
    assert_eq!(fault(&flooded).kind, FaultKind::OutputTooLarge);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_wasi_0_3_pass_the_same_policy() {
    let server = LoopbackServer::new(|_| response(200, "", "hello")).await;
    let policy =
        format!("[plugins.f.grant]\nnet = [\"GET,POST {}\"]\nnet_private = [\"127.0.0.1\"]", server.url(""));
    let host = TestHost::new(&[("f", guest_artifacts::FOREIGN_ASYNC_HTTP)], &policy).await;
    let at = server.address.to_string();
    let fetch = async |args: Value| host.provoke("f__fetch", args, SOON).await;
    assert_eq!(value(&fetch(json!({"authority": at, "path": "/"})).await), "200: hello");
    assert_eq!(value(&fetch(json!({"authority": at, "path": "/", "body": "sent"})).await), "200: hello");
    let before = server.seen().len();
    let refused = fetch(json!({"authority": "10.0.0.1", "path": "/"})).await;
    assert!(refusal(&refused).message.contains("HttpRequestDenied"), "{:?}", refusal(&refused));
    assert_eq!(server.seen().len(), before);
    assert!(hints(&refused).contains("net = ["), "{}", hints(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_wasi_0_3_have_the_same_grants_and_quotas() {
    let policy = "[plugins.a.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n\
                  [plugins.a.limits]\nfile_bytes = \"1MiB\"\nfile_entries = 2";
    let host = TestHost::new(&[("a", guest_artifacts::FOREIGN_ASYNC_FILES)], policy).await;
    let call = async |tool: &str, args: Value| host.provoke(&format!("a__{tool}"), args, SOON).await;
    let long = "0123456789".repeat(20_000);
    std::fs::write(host.root().join("long"), &long).unwrap();
    let read = call("read", json!({"path": "long"})).await;
    assert!(
        value(&read).starts_with("0123456789012345") && read.usage.result_bytes == 200_000,
        "{:?}",
        read.usage
    );
    let written = call("write", json!({"path": "note", "text": "hello ", "times": 3})).await;
    assert_eq!(structured(&written), json!({"result": 18}));
    assert_eq!(std::fs::read_to_string(host.root().join("note")).unwrap(), "hello hello hello ");
    assert_eq!(value(&call("make-folder", json!({"path": "sub"})).await), "done");
    assert_eq!(structured(&call("names", json!({})).await), json!({"result": ["long", "note", "sub"]}));
    assert_eq!(value(&call("grow", json!({"path": "note", "size": 100})).await), "done");
    let fifo = std::process::Command::new("mkfifo").arg(host.root().join("fifo")).status().unwrap();
    assert!(fifo.success());
    std::os::unix::fs::symlink("/etc/hostname", host.root().join("away")).unwrap();
    for (tool, args, code) in [
        ("read", json!({"path": "nothing"}), "NoEntry"),
        ("read", json!({"path": "sub"}), "IsDirectory"),
        ("read", json!({"path": "fifo"}), "NotPermitted"),
        ("read", json!({"path": "away"}), "NotPermitted"),
        ("read", json!({"path": "../x"}), "NotPermitted"),
        ("link", json!({"target": "note", "path": "l"}), "NotPermitted"),
        ("write", json!({"path": "big", "text": "x".repeat(100_000), "times": 20}), "Quota"),
        ("grow", json!({"path": "note", "size": 2 << 20}), "Quota"),
    ] {
        let refused = call(tool, args.clone()).await;
        assert!(refusal(&refused).message.contains(code), "{tool} {args}: {:?}", refusal(&refused));
    }

    let host = TestHost::new(&[("a", guest_artifacts::FOREIGN_ASYNC_FILES)], "").await;
    let refused = host.call("a__read", json!({"path": "long"})).await;
    assert!(refusal(&refused).message.contains("no folder"), "{:?}", refusal(&refused));
    assert!(hints(&refused).contains("fs_read"), "{}", hints(&refused));
    let host = TestHost::new(
        &[("a", guest_artifacts::FOREIGN_ASYNC_FILES)],
        "[plugins.a.grant]\nfs_read = [\"$workspace\"]",
    )
    .await;
    let refused = host.call("a__write", json!({"path": "note", "text": "x", "times": 1})).await;
    assert!(refusal(&refused).message.contains("NotPermitted"), "{:?}", refusal(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_of_the_contract_may_export_asynchronous_tools() {
    let policy = "[plugins.a]\nreuse = 5";
    let host = TestHost::new(&[("a", guest_artifacts::API_ASYNC)], policy).await;
    for _ in 0..2 {
        assert_eq!(value(&host.call("a__wait", json!({"milliseconds": 3})).await), "waited in 1");
    }
    assert_eq!(value(&host.call("a__echo", json!({"text": "here"})).await), "here");
    let refused = host.call("a__wait", json!({})).await;
    assert_eq!(refusal(&refused).message, "wait: how long?");
    let view = host.host.view(Filter::default());
    let def = view.definitions().find(|entry| entry.def.name.as_str() == "a__wait").unwrap();
    assert!(def.def.traits.read_only);
}

const ABUSE: &str = "[plugins.h.limits]\nfuel = 300_000_000\nmemory = \"16MiB\"\ntimeout = \"20s\"\nhost_call_bytes = \"256KiB\"\nhandles = 64";

/// Each limit of a call, reached by an asynchronous function.
#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_functions_run_under_the_same_limits() {
    let brief = |tool: &str| format!("[plugins.h.tools.{tool}]\nlimits = {{ timeout = \"300ms\" }}\n");
    let policy = format!("{ABUSE}\n{}{}", brief("wait-forever"), brief("yield-forever"));
    let host = TestHost::new(&[("h", guest_artifacts::HOSTILE_ASYNC)], &policy).await;
    for (tool, args, kind, part) in [
        ("spin", json!({}), FaultKind::OutOfFuel, "fuel"),
        ("never", json!({}), FaultKind::Trap, "waits for nothing that can happen"),
        ("wait-forever", json!({}), FaultKind::Deadline, "timeout"),
        ("allocate", json!({"mebibytes": 64}), FaultKind::OutOfMemory, "memory"),
        ("many-streams", json!({}), FaultKind::OutOfMemory, "handles"),
        ("many-tasks", json!({}), FaultKind::OutOfMemory, "handles"),
        ("repeat", json!({"text": "x", "times": 300_000}), FaultKind::OutputTooLarge, "host_call_bytes"),
        ("trap", json!({}), FaultKind::Trap, "as asked"),
    ] {
        let delivered = host.provoke(&format!("h__{tool}"), args, SOON).await;
        let fault = fault(&delivered);
        let words = format!("{fault}\n{}", hints(&delivered));
        assert_eq!(fault.kind, kind, "{tool}: {words}");
        assert!(words.contains(part), "{tool}: {words}");
    }
    // Yielding uses fuel or time, whichever ends first.
    let delivered = host.provoke("h__yield-forever", json!({}), SOON).await;
    assert!(matches!(fault(&delivered).kind, FaultKind::OutOfFuel | FaultKind::Deadline));
    // Output beyond `stdio_bytes` is dropped, as that of any guest.
    assert_eq!(outcome(&host.provoke("h__write", json!({"mebibytes": 32}), SOON).await), "ok");
}

/// What a function leaves behind ends with the call that answered.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_and_streams_that_outlive_the_answer_end() {
    let host = TestHost::new(&[("h", guest_artifacts::HOSTILE_ASYNC)], ABUSE).await;
    for (tool, said) in [("hold-stream", "held"), ("work-after-return", "returned")] {
        let start = std::time::Instant::now();
        assert_eq!(value(&host.provoke(&format!("h__{tool}"), json!({}), SOON).await), said);
        assert!(start.elapsed() < Duration::from_secs(15), "{tool} waited for its deadline");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_or_dropped_call_ends() {
    let policy = "[limits]\ntimeout = \"60s\"\nfuel = 1_000_000_000_000";
    let host = TestHost::new(&[("h", guest_artifacts::HOSTILE_ASYNC)], policy).await;
    let places = host.host.available_call_permits();
    for tool in ["h__wait-forever", "h__spin", "h__yield-forever"] {
        let turn = TurnContext::default();
        let cancel = turn.cancel.clone();
        let begun = async || {
            host.until_running(1).await;
            tokio::time::sleep(SETTLED).await;
        };
        let cancelled = async {
            begun().await;
            cancel.cancel();
        };
        let (delivered, ()) = tokio::join!(host.call_in(tool, "{}", turn), cancelled);
        assert_eq!(outcome(&delivered), "cancelled", "{tool}");
        assert_eq!(host.host.available_call_permits(), places, "{tool}");
        tokio::select! {
            answer = host.call(tool, json!({})) => panic!("{tool} answered {answer:?}"),
            () = begun() => {}
        }
        assert_eq!(host.host.available_call_permits(), places, "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_import_names_interface_version_and_remedy() {
    let host = TestHost::empty("");
    for (import, said) in [
        (
            "wasi:nn/graph@0.2.0",
            "imports `wasi:nn/graph@0.2.0`, which this host does not provide: rebuild it without",
        ),
        ("wasi:cli/environment@0.4.0", "but this host provides `wasi:cli` 0.2 and 0.3: rebuild it for a"),
        (
            "wasi:cli/environment@0.3.0",
            "imports `nothing` of `wasi:cli/environment@0.3.0`, which this host does not",
        ),
    ] {
        let text = format!("(component (import \"{import}\" (instance (export \"nothing\" (func)))))");
        let bytes = wat::parse_str(text).unwrap();
        let problem = host.host.load_bytes(PluginId::new("x").unwrap(), bytes).await.unwrap_err().to_string();
        assert!(problem.contains(said) && problem.matches(". ").count() == 0, "{import}: {problem}");
    }
}
