//! `toolbay grant` as the remedy of a refusal: offered only if it writes exactly the lists of the hint.

use std::collections::{BTreeMap, BTreeSet};

use toml_edit::{DocumentMut, Item, TableLike};
use toolbay::{Host, PluginId};
use toolbay_policy::{GrantKey, Policy};

use super::NamedTools;
use super::proposal::GrantEdit;
use crate::setup::{PolicyFile, SetupArgs};

/// The lines of the lists of a plugin's grant, in no order.
type GrantLists = BTreeMap<GrantKey, BTreeSet<String>>;

/// The command that writes the lists of a hint about a tool, and nothing else. `None` if there is none: the lists are
/// those of a tool or a profile, a definition is missing, or the grant of what is declared would be wider or would not
/// allow the use.
pub(crate) fn command_for_hint(args: &SetupArgs, host: &Host, tool: &str, toml: &str) -> Option<String> {
    let catalog = host.registry().snapshot();
    let entry = catalog.get(tool)?;
    let plugin = entry.def.source.plugin()?;
    let wanted = hint_lists(plugin, toml)?;
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
fn hint_lists(plugin: &PluginId, toml: &str) -> Option<GrantLists> {
    let document: DocumentMut = toml.parse().ok()?;
    let plugins = only_table(document.as_table(), "plugins")?;
    let grant = only_table(only_table(plugins, plugin.as_str())?, "grant")?;
    grant.iter().map(|(key, list)| Some((grant_key(key)?, lines(list)?))).collect()
}

/// A table that is the only entry of another one.
fn only_table<'t>(table: &'t dyn TableLike, name: &str) -> Option<&'t dyn TableLike> {
    table.get(name).filter(|_| table.len() == 1)?.as_table_like()
}

fn grant_key(name: &str) -> Option<GrantKey> {
    GrantKey::ALL.iter().find(|key| key.name() == name).copied()
}

fn lines(list: &Item) -> Option<BTreeSet<String>> {
    if list.as_bool() == Some(true) {
        return Some(["true".to_owned()].into());
    }
    list.as_array()?.iter().map(|line| line.as_str().map(str::to_owned)).collect()
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
        let keys = |toml| hint_lists(&plugin, toml).map(|lists| lists.into_keys().collect::<Vec<_>>());
        assert_eq!(
            keys("[plugins.p.grant]\nfs_read = [\"a\"]\nclock = true"),
            Some(vec![GrantKey::FsRead, GrantKey::Clock])
        );
        for other in [
            "[plugins.p.tools.t]\nfs_read = [\"a\"]",
            "[plugins.p.grant]\nfs_read = [\"a\"]\n[profile.q]\nfs_read = [\"a\"]",
            "[plugins.q.grant]\nfs_read = [\"a\"]",
            "[plugins.p.grant]\nnope = [\"a\"]",
            "[secrets.\"KEY\"]\nheaders = [\"a\"]",
        ] {
            assert_eq!(keys(other), None, "{other}");
        }
    }
}
