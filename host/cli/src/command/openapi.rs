//! `toolbay openapi`: the services of the policy that OpenAPI documents describe.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use toml_edit::{Array, InlineTable, Item, Table, value};
use toolbay::{OpenApiInfo, Policy};
use toolbay_policy::text::escape_hidden;
use toolbay_policy::{DocumentLocation, OpenApiService};

use crate::command::args::{DecisionArgs, DocumentArgs, OpenApiCommand, SetupArgs};
use crate::command::policy_file;
use crate::command::setup::{self, HostPurpose, PolicyFile};
use crate::output::format::{self, count_noun};
use crate::output::table::{Cell, TextTable};
use crate::output::{self, FAILURE, HEADING, NAME, SUCCESS};
use crate::{CommandStatus, host_failure};

/// The name of a service that is only checked.
const CHECKED: &str = "check";
/// Most operations of one kind in the output.
const SHOWN: usize = 200;

pub(crate) async fn run(args: &SetupArgs, command: OpenApiCommand) -> Result<CommandStatus> {
    match command {
        OpenApiCommand::List { json, refresh } => list(args, json, refresh).await,
        OpenApiCommand::Check { document, json } => check(args, &document, json).await,
        OpenApiCommand::Add { name, document, pin, decision } => {
            add(args, &name, &document, pin, &decision).await
        }
        OpenApiCommand::Remove { name, decision } => remove(args, &name, &decision),
    }
}

async fn list(args: &SetupArgs, json: bool, refresh: bool) -> Result<CommandStatus> {
    let host = setup::host(args, HostPurpose::Inspect)?;
    let all = if refresh { host.refresh_openapi().await } else { host.load_openapi().await };
    if json {
        output::print_json(&all)?;
    } else {
        print_services(&all)?;
    }
    Ok(if all.iter().any(|info| info.error.is_some()) {
        CommandStatus::Failed
    } else {
        CommandStatus::Success
    })
}

fn print_services(all: &[OpenApiInfo]) -> std::io::Result<()> {
    if all.is_empty() {
        output::print_note("the policy has no service; add one with `toolbay openapi add NAME FILE`");
    }
    let mut table = TextTable::new(["SERVICE", "TOOLS", "SKIPPED", "DOCUMENT"]).with_numbers_in(&[1, 2]);
    for info in all {
        let (tools, problems) = (info.tools.len().to_string(), info.problems.len().to_string());
        let name = Cell::styled(NAME, &info.name);
        table.push([name, tools.into(), problems.into(), info.document.as_str().into()]);
    }
    table.print()?;
    all.iter().for_each(report_problems);
    if let Some(info) = all.iter().find(|info| !info.problems.is_empty()) {
        let document = escape_hidden(&info.document);
        output::print_footer(&format!("see the skipped operations with `toolbay openapi check {document}`"))?;
    }
    Ok(())
}

/// Prints what is wrong with a service on stderr.
fn report_problems(info: &OpenApiInfo) {
    if let Some(error) = &info.error {
        output::print_error(&format!("[openapi.{}]: {error}", info.name));
    }
    for warning in &info.warnings {
        output::print_warning(&format!("[openapi.{}]: {warning}", info.name));
    }
}

async fn check(args: &SetupArgs, document: &DocumentArgs, json: bool) -> Result<CommandStatus> {
    let file = PolicyFile::find(args)?;
    let base = file.text.clone().unwrap_or_else(|| "version = 1\n".to_owned());
    // The secrets of the policy must exist; other services are irrelevant.
    let mut policy: toml_edit::DocumentMut = base.parse().context("the policy is no TOML")?;
    policy.remove("openapi");
    let planned = plan(args, &file, &policy.to_string(), CHECKED, document, true).await?;
    let info = planned.info;
    if json {
        output::print_json(&info)?;
    } else {
        show(&info)?;
    }
    Ok(if info.error.is_some() || info.tools.is_empty() {
        CommandStatus::Failed
    } else {
        CommandStatus::Success
    })
}

