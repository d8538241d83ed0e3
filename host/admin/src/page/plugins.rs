//! The plugins: what they are, what they ask for and what they have.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use toolbay::PluginInfo;
use toolbay_core::registry::Catalog;

use super::layout::{PageFrame, fact, facts, path_part, plain, size, table};
use crate::gate::AdminGate;
use crate::operator::Operator;

/// Most plugins, and most tools of one, on a page.
const MAX_LISTED: usize = 500;

pub(super) async fn list(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, "/plugins");
    let host = gate.control.host();
    let (plugins, problems) = (host.plugins(), host.problems());
    let body = html! {
        @if !problems.is_empty() {
            h2 { "Not loaded" }
            ul { @for problem in &problems { li.failed { (plain(&problem.to_string())) } } }
        }
        @if plugins.is_empty() { p { "No plugin is loaded." } } @else {
            (table("Plugins", &["Plugin", "Version", "State", "Signer", "Size", "Digest"], &html! {
                @for plugin in plugins.iter().take(MAX_LISTED) { (row(plugin)) }
            }))
        }
        @if plugins.len() > MAX_LISTED { p { (plugins.len() - MAX_LISTED) " more plugins are loaded." } }
    };
    frame.page("Plugins", &body)
}

fn row(plugin: &PluginInfo) -> Markup {
    html! { tr {
        th scope="row" { a href={ "/plugins/" (path_part(plugin.id.as_str())) } { (plugin.id) } }
        td { (plain(plugin.about.as_ref().map_or("–", |about| &about.version))) }
        td class=(if plugin.held.is_some() { "failed" } else { "ok" }) { @if plugin.held.is_some() { a href="/pending" { "held" } } @else { "loaded" } }
        td { (plain(plugin.origin.as_ref().map_or("–", |origin| &origin.signer))) }
        td.number { (size(plugin.bytes)) }
        td { code { (plugin.digest.get(..12).unwrap_or_default()) } }
    } }
}

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, "/plugins");
    let host = gate.control.host();
    let Some(plugin) = host.plugin(&id) else {
        let body = html! { p { "No plugin has this id. " a href="/plugins" { "All plugins" } } };
        return frame.page_with(StatusCode::NOT_FOUND, "Unknown plugin", &body);
    };
    let catalog = host.registry().snapshot();
    let body = html! {
        @if let Some(held) = &plugin.held { p.alarm { (plain(held)) " " a href="/pending" { "Decide" } } }
        (facts(&about(&plugin)))
        h2 { "Capabilities" }
        (capabilities(&gate, &catalog, &plugin))
        h2 { "Tools" }
        ul { @for name in tools(&catalog, &plugin).take(MAX_LISTED) { li { a href={ "/tools/" (path_part(&name)) } { (plain(&name)) } } } }
    };
    frame.page(plugin.id.as_str(), &body)
}

fn about(plugin: &PluginInfo) -> Vec<(&'static str, Markup)> {
    let about = plugin.about.as_ref();
    let text = |value: Option<&String>| value.map(fact);
    let rows = [
        ("Description", text(about.and_then(|about| about.description.as_ref()))),
        ("Version", text(about.map(|about| &about.version))),
        ("Authors", text(about.and_then(|about| about.authors.as_ref()))),
        ("License", text(about.and_then(|about| about.license.as_ref()))),
        ("Digest", Some(html! { code { "sha256:" (plugin.digest) } })),
        ("Size", Some(fact(size(plugin.bytes)))),
        ("File", plugin.file.as_ref().map(|file| fact(file.display().to_string()))),
        ("Origin", plugin.origin.as_ref().map(|origin| fact(&origin.reference))),
        ("Signer", plugin.origin.as_ref().map(|origin| fact(&origin.signer))),
    ];
    rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn tools<'a>(catalog: &'a Catalog, plugin: &'a PluginInfo) -> impl Iterator<Item = String> + 'a {
    let own = catalog.tools().filter(|entry| entry.def.source.plugin() == Some(&plugin.id));
    own.map(|entry| entry.def.name.as_str().to_owned())
}

/// What the plugin declares, and what each tool has of it.
fn capabilities(gate: &AdminGate, catalog: &Catalog, plugin: &PluginInfo) -> Markup {
    let explained: Vec<_> = tools(catalog, plugin)
        .take(MAX_LISTED)
        .filter_map(|name| gate.control.host().explain(&name, None))
        .filter(|explained| !explained.capabilities.is_empty())
        .collect();
    html! {
        @if explained.is_empty() { p { "It asks for nothing." } } @else {
            (table("Capabilities", &["Tool", "Asks for", "Has", "Refused"], &html! {
                @for tool in &explained { @for one in &tool.capabilities { tr {
                    th scope="row" { (plain(&tool.tool)) }
                    td { code { (one.capability.kind.as_str()) } " of " code { (plain(&one.capability.target)) } @if one.capability.optional { " (optional)" } }
                    td { @for granted in &one.granted { code { (plain(granted)) } " " } }
                    td { @if let Some(refused) = &one.refused { (plain(&refused.to_string())) } @else { "–" } }
                } } }
            }))
        }
    }
}
