//! Command line programs as tools.

use std::path::PathBuf;
use std::time::Duration;

use integration_tests::{TestHost, fault, refusal, structured, words as value};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbay::PluginId;
use toolbay::core::tool::content::ErrorCode;
use toolbay::core::tool::fault::FaultKind;

const PAGE: &str = include_str!("../../docs/how-to/plain-components.md");

/// Tools of the test program, one for each of its modes.
const MANIFEST: &str = r#"
version = 1
name = "tool"

[tools.args]
description = "Print the arguments."
args.path = { type = "string", optional = true }
args.paths = { type = "array", items = { type = "string" }, optional = true }
args.lines = { type = "integer", default = 3 }
args.quiet = { type = "boolean", optional = true }
run.args = ["args", "--lines={lines}", ["-p", "{path}"], { when = "quiet", args = ["-q"] }, "--", "{paths}"]

[tools.cat]
description = "Print the input."
args.text = { type = "string" }
run = { args = ["cat"], stdin = "{text}" }

[tools.env]
description = "Print a variable."
args.name = { type = "string" }
args.value = { type = "string", optional = true }
run = { args = ["env", "{name}"], env = { FIXED = "by the author", GIVEN = "{value}", TZ = "nowhere" } }
needs = [{ kind = "env", target = "TZ", optional = true }, { kind = "env", target = "SECRET_PLACE", optional = true }]

[tools.read]
description = "Read a file."
args.path = { type = "string" }
run.args = ["read", "{path}"]

[tools.write]
description = "Write a file."
args.path = { type = "string" }
run.args = ["write", "{path}"]

[tools.connect]
description = "Connect."
args.to = { type = "string" }
run.args = ["connect", "{to}"]

[tools.exit]
description = "End."
args.status = { type = "integer" }
args.very = { type = "array", items = { type = "string" }, optional = true }
run.args = ["exit", "{status}", "{very}"]

[tools.grep]
description = "End as a program does that found nothing."
args.status = { type = "integer" }
run = { args = ["exit", "{status}"], success = [0, 1] }

[tools.any]
description = "Do anything."
args.mode = { type = "string" }
args.n = { type = "integer", default = 0 }
run.args = ["{mode}", "{n}"]

[tools.json]
description = "Print JSON."
args.text = { type = "string" }
output = { type = "object", properties = { a = { type = "integer" } }, required = ["a"] }
run.args = ["print", "{text}"]

[tools.number]
description = "Print a number."
args.text = { type = "string" }
output = { type = "number" }
run.args = ["print", "{text}"]
"#;

/// The program with its manifest file.
fn program(file: &str, manifest: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let component = folder.path().join("tool.wasm");
    std::fs::copy(file, &component).unwrap();
    std::fs::write(folder.path().join("tool.plugin.toml"), manifest).unwrap();
    (folder, component)
}

async fn tool(policy: &str) -> TestHost {
    let (_folder, component) = program(guest_artifacts::PROGRAM_TOOL, MANIFEST);
    TestHost::new(&[("tool", component.to_str().unwrap())], policy).await
}

