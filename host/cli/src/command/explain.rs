//! `toolbay explain`: what one tool may do, and why.

use std::io::Write;

use anyhow::Result;
use toolbay::{CapabilityExplanation, Explanation, Host, SettingExplanation};
use toolbay_policy::LimitRow;
use toolbay_policy::hidden_chars::escape_hidden;
use toolbay_policy::hint::Hint;

use crate::installation;
use crate::output::{
    self, Cell, CommandError, CommandStatus, DIM, FAILURE, NAME, SUCCESS, TextTable, format,
};
use crate::report::readiness::ToolReadiness;
use crate::report::{self, call_error};
use crate::setup::{self, HostPurpose, ReportLevel, SetupArgs, servers};

/// The limits that the short form shows, each with its unit behind the value.
const SHOWN_LIMITS: [(&str, &str); 3] = [("timeout", ""), ("memory", ""), ("fuel", " fuel")];

pub(crate) async fn run(args: &SetupArgs, tool: &str, limits: bool) -> Result<CommandStatus> {
    let host = setup::load_host(args, ReportLevel::Problems, HostPurpose::Inspect).await?;
    let profile = setup::profile(args, &host.policy())?;
    let view = servers::view(args, &host)?;
    let Some(explanation) = host.explain(tool, profile.as_ref()) else {
        return Err(match view.get(tool) {
            Some(_) => {
                print_help(&super::log::recent_hints(args, tool), tool, &host, args)?;
                CommandError::new(
                    "not_a_plugin_tool",
                    format!("`{tool}` does not come from a plugin, so no grant limits it"),
                )
                .with_help("`toolbay list --json` shows its definition")
            }
            None => report::unknown_tool(&view, tool),
        }
        .into());
    };
    if args.printer.is_json() {
        return Ok(output::print_json(&explanation)?);
    }
    if limits {
        print_limits(&explanation)?;
        return Ok(CommandStatus::Success);
    }
    let readiness = view.get(tool).map(|entry| ToolReadiness::check(&host, &view, entry));
    print_head(&explanation, readiness.as_ref())?;
    print_capabilities(&explanation)?;
    print_details(&explanation)?;
    print_settings(&explanation.settings)?;
    let refused = explanation.capabilities.iter().filter_map(|one| one.refused.clone());
    // The audit has what running calls were refused, with the lines that would allow exactly that.
    let hints: Vec<Hint> = refused.chain(super::log::recent_hints(args, tool)).collect();
    print_help(&hints, tool, &host, args)?;
    Ok(CommandStatus::Success)
}

fn print_head(explanation: &Explanation, readiness: Option<&ToolReadiness>) -> std::io::Result<()> {
    let tool = &explanation.tool;
    let mut out = output::stdout();
    let (style, status) = match readiness {
        None | Some(ToolReadiness::Ready) => (SUCCESS, "ready".to_owned()),
        Some(ToolReadiness::NeedsGrant(_)) => (FAILURE, "not available".to_owned()),
        Some(ToolReadiness::Unavailable(reason)) => {
            (FAILURE, format!("not available: {}", escape_hidden(reason)))
        }
    };
    if output::stdout_is_terminal() {
        writeln!(out, "{NAME}{tool}{NAME:#}: {style}{status}{style:#}")
    } else {
        writeln!(out, "tool\t{tool}\nstatus\t{status}")
    }
}

fn print_capabilities(explanation: &Explanation) -> std::io::Result<()> {
    let header = ["CAPABILITY", "DECLARED", "GRANTED", "FROM"];
    let mut table = TextTable::section("capability", header);
    explanation.capabilities.iter().for_each(|one| table.push(capability_row(one)));
    table.print_section()
}

fn capability_row(one: &CapabilityExplanation) -> [Cell; 4] {
    let from = match one.policy_keys.as_slice() {
        [] => "no line in the policy".to_owned(),
        keys => keys.join(", "),
    };
    [
        Cell::styled(NAME, format::capability_key(&one.capability.kind)),
        format::declared_target(&one.capability.target, one.capability.optional).into(),
        Cell::granted(&one.granted),
        Cell::styled(DIM, from),
    ]
}

