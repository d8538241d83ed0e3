//! Views: the tools that one caller sees and may call. One object decides both.
//!
//! A view is a catalog with a filter and optional local tools. It never changes, and its construction does no work per
//! tool. The listing is computed once and shared by all views with the same catalog and filter.

mod filter;
mod merge;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub use self::filter::Filter;
pub use crate::registry::ToolEntry;

use toolbay_policy::Profile;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::NAME_SEPARATOR;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::similar::{TypedName, did_you_mean};

pub(crate) use self::filter::ToolDenial;
use self::filter::ToolOrigin;
use crate::registry::{AbsentSource, Bundle, Catalog, Collision, OnCollision, ReducerEntry, ToolListing};
use crate::tool::content::ToolError;
use crate::tool::prompts_and_resources::PromptsAndResources;
use crate::tool::refusal::{Refusal, RefusalReason};

/// Longest name that a refusal repeats, in characters.
const MAX_NAME: usize = 100;
/// Most names that an unknown name is compared with. Any client and any guest can request unknown names.
const MAX_COMPARED: usize = 2000;

/// A catalog with a filter. It is cheap to construct and to clone.
#[derive(Debug, Clone)]
pub struct View {
    catalog: Arc<Catalog>,
    filter: Arc<Filter>,
    local: Option<Arc<LocalTools>>,
    listing: Arc<OnceLock<ToolListing>>,
}

/// The local tools and reducers of a view. They shadow those of the catalog.
#[derive(Debug, Clone, Default)]
struct LocalTools {
    tools: BTreeMap<Arc<str>, LocalTool>,
    reducers: BTreeMap<String, Arc<ReducerEntry>>,
}

/// A local tool of a view, with the filter that applies to it.
#[derive(Debug, Clone)]
struct LocalTool {
    entry: Arc<ToolEntry>,
    filter: Arc<Filter>,
    origin: ToolOrigin,
}

/// A tool of a view, with the filter that decides whether it is callable.
#[derive(Clone, Copy)]
pub(crate) struct FoundTool<'v> {
    entry: &'v Arc<ToolEntry>,
    filter: &'v Arc<Filter>,
    origin: ToolOrigin,
}

impl<'v> FoundTool<'v> {
    /// The first gate that refuses the tool.
    pub(crate) fn denial(&self) -> Option<ToolDenial> {
        self.filter.denial(self.entry, self.origin)
    }

    fn to_local(self) -> LocalTool {
        LocalTool { entry: Arc::clone(self.entry), filter: Arc::clone(self.filter), origin: self.origin }
    }

    fn if_available(self) -> Option<&'v Arc<ToolEntry>> {
        self.denial().is_none().then_some(self.entry)
    }

    /// The tool, even if it is not callable.
    pub(crate) fn entry(self) -> &'v Arc<ToolEntry> {
        self.entry
    }

    /// Whether the tool is callable.
    pub(crate) fn is_available(self) -> bool {
        self.denial().is_none()
    }

    /// The profile for calls of the tool.
    pub(crate) fn profile(self) -> Option<&'v Profile> {
        self.filter.profile.as_deref()
    }

    /// The name of the profile.
    pub(crate) fn profile_name(self) -> Option<&'v Arc<str>> {
        self.filter.profile_name()
    }
}

impl LocalTool {
    fn as_found(&self) -> FoundTool<'_> {
        FoundTool { entry: &self.entry, filter: &self.filter, origin: self.origin }
    }
}

