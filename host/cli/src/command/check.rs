//! `toolbay check`.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use toolbay::PluginInfo;
use toolbay_policy::hidden_chars::escape_hidden;

use crate::author::lint::{self, LintFinding, LintLevel};
use crate::output::{self, CommandStatus, FAILURE, HEADING, SUCCESS, WARNING, count_noun};
use crate::setup::{self, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, plugins: &[String], strict: bool) -> Result<CommandStatus> {
    let mut results = Vec::new();
    for plugin in plugins {
        let result = check(args, plugin).await?;
        if !args.printer.is_json() {
            result.print()?;
        }
        results.push(result);
    }
    if args.printer.is_json() {
        output::print_json(&results)?;
    }
    Ok(CommandStatus::from_success(results.iter().all(|result| result.is_sound(strict))))
}

/// What the checks of one plugin found.
#[derive(Debug, Serialize)]
struct CheckResult {
    /// The plugin as the command line names it.
    plugin: String,
    /// Whether it loads.
    loads: bool,
    tools: usize,
    reducers: usize,
    findings: Vec<LintFinding>,
}

impl CheckResult {
    fn refused(plugin: &str, message: String) -> Self {
        let findings = vec![LintFinding::error(message)];
        Self { plugin: plugin.to_owned(), loads: false, tools: 0, reducers: 0, findings }
    }

    /// Whether it has no errors; with `strict`, no warnings either.
    fn is_sound(&self, strict: bool) -> bool {
        self.findings.iter().all(|finding| !strict && finding.level != LintLevel::Error)
    }

    /// Prints a line for the plugin, and one for each finding.
    fn print(&self) -> std::io::Result<()> {
        let shown = escape_hidden(&self.plugin);
        let terminal = output::stdout_is_terminal();
        let mut out = output::stdout();
        let tools = count_noun(self.tools, "tool", "tools");
        let reducers = count_noun(self.reducers, "reducer", "reducers");
        let findings = count_noun(self.findings.len(), "finding", "findings");
        let (style, state) = match self.loads {
            true => (SUCCESS, format!("loads, {tools}, {reducers}, {findings}")),
            false => (FAILURE, "refused".to_owned()),
        };
        if terminal {
            writeln!(out, "{HEADING}{shown}{HEADING:#}: {style}{state}{style:#}")?;
        } else {
            writeln!(out, "{shown}\t{state}")?;
        }
        for LintFinding { level, message } in &self.findings {
            let (style, level) = match level {
                LintLevel::Warning => (WARNING, "warning"),
                LintLevel::Error => (FAILURE, "error"),
            };
            let message = escape_hidden(message);
            if terminal {
                writeln!(out, "  {style}{level}:{style:#} {}", message.replace('\n', "\n    "))?;
            } else {
                writeln!(out, "{shown}\t{level}\t{}", message.replace(['\n', '\t'], " "))?;
            }
        }
        Ok(())
    }
}

async fn check(args: &SetupArgs, plugin: &str) -> Result<CheckResult> {
    let (host, info) = match setup::load_plugin(args, setup::policy(args)?, plugin).await? {
        Ok(found) => found,
        Err(problem) => return Ok(CheckResult::refused(plugin, problem)),
    };
    let tools = setup::tools(&host, &info.id);
    let parts = super::inspect::parts(&info);
    let mut findings = lint::plugin(&info, &parts);
    findings.extend(info.dropped_functions.iter().cloned().map(LintFinding::from));
    findings.extend(tools.iter().flat_map(|entry| lint::tool(&entry.def)));
    findings.extend(lint::file(&parts, info.bytes));
    if parts.contract().is_none() {
        findings.extend(lint::ungranted_imports(&host, &tools).map(LintFinding::from));
    }
    findings.extend(reducers(args, &info).await?);
    Ok(CheckResult {
        plugin: plugin.to_owned(),
        loads: true,
        tools: tools.len(),
        reducers: info.reducers.len(),
        findings,
    })
}

/// Findings about the reducers of a plugin. They run in a separate host whose policy lets them.
async fn reducers(args: &SetupArgs, info: &PluginInfo) -> Result<Vec<LintFinding>> {
    let Some(file) = info.file.as_ref().filter(|_| !info.reducers.is_empty()) else { return Ok(Vec::new()) };
    let policy = setup::PolicyFile::from_text(args, lint::reducers::policy(info))?.policy()?;
    match setup::load_file(args, policy, &info.id, file).await? {
        Ok((host, _)) => Ok(lint::reducers::findings(&host, &info.id).await),
        Err(error) => Ok(vec![LintFinding::error(format!("its reducers cannot be run: {error}"))]),
    }
}