fn print_details(explanation: &Explanation) -> std::io::Result<()> {
    let is_plugin = !explanation.plugin.contains(':');
    let version = explanation.version.as_deref().map_or_else(String::new, |version| format!(" {version}"));
    let digest = format::short_digest(&explanation.digest);
    let mut table = TextTable::facts();
    let mut detail = |name: &str, text: String| {
        let name = if output::stdout_is_terminal() { capitalized(name) } else { name.to_owned() };
        table.push_fact(&name, text);
    };
    detail(
        if is_plugin { "plugin" } else { "source" },
        format!("{}{version} (sha256 {digest})", explanation.plugin),
    );
    for (key, value) in explanation.origin.as_deref().into_iter().flat_map(installation::origin_facts) {
        detail(key, value);
    }
    if let Some(profile) = &explanation.profile {
        detail("profile", profile.clone());
    }
    for line in &explanation.calls {
        detail("call", line.clone());
    }
    for import in &explanation.undeclared {
        detail("undeclared", format!("{import}: no tool declares it, so the component finds nothing there"));
    }
    if explanation.capabilities.is_empty() {
        detail("declares", "nothing: it only computes".to_owned());
    }
    detail("limits", limit_summary(explanation));
    table.print_section()
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// `30s, 64MiB, 20,000,000,000 fuel (defaults)`.
fn limit_summary(explanation: &Explanation) -> String {
    let rows = &explanation.limits;
    let shown = SHOWN_LIMITS.iter().filter_map(|(key, unit)| {
        let value = &rows.iter().find(|row| row.key == *key)?.value;
        let value = value.parse().map_or_else(|_| value.clone(), format::grouped);
        Some(format!("{value}{unit}"))
    });
    let set = rows.iter().filter(|row| row.set != "default").count();
    let origin = match set {
        0 => "defaults".to_owned(),
        set => format!("{set} not the default"),
    };
    let shown: Vec<String> = shown.collect();
    format!("{} ({origin}; `toolbay explain {} --limits`)", shown.join(", "), explanation.tool)
}

fn print_settings(settings: &[SettingExplanation]) -> std::io::Result<()> {
    let header = ["SETTING", "VALUE", "FROM", "DESCRIPTION"];
    let mut table = TextTable::section("setting", header);
    for setting in settings {
        let value = setting.value.as_ref().map_or_else(|| "not set".to_owned(), ToString::to_string);
        let from = setting.line.map_or_else(String::new, |line| format!("line {line}"));
        table.push([
            Cell::styled(NAME, &setting.key),
            value.into(),
            Cell::styled(DIM, from),
            setting.description.as_deref().unwrap_or_default().into(),
        ]);
    }
    table.print_section()
}

fn print_limits(explanation: &Explanation) -> std::io::Result<()> {
    let mut table = TextTable::new(["LIMIT", "VALUE", "FROM", "RAISE IT WITH"]);
    let rows = |rows: &[LimitRow], table: &mut TextTable| {
        for row in rows {
            let key = Cell::styled(NAME, row.key);
            table.push([
                key,
                row.value.as_str().into(),
                row.set.as_str().into(),
                Cell::styled(DIM, &row.raise),
            ]);
        }
    };
    rows(&explanation.limits, &mut table);
    // The bounds of all calls together are the rows that begin with `[host]`.
    rows(&explanation.host, &mut table);
    table.print()
}

/// Ends the output with what would allow what the tool is refused.
fn print_help(hints: &[Hint], tool: &str, host: &Host, args: &SetupArgs) -> std::io::Result<()> {
    let texts = call_error::help_texts(hints, None, tool, host, args);
    if !texts.is_empty() && output::stdout_is_terminal() {
        writeln!(output::stdout())?;
    }
    let mut out = output::stdout();
    texts.iter().try_for_each(|text| writeln!(out, "{SUCCESS}help:{SUCCESS:#} {}", escape_hidden(text)))
}
