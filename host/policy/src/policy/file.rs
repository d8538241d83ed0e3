//! The format of a policy file, and its conversion into a [`Policy`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::document::PolicyDocument;
use super::openapi::MAX_SERVICES;
use super::pin::normalize_sha256;
use super::servers::ServerSection;
use super::{MAX_REUSE, PluginPolicy, Policy, Profile, ReducerBinding, RuleLists, ToolPolicy};
use crate::admin::AdminSection;
use crate::audit_policy::AuditPolicy;
use crate::capability::environment::EnvRule;
use crate::capability::kind::kinds;
use crate::capability::list::{FolderList, RuleList};
use crate::capability::net::NetRule;
use crate::capability::path_rule::{self, PathRule};
use crate::capability::program::{self, Program, SandboxMode};
use crate::capability::secret::{self, Secret, SecretSource};
use crate::limits::table::{self, LimitFlag, LimitTable as _};
use crate::limits::{CallLimits, CallLimitsPatch, HostLimits, HostLimitsPatch};
use crate::mcp_server::MAX_SERVERS;
use crate::name::{self, PluginId, ToolName};
use crate::output::OutputSettings;
use crate::permission::{self, Action, Permissions};
use crate::problem::{PolicyProblem, nest_under, of_key};
use crate::quantity::unit::{OptionalQuantity, Size, Time, Timeout};
use crate::registry::MAX_REGISTRIES;
use crate::rule::GrantRule as _;
use crate::schema::{
    AbsolutePath, PluginKey, ProgramName, RegistryKey, SecretName, ServerName, ServiceName, ToolKey,
};
use crate::serve::ServePolicy;
use crate::session::{SessionLimits, SessionLimitsPatch};
use crate::shared::SharedPolicy;
use crate::telemetry::TelemetrySection;

