//! What the operator allows (`toolbay.toml`), and the one function that turns a declaration and a policy into grants.
//!
//! A plugin without a section can only compute. What is granted is what the tool declares, cut down to the plugin's
//! grant, cut down to the tool's own section. An empty list grants nothing. A key this version does not know is an
//! error: a narrowing that nobody enforces would be worse than none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::capability::{Capability, CapabilityKind};
use crate::limits::{HostLimits, Limits, LimitsPatch};
use crate::name::{self, PluginId, ToolName};
use crate::reach::{self, Reach};

/// The operator's policy, read and checked. Cheap look-ups, no I/O.
#[derive(Debug, Clone)]
pub struct Policy {
    workspace: PathBuf,
    host: HostLimits,
    limits: LimitsPatch,
    plugins: BTreeMap<PluginId, PluginPolicy>,
}

#[derive(Debug, Clone, Default)]
struct PluginPolicy {
    file: Option<String>,
    sha256: Option<String>,
    config: BTreeMap<String, serde_json::Value>,
    limits: LimitsPatch,
    fs_read: Vec<Reach>,
    fs_write: Vec<Reach>,
    reduce: Vec<String>,
    tools: BTreeMap<ToolName, ToolPolicy>,
}

#[derive(Debug, Clone, Default)]
struct ToolPolicy {
    fs_read: Option<Vec<Reach>>,
    fs_write: Option<Vec<Reach>>,
    limits: LimitsPatch,
}

/// Why a policy was refused; names the line where TOML can tell it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

/// What one tool may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Folders it may read.
    pub fs_read: Vec<Reach>,
    /// Folders it may write. Write reach gives no read reach.
    pub fs_write: Vec<Reach>,
    /// What it declared and did not get.
    pub missing: Vec<Missing>,
}

/// A declared capability that the policy does not grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The wish.
    pub capability: Capability,
    /// The policy lines that would grant it, or why none can.
    pub hint: String,
}

