//! `toolbay status`: the state of the host as one line for each part of it.

use std::path::Path;

use anstyle::Style;
use anyhow::Result;
use toolbay::{DocumentState, Host, LoadedCode, OpenApiInfo};
use toolbay_admin::ServerTransport;
use toolbay_core::registry::{ToolFlags, ToolStatus};
use toolbay_core::tool::{PluginOrigin, ToolSource};
use toolbay_mcp::client::{ServerState, ServerStatus};
use toolbay_policy::Policy;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::{self, ToolName};
use toolbay_policy::quantity;

use crate::command::list::ReadinessCounts;
use crate::output::format::{self, short_digest};
use crate::output::{self, Cell, CommandStatus, DIM, FAILURE, NAME, TextTable, count_noun};
use crate::setup::locked::LockPaths;
use crate::setup::{self, PolicyFile, ReportLevel, SetupArgs, running_servers, servers};

/// Longest reason that a line shows, in characters.
const MAX_REASON: usize = 500;

pub(crate) async fn run(args: &SetupArgs, tools: bool) -> Result<CommandStatus> {
    let (host, servers) = servers::load_host_and_connect(args, ReportLevel::Quiet).await?;
    let (catalog, states) = (host.registry().snapshot(), servers.status());
    servers.close().await;
    let profile = setup::profile(args, &host.policy())?;
    let profile = profile.as_ref().map(|profile| &**profile.name());
    let all: Vec<ToolStatus> = catalog.tools().map(|entry| entry.status(profile)).collect();
    if args.printer.is_json() {
        output::print_json(&all)?;
    } else if tools {
        tool_table(&all).print()?;
    } else {
        let mut summary = StatusLines(TextTable::new(["", ""]));
        summary.add_plugins(args, &host, &all)?;
        summary.add_policy(args, &host);
        summary.add_services(&host);
        summary.add_servers(&states);
        summary.add_running_servers(args, &host).await?;
        summary.add_host(args, &host, &all).await?;
        summary.0.print()?;
    }
    Ok(CommandStatus::Success)
}

/// One row for each tool. A terminal shows no digests.
fn tool_table(tools: &[ToolStatus]) -> TextTable {
    let terminal = output::stdout_is_terminal();
    let mut table = match terminal {
        true => TextTable::new(["TOOL", "STATE", "VERSION", "TAGS", "FLAGS"]),
        false => TextTable::new([
            "TOOL", "STATE", "SOURCE", "VERSION", "DIGEST", "TAGS", "FLAGS", "SCHEMA", "ORIGIN", "SIGNER",
        ]),
    };
    for tool in tools {
        let state = state(tool);
        let style = if state == "on" { DIM } else { FAILURE };
        let name = [Cell::styled(NAME, &tool.name), Cell::styled(style, state)];
        let [source, version, digest, tags, flags, schema, origin, signer] = about(tool);
        let details = if terminal {
            vec![version, tags, flags]
        } else {
            vec![source, version, digest, tags, flags, schema, origin, signer]
        };
        table.push(name.into_iter().chain(details.into_iter().map(Cell::from)));
    }
    table
}

/// Keys with their values.
struct StatusLines(TextTable);

impl StatusLines {
    fn add(&mut self, key: &str, value: impl AsRef<str>) {
        self.add_styled(key, Style::new(), value);
    }

    fn add_styled(&mut self, key: &str, style: Style, value: impl AsRef<str>) {
        self.0.push([Cell::styled(NAME, key), Cell::styled(style, value)]);
    }