/// Declares a table of grant rules and other keys. `serde(flatten)` would lose the line numbers of errors and the
/// refusal of unknown keys.
macro_rules! with_rules {
    (
        [$($([$($kind:tt)*])? $Key:ident $key:ident: $Rule:ty, $grants:tt;)*]
        $(#[$meta:meta])*
        struct $name_of_table:ident { $($(#[$field_meta:meta])* $field:ident: $ty:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct $name_of_table {
            $(#[doc = $grants] $key: RuleList<$Rule>,)*
            $($(#[$field_meta])* pub(super) $field: $ty,)*
        }

        impl $name_of_table {
            fn rules(&self, workspace: &Path) -> Result<RuleLists, PolicyProblem> {
                Ok(RuleLists { $($key: self.$key.rules(stringify!($key), workspace)?,)* })
            }
        }
    };
}

/// A Toolbay policy. It denies everything that it does not allow.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Toolbay policy")]
pub(super) struct PolicyFile {
    /// The version of this format: 1.
    // Checked before everything else, see [`read`].
    #[serde(rename = "version")]
    #[schemars(range(min = 1, max = 1))]
    _version: u32,
    /// The folder for `$workspace` and for relative paths of calls, relative to the policy's folder. Default: that
    /// folder.
    workspace: Option<String>,
    /// Limits of the whole host.
    #[serde(default)]
    host: HostLimitsPatch,
    /// Limits of a call of any plugin.
    #[serde(default)]
    limits: CallLimitsPatch,
    /// Limits of one session.
    #[serde(default)]
    session: SessionLimitsPatch,
    /// What happens to calls that no rule matches.
    #[serde(default)]
    permissions: PermissionsSection,
    /// Permission rules; the first match decides.
    #[serde(default)]
    rule: Vec<permission::PermissionRuleSection>,
    /// How results are delivered.
    #[serde(default)]
    results: OutputSettings,
    /// Whether the model is asked for the reason of its calls. Default: false.
    toolcall_reason: Option<bool>,
    /// Authentication and limits of the HTTP server. Default: local clients only.
    #[serde(default)]
    serve: ServePolicy,
    /// Whether calls require the audit, and how much of it is kept.
    #[serde(default)]
    audit: AuditPolicy,
    /// The admin listener of a running server. Default: none.
    #[serde(default)]
    admin: AdminSection,
    /// Traces and metrics over OTLP. Default: none.
    telemetry: Option<TelemetrySection>,
    /// What servers with `--shared` require of their shared state.
    #[serde(default)]
    shared: SharedPolicy,
    /// Programs that `process` lists may name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ProgramName, ProgramSection>")]
    programs: BTreeMap<String, ProgramSection>,
    /// Secrets that `secrets` lists may name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<SecretName, SecretSection>")]
    secrets: BTreeMap<String, SecretSection>,
    /// Profiles by name. A call under a profile sees and accesses no more than the profile allows.
    #[serde(default)]
    profile: BTreeMap<String, ProfileSection>,
    /// Plugins by id. A plugin without a table can only compute.
    #[serde(default)]
    #[schemars(with = "BTreeMap<PluginKey, PluginSection>")]
    plugins: BTreeMap<String, PluginSection>,
    /// Other MCP servers whose tools are imported.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ServerName, ServerSection>")]
    mcp: BTreeMap<String, ServerSection>,
    /// Services described by an OpenAPI document.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ServiceName, super::openapi::OpenApiSection>")]
    openapi: BTreeMap<String, super::openapi::OpenApiSection>,
    /// Registries that plugins come from, by host.
    #[serde(default)]
    #[schemars(with = "BTreeMap<RegistryKey, super::registries::RegistrySection>")]
    registry: BTreeMap<String, super::registries::RegistrySection>,
    /// Whose signatures count for which repositories.
    #[serde(default)]
    trust: Vec<super::trust::TrustSection>,
}

/// What happens to calls that no rule matches.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
struct PermissionsSection {
    /// What happens to a call that no rule matches. Default: `allow`.
    default: Option<Action>,
    /// The same for tools whose author wants each call approved. Default: `ask`.
    needs_approval: Option<Action>,
    /// How long an approval request waits for its reply; at most a day. Default: 5m.
    ask_timeout: OptionalQuantity<Duration, Timeout>,
}

impl PermissionsSection {
    fn resolve(self, rules: Vec<permission::PermissionRule>) -> Permissions {
        let default = Permissions::new(rules, self.default.unwrap_or(Action::Allow));
        Permissions {
            needs_approval: self.needs_approval.unwrap_or(default.needs_approval),
            ask_timeout: self.ask_timeout.0.unwrap_or(default.ask_timeout),
            ..default
        }
    }
}

/// What happens to calls that no rule of the profile matches.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfilePermissionsSection {
    /// What happens to a call that no rule matches.
    default: Action,
}

/// A plugin.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginSection {
    /// The file in the plugin directory that gets this id. Default: `ID.wasm`.
    pub(super) file: Option<String>,
    /// The only content that is loaded under this id, as SHA-256 in hex.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    pub(super) sha256: Option<String>,
    /// Whether its always-included tools are visible regardless of toolset lists.
    #[serde(default)]
    pub(super) always_include: bool,
    /// Settings that the plugin can read; never secrets.
    #[serde(default)]
    pub(super) config: BTreeMap<String, serde_json::Value>,
    /// Limits of this plugin; they override the limits of all plugins.
    #[serde(default)]
    pub(super) limits: CallLimitsPatch,
    /// Whether all calls of its tools run one after another.
    #[serde(default)]
    pub(super) serial: bool,
    /// How many calls of one session to one tool an instance may serve; 0 and 1 mean one.
    #[serde(default)]
    #[schemars(range(max = MAX_REUSE))]
    pub(super) reuse: u32,
    /// How this plugin's results are delivered.
    #[serde(default)]
    pub(super) results: OutputSettings,
    /// Whether the model is asked for the reason of its calls.
    pub(super) toolcall_reason: Option<bool>,
    /// What the plugin may access. An absent list grants nothing.
    #[serde(default)]
    pub(super) grant: GrantSection,
    /// Tools with narrower grants, by the tool's name without the plugin.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ToolKey, ToolSection>")]
    pub(super) tools: BTreeMap<String, ToolSection>,
}

kinds!(with_rules! {
    /// What a plugin may access.
    struct GrantSection {
        /// Qualified names of other plugins' tools whose results its reducers receive; `PLUGIN__TOOL = REDUCER` if
        /// the reducer's name differs from the tool's.
        #[schemars(inner(regex(pattern = "^[^=]+__[^=]*(=.*[^ ].*)?$")))]
        reduce: Vec<String>,
    }
});

kinds!(with_rules! {
    /// An absent list leaves the plugin's grant unchanged; a present list narrows it.
    struct ToolSection {
        /// Limits of this tool; they override the plugin's limits.
        #[schemars(schema_with = "tool_limits_schema")]
        limits: CallLimitsPatch,
        /// Whether its calls run one after another.
        serial: Option<bool>,
        /// How long a session may reuse a result instead of running the tool again; at most a day.
        cache: OptionalQuantity<Duration, Timeout>,
        /// How this tool's results are delivered.
        results: OutputSettings,
        /// Whether the model is asked for the reason of its calls.
        toolcall_reason: Option<bool>,
    }
});

kinds!(with_rules! {
    /// What calls under the profile see and access. An absent list narrows nothing.
    struct ProfileSection {
        /// Plugins whose tools are visible, by id.
        plugins: Option<BTreeSet<String>>,
        /// Visible toolsets.
        toolsets: Option<BTreeSet<String>>,
        /// Visible tools, by qualified name.
        tools: Option<BTreeSet<String>>,
        /// Other MCP servers whose tools are visible, by name.
        mcp_servers: Option<BTreeSet<String>>,
        /// The visible tools of single MCP servers.
        mcp_tools: Option<BTreeMap<String, BTreeSet<String>>>,
        /// Hidden tools, even if another list includes them.
        exclude_tools: BTreeSet<String>,
        /// Whether only always-included tools are listed. All others are found by search.
        lazy: bool,
        /// Rules that make those of the policy stricter.
        rule: Vec<permission::PermissionRuleSection>,
        /// What happens to a call that none of these rules matches.
        permissions: Option<ProfilePermissionsSection>,
    }
});

/// A program that `process` lists may name. No shell is involved.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgramSection {
    /// The file to run, an absolute path.
    #[schemars(with = "AbsolutePath")]
    path: PathBuf,
    /// Its environment variables.
    #[serde(default)]
    env: RuleList<EnvRule>,
    /// Names of variables that a plugin may set.
    #[serde(default)]
    guest_env: RuleList<EnvRule>,
    /// Whether it may use the network, without restrictions. Default: false.
    network: Option<bool>,
    /// The folder in which it starts, unless the plugin names another one. Default: `$workspace`.
    cwd: Option<String>,
    /// Timeout of one run. Default: the call's timeout.
    #[serde(default)]
    timeout: OptionalQuantity<Duration, Time>,
    /// Address space of each of its processes, as a string such as `512MiB`.
    #[serde(default)]
    memory: OptionalQuantity<u64, Size>,
    /// Most processes of the program, its descendants included. Default: 256.
    #[schemars(range(min = 1, max = program::MAX_PROCESSES))]
    processes: Option<u64>,
    /// Whole folders and files that it may read, besides those of the tool.
    #[serde(default)]
    read: FolderList,
    /// Whole folders and files that it may write, besides those of the tool.
    #[serde(default)]
    write: FolderList,
    /// Whole folders and files from which it may run programs, besides the system's.
    #[serde(default)]
    execute: FolderList,
    /// Whether it may change modes, owners and attributes of every file of the host's user. Default: false.
    chmod: Option<bool>,
    /// What happens if the kernel cannot confine it. Default: `required`.
    sandbox: Option<SandboxMode>,
}

/// A secret that `secrets` lists may name. Its value is never in the policy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [
    {"required": ["origins"], "properties": {"origins": {"minItems": 1}}},
    {"required": ["reveal"], "properties": {"reveal": {"const": true}}},
]))]
struct SecretSection {
    /// The source of the value: `env:NAME`, `file:/absolute/path` or `keyring:NAME`.
    #[schemars(regex(pattern = "^((env|keyring):[^=]+|file:/.*)$"))]
    from: String,
    /// The origins that may receive it: `https://api.example.com`.
    #[serde(default)]
    origins: RuleList<NetRule>,
    /// The request headers that may carry it. Default: `authorization`.
    #[serde(default)]
    headers: Vec<String>,
    /// The query parameters that may carry it, for services of OpenAPI documents only.
    #[serde(default)]
    query: Vec<String>,
    /// Whether plugins get the value itself. Otherwise they get a placeholder that the host replaces.
    #[serde(default)]
    reveal: bool,
}

