//! From the command line to a host with its plugins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use toolbay::{Host, LoadEvent, Policy};

use crate::args::SetupArgs;
use crate::audit::JsonLines;
use crate::{Stop, output};

/// Starts logging. To stderr, whatever happens: stdout may carry a protocol.
pub(crate) fn start_log(filter: &str) -> Result<(), Stop> {
    let filter = tracing_subscriber::EnvFilter::builder()
        .parse(filter)
        .map_err(|e| Stop::Usage(anyhow!("--log `{filter}`: {e}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::stderr_is_terminal())
        .try_init()
        .map_err(|e| Stop::Host(anyhow!(e)))
}

/// Makes the host, without plugins.
pub(crate) fn host(args: &SetupArgs) -> Result<Host, Stop> {
    let policy = policy(args)?;
    let mut builder = Host::builder(policy).on_load(Arc::new(tell_compiling));
    if !args.no_cache
        && let Some(dir) = args.cache_dir.clone().or_else(|| user_dir("XDG_CACHE_HOME", ".cache"))
    {
        builder = builder.cache_dir(dir);
    }
    if let Some(file) = &args.audit {
        let sink = JsonLines::append(file).with_context(|| format!("--audit `{}`", file.display()));
        builder = builder.audit(Arc::new(sink.map_err(Stop::Usage)?));
    }
    builder.build().map_err(|e| Stop::Host(e.into()))
}

/// What is told on stderr besides the files that are not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Nothing: one call is wanted, not a report.
    Problems,
    /// What does not stop a plugin but should be known.
    Warnings,
}

/// Makes the host and loads the plugin directory; bad files are told on stderr, a line each.
pub(crate) async fn loaded(args: &SetupArgs, tell: Tell) -> Result<Host, Stop> {
    let host = host(args)?;
    let Some(dir) = plugin_dir(args)? else { return Ok(host) };
    let report = host.load_dir(&dir).await.map_err(|e| Stop::Host(e.into()))?;
    for problem in &report.problems {
        output::complain(&format!("{}: {}", problem.file.display(), problem.error));
    }
    for warning in report.warnings.iter().filter(|_| tell == Tell::Warnings) {
        output::complain(&format!("plugin `{}`: {}", warning.plugin, warning.message));
    }
    Ok(host)
}

/// The plugin directory; `None` if it is the default one and is not there yet.
fn plugin_dir(args: &SetupArgs) -> Result<Option<PathBuf>, Stop> {
    if let Some(dir) = &args.plugins {
        return Ok(Some(dir.clone()));
    }
    let default = user_dir("XDG_DATA_HOME", ".local/share").map(|dir| dir.join("plugins"));
    let dir =
        default.ok_or_else(|| Stop::Usage(anyhow!("no plugin directory: give one with --plugins DIR")))?;
    if dir.exists() {
        return Ok(Some(dir));
    }
    let shown = dir.display();
    output::note(&format!(
        "no plugins: make `{shown}` and put `.wasm` files there, or give another place with --plugins"
    ));
    Ok(None)
}

fn policy(args: &SetupArgs) -> Result<Policy, Stop> {
    let here = std::env::current_dir().context("the current directory is gone").map_err(Stop::Host)?;
    let workspace = args.workspace.as_deref().map(|dir| absolute(&here, dir)).transpose()?;
    let found =
        user_dir("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("toolbay.toml")).filter(|f| f.exists());
    let Some(file) = args.config.clone().or(found) else {
        return Ok(Policy::deny_all(&workspace.unwrap_or(here)));
    };
    let shown = file.display().to_string();
    let read = || {
        let text = std::fs::read_to_string(&file)?;
        let file = file.canonicalize()?;
        anyhow::Ok((text, file.parent().unwrap_or(Path::new("/")).to_path_buf()))
    };
    let (text, base) = read().with_context(|| format!("policy `{shown}`")).map_err(Stop::Usage)?;
    Policy::parse(&text, &base, workspace.as_deref())
        .with_context(|| format!("policy `{shown}`"))
        .map_err(Stop::Usage)
}

fn absolute(here: &Path, dir: &Path) -> Result<PathBuf, Stop> {
    here.join(dir)
        .canonicalize()
        .with_context(|| format!("--workspace `{}`", dir.display()))
        .map_err(Stop::Usage)
}

/// `toolbay` in one of the user's directories (XDG base directory specification: a relative value is ignored).
fn user_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = given.or_else(|| Some(std::env::home_dir()?.join(below_home)))?;
    Some(base.join("toolbay"))
}

fn tell_compiling(event: LoadEvent<'_>) {
    let LoadEvent::Compiling { plugin, bytes } = event;
    if output::stderr_is_terminal() {
        output::note(&format!("compiling {plugin} ({} KiB), once", bytes / 1024));
    }
}
