use toolbay_policy::name::PluginId;

use super::*;
use crate::registry::fixture::{install, mcp_tool, native_tool, plugin_tool, reducer, remove};
use crate::tool::ToolDef;
use crate::tool::diff::{Impact, SourceDiff};

fn id(text: &str) -> PluginId {
    PluginId::new(text).unwrap()
}

fn names(catalog: &Catalog) -> Vec<&str> {
    catalog.tools().map(|e| e.def.name.as_str()).collect()
}

fn hidden(registry: &Registry) -> Vec<String> {
    let catalog = registry.snapshot();
    catalog.tools().filter(|entry| entry.flags.hidden).map(|entry| entry.def.name.to_string()).collect()
}

#[test]
fn a_plugin_is_replaced_completely() {
    let registry = Registry::default();
    install(
        &registry,
        &id("p"),
        Bundle { tools: vec![plugin_tool("p", "b"), plugin_tool("p", "a")], reducers: vec![] },
    )
    .unwrap();
    let before = registry.snapshot();
    install(&registry, &id("p"), Bundle { tools: vec![plugin_tool("p", "c")], reducers: vec![] }).unwrap();
    assert_eq!(names(&before), ["p__a", "p__b"], "a snapshot does not change");
    assert_eq!(names(&registry.snapshot()), ["p__c"]);
    remove(&registry, &id("p"));
    assert_eq!(registry.snapshot().tools().len(), 0);
}

#[test]
fn a_reducer_is_removed_by_identity_and_once() {
    let registry = Registry::default();
    let first = registry.register_reducer(reducer("p__a", None)).unwrap();
    let error = registry.register_reducer(reducer("p__a", None)).unwrap_err();
    assert_eq!(error.to_string(), "a reducer for tool `p__a` is already registered by the host");
    assert!(registry.remove_reducer(&first));
    assert!(!registry.remove_reducer(&first), "a second removal does nothing");
    let revision = registry.snapshot().revision();
    let second = registry.register_reducer(reducer("p__a", None)).unwrap();
    assert!(!registry.remove_reducer(&first), "a stale handle does not remove a later reducer");
    assert!(!registry.remove_reducer(&first.clone()));
    assert!(registry.snapshot().reducer("p__a").is_some());
    assert_eq!(registry.snapshot().revision(), revision + 1, "a change without effect keeps the revision");
    let before = registry.snapshot();
    assert!(registry.remove_reducer(&second));
    assert!(before.reducer("p__a").is_some(), "a snapshot does not change");
    assert!(registry.snapshot().reducer("p__a").is_none());
}

#[test]
fn a_plugin_does_not_replace_a_native_reducer() {
    let registry = Registry::default();
    let native = registry.register_reducer(reducer("p__a", None)).unwrap();
    let bundle = || Bundle { tools: vec![plugin_tool("p", "a")], reducers: vec![reducer("p__a", Some("q"))] };
    assert!(matches!(install(&registry, &id("q"), bundle()), Err(Collision::Reducer { .. })));
    assert!(registry.snapshot().get("p__a").is_none(), "a plugin enters completely or not at all");
    assert!(registry.remove_reducer(&native));
    install(&registry, &id("q"), bundle()).unwrap();
    assert!(!registry.remove_reducer(&native), "the reducer belongs to the plugin now");
    assert!(registry.snapshot().reducer("p__a").is_some());
}

#[test]
fn a_collision_changes_nothing() {
    let registry = Registry::default();
    install(
        &registry,
        &id("p"),
        Bundle { tools: vec![plugin_tool("p", "a")], reducers: vec![reducer("p__a", Some("p"))] },
    )
    .unwrap();
    let twice = Bundle { tools: vec![plugin_tool("q", "x"), plugin_tool("q", "x")], reducers: vec![] };
    assert!(matches!(install(&registry, &id("q"), twice), Err(Collision::Tool { .. })));
    let second = Bundle { tools: vec![plugin_tool("q", "y")], reducers: vec![reducer("p__a", Some("q"))] };
    let error = install(&registry, &id("q"), second).unwrap_err();
    assert_eq!(error.to_string(), "a reducer for tool `p__a` is already registered by plugin `p`");
    assert_eq!(names(&registry.snapshot()), ["p__a"]);
    assert_eq!(registry.snapshot().revision(), 1);
}

