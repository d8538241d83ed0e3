//! The policy (`toolbay.toml`), and the one function that computes grants from declarations and a policy.
//!
//! A plugin without a section can only compute. A grant is the intersection of the tool's declaration, the plugin's
//! grant, the tool's own section and the profile of the call. An empty list grants nothing. An unknown key is an
//! error, because the operator might rely on a restriction that is not enforced.

mod advice;
mod check;
mod document;
mod explain;
mod features;
mod file;
mod grant;
mod long_names;
mod names;
mod openapi;
mod pin;
mod registries;
mod rules;
mod schema;
mod server_oauth;
mod servers;
mod trust;
mod warnings;

pub use advice::{AccessQuery, Advice};
pub use check::{MAX_FINDINGS, PolicyCheck, PolicyFinding, Severity};
pub(crate) use explain::uncovered_lines;
pub use explain::{LimitRow, ProposedLine};
pub use features::Feature;
pub use grant::{GrantDecision, Grants};
pub use long_names::NamedTool;
pub use openapi::{ApprovalMode, DocumentLocation, OpenApiService, OpenApiToolSettings, ServiceHeader};
pub use openapi::{MAX_NAME as MAX_OPENAPI_NAME, MAX_QUALIFIED as MAX_OPENAPI_QUALIFIED};
pub use warnings::{
    FileContent, KnownNames, KnownPlugin, KnownService, KnownTool, Machine, PathKind, PolicyReview,
    ProgramRefusal, ProgramSection,
};

use crate::problem::PolicyProblem;
use check::PolicySource;
use file::{PluginSection, ToolSection};
use rules::RuleLists;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::admin::AdminPolicy;
use crate::audit_policy::AuditPolicy;
pub use crate::capability::GrantKey;
use crate::capability::path_rule::PathRule;
use crate::capability::program::Program;
use crate::capability::secret::Secret;
use crate::limits::{CallLimits, CallLimitsPatch, HostLimits};
use crate::mcp_server::McpServer;
use crate::name::{self, PluginId, ToolName};
use crate::output::OutputSettings;
use crate::permission::Permissions;
use crate::registry::{RegistryHost, RegistryPolicy};
use crate::serve::ServePolicy;
use crate::session::SessionLimits;
use crate::shared::SharedPolicy;
use crate::telemetry::TelemetryPolicy;
use crate::trust::TrustRule;

/// Largest `reuse`. It bounds the leaks of an instance over time.
pub const MAX_REUSE: u32 = 10_000;

/// Longest name that a message repeats, in characters.
const MAX_SHOWN: usize = 100;

/// The operator's policy, parsed and checked. Lookups are cheap and do no I/O.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    workspace: PathBuf,
    host: HostLimits,
    limits: CallLimitsPatch,
    permissions: Permissions,
    session: SessionLimits,
    results: OutputSettings,
    toolcall_reason: Option<bool>,
    serve: ServePolicy,
    audit: AuditPolicy,
    admin: Option<AdminPolicy>,
    telemetry: Option<TelemetryPolicy>,
    shared: SharedPolicy,
    epoch: Option<u64>,
    programs: BTreeMap<String, Program>,
    secrets: BTreeMap<String, Secret>,
    profiles: BTreeMap<String, Arc<Profile>>,
    plugins: BTreeMap<PluginId, PluginPolicy>,
    servers: BTreeMap<PluginId, Arc<McpServer>>,
    openapi: BTreeMap<PluginId, Arc<OpenApiService>>,
    registries: BTreeMap<RegistryHost, RegistryPolicy>,
    trust: Vec<TrustRule>,
    source: PolicySource,
}

/// An entry of `reduce`: the tool of another plugin, and the reducer that receives its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReducerBinding {
    /// The tool's qualified name.
    pub tool: String,
    /// The reducer's name. By default the tool's name without its plugin.
    pub reducer: String,
}

