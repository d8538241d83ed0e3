//! The policy as it is written, and how it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::document::PolicyDocument;
use super::problem::{PolicyProblem, nest_under};
use super::servers::ServerSection;
use super::{MAX_REUSE, PluginPolicy, Policy, Profile, ReducerBinding, RuleLists, ToolPolicy};
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
use crate::quantity::unit::{OptionalQuantity, Size, Time, Timeout};
use crate::rule::GrantRule as _;
use crate::schema::{AbsolutePath, PluginKey, ProgramName, SecretName, ServerName, ServiceName, ToolKey};
use crate::serve::ServePolicy;
use crate::session::{SessionLimits, SessionLimitsPatch};

/// A table that holds rules beside other keys. `serde(flatten)` would give up both the lines in errors and the
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
            fn rules(&self, workspace: &Path) -> Result<RuleLists, String> {
                Ok(RuleLists { $($key: self.$key.rules(stringify!($key), workspace)?,)* })
            }
        }
    };
}

/// A Toolbay policy. What it does not allow is denied.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Toolbay policy")]
pub(super) struct PolicyFile {
    /// The version of this format: 1.
    // Compared before all else, see [`read`].
    #[serde(rename = "version")]
    #[schemars(range(min = 1, max = 1))]
    _version: u32,
    /// What `$workspace` and relative paths of calls mean, relative to the policy's folder, which is the default.
    workspace: Option<String>,
    /// Bounds of all calls together.
    #[serde(default)]
    host: HostLimitsPatch,
    /// Bounds of a call of any plugin.
    #[serde(default)]
    limits: CallLimitsPatch,
    /// What one conversation may use up.
    #[serde(default)]
    session: SessionLimitsPatch,
    /// What becomes of calls that no rule fits.
    #[serde(default)]
    permissions: PermissionsSection,
    /// Which calls happen; the first rule that fits decides.
    #[serde(default)]
    rule: Vec<permission::PermissionRuleSection>,
    /// How results are given out.
    #[serde(default)]
    results: OutputSettings,
    /// Whether the model is asked why it calls. Default: false.
    toolcall_reason: Option<bool>,
    /// Who may use the tools over HTTP. Default: this machine only.
    #[serde(default)]
    serve: ServePolicy,
    /// Whether calls need the audit, and how much of it is kept.
    #[serde(default)]
    audit: AuditPolicy,
    /// Programs that `process` lists may name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ProgramName, ProgramSection>")]
    programs: BTreeMap<String, ProgramSection>,
    /// Credentials that `secrets` lists may name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<SecretName, SecretSection>")]
    secrets: BTreeMap<String, SecretSection>,
    /// Who calls under a profile sees and reaches no more than its table lets through.
    #[serde(default)]
    profile: BTreeMap<String, ProfileSection>,
    /// Plugins by id. A plugin without a table can only compute.
    #[serde(default)]
    #[schemars(with = "BTreeMap<PluginKey, PluginSection>")]
    plugins: BTreeMap<String, PluginSection>,
    /// Other MCP servers whose tools are taken.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ServerName, ServerSection>")]
    mcp: BTreeMap<String, ServerSection>,
    /// Services that an OpenAPI document describes.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ServiceName, super::openapi::OpenApiSection>")]
    openapi: BTreeMap<String, super::openapi::OpenApiSection>,
}

/// What becomes of calls that no rule fits.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
struct PermissionsSection {
    /// What becomes of a call that no rule fits. Default: `allow`.
    default: Option<Action>,
    /// The same for tools whose author wants each call approved. Default: `ask`.
    needs_approval: Option<Action>,
    /// How long a question waits for its answer; at most a day. Default: 5m.
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

/// What becomes of calls that no rule of the profile fits.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfilePermissionsSection {
    /// What becomes of a call that no rule fits.
    default: Action,
}