async fn add(
    args: &SetupArgs,
    name: &str,
    document: &DocumentArgs,
    pin: bool,
    decision: &DecisionArgs,
) -> Result<CommandStatus> {
    super::check_decidable(decision)?;
    let file = PolicyFile::find_or_new(args, true)?;
    let text = file.text_or_new();
    if file.parse(&text)?.openapi_service(name).is_some() {
        let text = format!(
            "the policy already has [openapi.{name}]; remove it first with `toolbay openapi remove {name}`"
        );
        bail!(text);
    }
    let ServicePlan { info, section, text: with } = plan(args, &file, &text, name, document, pin).await?;
    show(&info)?;
    if info.error.is_some() || info.tools.is_empty() {
        output::print_error("nothing would become a tool; nothing was changed");
        return Ok(CommandStatus::Failed);
    }
    let mut out = output::stdout();
    let path = file.file.as_deref().map_or_else(|| "the policy".to_owned(), format::path);
    writeln!(out, "\nThese lines will be added to {path}:")?;
    for line in section.lines() {
        writeln!(out, "  {SUCCESS}{}{SUCCESS:#}", escape_hidden(line))?;
    }
    out.flush()?;
    drop(out);
    if let Some(verdict) = super::decline(decision, "Write this into the policy?")? {
        return Ok(verdict);
    }
    let place = file.file.as_deref().context("no policy: give one with --config FILE")?;
    policy_file::write(place, file.text.as_deref(), &with).map_err(host_failure)?;
    output::print_note(&format!("`{name}` is in the policy; see its tools with `toolbay list`"));
    Ok(CommandStatus::Success)
}

fn remove(args: &SetupArgs, name: &str, decision: &DecisionArgs) -> Result<CommandStatus> {
    super::check_decidable(decision)?;
    let file = PolicyFile::find(args)?;
    let text = file.text.clone().unwrap_or_default();
    let (without, taken) = policy_file::without_section(&text, "openapi", name)?;
    let Some(taken) = taken else {
        output::print_error(&format!("the policy has no [openapi.{name}]"));
        return Ok(CommandStatus::Failed);
    };
    file.parse(&without)?;
    let mut out = output::stdout();
    let path = file.file.as_deref().map_or_else(|| "the policy".to_owned(), format::path);
    writeln!(out, "These lines will be removed from {path}:")?;
    for line in taken.lines().filter(|line| !line.trim().is_empty()) {
        writeln!(out, "  {FAILURE}{}{FAILURE:#}", escape_hidden(line))?;
    }
    out.flush()?;
    drop(out);
    if let Some(verdict) = super::decline(decision, "Take this out of the policy?")? {
        return Ok(verdict);
    }
    if let Some(place) = &file.file {
        policy_file::write(place, file.text.as_deref(), &without).map_err(host_failure)?;
    }
    Ok(CommandStatus::Success)
}

/// A section and its effect.
struct ServicePlan {
    info: OpenApiInfo,
    /// The section as the policy would contain it.
    section: String,
    /// The whole policy with the section.
    text: String,
}

/// Reads a document, adds its section to a copy of the policy and loads the service.
async fn plan(
    args: &SetupArgs,
    file: &PolicyFile,
    text: &str,
    name: &str,
    document: &DocumentArgs,
    pin: bool,
) -> Result<ServicePlan> {
    let place = document_address(&document.document)?;
    // Reading the document needs a valid section, and the server is not known yet.
    let mut section = service_table(&place, document)?;
    section.entry("server").or_insert_with(|| value("https://example.invalid"));
    let first = with_section(text, name, section)?;
    let first = file.parse(&first)?;
    let about = find_service(&first, name)?;
    let host = setup::host_for(args, first, HostPurpose::Inspect)?;
    let read = host.read_openapi(&about).await;
    let (read, digest) = read.map_err(|why| anyhow!("`{place}`: {}{}", why, hint(&why, &about)))?;
    let mut section = service_table(&place, document)?;
    if pin {
        section.insert("sha256", value(&*digest));
    } else if let (DocumentLocation::Url(url), None) = (&about.document, &document.server) {
        let parsed = toolbay_openapi::OpenApiDocument::parse(&read);
        let server = parsed.map_err(|e| e.to_string()).and_then(|parsed| parsed.server(Some(url.as_str())));
        let server = server.map_err(|why| anyhow!("`{place}`: {why}"))?;
        section.insert("server", value(server));
    }
    let shown = {
        let mut alone = toml_edit::DocumentMut::new();
        let mut all = Table::new();
        all.set_implicit(true);
        all.insert(name, Item::Table(section.clone()));
        alone.insert("openapi", Item::Table(all));
        alone.to_string()
    };
    let text = with_section(text, name, section)?;
    let policy = file.parse(&text)?;
    let host = setup::host_for(args, policy, HostPurpose::Inspect)?;
    let info = host.load_openapi().await.into_iter().find(|info| info.name == name);
    let info = info.ok_or_else(|| host_failure(anyhow!("the section was not read")))?;
    Ok(ServicePlan { info, section: shown, text })
}