impl std::fmt::Display for ReducerBinding {
    /// Writes it as the policy would.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match name::split_qualified(&self.tool) {
            Some((_, bare)) if bare == self.reducer => f.write_str(&self.tool),
            _ => write!(f, "{} = {}", self.tool, self.reducer),
        }
    }
}

/// A plugin's section with its parsed lists.
#[derive(Debug, Clone, Default, PartialEq)]
struct PluginPolicy {
    section: PluginSection,
    rules: RuleLists,
    reduce: Vec<ReducerBinding>,
    tools: BTreeMap<ToolName, ToolPolicy>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct ToolPolicy {
    section: ToolSection,
    rules: RuleLists,
}

/// A profile: the visible tools and the grants of its calls. Only a policy creates profiles, so that visibility and
/// grants of a name are defined in one place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    name: Arc<str>,
    rules: RuleLists,
    /// Permissions of calls under it. They can only make the policy's rules stricter.
    pub permissions: Permissions,
    /// Ids of visible plugins. `None` shows all.
    pub plugins: Option<BTreeSet<String>>,
    /// Visible toolsets. `None` shows all.
    pub toolsets: Option<BTreeSet<String>>,
    /// Qualified names of visible tools. `None` shows all.
    pub tools: Option<BTreeSet<String>>,
    /// Names of visible MCP servers. `None` shows all.
    pub mcp_servers: Option<BTreeSet<String>>,
    /// Visible tools per MCP server, by their names without prefix. A missing server shows all.
    pub mcp_tools: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Qualified names of hidden tools, even if another list includes them.
    pub exclude_tools: BTreeSet<String>,
    /// Whether only always-included tools are listed. All others are found by search.
    pub lazy: bool,
}

impl Profile {
    /// The name of the profile in the policy.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// Why a policy was refused: all mistakes with line and column. Its message shows the first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PolicyError(Vec<PolicyFinding>);

impl Policy {
    /// The policy of a host without a policy file: all defaults, nothing granted.
    #[must_use]
    pub fn deny_all(workspace: &Path) -> Self {
        Self { workspace: workspace.to_path_buf(), ..Self::default() }
    }

    /// Parses a policy. A relative `workspace` in the file is resolved against `base`, an absolute folder. The
    /// argument `workspace` overrides the file.
    ///
    /// ```
    /// use std::path::Path;
    /// use toolbay_policy::Policy;
    ///
    /// let text = r#"
    ///     version = 1
    ///     [plugins.files.grant]
    ///     fs_read = ["$workspace/**"]
    /// "#;
    /// let policy = Policy::parse(text, Path::new("/srv/agent"), None)?;
    /// assert_eq!(policy.plugins().count(), 1);
    ///
    /// let error = Policy::parse("version = 1\nworkspce = '.'", Path::new("/srv/agent"), None).unwrap_err();
    /// assert!(error.to_string().starts_with("line 2, column 1"));
    /// # Ok::<(), toolbay_policy::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// Lists all mistakes with line and column.
    pub fn parse(text: &str, base: &Path, workspace: Option<&Path>) -> Result<Self, PolicyError> {
        match Self::check(text, base, workspace) {
            PolicyCheck { policy: Some(policy), errors } if errors.is_empty() => Ok(policy),
            PolicyCheck { errors, .. } => Err(PolicyError::new(errors)),
        }
    }

    /// Returns a policy that grants nothing but keeps the ids of plugin files, for commands that only inspect
    /// plugins.
    #[must_use]
    pub fn names_only(&self) -> Self {
        let named = self.plugins().filter_map(|(id, file)| {
            let section = PluginSection { file: Some(file?.to_owned()), ..Default::default() };
            Some((id.clone(), PluginPolicy { section, ..Default::default() }))
        });
        let plugins = named.collect();
        Self { plugins, ..Self::deny_all(&self.workspace) }
    }

