//! Warnings about a load: once for each change, and several of a kind as one line.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use toolbay::{DocumentState, Host, LoadProblem, OpenApiInfo, PluginId};
use toolbay_policy::name;

use super::args::SetupArgs;
use super::policy_file::{PolicyFile, credential_findings};
use crate::output::findings::FileFindings;
use crate::output::{Printer, count_noun};

/// Most warnings of one kind with a line each.
const MAX_LINES: usize = 5;

/// How much of a load is reported on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportLevel {
    /// Nothing: the command reports it in its own output.
    Quiet,
    /// Files that are not loaded.
    Problems,
    /// Files that are not loaded, and warnings.
    Warnings,
}

/// The policy warnings of the last report.
#[derive(Debug, Default)]
pub(crate) struct ReportedWarnings(Mutex<BTreeSet<String>>);

impl ReportedWarnings {
    /// Reports the warnings of the policy that are new since the last report. Blocks on files.
    pub(crate) fn report_policy(&self, args: &SetupArgs, host: &Host) {
        let Ok(file) = PolicyFile::locate(args) else { return };
        let policy = host.policy();
        let own = FileFindings { file: file.clone(), text: None, findings: host.policy_warnings() };
        let all: Vec<FileFindings> = std::iter::once(own).chain(credential_findings(&policy)).collect();
        // A warning whose line moved is not new.
        let messages = |one: &FileFindings| -> Vec<String> {
            one.findings.iter().map(|finding| format!("{} {}", finding.table, finding.message)).collect()
        };
        let now: BTreeSet<String> = all.iter().flat_map(messages).collect();
        let mut before = self.0.lock();
        let lines: Vec<String> = (all.iter())
            .flat_map(|one| messages(one).into_iter().zip(one.lines()))
            .filter(|(message, _)| !before.contains(message))
            .map(|(_, line)| line)
            .collect();
        *before = now;
        drop(before);
        args.printer.warnings(&lines, MAX_LINES, |more| {
            let more = count_noun(more, "more warning", "more warnings");
            format!("{more}: `toolbay policy check {}`", file.display())
        });
    }
}

/// Reports services whose documents cannot be read or have not come yet.
pub(crate) fn report_services(printer: Printer, services: &[OpenApiInfo]) {
    for OpenApiInfo { name, error, .. } in services {
        error.iter().for_each(|error| printer.warning(&format!("[openapi.{name}]: {error}")));
    }
    report_loading(printer, services);
}

/// Reports services whose documents have not come yet.
pub(crate) fn report_loading(printer: Printer, services: &[OpenApiInfo]) {
    for OpenApiInfo { name, .. } in services.iter().filter(|info| info.state == DocumentState::Loading) {
        printer.warning(&format!(
            "[openapi.{name}]: its document is still loading; `--source-wait` waits longer"
        ));
    }
}

/// Reports why the plugin of a tool is not loaded, or else which plugins are not.
pub(crate) fn report_missing_plugin(printer: Printer, host: &Host, tool: &str) {
    report_services(printer, &host.openapi());
    let all = host.problems();
    let id = name::split_qualified(tool).map(|(id, _)| id);
    let is_its_own = |problem: &&LoadProblem| {
        let stem = problem.file.file_stem().and_then(|stem| stem.to_str());
        id.is_some() && (problem.plugin.as_ref().map(PluginId::as_str) == id || stem == id)
    };
    match all.iter().find(is_its_own) {
        Some(problem) => printer.warning(&problem.to_string()),
        None => report_problems(printer, &all),
    }
}

/// Reports files that are not loaded: one with its reason, several as one line.
pub(crate) fn report_problems(printer: Printer, problems: &[LoadProblem]) {
    match problems {
        [] => {}
        [one] => printer.warning(&one.to_string()),
        all => {
            let plugins = count_noun(all.len(), "plugin", "plugins");
            printer.warning(&format!("{plugins} failed to load; see `toolbay status`"));
        }
    }
}

/// Reports equal warnings of several plugins once, with the plugins' names.
pub(crate) fn report_warnings<'a>(printer: Printer, warnings: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let mut reported: Vec<(&str, Vec<&str>)> = Vec::new();
    for (plugin, message) in warnings {
        match reported.iter_mut().find(|(text, _)| *text == message) {
            Some((_, plugins)) => plugins.push(plugin),
            None => reported.push((message, vec![plugin])),
        }
    }
    let line = |(message, plugins): (&str, Vec<&str>)| match plugins.as_slice() {
        [one] => format!("plugin `{one}`: {message}"),
        all => format!("plugins `{}`: {message}", all.join("`, `")),
    };
    let lines: Vec<String> = reported.into_iter().map(line).collect();
    printer.warnings(&lines, MAX_LINES, |more| {
        let more = count_noun(more, "more warning", "more warnings");
        format!("{more} about plugins; see `toolbay check PLUGIN`")
    });
}
