//! `toolbay explain`.

use std::io::Write;

use anyhow::Result;
use toolbay::{Explanation, Setting, Wish};
use toolbay_policy::LimitRow;
use toolbay_policy::text::{one_line, visible};

use crate::Verdict;
use crate::command::args::SetupArgs;
use crate::command::setup::{self, Purpose, Tell};
use crate::output::{self, DIM, GOOD, HEAD, NAME, WRONG};

pub(crate) async fn run(args: &SetupArgs, tool: &str, json: bool) -> Result<Verdict> {
    let host = setup::loaded(args, Tell::Problems, Purpose::Look).await?;
    let profile = setup::profile(args, &host.policy())?;
    let Some(explanation) = host.explain(tool, profile.as_ref()) else {
        let view = super::view(args, &host)?;
        let said = match view.get(tool) {
            Some(_) => {
                show_refused(&super::log::hints_of(args, tool))?;
                format!("the tool `{tool}` is no plugin's: no grant bounds it; see `toolbay list --json`")
            }
            None => format!("{}; see them all with `toolbay list --all`", view.unknown(tool).message),
        };
        output::complain(&said);
        return Ok(Verdict::Bad);
    };
    if json {
        output::print_json(&explanation)?;
    } else {
        show(&explanation)?;
        show_refused(&super::log::hints_of(args, tool))?;
    }
    Ok(Verdict::Good)
}

fn show(explanation: &Explanation) -> std::io::Result<()> {
    let mut out = output::out();
    writeln!(out, "{NAME}{}{NAME:#}", explanation.tool)?;
    let version = explanation.version.as_deref().map_or_else(String::new, |v| format!(" {}", visible(v)));
    let kind = if explanation.plugin.contains(':') { "source " } else { "plugin " };
    writeln!(out, "  {DIM}{kind}{DIM:#} {}{version}", explanation.plugin)?;
    writeln!(out, "  {DIM}sha256 {DIM:#} {}", explanation.digest)?;
    writeln!(out, "  {DIM}profile{DIM:#} {}", explanation.profile.as_deref().unwrap_or("none"))?;
    match &explanation.unavailable {
        Some(reason) => {
            let reason = visible(reason).replace('\n', "\n    ");
            writeln!(out, "  {WRONG}not available{WRONG:#}: {reason}")?;
        }
        None => writeln!(out, "  {GOOD}can be called{GOOD:#}")?,
    }
    writeln!(out, "\n{HEAD}what becomes of a call{HEAD:#}")?;
    for line in &explanation.calls {
        writeln!(out, "  {}", visible(line))?;
    }
    writeln!(out, "\n{HEAD}what it declares{HEAD:#}")?;
    if explanation.wishes.is_empty() {
        writeln!(out, "  nothing: it only computes")?;
    }
    for wish in &explanation.wishes {
        show_wish(&mut out, wish)?;
    }
    if !explanation.settings.is_empty() {
        writeln!(out, "\n{HEAD}its settings{HEAD:#}")?;
    }
    for setting in &explanation.settings {
        show_setting(&mut out, setting)?;
    }
    if !explanation.undeclared.is_empty() {
        writeln!(out, "\n{HEAD}what its component imports and nothing declares{HEAD:#}")?;
        for import in &explanation.undeclared {
            writeln!(out, "  {} {DIM}finds nothing there{DIM:#}", visible(import))?;
        }
    }
    writeln!(out, "\n{HEAD}limits of a call{HEAD:#}")?;
    show_limits(&mut out, &explanation.limits)?;
    writeln!(out, "\n{HEAD}bounds of all calls together{HEAD:#}")?;
    show_limits(&mut out, &explanation.host)?;
    out.flush()
}

/// What calls of the tool were refused, from the audit: the lines for exactly those.
fn show_refused(hints: &[String]) -> std::io::Result<()> {
    let mut out = output::out();
    if !hints.is_empty() {
        writeln!(out, "\n{HEAD}what its calls were refused lately{HEAD:#}")?;
    }
    for hint in hints {
        writeln!(out, "  {}", visible(hint).replace('\n', "\n    "))?;
    }
    out.flush()
}

fn show_setting(out: &mut impl Write, setting: &Setting) -> std::io::Result<()> {
    let value = setting.value.as_ref().map_or_else(|| "not set".to_owned(), ToString::to_string);
    let line = setting.line.map(|line| format!(", line {line}")).unwrap_or_default();
    let about = setting.description.as_deref().map(|about| format!(": {}", one_line(about, 200)));
    let (key, about) = (visible(&setting.key), about.unwrap_or_default());
    writeln!(out, "  {NAME}{key}{NAME:#}{} {DIM}{}{line}{DIM:#}", visible(&about), one_line(&value, 200))
}

fn show_wish(out: &mut impl Write, wish: &Wish) -> std::io::Result<()> {
    let capability = &wish.capability;
    let need = if capability.optional { ", optional" } else { "" };
    let reason = capability.reason.as_deref().unwrap_or("no reason given");
    let (kind, target) = (capability.kind.as_str(), &capability.target);
    writeln!(out, "  {NAME}{}{NAME:#} of {}{need}: {}", visible(kind), visible(target), visible(reason))?;
    for line in &wish.granted {
        writeln!(out, "    {GOOD}granted{GOOD:#} {}", visible(line))?;
    }
    if let Some(refused) = &wish.refused {
        writeln!(out, "    {WRONG}refused{WRONG:#} {}", visible(refused).replace('\n', "\n      "))?;
    }
    for place in &wish.stands {
        writeln!(out, "    {DIM}written{DIM:#} {}", visible(place))?;
    }
    Ok(())
}

fn show_limits(out: &mut impl Write, rows: &[LimitRow]) -> std::io::Result<()> {
    let width =
        |text: fn(&LimitRow) -> &str| rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0);
    let (key, value, set) = (width(|row| row.key), width(|row| &row.value), width(|row| &row.set));
    for row in rows {
        writeln!(
            out,
            "  {:key$}  {:value$}  {:set$}  {DIM}to raise it:{DIM:#} {}",
            row.key, row.value, row.set, row.raise
        )?;
    }
    Ok(())
}