/// The flag of this command that allows a private address.
fn hint(why: &str, about: &OpenApiService) -> String {
    let network = why.split("net_private = [").nth(1).and_then(|rest| rest.split(']').next());
    match network {
        Some(network) if about.document.url().is_some() => {
            format!("\nhere: --net-private {}", network.split(", ").last().unwrap_or(network))
        }
        _ => String::new(),
    }
}

fn find_service(policy: &Policy, name: &str) -> Result<Arc<OpenApiService>> {
    let found = policy.openapi_service(name).cloned();
    found.ok_or_else(|| host_failure(anyhow!("the policy has lost [openapi.{name}]")))
}

/// An absolute path, or a URL as it is.
fn document_address(text: &str) -> anyhow::Result<String> {
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let path = Path::new(text).canonicalize().with_context(|| format!("`{text}`"))?;
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| anyhow!("`{text}`: a policy is UTF-8, and this path is not"))
}

fn service_table(place: &str, document: &DocumentArgs) -> Result<Table> {
    let mut table = Table::new();
    table.insert("document", value(place));
    if let Some(server) = &document.server {
        table.insert("server", value(server));
    }
    let lists = [
        ("include", &document.include),
        ("exclude", &document.exclude),
        ("net_private", &document.net_private),
    ];
    for (key, lines) in lists.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        table.insert(key, value(lines.iter().collect::<Array>()));
    }
    let mut secrets = InlineTable::new();
    for line in &document.secret {
        let Some((scheme, secret)) = line.split_once('=') else {
            bail!("--secret `{line}`: write SCHEME=SECRET");
        };
        secrets.insert(scheme, secret.into());
    }
    if !secrets.is_empty() {
        table.insert("secrets", value(secrets));
    }
    Ok(table)
}

fn with_section(text: &str, name: &str, section: Table) -> Result<String> {
    policy_file::with_section(text, "openapi", name, section)
}

fn show(info: &OpenApiInfo) -> std::io::Result<()> {
    let title = info.title.as_deref().unwrap_or("a service");
    let digest = info.digest.as_deref().map(format::short_digest);
    let digest = digest.map_or_else(String::new, |digest| format!(" (sha256 {digest})"));
    let (tools, problems) = (info.tools.len(), info.problems.len());
    let counts = [
        count_noun(tools, "tool", "tools"),
        format!("{} not available", info.unavailable.len()),
        format!("{problems} skipped"),
        format!("{} left out", info.left_out),
    ];
    let mut out = output::stdout();
    if output::stdout_is_terminal() {
        writeln!(out, "{HEADING}{}{HEADING:#}{digest}: {}", escape_hidden(title), counts.join(", "))?;
    } else {
        let title = escape_hidden(title).replace(['\n', '\t'], " ");
        writeln!(out, "service\t{title}\t{}\t{}", info.digest.as_deref().unwrap_or("-"), counts.join(", "))?;
    }
    report_problems(info);
    let mut table = TextTable::new(["TOOL", "OPERATION", "STATUS"]).with_tag("tool");
    for (name, operation) in info.tools.iter().take(SHOWN) {
        let status = match info.unavailable.get(name) {
            Some(reason) => Cell::styled(FAILURE, format!("not available: {reason}")),
            None => Cell::styled(SUCCESS, "ready"),
        };
        table.push([Cell::styled(NAME, name), operation.as_str().into(), status]);
    }
    table.print_section()?;
    let mut table = TextTable::new(["SKIPPED", "REASON"]).with_tag("skipped");
    for (operation, reason) in info.problems.iter().take(SHOWN) {
        table.push([operation.as_str().into(), reason.as_str().into()]);
    }
    table.print_section()?;
    if tools.max(problems) > SHOWN {
        output::print_footer(&format!("the first {SHOWN} of each are shown; `--json` prints all"))?;
    }
    Ok(())
}