/// A plugin.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginSection {
    /// File in the plugin directory that gets this id. Default: `ID.wasm`.
    pub(super) file: Option<String>,
    /// The only content that is loaded under this id, SHA-256 in hex.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    pub(super) sha256: Option<String>,
    /// Its tools that ask for it pass lists of toolsets.
    #[serde(default)]
    pub(super) always_include: bool,
    /// Settings that the plugin can read; never secrets.
    #[serde(default)]
    pub(super) config: BTreeMap<String, serde_json::Value>,
    /// Limits of this plugin, over those of all.
    #[serde(default)]
    pub(super) limits: CallLimitsPatch,
    /// Calls of all its tools run one after the other.
    #[serde(default)]
    pub(super) serial: bool,
    /// How many calls of one session to one tool an instance may answer; 0 and 1: one.
    #[serde(default)]
    #[schemars(range(max = MAX_REUSE))]
    pub(super) reuse: u32,
    /// How this plugin's results are given out.
    #[serde(default)]
    pub(super) results: OutputSettings,
    /// Whether the model is asked why it calls.
    pub(super) toolcall_reason: Option<bool>,
    /// What the plugin may reach. What is absent grants nothing.
    #[serde(default)]
    pub(super) grant: GrantSection,
    /// Tools that get less, by the tool's name without the plugin.
    #[serde(default)]
    #[schemars(with = "BTreeMap<ToolKey, ToolSection>")]
    pub(super) tools: BTreeMap<String, ToolSection>,
}

kinds!(with_rules! {
    /// What a plugin may reach.
    struct GrantSection {
        /// Qualified names of other plugins' tools whose results its reducers may see; `PLUGIN__TOOL = REDUCER` if the
        /// reducer has another name than the tool.
        #[schemars(inner(regex(pattern = "^[^=]+__[^=]*(=.*[^ ].*)?$")))]
        reduce: Vec<String>,
    }
});

kinds!(with_rules! {
    /// What is absent leaves the plugin's grant as it is; what is there narrows it.
    struct ToolSection {
        /// Limits of this tool, over the plugin's.
        #[schemars(schema_with = "tool_limits_schema")]
        limits: CallLimitsPatch,
        /// Its calls run one after the other.
        serial: Option<bool>,
        /// For how long a session may look a result up instead of running it again; at most a day.
        cache: OptionalQuantity<Duration, Timeout>,
        /// How this tool's results are given out.
        results: OutputSettings,
        /// Whether the model is asked why it calls.
        toolcall_reason: Option<bool>,
    }
});

kinds!(with_rules! {
    /// What calls under the profile see and reach. An absent list narrows nothing.
    struct ProfileSection {
        /// Plugins whose tools are seen, by id.
        plugins: Option<BTreeSet<String>>,
        /// Toolsets that are seen.
        toolsets: Option<BTreeSet<String>>,
        /// Tools that are seen, by qualified name.
        tools: Option<BTreeSet<String>>,
        /// Other MCP servers whose tools are seen, by name.
        mcp_servers: Option<BTreeSet<String>>,
        /// For some of these servers the tools that are seen.
        mcp_tools: Option<BTreeMap<String, BTreeSet<String>>>,
        /// Tools that are not seen, whatever lets them in.
        exclude_tools: BTreeSet<String>,
        /// The list has only what is always included; the rest is found by search.
        lazy: bool,
        /// Rules that make those of the policy stricter.
        rule: Vec<permission::PermissionRuleSection>,
        /// What becomes of a call that none of these rules fits.
        permissions: Option<ProfilePermissionsSection>,
    }
});

/// A program that `process` lists may name. No shell is involved.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgramSection {
    /// The file that is run, an absolute path.
    #[schemars(with = "AbsolutePath")]
    path: PathBuf,
    /// The variables it gets.
    #[serde(default)]
    env: RuleList<EnvRule>,
    /// Names of variables that a plugin may set for it.
    #[serde(default)]
    guest_env: RuleList<EnvRule>,
    /// Whether it may use the network: all of it.
    #[serde(default)]
    network: bool,
    /// The folder in which it starts, unless the plugin names another. Default: `$workspace`.
    cwd: Option<String>,
    /// How long one run may take. Default: the call's time-out.
    #[serde(default)]
    timeout: OptionalQuantity<Duration, Time>,
    /// Address space of each of its processes, as a text like `512MiB`.
    #[serde(default)]
    memory: OptionalQuantity<u64, Size>,
    /// Processes that it and all it starts may be at once. Default: 256.
    #[schemars(range(min = 1, max = program::MAX_PROCESSES))]
    processes: Option<u64>,
    /// Whole folders and files that it may read besides those of the tool.
    #[serde(default)]
    read: FolderList,
    /// Whole folders and files that it may write besides those of the tool.
    #[serde(default)]
    write: FolderList,
    /// Whole folders and files whose programs it may run besides the system's.
    #[serde(default)]
    execute: FolderList,
    /// Whether it may change modes, owners and attributes, of every file of the host's user.
    #[serde(default)]
    chmod: bool,
    /// What happens where the kernel cannot confine it. Default: `required`.
    sandbox: Option<SandboxMode>,
}

