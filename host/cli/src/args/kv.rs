//! The arguments of `toolbay kv`.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueHint};
use clap_complete::ArgValueCandidates;
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::name::PluginId;
use toolbay_policy::rule::GrantRule as _;

use crate::args::candidates;

/// The commands below `toolbay kv`.
#[derive(Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// List a plugin's entries, of all scopes.
    List {
        /// The plugin's id.
        #[arg(value_parser = PluginId::new, add = ArgValueCandidates::new(candidates::plugins))]
        plugin: PluginId,
        /// The maximum number of results.
        #[arg(long, value_name = "ENTRIES", default_value_t = 1000)]
        limit: usize,
    },
    /// Print the value of one entry, as it is.
    Get(EntryArgs),
    /// Remove one entry.
    Remove(EntryArgs),
    /// Remove everything a plugin stores.
    Clear {
        /// The plugin's id.
        #[arg(value_parser = PluginId::new, add = ArgValueCandidates::new(candidates::plugins))]
        plugin: PluginId,
    },
    /// Show how much each plugin stores.
    Usage,
    /// Write a consistent copy to a new file while the store is in use. The copy can replace `kv.redb`.
    Backup {
        /// The file, which must not exist.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

impl KvCommand {
    /// The plugin that it names.
    pub(crate) fn plugin(&self) -> Option<&PluginId> {
        match self {
            Self::List { plugin, .. } | Self::Clear { plugin } => Some(plugin),
            Self::Get(entry) | Self::Remove(entry) => Some(&entry.plugin),
            Self::Usage | Self::Backup { .. } => None,
        }
    }
}

/// One entry of the key-value storage.
#[derive(Debug, clap::Args)]
pub(crate) struct EntryArgs {
    /// The plugin's id.
    #[arg(value_parser = PluginId::new, add = ArgValueCandidates::new(candidates::plugins))]
    pub(crate) plugin: PluginId,
    /// The key.
    pub(crate) key: String,
    /// The scope: `tool`, `plugin`, `session` or `agent`.
    #[arg(long, default_value = "plugin", value_parser = parse_scope)]
    pub(crate) scope: KvScope,
    /// The owner of the entry, as `list` shows it: the tool, the session, `agent:ID` or `personality:ID`.
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) owner: String,
}

fn parse_scope(text: &str) -> Result<KvScope, String> {
    KvScope::parse(text, Path::new("/"))
}
