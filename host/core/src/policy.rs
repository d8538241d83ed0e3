//! What the operator allows (`toolbay.toml`), and the one function that turns a declaration and a policy into grants.
//!
//! A plugin without a section can only compute. What is granted is what the tool declares, cut down to the plugin's
//! grant, cut down to the tool's own section, cut down to the profile of the call. An empty list grants nothing. A
//! key this version does not know is an error: a narrowing that nobody enforces would be worse than none.

mod explain;
mod file;
mod grant;
mod openapi;
mod servers;

pub(crate) use explain::lines_beyond;
pub use explain::{LimitRow, Proposal};
pub use grant::{Decision, Grants};
pub use openapi::{Approve, Header, OpenApi, OpenApiTool, Place};
pub use openapi::{MAX_NAME as MAX_OPENAPI_NAME, MAX_QUALIFIED as MAX_OPENAPI_QUALIFIED};

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::attachment::AttachmentRule;
use crate::delivery::Delivery;
use crate::environment::EnvRule;
use crate::kv::Scope;
use crate::limits::{HostLimits, Limits, LimitsPatch};
use crate::mcp_server::McpServer;
use crate::name::{self, PluginId, ToolName};
use crate::net::NetRule;
use crate::permission::Permissions;
use crate::program::{Program, ProgramRule};
use crate::reach::Reach;
use crate::rule::Rule;
use crate::secret::{Secret, SecretRule, SecretSource};
use crate::serve::Serve;
use crate::session::SessionLimits;

/// The operator's policy, read and checked. Cheap look-ups, no I/O.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    workspace: PathBuf,
    host: HostLimits,
    limits: LimitsPatch,
    permissions: Permissions,
    session: SessionLimits,
    results: Delivery,
    toolcall_reason: Option<bool>,
    serve: Serve,
    programs: BTreeMap<String, Program>,
    secrets: BTreeMap<String, Secret>,
    profiles: BTreeMap<String, Arc<Profile>>,
    plugins: BTreeMap<PluginId, PluginPolicy>,
    servers: BTreeMap<PluginId, Arc<McpServer>>,
    openapi: BTreeMap<PluginId, Arc<OpenApi>>,
}

/// An entry of `reduce`: results of a tool of another plugin, and which of a plugin's reducers takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduction {
    /// The tool's qualified name.
    pub tool: String,
    /// The reducer's name; the tool's own, without its plugin, unless the operator wrote another.
    pub reducer: String,
}