/// A credential that `secrets` lists may name. Its value is never in the policy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [
    {"required": ["origins"], "properties": {"origins": {"minItems": 1}}},
    {"required": ["reveal"], "properties": {"reveal": {"const": true}}},
]))]
struct SecretSection {
    /// Where the value is: `env:NAME`, `file:/absolute/path` or `keyring:NAME`.
    #[schemars(regex(pattern = "^((env|keyring):[^=]+|file:/.*)$"))]
    from: String,
    /// Where it may be sent, as origins: `https://api.example.com`.
    #[serde(default)]
    origins: RuleList<NetRule>,
    /// The request headers it may be put into. Default: `authorization`.
    #[serde(default)]
    headers: Vec<String>,
    /// The query parameters it may be put into, by services of OpenAPI documents only.
    #[serde(default)]
    query: Vec<String>,
    /// The plugin gets the value itself; otherwise a placeholder that the host replaces.
    #[serde(default)]
    reveal: bool,
}

fn tool_limits_schema(_: &mut SchemaGenerator) -> Schema {
    table::table_schema::<CallLimits>(|entry| !entry.has(LimitFlag::PerPlugin))
}

/// Makes a policy of what is left of a file, up to the first mistake.
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
    let permissions = file.permissions.resolve(parse_rules(file.rule)?);
    let mut policy = Policy {
        serve: file.serve.resolve(base).map_err(nest_under(["serve"]))?,
        audit: file.audit,
        host,
        limits: file.limits,
        session,
        permissions,
        results: file.results,
        toolcall_reason: file.toolcall_reason,
        ..Policy::deny_all(&workspace)
    };
    for (name, section) in file.programs {
        let program = section.resolve(&name, &workspace).map_err(nest_under(["programs", name.as_str()]))?;
        policy.programs.insert(name, program);
    }
    for (name, section) in file.secrets {
        let checked = secret::check_name(&name).and_then(|()| section.resolve(&workspace));
        let secret = checked.map_err(nest_under(["secrets", name.as_str()]))?;
        policy.secrets.insert(name, secret);
    }
    for (name, section) in file.profile {
        let profile = section.resolve(&name, &workspace).map_err(nest_under(["profile", name.as_str()]))?;
        policy.profiles.insert(name, std::sync::Arc::new(profile));
    }
    for (name, section) in file.plugins {
        let id = PluginId::new(&name)
            .map_err(|e| PolicyProblem::at_keys(["plugins", name.as_str()], e.to_string()))?;
        let plugin = section.resolve(&workspace).map_err(nest_under(["plugins", name.as_str()]))?;
        policy.plugins.insert(id, plugin);
    }
    policy.add_servers(file.mcp)?;
    policy.openapi = super::openapi::resolve_all(file.openapi, base, &workspace)?;
    policy.permissions.section_rules.extend(policy.openapi_permissions());
    policy.check_names()?;
    policy.check_openapi()?;
    Ok(policy)
}

/// The folder that `$workspace` means.
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
    let read = |(index, written)| {
        permission::PermissionRule::try_from(written)
            .map_err(|text| PolicyProblem::at_list_entry("rule", index, text))
    };
    written.into_iter().enumerate().map(read).collect()
}