fn reasons(registry: &Registry) -> Vec<(String, Option<String>)> {
    let catalog = registry.snapshot();
    let off = |entry: &Arc<ToolEntry>| entry.availability.disabled.as_ref().map(ToString::to_string);
    catalog.tools().map(|entry| (entry.def.name.to_string(), off(entry))).collect()
}

fn off(registry: &Registry) -> Vec<(String, String)> {
    reasons(registry).into_iter().filter_map(|(name, reason)| Some((name, reason?))).collect()
}

fn pair(name: &str, reason: &str) -> (String, String) {
    (name.to_owned(), reason.to_owned())
}

fn record_events(registry: &Registry) -> Arc<Mutex<Vec<HostEvent>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&heard);
    registry.events().listen(move |event| into.lock().push(event.clone()));
    heard
}

fn take(heard: &Mutex<Vec<HostEvent>>) -> Vec<HostEvent> {
    std::mem::take(&mut heard.lock())
}

#[test]
fn a_taken_name_is_refused_kept_or_replaced_as_the_policy_says() {
    let registry = Registry::default();
    let heard = record_events(&registry);
    let done = registry.register(vec![native_tool("b"), native_tool("a")]).unwrap();
    assert_eq!(done.added, ["b".into(), "a".into()]);
    assert_eq!(names(&registry.snapshot()), ["a", "b"]);
    let error = registry.register(vec![native_tool("c"), native_tool("a")]).unwrap_err();
    assert_eq!(error.to_string(), "a tool `a` is already registered by the host");
    assert!(!registry.snapshot().contains("c"), "all of them, or none");
    let old = registry.snapshot().get("a").cloned().unwrap();
    let kept = registry.register_with(vec![native_tool("c"), native_tool("a")], OnCollision::Keep).unwrap();
    assert_eq!((kept.added, kept.skipped), (vec!["c".into()], vec!["a".into()]));
    assert!(Arc::ptr_eq(&old, registry.snapshot().get("a").unwrap()));
    let replaced = registry.register_with(native_tool("a"), OnCollision::Replace).unwrap();
    assert_eq!(replaced.replaced, ["a".into()]);
    assert!(!Arc::ptr_eq(&old, registry.snapshot().get("a").unwrap()));
    // The tool's own policy takes precedence.
    let stubborn = ToolEntry { on_collision: Some(OnCollision::Fail), ..native_tool("a") };
    assert!(registry.register_with(stubborn, OnCollision::Replace).is_err());
    assert!(registry.unregister("a") && !registry.unregister("a"));
    let source = || "builtin".to_owned();
    let diff = SourceDiff::default();
    assert_eq!(
        take(&heard),
        [
            HostEvent::Registered { tools: vec!["b".into(), "a".into()], source: source() },
            HostEvent::Registered { tools: vec!["c".into()], source: source() },
            HostEvent::Replaced { tools: vec!["a".into()], source: source(), diff },
            HostEvent::Unregistered { tools: vec!["a".into()], source: source() },
        ]
    );
}

#[test]
fn a_replacement_of_a_plugins_tool_does_not_get_its_reducer() {
    let registry = Registry::default();
    let reducers = vec![reducer("p__a", Some("p")), reducer("q__b", Some("p"))];
    install(&registry, &id("p"), Bundle { tools: vec![plugin_tool("p", "a")], reducers }).unwrap();
    registry.register(plugin_tool("q", "b")).unwrap();
    registry.register_with(native_tool("p__a"), OnCollision::Replace).unwrap();
    registry.register_with(native_tool("q__b"), OnCollision::Replace).unwrap();
    let catalog = registry.snapshot();
    assert!(catalog.reducer("p__a").is_none(), "the reducer was removed with the tool");
    assert!(catalog.reducer("q__b").is_some(), "a reducer for a tool of another source stays");
}

