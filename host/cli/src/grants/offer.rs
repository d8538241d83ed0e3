//! `toolbay grant` as the remedy of a refusal: offered only if it writes exactly the lists of the hint.

use std::collections::{BTreeMap, BTreeSet};

use toolbay::{Host, PluginId};
use toolbay_policy::hint::{LineValue, PolicyLine};
use toolbay_policy::{GrantKey, Policy};

use super::NamedTools;
use super::proposal::GrantEdit;
use crate::setup::{PolicyFile, SetupArgs};

/// The lines of the lists of a plugin's grant, in no order.
type GrantLists = BTreeMap<GrantKey, BTreeSet<String>>;

/// The command that writes the lists of a hint about a tool, and nothing else. `None` if there is none: the lists are
/// those of a tool or a profile, a definition is missing, or the grant of what is declared would be wider or would not
/// allow the use.
pub(crate) fn command_for_hint(
    args: &SetupArgs,
    host: &Host,
    tool: &str,
    lines: &[PolicyLine],
) -> Option<String> {
    let catalog = host.registry().snapshot();
    let entry = catalog.get(tool)?;
    let plugin = entry.def.source.plugin()?;
    let wanted = hint_lists(plugin, lines)?;
    let file = PolicyFile::find_or_new(args, true).ok()?;
    let tools = super::named_tools(host, plugin);
    let offer = GrantOffer { file: &file, policy: &host.policy(), plugin, wanted: &wanted };
    let keys = wanted.keys().map(|key| key.name()).collect::<Vec<_>>().join(",");
    let command = format!("toolbay grant {plugin} --only {keys}");
    let bare = entry.def.bare();
    if offer.is_exact(&tools, None) {
        return Some(command);
    }
    offer.is_exact(&tools, Some(bare)).then(|| format!("{command} --tool {bare}"))
}

/// The lists of a hint. `None` if it has others than those of `[plugins.ID.grant]`.
fn hint_lists(plugin: &PluginId, lines: &[PolicyLine]) -> Option<GrantLists> {
    let table = format!("[plugins.{plugin}.grant]");
    let list = |line: &PolicyLine| {
        let key = GrantKey::ALL.iter().find(|key| key.name() == line.key).filter(|_| line.table == table)?;
        let texts = match &line.value {
            LineValue::Switch => ["true".to_owned()].into(),
            LineValue::List(texts) => texts.iter().cloned().collect(),
            LineValue::Text(_) => return None,
        };
        Some((*key, texts))
    };
    lines.iter().map(list).collect()
}

/// The lists that a grant is to leave.
struct GrantOffer<'a> {
    file: &'a PolicyFile,
    policy: &'a Policy,
    plugin: &'a PluginId,
    wanted: &'a GrantLists,
}

impl GrantOffer<'_> {
    /// Whether the grant for all tools, or for one, leaves exactly the wanted lists and changes no other table.
    fn is_exact(&self, tools: &NamedTools, tool: Option<&str>) -> bool {
        let only: Vec<String> = self.wanted.keys().map(|key| key.name().to_owned()).collect();
        let Ok(edit) = GrantEdit::propose(self.file, self.policy, self.plugin, tools, &only, tool) else {
            return false;
        };
        let table = ["plugins", self.plugin.as_str(), "grant"];
        let is_left = |(key, lines): (&GrantKey, &BTreeSet<String>)| {
            let left = edit.policy.grant_lines(self.plugin, *key).unwrap_or_default();
            left.into_iter().collect::<BTreeSet<String>>() == *lines
        };
        edit.impossible.is_empty()
            && edit.proposals.iter().all(|proposal| proposal.table == table)
            && self.wanted.iter().all(is_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lists_of_the_plugin_are_a_grant() {
        let plugin = PluginId::new("p").unwrap();
        let line = |table: &str, key: &str| {
            let value =
                if key == "clock" { LineValue::Switch } else { LineValue::List(vec!["a".to_owned()]) };
            PolicyLine::new(table, key, value)
        };
        let keys = |lines: &[PolicyLine]| {
            hint_lists(&plugin, lines).map(|lists| lists.into_keys().collect::<Vec<_>>())
        };
        let own = "[plugins.p.grant]";
        assert_eq!(
            keys(&[line(own, "fs_read"), line(own, "clock")]),
            Some(vec![GrantKey::FsRead, GrantKey::Clock])
        );
        for (table, key) in [
            ("[plugins.p.tools.t]", "fs_read"),
            ("[profile.q]", "fs_read"),
            ("[plugins.q.grant]", "fs_read"),
            (own, "nope"),
            ("[secrets.\"KEY\"]", "headers"),
        ] {
            assert_eq!(keys(&[line(own, "fs_read"), line(table, key)]), None, "{table} {key}");
        }
    }
}
