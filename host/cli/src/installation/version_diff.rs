//! The differences between two versions of a plugin: for callers of its tools, and for the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use serde::Serialize;
use toolbay::{Host, PluginInfo};
use toolbay_admin::files::{ToolChanges, VersionChanges};
use toolbay_core::tool::ToolDef;
use toolbay_core::tool::diff::{Difference, Impact, compare};
use toolbay_policy::excerpt::one_line;

use crate::output::{self, Cell, CommandStatus, DIM, FAILURE, HEADING, NAME, SUCCESS, TextTable};
use crate::setup;

/// Most characters of a path or target in a row.
const MAX_SHOWN: usize = 120;

/// Most characters of a description in a row.
const MAX_DESCRIPTION: usize = 1000;

/// The compared parts of one version.
#[derive(Debug)]
pub(crate) struct PluginVersion {
    /// The version that it declares.
    pub(crate) version: Option<String>,
    tools: BTreeMap<String, Arc<ToolDef>>,
    reducers: BTreeSet<String>,
    imports: BTreeSet<String>,
    /// Kind and target of each declared capability, with the tools that declare it.
    capabilities: BTreeMap<(String, String), BTreeSet<String>>,
}

/// The differences between two versions.
#[derive(Debug, Serialize)]
pub(crate) struct DiffReport {
    impact: Impact,
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<ChangedTool>,
    reducers_added: Vec<String>,
    reducers_removed: Vec<String>,
    capabilities_added: Vec<DeclaredCapability>,
    capabilities_removed: Vec<DeclaredCapability>,
    imports_added: Vec<String>,
    imports_removed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ChangedTool {
    tool: String,
    impact: Impact,
    differences: Vec<Difference>,
    /// The description, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<ChangedText>,
}

#[derive(Debug, Serialize)]
struct ChangedText {
    before: String,
    after: String,
}

#[derive(Debug, Serialize)]
struct DeclaredCapability {
    kind: String,
    target: String,
    tools: Vec<String>,
}

impl PluginVersion {
    /// The version that a host has loaded.
    pub(crate) fn of(host: &Host, info: &PluginInfo) -> Self {
        let mut capabilities: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        let mut tools = BTreeMap::new();
        for entry in setup::tools(host, &info.id) {
            // Without the plugin's id, which comes from the file's name and may differ.
            let name = entry.def.bare().to_owned();
            for capability in &entry.def.capabilities {
                let key = (capability.kind.as_str().to_owned(), capability.target.clone());
                capabilities.entry(key).or_default().insert(name.clone());
            }
            tools.insert(name, Arc::clone(&entry.def));
        }
        let (reducers, imports) =
            (info.reducers.iter().cloned().collect(), info.imports.iter().cloned().collect());
        let version = info.about.as_ref().map(|about| about.version.clone());
        Self { version, tools, reducers, imports, capabilities }
    }
}

impl DiffReport {
    pub(crate) fn compare(old: &PluginVersion, new: &PluginVersion) -> Self {
        let tools = |version: &PluginVersion| version.tools.keys().cloned().collect::<BTreeSet<String>>();
        let (before, after) = (tools(old), tools(new));
        let change = |name: &String| {
            let (before, after) = (old.tools.get(name)?, new.tools.get(name)?);
            let diff = compare(before, after);
            let (impact, text) = (diff.impact(), |def: &ToolDef| def.description.to_string());
            let description = (before.description != after.description)
                .then(|| ChangedText { before: text(before), after: text(after) });
            (!diff.differences.is_empty()).then(|| ChangedTool {
                tool: name.clone(),
                impact,
                differences: diff.differences,
                description,
            })
        };
        let changed: Vec<ChangedTool> = before.iter().filter_map(change).collect();
        let removed = minus(&before, &after);
        let of_removed = if removed.is_empty() { Impact::Compatible } else { Impact::Breaking };
        let impact = changed.iter().map(|one| one.impact).max().unwrap_or(of_removed).max(of_removed);
        Self {
            impact,
            added: minus(&after, &before),
            removed,
            changed,
            reducers_added: minus(&new.reducers, &old.reducers),
            reducers_removed: minus(&old.reducers, &new.reducers),
            capabilities_added: capabilities_only_in(new, old),
            capabilities_removed: capabilities_only_in(old, new),
            imports_added: minus(&new.imports, &old.imports),
            imports_removed: minus(&old.imports, &new.imports),
        }
    }

    /// Success if every caller of the old version can call the new one and the operator has nothing more to grant.
    pub(crate) fn verdict(&self) -> CommandStatus {
        let asks_for_more = !self.capabilities_added.is_empty();
        CommandStatus::from_success(self.impact == Impact::Compatible && !asks_for_more)
    }

