use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{CountingTool, native_tool, plugin_tool};
use toolbay_core::audit::MemoryAudit;
use toolbay_core::call::{ToolCall, TurnContext};
use toolbay_core::pipeline::{CallResult, Pipeline, outcome};
use toolbay_core::registry::Registry;
use toolbay_core::registry::view::Filter;

/// A registry with a listed, a deferred, a hidden, a disabled and an unavailable tool.
fn registry() -> Registry {
    let registry = Registry::default();
    let about = |mut entry: ToolEntry, text: &str| {
        let mut def = entry.def.as_ref().clone();
        def.description = text.to_owned();
        entry.def = Arc::new(def);
        entry
    };
    let mut deferred = about(plugin_tool("p", "zip"), "Compress a folder. With many options.");
    deferred.flags.deferred = true;
    let mut hidden = about(plugin_tool("p", "secret"), "Compress in secret.");
    hidden.flags.hidden = true;
    let mut unavailable = about(plugin_tool("p", "tar"), "Compress a tape.");
    unavailable.availability.unavailable = Some("no grant".into());
    let mut always = about(native_tool("clock"), "Tell the time.");
    always.flags.always_include = true;
    let listed = about(plugin_tool("p", "read_file"), "Read a file from disk. Supports much.");
    let off = about(plugin_tool("p", "gzip"), "Compress a file.");
    registry.register(vec![deferred, hidden, unavailable, always, listed, off]).unwrap();
    registry.disable("p__gzip", "maintenance").unwrap();
    registry
}

fn view(filter: Filter) -> View {
    add_search_tools(View::new(registry().snapshot(), filter))
}

fn lazy() -> Filter {
    Filter { lazy: true, ..Filter::default() }
}

fn names<'a>(entries: impl Iterator<Item = &'a Arc<ToolEntry>>) -> Vec<String> {
    entries.map(|entry| entry.def.name.to_string()).collect()
}

fn hits(view: &View, query: &str) -> Vec<String> {
    search(view, query, 10).unwrap().iter().map(|hit| hit.entry.def.name.to_string()).collect()
}

async fn call(view: &View, tool: &str, args: Value) -> (CallResult, Value) {
    let audit = Arc::new(MemoryAudit::default());
    let call = ToolCall::new("c", tool, args.to_string());
    let mut results =
        Pipeline::new(Arc::clone(&audit) as _).call_all(view, vec![call], TurnContext::default()).await;
    let records = audit.take();
    assert_eq!(records.len(), 1, "one call, one record");
    (results.pop().unwrap(), serde_json::to_value(&records[0]).unwrap())
}

fn value(delivered: &CallResult) -> Value {
    let output = delivered.result.as_ref().unwrap();
    let value: Value = serde_json::from_str(&output.value).unwrap();
    assert_eq!(value, serde_json::from_str::<Value>(output.structured.as_ref().unwrap().get()).unwrap());
    value
}

fn refusal(delivered: &CallResult) -> (&'static str, String) {
    (outcome(&delivered.result), delivered.result.as_ref().unwrap_err().to_string())
}

#[test]
fn hidden_tools_and_tools_that_are_not_callable_are_not_found() {
    let view = View::new(registry().snapshot(), Filter::default());
    assert_eq!(hits(&view, "compress"), ["p__zip"]);
    for name in ["p__secret", "p__gzip", "p__tar", "p__read_file"] {
        assert_eq!(hits(&view, name).contains(&name.to_owned()), name == "p__read_file", "{name}");
    }
    let exclude_tools = BTreeSet::from(["p__zip".to_owned()]);
    let without = View::new(registry().snapshot(), Filter { exclude_tools, ..Filter::default() });
    assert_eq!(hits(&without, "compress"), Vec::<String>::new());
    assert_eq!(summaries(&view).collect::<Vec<_>>(), [("p__zip", "Compress a folder.")]);
    assert_eq!(view.similar("p__zpi"), ["p__zip"], "hidden and disabled tools are not suggested");
    assert!(view.similar("p__secert").is_empty());
}

#[test]
fn new_and_enabled_tools_are_found_at_once() {
    let registry = registry();
    let now = || View::new(registry.snapshot(), Filter::default());
    assert!(search(&now(), "compress", 10).is_ok());
    registry.enable("p__gzip").unwrap();
    registry.register(native_tool("compress_file")).unwrap();
    assert_eq!(hits(&now(), "compress_file"), ["compress_file"]);
    assert_eq!(hits(&now(), "compress").len(), 3);
    assert!(registry.unregister("compress_file"));
    assert!(!hits(&now(), "compress").contains(&"compress_file".to_owned()));
}

