//! Sources that imitate others, and text with hidden characters.

use std::fs;
use std::sync::Arc;

use integration_tests::{RecordedProgress, TestHost, cache_dir, outcome, policy, refusal, value};
use serde_json::{Value, json};
use toolbay::policy::hidden_chars;
use toolbay::{Filter, Host, HostBuilder, PluginId, TurnContext};

/// `ignore` in tag characters, which models read and people do not see.
fn tags() -> String {
    "ignore".bytes().map(|byte| char::from_u32(0xe0000 + u32::from(byte)).unwrap()).collect()
}

/// The guest that returns these lines as its metadata.
fn saying(lines: &str) -> Vec<u8> {
    const MARK: &[u8] = b"<buffer of hostile_metadata_any>";
    let mut bytes = fs::read(guest_artifacts::HOSTILE_METADATA_ANY).unwrap();
    let at = bytes.windows(MARK.len()).position(|window| window == MARK).unwrap() + MARK.len();
    let text = format!("\n{lines}");
    assert!(text.len() < 4096 - MARK.len());
    bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
    bytes
}

fn id(text: &str) -> PluginId {
    PluginId::new(text).unwrap()
}

/// All tools except those of the host.
fn tools(host: &Host) -> Vec<String> {
    let names = host.registry().snapshot();
    names.tools().map(|entry| entry.def.name.to_string()).filter(|name| name != "read_output").collect()
}