impl Policy {
    fn add_servers(&mut self, sections: BTreeMap<String, ServerSection>) -> Result<(), PolicyProblem> {
        if sections.len() > MAX_SERVERS {
            return Err(PolicyProblem::at_keys(
                ["mcp"],
                format!("a policy has at most {MAX_SERVERS} servers"),
            ));
        }
        for (name, section) in sections {
            let server =
                section.resolve(&name, &self.workspace).map_err(nest_under(["mcp", name.as_str()]))?;
            self.permissions.section_rules.extend(server.permission_rules());
            self.servers.insert(server.name.clone(), std::sync::Arc::new(server));
        }
        Ok(())
    }
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

/// Checks a SHA-256 in hex and writes it in lower case.
pub(super) fn normalize_sha256(sha256: &mut Option<String>) -> Result<(), String> {
    let Some(digest) = sha256 else { return Ok(()) };
    digest.make_ascii_lowercase();
    match digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(()),
        false => Err("`sha256` is not 64 hex digits".to_owned()),
    }
}

impl PluginSection {
    fn resolve(mut self, workspace: &Path) -> Result<PluginPolicy, PolicyProblem> {
        self.limits.check().map_err(nest_under(["limits"]))?;
        if self.reuse > MAX_REUSE {
            return Err(format!("`reuse` can be at most {MAX_REUSE} calls").into());
        }
        normalize_sha256(&mut self.sha256)?;
        let reduce = self.grant.reduce.iter().map(|entry| ReducerBinding::parse(entry));
        let reduce = reduce.collect::<Result<_, _>>().map_err(nest_under(["grant"]))?;
        let mut tools = BTreeMap::new();
        for (name, section) in std::mem::take(&mut self.tools) {
            let id = ToolName::new(&name)
                .map_err(|e| PolicyProblem::at_keys(["tools", name.as_str()], e.to_string()))?;
            tools.insert(id, section.resolve(workspace).map_err(nest_under(["tools", name.as_str()]))?);
        }
        let rules = self.grant.rules(workspace).map_err(nest_under(["grant"]))?;
        let in_a_lane = self.serial || tools.values().any(|tool| tool.section.serial == Some(true));
        if in_a_lane && rules.invoke.as_ref().is_some_and(|rules| !rules.is_empty()) {
            let message = "`invoke` and `serial` exclude each other: a call that holds its lane while it waits for calls \
                           of its own could wait for itself; give tools that call others a plugin of their own";
            return Err(PolicyProblem::at_keys(["grant"], message));
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
        // What an author wants approved is the policy's to decide.
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
    fn resolve(self, name: &str, workspace: &Path) -> Result<Program, String> {
        program::check_name(name)?;
        let Some(path) = path_rule::normalize(&self.path).filter(|_| self.path.is_absolute()) else {
            return Err(format!("`path` is `{}`: write an absolute path", self.path.display()));
        };
        let guest_env = self.guest_env.rules_or_empty("guest_env", workspace)?;
        if guest_env.iter().any(|rule| rule.value.is_some()) {
            return Err("`guest_env` has names without values: the plugin sets them".to_owned());
        }
        let cwd = PathRule::parse(self.cwd.as_deref().unwrap_or("$workspace"), workspace);
        Ok(Program {
            path,
            env: self.env.rules_or_empty("env", workspace)?,
            guest_env: guest_env.into_iter().map(|rule| rule.name).collect(),
            network: self.network,
            cwd: cwd.map_err(|e| format!("`cwd`: {e}"))?.folder().to_path_buf(),
            timeout: self.timeout.0,
            memory_bytes: self.memory.0,
            processes: program::check_processes(self.processes)?,
            read: self.read.folders("read", workspace)?,
            write: self.write.folders("write", workspace)?,
            execute: self.execute.folders("execute", workspace)?,
            chmod: self.chmod,
            sandbox: self.sandbox.unwrap_or(SandboxMode::Required),
        })
    }
}

impl SecretSection {
    fn resolve(self, workspace: &Path) -> Result<Secret, String> {
        let origins = self.origins.rules_or_empty("origins", workspace)?;
        Secret::new(SecretSource::parse(&self.from)?, origins, &self.headers, self.reveal)?
            .with_query(self.query)
    }
}
