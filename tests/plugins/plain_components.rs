//! Plain components: their exported functions as tools.

use std::time::Duration;

use integration_tests::{TestHost, fault, outcome, output, refusal, structured, words as value};
use serde_json::{Value, json};
use toolbay::core::tool::content::ErrorCode;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{Filter, HostBuilder, PluginId};

const PAGE: &str = include_str!("../../docs/how-to/plain-components.md");

async fn shapes(policy: &str) -> TestHost {
    TestHost::new(&[("shapes", guest_artifacts::FOREIGN_SHAPES)], policy).await
}

/// The names of the plugin's tools.
fn names(host: &TestHost) -> Vec<String> {
    let view = host.host.view(Filter::default());
    let names = view.definitions().map(|entry| entry.def.name.to_string());
    names.filter(|name| name.starts_with("shapes__")).collect()
}

/// The rows of the table of types in the book: type, JSON, an example, the result.
fn table() -> Vec<[String; 4]> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("| WIT ")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> =
            row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        [cells[0], cells[1], cells[2], cells[3]].map(str::to_owned)
    })
    .collect()
}

/// The smallest plain component. The benchmarks run it in other hosts, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_function_of_a_world_is_a_tool_with_its_name() {
    let host = TestHost::new(&[("plain", guest_artifacts::FOREIGN_ECHO)], "").await;
    let delivered = host.call("plain__echo", json!({"text": "over there"})).await;
    assert_eq!(value(&delivered), "over there");
    let delivered = host.call("plain__echo", json!({"text": 7})).await;
    assert_eq!(refusal(&delivered).code, ErrorCode::InputInvalid);
}