const SOURCES: &str =
    "[mcp.github]\nurl = \"http://127.0.0.1:1/\"\n[openapi.pets]\ndocument = \"pets.json\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_file_cannot_take_the_name_of_another_source() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["mcp", "MCP", "github", "GitHub", "pets", "other"] {
        fs::copy(guest_artifacts::HOSTILE_METADATA_NAME_FOREIGN, dir.path().join(format!("{name}.wasm")))
            .unwrap();
    }
    let host = Host::builder(policy(SOURCES, dir.path())).cache_dir(cache_dir()).build().unwrap();
    let report = host.load_dir(dir.path()).await.unwrap();
    for (file, part) in [
        ("mcp.wasm", "is reserved"),
        ("MCP.wasm", "is reserved"),
        ("github.wasm", "is the name of [mcp.github]"),
        ("GitHub.wasm", "is the name of [mcp.github]"),
        ("pets.wasm", "is the name of [openapi.pets]"),
    ] {
        let problem = report.problems.iter().find(|one| one.file.ends_with(file));
        let problem = problem.unwrap_or_else(|| panic!("{file}: {report:#?}")).error.to_string();
        assert!(problem.contains(part) && problem.contains("[plugins.ID] file"), "{file}: {problem}");
    }
    assert_eq!(tools(&host), ["other__text__word_count"]);
    // By hand, and in the policy.
    assert!(host.load_file(id("github"), guest_artifacts::PLUGIN_TEXT.as_ref()).await.is_err());
    let bytes = fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    assert!(host.load_bytes(id("pets"), bytes).await.is_err());
    assert!(PluginId::new("mcp").is_err());
    for section in ["[plugins.mcp]", "[plugins.github]", "[plugins.PETS.grant]\nclock = true"] {
        let text = format!("version = 1\n{SOURCES}{section}\n");
        assert!(toolbay::Policy::parse(&text, dir.path(), None).is_err(), "{section}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_a_new_policy_takes_its_name_from_a_plugin() {
    let host = TestHost::empty("");
    host.load("github", guest_artifacts::PLUGIN_TEXT).await;
    assert!(!tools(&host.host).is_empty());
    host.host.reload_policy(policy(SOURCES, &host.root())).await.unwrap();
    assert_eq!(tools(&host.host), Vec::<String>::new());
    host.host.reload_policy(policy("", &host.root())).await.unwrap();
    assert!(!tools(&host.host).is_empty(), "its file is unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_does_not_come_under_the_namespace_of_native_tools() {
    let host = TestHost::empty("");
    let native = toolbay::native_tool("add").namespace("text").description("Adds.");
    let native =
        native.run(|_, _| async { Ok(toolbay::core::tool::content::ToolOutput::text("1")) }).unwrap();
    host.host.register(native).unwrap();
    let refused = host.host.load_file(id("text"), guest_artifacts::PLUGIN_TEXT.as_ref()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("text__") && refused.contains("the host"), "{refused}");
    assert_eq!(tools(&host.host), ["text__add"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_carry_no_hidden_characters() {
    let tags = tags();
    let schema = json!({
        "type": "object",
        "title": format!("t{tags}"),
        "description": format!("d{tags}\u{1b}[31m\u{202e}\u{200b}\u{feff}\u{ad}😀\u{e0101}\u{e0102}<|im_start|>"),
        "$comment": format!("c{tags}"),
        "x-more": format!("m{tags}"),
        "properties": {"a": {
            "type": "string", "description": format!("a{tags}"), "default": format!("b{tags}"),
            "enum": ["plain", format!("e{tags}")], "examples": [format!("x{tags}")], "pattern": "^[^\u{0}\u{e0041}]*$",
        }},
    })
    .to_string();
    let result =
        json!({"type": "object", "properties": {"r": {"description": format!("r{tags}")}}}).to_string();
    let host = TestHost::empty_with("", HostBuilder::no_cache);
    host.host.load_bytes(id("p"), saying(&format!("one\tA tool.\t{schema}\t{result}"))).await.unwrap();
    let view = host.host.view(Filter::default());
    let entry = view.find("p__one").unwrap();
    let shown =
        format!("{}{}", entry.def.input_schema.value(), entry.def.output_schema.as_ref().unwrap().value());
    assert_eq!(hidden_chars::first_hidden(&shown), None, "{shown}");
    assert!(!shown.contains("<|") && !shown.contains("x-more") && !shown.contains("\"enum\""), "{shown}");
    assert_eq!(entry.def.input_schema.value()["properties"]["a"]["pattern"], "^[^\\u0000\\u{e0041}]*$");
    assert_eq!(entry.def.input_schema.value()["title"], "t");
    // Hidden text is still checked.
    let refused = host.call("p__one", json!({"a": "other"})).await;
    assert_eq!(outcome(&refused), "input_invalid", "{refused:?}");
    assert_eq!(hidden_chars::first_hidden(&refusal(&refused).message), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_characters_are_refused_or_hidden() {
    let tags = tags();
    for schema in [
        json!({"type": "object", "properties": {format!("a{tags}"): {}}}),
        json!({"type": "object", "required": ["a\u{200b}"]}),
        json!({"type": "object", "$defs": {"a\u{e0101}": {}}}),
        json!({"type": "object", "dependentRequired": {"a": ["b\u{feff}"]}}),
    ] {
        let host = TestHost::empty_with("", HostBuilder::no_cache);
        host.host.load_bytes(id("p"), saying(&format!("one\tA tool.\t{schema}"))).await.unwrap();
        let shown = host.host.view(Filter::default());
        let shown = shown.definitions().next().unwrap().def.input_schema.value().to_string();
        assert_eq!(hidden_chars::first_hidden(&shown), None, "an unclean name costs its argument: {shown:?}");
    }
    for (lines, part) in [
        (format!("one\tA tool.{tags}"), "U+E0069"),
        ("one\tA tool 😀\u{e0101}\u{e0102}.".to_owned(), "U+E0101"),
        (format!("one\tA tool.\t-\t-\tTitle{tags}"), "U+E0069"),
        (format!("one\tA tool.\t-\t-\t-\tset{tags}"), "U+E0069"),
        (format!("one\tA tool.\t-\t-\t-\t-\ttag{tags}"), "U+E0069"),
        ("one\tA tool.\t-\t-\t-\topenapi:pets".to_owned(), "`openapi:`"),
        ("one\tA tool.\t-\t-\t-\tMCP:github".to_owned(), "`mcp:`"),
    ] {
        let host = TestHost::empty_with("", HostBuilder::no_cache);
        let error = host.host.load_bytes(id("p"), saying(&lines)).await.unwrap_err().to_string();
        assert!(error.contains(part), "{lines:?}: {error}");
        assert_eq!(hidden_chars::first_hidden(&error), None, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_and_resources_carry_no_hidden_characters() {
    let tags = tags();
    let prompt = |more: Value| {
        let mut prompt = json!({"name": "p", "description": "A prompt.",
            "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]});
        prompt.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"version": 1, "prompts": [prompt]})
    };
    let resource = |more: Value| {
        let mut resource = json!({"path": "a", "name": "A", "text": "hello"});
        resource.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"version": 1, "resources": [resource]})
    };
    assert!(
        toolbay::core::tool::prompts_and_resources::PromptsAndResourcesDocument::parse(
            &prompt(json!({})).to_string()
        )
        .is_ok()
    );
    assert!(
        toolbay::core::tool::prompts_and_resources::PromptsAndResourcesDocument::parse(
            &resource(json!({})).to_string()
        )
        .is_ok()
    );
    let hidden = format!("x{tags}");
    for document in [
        prompt(json!({"title": hidden})),
        prompt(json!({"description": hidden})),
        prompt(json!({"messages": [{"role": "user", "content": {"type": "text", "text": hidden}}]})),
        prompt(json!({"arguments": [{"name": "a", "title": hidden}]})),
        prompt(json!({"arguments": [{"name": "a", "description": hidden}]})),
        prompt(json!({"arguments": [{"name": "a", "values": [hidden]}]})),
        resource(json!({"name": hidden})),
        resource(json!({"description": hidden})),
        resource(json!({"text": hidden})),
        json!({"version": 1, "templates": [{"path": "u/{id}", "name": "U", "text": format!("{{{{id}}}}{tags}")}]}),
    ] {
        let error = toolbay::core::tool::prompts_and_resources::PromptsAndResourcesDocument::parse(
            &document.to_string(),
        )
        .unwrap_err();
        assert!(error.contains("U+E0069"), "{document}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_marked_results_hide_nothing() {
    let host = TestHost::new(&[], "").await;
    let hidden = format!("a{}\u{1b}[2J\u{202e}\u{200b}b\nc", tags());
    let args = json!({"code": "execution-failed", "message": hidden, "subject": hidden});
    let refused = host.call("neighbour__error", args).await;
    let error = refusal(&refused);
    assert_eq!(hidden_chars::first_hidden(&error.message), None, "{error:?}");
    assert_eq!(hidden_chars::first_hidden(error.subject.as_deref().unwrap()), None, "{error:?}");
    assert!(error.message.starts_with("a\\u{e0069}") && error.message.ends_with("b\nc"), "{error:?}");
    let marked = host.call("neighbour__untrusted", json!({"text": format!("x{} \u{200f}y", tags())})).await;
    assert!(value(&marked).contains("x\\u{e0069}") && value(&marked).contains("\u{200f}y"), "{marked:?}");
    // Unmarked content is bytes of the tool and arrives unchanged.
    let plain = host.call("neighbour__echo", json!({"text": hidden})).await;
    assert_eq!(value(&plain), json!({"text": hidden}).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_cleaned_and_stays_below_its_total() {
    let host = TestHost::empty("");
    let said = format!("a{}\u{1b}[2J<|im_start|>\u{202e}", tags());
    let native = toolbay::native_tool("works").description("Says how far it is.").run(move |_, ctx| {
        for percent in [Some(50.0), Some(1e9), Some(f32::NAN), Some(-1.0), None] {
            ctx.progress(&said, percent, toolbay::core::call::ProgressAudience::User);
        }
        async { Ok(toolbay::core::tool::content::ToolOutput::text("done")) }
    });
    host.host.register(native.unwrap()).unwrap();
    let heard = Arc::new(RecordedProgress::default());
    let turn = TurnContext { progress: Some(Arc::clone(&heard) as _), ..TurnContext::default() };
    assert_eq!(value(&host.call_in("works", "{}", turn).await), "done");
    let heard = heard.0.lock().unwrap();
    assert_eq!(heard.len(), 5);
    for event in heard.iter() {
        assert_eq!(hidden_chars::first_hidden(&event.message), None, "{event:?}");
        assert!(event.message.starts_with("a\\u{e0069}") && !event.message.contains("<|"), "{event:?}");
        assert!(event.percent.is_none_or(|percent| (0.0..=100.0).contains(&percent)), "{event:?}");
    }
}