impl View {
    /// A view of a catalog. Views that share a filter as an `Arc` also share the listing.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, filter: impl Into<Arc<Filter>>) -> Self {
        let filter = filter.into();
        let filter = filter.with_current_profile(&catalog).map_or(filter, Arc::new);
        Self { catalog, filter, local: None, listing: Arc::default() }
    }

    /// Returns a new view with additional local tools and reducers, which exist in that view only. The allow lists of
    /// the filter do not apply to them, but its exclusions do.
    ///
    /// # Errors
    /// A name is taken in the catalog or this view, even by a tool that the filter hides, and the policy of the tool or
    /// `on_collision` is [`OnCollision::Fail`].
    pub fn with_bundle(
        &self,
        bundle: impl Into<Bundle>,
        on_collision: OnCollision,
    ) -> Result<Self, Collision> {
        let Bundle { tools, reducers } = bundle.into();
        let mut local = self.local.as_deref().cloned().unwrap_or_default();
        for mut entry in tools {
            let name: Arc<str> = entry.def.name.as_str().into();
            let taken = local.tools.get(&name).map(|added| &added.entry).or_else(|| self.catalog.get(&name));
            match (taken, entry.on_collision.unwrap_or(on_collision)) {
                (Some(taken), OnCollision::Fail) => return Err(Collision::with_tool(taken)),
                (Some(_), OnCollision::Keep) => {}
                (None, _) | (Some(_), OnCollision::Replace) => {
                    self.catalog.settings().apply(&mut entry);
                    local.reducers.remove(&*name);
                    let filter = Arc::clone(&self.filter);
                    let entry = Arc::clone(self.shown_entry(&Arc::new(entry)));
                    let added = LocalTool { entry, filter, origin: ToolOrigin::Ephemeral };
                    local.tools.insert(name, added);
                }
            }
        }
        for reducer in reducers {
            let target = reducer.target.clone();
            let taken = match local.tools.contains_key(&*target) {
                true => local.reducers.get(&target),
                false => local.reducers.get(&target).or_else(|| self.catalog.reducer(&target)),
            };
            match (taken, on_collision) {
                (Some(taken), OnCollision::Fail) => return Err(Collision::with_reducer(taken)),
                (Some(_), OnCollision::Keep) => {}
                (None, _) | (Some(_), OnCollision::Replace) => {
                    local.reducers.insert(target, Arc::new(reducer));
                }
            }
        }
        Ok(self.with_local(local))
    }

    fn with_local(&self, local: LocalTools) -> Self {
        let (catalog, filter) = (Arc::clone(&self.catalog), Arc::clone(&self.filter));
        Self { catalog, filter, local: Some(Arc::new(local)), listing: Arc::default() }
    }

    /// The default list, sorted by name: the callable tools, except for hidden and deferred ones.
    pub fn definitions(&self) -> impl ExactSizeIterator<Item = &Arc<ToolEntry>> {
        let list = || {
            self.found_tools()
                .filter(|found| found.filter.lists_by_default(found.entry))
                .filter_map(FoundTool::if_available)
        };
        let listing = self.listing.get_or_init(|| match self.local {
            None => self.catalog.listing(&self.filter, || list().cloned().collect()),
            Some(_) => list().cloned().collect(),
        });
        listing.iter()
    }

    /// Whether the default list can lack tools that a search finds: the view is lazy or has deferred tools.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        let deferred = |local: &LocalTools| local.tools.values().any(|added| added.entry.flags.deferred);
        let some = self.catalog.has_deferred() || self.local.as_deref().is_some_and(deferred);
        self.filter.is_lazy() || (some && self.discoverable().any(|entry| entry.flags.deferred))
    }

    /// The tools that a search finds, sorted by name: those of the default list and the deferred ones.
    pub fn discoverable(&self) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.callable().filter(|entry| !entry.flags.hidden)
    }

    /// All callable tools, sorted by name, including deferred and hidden ones.
    pub fn callable(&self) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.found_tools().filter_map(FoundTool::if_available)
    }

    /// The prompts and resources of the sources of callable tools: each once, in the order of its first tool.
    #[must_use]
    pub fn prompts_and_resources(&self) -> Vec<&Arc<PromptsAndResources>> {
        let mut found: Vec<&Arc<PromptsAndResources>> = Vec::new();
        for source in self.callable().filter_map(|entry| entry.prompts_and_resources.as_ref()) {
            // The tools of a plugin are adjacent, so search from the end.
            let is_same = |one: &&Arc<PromptsAndResources>| Arc::ptr_eq(one, source);
            if !source.is_empty() && !found.iter().rev().any(is_same) {
                found.push(source);
            }
        }
        found
    }

    /// All tools of the view, sorted by name, even if they are not callable.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.found_tools().map(|found| found.entry)
    }

    /// The tool with this name, even if it is not callable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        self.find_tool(name).map(|found| found.entry)
    }

    /// Whether a tool has this name and the caller may know that, even if it is not callable.
    #[must_use]
    pub fn is_visible(&self, name: &str) -> bool {
        let hides = |found: FoundTool<'_>| found.denial().is_some_and(|denial| denial.hides_tool());
        self.find_tool(name).is_some_and(|found| !hides(found))
    }

    /// The tool with this name, if it is callable. [`View::find`] returns the reason otherwise.
    #[must_use]
    pub fn get_callable(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        self.find_tool(name).and_then(FoundTool::if_available)
    }

    /// The tool with this name, if it is callable.
    ///
    /// # Errors
    /// The tool is unknown, or a gate refuses it; the error is that of the first such gate.
    pub fn find(&self, name: &str) -> Result<&Arc<ToolEntry>, ToolError> {
        let Some(found) = self.find_tool(name) else { return Err(self.unknown_tool_error(name)) };
        match found.denial() {
            None => Ok(found.entry),
            Some(denial) => Err(self.refuse_denied(name, denial).into()),
        }
    }

    /// The reason why a tool is not callable, for the operator; `None` if it is callable.
    #[must_use]
    pub fn denial_reason(&self, entry: &ToolEntry) -> Option<PolicyRefusal> {
        let found =
            self.find_tool(entry.def.name.as_str()).filter(|found| std::ptr::eq(&**found.entry, entry));
        let denial =
            found.map_or_else(|| self.filter.denial(entry, ToolOrigin::Catalog), |found| found.denial());
        Some(match denial? {
            ToolDenial::Unavailable(refusal) => refusal,
            denial => format!("it is {}", describe(&denial)).into(),
        })
    }

    /// The profile of the view.
    #[must_use]
    pub fn profile(&self) -> Option<&Arc<str>> {
        self.filter.profile_name()
    }

    /// The reducer for results of a tool.
    #[must_use]
    pub fn reducer(&self, tool: &str) -> Option<&Arc<ReducerEntry>> {
        let Some(local) = &self.local else { return self.catalog.reducer(tool) };
        match local.reducers.get(tool) {
            None if !local.tools.contains_key(tool) => self.catalog.reducer(tool),
            reducer => reducer,
        }
    }

    /// The reducer for results of a tool of this view.
    pub(crate) fn reducer_for<'a>(&'a self, entry: &'a ToolEntry) -> Option<&'a Arc<ReducerEntry>> {
        let name = entry.def.name.as_str();
        match &self.local {
            Some(_) => self.reducer(name),
            None => self.catalog.reducer_of(entry),
        }
    }

    /// The catalog of the view.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The error for an unknown name, with suggestions of similar names. Only tools that a search in this view finds
    /// are suggested.
    #[must_use]
    pub fn unknown_tool_error(&self, name: &str) -> ToolError {
        self.refuse_unknown(name).into()
    }

    /// The refusal of an unknown name.
    pub(crate) fn refuse_unknown(&self, name: &str) -> Refusal {
        if let Some(reason) = self.left_out_reason(name) {
            let text = format!("{}; {}", unknown_tool(name), reason.text);
            return Refusal::new(RefusalReason::LeftOut, text).with_hint(reason.hint.clone());
        }
        if let Some(AbsentSource { label, state }) = self.absent_source_of(name) {
            let text = format!("{}; its source `{label}` {}", unknown_tool(name), state.describe());
            return Refusal::new(RefusalReason::SourceAbsent, text);
        }
        Refusal::new(RefusalReason::UnknownTool, self.unknown_tool_message(name))
    }

    /// The refusal of the first gate that refuses a tool. The caller must not learn the names of tools outside of its
    /// view: it reads what it would read of an unknown name.
    fn refuse_denied(&self, name: &str, denial: ToolDenial) -> Refusal {
        let reason = denial.reason();
        match denial {
            ToolDenial::Excluded | ToolDenial::NotPermitted | ToolDenial::NotInProfile(_) => {
                let hint = format!("`{}` exists, and is {}", one_line(name, MAX_NAME), describe(&denial));
                Refusal::new(reason, self.unknown_tool_message(name)).with_hint(Some(hint.into()))
            }
            ToolDenial::Disabled(_) => {
                let text = format!("Tool {name} is {}; only the operator can enable it", describe(&denial));
                Refusal::new(reason, text)
            }
            ToolDenial::Unavailable(refusal) => {
                let text = format!("Tool {name} is not currently available: {}", refusal.for_model(name));
                Refusal::new(reason, text).with_hint(refusal.hint)
            }
        }
    }

    /// The refusal of a tool by a gate, or of an unknown name.
    pub(crate) fn refuse(&self, name: &str, denial: Option<ToolDenial>) -> Refusal {
        match denial {
            Some(denial) => self.refuse_denied(name, denial),
            None => self.refuse_unknown(name),
        }
    }

    fn unknown_tool_message(&self, name: &str) -> String {
        match did_you_mean(&self.similar(name)) {
            Some(suggestion) => format!("{}; {suggestion}", unknown_tool(name)),
            None => unknown_tool(name),
        }
    }

    /// Why a source could not register the tool with this name ([`Registry::set_left_out`](super::Registry::set_left_out)).
    /// `None` if no source names such a tool, or if this view would not show it.
    #[must_use]
    pub fn left_out_reason(&self, name: &str) -> Option<&PolicyRefusal> {
        // The toolset of such a tool is the label of its source.
        let (source, reason) = self.catalog.left_out(name)?;
        self.filter.may_name(name, source).then_some(reason)
    }

    /// The source that a tool of this name would have, if that source has no tools. `None` if this view would hide one of
    /// its tools: the answer must not reveal which names the view excludes.
    #[must_use]
    pub fn absent_source_of(&self, name: &str) -> Option<&AbsentSource> {
        self.catalog.absent_source_of(name).filter(|source| self.filter.may_name("", &source.label))
    }

    /// An estimate of the steps of [`View::similar`], of about ten nanoseconds each: two comparisons of counts for each
    /// name, and the exact comparisons of the best ones.
    pub(crate) fn suggestion_steps(&self) -> u64 {
        let local = self.local.as_ref().map_or(0, |local| local.tools.len());
        let names = self.catalog.tools().len().saturating_add(local);
        (names as u64).saturating_mul(40).saturating_add(10_000)
    }

    /// The names that are most similar to an unknown name, among the tools that a search finds: at most three, best
    /// first. In a catalog with more than `MAX_COMPARED` tools, only names of the same namespace are compared.
    #[must_use]
    pub fn similar(&self, name: &str) -> Vec<&str> {
        let namespace = name.split_once(NAME_SEPARATOR).map(|(namespace, _)| namespace);
        let all = self.catalog.tools().len() <= MAX_COMPARED;
        let is_compared =
            |found: &FoundTool<'_>| all || (namespace.is_some() && found.entry.def.namespace() == namespace);
        let named = self.found_tools().filter(is_compared).take(MAX_COMPARED);
        // Whether a tool may be named is asked about the best candidates only.
        TypedName::new(name).nearest_of(named.map(|found| (found.entry.def.name.as_str(), found)), |found| {
            !found.entry.flags.hidden && found.is_available()
        })
    }

    /// The tool with this name and its filter.
    pub(crate) fn find_tool(&self, name: &str) -> Option<FoundTool<'_>> {
        let local = self.local.as_ref().and_then(|local| local.tools.get(name));
        local
            .map(LocalTool::as_found)
            .or_else(|| self.catalog.get(name).map(|entry| self.found_in_catalog(entry)))
    }

    fn found_in_catalog<'v>(&'v self, entry: &'v Arc<ToolEntry>) -> FoundTool<'v> {
        FoundTool { entry: self.shown_entry(entry), filter: &self.filter, origin: ToolOrigin::Catalog }
    }

    /// The entry as the callers of this view see it.
    fn shown_entry<'v>(&self, entry: &'v Arc<ToolEntry>) -> &'v Arc<ToolEntry> {
        let by_default = || self.catalog.view_defaults.toolcall_reason;
        let asks = entry.call.toolcall_reason.or(self.filter.toolcall_reason).unwrap_or_else(by_default);
        ToolEntry::with_reason_argument(entry, asks)
    }

    /// All tools, sorted by name: a merge of two sorted sequences. A local tool shadows a tool of the catalog.
    fn found_tools(&self) -> impl Iterator<Item = FoundTool<'_>> {
        let mut catalog = self.catalog.tools().map(|entry| self.found_in_catalog(entry)).peekable();
        let local = self.local.as_ref().map(|local| local.tools.values());
        let mut local = local.into_iter().flatten().map(LocalTool::as_found).peekable();
        std::iter::from_fn(move || {
            let (Some(next), Some(added)) = (catalog.peek(), local.peek()) else {
                return catalog.next().or_else(|| local.next());
            };
            match next.entry.def.name.cmp(&added.entry.def.name) {
                Ordering::Less => catalog.next(),
                Ordering::Greater => local.next(),
                Ordering::Equal => {
                    catalog.next();
                    local.next()
                }
            }
        })
    }
}

fn unknown_tool(name: &str) -> String {
    format!("Unknown tool: {}", one_line(name, MAX_NAME))
}

/// The denial of a tool, for the operator.
fn describe(denial: &ToolDenial) -> String {
    match denial {
        ToolDenial::Excluded => "excluded on this surface".to_owned(),
        ToolDenial::NotPermitted => "not permitted for this agent".to_owned(),
        ToolDenial::NotInProfile(profile) => format!("not in the profile `{profile}`"),
        ToolDenial::Disabled(reason) => format!("disabled: {reason}"),
        ToolDenial::Unavailable(refusal) => format!("not available: {}", refusal.text),
    }
}

#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
