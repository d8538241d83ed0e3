//! Guests with faulty metadata: the host refuses each within seconds, names the reason, and registers nothing
//! of it.

use std::path::Path;
use std::time::{Duration, Instant};

use integration_tests::TestHost;
use toolbay::{HostBuilder, PluginId};

/// A host that asks each guest, and takes no answer of an earlier run from the cache.
fn uncached() -> TestHost {
    TestHost::empty_with("", HostBuilder::no_cache)
}

async fn refused(path: &str, part: &str) {
    let host = uncached();
    let start = Instant::now();
    let loaded = host.host.load_file(PluginId::new("bad").unwrap(), Path::new(path)).await;
    let error = loaded.expect_err(path).to_string();
    assert!(error.contains(part), "{path}: {error}");
    assert!(
        error.chars().count() < 1000 && !error.contains('\u{1b}') && !error.contains('\n'),
        "{path}: {error:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(30), "{path} took {:?}", start.elapsed());
    assert_eq!(
        (
            host.host.registry().snapshot().tools().filter(|tool| tool.def.source.plugin().is_some()).count(),
            host.host.plugins().len()
        ),
        (0, 0),
        "{path}"
    );
}

/// The plugin loads, and a schema of its tool lost a keyword.
async fn weakened(path: &str, part: &str) {
    let host = uncached();
    let start = Instant::now();
    host.host.load_file(PluginId::new("bad").unwrap(), Path::new(path)).await.expect(path);
    assert!(start.elapsed() < Duration::from_secs(30), "{path} took {:?}", start.elapsed());
    let catalog = host.host.registry().snapshot();
    let lost: Vec<String> = (catalog.tools())
        .flat_map(|tool| tool.def.dropped_keywords().map(|(_, lost)| lost.to_string()).collect::<Vec<_>>())
        .collect();
    assert!(lost.iter().any(|line| line.contains(part) && line.len() < 1500), "{path}: {lost:?}");
}

macro_rules! weaker_schemas {
    ($($name:ident: $guest:ident, $part:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            weakened(guest_artifacts::$guest, $part).await;
        }
    )*};
}

weaker_schemas! {
    a_schema_is_json: HOSTILE_METADATA_SCHEMA_NOT_JSON, "not valid JSON";
    a_schema_is_for_an_object: HOSTILE_METADATA_SCHEMA_NOT_OBJECT, "/type (arguments are an object)";
    a_schema_is_not_deep: HOSTILE_METADATA_SCHEMA_DEEP, "(root)";
    a_schema_is_not_huge: HOSTILE_METADATA_SCHEMA_HUGE, "bytes; the limit is";
    a_schema_does_not_loop: HOSTILE_METADATA_SCHEMA_LOOP, "leads back to itself";
    a_schema_is_not_fetched: HOSTILE_METADATA_SCHEMA_REMOTE, "leaves the schema";
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_schema_is_checked_too() {
    let host = uncached();
    let plugins = tempfile::tempdir().unwrap();
    std::fs::copy(guest_artifacts::HOSTILE_METADATA_OUTPUT_SCHEMA, plugins.path().join("bad.wasm")).unwrap();
    let report = host.host.load_dir(plugins.path()).await.unwrap();
    assert_eq!(report.loaded.len(), 1, "{report:?}");
    assert!(report.warnings.iter().any(|one| one.message.contains("no output schema")), "{report:?}");
    let catalog = host.host.registry().snapshot();
    assert!(catalog.tools().all(|tool| tool.def.output_schema.is_none()));
}

macro_rules! refusals {
    ($($name:ident: $guest:ident, $part:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            refused(guest_artifacts::$guest, $part).await;
        }
    )*};
}

