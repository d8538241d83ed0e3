//! `toolbay openapi`: services that an OpenAPI document describes.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use toml_edit::{Array, InlineTable, Item, Table, value};
use toolbay::{OpenApiInfo, Policy};
use toolbay_policy::text::visible;
use toolbay_policy::{OpenApi, Place};

use crate::command::args::{DecisionArgs, DocumentArgs, OpenApiCommand, SetupArgs};
use crate::command::policy_file;
use crate::command::setup::{self, PolicyFile, Purpose};
use crate::output::{self, DIM, GOOD, HEAD, NAME, WRONG};
use crate::{Verdict, host_failed};

/// What a document is called while it is only looked at.
const CHECKED: &str = "check";
/// Most operations of one kind that a person is shown.
const SHOWN: usize = 200;

pub(crate) async fn run(args: &SetupArgs, command: OpenApiCommand) -> Result<Verdict> {
    match command {
        OpenApiCommand::List { json, refresh } => list(args, json, refresh).await,
        OpenApiCommand::Check { document, json } => check(args, &document, json).await,
        OpenApiCommand::Add { name, document, pin, decision } => {
            add(args, &name, &document, pin, &decision).await
        }
        OpenApiCommand::Remove { name, decision } => remove(args, &name, &decision),
    }
}

async fn list(args: &SetupArgs, json: bool, refresh: bool) -> Result<Verdict> {
    let host = setup::host(args, Purpose::Look)?;
    let all = if refresh { host.refresh_openapi().await } else { host.load_openapi().await };
    let mut out = output::out();
    if json {
        output::print_json(&all)?;
    } else if all.is_empty() {
        output::note("the policy has no service; add one with `toolbay openapi add NAME FILE`");
    }
    for info in all.iter().filter(|_| !json) {
        let (tools, problems) = (info.tools.len(), info.problems.len());
        writeln!(out, "{NAME}{}{NAME:#}\t{tools} tools\t{}", info.name, visible(&info.document))?;
        tell(&mut out, info)?;
        if problems > 0 {
            writeln!(out, "  {DIM}{problems} operations are no tools; see `toolbay openapi check`{DIM:#}")?;
        }
    }
    out.flush()?;
    Ok(if all.iter().any(|info| info.error.is_some()) { Verdict::Bad } else { Verdict::Good })
}

fn tell(out: &mut impl Write, info: &OpenApiInfo) -> std::io::Result<()> {
    if let Some(error) = &info.error {
        writeln!(out, "  {WRONG}not read{WRONG:#}: {}", visible(error))?;
    }
    for warning in &info.warnings {
        writeln!(out, "  {WRONG}!{WRONG:#} {}", visible(warning))?;
    }
    Ok(())
}

async fn check(args: &SetupArgs, document: &DocumentArgs, json: bool) -> Result<Verdict> {
    let file = PolicyFile::find(args)?;
    let base = file.text.clone().unwrap_or_else(|| "version = 1\n".to_owned());
    // The secrets that are named have to be there; the tools of others are of no interest.
    let mut policy: toml_edit::DocumentMut = base.parse().context("the policy is no TOML")?;
    policy.remove("openapi");
    let planned = plan(args, &file, &policy.to_string(), CHECKED, document, true).await?;
    let info = planned.info;
    if json {
        output::print_json(&info)?;
    } else {
        show(&info)?;
    }
    Ok(if info.error.is_some() || info.tools.is_empty() { Verdict::Bad } else { Verdict::Good })
}

async fn add(
    args: &SetupArgs,
    name: &str,
    document: &DocumentArgs,
    pin: bool,
    decision: &DecisionArgs,
) -> Result<Verdict> {
    super::check_decidable(decision)?;
    let file = PolicyFile::find_or_new(args, true)?;
    let text = file.text_or_new();
    if file.parse(&text)?.openapi_named(name).is_some() {
        let text = format!(
            "the policy has [openapi.{name}]: take it out first with `toolbay openapi remove {name}`"
        );
        bail!(text);
    }
    let Planned { info, section, text: with } = plan(args, &file, &text, name, document, pin).await?;
    show(&info)?;
    if info.error.is_some() || info.tools.is_empty() {
        output::complain("nothing would become a tool; nothing was changed");
        return Ok(Verdict::Bad);
    }
    let mut out = output::out();
    writeln!(out)?;
    for line in section.lines() {
        writeln!(out, "  {GOOD}+ {}{GOOD:#}", visible(line))?;
    }
    out.flush()?;
    drop(out);
    if let Some(verdict) = super::undecided(decision, "Write this into the policy?")? {
        return Ok(verdict);
    }
    let place = file.file.as_deref().context("no policy: give one with --config FILE")?;
    policy_file::write(place, file.text.as_deref(), &with).map_err(host_failed)?;
    output::note(&format!("`{name}` is in the policy; see its tools with `toolbay list`"));
    Ok(Verdict::Good)
}

