//! Where a grant stands in the policy, and what would have to be written there: the answers for people, beside
//! [`Policy::grant`], which decides.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Serialize, Serializer};

use super::{Key, Policy, Rules};
use crate::capability::{Capability, CapabilityKind};
use crate::limits::Limits;
use crate::limits::table;
pub use crate::limits::table::LimitRow;
use crate::name::{PluginId, ToolName};
use crate::rule::{self, Rule};

/// A line that an operator could add to the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Proposal {
    /// The table, name by name: `plugins`, the id, `grant`.
    pub table: Vec<String>,
    /// The list in it.
    pub key: Key,
    /// The line for the list; for `clock` and `random`, which are switches, `true`.
    pub line: String,
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.name())
    }
}

impl Key {
    /// The list that grants capabilities of a kind; `None` if no list does.
    #[must_use]
    pub fn of(kind: &CapabilityKind) -> Option<Self> {
        match kind {
            CapabilityKind::FsRead => Some(Self::FsRead),
            CapabilityKind::FsWrite => Some(Self::FsWrite),
            CapabilityKind::Net => Some(Self::Net),
            CapabilityKind::Process => Some(Self::Process),
            CapabilityKind::Secret => Some(Self::Secrets),
            CapabilityKind::Kv => Some(Self::Kv),
            CapabilityKind::Env => Some(Self::Env),
            CapabilityKind::Attachments => Some(Self::Attachments),
            CapabilityKind::Clock => Some(Self::Clock),
            CapabilityKind::Random => Some(Self::Random),
            CapabilityKind::Invoke => Some(Self::Invoke),
            CapabilityKind::Unknown(_) => None,
        }
    }

    /// Whether it is a switch and not a list.
    #[must_use]
    pub const fn is_switch(self) -> bool {
        matches!(self, Self::Clock | Self::Random)
    }
}

/// Calls a function for the rules of a list; a switch has none.
macro_rules! by_kind {
    ($key:expr, $call:ident($($argument:expr),*), switch: $switch:expr) => {
        match $key {
            Key::FsRead | Key::FsWrite => $call::<$crate::capability::reach::Reach>($($argument),*),
            Key::Net => $call::<$crate::capability::net::NetRule>($($argument),*),
            Key::NetPrivate => $call::<::ipnet::IpNet>($($argument),*),
            Key::Process => $call::<$crate::capability::program::ProgramRule>($($argument),*),
            Key::Secrets => $call::<$crate::capability::secret::SecretRule>($($argument),*),
            Key::Kv => $call::<$crate::capability::kv::Scope>($($argument),*),
            Key::Env => $call::<$crate::capability::environment::EnvRule>($($argument),*),
            Key::Attachments => $call::<$crate::capability::attachment::AttachmentRule>($($argument),*),
            Key::Invoke => $call::<$crate::capability::invoke_rule::InvokeRule>($($argument),*),
            Key::Clock | Key::Random => $switch,
        }
    };
}

pub(super) use by_kind;

/// The lines that do not lie in one of `outer`, all as a list of the policy writes them. A line that can not be read, or
/// of a list that is not known, lies only in one that is written the same.
pub(crate) fn lines_beyond<'a>(
    key: &str,
    outer: &BTreeSet<String>,
    inner: &'a BTreeSet<String>,
    workspace: &Path,
) -> Vec<&'a String> {
    fn beyond<'a, R: Rule>(
        outer: &BTreeSet<String>,
        lines: Vec<&'a String>,
        workspace: &Path,
    ) -> Vec<&'a String> {
        let outer: Vec<R> = outer.iter().filter_map(|line| R::parse(line, workspace).ok()).collect();
        let covered = |inner: &R| outer.iter().any(|outer| rule::covers(outer, inner));
        let new = |line: &&String| !R::parse(line, workspace).is_ok_and(|line| covered(&line));
        lines.into_iter().filter(new).collect()
    }
    let lines: Vec<&String> = inner.iter().filter(|line| !outer.contains(*line)).collect();
    match Key::ALL.into_iter().find(|known| known.name() == key) {
        Some(key) if !lines.is_empty() => {
            by_kind!(key, beyond(outer, lines, workspace), switch: lines)
        }
        _ => lines,
    }
}

/// The line that would be proposed to an operator for a wish; `None` if the wish can not be read.
fn ask_for(key: Key, target: &str, workspace: &Path) -> Option<String> {
    fn line<R: Rule>(target: &str, workspace: &Path) -> Option<String> {
        R::parse_wish(target, workspace).ok().map(|wish| wish.ask_for(workspace))
    }
    by_kind!(key, line(target, workspace), switch: Some("true".to_owned()))
}

impl Policy {
    /// Where in the policy it is written what a tool gets of a kind: `[plugins.files.grant] fs_read`, and what narrows
    /// it.
    #[must_use]
    pub fn stands(&self, plugin: &PluginId, tool: &ToolName, key: Key, profile: Option<&str>) -> Vec<String> {
        let of_profile = profile.and_then(|name| self.profile(name)).map(|profile| &profile.rules);
        [
            (format!("[plugins.{plugin}.grant]"), self.rules(plugin)),
            (format!("[plugins.{plugin}.tools.{tool}]"), self.narrower(plugin, tool)),
            (format!("[profile.{}]", profile.unwrap_or_default()), of_profile),
        ]
        .into_iter()
        .filter(|(_, rules)| rules.is_some_and(|rules| rules.shown(key, &self.workspace).is_some()))
        .map(|(table, _)| format!("{table} {}", key.name()))
        .collect()
    }