impl std::fmt::Display for Reduction {
    /// As the policy would write it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.tool.split_once(name::SEAM) {
            Some((_, bare)) if bare == self.reducer => f.write_str(&self.tool),
            _ => write!(f, "{} = {}", self.tool, self.reducer),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
struct PluginPolicy {
    file: Option<String>,
    sha256: Option<String>,
    always_include: bool,
    config: BTreeMap<String, serde_json::Value>,
    limits: LimitsPatch,
    serial: bool,
    results: Delivery,
    toolcall_reason: Option<bool>,
    rules: Rules,
    reduce: Vec<Reduction>,
    tools: BTreeMap<ToolName, ToolPolicy>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct ToolPolicy {
    rules: Rules,
    limits: LimitsPatch,
    serial: Option<bool>,
    cache: Option<Duration>,
    results: Delivery,
    toolcall_reason: Option<bool>,
}

/// A profile: who sees which tools, and how far they reach for them. Only a policy makes one, so that what is seen
/// under a name and what is granted under it are written in one place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    name: Arc<str>,
    rules: Rules,
    /// Which calls happen under it; only makes the policy's own rules stricter.
    pub permissions: Permissions,
    /// Plugins whose tools it sees; `None`: all.
    pub plugins: Option<BTreeSet<String>>,
    /// Toolsets it sees; `None`: all.
    pub toolsets: Option<BTreeSet<String>>,
    /// Qualified names of tools it sees; `None`: all.
    pub tools: Option<BTreeSet<String>>,
    /// MCP servers whose tools it sees; `None`: all.
    pub mcp_servers: Option<BTreeSet<String>>,
    /// For an MCP server the tools that it sees, by their names without prefix; a server that is not in it: all.
    pub mcp_tools: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Qualified names of tools it does not see, whatever lets them in.
    pub exclude_tools: BTreeSet<String>,
    /// It lists only what is always included; the rest is found by search.
    pub lazy: bool,
}

impl Profile {
    /// The name under which the policy has it.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// One level of rules. In a plugin's grant an absent list is empty; elsewhere it narrows nothing.
#[derive(Debug, Clone, Default, PartialEq)]
struct Rules {
    fs_read: Option<Vec<Reach>>,
    fs_write: Option<Vec<Reach>>,
    net: Option<Vec<NetRule>>,
    net_private: Option<Vec<IpNet>>,
    process: Option<Vec<ProgramRule>>,
    secrets: Option<Vec<SecretRule>>,
    kv: Option<Vec<Scope>>,
    env: Option<Vec<EnvRule>>,
    attachments: Option<Vec<AttachmentRule>>,
    clock: Option<bool>,
    random: Option<bool>,
}

/// Why a policy was refused; names the line where TOML can tell it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

/// A list of the policy that grants something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `fs_read`
    FsRead,
    /// `fs_write`
    FsWrite,
    /// `net`
    Net,
    /// `net_private`
    NetPrivate,
    /// `process`
    Process,
    /// `secrets`
    Secrets,
    /// `kv`
    Kv,
    /// `env`
    Env,
    /// `attachments`
    Attachments,
    /// `clock`
    Clock,
    /// `random`
    Random,
}

impl Key {
    /// All of them, in the order of the policy's pages.
    pub const ALL: [Self; 11] = [
        Self::FsRead,
        Self::FsWrite,
        Self::Net,
        Self::NetPrivate,
        Self::Process,
        Self::Secrets,
        Self::Kv,
        Self::Env,
        Self::Attachments,
        Self::Clock,
        Self::Random,
    ];

    /// The key as it stands in the policy.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FsRead => "fs_read",
            Self::FsWrite => "fs_write",
            Self::Net => "net",
            Self::NetPrivate => "net_private",
            Self::Process => "process",
            Self::Secrets => "secrets",
            Self::Kv => "kv",
            Self::Env => "env",
            Self::Attachments => "attachments",
            Self::Clock => "clock",
            Self::Random => "random",
        }
    }
}

impl Rules {
    /// A list as the policy would write it; `None` if it is not there.
    fn shown(&self, key: Key, workspace: &Path) -> Option<Vec<String>> {
        fn all<R: Rule>(rules: Option<&Vec<R>>, workspace: &Path) -> Option<Vec<String>> {
            rules.map(|rules| R::show_list(rules, workspace))
        }
        match key {
            Key::FsRead => all(self.fs_read.as_ref(), workspace),
            Key::FsWrite => all(self.fs_write.as_ref(), workspace),
            Key::Net => all(self.net.as_ref(), workspace),
            Key::NetPrivate => all(self.net_private.as_ref(), workspace),
            Key::Process => all(self.process.as_ref(), workspace),
            Key::Secrets => all(self.secrets.as_ref(), workspace),
            Key::Kv => all(self.kv.as_ref(), workspace),
            Key::Env => all(self.env.as_ref(), workspace),
            Key::Attachments => all(self.attachments.as_ref(), workspace),
            Key::Clock => self.clock.map(|on| vec![on.to_string()]),
            Key::Random => self.random.map(|on| vec![on.to_string()]),
        }
    }

    /// Whether a list is there and holds what `wish` means.
    fn hold(&self, key: Key, wish: &str, workspace: &Path) -> Option<bool> {
        fn any<R: Rule>(rules: Option<&Vec<R>>, wish: &str, workspace: &Path) -> Option<bool> {
            let wish = R::parse(wish, workspace);
            rules.map(|rules| wish.is_ok_and(|wish| rules.iter().any(|rule| rule.grants(&wish))))
        }
        match key {
            Key::FsRead => any(self.fs_read.as_ref(), wish, workspace),
            Key::FsWrite => any(self.fs_write.as_ref(), wish, workspace),
            Key::Net => any(self.net.as_ref(), wish, workspace),
            Key::NetPrivate => any(self.net_private.as_ref(), wish, workspace),
            Key::Process => any(self.process.as_ref(), wish, workspace),
            Key::Secrets => any(self.secrets.as_ref(), wish, workspace),
            Key::Kv => any(self.kv.as_ref(), wish, workspace),
            Key::Env => any(self.env.as_ref(), wish, workspace),
            Key::Attachments => any(self.attachments.as_ref(), wish, workspace),
            Key::Clock => self.clock,
            Key::Random => self.random,
        }
    }
}

