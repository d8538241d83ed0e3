//! The names that a policy can refer to: plugins and tools of the host, and existing files.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use toolbay_core::tool::tags;
use toolbay_policy::name::PluginId;
use toolbay_policy::{KnownNames, KnownPlugin, PathKind, Policy, PolicyFinding};

use crate::error::LoadError;
use crate::host::Host;
use crate::plugins::plugin::Plugin;
use crate::plugins::{reducers, settings};

impl Host {
    /// Warns about names in the policy that do not exist: plugins, tools, toolsets, reducers and files. Blocks on the
    /// files.
    ///
    /// Plugins and tools are only checked after a directory was loaded.
    #[must_use]
    pub fn policy_warnings(&self) -> Vec<PolicyFinding> {
        self.policy_warnings_for(&self.policy())
    }

    /// Like [`Host::policy_warnings`], for another policy.
    #[must_use]
    pub fn policy_warnings_for(&self, policy: &Policy) -> Vec<PolicyFinding> {
        policy.warnings(&self.known_names(policy), &path_kind)
    }

    /// The existing names. Settings are checked under `policy`.
    fn known_names(&self, policy: &Policy) -> KnownNames {
        let catalog = self.registry().snapshot();
        let built_in = [toolbay_discovery::SEARCH, toolbay_discovery::DESCRIBE, toolbay_discovery::CALL]
            .map(ToOwned::to_owned);
        let tags = tags::DERIVED.iter().map(|tag| (*tag).to_owned());
        KnownNames {
            plugins: self.known_plugins(policy),
            tools: catalog.tools().map(|entry| entry.def.name.to_string()).chain(built_in).collect(),
            toolsets: catalog.tools().filter_map(|entry| entry.def.keywords.toolset.clone()).collect(),
            tags: catalog
                .tools()
                .flat_map(|entry| entry.tags())
                .map(ToString::to_string)
                .chain(tags)
                .collect(),
            reducers: reducers::all().map(|(name, _)| name.to_owned()).collect(),
        }
    }

    /// The loaded plugins, and those whose files are only present. `None` if no plugins were looked for.
    fn known_plugins(&self, policy: &Policy) -> Option<BTreeMap<String, KnownPlugin>> {
        let offered = self.installed.known_ids()?;
        let absent = offered.into_iter().map(|id| (id.to_string(), KnownPlugin::default()));
        let mut plugins: BTreeMap<String, KnownPlugin> = absent.collect();
        for (id, active) in &self.installed.snapshot().plugins {
            plugins.insert(id.to_string(), known_plugin(policy, id, &active.plugin));
        }
        Some(plugins)
    }
}

fn known_plugin(policy: &Policy, id: &PluginId, plugin: &Plugin) -> KnownPlugin {
    let descriptor = &plugin.descriptor;
    let schema = descriptor.about.as_ref().and_then(|about| about.config_schema.as_ref());
    let refused_setting = match settings::check(policy, id, schema) {
        Err(LoadError::InvalidSetting { key, problem, .. }) => Some((key, problem)),
        Ok(_) | Err(_) => None,
    };
    let tools: BTreeSet<String> = descriptor.tools.iter().map(|tool| tool.name.clone()).collect();
    KnownPlugin {
        tools: Some(tools),
        reducers: descriptor.reducers.iter().map(|reducer| reducer.tool_name.clone()).collect(),
        refused_setting,
    }
}

/// The kind of file at a path, after following links.
fn path_kind(path: &Path) -> PathKind {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => PathKind::Folder,
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => PathKind::Program,
        Ok(found) if found.is_file() => PathKind::File,
        Ok(_) => PathKind::Other,
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            PathKind::Missing
        }
        Err(_) => PathKind::Other,
    }
}
