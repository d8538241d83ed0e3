//! The OpenAPI services of a command, and how long it waits for them. One that is late delays nothing but its own tools.

use anyhow::Result;
use toolbay::{Host, OpenApiInfo};
use toolbay_policy::{OpenApiService, name};

use super::args::SetupArgs;
use super::host::{self, HostPurpose};
use super::load_report::{self, ReportLevel};
use super::plugins::{load_plugins, record_names};
use crate::output::Printer;

/// Builds the host of a command that calls these tools. Their services are waited for; the other ones are loaded only for a
/// tool that can call others.
pub(crate) async fn load_host_for(args: &SetupArgs, level: ReportLevel, tools: &[&str]) -> Result<Host> {
    let host = host::host(args, HostPurpose::Run)?;
    let bears = |service: &OpenApiService| {
        let mut sources = tools.iter().filter_map(|tool| name::split_qualified(tool));
        sources.any(|(source, _)| source == service.name.as_str())
    };
    let (services, plugins) = tokio::join!(host.load_openapi_of(bears), load_plugins(args, &host, level));
    plugins?;
    report(args.printer, &services, level);
    let catalog = host.registry().snapshot();
    let calls_others = |tool: &&str| match catalog.get(tool) {
        Some(entry) => entry.invoker.invoke_grant(args.profile.as_deref()).is_some(),
        // A tool that searches for others, or an unknown one.
        None => name::split_qualified(tool).is_none(),
    };
    if tools.iter().any(calls_others) {
        report(args.printer, &wait_for(args, &host, |service| !bears(service)).await, level);
    }
    if host.openapi().len() == host.policy().openapi_services().count() {
        record_names(args, &host);
    }
    Ok(host)
}

/// Loads services for as long as the command line says. One that is late delays nothing but its own tools.
pub(crate) async fn wait_for(
    args: &SetupArgs,
    host: &Host,
    wanted: impl Fn(&OpenApiService) -> bool,
) -> Vec<OpenApiInfo> {
    let loaded = tokio::time::timeout(args.source_wait, host.load_openapi_of(wanted)).await;
    loaded.unwrap_or_else(|_| host.openapi())
}

/// Reports services that are not ready, and warnings about the others.
pub(crate) fn report(printer: Printer, services: &[OpenApiInfo], level: ReportLevel) {
    if level == ReportLevel::Quiet {
        return;
    }
    load_report::report_services(printer, services);
    for OpenApiInfo { name, warnings, .. } in services.iter().filter(|_| level == ReportLevel::Warnings) {
        warnings.iter().for_each(|warning| printer.warning(&format!("[openapi.{name}]: {warning}")));
    }
}