impl Policy {
    /// The policy of a host without a policy file: everything at its default, nothing granted.
    #[must_use]
    pub fn deny_all(workspace: &Path) -> Self {
        Self {
            workspace: workspace.to_path_buf(),
            host: HostLimits::default(),
            limits: LimitsPatch::default(),
            permissions: Permissions::default(),
            session: SessionLimits::default(),
            results: Delivery::default(),
            toolcall_reason: None,
            serve: Serve::default(),
            programs: BTreeMap::new(),
            secrets: BTreeMap::new(),
            profiles: BTreeMap::new(),
            plugins: BTreeMap::new(),
            servers: BTreeMap::new(),
            openapi: BTreeMap::new(),
        }
    }

    /// Reads a policy. `base` is the absolute folder that a relative `workspace` is meant against; `workspace`
    /// overrides what the file says.
    ///
    /// # Errors
    /// Names the line or the key at fault.
    pub fn parse(text: &str, base: &Path, workspace: Option<&Path>) -> Result<Self, PolicyError> {
        file::parse(text, base, workspace)
    }

    /// A grant that names a program or a secret that nobody defined would never work.
    fn check_names(&self) -> Result<(), String> {
        let sections = self.plugins.iter().flat_map(|(id, plugin)| {
            let of_tools = plugin.tools.iter();
            let of_tools =
                of_tools.map(move |(tool, section)| (format!("[plugins.{id}.tools.{tool}]"), &section.rules));
            std::iter::once((format!("[plugins.{id}.grant]"), &plugin.rules)).chain(of_tools)
        });
        let profiles =
            self.profiles.iter().map(|(name, profile)| (format!("[profile.{name}]"), &profile.rules));
        for (table, rules) in sections.chain(profiles) {
            for rule in rules.process.iter().flatten() {
                let name = rule.program();
                if !self.programs.contains_key(name) {
                    return Err(format!(
                        "{table}: `process` names `{name}`, and there is no [programs.{name}]"
                    ));
                }
            }
            for rule in rules.secrets.iter().flatten() {
                if let SecretRule::Named(name) = rule
                    && !self.secrets.contains_key(name)
                {
                    return Err(format!(
                        "{table}: `secrets` names `{name}`, and there is no [secrets.{name:?}]"
                    ));
                }
            }
            for rule in rules.env.iter().flatten() {
                self.check_variable(&table, rule)?;
            }
        }
        self.check_servers()?;
        Ok(())
    }

    /// A variable that holds a secret is not to reach guests in the clear by another way.
    fn check_variable(&self, table: &str, rule: &EnvRule) -> Result<(), String> {
        let (None, name) = (&rule.value, &rule.name) else { return Ok(()) };
        let is_source = |secret: &Secret| secret.from == SecretSource::Env(name.clone()) && !secret.reveal;
        match self.secrets.iter().find(|(_, secret)| is_source(secret)) {
            Some((secret, _)) => Err(format!(
                "{table}: `env` names `{name}`, the value of [secrets.{secret:?}], which would then reach guests in \
                 the clear; grant `secrets = [{secret:?}]` instead"
            )),
            None => Ok(()),
        }
    }

    /// Who may use the tools over HTTP, and how much of the server each may take.
    #[must_use]
    pub fn serve(&self) -> &Serve {
        &self.serve
    }

    /// The absolute folder that `$workspace` means and that relative paths of guests are meant against.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Bounds of the whole host.
    #[must_use]
    pub fn host(&self) -> &HostLimits {
        &self.host
    }

    /// Which calls happen, and who is asked.
    #[must_use]
    pub fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    /// What one session may use up.
    #[must_use]
    pub fn session(&self) -> &SessionLimits {
        &self.session
    }