    /// Why the operator has to agree to the new version, a sentence each. Descriptions count, because a model reads them.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let reasons = [
            (self.capabilities_added.is_empty(), "it asks for more than the locked version"),
            (self.changed.is_empty(), "it describes its tools differently"),
            (self.added.is_empty(), "it has new tools"),
            (self.reducers_added.is_empty(), "it has new reducers"),
        ];
        reasons.into_iter().filter(|(absent, _)| !absent).map(|(_, why)| why.to_owned()).collect()
    }

    /// The names that were added and removed, by kind.
    fn lists(&self) -> [(&'static str, &Vec<String>); 6] {
        [
            ("tool added", &self.added),
            ("tool removed", &self.removed),
            ("reducer added", &self.reducers_added),
            ("reducer removed", &self.reducers_removed),
            ("import added", &self.imports_added),
            ("import removed", &self.imports_removed),
        ]
    }

    /// The differences for the page of operators.
    pub(crate) fn changes(&self) -> VersionChanges {
        let capabilities = |declared: &[DeclaredCapability]| {
            declared.iter().map(|one| format!("{} of {}", one.kind, one.target)).collect::<Vec<_>>()
        };
        let mut lists: Vec<(String, Vec<String>)> =
            self.lists().into_iter().map(|(what, names)| (what.to_owned(), names.clone())).collect();
        lists.push(("capability added".to_owned(), capabilities(&self.capabilities_added)));
        lists.push(("capability removed".to_owned(), capabilities(&self.capabilities_removed)));
        let tools = self.changed.iter().map(|tool| ToolChanges {
            tool: tool.tool.clone(),
            impact: tool.impact.to_string(),
            schema: tool.differences.iter().map(place_and_change).collect(),
            description: tool.description.as_ref().map(|text| (text.before.clone(), text.after.clone())),
        });
        VersionChanges { lists, tools: tools.collect() }
    }

    pub(crate) fn show(&self) -> std::io::Result<()> {
        let mut table = TextTable::new(["CHANGE", "WHAT", "DETAIL"]);
        let mut row = |change: &str, what: &str, detail: String| {
            table.push([
                Cell::styled(DIM, change),
                Cell::styled(NAME, one_line(what, MAX_SHOWN)),
                detail.into(),
            ]);
        };
        for (change, names) in self.lists() {
            names.iter().for_each(|name| row(change, name, String::new()));
        }
        let capabilities = [
            ("capability added", &self.capabilities_added),
            ("capability removed", &self.capabilities_removed),
        ];
        for (change, declared) in capabilities {
            for DeclaredCapability { kind, target, tools } in declared {
                row(change, &format!("{kind} of {target}"), tools.join(", "));
            }
        }
        for ChangedTool { tool, impact, differences, description } in &self.changed {
            row("tool changed", tool, impact.to_string());
            for one in differences {
                let (at, change) = place_and_change(one);
                row("", &format!("  {at}"), change);
            }
            if let Some(ChangedText { before, after }) = description {
                row("", "    before", one_line(before, MAX_DESCRIPTION));
                row("", "    after", one_line(after, MAX_DESCRIPTION));
            }
        }
        table.print()?;
        let style = if self.verdict() == CommandStatus::Success { SUCCESS } else { FAILURE };
        let more = if self.capabilities_added.is_empty() { "" } else { ", and it asks for more" };
        let mut out = output::stdout();
        if output::stdout_is_terminal() {
            return writeln!(out, "{HEADING}impact{HEADING:#} {style}{}{style:#}{more}", self.impact);
        }
        writeln!(out, "impact\t{}{more}", self.impact)
    }
}

/// Where a schema changed, and how.
fn place_and_change(difference: &Difference) -> (String, String) {
    let at = if difference.at.is_empty() { "arguments" } else { &difference.at };
    let change = serde_json::to_value(difference.change).unwrap_or_default();
    let change = change.as_str().unwrap_or_default().replace('_', " ");
    (at.to_owned(), format!("{change}, {}", difference.impact))
}

fn minus(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Vec<String> {
    one.difference(other).cloned().collect()
}

/// The capabilities that only `one` declares, with the tools that declare them.
fn capabilities_only_in(one: &PluginVersion, other: &PluginVersion) -> Vec<DeclaredCapability> {
    let new = one.capabilities.iter().filter(|(declared, _)| !other.capabilities.contains_key(*declared));
    new.map(|((kind, target), tools)| DeclaredCapability {
        kind: kind.clone(),
        target: target.clone(),
        tools: tools.iter().cloned().collect(),
    })
    .collect()
}
