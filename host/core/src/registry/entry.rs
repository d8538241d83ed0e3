//! Registry entries: tools with their invokers and settings, reducers, and bundles of both.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolbay_policy::limits::{CallLimits, DEFAULT_RESULT_BYTES};
use toolbay_policy::name::{NameError, PluginId, QualifiedName, ToolName};
use toolbay_policy::output::OutputSettings;
use toolbay_policy::refusal::PolicyRefusal;

use crate::call::invoke::Invoke;
use crate::call::reduce::Reduce;
use crate::registry::availability_check::{AvailabilityCheck, CheckResult};
use crate::registry::cache::Cache;
use crate::tool::prompts_and_resources::PromptsAndResources;
use crate::tool::tags::{self, Effects};
use crate::tool::toolcall_reason;
use crate::tool::{ToolDef, ToolSource};

/// What a registration does with a tool whose name is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCollision {
    /// The registration fails and changes nothing.
    #[default]
    Fail,
    /// The new tool replaces the old one.
    Replace,
    /// The old tool stays.
    Keep,
}

/// The visibility of a tool. Only `always_include` affects who may call it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ToolFlags {
    /// The tool is in no list and no search finds it. It is still callable.
    pub hidden: bool,
    /// The tool is not in the default list. A search finds it, and it is callable.
    pub deferred: bool,
    /// The tool passes the filter for toolsets, but no other gate, and is also in the list of a lazy view. The operator
    /// or the embedder sets this flag; the author's wish is in [`ToolTraits`](crate::tool::ToolTraits).
    pub always_include: bool,
}

/// A tool of the registry.
#[derive(Debug, Clone)]
pub struct ToolEntry {
    /// The definition of the tool.
    pub def: Arc<ToolDef>,
    /// The invoker that runs the tool.
    pub invoker: Arc<dyn Invoke>,
    /// The visibility of the tool.
    pub flags: ToolFlags,
    /// The availability of the tool.
    pub availability: ToolAvailability,
    /// The settings for calls and their results.
    pub call: CallSettings,
    /// The action if the name is taken; `None` applies the one of the registration.
    pub on_collision: Option<OnCollision>,
    /// The effects that the grants allow; `None` for a tool without a sandbox, which has no grants.
    pub effects: Option<Effects>,
    /// The prompts and resources of the tool's source. They are visible where the tool is callable.
    pub prompts_and_resources: Option<Arc<PromptsAndResources>>,
    /// How the tool's plugin describes itself. It is not sanitized.
    pub plugin_description: Option<Arc<str>>,
    /// The default reducer, used if no other reducer is registered for the tool.
    pub reducer: Option<Arc<ReducerEntry>>,
    /// The fields that the registry derives.
    pub derived: DerivedFields,
}

/// The availability of a tool, apart from the last result of its [`AvailabilityCheck`].
#[derive(Debug, Clone, Default)]
pub struct ToolAvailability {
    /// The reason if the tool is disabled.
    pub disabled: Option<Arc<str>>,
    /// The reason if the tool cannot run, such as a missing grant.
    pub unavailable: Option<PolicyRefusal>,
    /// The reason under each profile of the policy; `None` for native code, which profiles do not affect.
    pub by_profile: Option<Arc<BTreeMap<Arc<str>, Option<PolicyRefusal>>>>,
    /// The check for conditions beyond grants.
    pub check: Option<Arc<dyn AvailabilityCheck>>,
}

/// The settings for the calls of a tool and their results.
#[derive(Debug, Clone)]
pub struct CallSettings {
    /// Most bytes of arguments.
    pub args_bytes: u64,
    /// Longest `value`, in characters: the stricter of the operator's and the author's limit.
    pub result_chars: Option<u64>,
    /// Most bytes of a result apart from its text: `structured`, content blocks and `meta` together.
    pub result_bytes: u64,
    /// The serial queue of the tool, usually its name. Calls of all tools with the same queue run one after the other.
    pub serial: Option<Arc<str>>,
    /// How long a session may reuse a result instead of running the tool again; `None` means never. Set it only for
    /// tools whose results depend only on their arguments for that long.
    pub cache: Option<Duration>,
    /// The output settings of the tool. The host's settings apply where these have `None`.
    pub output: OutputSettings,
    /// Whether callers are asked for a reason ([`crate::tool::toolcall_reason`]); `None` follows the view's
    /// [`Filter`](crate::registry::view::Filter), then the policy.
    pub toolcall_reason: Option<bool>,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            args_bytes: CallLimits::default().args_bytes,
            result_chars: None,
            result_bytes: DEFAULT_RESULT_BYTES,
            serial: None,
            cache: None,
            output: OutputSettings::default(),
            toolcall_reason: None,
        }
    }
}

