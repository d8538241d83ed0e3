//! A refusal has two readers: a model learns what happened, and the operator learns which policy line would allow it.
//! Lines are suggested only where they help. Refusals that WASI cannot express are appended to the result.

use std::fs;
use std::path::Path;

use integration_tests::{TestHost, compile_turn, hints, model_reads, outcome, refusal, structured};
use serde_json::{Value, json};
use toolbay::core::tool::client_compat::schema_findings;
use toolbay::core::tool::content::ToolOutput;
use toolbay::policy::limits::CallLimits;
use toolbay::{CallResult, Filter, Policy, TurnContext, native_tool};

const FILES: &str = guest_artifacts::CAP_FILES;
const PROGRAM: &str = r#"
version = 1
name = "tool"

[tools.time]
description = "Tell the time."
run.args = ["time"]

[tools.read]
description = "Read a file."
args.path = { type = "string" }
run.args = ["read", "{path}"]

[tools.write]
description = "Write a file."
args.path = { type = "string" }
run.args = ["write", "{path}"]

[tools.find]
description = "End as a program does that found nothing, or failed."
args.path = { type = "string" }
run = { args = ["read", "{path}"], success = [0, 1], failure_stderr = ["*: No such file*"] }

[tools.print]
description = "Print a text."
args.text = { type = "string" }
run.args = ["print", "{text}"]
"#;

/// A program that does not know this host, in its own folder.
async fn program(policy: &str) -> TestHost {
    let folder = tempfile::tempdir().unwrap();
    let component = folder.path().join("tool.wasm");
    fs::copy(guest_artifacts::PROGRAM_TOOL, &component).unwrap();
    fs::write(folder.path().join("tool.plugin.toml"), PROGRAM).unwrap();
    TestHost::new(&[("tool", component.to_str().unwrap())], policy).await
}

/// The policy with the suggested lines instead of the existing ones.
fn followed(policy: &str, hint: &str) -> String {
    let mut table: toml::Table = policy.parse().unwrap();
    let lines: Vec<&str> = hint.lines().skip_while(|line| !line.starts_with('[')).collect();
    let advised: toml::Table = lines.join("\n").parse().unwrap();
    fn put(into: &mut toml::Table, from: toml::Table) {
        for (key, value) in from {
            match (into.get_mut(&key), value) {
                (Some(toml::Value::Table(into)), toml::Value::Table(from)) => put(into, from),
                (_, value) => drop(into.insert(key, value)),
            }
        }
    }
    put(&mut table, advised);
    table.to_string()
}

/// A host with the files guest and the folders `in`, `out` and `private`.
async fn files(policy: &str) -> TestHost {
    let host = TestHost::empty(policy);
    for folder in ["in", "out", "private"] {
        fs::create_dir(host.root().join(folder)).unwrap();
        fs::write(host.root().join(folder).join("a.txt"), "hello").unwrap();
    }
    host.load("f", FILES).await;
    host
}