#[test]
fn sources_and_namespaces_are_found_and_removed() {
    let registry = Registry::default();
    let mut web = native_tool("web__get");
    Arc::get_mut(&mut web.def).unwrap().keywords.toolset = Some("web".to_owned());
    let tools =
        vec![web, native_tool("n"), plugin_tool("p", "a"), plugin_tool("q", "a"), mcp_tool("gh", "a")];
    registry.register(tools).unwrap();
    let catalog = registry.snapshot();
    let list =
        |entries: Vec<&Arc<ToolEntry>>| entries.iter().map(|e| e.def.name.to_string()).collect::<Vec<_>>();
    assert_eq!(list(catalog.from_source("plugin").collect()), ["p__a", "q__a"]);
    assert_eq!(list(catalog.from_source("builtin").collect()), ["n", "web__get"]);
    assert_eq!(list(catalog.in_namespace("mcp__gh").collect()), ["mcp__gh__a"]);
    assert_eq!(catalog.namespaces().into_iter().collect::<Vec<_>>(), ["mcp__gh", "p", "q", "web"]);
    assert_eq!(registry.remove_source("plugin"), 2);
    assert_eq!(registry.remove_source("plugin"), 0);
    assert_eq!(registry.remove_source("mcp:gh"), 1);
    assert_eq!(registry.remove_namespace("web"), 1);
    assert_eq!(names(&registry.snapshot()), ["n"]);
}

#[test]
fn registries_are_merged_and_split_by_namespace() {
    let (one, two) = (Registry::default(), Registry::default());
    one.register(vec![native_tool("math__add"), native_tool("n")]).unwrap();
    let bundle = Bundle {
        tools: vec![native_tool("math__add"), native_tool("math__sub"), native_tool("text__cut")],
        reducers: vec![reducer("math__sub", None)],
    };
    two.register(bundle).unwrap();
    two.disable("math__sub", "there").unwrap();
    assert!(one.merge(&two.snapshot(), Some("math"), OnCollision::Fail).is_err());
    let done = one.merge(&two.snapshot(), Some("math"), OnCollision::Keep).unwrap();
    assert_eq!((done.added, done.skipped), (vec!["math__sub".into()], vec!["math__add".into()]));
    assert_eq!(names(&one.snapshot()), ["math__add", "math__sub", "n"]);
    assert!(one.snapshot().reducer("math__sub").is_some());
    assert_eq!(off(&one), [], "settings of the other registry are not copied");
    assert_eq!(names(&two.snapshot()), ["math__add", "math__sub", "text__cut"], "the other does not change");
    let own = one.spin_off("math");
    assert_eq!(names(&own.snapshot()), ["math__add", "math__sub"]);
    assert_eq!(names(&one.snapshot()), ["n"]);
    assert_eq!(names(&one.spin_off("math").snapshot()), Vec::<&str>::new());
}

#[test]
fn native_tools_are_registered_under_a_namespace() {
    let tools = vec![native_tool("add"), native_tool("old__sub"), plugin_tool("p", "a")];
    let bundle = Bundle { tools, reducers: vec![reducer("add", None), reducer("p__a", None)] };
    let registry = Registry::default();
    registry.register(bundle.with_namespace(&id("math")).unwrap()).unwrap();
    assert_eq!(names(&registry.snapshot()), ["math__add", "math__sub", "p__a"]);
    assert!(
        registry.snapshot().reducer("math__add").is_some() && registry.snapshot().reducer("p__a").is_some()
    );
    let long = Bundle::from(native_tool(&"x".repeat(40))).with_namespace(&id(&"y".repeat(40)));
    assert!(long.unwrap_err().to_string().contains("longer than 64"));
}

