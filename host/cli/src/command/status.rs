//! `toolbay status`.

use std::io::Write;

use anstyle::Style;
use anyhow::Result;
use toolbay::LoadedCode;
use toolbay_core::registry::{Flags, ToolStatus};
use toolbay_core::tool::ToolSource;
use toolbay_mcp::client::ServerState;
use toolbay_policy::Policy;
use toolbay_policy::name::{self, ToolName};
use toolbay_policy::quantity;
use toolbay_policy::text::{one_line, visible};

use crate::Verdict;
use crate::command::args::SetupArgs;
use crate::command::servers;
use crate::command::setup::{self, Purpose, Tell};
use crate::output::{self, DIM, NAME, WRONG};

/// Characters of a digest that a line shows.
const SHORT: usize = 12;
/// Longest reason that a line shows, in characters.
const MAX_REASON: usize = 500;

pub(crate) async fn run(args: &SetupArgs, json: bool) -> Result<Verdict> {
    let host = setup::loaded(args, Tell::Nothing, Purpose::Look).await?;
    let profile = setup::profile(args, &host.policy())?;
    let profile = profile.as_ref().map(|profile| &**profile.name());
    let servers = servers::attach_all(&host).await;
    let (catalog, states) = (host.registry().snapshot(), servers.status());
    servers.close().await;
    let tools: Vec<ToolStatus> = catalog.tools().map(|entry| entry.status(profile)).collect();
    if json {
        output::print_json(&tools)?;
        return Ok(Verdict::Good);
    }
    let (mut out, terminal) = (output::out(), output::stdout_is_terminal());
    for tool in &tools {
        let (name, state, about) = (&tool.name, state(tool), about(tool).join("\t"));
        if !terminal {
            writeln!(out, "{name}\t{state}\t{about}")?;
            continue;
        }
        let style = if state == "on" { DIM } else { WRONG };
        writeln!(out, "{NAME}{name}{NAME:#}  {style}{state}{style:#}")?;
        writeln!(out, "  {DIM}{}{DIM:#}", about.replace('\t', "  "))?;
    }
    // A line that a terminal and a program read under another name.
    let mut line = |[shown, plain]: [&str; 2], style: Style, text: &str| match terminal {
        true => writeln!(out, "{NAME}{shown}{NAME:#}  {style}{}{style:#}", text.replace('\t', "  ")),
        false => writeln!(out, "{plain}\t{text}"),
    };
    for problem in host.problems() {
        let file = problem.file.display().to_string();
        let error = one_line(&problem.error.to_string(), MAX_REASON);
        let more = if problem.kept { "; its older version goes on" } else { "" };
        line([&*visible(&file); 2], WRONG, &format!("not loaded: {error}{more}"))?;
    }
    for server in &states {
        let style = if server.state == ServerState::Ready { DIM } else { WRONG };
        line([&*format!("mcp:{}", server.name); 2], style, &super::mcp::line(server))?;
    }
    let free = uncounted(&host.policy(), &tools);
    if !free.is_empty() {
        line(["work is not counted", "not-counted"], DIM, &one_line(&free.join(", "), MAX_REASON))?;
    }
    line(["code in memory", "code-in-memory"], DIM, &code(host.loaded_code()))?;
    if let Some(held) = host.compile_worker_sandbox().await {
        let held = held.map_or_else(|error| one_line(&error.to_string(), MAX_REASON), str::to_owned);
        line(["compile worker", "compile-worker"], DIM, &held)?;
    }
    out.flush()?;
    Ok(Verdict::Good)
}

/// The tools whose work is not counted, so that their time-out alone ends what does not end.
fn uncounted<'a>(policy: &Policy, tools: &'a [ToolStatus]) -> Vec<&'a str> {
    let is_free = |tool: &&ToolStatus| {
        let ToolSource::Plugin { id, .. } = &*tool.source else { return false };
        let bare = name::split(&tool.name).and_then(|(_, bare)| ToolName::new(bare).ok());
        policy.limits(id, bare.as_ref()).fuel.is_none()
    };
    tools.iter().filter(is_free).map(|tool| tool.name.as_str()).collect()
}

/// How much code of plugins is in memory.
fn code(loaded: LoadedCode) -> String {
    let LoadedCode { plugins, bytes, most, dropped } = loaded;
    let (whole, most) = (bytes.div_ceil(1 << 20), quantity::show_bytes(most));
    format!("{whole}MiB of {most}\t{plugins} plugins\tdropped {dropped} times")
}

/// Whether it can be called, in one line.
fn state(tool: &ToolStatus) -> String {
    let line = |reason: &str| one_line(&reason.replace('\n', " "), MAX_REASON);
    match (&tool.disabled_reason, &tool.unavailable) {
        (Some(reason), _) => format!("off: {}", line(reason)),
        (None, Some(reason)) => format!("not available: {}", line(reason)),
        (None, None) => "on".to_owned(),
    }
}

/// Source, version, digest, tags, flags, hash of the schemas; `-` where there is none.
fn about(tool: &ToolStatus) -> [String; 6] {
    let short = |digest: &str| digest.chars().take(SHORT).collect::<String>();
    let (version, digest) = match &*tool.source {
        ToolSource::Plugin { version, digest, .. } => (version.as_deref(), Some(short(digest))),
        ToolSource::Mcp { version, .. } => (version.as_deref(), None),
        ToolSource::Builtin | ToolSource::OpenApi { .. } => (None, None),
    };
    let Flags { hidden, deferred, always_include } = tool.flags;
    let flags = [("hidden", hidden), ("deferred", deferred), ("always_include", always_include)];
    let flags: Vec<&str> = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect();
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { one_line(&text, MAX_REASON) };
    [
        tool.source.label(),
        or_dash(version.unwrap_or_default().to_owned()),
        or_dash(digest.unwrap_or_default()),
        or_dash(tool.tags.join(",")),
        or_dash(flags.join(",")),
        short(&tool.schema_sha256),
    ]
}
