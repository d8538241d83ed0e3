//! What a policy can name: the plugins and tools of a host, and the files that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use toolbay_core::tool::tags;
use toolbay_policy::name::PluginId;
use toolbay_policy::{Finding, Known, KnownPlugin, PathKind, Policy};

use crate::error::LoadError;
use crate::host::Host;
use crate::plugins::plugin::Plugin;
use crate::plugins::{reducers, settings};

impl Host {
    /// What the policy names and is not there: plugins, tools, toolsets, reducers, files. Blocks on the files.
    ///
    /// Nothing is said of plugins and tools where no directory was loaded.
    #[must_use]
    pub fn policy_warnings(&self) -> Vec<Finding> {
        self.warnings_of(&self.policy())
    }

    /// The same of another policy than the host's.
    #[must_use]
    pub fn warnings_of(&self, policy: &Policy) -> Vec<Finding> {
        policy.warnings(&self.known(policy), &kind_of)
    }

    /// The names that there are; what the plugins say of their settings is said under `policy`.
    fn known(&self, policy: &Policy) -> Known {
        let catalog = self.registry().snapshot();
        let built_in = [toolbay_discovery::SEARCH, toolbay_discovery::DESCRIBE, toolbay_discovery::CALL]
            .map(ToOwned::to_owned);
        let tags = tags::DERIVED.iter().map(|tag| (*tag).to_owned());
        Known {
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

    /// The plugins that are loaded, and those that are only there. `None`: nobody looked for any.
    fn known_plugins(&self, policy: &Policy) -> Option<BTreeMap<String, KnownPlugin>> {
        let offered = self.installed.offered()?;
        let absent = offered.into_iter().map(|id| (id.to_string(), KnownPlugin::default()));
        let mut plugins: BTreeMap<String, KnownPlugin> = absent.collect();
        for (id, active) in &self.installed.snapshot().plugins {
            plugins.insert(id.to_string(), known(policy, id, &active.plugin));
        }
        Some(plugins)
    }
}

fn known(policy: &Policy, id: &PluginId, plugin: &Plugin) -> KnownPlugin {
    let descriptor = &plugin.descriptor;
    let schema = descriptor.about.as_ref().and_then(|about| about.config_schema.as_ref());
    let refused_setting = match settings::check(policy, id, schema) {
        Err(LoadError::Setting { key, problem, .. }) => Some((key, problem)),
        Ok(_) | Err(_) => None,
    };
    let tools: BTreeSet<String> = descriptor.tools.iter().map(|tool| tool.name.clone()).collect();
    KnownPlugin {
        tools: Some(tools),
        reducers: descriptor.reducers.iter().map(|reducer| reducer.tool_name.clone()).collect(),
        refused_setting,
    }
}

/// What is at a path, behind all links.
fn kind_of(path: &Path) -> PathKind {
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