    /// The lane of a tool whose calls run one after the other: its own, or its plugin's; `None`: it has none.
    #[must_use]
    pub fn lane(&self, plugin: &PluginId, tool: &ToolName) -> Option<Arc<str>> {
        let section = self.plugins.get(plugin)?;
        match section.tools.get(tool).and_then(|tool| tool.serial) {
            None if section.serial => Some(plugin.as_str().into()),
            Some(true) => Some(format!("{plugin}{}{tool}", name::SEAM).into()),
            None | Some(false) => None,
        }
    }

    /// For how long a session may look a tool's results up instead of running it.
    #[must_use]
    pub fn cache(&self, plugin: &PluginId, tool: &ToolName) -> Option<Duration> {
        self.plugins.get(plugin)?.tools.get(tool)?.cache
    }

    /// A program by the name under which plugins know it.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<&Program> {
        self.programs.get(name)
    }

    /// All programs by name.
    pub fn programs(&self) -> impl Iterator<Item = (&str, &Program)> {
        self.programs.iter().map(|(name, program)| (name.as_str(), program))
    }

    /// The folders that some plugin may write, each with the plugin.
    pub fn written(&self) -> impl Iterator<Item = (&PluginId, &Reach)> {
        self.plugins
            .iter()
            .flat_map(|(id, plugin)| plugin.rules.fs_write.iter().flatten().map(move |r| (id, r)))
    }

    /// All secrets by name; their values are elsewhere.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.secrets.iter().map(|(name, secret)| (name.as_str(), secret))
    }

    /// A profile by name.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Arc<Profile>> {
        self.profiles.get(name)
    }

    /// All profiles by name, as the registry wants them.
    #[must_use]
    pub fn all_profiles(&self) -> Arc<BTreeMap<Arc<str>, Arc<Profile>>> {
        let all = self.profiles.iter();
        Arc::new(all.map(|(name, profile)| (name.as_str().into(), Arc::clone(profile))).collect())
    }

    /// The names of all profiles.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// The plugins that have a section, with the file each names.
    pub fn plugins(&self) -> impl Iterator<Item = (&PluginId, Option<&str>)> {
        self.plugins.iter().map(|(id, plugin)| (id, plugin.file.as_deref()))
    }

    /// The tools of a plugin that have a section.
    pub fn tool_sections(&self, plugin: &PluginId) -> impl Iterator<Item = &ToolName> {
        self.plugins.get(plugin).into_iter().flat_map(|section| section.tools.keys())
    }

    /// The SHA-256 to which the operator pinned a plugin, in lower-case hex.
    #[must_use]
    pub fn pinned_sha256(&self, plugin: &PluginId) -> Option<&str> {
        self.plugins.get(plugin)?.sha256.as_deref()
    }

    /// Whether tools of a plugin that ask for it pass the lists of toolsets.
    #[must_use]
    pub fn always_include(&self, plugin: &PluginId) -> bool {
        self.plugins.get(plugin).is_some_and(|plugin| plugin.always_include)
    }

    /// The operator's settings for a plugin.
    #[must_use]
    pub fn config(&self, plugin: &PluginId) -> Option<&BTreeMap<String, serde_json::Value>> {
        self.plugins.get(plugin).map(|p| &p.config)
    }

    /// The limits of a plugin as a whole (metadata queries, reductions), or of one of its tools.
    #[must_use]
    pub fn limits(&self, plugin: &PluginId, tool: Option<&ToolName>) -> Limits {
        let limits = self.limits.apply(Limits::default());
        let Some(section) = self.plugins.get(plugin) else { return limits };
        let limits = section.limits.apply(limits);
        match tool.and_then(|tool| section.tools.get_key_value(tool)) {
            Some((name, tool)) => tool.limits.apply_to_tool(limits, name),
            None => limits,
        }
    }

    /// The largest arguments that any tool takes.
    #[must_use]
    pub fn largest_args_bytes(&self) -> u64 {
        let all = self.limits.apply(Limits::default());
        let sections = self.plugins.values().flat_map(|plugin| {
            let of_plugin = plugin.limits.apply(all.clone());
            let of_tools = plugin.tools.values().map({
                let of_plugin = of_plugin.clone();
                move |tool| tool.limits.apply(of_plugin.clone()).args_bytes
            });
            of_tools.chain([of_plugin.args_bytes]).collect::<Vec<_>>()
        });
        sections.chain([all.args_bytes]).max().unwrap_or(all.args_bytes)
    }

    /// How the results of all tools are given out, where nothing narrower says otherwise.
    #[must_use]
    pub fn results(&self) -> Delivery {
        self.results
    }

    /// How the results of one tool are given out: what its section says, and its plugin's where that says nothing.
    #[must_use]
    pub fn results_of(&self, plugin: &PluginId, tool: &ToolName) -> Delivery {
        let Some(section) = self.plugins.get(plugin) else { return Delivery::default() };
        let narrow = section.tools.get(tool).map(|tool| tool.results).unwrap_or_default();
        narrow.or(section.results)
    }

    /// Whether the callers of a tool are asked for their reason; of a native one without a plugin.
    #[must_use]
    pub fn asks_reason(&self, tool: Option<(&PluginId, &ToolName)>) -> bool {
        let section = tool.and_then(|(plugin, tool)| Some((self.plugins.get(plugin)?, tool)));
        let own = section.and_then(|(plugin, tool)| {
            plugin.tools.get(tool).and_then(|tool| tool.toolcall_reason).or(plugin.toolcall_reason)
        });
        own.or(self.toolcall_reason).unwrap_or(false)
    }

    /// The other plugins' tools whose results a plugin's reducers may see.
    #[must_use]
    pub fn reduces(&self, plugin: &PluginId) -> &[Reduction] {
        self.plugins.get(plugin).map_or(&[], |p| &p.reduce)
    }

    fn rules(&self, plugin: &PluginId) -> Option<&Rules> {
        self.plugins.get(plugin).map(|p| &p.rules)
    }

    fn narrower(&self, plugin: &PluginId, tool: &ToolName) -> Option<&Rules> {
        self.plugins.get(plugin)?.tools.get(tool).map(|tool| &tool.rules)
    }

    /// The policy lines that would grant `wish` (as a list of the policy writes it) to a tool: the table, and in it
    /// the whole list as it would have to be, what stands there now included.
    #[must_use]
    pub fn lines(&self, plugin: &PluginId, tool: &ToolName, key: Key, wish: &str) -> String {
        let workspace = &self.workspace;
        let of_plugin = self.rules(plugin);
        let granted = of_plugin.and_then(|rules| rules.hold(key, wish, workspace)) == Some(true);
        let of_tool = self.narrower(plugin, tool).filter(|_| granted);
        let (table, list) = match of_tool.and_then(|rules| rules.shown(key, workspace)) {
            Some(list) => (format!("[plugins.{plugin}.tools.{tool}]"), list),
            None => {
                let list = of_plugin.and_then(|rules| rules.shown(key, workspace));
                (format!("[plugins.{plugin}.grant]"), list.unwrap_or_default())
            }
        };
        if matches!(key, Key::Clock | Key::Random) {
            return format!("{table}\n{} = true", key.name());
        }
        let all: Vec<String> = list
            .into_iter()
            .chain([wish.to_owned()])
            .map(|line| serde_json::Value::from(line).to_string())
            .collect();
        format!("{table}\n{} = [{}]", key.name(), all.join(", "))
    }
}

