use super::*;
use crate::registry::fixture::{mcp_tool, native_tool, plugin_tool, reducer};
use crate::registry::{Bundle, Registry, SourceState};
use crate::tool::ToolDef;
use crate::tool::content::ErrorCode;
use std::collections::BTreeSet;

fn catalog() -> Arc<Catalog> {
    let registry = Registry::default();
    let mut broken = plugin_tool("q", "broken");
    broken.availability.unavailable = Some("no grant".into());
    let tools =
        vec![plugin_tool("p", "a"), plugin_tool("p", "b"), plugin_tool("q", "c"), broken, native_tool("n")];
    registry.register(Bundle { tools, reducers: vec![] }).unwrap();
    registry.snapshot()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn an_absent_list_allows_all_and_an_empty_list_nothing() {
    let catalog = catalog();
    for (filter, expect) in [
        (Filter::default(), vec!["n", "p__a", "p__b", "q__c"]),
        (Filter { allowed_tools: Some(set(&[])), ..Filter::default() }, vec![]),
        (Filter { allowed_tools: Some(set(&["p__a", "q__broken"])), ..Filter::default() }, vec!["p__a"]),
        (Filter { allowed_plugins: Some(set(&[])), ..Filter::default() }, vec!["n"]),
        (
            Filter { allowed_plugins: Some(set(&["p"])), exclude_tools: set(&["p__a"]), ..Filter::default() },
            vec!["n", "p__b"],
        ),
    ] {
        let view = View::new(Arc::clone(&catalog), filter);
        let seen: Vec<_> = view.definitions().map(|e| e.def.name.as_str()).collect();
        assert_eq!(seen, expect);
        for entry in catalog.tools() {
            let name = entry.def.name.as_str();
            assert_eq!(
                view.find(name).is_ok(),
                seen.contains(&name),
                "definitions and calls agree on {name}"
            );
        }
    }
}

#[test]
fn each_gate_refuses_with_its_text_in_order() {
    let filter = Filter {
        allowed_tools: Some(set(&["p__b", "q__broken", "q__c"])),
        allowed_plugins: Some(set(&["q"])),
        exclude_tools: set(&["q__c", "p__a"]),
        ..Filter::default()
    };
    let view = View::new(catalog(), filter);
    for (name, text) in [
        ("nope", "Unknown tool: nope"),
        ("q__c", "Unknown tool: q__c"),
        ("p__a", "Unknown tool: p__a"),
        ("p__b", "Unknown tool: p__b"),
        ("n", "Unknown tool: n"),
        ("q__broken", "Tool q__broken is not currently available: no grant"),
    ] {
        let error = view.find(name).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (ErrorCode::NotAvailable, text));
        assert!(error.refusal.is_some(), "{name}");
    }
}

#[test]
fn a_name_of_a_source_without_tools_is_refused_with_the_state_of_the_source() {
    let registry = Registry::default();
    registry.register(vec![plugin_tool("p", "a")]).unwrap();
    registry.set_source_state("slow", "openapi:slow", Some(SourceState::Loading));
    registry.set_source_state("mcp__gh", "mcp:gh", Some(SourceState::Suspended));
    registry.set_source_state("p", "plugin:p", Some(SourceState::Failed));
    let (all, few) = (
        View::new(registry.snapshot(), Filter::default()),
        View::new(
            registry.snapshot(),
            Filter { allowed_tools: Some(set(&["slow__get"])), ..Filter::default() },
        ),
    );
    for (view, name, text) in [
        (&all, "slow__get", "Unknown tool: slow__get; its source `openapi:slow` is still loading"),
        (
            &all,
            "mcp__gh__a",
            "Unknown tool: mcp__gh__a; its source `mcp:gh` has failed repeatedly and is suspended",
        ),
        (&all, "p__zzzzzz", "Unknown tool: p__zzzzzz"),
        (&all, "other__get", "Unknown tool: other__get"),
        (&few, "slow__get", "Unknown tool: slow__get"),
        (&few, "slow__put", "Unknown tool: slow__put"),
    ] {
        assert_eq!(view.find(name).unwrap_err().message, text);
    }
    registry.set_source_state("slow", "openapi:slow", None);
    let absent = registry.snapshot();
    assert_eq!(
        absent.absent_sources().map(|source| &*source.label).collect::<Vec<_>>(),
        ["mcp:gh", "plugin:p"]
    );
}