    /// Returns the section of another source with this plugin id, in any letter case: `[mcp.github]`. Rules for that
    /// source must not apply to a plugin file with its name.
    #[must_use]
    pub fn conflicting_section(&self, id: &PluginId) -> Option<String> {
        self.sources_named_like(id).next().map(|(kind, name)| format!("[{kind}.{name}]"))
    }

    /// The sections of other sources with this plugin id, in any letter case: the kind and the name.
    fn sources_named_like(&self, id: &PluginId) -> impl Iterator<Item = (&'static str, &str)> {
        let servers = self.servers.keys().map(|name| ("mcp", name.as_str()));
        let services = self.openapi.keys().map(|name| ("openapi", name.as_str()));
        servers.chain(services).filter(move |(_, name)| name.eq_ignore_ascii_case(id.as_str()))
    }

    /// The sections of the file, each with its text: `plugins.files`, `serve`. Two files differ in the sections whose texts
    /// do.
    #[must_use]
    pub fn section_texts(&self) -> BTreeMap<String, String> {
        self.source.section_texts()
    }

    /// The settings of the HTTP server.
    #[must_use]
    pub fn serve(&self) -> &ServePolicy {
        &self.serve
    }

    /// Traces and metrics over OTLP; `None` if there are none.
    #[must_use]
    pub fn telemetry(&self) -> Option<&TelemetryPolicy> {
        self.telemetry.as_ref()
    }

    /// The same policy as part of a published epoch.
    #[must_use]
    pub fn with_epoch(self, epoch: Option<u64>) -> Self {
        Self { epoch, ..self }
    }

    /// The number of the published epoch that has the policy; `None` if it comes from a file of this machine.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// What servers require of the state that they share.
    #[must_use]
    pub fn shared(&self) -> &SharedPolicy {
        &self.shared
    }

    /// The admin listener; `None` if there is none.
    #[must_use]
    pub fn admin(&self) -> Option<&AdminPolicy> {
        self.admin.as_ref()
    }

    /// The settings of the audit.
    #[must_use]
    pub fn audit(&self) -> &AuditPolicy {
        &self.audit
    }

    /// The registries with a section.
    pub fn registries(&self) -> impl Iterator<Item = (&RegistryHost, &RegistryPolicy)> {
        self.registries.iter()
    }

    /// The settings of a registry; the default ones without a section.
    #[must_use]
    pub fn registry(&self, host: &RegistryHost) -> RegistryPolicy {
        self.registries.get(host).cloned().unwrap_or_default()
    }

    /// The rules about signatures.
    pub fn trust_rules(&self) -> impl Iterator<Item = &TrustRule> {
        self.trust.iter()
    }

    /// The rule for a repository: the one with the longest scope that contains it.
    #[must_use]
    pub fn trust_for(&self, host: &RegistryHost, repository: &str) -> Option<&TrustRule> {
        let rules = self.trust.iter().filter(|rule| rule.scope.contains(host, repository));
        rules.max_by_key(|rule| rule.scope.depth())
    }

    /// The absolute folder that `$workspace` stands for. Relative paths from guests are resolved against it.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The limits of the whole host.
    #[must_use]
    pub fn host(&self) -> &HostLimits {
        &self.host
    }

    /// The permissions of calls.
    #[must_use]
    pub fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    /// Whether a rule of the policy or of a profile depends on arguments.
    #[must_use]
    pub fn has_argument_rules(&self) -> bool {
        let profiles = self.profiles.values().map(|profile| &profile.permissions);
        let mut all = profiles.chain([&self.permissions]).flat_map(|permissions| &permissions.rules);
        all.any(|rule| !rule.args.is_empty())
    }

    /// The limits of one session.
    #[must_use]
    pub fn session(&self) -> &SessionLimits {
        &self.session
    }