/// Overrides for the metadata of a tool. Fields that are `None` or empty keep the source's value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetadataOverride {
    /// The display name for people.
    pub title: Option<String>,
    /// The description that a model reads to decide whether to call the tool.
    pub description: Option<String>,
    /// Tags in addition to those of the source.
    pub tags: Vec<String>,
    /// Further words for search.
    pub search_hint: Option<String>,
    /// Whether the tool is left out of the default list.
    pub deferred: Option<bool>,
}

/// Fields that the registry derives from a tool and its settings.
#[derive(Debug, Clone, Default)]
pub struct DerivedFields {
    pub(super) tags: Arc<[Arc<str>]>,
    /// The reason of a hook that disabled the tool.
    pub(super) hook_reason: Option<Arc<str>>,
    /// The last result of the availability check.
    pub(super) last_check: Option<CheckResult>,
    /// The definition and flags of the source, before the settings.
    pub(super) source_definition: Option<(Arc<ToolDef>, ToolFlags)>,
    /// A value that another crate derives and caches.
    form: Cache<OnceLock<Box<dyn Any + Send + Sync>>>,
    /// The entry with the argument for the caller's reason; `None` inside if the schema already uses the name.
    with_reason: Cache<OnceLock<Option<Arc<ToolEntry>>>>,
    result_sizes: Arc<ResultSizes>,
}

/// Expected sizes of results, in bytes, learned from earlier results. Copies of an entry share them.
#[derive(Debug)]
struct ResultSizes {
    /// The size without texts.
    non_text: AtomicU64,
    /// The total size.
    total: AtomicU64,
}

impl Default for ResultSizes {
    /// No result is known yet.
    fn default() -> Self {
        Self { non_text: AtomicU64::new(u64::MAX), total: AtomicU64::new(0) }
    }
}

/// Updates an expectation: a larger result counts at once, and each smaller one lowers it by 1/32. After 64 small
/// results, about an eighth is left.
fn update_expectation(expected: &AtomicU64, known: u64, bytes: u64) {
    let next = bytes.max(known - known / 32);
    if next != known {
        expected.store(next, Ordering::Relaxed);
    }
}

impl ToolEntry {
    /// The cached value that `make` derives from this entry on first use, such as the tool in the format of a protocol.
    /// `None` if the cache holds a value of another type.
    pub fn cached_form<T: Any + Send + Sync>(&self, make: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.derived.form.0.get_or_init(|| Box::new(make(self))).downcast_ref()
    }

    /// An available tool with default settings.
    #[must_use]
    pub fn new(def: ToolDef, invoker: Arc<dyn Invoke>) -> Self {
        let flags = ToolFlags { deferred: def.traits.deferred, ..ToolFlags::default() };
        Self {
            derived: DerivedFields { tags: tags::derive(&def, None, &[]), ..DerivedFields::default() },
            def: Arc::new(def),
            invoker,
            flags,
            availability: ToolAvailability::default(),
            call: CallSettings::default(),
            on_collision: None,
            effects: None,
            prompts_and_resources: None,
            plugin_description: None,
            reducer: None,
        }
    }

    /// The expected size of the next result without its text, in bytes. Before the first result it is `result_bytes`.
    /// It is 0 if `result_bytes` does not exceed the default, which is too small to plan for.
    #[must_use]
    pub fn expected_result_bytes(&self) -> u64 {
        if self.call.result_bytes <= DEFAULT_RESULT_BYTES {
            return 0;
        }
        self.derived.result_sizes.non_text.load(Ordering::Relaxed).min(self.call.result_bytes)
    }

    /// The expected size of the next result including its uncut text, in bytes; 0 if it is too small to plan for.
    pub(crate) fn expected_total_bytes(&self) -> u64 {
        let total = self.derived.result_sizes.total.load(Ordering::Relaxed);
        let total = if total <= 2 * DEFAULT_RESULT_BYTES { 0 } else { total };
        total.max(self.expected_result_bytes())
    }