    fn add_plugins(&mut self, args: &SetupArgs, host: &Host, tools: &[ToolStatus]) -> Result<()> {
        let problems = host.problems();
        let loaded = host.plugins().len();
        self.add("plugins", format!("{loaded} loaded, {} failed", problems.len()));
        for problem in problems {
            let file = problem.file.file_name().map_or_else(|| problem.file.as_path(), Path::new).display();
            let kept = if problem.kept { "; the older version stays loaded" } else { "" };
            let error = one_line(&problem.error.to_string(), MAX_REASON);
            self.add_styled("failed", FAILURE, format!("{file}: {error}{kept}"));
        }
        let counts = ReadinessCounts::of(host, &servers::view(args, host)?);
        let disabled = tools.iter().filter(|tool| tool.disabled_reason.is_some()).count();
        self.add("tools", format!("{}, {disabled} disabled", counts.summary()));
        for plugin in host.plugins() {
            let Some(origin) = &plugin.origin else { continue };
            let PluginOrigin { reference, signer, .. } = &**origin;
            let digest = short_digest(&plugin.digest);
            self.add("registry", format!("{}: {reference} (sha256 {digest}), signer {signer}", plugin.id));
        }
        self.add_held_updates(args)?;
        Ok(())
    }

    async fn add_running_servers(&mut self, args: &SetupArgs, host: &Host) -> Result<()> {
        if let Some(reason) = host.pipeline().running().stopped() {
            self.add_styled(
                "calls",
                FAILURE,
                format!("stopped: {}; `toolbay resume`", one_line(&reason, MAX_REASON)),
            );
        }
        for server in running_servers::find(args).await? {
            let pid = server.pid;
            match server.info().await {
                Ok(info) => {
                    let calls = count_noun(info.running, "call in progress", "calls in progress");
                    let transport = match info.transport {
                        ServerTransport::Stdio => "stdio".to_owned(),
                        ServerTransport::Http(endpoints) => endpoints.join(", "),
                    };
                    self.add("running", format!("process {pid}, {transport}, {calls}, since {}", info.since));
                }
                Err(error) => self.add_styled("running", FAILURE, error.to_string()),
            }
        }
        Ok(())
    }

    fn add_held_updates(&mut self, args: &SetupArgs) -> Result<()> {
        let Ok(paths) = LockPaths::find(args) else { return Ok(()) };
        let held = match setup::held_updates(args, &paths.lock)?.all() {
            Ok(held) => held,
            Err(problem) => {
                self.add_styled("held", FAILURE, one_line(&problem, MAX_REASON));
                return Ok(());
            }
        };
        for (id, update) in held {
            let to = update.plugin.tag.unwrap_or_else(|| update.plugin.manifest.to_string());
            let why = one_line(&update.reasons.join("; "), MAX_REASON);
            self.add_styled("held", FAILURE, format!("{id}: update to {to}: {why}; `toolbay grant {id}`"));
        }
        Ok(())
    }

    fn add_policy(&mut self, args: &SetupArgs, host: &Host) {
        let Ok(file) = PolicyFile::locate(args) else { return };
        let shown = format::path(&file);
        let warnings = host.policy_warnings().len();
        let state = match warnings {
            _ if !file.exists() => "not there: nothing is granted".to_owned(),
            0 => "no problems".to_owned(),
            count => format!("{}: `toolbay policy check`", count_noun(count, "warning", "warnings")),
        };
        self.add("policy", format!("{shown}, {state}"));
    }

    fn add_services(&mut self, host: &Host) {
        for OpenApiInfo { name, document, state, tools, problems, warnings, error, .. } in host.openapi() {
            let mut parts = vec![count_noun(tools.len(), "tool", "tools")];
            if state == DocumentState::Loading {
                parts.insert(0, state.as_str().to_owned());
            }
            if !problems.is_empty() {
                let skipped = count_noun(problems.len(), "operation skipped", "operations skipped");
                parts.push(format!("{skipped}: `toolbay openapi check {}`", one_line(&document, MAX_REASON)));
            }
            if !warnings.is_empty() {
                let count = count_noun(warnings.len(), "warning", "warnings");
                parts.push(format!("{count}: `toolbay openapi list`"));
            }
            let style = if tools.is_empty() || error.is_some() { FAILURE } else { Style::new() };
            let error = error.map(|error| format!("failed: {}", one_line(&error, MAX_REASON)));
            let text = error.into_iter().chain(parts).collect::<Vec<_>>().join(", ");
            self.add_styled(&format!("openapi:{name}"), style, text);
        }
    }

