//! Ids that two sources have, so that one of them is not loaded.

use std::collections::{BTreeMap, BTreeSet};

use super::{CheckInput, CheckReport};
use crate::name::PluginId;

/// Adds a problem for each id that two sources have. Letter case does not count, because clients may not keep it.
pub(super) fn check_ids(input: &CheckInput<'_>, report: &mut CheckReport) {
    check_installed(input, report);
    check_files(input, report);
}

/// Compares installed plugins with each other, and with the sections of other sources.
fn check_installed(input: &CheckInput<'_>, report: &mut CheckReport) {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for id in input.known.plugins.iter().flatten().map(|(id, _)| id.as_str()) {
        let Ok(plugin) = PluginId::new(id) else { continue };
        // A plugin with a section of its own is an error.
        let has_section = input.policy.plugins.contains_key(&plugin);
        for (kind, name) in input.policy.sources_named_like(&plugin).filter(|_| !has_section) {
            let message = format!("the installed plugin `{id}` has this name, too, and is not loaded");
            report.warn([kind, name], message, "rename one of the two".to_owned());
        }
        if let Some(other) = seen.insert(id.to_ascii_lowercase(), id) {
            let message = format!("the plugins `{other}` and `{id}` differ only in letter case");
            let with_section = [id, other].into_iter().find(|id| input.policy.plugins.contains_key(*id));
            let table = with_section.map(|id| ["plugins", id]);
            report.warn(table.into_iter().flatten(), message, "rename one of the two".to_owned());
        }
    }
    let services = input.policy.openapi_services().map(|service| service.name.as_str());
    for name in services {
        let servers = input.policy.mcp_servers().map(|server| server.name.as_str());
        if let Some(server) = servers.into_iter().find(|server| server.eq_ignore_ascii_case(name)) {
            let message = format!("[mcp.{server}] has this name, too");
            report.warn(["openapi", name], message, "rename one of the two".to_owned());
        }
    }
}

/// Compares the ids that sections give to files with the ids that other files have by their names.
fn check_files(input: &CheckInput<'_>, report: &mut CheckReport) {
    let policy = input.policy;
    let renamed: BTreeSet<&str> = policy.plugins().filter_map(|(_, file)| file).collect();
    for (id, file) in policy.plugins() {
        let own = format!("{id}.wasm");
        if file.is_some() && !renamed.contains(own.as_str()) && input.known.files.contains(&own) {
            let message =
                format!("the file `{own}` has the id `{id}`, too, and only one of the two is loaded");
            let help = "give one of them another id".to_owned();
            report.warn(["plugins", id.as_str(), "file"], message, help);
        }
    }
}