    /// Records the size of a result, without its text and in total.
    pub(crate) fn record_result_size(&self, non_text: u64, total: u64) {
        let sizes = &self.derived.result_sizes;
        if self.call.result_bytes > DEFAULT_RESULT_BYTES {
            update_expectation(&sizes.non_text, self.expected_result_bytes(), non_text);
        }
        update_expectation(&sizes.total, sizes.total.load(Ordering::Relaxed), total);
    }

    /// The entry as callers see it: if they are asked for a reason, with the argument for it
    /// ([`crate::tool::toolcall_reason`]), unless the tool's schema already uses that name.
    pub(super) fn with_reason_argument(entry: &Arc<Self>, asks: bool) -> &Arc<Self> {
        if !asks {
            return entry;
        }
        let variant = entry.derived.with_reason.0.get_or_init(|| {
            let shown = toolcall_reason::schema_with_reason(&entry.def.input_schema)?;
            let mut variant = Self::clone(entry);
            Arc::make_mut(&mut variant.def).input_schema = shown;
            Some(Arc::new(variant))
        });
        variant.as_ref().unwrap_or(entry)
    }

    /// Whether this is the registered entry, or its variant with the argument for the caller's reason.
    #[must_use]
    pub fn is_shown_form_of(&self, registered: &Arc<Self>) -> bool {
        let variant = registered.derived.with_reason.0.get().and_then(Option::as_ref);
        std::ptr::eq(self, &**registered) || variant.is_some_and(|variant| std::ptr::eq(self, &**variant))
    }

    /// Whether the host added the argument for the caller's reason.
    #[must_use]
    pub fn has_reason_argument(&self) -> bool {
        let schema = &self.def.input_schema;
        let has_argument = |schema: &Value| {
            schema.get("properties").is_some_and(|all| all.get(toolcall_reason::NAME).is_some())
        };
        has_argument(schema.value()) && !has_argument(schema.checked_value())
    }

    /// Sets the effects that the grants allow, and derives the tags from them.
    #[must_use]
    pub fn with_effects(self, effects: Effects) -> Self {
        let derived = DerivedFields { tags: tags::derive(&self.def, Some(effects), &[]), ..self.derived };
        Self { effects: Some(effects), derived, ..self }
    }

    /// The tags of the tool, sorted: those that the host derives ([`tags`]), those of the source and those of the
    /// operator.
    #[must_use]
    pub fn tags(&self) -> &[Arc<str>] {
        &self.derived.tags
    }

    /// Whether the tool has a tag.
    #[must_use]
    pub fn has_tag(&self, tag: &str) -> bool {
        self.derived.tags.iter().any(|one| **one == *tag)
    }

    /// The entry as its source defined it, without settings.
    #[must_use]
    pub(super) fn without_settings(&self) -> Self {
        let mut entry = self.clone();
        entry.derived.hook_reason = None;
        entry.availability.disabled = None;
        entry.apply_presentation(false, None);
        entry.derived.source_definition = None;
        entry
    }

    /// Applies visibility and metadata settings on top of the source's definition.
    pub(super) fn apply_presentation(&mut self, hidden: bool, metadata: Option<&MetadataOverride>) {
        let defined =
            self.derived.source_definition.take().unwrap_or_else(|| (Arc::clone(&self.def), self.flags));
        let (def, flags) = self.derived.source_definition.insert(defined);
        let (def, flags) = (Arc::clone(def), *flags);
        self.def = Arc::clone(&def);
        self.flags = ToolFlags { hidden: hidden || flags.hidden, ..flags };
        let more = metadata.map_or(&[][..], |metadata| &metadata.tags);
        self.derived.tags = tags::derive(&self.def, self.effects, more);
        let Some(metadata) = metadata else { return };
        self.flags.deferred = metadata.deferred.unwrap_or(flags.deferred);
        let mut def = ToolDef::clone(&def);
        def.title = metadata.title.clone().or(def.title);
        def.description = metadata.description.clone().unwrap_or(def.description);
        def.keywords.search_hint = metadata.search_hint.clone().or(def.keywords.search_hint);
        self.def = Arc::new(def);
    }