    fn add_servers(&mut self, states: &[ServerStatus]) {
        for server in states {
            let style = if server.state == ServerState::Ready { Style::new() } else { FAILURE };
            self.add_styled(&format!("mcp:{}", server.name), style, super::mcp::status_line(server));
        }
    }

    async fn add_host(&mut self, args: &SetupArgs, host: &Host, tools: &[ToolStatus]) -> Result<()> {
        let free = uncounted(&host.policy(), tools);
        if !free.is_empty() {
            self.add("not-counted", format!("the work of {}", one_line(&free.join(", "), MAX_REASON)));
        }
        self.add("code", code(host.loaded_code()));
        let audit = setup::audit_file(args)?;
        let bytes = audit.metadata().map(|metadata| metadata.len());
        let size = bytes.map_or_else(|_| "no records yet".to_owned(), format::size);
        self.add("audit", format!("{}, {size}", format::path(&audit)));
        if let Some(sandbox) = host.compile_worker_sandbox().await {
            let sandbox =
                sandbox.map_or_else(|error| one_line(&error.to_string(), MAX_REASON), str::to_owned);
            self.add("sandbox", sandbox);
        }
        if let Some(missing) = Host::missing_program_sandbox() {
            self.add_styled("programs", FAILURE, missing);
        }
        Ok(())
    }
}

/// The tools whose work is not counted: only `timeout` ends a call of them that does not end.
fn uncounted<'a>(policy: &Policy, tools: &'a [ToolStatus]) -> Vec<&'a str> {
    let is_free = |tool: &&ToolStatus| {
        let ToolSource::Plugin { id, .. } = &*tool.source else { return false };
        let bare = name::split_qualified(&tool.name).and_then(|(_, bare)| ToolName::new(bare).ok());
        policy.limits(id, bare.as_ref()).fuel.is_none()
    };
    tools.iter().filter(is_free).map(|tool| tool.name.as_str()).collect()
}

/// How much code of plugins is in memory.
fn code(loaded: LoadedCode) -> String {
    let LoadedCode { plugins, bytes, limit, dropped } = loaded;
    let limit = quantity::show_bytes(limit);
    let plugins = count_noun(plugins, "plugin", "plugins");
    let dropped = count_noun(dropped, "time", "times");
    format!("{} of {limit} in memory, {plugins}, dropped {dropped}", format::size(bytes))
}

/// Whether a tool can be called, on one line.
fn state(tool: &ToolStatus) -> String {
    let line = |reason: &str| one_line(&reason.replace('\n', " "), MAX_REASON);
    match (&tool.disabled_reason, &tool.unavailable) {
        (Some(reason), _) => format!("off: {}", line(reason)),
        (None, Some(refusal)) => format!("not available: {}", line(&refusal.text)),
        (None, None) => "on".to_owned(),
    }
}

/// Source, version, digest, tags, flags, hash of the schemas, origin, signer; `-` for an empty one.
fn about(tool: &ToolStatus) -> [String; 8] {
    let (version, digest) = match &*tool.source {
        ToolSource::Plugin { version, digest, .. } => (version.as_deref(), Some(short_digest(digest))),
        ToolSource::Mcp { version, .. } => (version.as_deref(), None),
        ToolSource::Builtin | ToolSource::OpenApi { .. } => (None, None),
    };
    let origin = tool.source.origin();
    let ToolFlags { hidden, deferred, always_include } = tool.flags;
    let flags = [("hidden", hidden), ("deferred", deferred), ("always_include", always_include)];
    let flags: Vec<&str> = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect();
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { one_line(&text, MAX_REASON) };
    [
        tool.source.label(),
        or_dash(version.unwrap_or_default().to_owned()),
        or_dash(digest.unwrap_or_default()),
        or_dash(tool.tags.join(",")),
        or_dash(flags.join(",")),
        short_digest(&tool.schema_sha256),
        or_dash(origin.map(|origin| origin.reference.clone()).unwrap_or_default()),
        or_dash(origin.map(|origin| origin.signer.clone()).unwrap_or_default()),
    ]
}
