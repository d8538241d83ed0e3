//! From the command line to a host with its plugins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow, bail};
use toolbay::core::audit::AuditSink;
use toolbay::policy::audit_policy::AuditPolicy;
use toolbay::policy::capability::floor::Keep;
use toolbay::policy::capability::reach;
use toolbay::policy::{Checked, Profile};
use toolbay::{
    FileAudit, FileConsents, FileSwitches, Host, HostBuilder, OpenApiInfo, PluginId, PluginInfo, Policy,
    Retention, Watched,
};

use crate::command::args::SetupArgs;
use crate::command::told::{self, Told};
use crate::host_failed;
use crate::output::findings::{FileFindings, read_policy};
use crate::output::{self, progress, stderr};

/// Starts logging. To stderr, whatever happens: stdout may carry a protocol.
pub(crate) fn start_log(filter: &str) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::builder()
        .parse(filter)
        .map_err(|e| anyhow!("--log `{filter}`: {e}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr::log_writer())
        .with_ansi(output::stderr_is_terminal())
        .try_init()
        .map_err(|e| host_failed(anyhow!(e)))
}

/// What a command does with plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Looks at them: leaves no trace, neither in the audit nor in the consents.
    Look,
    /// Runs them.
    Run,
}

/// Makes the host, without plugins.
pub(crate) fn host(args: &SetupArgs, purpose: Purpose) -> Result<Host> {
    host_for(args, policy(args)?, purpose)
}

/// Makes the host under another policy than that of the file.
pub(crate) fn host_for(args: &SetupArgs, policy: Policy, purpose: Purpose) -> Result<Host> {
    let (kept, audit_policy) = (served_files(&policy), policy.audit().clone());
    let mut builder = Host::builder(policy).on_load(progress::listener());
    match own_executable() {
        Ok(program) => builder = builder.compile_worker(&program).program_guard(program),
        Err(error) => tracing::warn!(%error, "plugins are compiled in this process"),
    }
    if !args.no_cache
        && let Some(dir) = args.cache_dir.clone().or_else(|| user_dir("XDG_CACHE_HOME", ".cache"))
    {
        builder = builder.cache_dir(dir);
    }
    for file in kept {
        builder = builder.keep(file, Keep::FromAll);
    }
    let state = state_dir(args)?;
    builder = builder.switches(switches(args)?.load().map_err(Error::msg)?);
    builder = match purpose {
        Purpose::Look => builder.consents(Arc::new(consents(args)?.read_only())),
        Purpose::Run => builder.state_dir(&state).state_wait(args.state_wait),
    };
    builder = guard(builder, args)?;
    if purpose == Purpose::Run
        && let Some(sink) = audit(args, &audit_policy)?
    {
        builder = builder.audit(sink);
    }
    builder.build().map_err(host_failed)
}

/// The files that say who is let in over HTTP: what a plugin reads there is half a key, and what it writes is one.
fn served_files(policy: &Policy) -> Vec<PathBuf> {
    let keys = policy.serve().oauth.as_ref().map(|oauth| PathBuf::from(&oauth.jwks));
    policy.serve().tokens.iter().cloned().chain(keys.filter(|file| file.is_absolute())).collect()
}

/// This program, also after its file was replaced: on Linux the link leads to what runs.
fn own_executable() -> std::io::Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() { Ok(link) } else { std::env::current_exe() }
}

/// Keeps what belongs to the host from plugins, also where it is not there yet: a policy or a plugin that one of them
/// wrote would be the next start's. Opens of the floor what the command line says.
fn guard(mut builder: HostBuilder, args: &SetupArgs) -> Result<HostBuilder> {
    let here = current_dir()?;
    let absolute = |path: &Path| reach::normalise(&here.join(path)).unwrap_or_else(|| here.join(path));
    let places =
        [("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share"), ("XDG_CACHE_HOME", ".cache")];
    let own = places.iter().filter_map(|(variable, below_home)| user_dir(variable, below_home));
    let given = [&args.config, &args.plugins].into_iter().flatten().map(|path| absolute(path));
    for place in own.chain(given) {
        builder = builder.keep(place, Keep::FromWriters);
    }
    for place in [absolute(&state_dir(args)?), absolute(&audit_file(args)?)] {
        builder = builder.keep(place, Keep::FromAll);
    }
    Ok(args.allow_protected_path.iter().fold(builder, |builder, path| builder.allow_protected_path(absolute(path))))
}

