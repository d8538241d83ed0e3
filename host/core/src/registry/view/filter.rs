//! What a view lets through, and the gates of a tool in their order.
//!
//! An absent list means everything, an empty list means nothing (the seed's rule, and the one its users trip over).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolbay_policy::Profile;
use toolbay_policy::refusal::Refusal;

use crate::registry::{Catalog, Entry};
use crate::tool::ToolSource;

/// What is let through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Qualified names; `None`: all.
    pub allowed_tools: Option<BTreeSet<String>>,
    /// Plugin ids; `None`: all. Tools that come from no plugin are not asked.
    pub allowed_plugins: Option<BTreeSet<String>>,
    /// Toolsets; `None`: all. A tool without one is in none.
    pub allowed_toolsets: Option<BTreeSet<String>>,
    /// MCP servers; `None`: all. Tools that come from no MCP server are not asked.
    pub allowed_mcp_servers: Option<BTreeSet<String>>,
    /// For each MCP server the names of its tools as it has them, without prefix; a server that is not in the map has
    /// all its tools.
    pub allowed_mcp_tools: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Qualified names that are out whatever else lets them in.
    pub exclude_tools: BTreeSet<String>,
    /// Lists only what is always included; the rest is found by search and may be called. A
    /// profile can say the same.
    pub lazy: bool,
    /// The profile: lets less through, and the calls run with what it leaves of their grants. Where the registry knows
    /// a newer one of this name, since the policy was read again, that one counts.
    pub profile: Option<Arc<Profile>>,
}

/// The gate that a tool does not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gate {
    Excluded,
    NotPermitted,
    NotInProfile(Arc<str>),
    Disabled(Arc<str>),
    Unavailable(Refusal),
}

/// How a tool came into a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// From the registry: the lists decide.
    Catalog,
    /// Whoever made the view put it there: the lists speak of the registry and are not asked.
    Ephemeral,
}

impl Filter {
    /// All that a profile lets through.
    #[must_use]
    pub fn of_profile(profile: Option<Arc<Profile>>) -> Self {
        Self { profile, ..Self::default() }
    }

    /// The same under the policy of a state of the registry, if that has another profile of this name: the policy was
    /// read again since the filter was made.
    pub(super) fn under_policy_of(&self, catalog: &Catalog) -> Option<Self> {
        let given = self.profile.as_ref()?;
        let now = catalog.profile(given.name())?;
        let same = Arc::ptr_eq(given, now) || given == now;
        (!same).then(|| Self { profile: Some(Arc::clone(now)), ..self.clone() })
    }

    /// Whether it lists only what is always included.
    pub(super) fn is_lazy(&self) -> bool {
        self.lazy || self.profile.as_ref().is_some_and(|profile| profile.lazy)
    }

    /// Whether a tool that may be called is in the first list.
    pub(super) fn shows(&self, entry: &Entry) -> bool {
        let flags = entry.flags;
        !flags.hidden && !flags.deferred && (flags.always_include || !self.is_lazy())
    }

    /// The name of the profile.
    pub(super) fn profile_name(&self) -> Option<&Arc<str>> {
        self.profile.as_ref().map(|profile| profile.name())
    }

    /// The gates, in the seed's order. This order is a security property: read it at one glance.
    pub(super) fn gate(&self, entry: &Entry, origin: Origin) -> Option<Gate> {
        let (name, profile) = (entry.def.name.as_str(), self.profile.as_deref());
        if self.exclude_tools.contains(name) || profile.is_some_and(|p| p.exclude_tools.contains(name)) {
            return Some(Gate::Excluded);
        }
        if origin == Origin::Catalog && !self.lists(entry) {
            return Some(Gate::NotPermitted);
        }
        if let (Some(profile), Origin::Catalog) = (profile, origin)
            && !(passes(entry, &profile.tools, &profile.plugins, &profile.toolsets)
                && passes_mcp(entry, &profile.mcp_servers, &profile.mcp_tools))
        {
            return Some(Gate::NotInProfile(Arc::clone(profile.name())));
        }
        if let Some(reason) = &entry.availability.disabled {
            return Some(Gate::Disabled(Arc::clone(reason)));
        }
        let reason = entry.unavailable_under(profile.map(|profile| &**profile.name()))?;
        Some(Gate::Unavailable(reason.into_owned()))
    }

    fn lists(&self, entry: &Entry) -> bool {
        passes(entry, &self.allowed_tools, &self.allowed_plugins, &self.allowed_toolsets)
            && passes_mcp(entry, &self.allowed_mcp_servers, &self.allowed_mcp_tools)
    }
}

type List = Option<BTreeSet<String>>;

/// Whether the lists of servers and of their tools let a tool through; of tools from elsewhere they say nothing.
fn passes_mcp(entry: &Entry, servers: &List, tools: &Option<BTreeMap<String, BTreeSet<String>>>) -> bool {
    let ToolSource::Mcp { server, .. } = &*entry.def.source else { return true };
    let of_server = tools.as_ref().and_then(|all| all.get(&**server));
    servers.as_ref().is_none_or(|list| list.contains(&**server))
        && of_server.is_none_or(|list| list.contains(entry.def.bare()))
}

/// Whether each of three lists lets a tool through: an absent one does, an empty one does not.
fn passes(entry: &Entry, tools: &List, plugins: &List, toolsets: &List) -> bool {
    let has = |list: &BTreeSet<String>, name: Option<&str>| name.is_some_and(|name| list.contains(name));
    let plugin = entry.def.source.plugin();
    tools.as_ref().is_none_or(|list| list.contains(entry.def.name.as_str()))
        && plugins.as_ref().is_none_or(|list| plugin.is_none() || has(list, plugin.map(|id| id.as_str())))
        && toolsets
            .as_ref()
            .is_none_or(|list| entry.flags.always_include || has(list, entry.def.keywords.toolset.as_deref()))
}
