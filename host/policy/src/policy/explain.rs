//! Where a policy grants something, and which line would have to be added: explanations for people. [`Policy::grant`]
//! makes the decisions.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Serialize, Serializer};

use super::{GrantKey, Policy, RuleLists};
use crate::capability::Capability;
use crate::capability::kind::by_rule;
pub use crate::limits::table::LimitRow;
use crate::limits::{self, CallLimits};
use crate::name::{PluginId, ToolName};
use crate::rule::{self, GrantRule};

/// A line that an operator could add to the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ProposedLine {
    /// The names of the table: `plugins`, the id, `grant`.
    pub table: Vec<String>,
    /// The key of the list.
    pub key: GrantKey,
    /// The line to add. `true` for the switches `clock` and `random`.
    pub line: String,
}

impl Serialize for GrantKey {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.name())
    }
}

/// Returns the lines of `inner` that no line of `outer` covers. Both are lists of the same policy key. A line that
/// cannot be parsed, or that belongs to an unknown key, is covered only by an equal line.
pub(crate) fn uncovered_lines<'a>(
    key: &str,
    outer: &BTreeSet<String>,
    inner: &'a BTreeSet<String>,
    workspace: &Path,
) -> Vec<&'a String> {
    fn uncovered<'a, R: GrantRule>(
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
    match GrantKey::ALL.iter().find(|known| known.name() == key) {
        Some(key) if !lines.is_empty() => by_rule!(key, uncovered(outer, lines, workspace)),
        _ => lines,
    }
}

/// Returns the proposed line for a declared target. `None` if the target is invalid.
fn proposed_line(key: GrantKey, target: &str, workspace: &Path) -> Option<String> {
    fn line<R: GrantRule>(target: &str, workspace: &Path) -> Option<String> {
        R::parse_declared(target, workspace).ok().map(|declared| declared.proposed_line(workspace))
    }
    by_rule!(key, line(target, workspace))
}

impl Policy {
    /// Returns where the policy defines what a tool gets for a key: `[plugins.files.grant] fs_read`, then the
    /// narrower levels.
    #[must_use]
    pub fn grant_locations(
        &self,
        plugin: &PluginId,
        tool: &ToolName,
        key: GrantKey,
        profile: Option<&str>,
    ) -> Vec<String> {
        let levels = self.list_levels(plugin, tool, profile, key).into_iter();
        let levels = levels.filter(|(_, list)| list.is_some());
        levels.map(|(table, _)| format!("{table} {}", key.name())).collect()
    }

    /// Returns a list of `[plugins.ID.grant]` as policy lines. `None` if it is absent.
    #[must_use]
    pub fn grant_lines(&self, plugin: &PluginId, key: GrantKey) -> Option<Vec<String>> {
        self.plugin_rules(plugin)?.list_lines(key, &self.workspace)
    }

    /// Returns the line that would grant a declaration that [`Policy::grant`] refused, with its table. `None` if no
    /// single line would.
    #[must_use]
    pub fn proposal(
        &self,
        plugin: &PluginId,
        tool: &ToolName,
        declared: &Capability,
    ) -> Option<ProposedLine> {
        let key = GrantKey::for_kind(&declared.kind)?;
        self.grant(plugin, tool, std::slice::from_ref(declared), None).missing().next()?;
        let line = proposed_line(key, &declared.target, &self.workspace)?;
        let granted =
            self.plugin_rules(plugin).and_then(|rules| rules.list_grants(key, &line, &self.workspace));
        let narrowed = self.tool_rules(plugin, tool).and_then(|rules| rules.list_lines(key, &self.workspace));
        let mut table = vec!["plugins".to_owned(), plugin.to_string()];
        match (granted, narrowed) {
            (Some(true), Some(_)) => table.extend(["tools".to_owned(), tool.to_string()]),
            _ => table.push("grant".to_owned()),
        }
        Some(ProposedLine { table, key, line })
    }

    /// Whether the policy could grant a plugin anything, whatever it declares.
    #[must_use]
    pub fn grants_anything(&self, plugin: &PluginId) -> bool {
        self.plugin_rules(plugin).is_some_and(RuleLists::grants_anything)
            || !self.reducer_bindings(plugin).is_empty()
    }

    /// Returns all limits of a tool with the places that set them. `in_force` has their values. `asked_chars` is the
    /// longest result that the tool's author asks for.
    #[must_use]
    pub fn limit_rows(
        &self,
        plugin: &PluginId,
        tool: &ToolName,
        in_force: &CallLimits,
        asked_chars: Option<u64>,
    ) -> Vec<LimitRow> {
        let plugin_policy = self.plugins.get(plugin);
        let absent = limits::CallLimitsPatch::default();
        let own = plugin_policy.map_or(&absent, |own| &own.section.limits);
        let of_tool = plugin_policy.and_then(|own| own.tools.get(tool)).map(|tool| &tool.section.limits);
        let mut layers =
            vec![(&self.limits, "[limits]".to_owned()), (own, format!("[plugins.{plugin}.limits]"))];
        layers.extend(of_tool.map(|patch| (patch, format!("[plugins.{plugin}.tools.{tool}.limits]"))));
        limits::limit_rows(in_force, &layers, asked_chars)
    }

    /// The limits of the host, with the places that set them.
    #[must_use]
    pub fn host_rows(&self) -> Vec<LimitRow> {
        self.host.limit_rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::CapabilityKind;

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

    fn declared(kind: &str, target: &str) -> Capability {
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
        for (tool, declared, expect) in [
            ("read", declared("fs-read", "**"), None),
            ("read", declared("fs-write", "**"), Some("plugins.files.grant fs_write $workspace")),
            ("read", declared("fs-read", "/srv"), Some("plugins.files.grant fs_read /srv")),
            ("read", declared("process", "git"), Some("plugins.files.grant process git *")),
            ("write", declared("kv", "tool"), Some("plugins.files.tools.write kv tool")),
            ("write", declared("kv", "agent"), Some("plugins.files.grant kv agent")),
            ("read", declared("clock", ""), Some("plugins.files.grant clock true")),
            ("read", declared("fs-read", "not a folder"), None),
            ("read", declared("kv", "from-profile"), None),
            ("read", declared("time-travel", "1985"), None),
        ] {
            let found = policy.proposal(&files, &ToolName::new(tool).unwrap(), &declared);
            let shown = found.map(|p| format!("{} {} {}", p.table.join("."), p.key.name(), p.line));
            assert_eq!(shown.as_deref(), expect, "{declared:?}");
        }
    }

    #[test]
    fn grant_locations_are_the_tables_of_its_lists() {
        let policy = Policy::parse(FILE, Path::new("/w"), None).unwrap();
        let (files, tool) = (PluginId::new("files").unwrap(), |name| ToolName::new(name).unwrap());
        let stands = |name, profile| policy.grant_locations(&files, &tool(name), GrantKey::FsRead, profile);
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