refusals! {
    a_loop_ends: HOSTILE_METADATA_SPIN, "fuel";
    a_wait_ends: HOSTILE_METADATA_SLEEP, "timeout";
    a_panic_is_told: HOSTILE_METADATA_TRAP, "a panic in `list-tools`";
    an_exit_is_no_answer: HOSTILE_METADATA_EXIT, "exit status 0";
    memory_is_bounded: HOSTILE_METADATA_ALLOC, "memory";
    the_answer_takes_memory: HOSTILE_METADATA_HUGE, "`memory` is 64MiB";
    ten_thousand_tools_are_too_many: HOSTILE_METADATA_MANY, "10000 tools";
    nothing_is_too_little: HOSTILE_METADATA_NONE, "neither a tool nor a reducer";
    a_name_once: HOSTILE_METADATA_DUPLICATE, "two tools of the name `twice`";
    no_dot_in_a_name: HOSTILE_METADATA_NAME_DOT, "`other.tool` has a dot";
    no_empty_name: HOSTILE_METADATA_NAME_EMPTY, "is empty";
    no_long_name: HOSTILE_METADATA_NAME_LONG, "longer than 48";
    no_line_break_in_a_name: HOSTILE_METADATA_NAME_NEWLINE, "has a character outside";
    no_novel_as_description: HOSTILE_METADATA_DESCRIPTION, "the limit is 8000";
    no_terminal_codes_in_texts: HOSTILE_METADATA_TEXT, "has the control or invisible character";
    no_terminal_codes_in_capabilities: HOSTILE_METADATA_CAPABILITY, "has the control or invisible character";
    no_terminal_codes_in_targets: HOSTILE_METADATA_CAPABILITY_TARGET, "has the control or invisible character";
    meta_is_an_object: HOSTILE_METADATA_META, "meta is not a JSON object";
    limits_of_zero_help_nobody: HOSTILE_METADATA_LIMITS, "of zero";
    a_reducer_names_its_tool: HOSTILE_METADATA_REDUCERS, "without a name";
    a_reducers_target_is_one_line: HOSTILE_METADATA_REDUCER_NAME, "line break";
    a_title_is_one_line: HOSTILE_METADATA_TITLE, "line break";
    a_toolset_is_one_line: HOSTILE_METADATA_TAGS, "line break";
    wishes_are_few_in_all: HOSTILE_METADATA_WISHES, "the limit is 65536";
    wishes_are_few_of_a_kind: HOSTILE_METADATA_WISHES_KIND, "more than 32 capabilities of the kind `env`";
    more_than_may_cross_does_not: HOSTILE_METADATA_LARGE, "host_call_bytes";
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_is_bounded() {
    let host = TestHost::empty("[limits]\nmemory = \"512MiB\"");
    let loaded = host
        .host
        .load_file(PluginId::new("bad").unwrap(), guest_artifacts::HOSTILE_METADATA_HUGE.as_ref())
        .await;
    let error = loaded.unwrap_err().to_string();
    assert!(error.contains("[plugins.bad.limits] host_call_bytes"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_cannot_replace_another() {
    let host = TestHost::empty("");
    host.load("text", guest_artifacts::PLUGIN_TEXT).await;
    host.load("claims", guest_artifacts::HOSTILE_METADATA_NAME_FOREIGN).await;
    let catalog = host.host.registry().snapshot();
    assert!(catalog.get("claims__text__word_count").is_some());
    let source = catalog.get("text__word_count").unwrap().def.source.plugin().unwrap().clone();
    assert_eq!(source.as_str(), "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_does_not_depend_on_place_or_time() {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let host = uncached();
        host.load("env", guest_artifacts::HOSTILE_METADATA_ENV).await;
        seen.push(host.host.registry().snapshot().get("env__env").unwrap().def.description.clone());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].contains("[] []"), "neither environment nor arguments: {}", seen[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_instance_has_no_call_and_no_store() {
    let host = uncached();
    host.load("import", guest_artifacts::HOSTILE_METADATA_IMPORT).await;
    let description = host.host.registry().snapshot().get("import__import").unwrap().def.description.clone();
    assert!(description.contains("Denied"), "{description}");
}

#[tokio::test(flavor = "multi_thread")]
async fn traits_are_claims_that_change_no_gate() {
    let host = TestHost::empty("");
    host.load("traits", guest_artifacts::HOSTILE_METADATA_TRAITS).await;
    let filter = toolbay::Filter { allowed_tools: Some(Default::default()), ..toolbay::Filter::default() };
    assert_eq!(host.host.view(filter).definitions().count(), 0, "`always-include` needs a grant");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_explodes_elsewhere_takes_no_time_here() {
    let host = TestHost::empty("");
    host.load("regex", guest_artifacts::HOSTILE_METADATA_SCHEMA_REGEX).await;
    let start = Instant::now();
    let delivered =
        host.call("regex__regex", serde_json::json!({"a": format!("{}!", "a".repeat(100_000))})).await;
    assert_eq!(integration_tests::outcome(&delivered), "input_invalid");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn declarations_raise_no_limit() {
    let host = TestHost::empty("[limits]\ntimeout = \"7s\"");
    host.load("most", guest_artifacts::HOSTILE_METADATA_LIMITS_MOST).await;
    let ran = host.call("most__most", serde_json::json!({})).await;
    assert_eq!(integration_tests::value(&ran), "called");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capability_that_no_host_has_can_be_wished_for_and_not_needed() {
    let host = TestHost::empty("");
    host.load("unknown", guest_artifacts::HOSTILE_METADATA_CAPABILITY_UNKNOWN).await;
    let needs = host.call("unknown__needs", serde_json::json!({})).await;
    assert_eq!(integration_tests::refusal(&needs).code.as_str(), "not_available");
    let wishes = host.call("unknown__wishes", serde_json::json!({})).await;
    assert_eq!(integration_tests::value(&wishes), "called");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_for_everything_grants_nothing() {
    let host = TestHost::empty("");
    host.load("outside", guest_artifacts::HOSTILE_METADATA_CAPABILITY_OUTSIDE).await;
    let catalog = host.host.registry().snapshot();
    assert_eq!(catalog.tools().filter(|tool| tool.def.source.plugin().is_some()).count(), 5);
    let shown = host.call("outside__target_0", serde_json::json!({})).await;
    assert_eq!(integration_tests::outcome(&shown), "ok", "an optional wish stops no call, and gives nothing");
}

/// Whichever of two reducers is chosen, neither serves a tool of another plugin, and the tool works.
#[tokio::test(flavor = "multi_thread")]
async fn two_reducers_for_one_tool_collide_unless_the_policy_chooses() {
    let host = TestHost::empty("");
    let id = PluginId::new("twice").unwrap();
    let loaded =
        host.host.load_file(id, Path::new(guest_artifacts::HOSTILE_METADATA_REDUCER_DUPLICATE)).await;
    match loaded {
        Ok(_) => {
            let own = host.call("twice__own", serde_json::json!({})).await;
            assert_eq!(integration_tests::value(&own), "own");
        }
        Err(error) => assert!(error.to_string().contains("twice__own"), "{error}"),
    }
}