fn names(view: &View) -> Vec<&str> {
    view.definitions().map(|e| e.def.name.as_str()).collect()
}

#[test]
fn mcp_servers_and_their_tools_are_filtered_by_their_own_names() {
    let registry = Registry::default();
    let tools: Vec<_> = [("gh", "a"), ("gh", "a__b"), ("web", "a")].map(|(s, t)| mcp_tool(s, t)).into();
    registry.register(tools).unwrap();
    registry.register(vec![native_tool("n"), plugin_tool("p", "a")]).unwrap();
    let catalog = registry.snapshot();
    let all = ["mcp__gh__a", "mcp__gh__a__b", "mcp__web__a", "n", "p__a"];
    let map = |tools: &[&str]| Some(BTreeMap::from([("gh".to_owned(), set(tools))]));
    for (servers, tools, expect) in [
        (None, None, vec![0, 1, 2, 3, 4]),
        (Some(set(&[])), None, vec![3, 4]),
        (Some(set(&["web"])), None, vec![2, 3, 4]),
        (None, map(&["a__b"]), vec![1, 2, 3, 4]),
        (None, map(&[]), vec![2, 3, 4]),
        (Some(set(&["gh"])), map(&["a"]), vec![0, 3, 4]),
    ] {
        let filter = Filter { allowed_mcp_servers: servers, allowed_mcp_tools: tools, ..Filter::default() };
        let expect: Vec<&str> = expect.into_iter().map(|index: usize| all[index]).collect();
        assert_eq!(names(&View::new(Arc::clone(&catalog), filter)), expect);
    }
}

#[test]
fn always_included_tools_pass_the_toolset_filter_and_no_other_gate() {
    let registry = Registry::default();
    let mut always = native_tool("always");
    always.flags.always_include = true;
    registry.register(vec![always, native_tool("n")]).unwrap();
    let toolset = Filter { allowed_toolsets: Some(set(&["web"])), ..Filter::default() };
    assert_eq!(names(&View::new(registry.snapshot(), toolset.clone())), ["always"]);
    for filter in [
        Filter { exclude_tools: set(&["always"]), ..toolset.clone() },
        Filter { allowed_tools: Some(set(&["n"])), ..toolset.clone() },
    ] {
        assert!(View::new(registry.snapshot(), filter).definitions().next().is_none());
    }
    registry.disable("always", "").unwrap();
    assert!(View::new(registry.snapshot(), toolset).find("always").is_err());
}

#[test]
fn tags_select_and_exclude_tools() {
    let registry = Registry::default();
    let tagged = |name: &str, tags: &[&str]| {
        let mut entry = native_tool(name);
        let mut def = ToolDef::clone(&entry.def);
        def.keywords.tags = tags.iter().map(ToString::to_string).collect();
        entry.flags.always_include = true;
        ToolEntry { flags: entry.flags, ..ToolEntry::new(def, entry.invoker) }
    };
    registry.register(vec![tagged("a", &["x"]), tagged("b", &["x", "y"]), tagged("c", &["y"])]).unwrap();
    for (allowed, excluded, expect) in [
        (None, &[][..], &["a", "b", "c"][..]),
        (Some(&["x"][..]), &[], &["a", "b"]),
        (Some(&["x", "y"]), &[], &["a", "b", "c"]),
        (Some(&[]), &[], &[]),
        (Some(&["z"]), &[], &[]),
        (None, &["y"], &["a"]),
        (Some(&["x"]), &["y"], &["a"]),
    ] {
        let filter =
            Filter { allowed_tags: allowed.map(set), exclude_tags: set(excluded), ..Filter::default() };
        let view = View::new(registry.snapshot(), filter);
        assert_eq!(names(&view), expect, "{allowed:?} {excluded:?}");
        for name in ["a", "b", "c"] {
            assert_eq!(
                view.find(name).is_ok(),
                expect.contains(&name),
                "a tool that is not listed is refused"
            );
        }
    }
    let local = Filter { exclude_tags: set(&["x"]), allowed_tags: Some(set(&[])), ..Filter::default() };
    let view = View::new(registry.snapshot(), local);
    let view = view.with_bundle(vec![tagged("d", &["x"]), tagged("e", &["y"])], OnCollision::Fail).unwrap();
    assert_eq!(names(&view), ["e"], "exclusions apply to local tools, allow lists do not");
}

