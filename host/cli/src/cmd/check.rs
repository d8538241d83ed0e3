//! `toolbay check`.

use std::io::Write;

use toolbay_core::text::visible;

use crate::args::SetupArgs;
use crate::output::{self, GOOD, HEAD, WRONG};
use crate::setup;
use crate::{Stop, Verdict, lint};

pub(crate) async fn run(args: &SetupArgs, plugins: &[String]) -> Result<Verdict, Stop> {
    let mut verdict = Verdict::Good;
    for plugin in plugins {
        let shown = visible(plugin);
        let (host, id) = match setup::named(args, setup::policy(args)?, plugin).await? {
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
        let Some(info) = host.plugin(id.as_str()) else { continue };
        let catalog = host.registry().snapshot();
        let tools: Vec<_> = catalog.tools().filter(|e| e.def.source.plugin() == Some(&id)).collect();
        let mut findings = lint::plugin(&info);
        if lint::hides_something(&info) {
            verdict = Verdict::Bad;
        }
        findings.extend(tools.iter().flat_map(|entry| lint::tool(&entry.def)));
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
