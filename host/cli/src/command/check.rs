//! `toolbay check`.

use std::io::Write;

use anyhow::Result;
use toolbay::PluginInfo;
use toolbay_policy::text::visible;

use crate::Verdict;
use crate::author::lint;
use crate::command::args::SetupArgs;
use crate::command::setup::{self, Purpose};
use crate::output::{self, GOOD, HEAD, WRONG};

pub(crate) async fn run(args: &SetupArgs, plugins: &[String]) -> Result<Verdict> {
    let mut verdict = Verdict::Good;
    for plugin in plugins {
        let shown = visible(plugin);
        let (host, info) = match setup::named(args, setup::policy(args)?, plugin).await? {
            Ok(found) => found,
            Err(problem) => {
                verdict = Verdict::Bad;
                writeln!(
                    output::out(),
                    "{HEAD}{shown}{HEAD:#}: {WRONG}refused{WRONG:#}: {}",
                    visible(&problem)
                )?;
                continue;
            }
        };
        let tools = super::tools(&host, &info.id);
        let parts = super::inspect::parts(&info);
        let mut findings = lint::plugin(&info, &parts);
        findings.extend(tools.iter().flat_map(|entry| lint::tool(&entry.def)));
        findings.extend(lint::file(&parts, info.bytes));
        if parts.contract().is_none() {
            findings.extend(lint::ungranted(&host, &tools));
        }
        let reducing = reducers(args, &info).await?;
        if !reducing.is_empty() || findings.iter().any(|finding| finding.starts_with(lint::ERROR)) {
            verdict = Verdict::Bad;
        }
        findings.extend(reducing);
        let (count, reducers) = (tools.len(), info.reducers.len());
        let mut out = output::out();
        writeln!(
            out,
            "{HEAD}{shown}{HEAD:#}: {GOOD}loads{GOOD:#}, {count} tools, {reducers} reducers, {} findings",
            findings.len()
        )?;
        for finding in findings {
            writeln!(out, "  {}", visible(&finding))?;
        }
    }
    Ok(verdict)
}

/// What is wrong with its reducers, which are run for it where they may: in a host of their own.
async fn reducers(args: &SetupArgs, info: &PluginInfo) -> Result<Vec<String>> {
    let Some(file) = info.file.as_ref().filter(|_| !info.reducers.is_empty()) else { return Ok(Vec::new()) };
    let policy = setup::PolicyFile::of_text(args, lint::reducers::policy(info))?.policy()?;
    let host = setup::host_for(args, policy, Purpose::Look)?;
    match host.load_file(info.id.clone(), file).await {
        Ok(_) => Ok(lint::reducers::findings(&host, &info.id).await),
        Err(error) => Ok(vec![format!("error: its reducers cannot be run: {error}")]),
    }
}
