//! The names that a policy can refer to: plugins and tools of the host, and existing files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::{ToolDef, ToolSource, tags};
use toolbay_policy::name::PluginId;
use toolbay_policy::{
    KnownNames, KnownPlugin, KnownService, KnownTool, Policy, PolicyError, PolicyFinding, PolicyReview,
};

use crate::error::LoadError;
use crate::explain::net_rule;
use crate::features::FEATURES;
use crate::host::Host;
use crate::host::this_machine::ThisMachine;
use crate::mcp_servers::add_saved_tools;
use crate::plugins::plugin::Plugin;
use crate::plugins::{reducers, settings};

/// A check of a policy against all that can be read without a network.
#[derive(Debug, Clone, Default)]
pub struct PolicyCheckReport {
    /// The warnings, sorted by line.
    pub findings: Vec<PolicyFinding>,
    /// The sources that could not be read although the policy names their tools: each as rules write it, with the
    /// reason.
    pub not_compared: BTreeMap<String, String>,
}

impl Host {
    /// Warns about entries of the policy that have no effect, or not the one that they seem to have: names that do not
    /// exist, missing files, rules that never decide. Blocks on the files.
    ///
    /// Plugins and tools are only compared after a directory was loaded, services and MCP servers once they are known.
    #[must_use]
    pub fn policy_warnings(&self) -> Vec<PolicyFinding> {
        let policy = self.policy();
        let mut known = self.known_names(&policy);
        known.services = self.loaded_services();
        self.review(&policy, &known, &ThisMachine::default()).findings
    }

    /// Like [`Host::policy_warnings`], for another policy. It also reads the documents of its services and the last
    /// lists of its MCP servers in a state directory, compares digests, and reports what a run would refuse. It sends
    /// no requests.
    pub async fn check_policy(&self, policy: &Arc<Policy>, state_dir: Option<&Path>) -> PolicyCheckReport {
        let mut known = self.known_names(policy);
        self.add_load_facts(&mut known);
        let (mut reasons, mut findings) = (BTreeMap::new(), Vec::new());
        findings.extend(self.openapi.add_known(policy, &mut known, &mut reasons).await);
        let of_servers = add_saved_tools(state_dir, policy, &mut known);
        for problem in self.problems() {
            let stem = problem.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let id = problem.plugin.as_ref().map_or(stem, ToString::to_string);
            reasons.insert(format!("plugin:{id}"), problem.to_string());
        }
        let machine = ThisMachine::with_run(policy, &self.installed.services().process.protected);
        let review = self.review(policy, &known, &machine);
        findings.extend(review.findings);
        findings.extend(policy.unused_sections());
        findings.extend(of_servers);
        findings
            .extend(policy.check_features(FEATURES).err().iter().flat_map(PolicyError::findings).cloned());
        findings.sort_by_key(|finding| (finding.line, finding.column));
        let not_compared = review.not_compared.into_iter().map(|source| {
            let unlisted = || "they were not listed yet".to_owned();
            let reason = reasons.remove(&source).unwrap_or_else(unlisted);
            (source, reason)
        });
        PolicyCheckReport { findings, not_compared: not_compared.collect() }
    }

    fn review(&self, policy: &Policy, known: &KnownNames, machine: &ThisMachine) -> PolicyReview {
        let mut review = policy.review(known, machine);
        let catalog = self.registry().snapshot();
        review.findings.extend(policy.long_name_findings(catalog.tools().map(|entry| entry.def.named())));
        review.findings.extend(policy.feature_warnings(FEATURES));
        review.findings.sort_by_key(|finding| (finding.line, finding.column));
        review
    }

    /// The existing names. Settings are checked under `policy`.
    fn known_names(&self, policy: &Policy) -> KnownNames {
        let catalog = self.registry().snapshot();
        // Only rules about arguments read schemas.
        let with_arguments = policy.has_argument_rules();
        let mut known = KnownNames {
            plugins: self.known_plugins(policy),
            tags: tags::DERIVED.map(str::to_owned).into(),
            reducers: reducers::all().map(|(name, _)| name.to_owned()).collect(),
            ..KnownNames::default()
        };
        for name in [toolbay_discovery::SEARCH, toolbay_discovery::DESCRIBE, toolbay_discovery::CALL] {
            known.tools.insert(name.to_owned(), KnownTool { kind: "builtin", ..KnownTool::default() });
        }
        for entry in catalog.tools() {
            let tool = known_tool(entry, with_arguments);
            known.toolsets.extend(entry.def.keywords.toolset.clone());
            known.add_tool(entry.def.full_name().to_string(), tool.clone());
            known.add_tool(entry.def.name.to_string(), tool);
        }
        known
    }

