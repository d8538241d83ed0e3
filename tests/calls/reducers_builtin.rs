//! The built-in reducers, native and as a component. Both return the same text, and neither makes a result worse.

use std::path::Path;
use std::sync::Arc;

use integration_tests::{TestHost, refusal, structured, value};
use serde_json::{Value, json};
use toolbay::core::call::compute::{ComputePool, ComputeQueue};
use toolbay::core::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use toolbay::core::call::reduce::ReduceContext;
use toolbay::core::call::{AdmittedCall, CallContext};
use toolbay::core::registry::{Bundle, Collision, ToolEntry};
use toolbay::core::tool::content::{ErrorCode, ToolError, ToolOutput, ToolResult};
use toolbay::core::tool::fault::FaultKind;
use toolbay::core::tool::schema::Schema;
use toolbay::core::tool::{ToolDef, ToolSource};
use toolbay::policy::limits::Usage;
use toolbay::policy::name::{QualifiedName, ToolName};
use toolbay::{CancellationToken, Filter, LoadError, PluginId, TurnContext, reducers};

/// The plugin's name of each reducer, and its name in `toolbay_reducers`.
const NAMES: [(&str, &str); 8] = [
    ("json_array", "json_array"),
    ("kanban_list", "kanban_list"),
    ("list_dir", "list_dir"),
    ("log", "log"),
    ("read_file", "read_file"),
    ("search", "search"),
    ("search_files", "search"),
    ("terminal", "terminal"),
];

fn compute() -> ComputeQueue {
    ComputePool::default().queue("test".into(), CancellationToken::new())
}

/// Returns its argument `text` as a success or, with `fail`, as an error.
#[derive(Debug)]
struct EchoTool;

impl Invoke for EchoTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, _: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        let text = call.parsed().get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
        let fails = call.parsed().get("fail").is_some();
        let result = if fails {
            Err(Failure::Refused(ToolError::new(ErrorCode::ExecutionFailed, text)))
        } else {
            let structured = serde_json::value::to_raw_value(&json!({ "kept": true })).ok();
            Ok(ToolOutput { structured, cost_usd: Some(0.25), ..ToolOutput::text(text) })
        };
        Box::pin(async move { ToolOutcome { result, usage: Usage::default() } })
    }
}

/// A native tool with a configurable result.
fn say(name: &str) -> ToolEntry {
    let name = QualifiedName::from_native(&ToolName::new(name).unwrap());
    let schema = Schema::input(r#"{"type": "object"}"#).unwrap();
    let def = ToolDef::new(name, "Says a text.", schema, ToolSource::Builtin);
    let mut entry = ToolEntry::new(def, Arc::new(EchoTool));
    entry.call.args_bytes = 64 << 20;
    entry
}

/// A host with the tools `say__NAME`, each with the plugin's reducer of that name.
async fn with_the_plugin() -> TestHost {
    let tools: Vec<String> = NAMES.iter().map(|(name, _)| format!("\"say__{name}\"")).collect();
    let policy = format!("[plugins.reducers.grant]\nreduce = [{}]", tools.join(", "));
    let host = TestHost::new(&[("reducers", guest_artifacts::PLUGIN_REDUCERS)], &policy).await;
    let tools = NAMES.iter().map(|(name, _)| say(&format!("say__{name}"))).collect();
    host.host.registry().register(Bundle { tools, reducers: vec![] }).unwrap();
    host
}

/// Texts of every kind: the fixtures of the crate, and edge cases.
fn texts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/reducers/tests/fixtures");
    let mut texts: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let path = file.unwrap().path();
            (path.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap())
        })
        .collect();
    texts.sort();
    assert!(!texts.is_empty(), "the fixtures are gone");
    let lines = |line: &str, number: usize| line.repeat(number);
    let tasks: Vec<Value> = (0..40)
        .map(|n| json!({"id": n, "title": format!("é {n}"), "status": (if n % 2 == 0 { "todo" } else { "done" }), "updatedAt": format!("2026-01-{n:02}"), "zeta": 1, "alpha": 1.50}))
        .collect();
    let more = [
        ("empty", String::new()),
        ("lines", (0..5000).map(|n| format!("line {n}\n")).collect()),
        ("long", lines("é🙂", 20_000)),
        ("crlf", lines("a line\r\n", 2000)),
        ("nul", lines("a\0b", 5000)),
        ("tasks", serde_json::to_string_pretty(&tasks).unwrap()),
        ("search", (0..200).map(|n| format!("src/f{}.rs:{n}:let x = {n};\n", n % 7)).collect()),
        ("listing", (0..300).map(|n| format!("f{n}.{}\n", ["rs", "md", "toml"][n % 3])).collect()),
        (
            "log",
            (0..3000)
                .map(|n| format!("10:00:{:02} INFO poll {n} took {n} ms\nWARN {}\n", n % 60, n / 100))
                .collect(),
        ),
        (
            "pointer",
            format!(
                "{}[truncated — 9 chars total; full output written to /a b.log — use read_file]\n{}",
                lines("x\n", 9000),
                lines("y\n", 9000)
            ),
        ),
    ];
    texts.extend(more.map(|(name, text)| (name.to_owned(), text)));
    texts
}

