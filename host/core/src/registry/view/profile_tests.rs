//! A profile never shows more tools than the filter without it, and only the servers that it names.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use toolbay_policy::Policy;

use crate::registry::fixture::{mcp_tool, native_tool, plugin_tool};
use crate::registry::view::{Filter, View};
use crate::registry::{Bundle, Catalog, Registry};

fn parse(text: &str) -> Policy {
    Policy::parse(text, Path::new("/w"), None).unwrap()
}

#[test]
fn a_profile_selects_servers_and_their_tools() {
    let policy = parse(
        "version = 1\n[profile.p]\nmcp_servers = [\"a\", \"b\"]\nmcp_tools = { b = [\"x\"] }\n[profile.q]\nmcp_servers = []",
    );
    let registry = Registry::default();
    let entries = [("a", "x"), ("b", "x"), ("b", "y"), ("c", "x")];
    registry.register(entries.map(|(server, tool)| mcp_tool(server, tool)).to_vec()).unwrap();
    let seen = |profile: &str| -> Vec<String> {
        let filter = Filter::for_profile(policy.profile(profile).cloned());
        let view = View::new(registry.snapshot(), filter);
        view.definitions().map(|entry| entry.def.name.to_string()).collect()
    };
    assert_eq!(seen("p"), ["mcp__a__x", "mcp__b__x"]);
    assert!(seen("q").is_empty());
}

fn catalog() -> Arc<Catalog> {
    let registry = Registry::default();
    let mut tools: Vec<_> = [("p", "a"), ("p", "b"), ("q", "c")].map(|(p, t)| plugin_tool(p, t)).into();
    tools.push(native_tool("n"));
    let mut grouped = plugin_tool("q", "d");
    Arc::get_mut(&mut grouped.def).unwrap().keywords.toolset = Some("web".to_owned());
    tools.push(grouped);
    registry.register(Bundle { tools, reducers: vec![] }).unwrap();
    registry.snapshot()
}

fn list(key: &str, names: &Option<std::collections::BTreeSet<String>>) -> String {
    let list = names.as_ref().map(|names| format!("{key} = {}\n", serde_json::to_string(names).unwrap()));
    list.unwrap_or_default()
}

proptest! {
    #[test]
    fn a_profile_never_shows_more(
        tools in prop::option::of(prop::collection::btree_set("p__a|q__c|n|none", 0..3)),
        plugins in prop::option::of(prop::collection::btree_set("p|q|r", 0..3)),
        toolsets in prop::option::of(prop::collection::btree_set("web|none", 0..2)),
        excluded in prop::collection::btree_set("p__a|q__d|n", 0..2),
        allowed in prop::option::of(prop::collection::btree_set("p__a|p__b|q__d", 0..3)),
    ) {
        let lists = [
            list("tools", &tools),
            list("plugins", &plugins),
            list("toolsets", &toolsets),
            list("exclude_tools", &Some(excluded)),
        ];
        let policy = parse(&format!("version = 1\n[profile.x]\n{}", lists.concat()));
        let filter = Filter { allowed_tools: allowed, ..Filter::default() };
        let narrowed = Filter { profile: policy.profile("x").cloned(), ..filter.clone() };
        let (all, some) = (View::new(catalog(), filter), View::new(catalog(), narrowed));
        let names = |view: &View| view.definitions().map(|e| e.def.name.to_string()).collect::<Vec<_>>();
        let (all_names, some_names) = (names(&all), names(&some));
        prop_assert!(some_names.iter().all(|name| all_names.contains(name)));
        for entry in some.catalog().tools() {
            let seen = some_names.iter().any(|name| name == entry.def.name.as_str());
            prop_assert_eq!(some.find(entry.def.name.as_str()).is_ok(), seen);
            prop_assert_eq!(some.denial_reason(entry).is_none(), seen);
        }
    }
}