#[test]
fn a_tool_is_disabled_by_name_or_with_its_namespace() {
    let registry = Registry::default();
    registry.register(vec![plugin_tool("p", "a"), plugin_tool("p", "b"), native_tool("n")]).unwrap();
    registry.disable("p__a", "first").unwrap();
    registry.disable("p__a", "latest").unwrap();
    assert_eq!(off(&registry), [pair("p__a", "latest")]);
    assert_eq!(registry.disable_namespace("p", "maintenance").unwrap(), ["p__b".into()]);
    assert_eq!(off(&registry), [pair("p__a", "latest"), pair("p__b", "maintenance")]);
    assert_eq!(
        registry.enable("p__a").unwrap().as_deref(),
        Some("maintenance"),
        "the namespace is still disabled"
    );
    assert_eq!(registry.enable_namespace("p").unwrap(), ["p__a".into(), "p__b".into()]);
    assert_eq!(registry.enable("p__a").unwrap(), None);
    assert_eq!(off(&registry), []);
    registry.disable("n", " \n").unwrap();
    assert_eq!(off(&registry), [pair("n", "no reason was given")]);
    registry.disable("n", &format!("line\n{}", "x".repeat(1000))).unwrap();
    let (_, reason) = off(&registry).remove(0);
    assert!(reason.starts_with("line\\nxx") && reason.chars().count() <= MAX_REASON + 3, "{reason}");
    for error in [
        registry.disable("nope", "").unwrap_err(),
        registry.enable("nope").unwrap_err(),
        registry.hide("nope").unwrap_err(),
        registry.set_metadata("nope", MetadataOverride::default()).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), "there is no tool `nope`");
    }
    let namespace = registry.disable_namespace("no\npe", "").unwrap_err();
    assert_eq!(namespace.to_string(), "there is no namespace `no\\npe`");
}

#[test]
fn a_disabled_tool_stays_disabled_when_its_plugin_is_reloaded() {
    let registry = Registry::default();
    let bundle = || Bundle::from(vec![plugin_tool("p", "a"), plugin_tool("p", "b")]);
    install(&registry, &id("p"), bundle()).unwrap();
    registry.disable("p__a", "why").unwrap();
    registry.hide("p__b").unwrap();
    install(&registry, &id("p"), bundle()).unwrap();
    assert_eq!(off(&registry), [pair("p__a", "why")]);
    remove(&registry, &id("p"));
    assert_eq!(registry.snapshot().settings().switches().tools.len(), 1);
    install(&registry, &id("p"), bundle()).unwrap();
    assert_eq!((off(&registry), hidden(&registry)), (vec![pair("p__a", "why")], vec!["p__b".to_owned()]));
    remove(&registry, &id("p"));
    registry.enable("p__a").unwrap();
    assert!(registry.enable("p__a").is_err(), "the tool has no settings any more");
}