fn tool_limits_schema(_: &mut SchemaGenerator) -> Schema {
    table::table_schema::<CallLimits>(|entry| !entry.has(LimitFlag::PerPlugin))
}

/// Converts an edited document into a policy. Stops at the first mistake.
pub(super) fn read(
    document: &PolicyDocument<'_>,
    base: &Path,
    workspace: Option<&Path>,
) -> Result<Policy, PolicyProblem> {
    if let Some(version) = document.unsupported_version() {
        let message = format!("`version = {version}`: this host reads version 1");
        return Err(PolicyProblem { is_final: true, ..PolicyProblem::at_keys(["version"], message) });
    }
    let tree = toml::Deserializer::from(document.tree());
    let file = PolicyFile::deserialize(tree).map_err(|error| document.problem_from(&error))?;
    let workspace = workspace_folder(file.workspace.as_deref(), base, workspace)?;
    file.limits.check().map_err(nest_under(["limits"]))?;
    let host = HostLimits::from(file.host);
    host.check_ranges().map_err(nest_under(["host"]))?;
    let session = SessionLimits::from(file.session);
    session.check_ranges().map_err(nest_under(["session"]))?;
    file.audit.check().map_err(nest_under(["audit"]))?;
    file.shared.check().map_err(nest_under(["shared"]))?;
    let permissions = file.permissions.resolve(parse_rules(file.rule)?);
    let mut policy = Policy {
        serve: file.serve.resolve(base).map_err(nest_under(["serve"]))?,
        audit: file.audit,
        admin: file.admin.resolve(base).map_err(nest_under(["admin"]))?,
        telemetry: file
            .telemetry
            .map(TelemetrySection::resolve)
            .transpose()
            .map_err(nest_under(["telemetry"]))?,
        shared: file.shared,
        host,
        limits: file.limits,
        session,
        permissions,
        results: file.results,
        toolcall_reason: file.toolcall_reason,
        ..Policy::deny_all(&workspace)
    };
    for (table, sections, most) in [
        ("mcp", file.mcp.len(), MAX_SERVERS),
        ("openapi", file.openapi.len(), MAX_SERVICES),
        ("registry", file.registry.len(), MAX_REGISTRIES),
    ] {
        if sections > most {
            let message = format!("a policy can have at most {most} sections [{table}.NAME]");
            return Err(PolicyProblem::at_keys([table], message));
        }
    }
    policy.programs = resolve_all("programs", file.programs, |name, section| {
        Ok((name.to_owned(), section.resolve(name, &workspace)?))
    })?;
    policy.secrets = resolve_all("secrets", file.secrets, |name, section| {
        secret::check_name(name)?;
        Ok((name.to_owned(), section.resolve(&workspace)?))
    })?;
    policy.profiles = resolve_all("profile", file.profile, |name, section| {
        Ok((name.to_owned(), Arc::new(section.resolve(name, &workspace)?)))
    })?;
    policy.plugins = resolve_all("plugins", file.plugins, |name, section| {
        let id = PluginId::new(name).map_err(|e| e.to_string())?;
        Ok((id, section.resolve(&workspace)?))
    })?;
    policy.servers = resolve_all("mcp", file.mcp, |name, section| {
        let server = section.resolve(name, base, &workspace)?;
        Ok((server.name.clone(), Arc::new(server)))
    })?;
    policy.openapi = resolve_all("openapi", file.openapi, |name, section| {
        let service = section.resolve(name, base, &workspace)?;
        Ok((service.name.clone(), Arc::new(service)))
    })?;
    policy.registries = resolve_all("registry", file.registry, |name, section| section.resolve(name, base))?;
    let of_servers = policy.servers.values().flat_map(|server| server.permission_rules());
    policy.permissions.section_rules.extend(of_servers);
    policy.trust = super::trust::resolve_all(file.trust, base)?;
    policy.permissions.section_rules.extend(policy.openapi_permissions());
    policy.check_names()?;
    policy.check_openapi()?;
    policy.check_registries()?;
    Ok(policy)
}