fn remove(args: &SetupArgs, name: &str, decision: &DecisionArgs) -> Result<Verdict> {
    super::check_decidable(decision)?;
    let file = PolicyFile::find(args)?;
    let text = file.text.clone().unwrap_or_default();
    let (without, taken) = policy_file::without_section(&text, "openapi", name)?;
    let Some(taken) = taken else {
        output::complain(&format!("the policy has no [openapi.{name}]"));
        return Ok(Verdict::Bad);
    };
    file.parse(&without)?;
    let mut out = output::out();
    for line in taken.lines().filter(|line| !line.trim().is_empty()) {
        writeln!(out, "  {WRONG}- {}{WRONG:#}", visible(line))?;
    }
    out.flush()?;
    drop(out);
    if let Some(verdict) = super::undecided(decision, "Take this out of the policy?")? {
        return Ok(verdict);
    }
    if let Some(place) = &file.file {
        policy_file::write(place, file.text.as_deref(), &without).map_err(host_failed)?;
    }
    Ok(Verdict::Good)
}

/// What a section would come to.
struct Planned {
    info: OpenApiInfo,
    /// The section as it would stand in the policy.
    section: String,
    /// The whole policy with it.
    text: String,
}

/// Reads a document, writes a section for it into a copy of the policy, and looks at what that comes to.
async fn plan(
    args: &SetupArgs,
    file: &PolicyFile,
    text: &str,
    name: &str,
    document: &DocumentArgs,
    pin: bool,
) -> Result<Planned> {
    let place = place(&document.document)?;
    // For the first look any server will do, and the document is not known yet.
    let mut section = table(&place, document)?;
    section.entry("server").or_insert_with(|| value("https://example.invalid"));
    let first = with_section(text, name, section)?;
    let first = file.parse(&first)?;
    let about = named(&first, name)?;
    let host = setup::host_for(args, first, Purpose::Look)?;
    let read = host.read_openapi(&about).await;
    let (read, digest) = read.map_err(|why| anyhow!("`{place}`: {}{}", why, hint(&why, &about)))?;
    let mut section = table(&place, document)?;
    if pin {
        section.insert("sha256", value(&*digest));
    } else if let (Place::Url(url), None) = (&about.document, &document.server) {
        let parsed = toolbay_openapi::Document::parse(&read);
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
    let host = setup::host_for(args, policy, Purpose::Look)?;
    let info = host.load_openapi().await.into_iter().find(|info| info.name == name);
    let info = info.ok_or_else(|| host_failed(anyhow!("the section was not read")))?;
    Ok(Planned { info, section: shown, text })
}

/// What would help where the address is private: the flag of this command.
fn hint(why: &str, about: &OpenApi) -> String {
    let network = why.split("net_private = [").nth(1).and_then(|rest| rest.split(']').next());
    match network {
        Some(network) if about.document.url().is_some() => {
            format!("\nhere: --net-private {}", network.split(", ").last().unwrap_or(network))
        }
        _ => String::new(),
    }
}

fn named(policy: &Policy, name: &str) -> Result<Arc<OpenApi>> {
    let found = policy.openapi_named(name).cloned();
    found.ok_or_else(|| host_failed(anyhow!("the policy has lost [openapi.{name}]")))
}

/// A path as it holds from everywhere, or a URL as it is.
fn place(text: &str) -> anyhow::Result<String> {
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let path = Path::new(text).canonicalize().with_context(|| format!("`{text}`"))?;
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| anyhow!("`{text}`: a policy is UTF-8, and this path is not"))
}

fn table(place: &str, document: &DocumentArgs) -> Result<Table> {
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
    let mut out = output::out();
    let title = info.title.as_deref().unwrap_or("a service");
    writeln!(out, "{HEAD}{}{HEAD:#}", visible(title))?;
    writeln!(out, "  {DIM}document{DIM:#} {}", visible(&info.document))?;
    if let Some(digest) = &info.digest {
        writeln!(out, "  {DIM}sha256  {DIM:#} {digest}")?;
    }
    let (tools, problems) = (info.tools.len(), info.problems.len());
    let counts = [
        (tools, "tools"),
        (info.unavailable.len(), "of them not available"),
        (problems, "no tools"),
        (info.left_out, "left out"),
    ];
    let counts: Vec<String> = counts.iter().map(|(count, what)| format!("{count} {what}")).collect();
    writeln!(out, "  {}", counts.join(", "))?;
    tell(&mut out, info)?;
    for (name, operation) in info.tools.iter().take(SHOWN) {
        writeln!(out, "{NAME}{name}{NAME:#}\t{}", visible(operation))?;
        if let Some(why) = info.unavailable.get(name) {
            writeln!(out, "  {WRONG}not available{WRONG:#}: {}", visible(&why.replace('\n', " ")))?;
        }
    }
    for (operation, reason) in info.problems.iter().take(SHOWN) {
        writeln!(out, "{WRONG}-{WRONG:#} {}\t{}", visible(operation), visible(reason))?;
    }
    if tools.max(problems) > SHOWN {
        writeln!(out, "{DIM}… the first {SHOWN} of each are shown; --json has all{DIM:#}")?;
    }
    out.flush()
}