#[test]
fn a_view_with_unlisted_tools_lists_the_search_tools() {
    let normal = view(Filter::default());
    assert_eq!(names(normal.definitions()), ["clock", "p__read_file", CALL, DESCRIBE, SEARCH]);
    let lazy = view(lazy());
    assert_eq!(names(lazy.definitions()), ["clock", CALL, DESCRIBE, SEARCH]);
    for view in [&normal, &lazy] {
        assert!(view.find("p__zip").is_ok() && view.find("p__read_file").is_ok(), "callable by name");
    }
    // A view whose list is complete has no search tools.
    let allowed_tools = Some(BTreeSet::from(["p__read_file".to_owned()]));
    let all = view(Filter { allowed_tools, ..Filter::default() });
    assert_eq!(names(all.definitions()), ["p__read_file"]);
    // The operator can exclude a search tool.
    let exclude_tools = BTreeSet::from([CALL.to_owned()]);
    let without = view(Filter { exclude_tools, lazy: true, ..Filter::default() });
    assert_eq!(names(without.definitions()), ["clock", DESCRIBE, SEARCH]);
}

#[test]
fn local_tools_are_found_and_a_taken_name_is_kept() {
    let plain = View::new(registry().snapshot(), lazy());
    let mut own = native_tool("notes");
    own.flags.deferred = true;
    let mine = native_tool(SEARCH);
    let view = add_search_tools(plain.with_bundle(vec![own, mine], OnCollision::Fail).unwrap());
    let base = plain.with_bundle(native_tool("notes"), OnCollision::Fail).unwrap();
    assert_eq!(hits(&base, "notes"), ["notes"]);
    assert_eq!(view.get(SEARCH).unwrap().def.description, "A puppet.", "the embedder's tool is kept");
}