/// Resolves the sections of a table, by name.
fn resolve_all<S, K: Ord, T>(
    table: &str,
    sections: BTreeMap<String, S>,
    resolve: impl Fn(&str, S) -> Result<(K, T), PolicyProblem>,
) -> Result<BTreeMap<K, T>, PolicyProblem> {
    let resolve =
        |(name, section): (String, S)| resolve(&name, section).map_err(nest_under([table, name.as_str()]));
    sections.into_iter().map(resolve).collect()
}

/// Returns the folder that `$workspace` stands for.
fn workspace_folder(
    written: Option<&str>,
    base: &Path,
    given: Option<&Path>,
) -> Result<PathBuf, PolicyProblem> {
    let folder = given.map_or_else(|| base.join(written.unwrap_or(".")), Path::to_path_buf);
    let wrong = |message: String| PolicyProblem::at_keys(["workspace"], message);
    if !folder.is_absolute() {
        return Err(wrong(format!("the workspace `{}` is not an absolute path", folder.display())));
    }
    path_rule::normalize(&folder).ok_or_else(|| wrong("`workspace` leads above the root".to_owned()))
}

fn parse_rules(
    written: Vec<permission::PermissionRuleSection>,
) -> Result<Vec<permission::PermissionRule>, PolicyProblem> {
    let read = |(index, written): (usize, permission::PermissionRuleSection)| {
        permission::PermissionRule::try_from(written).map_err(|problem| problem.under_entry("rule", index))
    };
    written.into_iter().enumerate().map(read).collect()
}