    /// The key of the queue that serializes a tool's calls: of the tool, or of its plugin. `None` if they run in
    /// parallel.
    #[must_use]
    pub fn serial_queue(&self, plugin: &PluginId, tool: &ToolName) -> Option<Arc<str>> {
        let own = self.plugins.get(plugin)?;
        match own.tools.get(tool).and_then(|tool| tool.section.serial) {
            None if own.section.serial => Some(plugin.as_str().into()),
            Some(true) => Some(format!("{plugin}{}{tool}", name::NAME_SEPARATOR).into()),
            None | Some(false) => None,
        }
    }

    /// How long a session may reuse a tool's results instead of running it.
    #[must_use]
    pub fn cache(&self, plugin: &PluginId, tool: &ToolName) -> Option<Duration> {
        self.plugins.get(plugin)?.tools.get(tool)?.section.cache.0
    }

    /// A program by its name in the policy.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<&Program> {
        self.programs.get(name)
    }

    /// All programs by name.
    pub fn programs(&self) -> impl Iterator<Item = (&str, &Program)> {
        self.programs.iter().map(|(name, program)| (name.as_str(), program))
    }

    /// The paths that plugins may write, each with the plugin.
    pub fn writable_paths(&self) -> impl Iterator<Item = (&PluginId, &PathRule)> {
        self.plugins
            .iter()
            .flat_map(|(id, plugin)| plugin.rules.fs_write.iter().flatten().map(move |r| (id, r)))
    }