#[test]
fn local_tools_exist_in_their_view_only() {
    let catalog = catalog();
    let only_q = Filter {
        allowed_plugins: Some(set(&["q"])),
        exclude_tools: set(&["secret"]),
        allowed_tools: Some(set(&["q__c"])),
        ..Filter::default()
    };
    let view = View::new(Arc::clone(&catalog), only_q);
    let with = view.with_bundle(vec![native_tool("look"), native_tool("secret")], OnCollision::Fail).unwrap();
    assert_eq!(names(&with), ["look", "q__c"], "allow lists do not apply to local tools, but exclusions do");
    assert_eq!(names(&view), ["q__c"]);
    assert!(catalog.get("look").is_none() && view.find("look").is_err());
    let taken = with.with_bundle(native_tool("p__a"), OnCollision::Fail).unwrap_err();
    assert_eq!(
        taken.to_string(),
        "a tool `p__a` is already registered by plugin `p`",
        "a tool that the filter hides cannot be replaced either"
    );
    assert!(with.with_bundle(native_tool("look"), OnCollision::Fail).is_err());
    let replaced = with.with_bundle(native_tool("p__a"), OnCollision::Replace).unwrap();
    assert_eq!(replaced.find("p__a").unwrap().def.source, crate::tool::ToolSource::Builtin.into());
    assert!(with.find("p__a").is_err());
    let kept = with.with_bundle(native_tool("p__a"), OnCollision::Keep).unwrap();
    assert!(kept.find("p__a").is_err());
}

#[test]
fn a_local_tool_does_not_use_the_reducer_of_the_tool_it_shadows() {
    let registry = Registry::default();
    let reducers = vec![reducer("p__a", Some("p"))];
    registry.register(Bundle { tools: vec![plugin_tool("p", "a")], reducers }).unwrap();
    let view = View::new(registry.snapshot(), Filter::default());
    let with = view.with_bundle(native_tool("p__a"), OnCollision::Replace).unwrap();
    assert!(view.reducer("p__a").is_some() && with.reducer("p__a").is_none());
    let own = Bundle { tools: vec![native_tool("x")], reducers: vec![reducer("x", None)] };
    let own = view.with_bundle(own, OnCollision::Fail).unwrap();
    assert!(own.reducer("x").is_some() && own.reducer("p__a").is_some() && view.reducer("x").is_none());
}

#[test]
fn a_disabled_tool_stays_disabled_as_a_local_tool() {
    let registry = Registry::default();
    registry.register(native_tool("n")).unwrap();
    registry.disable("n", "maintenance").unwrap();
    let view = View::new(registry.snapshot(), Filter::default());
    let with = view.with_bundle(native_tool("n"), OnCollision::Replace).unwrap();
    let error = with.find("n").unwrap_err();
    assert_eq!(error.refusal, Some(RefusalReason::Disabled));
    assert!(error.message.contains("is disabled: maintenance"), "{error}");
}

#[test]
fn views_with_the_same_catalog_and_filter_share_their_listing() {
    let catalog = catalog();
    let filter = Arc::new(Filter::default());
    let views = [0; 2].map(|_| View::new(Arc::clone(&catalog), Arc::clone(&filter)));
    let lists = views.each_ref().map(|view| {
        drop(view.definitions());
        view.listing.get().map(|listing| listing.as_ptr())
    });
    assert!(lists[0].is_some() && lists[0] == lists[1]);
    let other = View::new(catalog, Filter { allowed_plugins: Some(set(&["p"])), ..Filter::default() });
    assert_eq!(names(&other), ["n", "p__a", "p__b"]);
}