    /// The line that would grant a wish that [`Policy::grant`] refused, where it would have to stand; `None` if no
    /// line would, or not one line alone.
    #[must_use]
    pub fn proposal(&self, plugin: &PluginId, tool: &ToolName, wish: &Capability) -> Option<Proposal> {
        let key = Key::of(&wish.kind)?;
        self.grant(plugin, tool, std::slice::from_ref(wish), None).missing().next()?;
        let line = ask_for(key, &wish.target, &self.workspace)?;
        let granted = self.rules(plugin).and_then(|rules| rules.hold(key, &line, &self.workspace));
        let narrowed = self.narrower(plugin, tool).and_then(|rules| rules.shown(key, &self.workspace));
        let mut table = vec!["plugins".to_owned(), plugin.to_string()];
        match (granted, narrowed) {
            (Some(true), Some(_)) => table.extend(["tools".to_owned(), tool.to_string()]),
            _ => table.push("grant".to_owned()),
        }
        Some(Proposal { table, key, line })
    }

    /// Whether the policy has lines that could grant a plugin anything, whatever it declares.
    #[must_use]
    pub fn grants_anything(&self, plugin: &PluginId) -> bool {
        self.rules(plugin).is_some_and(Rules::hold_anything) || !self.reduces(plugin).is_empty()
    }

    /// All limits that hold for a tool, with where each was set. `limits` are those in force; `asked_chars` is the
    /// longest result that the tool's author wants.
    #[must_use]
    pub fn limit_rows(
        &self,
        plugin: &PluginId,
        tool: &ToolName,
        limits: &Limits,
        asked_chars: Option<u64>,
    ) -> Vec<LimitRow> {
        let section = self.plugins.get(plugin);
        let absent = crate::limits::LimitsPatch::default();
        let own = section.map_or(&absent, |section| &section.limits);
        let of_tool = section.and_then(|section| section.tools.get(tool)).map(|tool| &tool.limits);
        let mut layers =
            vec![(&self.limits, "[limits]".to_owned()), (own, format!("[plugins.{plugin}.limits]"))];
        layers.extend(of_tool.map(|patch| (patch, format!("[plugins.{plugin}.tools.{tool}.limits]"))));
        table::of_call(limits, &layers, asked_chars)
    }

    /// The bounds of the host, with where each was set.
    #[must_use]
    pub fn host_rows(&self) -> Vec<LimitRow> {
        table::of_host(&self.host)
    }
}

impl Rules {
    fn hold_anything(&self) -> bool {
        fn some<T>(list: Option<&Vec<T>>) -> bool {
            list.is_some_and(|list| !list.is_empty())
        }
        some(self.fs_read.as_ref())
            || some(self.fs_write.as_ref())
            || some(self.net.as_ref())
            || some(self.process.as_ref())
            || some(self.secrets.as_ref())
            || some(self.kv.as_ref())
            || some(self.env.as_ref())
            || some(self.attachments.as_ref())
            || self.clock == Some(true)
            || self.random == Some(true)
            || some(self.invoke.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        version = 1
        [plugins.files.grant]
        fs_read = ["$workspace"]
        kv = ["tool", "plugin"]
        [plugins.files.tools.write]
        fs_read = ["$workspace/out"]
        kv = []
        [profile.p]
        fs_read = ["$workspace/in"]
        [plugins.none.grant]
        fs_read = []
    "#;

    fn wish(kind: &str, target: &str) -> Capability {
        Capability {
            kind: CapabilityKind::parse(kind),
            target: target.to_owned(),
            optional: false,
            reason: None,
        }
    }

    #[test]
    fn a_proposal_is_a_line_that_grants() {
        let policy = Policy::parse(FILE, Path::new("/w"), None).unwrap();
        let files = PluginId::new("files").unwrap();
        for (tool, wish, expect) in [
            ("read", wish("fs-read", "**"), None),
            ("read", wish("fs-write", "**"), Some("plugins.files.grant fs_write $workspace")),
            ("read", wish("fs-read", "/srv"), Some("plugins.files.grant fs_read /srv")),
            ("read", wish("process", "git"), Some("plugins.files.grant process git *")),
            ("write", wish("kv", "tool"), Some("plugins.files.tools.write kv tool")),
            ("write", wish("kv", "agent"), Some("plugins.files.grant kv agent")),
            ("read", wish("clock", ""), Some("plugins.files.grant clock true")),
            ("read", wish("fs-read", "not a folder"), None),
            ("read", wish("kv", "from-profile"), None),
            ("read", wish("time-travel", "1985"), None),
        ] {
            let found = policy.proposal(&files, &ToolName::new(tool).unwrap(), &wish);
            let shown = found.map(|p| format!("{} {} {}", p.table.join("."), p.key.name(), p.line));
            assert_eq!(shown.as_deref(), expect, "{wish:?}");
        }
    }

    #[test]
    fn a_grant_stands_where_its_lists_are() {
        let policy = Policy::parse(FILE, Path::new("/w"), None).unwrap();
        let (files, tool) = (PluginId::new("files").unwrap(), |name| ToolName::new(name).unwrap());
        let stands = |name, profile| policy.stands(&files, &tool(name), Key::FsRead, profile);
        assert_eq!(stands("read", None), ["[plugins.files.grant] fs_read"]);
        assert_eq!(
            stands("write", Some("p")),
            ["[plugins.files.grant] fs_read", "[plugins.files.tools.write] fs_read", "[profile.p] fs_read"]
        );
        assert!(policy.grants_anything(&files));
        for id in ["none", "unknown"] {
            assert!(!policy.grants_anything(&PluginId::new(id).unwrap()), "{id}");
        }
    }
}