impl Grants {
    /// Why the tool can not run at all: a capability that is not optional is missing.
    #[must_use]
    pub fn unavailable(&self) -> Option<String> {
        let missing = self.missing.iter().find(|m| !m.capability.optional)?;
        let Capability { kind, target, .. } = &missing.capability;
        Some(format!(
            "it needs `{}` of `{}`, which is not granted. {}",
            kind.as_str(),
            reach::shown(target),
            missing.hint
        ))
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
            plugins: BTreeMap::new(),
        }
    }

    /// Reads a policy. `base` is the absolute folder that a relative `workspace` is meant against; `workspace`
    /// overrides what the file says.
    ///
    /// # Errors
    /// Names the line or the key at fault.
    pub fn parse(text: &str, base: &Path, workspace: Option<&Path>) -> Result<Self, PolicyError> {
        let file: PolicyFile =
            toml::from_str(text).map_err(|e| PolicyError(e.to_string().trim_end().to_owned()))?;
        if file.version != 1 {
            return Err(PolicyError(format!("`version = {}`: this host reads version 1", file.version)));
        }
        let workspace = match workspace {
            Some(path) => path.to_path_buf(),
            None => base.join(file.workspace.as_deref().unwrap_or(".")),
        };
        if !workspace.is_absolute() {
            return Err(PolicyError(format!(
                "the workspace `{}` is not an absolute path",
                workspace.display()
            )));
        }
        let workspace = reach::normalise(&workspace)
            .ok_or_else(|| PolicyError("`workspace` leads above the root".to_owned()))?;
        file.limits.check().map_err(|e| PolicyError(format!("[limits]: {e}")))?;
        if file.host.parallel_calls == 0 || file.host.parallel_calls > 1000 {
            return Err(PolicyError("[host]: `parallel_calls` is from 1 to 1000".to_owned()));
        }
        let mut plugins = BTreeMap::new();
        for (id, section) in file.plugins {
            let id = PluginId::new(&id).map_err(|e| PolicyError(format!("[plugins.{id:?}]: {e}")))?;
            let plugin =
                section.resolve(&workspace).map_err(|e| PolicyError(format!("[plugins.{id}]: {e}")))?;
            plugins.insert(id, plugin);
        }
        Ok(Self { workspace, host: file.host, limits: file.limits, plugins })
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

    /// Names of other plugins' tools whose results a plugin's reducers may see.
    #[must_use]
    pub fn reduces(&self, plugin: &PluginId) -> &[String] {
        self.plugins.get(plugin).map_or(&[], |p| &p.reduce)
    }

    /// What a tool gets: its declarations, cut down to the plugin's grant and to the tool's section.
    #[must_use]
    pub fn grant(&self, plugin: &PluginId, tool: &ToolName, declared: &[Capability]) -> Grants {
        let mut grants = Grants::default();
        for wish in declared {
            let hint = match wish.kind {
                CapabilityKind::FsRead => match self.grant_fs(plugin, tool, wish, FsKey::Read) {
                    Ok(found) => {
                        grants.fs_read.extend(found);
                        continue;
                    }
                    Err(hint) => hint,
                },
                CapabilityKind::FsWrite => match self.grant_fs(plugin, tool, wish, FsKey::Write) {
                    Ok(found) => {
                        grants.fs_write.extend(found);
                        continue;
                    }
                    Err(hint) => hint,
                },
                // Every call may read the clock in this version; a tool that says so is not worse off.
                CapabilityKind::Clock => continue,
                CapabilityKind::Net
                | CapabilityKind::Process
                | CapabilityKind::Secret
                | CapabilityKind::Kv
                | CapabilityKind::Env
                | CapabilityKind::Attachments => {
                    format!("This version of the host can not grant `{}`.", wish.kind.as_str())
                }
                CapabilityKind::Unknown(_) => "The host does not know this kind of capability.".to_owned(),
            };
            grants.missing.push(Missing { capability: wish.clone(), hint });
        }
        tidy(&mut grants.fs_read);
        tidy(&mut grants.fs_write);
        grants
    }

    fn grant_fs(
        &self,
        plugin: &PluginId,
        tool: &ToolName,
        wish: &Capability,
        key: FsKey,
    ) -> Result<Vec<Reach>, String> {
        let wanted = Reach::parse(&wish.target, &self.workspace)
            .map_err(|e| format!("Its author wrote a target the host can not read: {e}."))?;
        let section = self.plugins.get(plugin);
        let allowed = section.map_or(&[][..], |p| key.of_plugin(p));
        let mut found = reach::intersect_all(std::slice::from_ref(&wanted), allowed);
        if let Some(narrow) = self.narrower(plugin, tool, key) {
            found = reach::intersect_all(&found, narrow);
        }
        if !found.is_empty() {
            return Ok(found);
        }
        // Whoever asks for everything is given the workspace first.
        let everything = wanted.path() == Path::new("/");
        let folder = if everything { &self.workspace } else { wanted.path() };
        Err(format!("To allow it, write in the policy:\n{}", self.fs_lines(plugin, tool, key, folder)))
    }

    /// The folders that a tool's own section leaves of its plugin's.
    fn narrower(&self, plugin: &PluginId, tool: &ToolName, key: FsKey) -> Option<&[Reach]> {
        self.plugins.get(plugin)?.tools.get(tool).and_then(|tool| key.of_tool(tool))
    }

    /// The policy lines that would open `folder` to a tool: the table, and in it the whole list as it would have to
    /// be, what stands there now included.
    #[must_use]
    pub fn fs_lines(&self, plugin: &PluginId, tool: &ToolName, key: FsKey, folder: &Path) -> String {
        let of_plugin = self.plugins.get(plugin).map_or(&[][..], |p| key.of_plugin(p));
        let granted = of_plugin.iter().any(|reach| reach.covers(folder));
        let (table, list) = match self.narrower(plugin, tool, key) {
            Some(narrow) if granted => (format!("[plugins.{plugin}.tools.{tool}]"), narrow),
            _ => (format!("[plugins.{plugin}.grant]"), of_plugin),
        };
        let shown = list.iter().map(|reach| reach.shown(&self.workspace));
        let all: Vec<String> = shown
            .chain([reach::show(folder, &self.workspace)])
            .map(|folder| serde_json::Value::from(folder).to_string())
            .collect();
        format!("{table}\n{} = [{}]", key.name(), all.join(", "))
    }
}

/// Which of the two file lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsKey {
    /// `fs_read`
    Read,
    /// `fs_write`
    Write,
}

impl FsKey {
    /// The list's key in the policy.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "fs_read",
            Self::Write => "fs_write",
        }
    }
    fn of_plugin(self, plugin: &PluginPolicy) -> &[Reach] {
        match self {
            Self::Read => &plugin.fs_read,
            Self::Write => &plugin.fs_write,
        }
    }
    fn of_tool(self, tool: &ToolPolicy) -> Option<&[Reach]> {
        match self {
            Self::Read => tool.fs_read.as_deref(),
            Self::Write => tool.fs_write.as_deref(),
        }
    }
}

fn tidy(reaches: &mut Vec<Reach>) {
    let all = std::mem::take(reaches);
    *reaches = reach::intersect_all(&all, &all);
}