    /// All secrets by name, without values.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.secrets.iter().map(|(name, secret)| (name.as_str(), secret))
    }

    /// A profile by name.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Arc<Profile>> {
        self.profiles.get(name)
    }

    /// All profiles by name, as the registry needs them.
    #[must_use]
    pub fn profiles_by_name(&self) -> Arc<BTreeMap<Arc<str>, Arc<Profile>>> {
        let all = self.profiles.iter();
        Arc::new(all.map(|(name, profile)| (name.as_str().into(), Arc::clone(profile))).collect())
    }

    /// The names of all profiles.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// The plugins with a section, each with its file name if it sets one.
    pub fn plugins(&self) -> impl Iterator<Item = (&PluginId, Option<&str>)> {
        self.plugins.iter().map(|(id, plugin)| (id, plugin.section.file.as_deref()))
    }

    /// Whether the policy grants key-value storage to a plugin or to one of its tools.
    #[must_use]
    pub fn grants_kv(&self, plugin: &PluginId) -> bool {
        let has_kv = |rules: &RuleLists| rules.kv.as_ref().is_some_and(|scopes| !scopes.is_empty());
        self.plugins.get(plugin).is_some_and(|plugin| {
            has_kv(&plugin.rules) || plugin.tools.values().any(|tool| has_kv(&tool.rules))
        })
    }

    /// The tools of a plugin with a section.
    pub fn tool_sections(&self, plugin: &PluginId) -> impl Iterator<Item = &ToolName> {
        self.plugins.get(plugin).into_iter().flat_map(|section| section.tools.keys())
    }

    /// The pinned SHA-256 of a plugin, in lower-case hex.
    #[must_use]
    pub fn pinned_sha256(&self, plugin: &PluginId) -> Option<&str> {
        self.plugins.get(plugin)?.section.sha256.as_deref()
    }

    /// Whether always-included tools of a plugin are visible regardless of toolset lists.
    #[must_use]
    pub fn always_include(&self, plugin: &PluginId) -> bool {
        self.plugins.get(plugin).is_some_and(|plugin| plugin.section.always_include)
    }

    /// How many calls an instance may serve, if the plugin declares reuse as safe. The next call of the same session
    /// to the same tool then gets the instance in its current state. With 0 or 1, each call gets a new instance.
    #[must_use]
    pub fn reuse(&self, plugin: &PluginId) -> u32 {
        self.plugins.get(plugin).map_or(0, |plugin| plugin.section.reuse)
    }

    /// The operator's settings for a plugin.
    #[must_use]
    pub fn config(&self, plugin: &PluginId) -> Option<&BTreeMap<String, serde_json::Value>> {
        self.plugins.get(plugin).map(|p| &p.section.config)
    }

    /// The line of the policy, from 1, that has a setting of a plugin.
    #[must_use]
    pub fn config_line(&self, plugin: &PluginId, key: &str) -> Option<usize> {
        let path = ["plugins", plugin.as_str(), "config", key];
        self.source.line(&PolicyProblem::at_keys(path, String::new()))
    }

    /// The limits of a plugin (for metadata queries and reductions), or of one of its tools.
    #[must_use]
    pub fn limits(&self, plugin: &PluginId, tool: Option<&ToolName>) -> CallLimits {
        let limits = self.limits.apply(CallLimits::default());
        let Some(own) = self.plugins.get(plugin) else { return limits };
        let limits = own.section.limits.apply(limits);
        match tool.and_then(|tool| own.tools.get_key_value(tool)) {
            Some((name, tool)) => tool.section.limits.apply_to_tool(limits, name),
            None => limits,
        }
    }

    /// Whether fuel is counted by default.
    #[must_use]
    pub fn counts_fuel(&self) -> bool {
        self.limits.apply(CallLimits::default()).fuel.is_some()
    }

    /// The largest `args_bytes` of any tool.
    #[must_use]
    pub fn largest_args_bytes(&self) -> u64 {
        let all = self.limits.apply(CallLimits::default());
        let sections = self.plugins.values().flat_map(|plugin| {
            let of_plugin = plugin.section.limits.apply(all.clone());
            let of_tools = plugin.tools.values().map({
                let of_plugin = of_plugin.clone();
                move |tool| tool.section.limits.apply(of_plugin.clone()).args_bytes
            });
            of_tools.chain([of_plugin.args_bytes]).collect::<Vec<_>>()
        });
        sections.chain([all.args_bytes]).max().unwrap_or(all.args_bytes)
    }

    /// The output settings of all tools. Narrower settings override them.
    #[must_use]
    pub fn results(&self) -> OutputSettings {
        self.results
    }

    /// The output settings of one tool: of its section, and of its plugin's section for unset keys.
    #[must_use]
    pub fn tool_results(&self, plugin: &PluginId, tool: &ToolName) -> OutputSettings {
        let Some(own) = self.plugins.get(plugin) else { return OutputSettings::default() };
        let narrow = own.tools.get(tool).map(|tool| tool.section.results).unwrap_or_default();
        narrow.or(own.section.results)
    }

    /// Whether callers are asked for a reason, for tools and views without a setting of their own.
    #[must_use]
    pub fn asks_reason(&self) -> bool {
        self.toolcall_reason.unwrap_or(false)
    }

    /// Whether callers of a tool are asked for a reason: the setting of its section, or of its plugin's.
    #[must_use]
    pub fn tool_asks_reason(&self, plugin: &PluginId, tool: &ToolName) -> Option<bool> {
        let plugin = self.plugins.get(plugin)?;
        let of_tool = plugin.tools.get(tool).and_then(|tool| tool.section.toolcall_reason);
        of_tool.or(plugin.section.toolcall_reason)
    }

    /// The tools of other plugins whose results a plugin's reducers receive.
    #[must_use]
    pub fn reducer_bindings(&self, plugin: &PluginId) -> &[ReducerBinding] {
        self.plugins.get(plugin).map_or(&[], |p| &p.reduce)
    }

    fn plugin_rules(&self, plugin: &PluginId) -> Option<&RuleLists> {
        self.plugins.get(plugin).map(|p| &p.rules)
    }

    fn tool_rules(&self, plugin: &PluginId, tool: &ToolName) -> Option<&RuleLists> {
        self.plugins.get(plugin)?.tools.get(tool).map(|tool| &tool.rules)
    }
}

#[cfg(test)]
mod profile_tests;

#[cfg(test)]
mod policy_tests;
