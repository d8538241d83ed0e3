//! `toolbay diff`: what a new version of a plugin means for who calls its tools and for who grants it something.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use serde::Serialize;
use toolbay_core::tool::ToolDef;
use toolbay_core::tool::diff::{Difference, Impact, compare};
use toolbay_policy::text::{one_line, visible};

use crate::Verdict;
use crate::command::args::SetupArgs;
use crate::command::setup;
use crate::output::{self, DIM, GOOD, HEAD, NAME, WRONG};

/// Longest place or target that a line shows, in characters.
const MAX_SHOWN: usize = 120;

/// What is compared of one version.
struct Version {
    tools: BTreeMap<String, Arc<ToolDef>>,
    reducers: BTreeSet<String>,
    imports: BTreeSet<String>,
    /// Kind and target of what is asked for, with the tools that do.
    wishes: BTreeMap<(String, String), BTreeSet<String>>,
}

#[derive(Debug, Serialize)]
struct Report {
    impact: Impact,
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<Changed>,
    reducers_added: Vec<String>,
    reducers_removed: Vec<String>,
    capabilities_added: Vec<Wish>,
    capabilities_removed: Vec<Wish>,
    imports_added: Vec<String>,
    imports_removed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Changed {
    tool: String,
    impact: Impact,
    differences: Vec<Difference>,
}

#[derive(Debug, Serialize)]
struct Wish {
    kind: String,
    target: String,
    tools: Vec<String>,
}

pub(crate) async fn run(args: &SetupArgs, old: &str, new: &str, json: bool) -> Result<Verdict> {
    let report = Report::of(&read(args, old).await?, &read(args, new).await?);
    if json {
        output::print_json(&report)?;
    } else {
        report.show()?;
    }
    Ok(report.verdict())
}

async fn read(args: &SetupArgs, plugin: &str) -> Result<Version> {
    let named = setup::named(args, setup::policy(args)?, plugin).await?;
    let (host, info) = named.map_err(|problem| anyhow!("`{plugin}`: {problem}"))?;
    let mut wishes: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut tools = BTreeMap::new();
    for entry in super::tools(&host, &info.id) {
        // Without the plugin's id, which is the file's name and may be another one.
        let name = entry.def.bare().to_owned();
        for wish in &entry.def.capabilities {
            let key = (wish.kind.as_str().to_owned(), wish.target.clone());
            wishes.entry(key).or_default().insert(name.clone());
        }
        tools.insert(name, Arc::clone(&entry.def));
    }
    let (reducers, imports) = (info.reducers.into_iter().collect(), info.imports.into_iter().collect());
    Ok(Version { tools, reducers, imports, wishes })
}

impl Report {
    fn of(old: &Version, new: &Version) -> Self {
        let tools = |version: &Version| version.tools.keys().cloned().collect::<BTreeSet<String>>();
        let (before, after) = (tools(old), tools(new));
        let change = |name: &String| {
            let diff = compare(old.tools.get(name)?, new.tools.get(name)?);
            let impact = diff.impact();
            (!diff.differences.is_empty()).then(|| Changed {
                tool: name.clone(),
                impact,
                differences: diff.differences,
            })
        };
        let changed: Vec<Changed> = before.iter().filter_map(change).collect();
        let removed = minus(&before, &after);
        let gone = if removed.is_empty() { Impact::Compatible } else { Impact::Breaking };
        let impact = changed.iter().map(|one| one.impact).max().unwrap_or(gone).max(gone);
        Self {
            impact,
            added: minus(&after, &before),
            removed,
            changed,
            reducers_added: minus(&new.reducers, &old.reducers),
            reducers_removed: minus(&old.reducers, &new.reducers),
            capabilities_added: wishes(new, old),
            capabilities_removed: wishes(old, new),
            imports_added: minus(&new.imports, &old.imports),
            imports_removed: minus(&old.imports, &new.imports),
        }
    }

    /// Good: whoever called the old one can call the new one, and nobody has to grant more.
    fn verdict(&self) -> Verdict {
        let more = !self.capabilities_added.is_empty();
        if self.impact == Impact::Compatible && !more { Verdict::Good } else { Verdict::Bad }
    }

    fn show(&self) -> std::io::Result<()> {
        let mut out = output::out();
        let mut list = |what: &str, names: &[String]| {
            names.iter().try_for_each(|name| {
                writeln!(out, "{DIM}{what:18}{DIM:#} {NAME}{}{NAME:#}", one_line(name, MAX_SHOWN))
            })
        };
        list("tool added", &self.added)?;
        list("tool removed", &self.removed)?;
        list("reducer added", &self.reducers_added)?;
        list("reducer removed", &self.reducers_removed)?;
        list("import added", &self.imports_added)?;
        list("import removed", &self.imports_removed)?;
        for (what, wishes) in
            [("asks newly for", &self.capabilities_added), ("asks no more for", &self.capabilities_removed)]
        {
            for Wish { kind, target, tools } in wishes {
                let (target, tools) = (one_line(target, MAX_SHOWN), tools.join(", "));
                writeln!(out, "{DIM}{what:18}{DIM:#} {kind} of {target} {DIM}({tools}){DIM:#}")?;
            }
        }
        for Changed { tool, impact, differences } in &self.changed {
            writeln!(out, "{DIM}{:18}{DIM:#} {NAME}{tool}{NAME:#}: {impact}", "tool changed")?;
            for one in differences {
                let at = if one.at.is_empty() { "arguments" } else { &one.at };
                let change = serde_json::to_value(one.change).unwrap_or_default();
                let change = change.as_str().unwrap_or_default().replace('_', " ");
                writeln!(out, "  {} {DIM}{change}, {}{DIM:#}", one_line(at, MAX_SHOWN), one.impact)?;
            }
        }
        let (style, more) = match (self.verdict(), self.capabilities_added.is_empty()) {
            (Verdict::Good, _) => (GOOD, ""),
            (Verdict::Bad | Verdict::Wrong, true) => (WRONG, ""),
            (Verdict::Bad | Verdict::Wrong, false) => (WRONG, ", and it asks for more"),
        };
        writeln!(out, "{HEAD}impact{HEAD:#} {style}{}{style:#}{}", self.impact, visible(more))?;
        out.flush()
    }
}

fn minus(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Vec<String> {
    one.difference(other).cloned().collect()
}

/// What one version asks for and the other does not, and which tools do.
fn wishes(one: &Version, other: &Version) -> Vec<Wish> {
    let new = one.wishes.iter().filter(|(wish, _)| !other.wishes.contains_key(*wish));
    new.map(|((kind, target), tools)| Wish {
        kind: kind.clone(),
        target: target.clone(),
        tools: tools.iter().cloned().collect(),
    })
    .collect()
}
