//! Filters of views, and the gates of a tool in their order.
//!
//! An absent list allows everything; an empty list allows nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolbay_policy::Profile;
use toolbay_policy::refusal::PolicyRefusal;

use crate::registry::{Catalog, ToolEntry};
use crate::tool::ToolSource;
use crate::tool::refusal::RefusalReason;

/// The filter of a view.
///
/// ```
/// # use toolbay_core::registry::{Registry, native};
/// # use toolbay_core::tool::content::ToolOutput;
/// use std::collections::BTreeSet;
/// use toolbay_core::registry::view::{Filter, View};
///
/// # let registry = Registry::default();
/// # for name in ["read", "write"] {
/// #     let tool = native::tool(name).description(name);
/// #     registry.register(tool.run(async |_, _| Ok(ToolOutput::default()))?)?;
/// # }
/// let exclude_tools = BTreeSet::from(["write".to_owned()]);
/// let view = View::new(registry.snapshot(), Filter { exclude_tools, ..Filter::default() });
/// assert!(view.find("read").is_ok());
/// assert!(view.find("write").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The allowed qualified names; `None` allows all.
    pub allowed_tools: Option<BTreeSet<String>>,
    /// The allowed plugin ids; `None` allows all. The list does not apply to tools of other sources.
    pub allowed_plugins: Option<BTreeSet<String>>,
    /// The allowed toolsets; `None` allows all. A list allows no tool without a toolset.
    pub allowed_toolsets: Option<BTreeSet<String>>,
    /// The allowed tags; `None` allows all. A list allows tools with at least one of them, whatever
    /// [`ToolFlags::always_include`](crate::registry::ToolFlags) says.
    pub allowed_tags: Option<BTreeSet<String>>,
    /// The allowed MCP servers; `None` allows all. The list does not apply to tools of other sources.
    pub allowed_mcp_servers: Option<BTreeSet<String>>,
    /// The allowed tools of MCP servers, by the server's own tool names. All tools of a server that is not in the map
    /// are allowed.
    pub allowed_mcp_tools: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Excluded qualified names. They take precedence over all lists above.
    pub exclude_tools: BTreeSet<String>,
    /// Excluded tags: tools with one of them are excluded like `exclude_tools`.
    pub exclude_tags: BTreeSet<String>,
    /// Whether the default list has only tools with [`ToolFlags::always_include`](crate::registry::ToolFlags). All
    /// other tools are callable, and a search finds them. A profile can also set this.
    pub lazy: bool,
    /// Whether callers are asked for a reason ([`crate::tool::toolcall_reason`]), for tools without a setting of their
    /// own ([`CallSettings::toolcall_reason`](crate::registry::CallSettings)). `None` follows the policy.
    pub toolcall_reason: Option<bool>,
    /// The profile. It restricts the tools and their grants further. If the registry has a newer profile of this name
    /// after a policy reload, the newer one applies.
    pub profile: Option<Arc<Profile>>,
}

/// How the [label](ToolSource::label) of an MCP server begins.
const MCP_LABEL: &str = "mcp:";

/// The gate that refuses a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolDenial {
    Excluded,
    NotPermitted,
    NotInProfile(Arc<str>),
    Disabled(Arc<str>),
    Unavailable(PolicyRefusal),
}

impl ToolDenial {
    /// The reason of the refusal.
    pub(crate) fn reason(&self) -> RefusalReason {
        match self {
            Self::Excluded => RefusalReason::Excluded,
            Self::NotPermitted => RefusalReason::Filter,
            Self::NotInProfile(_) => RefusalReason::Profile,
            Self::Disabled(_) => RefusalReason::Disabled,
            Self::Unavailable(_) => RefusalReason::Unavailable,
        }
    }

    /// Whether the caller must not learn that the tool exists.
    pub(crate) fn hides_tool(&self) -> bool {
        self.reason().hides_tool()
    }
}

/// The origin of a tool in a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolOrigin {
    /// The tool comes from the registry. All gates apply.
    Catalog,
    /// The tool is local to the view. The allow lists do not apply.
    Ephemeral,
}

impl Filter {
    /// A filter with a profile only.
    #[must_use]
    pub fn for_profile(profile: Option<Arc<Profile>>) -> Self {
        Self { profile, ..Self::default() }
    }

    /// The filter with the catalog's profile of the same name, if that differs because the policy was reloaded.
    pub(super) fn with_current_profile(&self, catalog: &Catalog) -> Option<Self> {
        let given = self.profile.as_ref()?;
        let now = catalog.profile(given.name())?;
        let is_same = Arc::ptr_eq(given, now) || given == now;
        (!is_same).then(|| Self { profile: Some(Arc::clone(now)), ..self.clone() })
    }

    /// Whether the default list has only tools that are always included.
    pub(super) fn is_lazy(&self) -> bool {
        self.lazy || self.profile.as_ref().is_some_and(|profile| profile.lazy)
    }

    /// Whether a callable tool is in the default list.
    pub(super) fn lists_by_default(&self, entry: &ToolEntry) -> bool {
        let flags = entry.flags;
        !flags.hidden && !flags.deferred && (flags.always_include || !self.is_lazy())
    }

