//! The registry with real plugins: availability, the effect of grants, changes at a reload, and native tools
//! beside them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use integration_tests::{TestHost, outcome, value};
use serde_json::json;
use toolbay::core::call::TurnContext;
use toolbay::core::registry::event::HostEvent;
use toolbay::core::registry::{RegistrationResult, Switches};
use toolbay::core::tool::content::ToolOutput;
use toolbay::core::tool::diff::Impact;
use toolbay::{Filter, OnCollision, PluginId, ToolCall, native_tool};

fn why_not(host: &TestHost, tool: &str) -> Option<String> {
    host.host.view(Filter::default()).find(tool).err().map(|error| error.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn availability_checks_never_break_a_list() {
    let host = TestHost::empty("[plugins.a.grant]\nkv = [\"tool\"]\nclock = true");
    host.load("a", guest_artifacts::API_AVAILABLE).await;
    host.load("b", guest_artifacts::API_ECHO).await;
    let listed = host.host.view(Filter::default());
    let of_a = listed.definitions().filter(|entry| entry.def.namespace() == Some("a"));
    assert_eq!(of_a.map(|entry| entry.def.name.tool_part()).collect::<Vec<_>>(), ["always"]);
    assert!(listed.find("b__echo").is_ok());
    for (tool, reason) in [
        ("with_key", "its plugin says: write `key` into the plugin's settings"),
        ("nosy", "its plugin says: nothing to see"),
        ("loud", "its plugin says: line one\\nline two \\u{1b}[31mxxx"),
        ("traps", "its plugin failed in the availability check: "),
        ("spins", "its plugin failed in the availability check: "),
        ("sleeps", "its plugin failed in the availability check: "),
    ] {
        let text = why_not(&host, &format!("a__{tool}")).unwrap();
        let wanted = format!("Tool a__{tool} is not currently available: {reason}");
        assert!(text.starts_with(&wanted) && text.chars().count() < 800, "{text}");
    }
    assert_eq!(value(&host.call("a__always", json!({})).await), "called");
    assert_eq!(outcome(&host.call("a__traps", json!({})).await), "not_available");
    assert_eq!(
        host.host.available_call_permits(),
        TestHost::empty("").host.available_call_permits(),
        "no place stays taken"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_sees_the_settings_of_its_plugin() {
    let host = TestHost::empty("[plugins.a]\nconfig = { key = \"x\" }");
    host.load("a", guest_artifacts::API_AVAILABLE).await;
    assert_eq!(why_not(&host, "a__with_key"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_come_from_the_grants() {
    let tags = async |policy: &str, tool: &str| {
        let host = TestHost::empty(policy);
        host.load("f", guest_artifacts::PLUGIN_FILES).await;
        let catalog = host.host.registry().snapshot();
        catalog.get(tool).unwrap().tags().join(" ")
    };
    let both = "[plugins.f.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]";
    let read = tags(both, "f__read_file").await;
    assert_eq!(read, "file_system read read_only");
    let write = tags(both, "f__write_file").await;
    assert!(write.contains("file_system") && !write.contains("read_only"), "{write}");
    let nothing = tags("", "f__write_file").await;
    assert!(!nothing.contains("file_system") && nothing.contains("read_only"), "{nothing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn always_include_needs_the_operators_word() {
    let listed = async |policy: &str| {
        let host = TestHost::empty(policy);
        host.load("traits", guest_artifacts::HOSTILE_METADATA_TRAITS).await;
        let none = Filter { allowed_toolsets: Some(BTreeSet::new()), ..Filter::default() };
        host.host.view(none).callable().filter(|entry| entry.def.source.plugin().is_some()).count()
    };
    assert_eq!(listed("").await, 0);
    assert_eq!(listed("[plugins.traits]\nalways_include = true").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_reports_breaking_changes() {
    let host = TestHost::empty("");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&heard);
    host.host.events().listen(move |event| into.lock().unwrap().push(event.clone()));
    host.load("p", guest_artifacts::API_ECHO).await;
    host.load("p", guest_artifacts::API_ECHO).await;
    host.load("p", guest_artifacts::API_AVAILABLE).await;
    host.host.unload(&PluginId::new("p").unwrap());
    let events = heard.lock().unwrap();
    let [
        HostEvent::Registered { .. },
        HostEvent::Replaced { diff: same, .. },
        HostEvent::Replaced { diff, .. },
        HostEvent::Unregistered { .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((same.impact(), same.changed.len()), (Impact::Compatible, 0));
    assert!(diff.impact() == Impact::Breaking && diff.removed.contains(&"p__echo".into()), "{diff:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_tool_stays_disabled_after_a_reload() {
    let switches = Switches {
        tools: [("b__echo".to_owned(), "maintenance".to_owned())].into(),
        namespaces: [("a".to_owned(), "not trusted".to_owned())].into(),
    };
    let host = TestHost::empty_with("", |builder| builder.switches(switches));
    host.load("a", guest_artifacts::API_ECHO).await;
    host.load("b", guest_artifacts::API_ECHO).await;
    let view = host.host.view(Filter::default());
    let calls = ["a__echo", "b__echo", "b__long"].map(|tool| ToolCall::new(tool, tool, "{\"n\": 1}"));
    let results = host.host.call_all(&view, calls.to_vec(), TurnContext::default()).await;
    let texts: Vec<_> =
        results.iter().map(|one| one.result.as_ref().map(|_| ()).map_err(ToString::to_string)).collect();
    assert_eq!(
        texts,
        [
            Err("Tool a__echo is disabled: not trusted; only the operator can enable it".to_owned()),
            Err("Tool b__echo is disabled: maintenance; only the operator can enable it".to_owned()),
            Ok(()),
        ],
        "one that is off stops none of the others"
    );
    assert_eq!(host.host.registry().enable("b__echo"), Ok(None));
    assert!(host.call("b__echo", json!({})).await.result.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn native_tools_coexist_with_plugins_and_cannot_take_their_names() {
    let host = TestHost::empty("");
    host.load("p", guest_artifacts::API_ECHO).await;
    let tool = |name: &str, namespace: &str| {
        let tool = native_tool(name).namespace(namespace).description("Says its name.");
        tool.run(|_, ctx| async move { Ok(ToolOutput::text(&*ctx.tool)) }).unwrap()
    };
    let RegistrationResult { added, .. } = host.host.register(tool("hello", "mine")).unwrap();
    assert_eq!(added, ["mine__hello".into()]);
    assert_eq!(value(&host.call("mine__hello", json!({})).await), "mine__hello");
    let taken = host.host.register(tool("echo", "p")).unwrap_err();
    assert_eq!(taken.to_string(), "a tool `p__echo` is already registered by plugin `p`");
    let own = host.host.view(Filter::default()).with_bundle(tool("look", "mine"), OnCollision::Fail).unwrap();
    let call = vec![ToolCall::new("1", "mine__look", "")];
    let result = host.host.call_all(&own, call, TurnContext::default()).await.remove(0);
    assert_eq!(value(&result), "mine__look", "a tool of the view's own goes the same way");
    assert_eq!(outcome(&host.call("mine__look", json!({})).await), "not_available");
    assert!(host.host.unregister("mine__hello") && !host.host.unregister("mine__hello"));
    assert_eq!(outcome(&host.call("mine__hello", json!({})).await), "not_available");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_during_reloads_is_whole() {
    let host = TestHost::empty("");
    host.load("p", guest_artifacts::API_ECHO).await;
    let count = host.host.view(Filter::default()).definitions().count();
    let (reading, done) = (host.host.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let stop = Arc::clone(&done);
    let reader = tokio::task::spawn_blocking(move || {
        let mut seen = BTreeSet::new();
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let view = reading.view(Filter::default());
            seen.insert(view.definitions().count());
            assert!(view.definitions().all(|entry| view.find(entry.def.name.as_str()).is_ok()));
        }
        seen
    });
    for _ in 0..20 {
        host.load("p", guest_artifacts::API_ECHO).await;
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        reader.await.unwrap(),
        BTreeSet::from([count]),
        "never the half of a plugin, never none of it"
    );
}