/// The table of types in the book matches the behaviour.
#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_types_is_true() {
    let tools = [
        ("bool", "of-bool"),
        ("u8", "of-u8"),
        ("s16", "of-s16"),
        ("u32", "of-u32"),
        ("s64", "of-s64"),
        ("u64", "of-u64"),
        ("f32", "of-f32"),
        ("f64", "of-f64"),
        ("char", "of-char"),
        ("string", "of-string"),
        ("list<u8>", "of-bytes"),
        ("list<s32>", "of-list"),
        ("tuple<string, u8>", "of-tuple"),
        ("record", "of-record"),
        ("variant", "of-variant"),
        ("enum", "of-enum"),
        ("flags", "of-flags"),
        ("option<string>", "of-option"),
        ("option<option<u8>>", "of-options"),
        ("list<result<u8, string>>", "of-results"),
    ];
    let host = shapes("").await;
    let rows = table();
    for (ty, _) in tools {
        assert!(rows.iter().any(|row| row[0] == ty), "the table has no row for `{ty}`");
    }
    for [ty, _, example, back] in rows {
        let (_, tool) =
            tools.iter().find(|(known, _)| *known == ty).unwrap_or_else(|| panic!("`{ty}`: no function"));
        let given: Value = serde_json::from_str(&example).unwrap_or_else(|e| panic!("{ty}: {example}: {e}"));
        let delivered = host.call(&format!("shapes__shapes-{tool}"), json!({"v": given})).await;
        if back == "refused" {
            assert_eq!(refusal(&delivered).code, ErrorCode::InputInvalid, "{ty}: {example}");
            continue;
        }
        let back: Value = if back == "the same" { given } else { serde_json::from_str(&back).unwrap() };
        match ty.as_str() {
            // A string is the result itself.
            "string" => {
                assert_eq!(json!(value(&delivered)), back);
                assert!(output(&delivered).structured.is_none());
            }
            "record" => assert_eq!(structured(&delivered), back, "{example}"),
            _ => assert_eq!(structured(&delivered), json!({"result": back}), "{ty}: {example}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_become_tools_with_typed_schemas() {
    let host = TestHost::empty_with("", HostBuilder::no_cache);
    host.load("shapes", guest_artifacts::FOREIGN_SHAPES).await;
    let view = host.host.view(Filter::default());
    let definitions: Vec<_> = view.definitions().collect();
    let named = |name: &str| definitions.iter().map(|entry| &entry.def).find(|def| def.name.as_str() == name);
    let divide = named("shapes__divide").expect("a function that is exported by itself keeps its name");
    assert_eq!(
        divide.description,
        "The function divide(a: s32, b: s32) -> result<s32, string>. Its author gives no description."
    );
    assert_eq!(
        divide.input_schema.value(),
        &json!({
            "type": "object",
            "properties": {
                "a": {"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX},
                "b": {"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX},
            },
            "required": ["a", "b"],
            "additionalProperties": false,
        })
    );
    assert!(named("shapes__things-about").is_some(), "others of an interface with resources are served");
    for refused in ["shapes__things-open", "shapes__things-count"] {
        assert!(named(refused).is_none(), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_cannot_be_tools_are_reported() {
    let host = TestHost::empty_with("", HostBuilder::no_cache);
    let path = std::path::Path::new(guest_artifacts::FOREIGN_SHAPES);
    let warnings = host.host.load_file(PluginId::new("shapes").unwrap(), path).await.unwrap();
    let told: Vec<&str> = warnings.iter().map(|warning| warning.message.as_str()).collect();
    for part in [
        "its function `stranger:geometry/things@1.2.0#open` is not a tool: its result is a resource",
        "its function `stranger:geometry/things@1.2.0#count` is not a tool: its parameter `of` is a resource",
        "[constructor]thing` is not a tool: it creates or uses a resource",
        "[method]thing.name` is not a tool: it creates or uses a resource",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "{part}: {told:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_answers_fails_and_faults_as_any_tool() {
    let host = shapes("").await;
    let call = async |tool: &str, args: Value| host.call(&format!("shapes__{tool}"), args).await;
    assert_eq!(value(&call("divide", json!({"a": 7, "b": 2})).await), "3");
    let error = call("divide", json!({"a": 1, "b": 0})).await;
    assert_eq!(refusal(&error).code, ErrorCode::ExecutionFailed);
    assert_eq!(refusal(&error).message, "1 cannot be divided by 0");
    assert_eq!(refusal(&call("refuse", json!({"code": 7})).await).message, r#"[7,"as asked"]"#);
    assert_eq!(value(&call("refuse", json!({"code": 0})).await), "done");
    assert_eq!(refusal(&call("fail", json!({})).await).message, "it failed without a message");
    assert_eq!(value(&call("nothing", json!({})).await), "done");
    for (args, at) in
        [(json!({"a": 1}), ""), (json!({"a": 1, "b": "x"}), "/b"), (json!({"a": 1, "b": 2, "c": 3}), "")]
    {
        let refused = call("divide", args).await;
        assert_eq!(
            (refusal(&refused).code, refusal(&refused).subject.as_deref()),
            (ErrorCode::InputInvalid, Some(at))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_run_under_the_same_limits() {
    let host =
        shapes("[plugins.shapes.limits]\nfuel = 500000000\nmemory = \"16MiB\"\nhost_call_bytes = \"256KiB\"")
            .await;
    let within = Duration::from_secs(30);
    for (tool, args, kind) in [
        ("spin", json!({}), FaultKind::OutOfFuel),
        ("trap", json!({}), FaultKind::Trap),
        ("allocate", json!({"mebibytes": 64}), FaultKind::OutOfMemory),
        ("repeat", json!({"text": "x", "times": 300_000}), FaultKind::OutputTooLarge),
        // Few bytes in the guest, many values in the host.
        ("count-to", json!({"most": 100_000}), FaultKind::OutputTooLarge),
        // Within the limit as text, above it as JSON.
        ("repeat", json!({"text": "\u{1}", "times": 200_000}), FaultKind::OutputTooLarge),
    ] {
        let delivered = host.provoke(&format!("shapes__{tool}"), args.clone(), within).await;
        if tool == "repeat" && args["text"] == "\u{1}" {
            // A string is not JSON and is passed unchanged.
            assert_eq!(outcome(&delivered), "ok");
            continue;
        }
        assert_eq!(fault(&delivered).kind, kind, "{tool}");
    }
    // JSON takes six characters for one byte, and the structured result is JSON.
    let long = host.call("shapes__shapes-of-tuple", json!({"v": ["\u{1}".repeat(60_000), 1]})).await;
    assert_eq!(fault(&long).kind, FaultKind::OutputTooLarge);
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_of_a_component_are_its_declarations() {
    let host = shapes("").await;
    std::fs::write(host.root().join("note"), "hello").unwrap();
    let denied = host.call("shapes__read-file", json!({"path": "note"})).await;
    assert_eq!(refusal(&denied).code, ErrorCode::ExecutionFailed);
    assert_eq!(
        host.ask("shapes__now", json!({})).await,
        json!({"result": 1_735_689_600}),
        "a clock that stands still"
    );

    let policy = "[plugins.shapes.grant]\nfs_read = [\"$workspace\"]\nclock = true\n[plugins.shapes.tools.now]\nclock = false";
    let host = shapes(policy).await;
    std::fs::write(host.root().join("note"), "hello").unwrap();
    assert_eq!(value(&host.call("shapes__read-file", json!({"path": "note"})).await), "hello");
    assert_eq!(
        host.ask("shapes__now", json!({})).await,
        json!({"result": 1_735_689_600}),
        "narrower for one tool"
    );
    let explained = host.host.explain("shapes__read-file", None).unwrap();
    let wish = explained.capabilities.iter().find(|wish| wish.capability.kind.as_str() == "fs-read").unwrap();
    assert!(!wish.granted.is_empty() && wish.capability.optional);
    assert!(wish.capability.reason.as_ref().unwrap().starts_with("it imports `wasi:filesystem/"), "{wish:?}");
    // The refusal names the policy line.
    let wish =
        explained.capabilities.iter().find(|wish| wish.capability.kind.as_str() == "fs-write").unwrap();
    assert!(wish.refused.as_ref().unwrap().to_string().contains("[plugins.shapes.grant]"), "{wish:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_file_names_and_describes_the_tools() {
    let folder = tempfile::tempdir().unwrap();
    let component = folder.path().join("shapes.wasm");
    std::fs::copy(guest_artifacts::FOREIGN_SHAPES, &component).unwrap();
    let beside = folder.path().join("shapes.plugin.toml");
    let text = r#"
        version = 1
        name = "geometry"
        release = "1.2.0"
        license = "MIT"
        [tools.quotient]
        export = "divide"
        description = "Divide a whole number by another."
        traits = ["read-only", "idempotent", "closed-world"]
        tags = ["math"]
        timeout = "2s"
        args.b = { description = "Not zero.", not = { const = 0 } }
        [tools.mirror]
        export = "stranger:geometry/shapes@1.2.0#of-record"
        description = "Give a point back."
        needs = []
    "#;
    std::fs::write(&beside, text).unwrap();
    let host = TestHost::empty_with("", HostBuilder::no_cache);
    let load = async || host.host.load_file(PluginId::new("shapes").unwrap(), &component).await;
    load().await.unwrap();
    let info = host.host.plugin("shapes").unwrap();
    let about = info.about.unwrap();
    assert_eq!((about.name.as_str(), about.version.as_str()), ("geometry", "1.2.0"));
    assert_eq!(names(&host), ["shapes__mirror", "shapes__quotient"]);
    assert_eq!(value(&host.call("shapes__quotient", json!({"a": 7, "b": 2})).await), "3");
    let refused = host.call("shapes__quotient", json!({"a": 7, "b": 0})).await;
    assert_eq!(
        (refusal(&refused).code, refusal(&refused).subject.as_deref()),
        (ErrorCode::InputInvalid, Some("/b"))
    );
    for (text, part) in [
        ("version = 1\n[tools.x]\nexport = \"nothing-like-it\"\n", "exports no function `nothing-like-it`"),
        ("version = 1\n[tools.x]\nrun = {}\ndescription = \"x\"", "is not a program"),
        ("version = 1\n[tools.x]\nexport = \"divide\"\nargs.c = {}", "has no parameter `c`"),
        ("version = 1\n[tools.x]\nexport = \"divide\"\ntraits = [\"safe\"]", "`safe` is not a trait"),
        ("version = 1\n[tools.x]\nexport = \"stranger:geometry/things@1.2.0#open\"", "is a resource"),
        ("version = 1\n[tools.\"a b\"]\nexport = \"divide\"", "tool name `a b`"),
        ("version = 2\n", "version 2; this host reads version 1"),
        ("nonsense", "plugin.toml"),
    ] {
        std::fs::write(&beside, text).unwrap();
        let problem = load().await.unwrap_err().to_string();
        assert!(problem.contains(part), "{text}: {problem}");
    }
    std::fs::remove_file(&beside).unwrap();
    std::os::unix::fs::symlink("nowhere", &beside).unwrap();
    assert!(load().await.unwrap_err().to_string().contains("shapes.plugin.toml"));
}

/// The digest covers both files, so consent and pin cover both, and a change of either is a change of the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_file_is_part_of_the_component() {
    let folder = tempfile::tempdir().unwrap();
    let component = folder.path().join("shapes.wasm");
    std::fs::copy(guest_artifacts::FOREIGN_SHAPES, &component).unwrap();
    let beside = folder.path().join("shapes.plugin.toml");
    let tool =
        |name: &str| format!("version = 1\n[tools.{name}]\nexport = \"divide\"\ndescription = \"Divide.\"\n");
    std::fs::write(&beside, tool("one")).unwrap();
    let host = TestHost::empty("");
    host.host.load_dir(folder.path()).await.unwrap();
    let digest = host.host.plugin("shapes").unwrap().digest;
    std::fs::write(&beside, tool("two")).unwrap();
    host.host.rescan().await;
    assert_ne!(host.host.plugin("shapes").unwrap().digest, digest);
    assert_eq!(names(&host), ["shapes__two"]);
    // A plugin that implements the contract describes itself.
    std::fs::copy(guest_artifacts::API_ECHO, &component).unwrap();
    let report = host.host.rescan().await;
    let problem = report.problems.iter().find(|problem| problem.plugin.is_some()).unwrap();
    assert!(problem.error.to_string().contains("declares its tools itself"), "{}", problem.error);
}

/// The derived description is in the cache, and the next host takes it from there.
#[tokio::test(flavor = "multi_thread")]
async fn it_comes_from_the_cache_as_any_other() {
    let cache = tempfile::tempdir().unwrap();
    for from_cache in [false, true] {
        let host = TestHost::built("", |builder, _| builder.cache_dir(cache.path().join("cache")));
        host.load("shapes", guest_artifacts::FOREIGN_SHAPES).await;
        assert_eq!(host.host.plugin("shapes").unwrap().from_cache, from_cache);
        assert_eq!(value(&host.call("shapes__divide", json!({"a": 9, "b": 3})).await), "3");
    }
}
