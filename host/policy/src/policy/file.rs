//! The policy as it is written, and how it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::document::Document;
use super::problem::{Problem, within};
use super::servers::ServerSection;
use super::{MAX_REUSE, PluginPolicy, Policy, Profile, Reduction, Rules, ToolPolicy};
use crate::audit_policy::AuditPolicy;
use crate::capability::environment::EnvRule;
use crate::capability::program::{self, Program, Sandbox};
use crate::capability::reach::{self, Reach};
use crate::capability::secret::{self, Secret, SecretSource};
use crate::limits::{self, HostLimits, LimitsPatch, MAX_TIMEOUT};
use crate::mcp_server::MAX_SERVERS;
use crate::name::{self, PluginId, ToolName};
use crate::output::Delivery;
use crate::permission::{self, Action, Permissions};
use crate::quantity;
use crate::rule::Rule;
use crate::serve::Serve;
use crate::session::SessionLimits;

/// A table that holds rules beside other keys. `serde(flatten)` would give up both the lines in errors and the
/// refusal of unknown keys.
macro_rules! with_rules {
    ($(#[$meta:meta])* struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[derive(Deserialize, Default)]
        #[serde(deny_unknown_fields, default)]
        struct $name {
            fs_read: Option<Vec<String>>,
            fs_write: Option<Vec<String>>,
            net: Option<Vec<String>>,
            net_private: Option<Vec<String>>,
            process: Option<Vec<String>>,
            secrets: Option<Vec<String>>,
            kv: Option<Vec<String>>,
            env: Option<Vec<String>>,
            attachments: Option<Vec<String>>,
            clock: Option<bool>,
            random: Option<bool>,
            invoke: Option<Vec<String>>,
            $($(#[$field_meta])* $field: $ty,)*
        }

        impl $name {
            fn rules(&self, workspace: &Path) -> Result<Rules, String> {
                fn list<R: Rule>(
                    key: &str,
                    texts: Option<&Vec<String>>,
                    workspace: &Path,
                ) -> Result<Option<Vec<R>>, String> {
                    let read = |texts: &Vec<String>| R::parse_list(texts, workspace);
                    texts.map(read).transpose().map_err(|e| format!("`{key}`: {e}"))
                }
                Ok(Rules {
                    fs_read: list("fs_read", self.fs_read.as_ref(), workspace)?,
                    fs_write: list("fs_write", self.fs_write.as_ref(), workspace)?,
                    net: list("net", self.net.as_ref(), workspace)?,
                    net_private: list::<IpNet>("net_private", self.net_private.as_ref(), workspace)?,
                    process: list("process", self.process.as_ref(), workspace)?,
                    secrets: list("secrets", self.secrets.as_ref(), workspace)?,
                    kv: list("kv", self.kv.as_ref(), workspace)?,
                    env: list("env", self.env.as_ref(), workspace)?,
                    attachments: list("attachments", self.attachments.as_ref(), workspace)?,
                    clock: self.clock,
                    random: self.random,
                    invoke: list("invoke", self.invoke.as_ref(), workspace)?,
                })
            }
        }
    };
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    /// Compared before all else, see [`read`].
    #[serde(rename = "version")]
    _version: u32,
    workspace: Option<String>,
    #[serde(default)]
    host: HostLimits,
    #[serde(default)]
    limits: LimitsPatch,
    #[serde(default)]
    session: SessionLimits,
    #[serde(default)]
    permissions: PermissionsSection,
    #[serde(default)]
    rule: Vec<permission::Written>,
    #[serde(default)]
    results: Delivery,
    toolcall_reason: Option<bool>,
    #[serde(default)]
    serve: Serve,
    #[serde(default)]
    audit: AuditPolicy,
    #[serde(default)]
    programs: BTreeMap<String, ProgramSection>,
    #[serde(default)]
    secrets: BTreeMap<String, SecretSection>,
    #[serde(default)]
    profile: BTreeMap<String, ProfileSection>,
    #[serde(default)]
    plugins: BTreeMap<String, PluginSection>,
    #[serde(default)]
    mcp: BTreeMap<String, ServerSection>,
    #[serde(default)]
    openapi: BTreeMap<String, super::openapi::Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PermissionsSection {
    default: Action,
    needs_approval: Action,
    #[serde(deserialize_with = "limits::read_duration")]
    ask_timeout: Duration,
}

impl Default for PermissionsSection {
    fn default() -> Self {
        let needs_approval = Permissions::default().needs_approval;
        Self { default: Action::Allow, needs_approval, ask_timeout: permission::DEFAULT_ASK_TIMEOUT }
    }
}

impl PermissionsSection {
    fn resolve(self, rules: Vec<permission::Rule>) -> Result<Permissions, String> {
        if self.ask_timeout.is_zero() || self.ask_timeout > MAX_TIMEOUT {
            let most = quantity::show_duration(MAX_TIMEOUT);
            return Err(format!("`ask_timeout` is above zero and at most {most}"));
        }
        let Self { default, needs_approval, ask_timeout } = self;
        Ok(Permissions { needs_approval, ask_timeout, ..Permissions::new(rules, default) })
    }
}

/// In a profile: what it does not say is as before.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfilePermissions {
    default: Action,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginSection {
    file: Option<String>,
    sha256: Option<String>,
    #[serde(default)]
    always_include: bool,
    #[serde(default)]
    config: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    limits: LimitsPatch,
    #[serde(default)]
    serial: bool,
    #[serde(default)]
    reuse: u32,
    #[serde(default)]
    results: Delivery,
    toolcall_reason: Option<bool>,
    #[serde(default)]
    grant: GrantSection,
    #[serde(default)]
    tools: BTreeMap<String, ToolSection>,
}

with_rules! {
    struct GrantSection {
        reduce: Vec<String>,
    }
}

with_rules! {
    struct ToolSection {
        limits: LimitsPatch,
        serial: Option<bool>,
        cache: Option<String>,
        results: Delivery,
        toolcall_reason: Option<bool>,
    }
}

with_rules! {
    struct ProfileSection {
        plugins: Option<BTreeSet<String>>,
        toolsets: Option<BTreeSet<String>>,
        tools: Option<BTreeSet<String>>,
        mcp_servers: Option<BTreeSet<String>>,
        mcp_tools: Option<BTreeMap<String, BTreeSet<String>>>,
        exclude_tools: BTreeSet<String>,
        lazy: bool,
        rule: Vec<permission::Written>,
        permissions: Option<ProfilePermissions>,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramSection {
    path: PathBuf,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    guest_env: Vec<String>,
    #[serde(default)]
    network: bool,
    cwd: Option<String>,
    timeout: Option<String>,
    memory: Option<String>,
    processes: Option<u64>,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    #[serde(default)]
    execute: Vec<String>,
    #[serde(default)]
    chmod: bool,
    sandbox: Option<Sandbox>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretSection {
    from: String,
    #[serde(default)]
    origins: Vec<String>,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    query: Vec<String>,
    #[serde(default)]
    reveal: bool,
}

/// Makes a policy of what is left of a file, up to the first mistake.
pub(super) fn read(
    document: &Document<'_>,
    base: &Path,
    workspace: Option<&Path>,
) -> Result<Policy, Problem> {
    if let Some(version) = document.other_version() {
        let message = format!("`version = {version}`: this host reads version 1");
        return Err(Problem { is_final: true, ..Problem::at(["version"], message) });
    }
    let tree = toml::Deserializer::from(document.tree());
    let file = PolicyFile::deserialize(tree).map_err(|error| document.problem(&error))?;
    let workspace = folder(file.workspace.as_deref(), base, workspace)?;
    file.limits.check().map_err(within(["limits"]))?;
    file.host.check().map_err(within(["host"]))?;
    file.session.check().map_err(within(["session"]))?;
    file.audit.check().map_err(within(["audit"]))?;
    let permissions = file.permissions.resolve(rules(file.rule)?).map_err(within(["permissions"]))?;
    let mut policy = Policy {
        serve: file.serve.resolve(base).map_err(within(["serve"]))?,
        audit: file.audit,
        host: file.host,
        limits: file.limits,
        session: file.session,
        permissions,
        results: file.results,
        toolcall_reason: file.toolcall_reason,
        ..Policy::deny_all(&workspace)
    };
    for (name, section) in file.programs {
        let program = section.resolve(&name, &workspace).map_err(within(["programs", name.as_str()]))?;
        policy.programs.insert(name, program);
    }
    for (name, section) in file.secrets {
        let checked = secret::check_name(&name).and_then(|()| section.resolve(&workspace));
        let secret = checked.map_err(within(["secrets", name.as_str()]))?;
        policy.secrets.insert(name, secret);
    }
    for (name, section) in file.profile {
        let profile = section.resolve(&name, &workspace).map_err(within(["profile", name.as_str()]))?;
        policy.profiles.insert(name, std::sync::Arc::new(profile));
    }
    for (name, section) in file.plugins {
        let id = PluginId::new(&name).map_err(|e| Problem::at(["plugins", name.as_str()], e.to_string()))?;
        let plugin = section.resolve(&workspace).map_err(within(["plugins", name.as_str()]))?;
        policy.plugins.insert(id, plugin);
    }
    policy.add_servers(file.mcp)?;
    policy.openapi = super::openapi::resolve_all(file.openapi, base, &workspace)?;
    policy.permissions.of_sections.extend(policy.openapi_permissions());
    policy.check_names()?;
    policy.check_openapi()?;
    Ok(policy)
}

/// The folder that `$workspace` means.
fn folder(written: Option<&str>, base: &Path, given: Option<&Path>) -> Result<PathBuf, Problem> {
    let folder = given.map_or_else(|| base.join(written.unwrap_or(".")), Path::to_path_buf);
    let wrong = |message: String| Problem::at(["workspace"], message);
    if !folder.is_absolute() {
        return Err(wrong(format!("the workspace `{}` is not an absolute path", folder.display())));
    }
    reach::normalise(&folder).ok_or_else(|| wrong("`workspace` leads above the root".to_owned()))
}

fn rules(written: Vec<permission::Written>) -> Result<Vec<permission::Rule>, Problem> {
    let read = |(index, written)| {
        permission::Rule::try_from(written).map_err(|text| Problem::of_entry("rule", index, text))
    };
    written.into_iter().enumerate().map(read).collect()
}

impl Policy {
    fn add_servers(&mut self, sections: BTreeMap<String, ServerSection>) -> Result<(), Problem> {
        if sections.len() > MAX_SERVERS {
            return Err(Problem::at(["mcp"], format!("a policy has at most {MAX_SERVERS} servers")));
        }
        for (name, section) in sections {
            let server = section.resolve(&name, &self.workspace).map_err(within(["mcp", name.as_str()]))?;
            self.permissions.of_sections.extend(server.permissions());
            self.servers.insert(server.name.clone(), std::sync::Arc::new(server));
        }
        Ok(())
    }
}

impl Reduction {
    /// Parses `PLUGIN__TOOL` or `PLUGIN__TOOL = REDUCER`.
    fn parse(entry: &str) -> Result<Self, String> {
        let (tool, reducer) = match entry.split_once('=') {
            Some((tool, reducer)) => (tool.trim(), Some(reducer.trim())),
            None => (entry, None),
        };
        let Some((_, bare)) = name::split(tool) else {
            return Err(format!("`reduce` names `{entry}`: write the qualified name, `PLUGIN__{entry}`"));
        };
        match reducer.unwrap_or(bare) {
            "" => Err(format!("`reduce` names `{entry}`: name the reducer, as in `{tool} = log`")),
            reducer => Ok(Self { tool: tool.to_owned(), reducer: reducer.to_owned() }),
        }
    }
}

impl PluginSection {
    fn resolve(self, workspace: &Path) -> Result<PluginPolicy, Problem> {
        self.limits.check().map_err(within(["limits"]))?;
        if self.reuse > MAX_REUSE {
            return Err(format!("`reuse` can be at most {MAX_REUSE} calls").into());
        }
        let sha256 = self.sha256.map(|s| s.to_ascii_lowercase());
        if sha256.as_ref().is_some_and(|s| s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err("`sha256` is not 64 hex digits".to_owned().into());
        }
        let reduce = self.grant.reduce.iter().map(|entry| Reduction::parse(entry));
        let reduce = reduce.collect::<Result<_, _>>().map_err(within(["grant"]))?;
        let mut tools = BTreeMap::new();
        for (name, section) in self.tools {
            let id =
                ToolName::new(&name).map_err(|e| Problem::at(["tools", name.as_str()], e.to_string()))?;
            tools.insert(id, section.resolve(workspace).map_err(within(["tools", name.as_str()]))?);
        }
        let rules = self.grant.rules(workspace).map_err(within(["grant"]))?;
        let in_a_lane = self.serial || tools.values().any(|tool| tool.serial == Some(true));
        if in_a_lane && rules.invoke.as_ref().is_some_and(|rules| !rules.is_empty()) {
            let message = "`invoke` and `serial` exclude each other: a call that holds its lane while it waits for calls \
                           of its own could wait for itself; give tools that call others a plugin of their own";
            return Err(Problem::at(["grant"], message));
        }
        Ok(PluginPolicy {
            file: self.file,
            sha256,
            always_include: self.always_include,
            config: self.config,
            limits: self.limits,
            serial: self.serial,
            reuse: self.reuse,
            results: self.results,
            toolcall_reason: self.toolcall_reason,
            rules,
            reduce,
            tools,
        })
    }
}

impl ToolSection {
    fn resolve(self, workspace: &Path) -> Result<ToolPolicy, Problem> {
        self.limits.check_tool().map_err(within(["limits"]))?;
        let rules = self.rules(workspace)?;
        let cache = self.cache.as_deref().map(cache_time).transpose();
        let cache = cache.map_err(|e| format!("`cache`: {e}"))?;
        let Self { limits, serial, results, toolcall_reason, .. } = self;
        Ok(ToolPolicy { rules, limits, serial, cache, results, toolcall_reason })
    }
}

pub(super) fn cache_time(text: &str) -> Result<Duration, String> {
    let keep = quantity::duration(text)?;
    if keep.is_zero() || keep > MAX_TIMEOUT {
        return Err(format!("a time above zero and at most {}", quantity::show_duration(MAX_TIMEOUT)));
    }
    Ok(keep)
}

impl ProfileSection {
    fn resolve(self, name: &str, workspace: &Path) -> Result<Profile, Problem> {
        let rules = self.rules(workspace)?;
        let of_profile = self::rules(self.rule)?;
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
        let Some(path) = reach::normalise(&self.path).filter(|_| self.path.is_absolute()) else {
            return Err(format!("`path` is `{}`: write an absolute path", self.path.display()));
        };
        let list = |key: &str, texts: &[String]| -> Result<Vec<Reach>, String> {
            let folders: Vec<Reach> =
                Rule::parse_list(texts, workspace).map_err(|e| format!("`{key}`: {e}"))?;
            match folders.iter().find(|reach| !reach.is_whole()) {
                Some(reach) => Err(format!(
                    "`{key}`: `{}`: the kernel keeps programs to whole folders, without patterns and exclusions",
                    reach.show(workspace)
                )),
                None => Ok(folders),
            }
        };
        let timeout = self.timeout.as_deref().map(quantity::duration).transpose();
        let guest_env: Vec<EnvRule> =
            Rule::parse_list(&self.guest_env, workspace).map_err(|e| format!("`guest_env`: {e}"))?;
        if guest_env.iter().any(|rule| rule.value.is_some()) {
            return Err("`guest_env` has names without values: the plugin sets them".to_owned());
        }
        let cwd = Reach::parse(self.cwd.as_deref().unwrap_or("$workspace"), workspace);
        Ok(Program {
            path,
            env: Rule::parse_list(&self.env, workspace).map_err(|e| format!("`env`: {e}"))?,
            guest_env: guest_env.into_iter().map(|rule| rule.name).collect(),
            network: self.network,
            cwd: cwd.map_err(|e| format!("`cwd`: {e}"))?.folder().to_path_buf(),
            timeout: timeout.map_err(|e| format!("`timeout`: {e}"))?,
            memory_bytes: self
                .memory
                .as_deref()
                .map(quantity::bytes)
                .transpose()
                .map_err(|e| format!("`memory`: {e}"))?,
            processes: program::processes(self.processes)?,
            read: list("read", &self.read)?,
            write: list("write", &self.write)?,
            execute: list("execute", &self.execute)?,
            chmod: self.chmod,
            sandbox: self.sandbox.unwrap_or(Sandbox::Required),
        })
    }
}

impl SecretSection {
    fn resolve(self, workspace: &Path) -> Result<Secret, String> {
        let origins = Rule::parse_list(&self.origins, workspace).map_err(|e| format!("`origins`: {e}"))?;
        Secret::new(SecretSource::parse(&self.from)?, origins, &self.headers, self.reveal)?
            .with_query(self.query)
    }
}