/// A command for which the text of a fixture is recognised.
fn command(fixture: &str) -> String {
    let (program, rest) = fixture.split_once('_').unwrap_or((fixture, ""));
    match program {
        "git" => "git status".to_owned(),
        "jest" | "vitest" | "mocha" | "npm" if !rest.starts_with("install") => "npm test".to_owned(),
        "node" => "node --test".to_owned(),
        "unittest" => "python -m unittest".to_owned(),
        "apt" => "apt-get install x".to_owned(),
        _ => format!("{program} {}", rest.split('_').next().unwrap_or_default()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_component_and_the_native_reducers_agree() {
    let host = with_the_plugin().await;
    let view = host.host.view(Filter::default());
    let mut reduced = std::collections::BTreeMap::new();
    for (name, text) in texts() {
        for budget_chars in [80_000, 700] {
            let args = json!({ "command": command(&name) }).to_string();
            let input: ToolResult = Ok(ToolOutput::text(text.clone()));
            for (declared, builtin) in NAMES {
                let component = view.reducer(&format!("say__{declared}")).unwrap();
                let native = reducers::native("x__y", builtin).unwrap();
                let compute = compute();
                let ctx = ReduceContext {
                    tool_name: declared,
                    args: &args,
                    turn_count: 2,
                    budget_chars,
                    compute: &compute,
                };
                let a = component.reducer.reduce(&input, ctx).await.unwrap().map(|r| r.unwrap().value);
                let b = native.reducer.reduce(&input, ctx).await.unwrap().map(|r| r.unwrap().value);
                assert_eq!(a, b, "{declared} of {name} within {budget_chars}");
                *reduced.entry(declared).or_insert(0) += usize::from(a.is_some());
            }
        }
    }
    assert!(NAMES.iter().all(|(name, _)| reduced[name] > 0), "one reduced nothing: {reduced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn structured_content_cost_and_error_flag_are_unchanged() {
    let host = with_the_plugin().await;
    let native = TestHost::new(&[], "").await;
    let entry = |name: &str| Bundle { tools: vec![say(name)], reducers: vec![] };
    for (declared, builtin) in NAMES {
        let tool = format!("say__{declared}");
        native.host.registry().register(entry(&tool)).unwrap();
        native.host.registry().register_reducer(reducers::native(&tool, builtin).unwrap()).unwrap();
    }
    let long = (0..5000).map(|n| format!("line {n}\n")).collect::<String>();
    for host in [&host, &native] {
        let mut reduced = 0;
        for (name, _) in NAMES {
            for text in [&long, "x\n".repeat(5000).as_str(), "f:1:x\n".repeat(5000).as_str()] {
                let turn = TurnContext { budget_chars: 20_000, ..TurnContext::default() };
                let args = json!({ "text": text, "command": "cat x" }).to_string();
                drop(host.audit.take());
                let delivered = host.call_in(&format!("say__{name}"), &args, turn).await;
                reduced += usize::from(host.audit.take()[0].reducer == Some("reduced"));
                assert_eq!(structured(&delivered), json!({ "kept": true }), "{name}");
                assert_eq!(delivered.result.as_ref().unwrap().cost_usd, Some(0.25), "{name}");
            }
            let turn = TurnContext { budget_chars: 2000, ..TurnContext::default() };
            let args = json!({ "text": long, "fail": true, "command": "cargo test" }).to_string();
            let delivered = host.call_in(&format!("say__{name}"), &args, turn).await;
            let error = refusal(&delivered);
            assert_eq!(error.code, ErrorCode::ExecutionFailed, "{name}");
            assert!(error.message.starts_with("line 0\n"), "{name}: {}", error.message);
            assert_eq!(
                error.message.ends_with("line 4999\n"),
                name == "terminal",
                "{name}: {}",
                error.message
            );
        }
        assert!(reduced > 8, "only {reduced} were reduced");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_reducer_is_added_and_removed() {
    let host = TestHost::new(&[], "").await;
    let registry = host.host.registry();
    registry.register(Bundle { tools: vec![say("say__read_file")], reducers: vec![] }).unwrap();
    let text = "a line\n".repeat(400);
    let call = || host.call("say__read_file", json!({ "text": text }));
    let handle = registry.register_reducer(reducers::native("say__read_file", "read_file").unwrap()).unwrap();
    assert!(value(&call().await).starts_with("File is 400 lines. Showing lines 1-200."));
    let second = registry.register_reducer(reducers::native("say__read_file", "log").unwrap()).unwrap_err();
    assert!(
        second.to_string().starts_with("a reducer for tool `say__read_file` is already registered"),
        "{second}"
    );
    assert!(registry.remove_reducer(&handle) && !registry.remove_reducer(&handle));
    assert_eq!(value(&call().await), text);
    let other = registry.register_reducer(reducers::native("say__read_file", "log").unwrap()).unwrap();
    assert!(!registry.remove_reducer(&handle), "a stale handle");
    assert_eq!(value(&call().await), "a line (×400)\n");
    assert!(registry.remove_reducer(&other));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_does_not_push_a_native_reducer_out() {
    let host = TestHost::empty("[plugins.reducers.grant]\nreduce = [\"say__log\"]");
    host.host.registry().register_reducer(reducers::native("say__log", "log").unwrap()).unwrap();
    let id = PluginId::new("reducers").unwrap();
    let loaded = host.host.load_file(id, Path::new(guest_artifacts::PLUGIN_REDUCERS)).await;
    let Err(LoadError::Collision(Collision::Reducer { target, .. })) = &loaded else { panic!("{loaded:?}") };
    assert_eq!(target, "say__log");
    assert!(host.host.plugins().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_binds_a_reducer_to_a_tool_of_another_name() {
    let policy = "[plugins.reducers.grant]\nreduce = [\"say__fetch = log\", \"say__say = kanban\"]";
    let host = TestHost::empty(policy);
    host.host
        .registry()
        .register(Bundle { tools: vec![say("say__fetch"), say("say__log")], reducers: vec![] })
        .unwrap();
    let id = PluginId::new("reducers").unwrap();
    let warnings = host.host.load_file(id, Path::new(guest_artifacts::PLUGIN_REDUCERS)).await.unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let warnings: Vec<String> = host.host.policy_warnings().into_iter().map(|one| one.message).collect();
    assert_eq!(warnings, ["there is no tool `say__say`", "the plugin `reducers` has no reducer `kanban`"]);
    let args = json!({ "text": "again\n".repeat(9) });
    assert_eq!(value(&host.call("say__fetch", args.clone()).await), "again (×9)\n");
    assert_eq!(value(&host.call("say__log", args).await), "again\n".repeat(9), "nobody granted that one");
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_reducers_cause_no_warning() {
    let host = TestHost::empty("");
    let id = PluginId::new("reducers").unwrap();
    let warnings = host.host.load_file(id, Path::new(guest_artifacts::PLUGIN_REDUCERS)).await.unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_component_has_fuel_for_large_texts() {
    let host = with_the_plugin().await;
    let view = host.host.view(Filter::default());
    let megabytes = |piece: &str| piece.repeat((4 << 20) / piece.len());
    for (name, command, text) in [
        ("terminal", "cat x", megabytes("some line of output\n")),
        ("terminal", "npm test", megabytes(" ✓ passes\n") + "# tests 1\n"),
        ("log", "", megabytes("10:00:01 INFO took 3 ms\n")),
        ("search_files", "", megabytes("src/a.rs:1:let x = 1;\n")),
        ("list_dir", "", megabytes("file.rs\n")),
        ("json_array", "", format!("[{}1]", megabytes("{\"id\":1,\"title\":\"a\"},"))),
        ("kanban_list", "", format!("[{}1]", megabytes("{\"id\":1,\"status\":\"todo\"},"))),
    ] {
        let entry = view.reducer(&format!("say__{name}")).unwrap();
        let args = json!({ "command": command }).to_string();
        let compute = compute();
        let ctx = ReduceContext {
            tool_name: name,
            args: &args,
            turn_count: 0,
            budget_chars: 80_000,
            compute: &compute,
        };
        match entry.reducer.reduce(&Ok(ToolOutput::text(text)), ctx).await {
            Ok(Some(Ok(output))) => assert!(output.value.len() < 100_000, "{name}"),
            // A busy machine may exceed the timeout. Fuel does not depend on the machine.
            Err(fault) => assert_eq!(fault.kind, FaultKind::Deadline, "{name}: {fault}"),
            other => panic!("{name} {command}: {other:?}"),
        }
    }
}

/// `shell` appends a line with the exit code. The output before it is reduced as if it stood alone.
#[tokio::test(flavor = "multi_thread")]
async fn git_status_through_shell_is_reduced() {
    let host = with_the_plugin().await;
    let view = host.host.view(Filter::default());
    let component = view.reducer("say__terminal").unwrap();
    let text: String = (0..60).map(|n| format!(" M src/part_{}/file_{n}.rs\n", n % 3)).collect();
    let args = json!({ "command": "git status --porcelain" }).to_string();
    let reduce = async |text: String| {
        let compute = compute();
        let ctx = ReduceContext {
            tool_name: "terminal",
            args: &args,
            turn_count: 2,
            budget_chars: 80_000,
            compute: &compute,
        };
        let reduced = component.reducer.reduce(&Ok(ToolOutput::text(text)), ctx).await.unwrap();
        reduced.map(|reduced| reduced.unwrap().value)
    };
    let alone = reduce(text.clone()).await.expect("it is reduced");
    assert!(alone.len() < text.len(), "{alone}");
    let shown = reduce(format!("{text}[exit code 0]")).await;
    assert_eq!(shown, Some(format!("{}\n[exit code 0]", alone.trim_end_matches('\n'))));
}