#[tokio::test]
async fn adding_search_tools_is_idempotent_and_they_do_not_find_themselves() {
    let once = view(lazy());
    let twice = add_search_tools(once.clone());
    assert_eq!(names(once.definitions()), names(twice.definitions()));
    for view in [&once, &twice] {
        for query in ["tool_search", "find tools by words", "call a tool"] {
            let (found, _) = call(view, SEARCH, json!({"query": query})).await;
            let own = [SEARCH, DESCRIBE, CALL];
            let found = value(&found);
            let names = found["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
            assert!(!names.clone().any(|name| own.contains(&name)), "{query}: {found}");
        }
    }
}

#[tokio::test]
async fn a_model_finds_describes_and_calls() {
    let view = view(lazy());
    let (found, record) = call(&view, SEARCH, json!({"query": "compress folder"})).await;
    let found = value(&found);
    assert_eq!(found["tools"].as_array().unwrap().len(), 1);
    let zip = &found["tools"][0];
    assert_eq!((&zip["name"], &zip["description"]), (&json!("p__zip"), &json!("Compress a folder.")));
    assert_eq!((&zip["source"], &zip["deferred"]), (&json!("plugin:p"), &json!(true)));
    assert!(zip["score"].is_f64() && zip["schema"]["properties"]["do"].is_object(), "{zip}");
    assert_eq!((&record["tool"], &record["outcome"]), (&json!(SEARCH), &json!("ok")));
    // Deferred tools and the hit for an exact name have a schema.
    let (by_name, _) = call(&view, SEARCH, json!({"query": "p__read_file"})).await;
    assert_eq!(value(&by_name)["tools"][0]["score"], json!(1.0));
    assert!(value(&by_name)["tools"][0]["schema"].is_object());
    let (by_words, _) = call(&view, SEARCH, json!({"query": "disk file"})).await;
    assert!(value(&by_words)["tools"][0].get("schema").is_none());

    let (described, _) = call(&view, DESCRIBE, json!({"name": "P/READ-FILE"})).await;
    let described = value(&described);
    assert_eq!(described["name"], "p__read_file", "the result has the original name");
    assert_eq!(described["description"], "Read a file from disk. Supports much.");
    assert!(described["schema"].is_object() && described["traits"].is_object());

    let (called, record) =
        call(&view, CALL, json!({"name": "p__zip", "arguments": {"n": 12345678901234567890_u64}})).await;
    assert_eq!(
        called.result.as_ref().unwrap().value,
        r#"{"n":12345678901234567890}"#,
        "numbers keep all digits"
    );
    assert_eq!((called.tool.as_str(), called.through.as_deref()), ("p__zip", Some(CALL)));
    assert_eq!((&record["tool"], &record["through"]), (&json!("p__zip"), &json!(CALL)));
    assert_eq!(record["source"]["id"], "p", "the record belongs to the called tool");
    let (direct, record) = call(&view, "p__zip", json!({"n": 1})).await;
    assert_eq!((direct.through, record.get("through")), (None, None));
}

#[tokio::test]
async fn an_unknown_name_or_invalid_argument_gets_a_helpful_error() {
    let view = view(Filter::default());
    for (tool, args, code, part) in [
        (SEARCH, json!({"query": " ?! "}), "input_invalid", "the query is empty"),
        (SEARCH, json!({"query": "x", "limit": 0}), "input_invalid", "/limit"),
        (SEARCH, json!({"query": "x", "limit": 51}), "input_invalid", "/limit"),
        (SEARCH, json!({}), "input_invalid", "query"),
        (
            DESCRIBE,
            json!({"name": "p__raed_file"}),
            "not_available",
            "Unknown tool: p__raed_file; did you mean `p__read_file`?",
        ),
        (CALL, json!({"name": "p__zipp", "arguments": {}}), "not_available", "did you mean `p__zip`"),
        (CALL, json!({"name": "xyz", "arguments": {}}), "not_available", "Find tools with `tool_search`"),
        (
            CALL,
            json!({"name": "p__gzip", "arguments": {}}),
            "not_available",
            "Tool p__gzip is disabled: maintenance",
        ),
        (CALL, json!({"name": "p__tar", "arguments": {}}), "not_available", "no grant"),
        (
            CALL,
            json!({"name": CALL, "arguments": {"name": "p__zip", "arguments": {}}}),
            "input_invalid",
            "call it directly",
        ),
        (CALL, json!({"name": SEARCH, "arguments": {"query": "x"}}), "input_invalid", "call it directly"),
        (CALL, json!({"name": "p__zip"}), "input_invalid", "arguments"),
        (CALL, json!({"name": "p__zip", "arguments": "{}"}), "input_invalid", "/arguments"),
        (CALL, json!({"name": "p__zip", "arguments": {}, "more": 1}), "input_invalid", "more"),
        (
            CALL,
            json!({"name": "p__zip", "arguments": {"do": 5}}),
            "input_invalid",
            "the arguments of `p__zip`",
        ),
    ] {
        let (delivered, record) = call(&view, tool, args.clone()).await;
        let (outcome, text) = refusal(&delivered);
        assert_eq!(outcome, code, "{args}: {text}");
        assert!(text.contains(part), "{args}: {text}");
        assert_eq!(record["outcome"], code);
        assert!(delivered.source.is_some(), "the model gets a result, not a protocol error");
    }
    let (nothing, _) = call(&view, SEARCH, json!({"query": "xyzzy"})).await;
    assert_eq!(value(&nothing)["tools"], json!([]));
    assert!(value(&nothing)["hint"].is_string());
}

#[tokio::test]
async fn a_forwarded_call_has_the_limits_of_its_target() {
    let registry = Registry::default();
    let puppet = Arc::new(CountingTool::default());
    let mut entry = plugin_tool("p", "t");
    (entry.invoker, entry.call.args_bytes, entry.call.result_chars) =
        (Arc::clone(&puppet) as _, 100, Some(200));
    entry.flags.deferred = true;
    registry.register(entry).unwrap();
    let view = add_search_tools(View::new(registry.snapshot(), Filter::default()));
    let through = |arguments: Value| json!({"name": "p__t", "arguments": arguments});
    let (long, record) = call(&view, CALL, through(json!({"do": "long"}))).await;
    assert!(
        long.result.as_ref().unwrap().value.chars().count() <= 200,
        "the target's limit for results applies"
    );
    assert_eq!(record["cut_from_chars"], 1000);
    let (large, _) = call(&view, CALL, through(json!({"do": "x".repeat(200)}))).await;
    assert!(refusal(&large).1.contains("args_bytes"), "the target's limit for arguments applies");
    let raw = r#"{"name":"p__t","arguments":{"do":"echo","do":"fail"}}"#;
    let calls = vec![
        ToolCall::new("c", CALL, raw),
        ToolCall::new("d", CALL, through(json!({"do": "fault"})).to_string()),
    ];
    let ran = puppet.ran.load(Ordering::Relaxed);
    let results =
        Pipeline::new(Arc::new(MemoryAudit::default())).call_all(&view, calls, TurnContext::default()).await;
    assert!(refusal(&results[0]).1.contains("duplicate key"), "{:?}", results[0]);
    assert_eq!(refusal(&results[1]).0, "trap");
    assert_eq!(puppet.ran.load(Ordering::Relaxed), ran + 1);
    let dry = TurnContext { dry_run: true, ..TurnContext::default() };
    let calls = vec![ToolCall::new("c", CALL, through(json!({})).to_string())];
    let results = Pipeline::new(Arc::new(MemoryAudit::default())).call_all(&view, calls, dry).await;
    assert_eq!(results[0].result.as_ref().unwrap().value, "[dry-run] p__t would be called with: {}");
}

#[test]
fn the_schemas_in_a_result_are_bounded() {
    let hit = |n: usize| {
        let mut entry = plugin_tool("p", &format!("t{n}"));
        entry.flags.deferred = true;
        let mut def = entry.def.as_ref().clone();
        let long = json!({"type": "object", "description": "x".repeat(20_000)});
        def.input_schema = toolbay_core::tool::schema::Schema::input(&long.to_string()).unwrap();
        def.description = "y".repeat(100_000);
        entry.def = Arc::new(def);
        ToolHit { entry: Arc::new(entry), score: 1.0, exact: false }
    };
    let answer = format_hits(&(0..MAX_HITS).map(hit).collect::<Vec<_>>());
    let tools = answer["tools"].as_array().unwrap();
    assert!(tools[0]["schema"].is_object());
    assert_eq!(tools[1]["schema_at"], DESCRIBE, "one schema fits");
    assert!(answer.to_string().len() < 64 << 10);
}

#[tokio::test]
async fn a_search_delays_no_call() {
    let query: Vec<String> = (0..64).map(|n| format!("list thing{n} of project {n}")).collect();
    // A few tools are searched on the worker, many on another thread.
    for count in [900, 2000] {
        let tool = |n| plugin_tool("p", &format!("list_thing{}_of_project_{n}", n % 64));
        let registry = Registry::default();
        registry.register((0..count).map(tool).collect::<Vec<_>>()).unwrap();
        let view = add_search_tools(View::new(registry.snapshot(), lazy()));
        // The first search builds the index.
        for _ in 0..2 {
            let (view, args) = (view.clone(), json!({"query": query.join(" "), "limit": MAX_HITS}));
            let searching = tokio::spawn(async move { call(&view, SEARCH, args).await });
            let ((found, _), delay) = canary::run_beside(searching, async || ()).await;
            assert!(value(&found)["tools"].is_array());
            assert!(delay <= canary::MAX_DELAY, "{count} tools: {delay:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn only_callable_tools_are_found(
        flags in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()), 1..12),
        lazy in any::<bool>(),
        query in "(file|tool|p|t[0-9]|puppet| ){0,4}",
    ) {
        let registry = Registry::default();
        let entries = flags.iter().enumerate().map(|(n, (hidden, deferred, unavailable, always))| {
            let mut entry = plugin_tool("p", &format!("t{n}"));
            (entry.flags.hidden, entry.flags.deferred) = (*hidden, *deferred);
            entry.flags.always_include = *always;
            entry.availability.unavailable = unavailable.then(|| "not now".into());
            entry
        });
        registry.register(entries.collect::<Vec<_>>()).unwrap();
        let plain = View::new(registry.snapshot(), Filter { lazy, ..Filter::default() });
        let view = add_search_tools(plain.clone());
        let callable: BTreeSet<String> = names(plain.discoverable()).into_iter().collect();
        let listed: BTreeSet<String> = names(view.definitions()).into_iter().collect();
        // All tools that a search finds are in the list, or the list has the search tools.

        prop_assert!(listed.contains(SEARCH) || callable.is_subset(&listed));
        prop_assert_eq!(listed.contains(SEARCH), view.is_partial());
        if let Ok(found) = search(&plain, &query, 20) {
            for hit in found {
                prop_assert!(callable.contains(hit.entry.def.name.as_str()));
                prop_assert!(view.find(hit.entry.def.name.as_str()).is_ok());
            }
        }
        for entry in registry.snapshot().tools() {
            let name = entry.def.name.as_str();
            let found = search(&plain, name, 5).unwrap();
            let only = found.len() == 1 && found[0].exact && found[0].entry.def.name.as_str() == name;
            prop_assert_eq!(only, callable.contains(name), "{}", name);
        }
    }
}

/// A program that searches a view with the search tools finds what the model finds.
#[test]
fn a_search_never_finds_the_search_tools() {
    let view = view(lazy());
    assert!(view.get(SEARCH).is_some());
    for query in
        ["find tools that are not in the list", SEARCH, "show the definition of a tool", "call a tool"]
    {
        let found = hits(&view, query);
        assert!(
            ![SEARCH, DESCRIBE, CALL].iter().any(|own| found.iter().any(|name| name == own)),
            "{query}: {found:?}"
        );
    }
    // A tool that somebody else gave the name is a tool like others.
    let other =
        View::new(registry().snapshot(), lazy()).with_bundle(vec![native_tool(SEARCH)], OnCollision::Fail);
    assert_eq!(hits(&other.unwrap(), SEARCH), [SEARCH]);
}