/// A host with the one plugin that a person named, by a file or by an id in the plugin directory; or why there is
/// none.
pub(crate) async fn named(
    args: &SetupArgs,
    policy: Policy,
    plugin: &str,
) -> Result<Result<(Host, PluginInfo), String>> {
    let (file, host) = (Path::new(plugin), host_for(args, policy, Purpose::Look)?);
    if !file.is_file() && !plugin.ends_with(".wasm") {
        load(args, &host, Tell::Warnings).await?;
        let info = host.plugin(plugin).ok_or("no plugin of this id is loaded, and there is no such file");
        return Ok(info.map(|info| (host, info)).map_err(str::to_owned));
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let id = match PluginId::new(&stem) {
        Ok(id) => id,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Err(error) = host.load_file(id.clone(), file).await {
        return Ok(Err(error.to_string()));
    }
    let info =
        host.plugin(id.as_str()).ok_or_else(|| host_failed(anyhow!("`{plugin}` was loaded and is gone")))?;
    Ok(Ok((host, info)))
}

/// As [`named`]; why there is none is said on stderr.
pub(crate) async fn named_or_complain(
    args: &SetupArgs,
    policy: Policy,
    plugin: &str,
) -> Result<Option<(Host, PluginInfo)>> {
    let found = named(args, policy, plugin).await?;
    Ok(found.inspect_err(|problem| output::complain(&format!("{plugin}: {problem}"))).ok())
}

/// Where what outlives a run is kept.
pub(crate) fn state_dir(args: &SetupArgs) -> Result<PathBuf> {
    let found = args.state_dir.clone().or_else(|| user_dir("XDG_STATE_HOME", ".local/state"));
    found.context("no state directory: give one with --state-dir DIR")
}

/// What is switched off.
pub(crate) fn switches(args: &SetupArgs) -> Result<FileSwitches> {
    Ok(FileSwitches::new(state_dir(args)?).with_wait(args.state_wait))
}

/// What was agreed to.
pub(crate) fn consents(args: &SetupArgs) -> Result<FileConsents> {
    Ok(FileConsents::new(state_dir(args)?).with_wait(args.state_wait))
}

/// Where the audit is.
pub(crate) fn audit_file(args: &SetupArgs) -> Result<PathBuf> {
    match &args.audit {
        Some(file) => Ok(file.clone()),
        None => Ok(FileAudit::path_in(&state_dir(args)?)),
    }
}

/// The audit, unless none is wanted.
pub(crate) fn audit(args: &SetupArgs, policy: &AuditPolicy) -> Result<Option<Arc<dyn AuditSink>>> {
    if args.no_audit && policy.required {
        bail!("--no-audit: the policy says `[audit] required = true`, so every call is recorded");
    }
    if args.no_audit {
        return Ok(None);
    }
    let retention = Retention::from(policy);
    let sink = match &args.audit {
        Some(file) => FileAudit::with_retention(file, retention),
        None => FileAudit::in_state_dir(&state_dir(args)?, retention),
    };
    let file = audit_file(args)?;
    let sink = sink.with_context(|| {
        format!(
            "the audit `{}` cannot be opened; give another place with --audit FILE or --state-dir DIR, or keep none with --no-audit",
            file.display()
        )
    });
    Ok(Some(Arc::new(sink?)))
}

/// The audit for a decision of the operator, which is not made if it must be recorded and cannot be.
pub(crate) fn audit_of_decision(args: &SetupArgs) -> Result<Option<Arc<dyn AuditSink>>> {
    let policy = policy(args)?;
    let sink = audit(args, policy.audit())?;
    let problem = sink.as_ref().and_then(|sink| sink.health()).and_then(|health| health.problem);
    match problem {
        Some(problem) if policy.audit().required => Err(host_failed(anyhow!(
            "nothing was changed: the policy says `[audit] required = true`, and the audit cannot be written ({problem})"
        ))),
        _ => Ok(sink),
    }
}

/// The profile of the command line.
pub(crate) fn profile(args: &SetupArgs, policy: &Policy) -> Result<Option<Arc<Profile>>> {
    let Some(name) = &args.profile else { return Ok(None) };
    if let Some(profile) = policy.profile(name) {
        return Ok(Some(Arc::clone(profile)));
    }
    let known: Vec<String> = policy.profiles().map(|name| format!("`{name}`")).collect();
    let known =
        if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
    Err(anyhow!("--profile `{name}`: the policy has no profile of this name; {known}"))
}

/// What is told on stderr of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Nothing: the command shows it itself, or asks for it where it matters.
    Nothing,
    /// Files that are not loaded.
    Problems,
    /// Also what does not stop a plugin but should be known.
    Warnings,
}

/// Makes the host and loads the plugin directory.
pub(crate) async fn loaded(args: &SetupArgs, tell: Tell, purpose: Purpose) -> Result<Host> {
    let host = host(args, purpose)?;
    load(args, &host, tell).await?;
    Ok(host)
}

/// Loads the services of the policy and the plugin directory into a host.
pub(crate) async fn load(args: &SetupArgs, host: &Host, tell: Tell) -> Result<()> {
    load_told(args, host, tell, &Told::default()).await
}

/// The same, where what is told of the policy is remembered.
pub(crate) async fn load_told(args: &SetupArgs, host: &Host, tell: Tell, told: &Told) -> Result<()> {
    profile(args, &host.policy())?;
    let services = host.load_openapi().await;
    if tell != Tell::Nothing {
        told::services(&services);
    }
    for OpenApiInfo { name, warnings, .. } in services.iter().filter(|_| tell == Tell::Warnings) {
        warnings.iter().for_each(|warning| output::warn(&format!("[openapi.{name}]: {warning}")));
    }
    if let Some(dir) = plugin_dir(args, host.policy().openapi().next().is_some())? {
        let report = host.load_dir(&dir).await.map_err(host_failed)?;
        if tell != Tell::Nothing {
            told::problems(&report.problems);
        }
        if tell == Tell::Warnings {
            told::warnings(report.warnings.iter().map(|one| (one.plugin.as_str(), one.message.as_str())));
        }
    }
    if tell == Tell::Warnings {
        told.policy(args, host);
    }
    Ok(())
}

/// Where plugins are, or would be.
pub(crate) fn plugin_place(args: &SetupArgs) -> Result<PathBuf> {
    let default = || user_dir("XDG_DATA_HOME", ".local/share").map(|dir| dir.join("plugins"));
    let place = args.plugins.clone().or_else(default);
    place.context("no plugin directory: give one with --plugins DIR")
}

/// The policy's file, to be read again when it changes; `None`: there is no place for one.
pub(crate) fn watched_policy(args: &SetupArgs) -> Result<Option<Watched>> {
    let here = current_dir()?;
    let file = args.config.as_ref().map(|file| here.join(file)).or_else(default_policy);
    let args = args.clone();
    let read = move || policy(&args).map_err(|error| format!("{error:#}"));
    Ok(file.map(|file| Watched::policy(file, read)))
}

/// What is switched off, to be read again when it changes.
pub(crate) fn watched_switches(args: &SetupArgs) -> Result<Watched> {
    let switches = switches(args)?;
    Ok(Watched::file(switches.file(), move |host| match switches.load() {
        Ok(switches) => host.registry().set_switches(&switches),
        Err(problem) => output::complain(&format!("what was switched off before stays so: {problem}")),
    }))
}

/// The documents of services that are files, to be read again when they change.
pub(crate) fn watched_documents(host: &Host) -> Vec<Watched> {
    let policy = host.policy();
    policy.openapi().filter_map(|service| service.file()).map(Watched::document).collect()
}

/// The plugin directory; `None` if it is the default one and is not there yet. Without it there are tools if there are
/// `others`.
fn plugin_dir(args: &SetupArgs, others: bool) -> Result<Option<PathBuf>> {
    let dir = plugin_place(args)?;
    if args.plugins.is_some() || dir.exists() {
        return Ok(Some(dir));
    }
    if others {
        return Ok(None);
    }
    let shown = dir.display();
    output::note(&format!(
        "no plugins: make `{shown}` and put `.wasm` files there, or give another place with --plugins"
    ));
    Ok(None)
}

/// The policy's file and what it says.
#[derive(Debug)]
pub(crate) struct PolicyFile {
    /// The file, which may not be there yet; `None`: there is no place for one.
    pub(crate) file: Option<PathBuf>,
    /// What is in it; `None`: it is not there.
    pub(crate) text: Option<String>,
    base: PathBuf,
    /// What `$workspace` means, if the command line says it or there is no policy.
    pub(crate) workspace: Option<PathBuf>,
}

impl PolicyFile {
    /// A policy that is in no file.
    pub(crate) fn of_text(args: &SetupArgs, text: String) -> Result<Self> {
        let here = current_dir()?;
        let workspace = workspace(args, &here)?;
        let workspace = Some(workspace.unwrap_or_else(|| here.clone()));
        Ok(Self { file: None, text: Some(text), base: here, workspace })
    }

    /// Finds the file and reads it.
    pub(crate) fn find(args: &SetupArgs) -> Result<Self> {
        Self::find_or_new(args, false)
    }

    /// Finds the file and reads it. One that the command line names need not be there, if `new` says so.
    pub(crate) fn find_or_new(args: &SetupArgs, new: bool) -> Result<Self> {
        let here = current_dir()?;
        let workspace = workspace(args, &here)?;
        let given = args.config.as_ref().map(|file| here.join(file));
        let found = given.clone().or_else(default_policy);
        let required = given.is_some() && !new;
        let Some(file) = found.clone().filter(|file| required || file.exists()) else {
            let workspace = Some(workspace.unwrap_or_else(|| here.clone()));
            return Ok(Self { file: found, text: None, base: here, workspace });
        };
        let text = read_policy(&file)?;
        Ok(Self { base: folder_of(&file)?, file: Some(file), text: Some(text), workspace })
    }

    /// A policy in a file that the command names.
    pub(crate) fn of_file(args: &SetupArgs, file: &Path) -> Result<Self> {
        let workspace = workspace(args, &current_dir()?)?;
        Ok(Self { base: folder_of(file)?, file: Some(file.to_path_buf()), text: None, workspace })
    }

    /// Where the policy of the command line is, or would be.
    pub(crate) fn place(args: &SetupArgs) -> Result<PathBuf> {
        let place = args.config.clone().or_else(default_policy);
        place.context("no policy: name a file")
    }

    /// All mistakes of a text as what this file would say.
    pub(crate) fn check(&self, text: &str) -> Checked {
        Policy::check(text, &self.base, self.workspace.as_deref())
    }

    /// What the file says; without one nothing is granted.
    pub(crate) fn policy(&self) -> Result<Policy> {
        match &self.text {
            Some(text) => self.parse(text),
            None => Ok(Policy::deny_all(self.workspace.as_deref().unwrap_or(&self.base))),
        }
    }

    /// The text to add lines to.
    pub(crate) fn text_or_new(&self) -> String {
        let new = || {
            let workspace = self.workspace.as_deref().unwrap_or(&self.base);
            // What `$workspace` means now it is to mean afterwards.
            let workspace = toml_edit::Value::from(workspace.display().to_string());
            format!("version = 1\nworkspace = {workspace}\n")
        };
        self.text.clone().unwrap_or_else(new)
    }

    /// Parses a text as what this file would say.
    pub(crate) fn parse(&self, text: &str) -> anyhow::Result<Policy> {
        let file = self.file.as_deref().unwrap_or(Path::new("the policy"));
        Policy::parse(text, &self.base, self.workspace.as_deref())
            .map_err(|error| FileFindings::of_error(file, text, &error).into())
    }
}

pub(crate) fn policy(args: &SetupArgs) -> Result<Policy> {
    PolicyFile::find(args)?.policy()
}

/// The folder that relative paths of a policy are meant against.
fn folder_of(file: &Path) -> Result<PathBuf> {
    let found = file.canonicalize().with_context(|| format!("policy `{}`", file.display()));
    Ok(found?.parent().unwrap_or(Path::new("/")).to_path_buf())
}

/// What is wrong with the file of tokens that a policy names, if there is one.
pub(crate) fn token_findings(policy: &Policy) -> Option<FileFindings> {
    let file = policy.serve().tokens.as_ref().filter(|file| file.exists())?;
    let findings = toolbay_mcp::check_tokens(file, policy);
    // The file says who is let in: its lines are not shown.
    Some(FileFindings { file: file.clone(), text: None, findings })
}

fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().context("the current directory is gone").map_err(host_failed)
}

/// The workspace of the command line.
fn workspace(args: &SetupArgs, here: &Path) -> Result<Option<PathBuf>> {
    let Some(dir) = &args.workspace else { return Ok(None) };
    let found = here.join(dir).canonicalize().with_context(|| format!("--workspace `{}`", dir.display()));
    found.map(Some)
}

/// The policy's file if the command line names none.
fn default_policy() -> Option<PathBuf> {
    Some(user_dir("XDG_CONFIG_HOME", ".config")?.join("toolbay.toml"))
}

/// `toolbay` in one of the user's directories (XDG base directory specification: a relative value is ignored).
fn user_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = given.or_else(|| Some(std::env::home_dir()?.join(below_home)))?;
    Some(base.join("toolbay"))
}