    /// The loaded plugins, and those whose files are only present. `None` if the host has no plugin directory and no
    /// plugin.
    fn known_plugins(&self, policy: &Policy) -> Option<BTreeMap<String, KnownPlugin>> {
        let files = self.installed.known_files()?;
        let absent =
            files.into_iter().filter_map(|file| Some((file.id?.to_string(), KnownPlugin::default())));
        let mut plugins: BTreeMap<String, KnownPlugin> = absent.collect();
        for (id, active) in &self.installed.snapshot().plugins {
            plugins.insert(id.to_string(), known_plugin(policy, id, &active.plugin));
        }
        Some(plugins)
    }

    /// Adds what a host with this policy reports when it loads: names and digests of files, and settings without
    /// effect.
    fn add_load_facts(&self, known: &mut KnownNames) {
        for file in self.installed.known_files().into_iter().flatten() {
            let name = file.path.as_deref().and_then(Path::file_name);
            known.files.extend(name.map(|name| name.to_string_lossy().into_owned()));
            let plugin = file.id.and_then(|id| known.plugins.as_mut()?.get_mut(id.as_str()));
            if let Some(plugin) = plugin {
                plugin.sha256 = file.digest.map(|digest| digest.to_string());
            }
        }
        for (id, active) in &self.installed.snapshot().plugins {
            let about = active.plugin.descriptor.about.as_ref();
            if let Some(plugin) = known.plugins.as_mut().and_then(|plugins| plugins.get_mut(id.as_str())) {
                plugin.ignores_reuse = !about.is_some_and(|about| about.reusable);
            }
        }
    }

    /// The services whose documents are loaded. Names in their sections that match nothing are reported with the load.
    fn loaded_services(&self) -> BTreeMap<String, KnownService> {
        let catalog = self.registry().snapshot();
        let loaded = self.openapi().into_iter().filter(|info| info.error.is_none());
        let services = loaded.map(|info| {
            let label = ToolSource::OpenApi { document: info.name.as_str().into() }.label();
            let mut service = KnownService::default();
            for entry in catalog.from_source(&label) {
                service.tools.insert(entry.def.own_name().to_owned());
                service.reached.extend(entry.def.capabilities.iter().filter_map(net_rule));
            }
            (info.name, service)
        });
        services.collect()
    }
}

/// A tool of the catalog. The derived tags depend on its grants, so it has every tag that its declared capabilities
/// allow.
fn known_tool(entry: &ToolEntry, with_arguments: bool) -> KnownTool {
    let def: &ToolDef = &entry.def;
    let label = def.source.as_label();
    let own = entry.tags().iter().map(ToString::to_string);
    KnownTool {
        kind: label.kind,
        source: label.name.to_owned(),
        tags: own.chain(tags::possible_tags(label.kind, &def.capabilities).map(str::to_owned)).collect(),
        arguments: with_arguments.then(|| def.input_schema.value().clone()),
    }
}

fn known_plugin(policy: &Policy, id: &PluginId, plugin: &Plugin) -> KnownPlugin {
    let descriptor = &plugin.descriptor;
    let schema = descriptor.about.as_ref().and_then(|about| about.config_schema.as_ref());
    let refused_setting = match settings::check(policy, id, schema) {
        Err(LoadError::InvalidSetting { key, problem, .. }) => Some((key, problem)),
        Ok(_) | Err(_) => None,
    };
    let tools = descriptor.tools.iter().map(|tool| (tool.name.clone(), tool.capabilities.clone()));
    let reducers: BTreeSet<String> =
        descriptor.reducers.iter().map(|reducer| reducer.tool_name.clone()).collect();
    KnownPlugin { tools: Some(tools.collect()), reducers, refused_setting, ..KnownPlugin::default() }
}