async fn reload(host: &TestHost, policy: &str) {
    let text = format!("version = 1\n{policy}");
    let policy = Policy::parse(&text, &host.root(), Some(&host.root())).unwrap();
    host.host.reload_policy(policy).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn following_the_advice_permits_this_call_and_no_other() {
    let policies = [
        "[plugins.f.grant]\nfs_read = [\"$workspace/in\"]\nfs_write = [\"$workspace/out\"]\n",
        "[plugins.f.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n[plugins.f.tools.read]\nfs_read = [\"$workspace/in\"]\n[plugins.f.tools.write]\nfs_write = []\n",
    ];
    for policy in policies {
        for (tool, path, beside) in [
            ("read", "private/a.txt", "out/a.txt"),
            ("write", "in/new.txt", "private/new.txt"),
            ("write", "in/a [1].txt", "in/a.txt"),
        ] {
            let host = files(policy).await;
            let call = async |path: &str| {
                let delivered = host.call(&format!("f__{tool}"), json!({"path": path, "text": "x"})).await;
                (structured(&delivered)["error"].clone(), hints(&delivered))
            };
            let (error, hint) = call(path).await;
            assert_eq!(error, "denied", "{tool} {path}");
            assert!(hint.contains("[plugins.f."), "{tool} {path}: {hint}");
            reload(&host, &followed(policy, &hint)).await;
            assert_eq!(call(path).await, (Value::Null, String::new()), "{hint}");
            assert_eq!(call(beside).await.0, "denied", "{hint}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_advised_that_would_not_help() {
    let policy = "[plugins.f.grant]\nfs_read = [\"$workspace\", \"!**/private\"]\nfs_write = [\"$workspace/missing\"]\n";
    let host = files(policy).await;
    let call = async |tool: &str, path: &str| {
        let delivered = host.call(tool, json!({"path": path, "text": "x"})).await;
        let said = model_reads(&delivered);
        assert!(
            !said.contains("[plugins") && !said.contains("--allow-protected-path"),
            "{tool} {path}: {said}"
        );
        hints(&delivered)
    };
    // The folder is granted but does not exist.
    let hint = call("f__write", "missing/new.txt").await;
    assert!(hint.contains("Create the folder") && !hint.contains("[plugins"), "{hint}");
    fs::create_dir(host.root().join("missing")).unwrap();
    assert_eq!(call("f__write", "missing/new.txt").await, "");
    // A line of the same list excludes the path.
    let hint = call("f__read", "private/a.txt").await;
    assert!(hint.contains("`!**/private` in `fs_read`") && !hint.contains("write in the policy"), "{hint}");
    // The folder must be created, too.
    let hint = call("f__write", "deep/er/new.txt").await;
    assert!(
        hint.contains("does not exist: create it") && hint.contains("\"$workspace/deep/er/new.txt\""),
        "{hint}"
    );
    // No policy line opens the path.
    let hint = call("f__read", "/proc/self/environ").await;
    assert!(hint.contains("--allow-protected-path") && !hint.contains("[plugins"), "{hint}");
    // The tool does not declare the capability.
    let hint = call("f__undeclared", "in/a.txt").await;
    assert!(hint.is_empty() || hint.contains("does not declare"), "{hint}");
}

/// A tool of the embedder has no grants, no section and no `toolbay explain`.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_the_embedder_is_advised_only_what_helps() {
    let small = || "{}".to_owned();
    let large = || json!({"text": "x".repeat(CallLimits::default().args_bytes as usize)}).to_string();
    let rule = |action: &str| format!("[[rule]]\ntool = \"own__tool\"\naction = \"{action}\"\n");
    for (what, policy, args, helps) in [
        ("a rule that denies", rule("deny"), small(), true),
        ("a rule that asks", rule("ask"), small(), true),
        ("a switch", String::new(), small(), false),
        ("large arguments", String::new(), large(), false),
        ("arguments that are not JSON", String::new(), "{".to_owned(), false),
    ] {
        let host = TestHost::empty(&policy);
        let tool = native_tool("tool").namespace("own").description("Does it.");
        host.host.register(vec![tool.run(|_, _| async { Ok(ToolOutput::text("done")) }).unwrap()]).unwrap();
        if what == "a switch" {
            host.host.registry().disable("own__tool", "under repair").unwrap();
        }
        let refused = host.call_in("own__tool", &args, TurnContext::default()).await;
        let (said, hint) = (refusal(&refused).message.clone(), hints(&refused));
        assert!(!said.contains("toolbay explain") && !hint.contains("[plugins."), "{what}: {said} {hint}");
        if helps {
            reload(&host, &followed(&policy, &hint)).await;
            assert_eq!(model_reads(&host.call("own__tool", json!({})).await), "done", "{what}: {hint}");
        } else {
            assert!(hint.is_empty() && !said.contains("policy"), "{what}: {said} {hint}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_that_wasi_cannot_express_are_appended_to_the_result() {
    let host = program("").await;
    let time = host.call("tool__time", json!({})).await;
    assert_eq!(outcome(&time), "ok");
    let said = model_reads(&time);
    assert!(said.starts_with("1735689600\n"), "the clock stands still: {said}");
    assert!(said.contains("read the clock without the capability `clock`"), "{said}");
    assert!(said.contains("`toolbay explain tool__time` tells the operator what would allow it"), "{said}");
    assert!(
        !said.contains("[plugins") && hints(&time).contains("[plugins.tool.grant]\nclock = true"),
        "{time:?}"
    );
    for (tool, key) in [("tool__read", "fs_read"), ("tool__write", "fs_write")] {
        let failed = host.call(tool, json!({"path": "a.txt"})).await;
        let said = &refusal(&failed).message;
        assert!(said.contains("no folder is granted to it: not permitted"), "{said}");
        assert!(hints(&failed).contains(&format!("[plugins.tool.grant]\n{key} = ")), "{failed:?}");
    }
    // A tool without declarations gets no suggestion, and a granted operation is not refused.
    let print = host.call("tool__print", json!({"text": "{}"})).await;
    assert_eq!((model_reads(&print).as_str(), print.hints.lines.len()), ("{}", 0));
    let granted = program("[plugins.tool.grant]\nclock = true\nfs_read = [\"$workspace\"]").await;
    let time = granted.call("tool__time", json!({})).await;
    assert!(!model_reads(&time).contains("not granted") && time.hints.lines.is_empty(), "{time:?}");
    fs::write(granted.root().join("a.txt"), "hello").unwrap();
    assert_eq!(model_reads(&granted.call("tool__read", json!({"path": "a.txt"})).await), "hello");
    let failed = granted.call("tool__write", json!({"path": "b.txt"})).await;
    assert!(refusal(&failed).message.contains("tried to write a file without a grant"), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_wasi_request_carries_the_reason() {
    let host = TestHost::new(&[("w", guest_artifacts::CAP_WASI_HTTP)], "").await;
    let args = json!({"authority": "api.example.com", "path": "/", "scheme": "https"});
    let delivered = host.call("w__fetch", args).await;
    let said = model_reads(&delivered);
    assert!(
        said.contains("is not granted to tool") && said.contains("toolbay explain w__fetch"),
        "{delivered:?}"
    );
    assert!(!said.contains("[plugins"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_warns_about_ungranted_imports() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(guest_artifacts::PROGRAM_TOOL, folder.path().join("tool.wasm")).unwrap();
    fs::write(folder.path().join("tool.plugin.toml"), PROGRAM).unwrap();
    let host = TestHost::empty("");
    let report = host.host.load_dir(folder.path()).await.unwrap();
    let warned = report
        .warnings
        .iter()
        .any(|one| one.message.contains("`clock`") && one.message.contains("toolbay explain"));
    assert!(warned, "{:?}", report.warnings);
}

#[tokio::test(flavor = "multi_thread")]
async fn stderr_output_is_a_failure_if_every_exit_status_is_success() {
    let host = program("[plugins.tool.grant]\nfs_read = [\"$workspace\"]").await;
    fs::write(host.root().join("a.txt"), "hello").unwrap();
    assert_eq!(model_reads(&host.call("tool__find", json!({"path": "a.txt"})).await), "hello");
    let failed = host.call("tool__find", json!({"path": "none.txt"})).await;
    let error = refusal(&failed);
    assert_eq!(error.subject.as_deref(), Some("exit-status-1"));
    assert!(error.message.contains("none.txt: No such file"), "{}", error.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_tool_suggests_only_visible_names() {
    let policy = "[profile.few]\ntools = [\"files__read_file\"]\n[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n";
    let host = TestHost::new(&[("files", guest_artifacts::PLUGIN_FILES)], policy).await;
    let said = |delivered: &CallResult| refusal(delivered).message.clone();
    let text = said(&host.call("files__read_fil", json!({})).await);
    assert!(text.starts_with("Unknown tool: files__read_fil; did you mean `files__read_file`"), "{text}");
    let text = said(&host.call("files__wirte_file", json!({})).await);
    assert!(text.contains("files__write_file"), "{text}");
    let view = host.host.view(Filter::for_profile(host.host.policy().profile("few").cloned()));
    let text = view.find("files__wirte_file").unwrap_err().message;
    assert!(!text.contains("files__write_file"), "{text}");
    assert_eq!(view.find("zzzz").unwrap_err().message, "Unknown tool: zzzz");
}

/// Each example of `reduce` in the book names an existing plugin and reducer.
#[tokio::test(flavor = "multi_thread")]
async fn the_books_reducer_examples_name_tools_that_exist() {
    let host = TestHost::empty("");
    let turn = compile_turn("plugins").await;
    host.host.load_dir(Path::new(guest_artifacts::plugins_dir())).await.unwrap();
    drop(turn);
    let catalog = host.host.registry().snapshot();
    for page in [
        include_str!("../../docs/reference/plugins/reducers.md"),
        include_str!("../../docs/reference/reducers.md"),
        include_str!("../../plugins/reducers/README.md"),
    ] {
        let quoted = page.split('"').skip(1).step_by(2).map(|text| text.split(" = ").next().unwrap());
        let names: Vec<&str> =
            quoted.filter(|text| text.contains("__") && !text.contains(char::is_whitespace)).collect();
        assert!(!names.is_empty());
        for name in names {
            assert!(catalog.get(name).is_some(), "`{name}` is no tool");
        }
    }
    // No client refuses their schemas, and the host checks each keyword. It writes what it reads in the portable form.
    for tool in catalog.tools().filter(|tool| tool.def.source.plugin().is_some()) {
        let refused = schema_findings(&tool.def);
        assert!(refused.is_empty(), "{refused:?}");
        let lost: Vec<String> = tool.def.dropped_keywords().map(|(_, lost)| lost.to_string()).collect();
        assert!(lost.is_empty(), "{}: {lost:?}", tool.def.name);
    }
}