// The file as it is written.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    version: u32,
    workspace: Option<String>,
    #[serde(default)]
    host: HostLimits,
    #[serde(default)]
    limits: LimitsPatch,
    #[serde(default)]
    plugins: BTreeMap<String, PluginSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginSection {
    file: Option<String>,
    sha256: Option<String>,
    #[serde(default)]
    config: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    limits: LimitsPatch,
    #[serde(default)]
    grant: GrantSection,
    #[serde(default)]
    tools: BTreeMap<String, ToolSection>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct GrantSection {
    fs_read: Vec<String>,
    fs_write: Vec<String>,
    reduce: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolSection {
    fs_read: Option<Vec<String>>,
    fs_write: Option<Vec<String>>,
    #[serde(default)]
    limits: LimitsPatch,
}

impl PluginSection {
    fn resolve(self, workspace: &Path) -> Result<PluginPolicy, String> {
        let reaches = |list: &[String]| {
            list.iter().map(|text| Reach::parse(text, workspace)).collect::<Result<Vec<_>, _>>()
        };
        self.limits.check()?;
        let sha256 = self.sha256.map(|s| s.to_ascii_lowercase());
        if sha256.as_ref().is_some_and(|s| s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err("`sha256` is not 64 hex digits".to_owned());
        }
        if let Some(name) = self.grant.reduce.iter().find(|name| !name.contains(name::SEAM)) {
            return Err(format!("`reduce` names `{name}`: write the qualified name, `PLUGIN__{name}`"));
        }
        let mut tools = BTreeMap::new();
        for (name, section) in self.tools {
            let name = ToolName::new(&name).map_err(|e| e.to_string())?;
            section.limits.check()?;
            let tool = ToolPolicy {
                fs_read: section.fs_read.as_deref().map(reaches).transpose()?,
                fs_write: section.fs_write.as_deref().map(reaches).transpose()?,
                limits: section.limits,
            };
            tools.insert(name, tool);
        }
        Ok(PluginPolicy {
            file: self.file,
            sha256,
            config: self.config,
            limits: self.limits,
            fs_read: reaches(&self.grant.fs_read)?,
            fs_write: reaches(&self.grant.fs_write)?,
            reduce: self.grant.reduce,
            tools,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let grants = policy.grant(&id(plugin), &tool(name), &wishes);
            let paths = |reaches: &[Reach]| {
                reaches.iter().map(|r| r.path().display().to_string()).collect::<Vec<_>>()
            };
            assert_eq!(
                (paths(&grants.fs_read), paths(&grants.fs_write)),
                (
                    read.iter().map(ToString::to_string).collect(),
                    write.iter().map(ToString::to_string).collect::<Vec<_>>()
                ),
                "{plugin} {name} {wishes:?}"
            );
            assert_eq!(grants.missing.len(), missing, "{plugin} {name} {wishes:?}");
            assert_eq!(grants.unavailable().is_some(), missing > 0);
        }
    }

    #[test]
    fn a_refusal_shows_the_lines_that_would_allow_it() {
        let policy = policy();
        let text = policy
            .grant(&id("notes"), &tool("read"), &[wish("fs-read", "$workspace/notes/**")])
            .unavailable()
            .unwrap();
        assert!(text.contains("[plugins.notes.grant]\nfs_read = [\"$workspace/notes\"]"), "{text}");
        // and they do allow it
        let fixed = format!("{FILE}\n[plugins.notes.grant]\nfs_read = [\"$workspace/notes\"]");
        let policy = Policy::parse(&fixed, Path::new("/base"), None).unwrap();
        assert_eq!(
            policy
                .grant(&id("notes"), &tool("read"), &[wish("fs-read", "$workspace/notes/**")])
                .unavailable(),
            None
        );
        let narrowed =
            policy.grant(&id("files"), &tool("write_file"), &[wish("fs-write", "$workspace/out/else")]);
        let lines =
            "[plugins.files.tools.write_file]\nfs_write = [\"$workspace/out/tmp\", \"$workspace/out/else\"]";
        assert!(narrowed.unavailable().unwrap().contains(lines), "{narrowed:?}");
        let more =
            policy.grant(&id("files"), &tool("read_file"), &[wish("fs-read", "/etc")]).unavailable().unwrap();
        let lines = "[plugins.files.grant]\nfs_read = [\"$workspace\", \"/srv/data\", \"/etc\"]";
        assert!(more.contains(lines), "what stands there is kept: {more}");
    }

    #[test]
    fn what_can_not_be_read_is_refused_with_the_place() {
        for (text, part) in [
            ("", "version"),
            ("version = 2", "version 1"),
            ("version = 1\n[plugins.x.grant]\nnet = [\"https://a\"]", "net"),
            ("version = 1\n[plugins.x]\napprove = \"always\"", "approve"),
            ("version = 1\n[plugins.a__b]\n", "__"),
            ("version = 1\n[plugins.x.grant]\nfs_read = [\"notes\"]", "$workspace"),
            ("version = 1\n[plugins.x.grant]\nfs_read = [\"/a/*.txt\"]", "globs"),
            ("version = 1\n[plugins.x.limits]\ntimeout = \"0s\"", "timeout"),
            ("version = 1\n[limits]\ntimeout = 30", "string"),
            ("version = 1\n[limits]\nmemory = \"2GiB\"", "at most"),
            ("version = 1\n[limits]\nfuel = -1", "fuel"),
            ("version = 1\n[host]\nparallel_calls = 0", "parallel_calls"),
            ("version = 1\n[plugins.x.grant]\nreduce = [\"read_file\"]", "PLUGIN__read_file"),
            ("version = 1\n[plugins.x]\nsha256 = \"abc\"", "64 hex"),
        ] {
            let error = Policy::parse(text, Path::new("/base"), None).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