/// A program of the registry, unchanged, with the manifest file from the book.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_registry_is_a_tool() {
    let (_, manifest) = PAGE.split_once("```toml titlecase.plugin.toml\n").unwrap();
    let manifest = manifest.split("```").next().unwrap();
    let (_folder, component) = program(guest_artifacts::PROGRAM_TITLECASE, manifest);
    let host = TestHost::new(&[("titlecase", component.to_str().unwrap())], "").await;
    let result = host
        .call("titlecase__titlecase", json!({"text": "the small dog on the hill\nof mice and men"}))
        .await;
    assert_eq!(value(&result), "The Small Dog on the Hill\nOf Mice and Men\n");
    let result = host.call("titlecase__titlecase", json!({"text": 1})).await;
    assert_eq!(refusal(&result).code, ErrorCode::InputInvalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_file_sets_arguments_input_and_variables() {
    let host = tool("[plugins.tool.grant]\nenv = [\"TZ=UTC\"]").await;
    let call = async |tool: &str, args: Value| host.call(&format!("tool__{tool}"), args).await;
    for (args, printed) in [
        (json!({}), "args: --lines=3|--\n"),
        (json!({"path": "a b", "quiet": true, "lines": 1}), "args: --lines=1|-p|a b|-q|--\n"),
        (json!({"paths": ["$(x)", "-rf", "*"]}), "args: --lines=3|--|$(x)|-rf|*\n"),
    ] {
        assert_eq!(value(&call("args", args).await), printed);
    }
    let option = call("args", json!({"path": "--help"})).await;
    assert_eq!(
        (refusal(&option).code, refusal(&option).subject.as_deref()),
        (ErrorCode::InputInvalid, Some("/path"))
    );
    assert_eq!(value(&call("cat", json!({"text": "é\0\n"})).await), "é\0\n");
    for (args, found) in [
        (json!({"name": "FIXED"}), "by the author\n"),
        (json!({"name": "GIVEN", "value": "x"}), "x\n"),
        (json!({"name": "GIVEN"}), "(not set)\n"),
        (json!({"name": "TZ"}), "UTC\n"),
        (json!({"name": "PATH"}), "(not set)\n"),
        (json!({"name": "HOME"}), "(not set)\n"),
    ] {
        assert_eq!(value(&call("env", args.clone()).await), found, "{args}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_the_network_are_those_that_are_granted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let host = tool("").await;
    std::fs::write(host.root().join("note"), "hello").unwrap();
    for (tool, args) in [
        ("read", json!({"path": "note"})),
        ("read", json!({"path": "/etc/passwd"})),
        ("write", json!({"path": "new"})),
        ("connect", json!({"to": address})),
    ] {
        let delivered = host.call(&format!("tool__{tool}"), args.clone()).await;
        assert_eq!(refusal(&delivered).code, ErrorCode::ExecutionFailed, "{tool} {args}");
        assert_eq!(refusal(&delivered).subject.as_deref(), Some("exit-status-1"));
    }
    assert!(!host.root().join("new").exists());

    let policy = "[plugins.tool.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace/out\"]";
    let (_folder, component) = program(guest_artifacts::PROGRAM_TOOL, MANIFEST);
    let host = TestHost::empty(policy);
    std::fs::create_dir(host.root().join("out")).unwrap();
    std::fs::write(host.root().join("note"), "hello").unwrap();
    host.load("tool", component.to_str().unwrap()).await;
    assert_eq!(value(&host.call("tool__read", json!({"path": "note"})).await), "hello");
    assert_eq!(value(&host.call("tool__write", json!({"path": "out/new"})).await), "");
    assert_eq!(std::fs::read_to_string(host.root().join("out/new")).unwrap(), "written");
    for (tool, path) in
        [("write", "note"), ("read", "/etc/passwd"), ("read", "../x"), ("write", "out/../new")]
    {
        let delivered = host.call(&format!("tool__{tool}"), json!({"path": path})).await;
        assert_eq!(refusal(&delivered).code, ErrorCode::ExecutionFailed, "{tool} {path}");
    }
    assert_eq!(std::fs::read_to_string(host.root().join("note")).unwrap(), "hello");

    let policy =
        format!("[plugins.tool.grant]\nnet = [\"tcp://{address}\"]\nnet_private = [\"127.0.0.0/8\"]");
    let host = tool(&policy).await;
    assert_eq!(value(&host.call("tool__connect", json!({"to": address})).await), "connected\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_status_is_the_tools_answer_and_not_the_hosts_end() {
    let host = tool("").await;
    let exit = async |tool: &str, args: Value| host.provoke(tool, args, Duration::from_secs(30)).await;
    assert_eq!(value(&exit("tool__exit", json!({"status": 0})).await), "printed before");
    assert_eq!(
        value(&exit("tool__grep", json!({"status": 1})).await),
        "printed before",
        "the file calls it a success"
    );
    // WASI 0.2 only distinguishes exit status 0 from others.
    let failed = exit("tool__exit", json!({"status": 3, "very": ["so"]})).await;
    let error = refusal(&failed);
    assert_eq!((error.code, error.subject.as_deref()), (ErrorCode::ExecutionFailed, Some("exit-status-1")));
    assert!(
        error.message.starts_with("the program ended with exit status 1: it went very "),
        "{}",
        error.message
    );
    // The end of its output, however long the output is.
    let many = host.call("tool__any", json!({"mode": "errors", "n": 20_000})).await;
    let message = &refusal(&many).message;
    assert!(message.ends_with("line 19999") && message.len() < 2200, "{} bytes", message.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_under_the_same_limits() {
    let limits = "[plugins.tool.limits]\nfuel = 500000000\nhost_call_bytes = \"256KiB\"";
    let (host, brief) = (tool(limits).await, tool(&format!("{limits}\ntimeout = \"300ms\"")).await);
    for (mode, n, kind) in [
        ("spin", 0, FaultKind::OutOfFuel),
        ("sleep", 0, FaultKind::Deadline),
        ("panic", 0, FaultKind::Trap),
        ("flood", (256 << 10) + 1, FaultKind::OutputTooLarge),
    ] {
        let args = json!({"mode": mode, "n": n});
        // The clock ends no other mode, however loaded the machine is.
        let host = if mode == "sleep" { &brief } else { &host };
        let delivered = host.provoke("tool__any", args, Duration::from_secs(30)).await;
        assert_eq!(fault(&delivered).kind, kind, "{mode}");
    }
    let most = host.call("tool__any", json!({"mode": "flood", "n": 100_000})).await;
    assert!(value(&most).starts_with("xxxx"));
    let broken = host.call("tool__any", json!({"mode": "bytes"})).await;
    assert_eq!(value(&broken), "a\u{fffd}b");
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_json_output_is_checked() {
    let host = tool("[results]\nschema_mismatch = \"error\"").await;
    assert_eq!(host.ask("tool__json", json!({"text": " {\"a\": 1}\n"})).await, json!({"a": 1}));
    assert_eq!(host.ask("tool__number", json!({"text": "4.5"})).await, json!({"result": 4.5}));
    for (tool, text) in
        [("json", "{\"a\": \"x\"}"), ("json", "nonsense"), ("json", "{\"a\":1,\"a\":2}"), ("number", "\"x\"")]
    {
        let delivered = host.call(&format!("tool__{tool}"), json!({"text": text})).await;
        assert_eq!(fault(&delivered).kind, FaultKind::BadOutput, "{text}");
    }
    let delivered = host.call("tool__json", json!({"text": "{\"a\":2}"})).await;
    assert_eq!(structured(&delivered), json!({"a": 2}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_manifest_file_gets_a_precise_error() {
    let host = TestHost::empty("");
    let file = std::path::Path::new(guest_artifacts::PROGRAM_TOOL);
    let problem = host.host.load_file(PluginId::new("tool").unwrap(), file).await.unwrap_err().to_string();
    assert!(problem.contains("it is a program: add a file NAME.plugin.toml"), "{problem}");
}