impl ReducerBinding {
    /// Parses `PLUGIN__TOOL` or `PLUGIN__TOOL = REDUCER`.
    fn parse(entry: &str) -> Result<Self, String> {
        let (tool, reducer) = match entry.split_once('=') {
            Some((tool, reducer)) => (tool.trim(), Some(reducer.trim())),
            None => (entry, None),
        };
        let Some((_, bare)) = name::split_qualified(tool) else {
            return Err(format!("`reduce` names `{entry}`: write the qualified name, `PLUGIN__{entry}`"));
        };
        match reducer.unwrap_or(bare) {
            "" => Err(format!("`reduce` names `{entry}`: name the reducer, as in `{tool} = log`")),
            reducer => Ok(Self { tool: tool.to_owned(), reducer: reducer.to_owned() }),
        }
    }
}

impl PluginSection {
    fn resolve(mut self, workspace: &Path) -> Result<PluginPolicy, PolicyProblem> {
        self.limits.check().map_err(nest_under(["limits"]))?;
        if self.reuse > MAX_REUSE {
            let message = format!("`reuse` must be at most {MAX_REUSE}");
            return Err(PolicyProblem::at_keys(["reuse"], message));
        }
        normalize_sha256(&mut self.sha256)?;
        let parse = |(index, entry): (usize, &String)| {
            let at_entry = |why: String| PolicyProblem::from(why).in_entry(index);
            ReducerBinding::parse(entry).map_err(at_entry).map_err(nest_under(["grant", "reduce"]))
        };
        let reduce = self.grant.reduce.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        let mut tools = BTreeMap::new();
        for (name, section) in std::mem::take(&mut self.tools) {
            let id = ToolName::new(&name)
                .map_err(|e| PolicyProblem::at_keys(["tools", name.as_str()], e.to_string()))?;
            tools.insert(id, section.resolve(workspace).map_err(nest_under(["tools", name.as_str()]))?);
        }
        let rules = self.grant.rules(workspace).map_err(nest_under(["grant"]))?;
        let is_serial = self.serial || tools.values().any(|tool| tool.section.serial == Some(true));
        if is_serial && rules.invoke.as_ref().is_some_and(|rules| !rules.is_empty()) {
            let message = "`invoke` and `serial` exclude each other: a serial call that waits for nested calls could \
                           wait for itself; move the tools that call others to a separate plugin";
            return Err(PolicyProblem::at_keys(["grant", "invoke"], message));
        }
        Ok(PluginPolicy { section: self, rules, reduce, tools })
    }
}