#[test]
fn switches_are_saved_and_restored() {
    let registry = Registry::default();
    registry.register(vec![plugin_tool("p", "a"), native_tool("n")]).unwrap();
    registry.disable("n", "one").unwrap();
    registry.disable_namespace("p", "two").unwrap();
    let kept = serde_json::to_string(&registry.snapshot().settings().switches()).unwrap();
    assert_eq!(kept, r#"{"tools":{"n":"one"},"namespaces":{"p":"two"}}"#);
    let next = Registry::default();
    next.set_switches(&serde_json::from_str(&kept).unwrap());
    next.register(vec![plugin_tool("p", "a"), native_tool("n"), native_tool("m")]).unwrap();
    assert_eq!(off(&next), [pair("n", "one"), pair("p__a", "two")]);
    let heard = record_events(&next);
    next.set_switches(&Switches {
        tools: [("m".to_owned(), "three".to_owned())].into(),
        ..Switches::default()
    });
    assert_eq!(off(&next), [pair("m", "three")]);
    assert_eq!(take(&heard).len(), 3);
}

#[test]
fn tags_select_the_current_tools() {
    let tagged = |name: &str, tags: &[&str]| {
        let mut entry = native_tool(name);
        Arc::get_mut(&mut entry.def).unwrap().keywords.tags = tags.iter().map(ToString::to_string).collect();
        let def = ToolDef::clone(&entry.def);
        let mut entry = ToolEntry::new(def, entry.invoker);
        entry.call.args_bytes = 1;
        entry
    };
    let registry = Registry::default();
    registry.register(vec![tagged("a", &["x"]), tagged("b", &["x", "y"]), tagged("c", &["y"])]).unwrap();
    let list = |tags: &[&str]| tags.iter().map(ToString::to_string).collect::<Vec<_>>();
    registry.disable("a", "mine").unwrap();
    assert_eq!(
        registry.disable_tagged(TagSelector::Any(&list(&["x"])), "tag").unwrap(),
        ["b".into()],
        "`a` is disabled already"
    );
    assert_eq!(off(&registry), [pair("a", "mine"), pair("b", "tag")]);
    assert_eq!(
        registry.enable_tagged(TagSelector::Any(&list(&["x", "y"]))).unwrap(),
        ["a".into(), "b".into()]
    );
    assert_eq!(registry.disable_tagged(TagSelector::All(&list(&["x", "y"])), "both").unwrap(), ["b".into()]);
    assert_eq!(registry.disable_tagged(TagSelector::All(&[]), "none").unwrap(), []);
    assert_eq!(
        registry.disable_tagged(TagSelector::Any(&list(&["z"])), "").unwrap_err().to_string(),
        "there is no tag `z`"
    );
    registry.register(tagged("d", &["x", "y"])).unwrap();
    assert_eq!(off(&registry), [pair("b", "both")], "later tools are not affected");
}

#[test]
fn hidden_tools_are_listed_and_unhidden() {
    let registry = Registry::default();
    let by_source =
        ToolEntry { flags: ToolFlags { hidden: true, ..ToolFlags::default() }, ..native_tool("h") };
    registry.register(vec![by_source, native_tool("a"), native_tool("b")]).unwrap();
    registry.hide("a").unwrap();
    registry.hide("b").unwrap();
    registry.unhide("b").unwrap();
    assert_eq!(hidden(&registry), ["a", "h"]);
    registry.unhide("a").unwrap();
    registry.unhide("h").unwrap();
    assert_eq!(hidden(&registry), ["h"], "a tool that its source hides stays hidden");
}

#[test]
fn metadata_overrides_are_set_and_removed() {
    let registry = Registry::default();
    let heard = record_events(&registry);
    registry.register(native_tool("n")).unwrap();
    let before = registry.snapshot().get("n").cloned().unwrap();
    let metadata = MetadataOverride {
        title: Some("Title".to_owned()),
        description: Some("Other words.".to_owned()),
        tags: vec!["mine".to_owned()],
        search_hint: Some("hint".to_owned()),
        deferred: Some(true),
    };
    registry.set_metadata("n", metadata.clone()).unwrap();
    let revision = registry.snapshot().revision();
    registry.set_metadata("n", metadata).unwrap();
    assert_eq!(registry.snapshot().revision(), revision, "a change without effect keeps the revision");
    let now = registry.snapshot().get("n").cloned().unwrap();
    assert_eq!((now.def.title.as_deref(), &*now.def.description), (Some("Title"), "Other words."));
    assert_eq!(now.def.keywords.search_hint.as_deref(), Some("hint"));
    assert!(now.flags.deferred && now.has_tag("mine") && !before.has_tag("mine"));
    registry.set_metadata("n", MetadataOverride::default()).unwrap();
    let now = registry.snapshot().get("n").cloned().unwrap();
    assert!(Arc::ptr_eq(&now.def, &before.def) && now.flags == before.flags && now.tags() == before.tags());
    assert_eq!(take(&heard)[1..], [(); 2].map(|()| HostEvent::Metadata { tool: "n".into() }));
}

#[test]
fn hooks_disable_new_tools() {
    let registry = Registry::default();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&asked);
    registry.add_hook(|entry| (entry.def.name.tool_part() != "fine").then(|| "first".to_owned()));
    registry.add_hook(|entry| panic!("a hook that panics for {}", entry.def.name));
    registry.add_hook(|entry| (entry.def.name.tool_part() == "bad").then(|| "last".to_owned()));
    registry.add_hook(move |entry| {
        into.lock().push(entry.def.name.to_string());
        Some("  ".to_owned())
    });
    let bundle =
        || Bundle::from(vec![plugin_tool("p", "fine"), plugin_tool("p", "bad"), plugin_tool("p", "so_so")]);
    install(&registry, &id("p"), bundle()).unwrap();
    assert_eq!(off(&registry), [pair("p__bad", "last"), pair("p__so_so", "first")]);
    assert_eq!(asked.lock().len(), 3, "a panic skips no other hook");
    assert_eq!(registry.enable("p__bad").unwrap(), None);
    assert_eq!(off(&registry), [pair("p__so_so", "first")]);
    install(&registry, &id("p"), bundle()).unwrap();
    assert_eq!(off(&registry).len(), 2, "hooks run again for a reloaded plugin");
}

