//! Definitions and callable tools never disagree, for all filters, flags, local tools and merges.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use toolbay_policy::Policy;

use super::*;
use crate::registry::fixture::{mcp_tool, native_tool, plugin_tool, reducer};
use crate::registry::{Registry, ToolFlags};

const NAMES: [&str; 8] =
    ["n", "math__add", "p__a", "p__b", "q__a", "mcp__gh__a", "mcp__gh__b", "mcp__web__a"];

/// Tags that the host derives for these tools.
const TAGS: [&str; 3] = ["destructive", "network", "read_only"];

fn tool(name: &str) -> ToolEntry {
    match name.split_once("__") {
        Some(("mcp", rest)) => rest.split_once("__").map(|(server, tool)| mcp_tool(server, tool)).unwrap(),
        Some((plugin @ ("p" | "q"), tool)) => plugin_tool(plugin, tool),
        _ => native_tool(name),
    }
}

/// A tool with all properties that affect its visibility.
#[derive(Debug, Clone)]
struct ToolVariant {
    name: &'static str,
    flags: ToolFlags,
    toolset: bool,
    unavailable: bool,
    disabled: bool,
    on_collision: Option<OnCollision>,
}

impl ToolVariant {
    fn entry(&self) -> ToolEntry {
        let mut entry = tool(self.name);
        Arc::get_mut(&mut entry.def).unwrap().keywords.toolset = self.toolset.then(|| "web".to_owned());
        entry.flags = self.flags;
        entry.availability.unavailable = self.unavailable.then(|| "no grant".into());
        entry.on_collision = self.on_collision;
        entry
    }
}

fn collision() -> impl Strategy<Value = OnCollision> {
    prop_oneof![Just(OnCollision::Fail), Just(OnCollision::Replace), Just(OnCollision::Keep)]
}

fn kind(name: &'static str) -> impl Strategy<Value = ToolVariant> {
    let seldom = || prop::bool::weighted(0.2);
    let flags = (seldom(), seldom(), any::<bool>())
        .prop_map(|(hidden, deferred, always_include)| ToolFlags { hidden, deferred, always_include });
    (flags, any::<bool>(), seldom(), seldom(), prop::option::of(collision())).prop_map(
        move |(flags, toolset, unavailable, disabled, on_collision)| ToolVariant {
            name,
            flags,
            toolset,
            unavailable,
            disabled,
            on_collision,
        },
    )
}

/// Some of the tools, each at most once.
fn kinds() -> impl Strategy<Value = Vec<ToolVariant>> {
    let all: Vec<_> = NAMES.iter().map(|name| prop::option::of(kind(name))).collect();
    all.prop_map(|kinds| kinds.into_iter().flatten().collect())
}

fn some(names: &'static [&'static str]) -> impl Strategy<Value = BTreeSet<String>> {
    prop::sample::subsequence(names, 0..=names.len())
        .prop_map(|names| names.into_iter().map(str::to_owned).collect())
}

fn list(names: &'static [&'static str]) -> impl Strategy<Value = Option<BTreeSet<String>>> {
    prop::option::weighted(0.3, some(names))
}

fn filter() -> impl Strategy<Value = Filter> {
    let mcp = prop::option::weighted(
        0.3,
        some(&["a", "b"]).prop_map(|tools| BTreeMap::from([("gh".to_owned(), tools)])),
    );
    let profile =
        prop::option::weighted(0.4, (list(&NAMES), list(&["p", "q"]), list(&["web"]), some(&NAMES[..2])));
    let lists =
        (list(&NAMES), list(&["p", "q"]), list(&["web"]), list(&["gh", "web"]), mcp, some(&NAMES[4..6]));
    let tags = (list(&TAGS), prop::option::weighted(0.2, some(&TAGS[..2])));
    (lists, tags, profile).prop_map(
        |((tools, plugins, toolsets, servers, mcp_tools, exclude), tags, profile)| Filter {
            allowed_tools: tools,
            allowed_plugins: plugins,
            allowed_toolsets: toolsets,
            allowed_tags: tags.0,
            exclude_tags: tags.1.unwrap_or_default(),
            allowed_mcp_servers: servers,
            allowed_mcp_tools: mcp_tools,
            exclude_tools: exclude,
            lazy: false,
            toolcall_reason: None,
            profile: profile.map(|(tools, plugins, toolsets, exclude)| {
                let policy = Policy::parse("version = 1\n[profile.x]", Path::new("/w"), None).unwrap();
                let mut profile = policy.profile("x").unwrap().as_ref().clone();
                (profile.tools, profile.plugins, profile.toolsets) = (tools, plugins, toolsets);
                profile.exclude_tools = exclude;
                Arc::new(profile)
            }),
        },
    )
}

fn view(kinds: &[ToolVariant], filter: Filter) -> View {
    let registry = Registry::default();
    let tools: Vec<_> = kinds.iter().map(ToolVariant::entry).collect();
    let reducers = kinds.iter().filter(|kind| kind.toolset).map(|kind| reducer(kind.name, None)).collect();
    registry.register(Bundle { tools, reducers }).unwrap();
    for kind in kinds.iter().filter(|kind| kind.disabled) {
        registry.disable(kind.name, "off").unwrap();
    }
    View::new(registry.snapshot(), filter)
}