impl ToolSection {
    fn resolve(self, workspace: &Path) -> Result<ToolPolicy, PolicyProblem> {
        self.limits.check_tool("plugins.ID").map_err(nest_under(["limits"]))?;
        Ok(ToolPolicy { rules: self.rules(workspace)?, section: self })
    }
}

impl ProfileSection {
    fn resolve(self, name: &str, workspace: &Path) -> Result<Profile, PolicyProblem> {
        let rules = self.rules(workspace)?;
        let of_profile = self::parse_rules(self.rule)?;
        let fallback = self.permissions.map_or(Action::Allow, |permissions| permissions.default);
        // `needs_approval` is decided by the policy, not by a profile.
        let permissions =
            Permissions { needs_approval: Action::Allow, ..Permissions::new(of_profile, fallback) };
        Ok(Profile {
            name: name.into(),
            rules,
            permissions,
            plugins: self.plugins,
            toolsets: self.toolsets,
            tools: self.tools,
            mcp_servers: self.mcp_servers,
            mcp_tools: self.mcp_tools,
            exclude_tools: self.exclude_tools,
            lazy: self.lazy,
        })
    }
}

impl ProgramSection {
    fn resolve(self, name: &str, workspace: &Path) -> Result<Program, PolicyProblem> {
        program::check_name(name)?;
        let Some(path) = path_rule::normalize(&self.path).filter(|_| self.path.is_absolute()) else {
            let message = format!("`path` is `{}`: write an absolute path", self.path.display());
            return Err(PolicyProblem::at_keys(["path"], message));
        };
        let guest_env = self.guest_env.rules_or_empty("guest_env", workspace)?;
        if guest_env.iter().any(|rule| rule.value.is_some()) {
            let message = "`guest_env` must list names without values: the plugin sets the values";
            return Err(PolicyProblem::at_keys(["guest_env"], message));
        }
        let sandbox = self.sandbox.unwrap_or(SandboxMode::Required);
        let keys = [
            ("read", !self.read.is_empty()),
            ("write", !self.write.is_empty()),
            ("execute", !self.execute.is_empty()),
            ("network", self.network == Some(false)),
            ("chmod", self.chmod == Some(false)),
        ];
        if sandbox == SandboxMode::None
            && let Some((key, _)) = keys.into_iter().find(|(_, is_written)| *is_written)
        {
            let message = format!("`{key}` has no effect on a program with `sandbox = \"none\"`: remove it");
            return Err(PolicyProblem::at_keys([key], message));
        }
        let cwd = PathRule::parse(self.cwd.as_deref().unwrap_or("$workspace"), workspace);
        Ok(Program {
            path,
            env: self.env.rules_or_empty("env", workspace)?,
            guest_env: guest_env.into_iter().map(|rule| rule.name).collect(),
            network: self.network.unwrap_or(false),
            cwd: cwd.map_err(of_key("cwd"))?.folder().to_path_buf(),
            timeout: self.timeout.0,
            memory_bytes: self.memory.0,
            processes: program::check_processes(self.processes)?,
            read: self.read.folders("read", workspace)?,
            write: self.write.folders("write", workspace)?,
            execute: self.execute.folders("execute", workspace)?,
            chmod: self.chmod.unwrap_or(false),
            sandbox,
        })
    }
}

impl SecretSection {
    fn resolve(self, workspace: &Path) -> Result<Secret, PolicyProblem> {
        let origins = self.origins.rules_or_empty("origins", workspace)?;
        let from = SecretSource::parse(&self.from).map_err(nest_under(["from"]))?;
        Secret::new(from, origins, &self.headers, self.reveal)?.with_query(self.query)
    }
}
