//! Builds a host with its plugins from the options of the command line.
//!
//! Imports between the modules lead one way: `args` ← `paths` ← `policy_file` ← `locked`, `shared` ← `host` ← `plugins` ←
//! `services` ← `load` ← `servers`.

pub(crate) mod approval;
pub(crate) mod args;
mod audit;
mod host;
pub(crate) mod known_plugins;
mod load;
pub(crate) mod load_report;
pub(crate) mod locked;
pub(crate) mod named_path;
pub(crate) mod names;
mod paths;
mod plugins;
mod policy_file;
pub(crate) mod pulled;
pub(crate) mod running_servers;
pub(crate) mod seen_epochs;
pub(crate) mod servers;
pub(crate) mod services;
pub(crate) mod shared;
mod shared_audit;
pub(crate) mod shared_folder;
mod watch;

use anyhow::{Result, anyhow};

use crate::output::{self, LogFormat, host_failure, stderr};
pub(crate) use args::SetupArgs;
pub(crate) use audit::{audit_for_decision, audit_under};
pub(crate) use host::{HostPurpose, ServerHost, apply_stop_order, builder, host, host_for, server_host};
pub(crate) use load::{load, load_file, load_host, load_plugin, require_plugin};
pub(crate) use load_report::ReportLevel;
pub(crate) use paths::{
    audit_file, cache_dir, consents, current_dir, held_updates, operator, plugin_folder, state_dir,
    stop_order, switches,
};
pub(crate) use plugins::{load_plugins, profile, record_names, tools};
pub(crate) use policy_file::{PolicyFile, credential_findings, plugin_names, policy};
pub(crate) use watch::{watch_documents, watch_operator_files};

/// Starts logging on stderr. stdout may carry a protocol.
pub(crate) fn start_log(args: &SetupArgs) -> Result<()> {
    let filter = &args.log;
    let filter = tracing_subscriber::EnvFilter::builder()
        .parse(filter)
        .map_err(|e| anyhow!("--log `{filter}`: {e}"))?;
    args.printer.report_panics();
    let writer = stderr::log_writer(args.log_format);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let started = match args.log_format {
        LogFormat::Text => log.with_ansi(output::stderr_is_terminal()).try_init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
        }
    };
    started.map_err(|e| host_failure(anyhow!(e)))
}