#[test]
fn a_reload_event_has_the_differences() {
    let registry = Registry::default();
    let heard = record_events(&registry);
    let tool = |name: &str, schema: &str| {
        let mut entry = plugin_tool("p", name);
        Arc::get_mut(&mut entry.def).unwrap().input_schema =
            crate::tool::schema::Schema::input(schema).unwrap();
        entry
    };
    let (old, new) = (r#"{"type":"object"}"#, r#"{"type":"object","required":["x"]}"#);
    install(&registry, &id("p"), vec![tool("a", old), tool("b", old), tool("c", old)].into()).unwrap();
    install(&registry, &id("p"), vec![tool("a", new), tool("b", old), tool("d", old)].into()).unwrap();
    let HostEvent::Replaced { tools, source, diff } = take(&heard).remove(1) else { panic!("{heard:?}") };
    assert_eq!((tools.len(), source.as_str()), (3, "plugin:p"));
    assert_eq!((diff.added.clone(), diff.removed.clone()), (vec!["p__d".into()], vec!["p__c".into()]));
    assert_eq!(diff.changed.keys().map(|name| &**name).collect::<Vec<_>>(), ["p__a"]);
    assert_eq!(diff.changed.values().next().unwrap().impact(), Impact::Breaking);
    install(&registry, &id("p"), vec![tool("a", new), tool("b", old), tool("d", old)].into()).unwrap();
    let HostEvent::Replaced { diff, .. } = take(&heard).remove(0) else { panic!("{heard:?}") };
    assert_eq!((diff.impact(), diff), (Impact::Compatible, SourceDiff::default()));
}

#[test]
fn a_callback_may_change_the_registry_and_events_stay_in_order() {
    let registry = Arc::new(Registry::default());
    let (again, heard) = (Arc::clone(&registry), record_events(&registry));
    registry.events().listen(move |event| {
        if let HostEvent::Registered { tools, .. } = event
            && tools.iter().any(|tool| &**tool == "a")
        {
            again.disable("a", "by a callback").unwrap();
            again.register(native_tool("b")).unwrap();
        }
    });
    registry.register(native_tool("a")).unwrap();
    let kinds: Vec<_> =
        take(&heard).iter().map(|event| serde_json::to_value(event).unwrap()["event"].clone()).collect();
    assert_eq!(kinds, ["registered", "disabled", "registered"]);
    assert_eq!(off(&registry), [pair("a", "by a callback")]);
}

#[test]
fn events_of_many_threads_arrive_in_the_order_of_the_changes() {
    let registry = Arc::new(Registry::default());
    registry.register(native_tool("t")).unwrap();
    let heard = record_events(&registry);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let registry = &registry;
            scope.spawn(move || {
                for n in 0..50 {
                    registry.disable("t", &format!("{thread} {n}")).unwrap();
                }
            });
        }
    });
    // All threads have joined, so all flushes are complete.
    let events = take(&heard);
    let last = events.last().cloned().unwrap();
    let reason = registry.snapshot().get("t").unwrap().availability.disabled.as_ref().unwrap().to_string();
    assert_eq!(last, HostEvent::Disabled { tool: "t".into(), reason });
    assert_eq!(events.len(), 200);
}

#[test]
fn the_status_has_all_fields_of_each_tool() {
    let registry = Registry::default();
    registry.register(vec![plugin_tool("p", "a"), native_tool("n")]).unwrap();
    registry.disable("p__a", "why").unwrap();
    let status = serde_json::to_value(registry.snapshot().status()).unwrap();
    let (native, plugin) = (&status[0], &status[1]);
    assert_eq!(native["source"], serde_json::json!({"kind": "builtin"}));
    assert_eq!((&native["enabled"], &plugin["enabled"]), (&true.into(), &false.into()));
    assert_eq!((&plugin["disabled_reason"], &plugin["namespace"]), (&"why".into(), &"p".into()));
    assert_eq!(plugin["source"]["digest"], "00");
    assert_eq!(native["schema_sha256"], plugin["schema_sha256"], "their schemas are equal");
}