fn names<'a>(entries: impl Iterator<Item = &'a Arc<ToolEntry>>) -> Vec<&'a str> {
    entries.map(|entry| entry.def.name.as_str()).collect()
}

/// Checks that the lists and the lookups of a view agree.
fn agrees(view: &View) -> Result<(), TestCaseError> {
    let (listed, found, callable) =
        (names(view.definitions()), names(view.discoverable()), names(view.callable()));
    prop_assert!(callable.is_sorted(), "the tools are sorted by name");
    for name in NAMES.into_iter().chain(["nobody__has"]) {
        let callable_entry = view.find(name);
        prop_assert_eq!(callable_entry.is_ok(), callable.contains(&name), "{}: {:?}", name, callable_entry);
        let flags = callable_entry.as_ref().map(|entry| entry.flags).unwrap_or_default();
        prop_assert_eq!(found.contains(&name), callable_entry.is_ok() && !flags.hidden);
        prop_assert_eq!(listed.contains(&name), callable_entry.is_ok() && !flags.hidden && !flags.deferred);
        prop_assert_eq!(view.get(name).is_some(), names(view.tools()).contains(&name));
        if let Some(entry) = view.get(name) {
            prop_assert_eq!(view.denial_reason(entry).is_none(), callable_entry.is_ok());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn definitions_and_admission_never_disagree(
        kinds in kinds(),
        filter in filter(),
        own in kinds(),
        on_collision in collision(),
    ) {
        let base = view(&kinds, filter);
        agrees(&base)?;
        let before = names(base.definitions()).join(" ");
        let tools: Vec<_> = own.iter().map(ToolVariant::entry).collect();
        match base.with_bundle(tools, on_collision) {
            Ok(with) => {
                agrees(&with)?;
                for kind in &own {
                    let here = with.get(kind.name).unwrap();
                    let was = base.get(kind.name);
                    let policy = kind.on_collision.unwrap_or(on_collision);
                    let kept = was.is_some_and(|was| Arc::ptr_eq(was, here));
                    prop_assert_eq!(kept, was.is_some() && policy == OnCollision::Keep);
                }
            }
            Err(_) => {
                let fails = |kind: &ToolVariant| kind.on_collision.unwrap_or(on_collision) == OnCollision::Fail;
                prop_assert!(own.iter().any(|kind| fails(kind) && base.get(kind.name).is_some()));
            }
        }
        prop_assert_eq!(names(base.definitions()).join(" "), before, "the view itself does not change");
    }

    #[test]
    fn a_merged_view_has_the_callable_tools_of_all_views(
        parts in prop::collection::vec((kinds(), filter(), kinds()), 0..4),
        on_collision in collision(),
    ) {
        let views: Vec<View> = parts.into_iter().map(|(kinds, filter, own)| {
            let base = view(&kinds, filter);
            base.with_bundle(own.iter().map(ToolVariant::entry).collect::<Vec<_>>(), OnCollision::Replace).unwrap_or(base)
        }).collect();
        let before: Vec<_> = views.iter().map(|view| names(view.callable()).join(" ")).collect();
        let who = |name: &str| views.iter().filter(|view| view.find(name).is_ok()).collect::<Vec<_>>();
        let policy = |view: &View, name: &str| view.get(name).unwrap().on_collision.unwrap_or(on_collision);
        match View::merge(&views, on_collision) {
            Ok(merged) => {
                agrees(&merged)?;
                for name in NAMES {
                    let having = who(name);
                    prop_assert_eq!(merged.find(name).is_ok(), !having.is_empty(), "{}", name);
                    let Some((first, later)) = having.split_first() else { continue };
                    // No collision was an error: each later tool replaced the earlier one or was skipped.
                    prop_assert!(later.iter().all(|view| policy(view, name) != OnCollision::Fail));
                    let replacing = later.iter().rfind(|view| policy(view, name) == OnCollision::Replace);
                    let from = replacing.unwrap_or(first);
                    prop_assert!(Arc::ptr_eq(merged.get(name).unwrap(), from.get(name).unwrap()));
                    let profile = |view: &View| view.find_tool(name).unwrap().profile_name().cloned();
                    prop_assert_eq!(profile(&merged), profile(from));
                    let reducers = [&merged, from].map(|view| view.reducer(name).map(Arc::as_ptr));
                    prop_assert_eq!(reducers[0], reducers[1], "the reducer comes with the tool");
                    prop_assert_eq!(merged.get(name).unwrap().flags, from.get(name).unwrap().flags);
                }
            }
            Err(Collision::Tool { name, .. }) => {
                let having = who(&name);
                prop_assert!(having.len() > 1);
                prop_assert!(having.iter().skip(1).any(|view| policy(view, &name) == OnCollision::Fail));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
        let after: Vec<_> = views.iter().map(|view| names(view.callable()).join(" ")).collect();
        prop_assert_eq!(before, after, "the views themselves do not change");
    }
}