#[test]
fn the_same_tool_in_two_merged_views_is_no_collision() {
    let catalog = catalog();
    let view = |tools: &[&str]| {
        View::new(Arc::clone(&catalog), Filter { allowed_tools: Some(set(tools)), ..Filter::default() })
    };
    let merged = View::merge([&view(&["p__a", "n"]), &view(&["p__a", "p__b"])], OnCollision::Fail).unwrap();
    assert_eq!(names(&merged), ["n", "p__a", "p__b"]);
    let other = Registry::default();
    other.register(native_tool("n")).unwrap();
    let other = View::new(other.snapshot(), Filter::default());
    let error = View::merge([&merged, &other], OnCollision::Fail).unwrap_err();
    assert_eq!(error.to_string(), "a tool `n` is already registered by the host");
    assert_eq!(names(&View::merge([], OnCollision::Fail).unwrap()), Vec::<&str>::new());
}

#[test]
fn a_tool_that_two_merged_views_show_in_different_forms_is_no_collision() {
    let catalog = catalog();
    let view = |asks| {
        let filter = Filter { toolcall_reason: Some(asks), ..Filter::default() };
        View::new(Arc::clone(&catalog), filter)
    };
    for first in [true, false] {
        let merged = View::merge([&view(first), &view(!first)], OnCollision::Fail).unwrap();
        assert_eq!(merged.find("p__a").unwrap().has_reason_argument(), first, "the first view decides");
    }
}

#[test]
fn a_call_of_a_name_that_a_source_leaves_out_says_why_in_views_that_would_show_it() {
    let registry = Registry::default();
    registry.register(native_tool("n")).unwrap();
    let reason = PolicyRefusal::new("its path is odd", "write another path");
    registry.set_left_out("openapi:api", BTreeMap::from([("api__x".to_owned(), reason)]));
    let error = |filter| View::new(registry.snapshot(), filter).unknown_tool_error("api__x").message;
    assert_eq!(error(Filter::default()), "Unknown tool: api__x; its path is odd");
    for (filter, shown) in [
        (Filter { allowed_tools: Some(set(&["api__x"])), ..Filter::default() }, true),
        (Filter { allowed_toolsets: Some(set(&["openapi:api"])), ..Filter::default() }, true),
        (Filter { allowed_plugins: Some(set(&[])), ..Filter::default() }, true),
        (Filter { allowed_tools: Some(set(&["api__y"])), ..Filter::default() }, false),
        (Filter { allowed_toolsets: Some(set(&[])), ..Filter::default() }, false),
        (Filter { allowed_tags: Some(set(&["api.a"])), ..Filter::default() }, false),
        (Filter { exclude_tools: set(&["api__x"]), ..Filter::default() }, false),
    ] {
        assert_eq!(error(filter.clone()).contains("odd"), shown, "{filter:?}");
    }
    registry.set_left_out("mcp:web", BTreeMap::from([("web__x".to_owned(), "its schema is odd".into())]));
    let web = |filter| View::new(registry.snapshot(), filter).unknown_tool_error("web__x").message;
    assert!(web(Filter::default()).contains("odd"));
    for filter in [
        Filter { allowed_mcp_servers: Some(set(&["gh"])), ..Filter::default() },
        Filter {
            allowed_mcp_tools: Some(BTreeMap::from([("web".to_owned(), set(&["y"]))])),
            ..Filter::default()
        },
    ] {
        assert_eq!(web(filter.clone()), "Unknown tool: web__x", "{filter:?}");
    }
    assert_eq!(names(&View::new(registry.snapshot(), Filter::default())), ["n"]);
    registry.set_left_out("openapi:api", BTreeMap::new());
    assert!(!error(Filter::default()).contains("odd"));
}
