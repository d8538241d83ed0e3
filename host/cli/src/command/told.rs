//! What an operator is told of a load: once for each change, and several things of a kind as one line.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use toolbay::{Host, LoadProblem, OpenApiInfo, PluginId};
use toolbay_policy::name;

use crate::command::args::SetupArgs;
use crate::command::setup::{self, PolicyFile};
use crate::output;
use crate::output::findings::{FileFindings, counted};

/// Most warnings of a policy that are told one by one.
const MAX_LINES: usize = 5;

/// The warnings of the policy that were told last.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<BTreeSet<String>>);

impl Told {
    /// Tells what the policy names and is not there, unless that was told of the policy before. Blocks on files.
    pub(crate) fn policy(&self, args: &SetupArgs, host: &Host) {
        let Ok(file) = PolicyFile::place(args) else { return };
        let policy = host.policy();
        let own = FileFindings { file: file.clone(), text: None, findings: host.policy_warnings() };
        let all: Vec<FileFindings> = std::iter::once(own).chain(setup::token_findings(&policy)).collect();
        // A line that moved is no change.
        let said = |one: &FileFindings| -> Vec<String> {
            one.findings.iter().map(|finding| format!("{} {}", finding.table, finding.message)).collect()
        };
        let now: BTreeSet<String> = all.iter().flat_map(said).collect();
        let mut before = self.0.lock();
        let lines: Vec<String> = (all.iter())
            .flat_map(|one| said(one).into_iter().zip(one.lines()))
            .filter(|(said, _)| !before.contains(said))
            .map(|(_, line)| line)
            .collect();
        *before = now;
        drop(before);
        lines.iter().take(MAX_LINES).for_each(|line| output::warn(line));
        if let Some(more) = lines.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
            let more = counted(more, "more warning", "more warnings");
            output::warn(&format!("{more}: `toolbay policy check {}`", file.display()));
        }
    }
}

/// Tells of services whose documents could not be read.
pub(crate) fn services(services: &[OpenApiInfo]) {
    for OpenApiInfo { name, error, .. } in services {
        error.iter().for_each(|error| output::warn(&format!("[openapi.{name}]: {error}")));
    }
}

/// Tells why the plugin of a tool is not there, or, if that cannot be said, that some are not.
pub(crate) fn missing_tool(host: &Host, tool: &str) {
    services(&host.openapi());
    let all = host.problems();
    let id = name::split(tool).map(|(id, _)| id);
    let is_its_own = |problem: &&LoadProblem| {
        let stem = problem.file.file_stem().and_then(|stem| stem.to_str());
        id.is_some() && (problem.plugin.as_ref().map(PluginId::as_str) == id || stem == id)
    };
    match all.iter().find(is_its_own) {
        Some(problem) => output::warn(&problem.to_string()),
        None => problems(&all),
    }
}

/// Tells of files that are not loaded: one with its reason, several as one line.
pub(crate) fn problems(problems: &[LoadProblem]) {
    match problems {
        [] => {}
        [one] => output::warn(&one.to_string()),
        all => {
            let plugins = counted(all.len(), "plugin", "plugins");
            output::warn(&format!("{plugins} failed to load; see `toolbay status`"));
        }
    }
}

/// Tells the same line of several plugins once, with their names.
pub(crate) fn warnings<'a>(warnings: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for (plugin, message) in warnings {
        match told.iter_mut().find(|(said, _)| *said == message) {
            Some((_, plugins)) => plugins.push(plugin),
            None => told.push((message, vec![plugin])),
        }
    }
    for (message, plugins) in told {
        match plugins.as_slice() {
            [one] => output::warn(&format!("plugin `{one}`: {message}")),
            all => output::warn(&format!("plugins `{}`: {message}", all.join("`, `"))),
        }
    }
}
