//! What was refused, by plugin and capability, with the lines that would allow it and what else they would allow.

use std::collections::{BTreeMap, BTreeSet};

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use toolbay_core::registry::Catalog;
use toolbay_policy::GrantKey;
use toolbay_policy::hint::Hint;

use super::layout::{PageFrame, plain};
use crate::gate::AdminGate;
use crate::history::{CallFilter, FinishedCall, MAX_CALLS};
use crate::operator::Operator;

/// Most groups on the page.
const MAX_GROUPS: usize = 100;
/// Most examples and lines of a group.
const MAX_EXAMPLES: usize = 5;
/// Most other tools that are named.
const MAX_OTHERS: usize = 20;
/// The capability of calls that a gate refused before their tool was started: a rule, a switch, a profile, a budget.
const CALL: &str = "the call itself";

/// Refusals of one capability of one plugin.
#[derive(Debug, Default)]
struct RefusalGroup {
    count: usize,
    /// The newest call.
    newest: u64,
    tools: BTreeSet<String>,
    targets: BTreeSet<String>,
    lines: BTreeSet<String>,
}

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, "/refused");
    let calls = gate
        .control
        .admin()
        .map(|admin| admin.history.find(&CallFilter::default(), None, MAX_CALLS))
        .unwrap_or_default();
    let groups = group(&calls);
    let catalog = gate.control.host().registry().snapshot();
    let body = html! {
        p.quiet { "From the newest " (MAX_CALLS) " calls. The lines are for the policy; " code { "toolbay grant" } " adds them." }
        @if groups.is_empty() { p { "Nothing was refused." } }
        @for ((plugin, capability), group) in groups.iter().take(MAX_GROUPS) { (show_group(&catalog, plugin, capability, group)) }
        @if groups.len() > MAX_GROUPS { p { (groups.len() - MAX_GROUPS) " more groups are not shown." } }
    };
    frame.page("Refused", &body)
}

/// The groups with the most refusals first.
fn group(calls: &[std::sync::Arc<FinishedCall>]) -> Vec<((String, &'static str), RefusalGroup)> {
    let mut groups: BTreeMap<(String, &'static str), RefusalGroup> = BTreeMap::new();
    for call in calls {
        let record = &call.record;
        let refused: Vec<_> = record.uses.iter().filter(|used| !used.allowed).collect();
        let plugin = call.plugin().unwrap_or("–").to_owned();
        for one in &refused {
            let group = groups.entry((plugin.clone(), one.key)).or_default();
            group.add(call, &one.what);
            let is_of_key = |hint: &&Hint| hint.lines().iter().any(|line| line.key == one.key);
            let of_key = record.hints.iter().filter(is_of_key);
            of_key.for_each(|hint| insert(&mut group.lines, &hint.to_string()));
        }
        if let Some(reason) = record.refusal {
            let group = groups.entry((plugin, CALL)).or_default();
            group.add(call, reason.as_str());
            record.hints.iter().for_each(|hint| insert(&mut group.lines, &hint.to_string()));
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    groups
}

impl RefusalGroup {
    fn add(&mut self, call: &FinishedCall, target: &str) {
        self.count += 1;
        self.newest = self.newest.max(call.number);
        insert(&mut self.tools, &call.record.tool);
        insert(&mut self.targets, target);
    }
}

fn insert(into: &mut BTreeSet<String>, text: &str) {
    if into.len() < MAX_EXAMPLES {
        into.insert(text.to_owned());
    }
}

fn show_group(catalog: &Catalog, plugin: &str, capability: &'static str, group: &RefusalGroup) -> Markup {
    html! {
        section {
            h2 { (plain(plugin)) ": " (capability) }
            p { (group.count) " refusals, by " (list(&group.tools)) ". " a href={ "/calls/" (group.newest) } { "The newest call" } }
            p { "Targets: " (list(&group.targets)) }
            @for line in &group.lines { pre tabindex="0" { (plain(line)) } }
            @if let Some(others) = others(catalog, plugin, capability, group) { p { (others) } }
        }
    }
}

fn list(texts: &BTreeSet<String>) -> Markup {
    html! { @for (at, text) in texts.iter().enumerate() { @if at > 0 { ", " } code { (plain(text)) } } }
}

/// What a grant of the plugin would also allow.
fn others(catalog: &Catalog, plugin: &str, capability: &str, group: &RefusalGroup) -> Option<String> {
    if capability == CALL {
        return None;
    }
    let of_plugin =
        catalog.tools().filter(|entry| entry.def.source.plugin().is_some_and(|id| id.as_str() == plugin));
    let declares = of_plugin.filter(|entry| {
        let keys = entry.def.capabilities.iter().filter_map(|one| GrantKey::for_kind(&one.kind));
        keys.into_iter().any(|key| key.name() == capability)
    });
    let names: Vec<String> = declares.map(|entry| entry.def.name.as_str().to_owned()).collect();
    let mut more: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !group.tools.contains(*name)).collect();
    let count = more.len();
    more.truncate(MAX_OTHERS);
    let rest = if count > MAX_OTHERS { format!(" and {} more", count - MAX_OTHERS) } else { String::new() };
    let every = "Lines in [plugins.ID.grant] hold for every caller and for all arguments";
    Some(match more.is_empty() {
        true => format!("{every}; no other tool of the plugin declares `{capability}`."),
        false => {
            format!(
                "{every}, and also for these tools, which declare `{capability}`: {}{rest}.",
                more.join(", ")
            )
        }
    })
}