    /// The name of the profile.
    pub(super) fn profile_name(&self) -> Option<&Arc<str>> {
        self.profile.as_ref().map(|profile| profile.name())
    }

    /// The first gate that refuses a tool. The order of the gates is a security property, so this function shows it in
    /// one place.
    pub(super) fn denial(&self, entry: &ToolEntry, origin: ToolOrigin) -> Option<ToolDenial> {
        let profile = self.profile.as_deref();
        if entry.def.is_named_in(&self.exclude_tools)
            || has_tag_of(entry, &self.exclude_tags)
            || profile.is_some_and(|p| entry.def.is_named_in(&p.exclude_tools))
        {
            return Some(ToolDenial::Excluded);
        }
        if origin == ToolOrigin::Catalog && !self.passes_lists(entry) {
            return Some(ToolDenial::NotPermitted);
        }
        if let (Some(profile), ToolOrigin::Catalog) = (profile, origin)
            && !(passes(entry, &profile.tools, &profile.plugins, &profile.toolsets)
                && passes_mcp(entry, &profile.mcp_servers, &profile.mcp_tools))
        {
            return Some(ToolDenial::NotInProfile(Arc::clone(profile.name())));
        }
        if let Some(reason) = &entry.availability.disabled {
            return Some(ToolDenial::Disabled(Arc::clone(reason)));
        }
        let reason = entry.unavailable_reason(profile.map(|profile| &**profile.name()))?;
        Some(ToolDenial::Unavailable(reason.into_owned()))
    }

    /// Whether the lists would allow a tool that is not registered. Its toolset is the label of its source.
    pub(super) fn may_name(&self, name: &str, toolset: &str) -> bool {
        let server = toolset.strip_prefix(MCP_LABEL);
        let allows = |tools: &AllowList, toolsets: &AllowList, servers: &AllowList| {
            tools.as_ref().is_none_or(|list| list.contains(name))
                && toolsets.as_ref().is_none_or(|list| list.contains(toolset))
                && servers.as_ref().is_none_or(|list| server.is_none_or(|server| list.contains(server)))
        };
        // The lists of the tools of a server have the server's own names, which a left-out tool may lack.
        let restricts = |tools: &Option<BTreeMap<String, BTreeSet<String>>>| {
            server.is_some_and(|server| tools.as_ref().is_some_and(|all| all.contains_key(server)))
        };
        let profile = self.profile.as_deref();
        !self.exclude_tools.contains(name)
            && self.allowed_tags.is_none()
            && allows(&self.allowed_tools, &self.allowed_toolsets, &self.allowed_mcp_servers)
            && !restricts(&self.allowed_mcp_tools)
            && profile.is_none_or(|one| {
                !one.exclude_tools.contains(name)
                    && allows(&one.tools, &one.toolsets, &one.mcp_servers)
                    && !restricts(&one.mcp_tools)
            })
    }

    fn passes_lists(&self, entry: &ToolEntry) -> bool {
        passes(entry, &self.allowed_tools, &self.allowed_plugins, &self.allowed_toolsets)
            && passes_mcp(entry, &self.allowed_mcp_servers, &self.allowed_mcp_tools)
            && self.allowed_tags.as_ref().is_none_or(|tags| has_tag_of(entry, tags))
    }
}

fn has_tag_of(entry: &ToolEntry, tags: &BTreeSet<String>) -> bool {
    tags.iter().any(|tag| entry.has_tag(tag))
}

type AllowList = Option<BTreeSet<String>>;

/// Whether the lists of MCP servers and their tools allow a tool. Tools of other sources pass.
fn passes_mcp(
    entry: &ToolEntry,
    servers: &AllowList,
    tools: &Option<BTreeMap<String, BTreeSet<String>>>,
) -> bool {
    let ToolSource::Mcp { server, .. } = &*entry.def.source else { return true };
    let of_server = tools.as_ref().and_then(|all| all.get(&**server));
    servers.as_ref().is_none_or(|list| list.contains(&**server))
        && of_server.is_none_or(|list| {
            let names = [entry.def.bare(), entry.def.full_name().tool_part(), entry.def.own_name()];
            names.into_iter().any(|name| list.contains(name))
        })
}

/// Whether each of three lists allows a tool. An absent list allows every tool, an empty list none.
fn passes(entry: &ToolEntry, tools: &AllowList, plugins: &AllowList, toolsets: &AllowList) -> bool {
    let has = |list: &BTreeSet<String>, name: Option<&str>| name.is_some_and(|name| list.contains(name));
    let plugin = entry.def.source.plugin();
    tools.as_ref().is_none_or(|list| entry.def.is_named_in(list))
        && plugins.as_ref().is_none_or(|list| plugin.is_none() || has(list, plugin.map(|id| id.as_str())))
        && toolsets
            .as_ref()
            .is_none_or(|list| entry.flags.always_include || has(list, entry.def.keywords.toolset.as_deref()))
}