    /// The reason why the tool is unavailable under a profile. An unknown profile grants nothing.
    #[must_use]
    pub fn unavailable_reason(&self, profile: Option<&str>) -> Option<Cow<'_, PolicyRefusal>> {
        let (Some(profile), Some(known)) = (profile, &self.availability.by_profile) else {
            return self.availability.unavailable.as_ref().or(self.check_failure()).map(Cow::Borrowed);
        };
        match known.get(profile) {
            Some(reason) => reason.as_ref().or(self.check_failure()).map(Cow::Borrowed),
            None => Some(Cow::Owned(format!("the policy has no profile `{profile}`").into())),
        }
    }

    /// The reason from the last availability check.
    fn check_failure(&self) -> Option<&PolicyRefusal> {
        self.derived.last_check.as_ref()?.reason.as_deref()
    }

    /// The owner of the tool, for messages.
    pub(crate) fn owner(&self) -> String {
        match &*self.def.source {
            ToolSource::Builtin => owner(None),
            ToolSource::Plugin { id, .. } => owner(Some(id)),
            ToolSource::Mcp { server, .. } => format!("the MCP server `{server}`"),
            ToolSource::OpenApi { document } => format!("the OpenAPI document `{document}`"),
        }
    }
}

/// A reducer and the tool whose results it shortens.
#[derive(Debug, Clone)]
pub struct ReducerEntry {
    /// The qualified name of the tool.
    pub target: String,
    /// The name of the tool as the reducer declared it.
    pub declared: String,
    /// The plugin that owns the reducer; `None` for the embedder.
    pub owner: Option<PluginId>,
    /// The reducer.
    pub reducer: Arc<dyn Reduce>,
}

/// A handle to a registered reducer, for its removal.
#[derive(Debug, Clone)]
pub struct ReducerHandle(pub(super) Arc<ReducerEntry>);

impl ReducerHandle {
    /// The qualified name of the tool.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.0.target
    }
}

/// The tools and reducers of one source.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    /// The tools.
    pub tools: Vec<ToolEntry>,
    /// The reducers.
    pub reducers: Vec<ReducerEntry>,
}

impl Bundle {
    /// Moves native tools into a namespace: `NAME` and `OTHER__NAME` become `NAMESPACE__NAME`, also as targets of
    /// reducers. Tools of other sources keep their names.
    ///
    /// # Errors
    /// A name would be too long.
    pub fn with_namespace(mut self, namespace: &PluginId) -> Result<Self, NameError> {
        for entry in self.tools.iter_mut().filter(|entry| *entry.def.source == ToolSource::Builtin) {
            let name = QualifiedName::join(namespace, &ToolName::new(entry.def.bare())?)?;
            for reducer in self.reducers.iter_mut().filter(|one| one.target == entry.def.name.as_str()) {
                name.as_str().clone_into(&mut reducer.target);
            }
            entry.def = Arc::new(ToolDef { name, ..ToolDef::clone(&entry.def) });
        }
        Ok(self)
    }
}

impl From<ToolEntry> for Bundle {
    fn from(tool: ToolEntry) -> Self {
        Self { tools: vec![tool], reducers: Vec::new() }
    }
}

impl From<Vec<ToolEntry>> for Bundle {
    fn from(tools: Vec<ToolEntry>) -> Self {
        Self { tools, reducers: Vec::new() }
    }
}

/// A name that is already taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Collision {
    /// Another tool has this name.
    #[error("a tool `{name}` is already registered by {owner}")]
    Tool {
        /// The name.
        name: String,
        /// The owner of the other tool.
        owner: String,
    },
    /// Another source has tools in the plugin's namespace.
    #[error("the namespace `{namespace}__` of its tools is already used by {owner}")]
    Namespace {
        /// The namespace.
        namespace: String,
        /// The owner of the other tools.
        owner: String,
    },
    /// The tool already has a reducer.
    #[error("a reducer for tool `{target}` is already registered by {owner}")]
    Reducer {
        /// The tool.
        target: String,
        /// The owner of the other reducer.
        owner: String,
    },
}

impl Collision {
    pub(crate) fn with_tool(registered: &ToolEntry) -> Self {
        Self::Tool { name: registered.def.name.as_str().to_owned(), owner: registered.owner() }
    }

    pub(crate) fn with_reducer(registered: &ReducerEntry) -> Self {
        Self::Reducer { target: registered.target.clone(), owner: owner(registered.owner.as_ref()) }
    }
}

fn owner(plugin: Option<&PluginId>) -> String {
    plugin.map_or_else(|| "the host".to_owned(), |id| format!("plugin `{id}`"))
}