#[cfg(test)]
mod profile_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{Capability, CapabilityKind};
    use std::time::Duration;

    const FILE: &str = r#"
        version = 1
        workspace = "space"
        [limits]
        fuel = 5_000
        [plugins.files]
        config = { greeting = "hi" }
        [plugins.files.limits]
        timeout = "2s"
        memory = "8MiB"
        [plugins.files.grant]
        fs_read = ["$workspace/**", "/srv/data"]
        fs_write = ["$workspace/out"]
        reduce = ["web__fetch"]
        [plugins.files.tools.write_file]
        fs_write = ["$workspace/out/tmp"]
        limits = { timeout = "1s" }
    "#;

    fn policy() -> Policy {
        Policy::parse(FILE, Path::new("/base"), None).unwrap()
    }

    fn id(text: &str) -> PluginId {
        PluginId::new(text).unwrap()
    }

    fn tool(text: &str) -> ToolName {
        ToolName::new(text).unwrap()
    }

    fn wish(kind: &str, target: &str) -> Capability {
        Capability {
            kind: CapabilityKind::parse(kind),
            target: target.to_owned(),
            optional: false,
            reason: None,
        }
    }

    #[test]
    fn limits_are_layered() {
        let policy = policy();
        let other = policy.limits(&id("other"), None);
        assert_eq!((other.fuel, other.timeout), (5_000, Duration::from_secs(30)));
        let files = policy.limits(&id("files"), Some(&tool("read_file")));
        assert_eq!((files.fuel, files.timeout, files.memory_bytes), (5_000, Duration::from_secs(2), 8 << 20));
        assert_eq!(policy.limits(&id("files"), Some(&tool("write_file"))).timeout, Duration::from_secs(1));
    }

    #[test]
    fn a_grant_is_the_intersection() {
        let policy = policy();
        for (plugin, name, wishes, read, write, missing) in [
            ("files", "read_file", vec![wish("fs-read", "**")], vec!["/base/space", "/srv/data"], vec![], 0),
            ("files", "read_file", vec![wish("fs-read", "$workspace/a")], vec!["/base/space/a"], vec![], 0),
            ("files", "read_file", vec![wish("fs-read", "/etc")], vec![], vec![], 1),
            ("files", "read_file", vec![], vec![], vec![], 0),
            ("files", "other", vec![wish("fs-write", "**")], vec![], vec!["/base/space/out"], 0),
            ("files", "write_file", vec![wish("fs-write", "**")], vec![], vec!["/base/space/out/tmp"], 0),
            ("files", "write_file", vec![wish("fs-write", "$workspace/out/else")], vec![], vec![], 1),
            ("unknown", "x", vec![wish("fs-read", "**")], vec![], vec![], 1),
            ("files", "x", vec![wish("net", "https://*"), wish("time-travel", "1985")], vec![], vec![], 2),
        ] {
            let grants = policy.grant(&id(plugin), &tool(name), &wishes, None);
            let paths = |reaches: &[Reach]| {
                reaches.iter().map(|r| r.folder().display().to_string()).collect::<Vec<_>>()
            };
            assert_eq!(
                (paths(&grants.fs_read), paths(&grants.fs_write)),
                (
                    read.iter().map(ToString::to_string).collect(),
                    write.iter().map(ToString::to_string).collect::<Vec<_>>()
                ),
                "{plugin} {name} {wishes:?}"
            );
            assert_eq!(grants.missing().count(), missing, "{plugin} {name} {wishes:?}");
            assert_eq!(grants.unavailable().is_some(), missing > 0);
        }
    }

    #[test]
    fn a_refusal_shows_the_lines_that_would_allow_it() {
        let policy = policy();
        let text = policy
            .grant(&id("notes"), &tool("read"), &[wish("fs-read", "$workspace/notes/**")], None)
            .unavailable()
            .unwrap();
        assert!(text.contains("[plugins.notes.grant]\nfs_read = [\"$workspace/notes\"]"), "{text}");
        // and they do allow it
        let fixed = format!("{FILE}\n[plugins.notes.grant]\nfs_read = [\"$workspace/notes\"]");
        let policy = Policy::parse(&fixed, Path::new("/base"), None).unwrap();
        assert_eq!(
            policy
                .grant(&id("notes"), &tool("read"), &[wish("fs-read", "$workspace/notes/**")], None)
                .unavailable(),
            None
        );
        let narrowed =
            policy.grant(&id("files"), &tool("write_file"), &[wish("fs-write", "$workspace/out/else")], None);
        let lines =
            "[plugins.files.tools.write_file]\nfs_write = [\"$workspace/out/tmp\", \"$workspace/out/else\"]";
        assert!(narrowed.unavailable().unwrap().contains(lines), "{narrowed:?}");
        let more = policy
            .grant(&id("files"), &tool("read_file"), &[wish("fs-read", "/etc")], None)
            .unavailable()
            .unwrap();
        let lines = "[plugins.files.grant]\nfs_read = [\"$workspace\", \"/srv/data\", \"/etc\"]";
        assert!(more.contains(lines), "what stands there is kept: {more}");
    }

    #[test]
    fn results_are_given_out_as_the_narrowest_table_says() {
        let text = r#"
            version = 1
            toolcall_reason = true
            [results]
            truncate = "head-tail"
            [plugins.web]
            toolcall_reason = false
            [plugins.web.results]
            untrusted = true
            strip_blobs = true
            [plugins.web.tools.fetch]
            toolcall_reason = true
            results = { untrusted = false }
        "#;
        let policy = Policy::parse(text, Path::new("/base"), None).unwrap();
        let of = |plugin: &str, name: &str| policy.results_of(&id(plugin), &tool(name)).or(policy.results());
        let wide = Delivery { truncate: Some(crate::budget::Truncation::HeadTail), ..Delivery::default() };
        assert_eq!((of("other", "fetch"), policy.results()), (wide, wide));
        let search = of("web", "search");
        assert_eq!(
            (search.untrusted, search.strip_blobs, search.truncate),
            (Some(true), Some(true), wide.truncate)
        );
        assert_eq!((of("web", "fetch").untrusted, of("web", "fetch").strip_blobs), (Some(false), Some(true)));
        let asks = |plugin: &str, name: &str| policy.asks_reason(Some((&id(plugin), &tool(name))));
        assert!(asks("other", "x") && !asks("web", "search") && asks("web", "fetch"));
        assert!(policy.asks_reason(None));
    }

    #[test]
    fn what_can_not_be_read_is_refused_with_the_place() {
        for (text, part) in [
            ("", "version"),
            ("version = 2", "version 1"),
            ("version = 1\n[plugins.x.grant]\nkv = [\"everything\"]", "`kv`"),
            ("version = 1\n[plugins.x.grant]\nclock = \"yes\"", "clock"),
            ("version = 1\n[programs.git]\npath = \"git\"", "absolute"),
            ("version = 1\n[secrets.a]\nfrom = \"b\"\nreveal = true", "env:NAME"),
            ("version = 1\n[secrets.a]\nfrom = \"env:B\"", "`origins` is missing"),
            ("version = 1\n[plugins.x.grant]\nprocess = [\"nope\"]", "[programs.nope]"),
            ("version = 1\n[plugins.x.tools.y]\nsecrets = [\"NOPE\"]", "[plugins.x.tools.y]"),
            ("version = 1\n[secrets.\"a b\"]\nfrom = \"env:B\"\nreveal = true", "[secrets.\"a b\"]"),
            ("version = 1\n[plugins.x.grant]\nsecrets = [\"a\"]", "there is no [secrets.\"a\"]"),
            ("version = 1\n[plugins.x.grant]\nsecrets = [\"*\"]", "NAME/*"),
            ("version = 1\n[plugins.x]\napprove = \"always\"", "approve"),
            ("version = 1\n[plugins.a__b]\n", "__"),
            ("version = 1\n[plugins.x.grant]\nfs_read = [\"notes\"]", "$workspace"),
            ("version = 1\n[plugins.x.grant]\nfs_read = [\"/a/{b,c}\"]", "a line for each"),
            ("version = 1\n[plugins.x.limits]\ntimeout = \"0s\"", "timeout"),
            ("version = 1\n[limits]\ntimeout = 30", "string"),
            ("version = 1\n[limits]\nmemory = \"2GiB\"", "at most"),
            ("version = 1\n[limits]\nfuel = -1", "fuel"),
            ("version = 1\n[host]\nparallel_calls = 0", "parallel_calls"),
            ("version = 1\n[plugins.x.grant]\nreduce = [\"read_file\"]", "PLUGIN__read_file"),
            ("version = 1\n[plugins.x.grant]\nreduce = [\"log = web__fetch\"]", "PLUGIN__log"),
            ("version = 1\n[plugins.x.grant]\nreduce = [\"web__fetch =\"]", "web__fetch = log"),
            ("version = 1\n[plugins.x]\nsha256 = \"abc\"", "64 hex"),
            ("version = 1\n[results]\ntruncate = \"tail\"", "head-tail"),
            ("version = 1\n[plugins.x.results]\ntrusted = true", "untrusted"),
            ("version = 1\n[host]\nspool_age = \"2000m\"", "spool_age"),
        ] {
            let error = Policy::parse(text, Path::new("/base"), None).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
