//! A tool as it stands in the registry, with what runs it and what the operator says of it.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use toolbay_policy::limits::{DEFAULT_RESULT_BYTES, Limits};
use toolbay_policy::name::{NameError, PluginId, QualifiedName, ToolName};
use toolbay_policy::output::Delivery;
use toolbay_policy::refusal::Refusal;

use crate::call::invoke::Invoke;
use crate::output::reduce::Reduce;
use crate::registry::availability::{Answer, Check};
use crate::registry::settings::Metadata;
use crate::tool::offer::Offers;
use crate::tool::reason;
use crate::tool::schema::Schema;
use crate::tool::tags::{self, Effects};
use crate::tool::{ToolDef, ToolSource};

/// What becomes of a tool whose name is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCollision {
    /// It is an error, and nothing changes.
    #[default]
    Throw,
    /// The new one takes the place of the old one.
    Replace,
    /// The old one stays.
    Keep,
}

/// How a tool is shown. None of it decides who may call it, but for `always_include`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Flags {
    /// In no list and found by no search; still callable.
    pub hidden: bool,
    /// Not in the first list; found by search, and callable.
    pub deferred: bool,
    /// Passes the lists of toolsets, and no other gate; in the list of a lazy view, too. Set by the operator or the embedder: what an author asks for
    /// is in [`ToolTraits`](crate::tool::ToolTraits).
    pub always_include: bool,
}

/// A tool with what runs it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What the tool is.
    pub def: Arc<ToolDef>,
    /// What runs it.
    pub invoker: Arc<dyn Invoke>,
    /// How it is shown.
    pub flags: Flags,
    /// Whether it can be called here and now.
    pub availability: ToolAvailability,
    /// How its calls run, and how their results are given out.
    pub call: CallSettings,
    /// The schema that arguments have to match, where callers see another: one that asks them for their reason, too, or one
    /// without values that are not seen.
    pub unasked: Option<Schema>,
    /// What happens if its name is taken; `None`: the registration decides.
    pub on_collision: Option<OnCollision>,
    /// What it can do to the world with its grants; `None`: it has none to go by, since no sandbox holds it.
    pub effects: Option<Effects>,
    /// What its source offers beside tools: shown where the tool may be called.
    pub offers: Option<Arc<Offers>>,
    /// What shortens its results where nobody registered another reducer for them.
    pub reducer: Option<Arc<ReducerEntry>>,
    /// What the registry derives.
    pub derived: Derived,
}

/// Whether a tool can be called here and now, beside what its [`Check`] last answered.
#[derive(Debug, Clone, Default)]
pub struct ToolAvailability {
    /// Why it is switched off, if it is.
    pub disabled: Option<Arc<str>>,
    /// Why it cannot run: a missing grant, for instance.
    pub unavailable: Option<Refusal>,
    /// The same under each profile of the policy; `None`: profiles make no difference, since it is native code.
    pub under_profiles: Option<Arc<BTreeMap<Arc<str>, Option<Refusal>>>>,
    /// Asked whether it is available, beyond what the grants say.
    pub check: Option<Arc<dyn Check>>,
}

/// How the calls of a tool run, and how their results are given out.
#[derive(Debug, Clone)]
pub struct CallSettings {
    /// Most bytes of arguments.
    pub args_bytes: u64,
    /// Longest `value`, in characters: the operator's and the author's bounds together.
    pub result_chars: Option<u64>,
    /// Most bytes of a result beside its text: `structured`, content blocks and `meta` together.
    pub result_bytes: u64,
    /// The serial queue of a tool that must not run beside itself: calls of all tools with the same queue run one after the
    /// other. Usually the tool's name.
    pub serial: Option<Arc<str>>,
    /// For how long a session may reuse a result instead of running the tool again; `None`: never. Only for tools whose
    /// results depend on nothing but their arguments for that long.
    pub cache: Option<Duration>,
    /// How its results are given out; what it leaves open the host decides.
    pub delivery: Delivery,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            args_bytes: Limits::default().args_bytes,
            result_chars: None,
            result_bytes: DEFAULT_RESULT_BYTES,
            serial: None,
            cache: None,
            delivery: Delivery::default(),
        }
    }
}

/// What the registry works out of a tool and of what is said of it.
#[derive(Debug, Clone, Default)]
pub struct Derived {
    pub(super) tags: Arc<[Arc<str>]>,
    /// Why a hook wants it off.
    pub(super) by_hook: Option<Arc<str>>,
    /// What its check last said.
    pub(super) answer: Option<Answer>,
    /// As its source has it, before the settings.
    pub(super) defined: Option<(Arc<ToolDef>, Flags)>,
    form: Form,
    answers: Arc<AnswerSizes>,
}

/// How large the answers of a tool were, in bytes. All copies of an entry have the same.
#[derive(Debug)]
struct AnswerSizes {
    /// Beside their texts.
    beside_text: AtomicU64,
    /// In all.
    whole: AtomicU64,
}

impl Default for AnswerSizes {
    /// Nothing is known.
    fn default() -> Self {
        Self { beside_text: AtomicU64::new(u64::MAX), whole: AtomicU64::new(0) }
    }
}

/// The expectation follows a larger answer at once. A few small ones say little: after 64 of them, an eighth is left.
fn expect(expected: &AtomicU64, known: u64, bytes: u64) {
    let next = bytes.max(known - known / 32);
    if next != known {
        expected.store(next, Ordering::Relaxed);
    }
}

/// What somebody made of an entry and keeps as long as it lasts. A copy of the entry may become another one, so it begins
/// without it.
#[derive(Default)]
struct Form(OnceLock<Box<dyn Any + Send + Sync>>);

impl Clone for Form {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Form")
    }
}

impl Entry {
    /// What `make` made of this entry when it was first asked, such as the tool's form in a protocol; `None`: somebody keeps
    /// something of another type here already.
    pub fn form<T: Any + Send + Sync>(&self, make: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.derived.form.0.get_or_init(|| Box::new(make(self))).downcast_ref()
    }

    /// A tool that can run everywhere, with the default bound on its arguments.
    #[must_use]
    pub fn new(def: ToolDef, invoker: Arc<dyn Invoke>) -> Self {
        let flags = Flags { deferred: def.traits.deferred, ..Flags::default() };
        Self {
            derived: Derived { tags: tags::derive(&def, None, &[]), ..Derived::default() },
            def: Arc::new(def),
            invoker,
            flags,
            availability: ToolAvailability::default(),
            call: CallSettings::default(),
            unasked: None,
            on_collision: None,
            effects: None,
            offers: None,
            reducer: None,
        }
    }

    /// Bytes that its next result is likely to have beside its text. Before the first one, `result_bytes`; 0 where that is
    /// no more than the default, which is too little to plan for.
    #[must_use]
    pub fn expected_result_bytes(&self) -> u64 {
        if self.call.result_bytes <= DEFAULT_RESULT_BYTES {
            return 0;
        }
        self.derived.answers.beside_text.load(Ordering::Relaxed).min(self.call.result_bytes)
    }

    /// Bytes that its next answer is likely to have, with the text before it is cut; 0 where that is too little to plan for.
    pub(crate) fn expected_answer_bytes(&self) -> u64 {
        let whole = self.derived.answers.whole.load(Ordering::Relaxed);
        let whole = if whole <= 2 * DEFAULT_RESULT_BYTES { 0 } else { whole };
        whole.max(self.expected_result_bytes())
    }

    /// Notes how large an answer was, beside its text and in all.
    pub(crate) fn note_answer(&self, beside_text: u64, whole: u64) {
        let sizes = &self.derived.answers;
        if self.call.result_bytes > DEFAULT_RESULT_BYTES {
            expect(&sizes.beside_text, self.expected_result_bytes(), beside_text);
        }
        expect(&sizes.whole, sizes.whole.load(Ordering::Relaxed), whole);
    }

    /// The same tool, whose callers are asked for the reason of each call ([`crate::tool::reason`]); as it was, if it has an
    /// argument of that name itself.
    #[must_use]
    pub fn asking_reason(mut self) -> Self {
        if let Some(shown) = reason::asked(&self.def.input_schema) {
            let def = Arc::make_mut(&mut self.def);
            let plain = std::mem::replace(&mut def.input_schema, shown);
            self.unasked.get_or_insert(plain);
        }
        self
    }

    /// Whether its callers are asked for the reason of each call.
    #[must_use]
    pub fn asks_reason(&self) -> bool {
        let named = |schema: &Schema| {
            schema.value().pointer("/properties").is_some_and(|all| all.get(reason::NAME).is_some())
        };
        self.unasked.as_ref().is_some_and(|plain| named(&self.def.input_schema) && !named(plain))
    }

    /// The same tool with what its grants let it do, which is what its tags are derived from.
    #[must_use]
    pub fn with_effects(self, effects: Effects) -> Self {
        let derived = Derived { tags: tags::derive(&self.def, Some(effects), &[]), ..self.derived };
        Self { effects: Some(effects), derived, ..self }
    }

    /// The labels that hold for it, in their order: those the host derives ([`tags`]), those of its source, and those
    /// the operator added.
    #[must_use]
    pub fn tags(&self) -> &[Arc<str>] {
        &self.derived.tags
    }

    /// Whether a label holds for it.
    #[must_use]
    pub fn has_tag(&self, tag: &str) -> bool {
        self.derived.tags.iter().any(|one| **one == *tag)
    }

    /// As its source defined it, without what the operator said of it.
    #[must_use]
    pub(super) fn as_defined(&self) -> Self {
        let mut entry = self.clone();
        entry.derived.by_hook = None;
        entry.availability.disabled = None;
        entry.show(false, None);
        entry.derived.defined = None;
        entry
    }

    /// Sets how it is shown: as its source defined it, and what is said of it on top.
    pub(super) fn show(&mut self, hidden: bool, metadata: Option<&Metadata>) {
        let defined = self.derived.defined.take().unwrap_or_else(|| (Arc::clone(&self.def), self.flags));
        let (def, flags) = self.derived.defined.insert(defined);
        let (def, flags) = (Arc::clone(def), *flags);
        self.def = Arc::clone(&def);
        self.flags = Flags { hidden: hidden || flags.hidden, ..flags };
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

    /// Why it cannot run here and now under a profile. What the policy does not know grants nothing.
    #[must_use]
    pub fn unavailable_under(&self, profile: Option<&str>) -> Option<Cow<'_, Refusal>> {
        let (Some(profile), Some(known)) = (profile, &self.availability.under_profiles) else {
            return self.availability.unavailable.as_ref().or(self.answered()).map(Cow::Borrowed);
        };
        match known.get(profile) {
            Some(reason) => reason.as_ref().or(self.answered()).map(Cow::Borrowed),
            None => Some(Cow::Owned(format!("the policy has no profile `{profile}`").into())),
        }
    }

    /// Why it is not available by its own last word.
    fn answered(&self) -> Option<&Refusal> {
        self.derived.answer.as_ref()?.reason.as_deref()
    }

    /// Who has it, for people.
    pub(crate) fn owner(&self) -> String {
        match &*self.def.source {
            ToolSource::Builtin => owner(None),
            ToolSource::Plugin { id, .. } => owner(Some(id)),
            ToolSource::Mcp { server, .. } => format!("the MCP server `{server}`"),
            ToolSource::OpenApi { document } => format!("the OpenAPI document `{document}`"),
        }
    }
}

/// A reducer with the tool whose results it takes.
#[derive(Debug, Clone)]
pub struct ReducerEntry {
    /// Qualified name of the tool.
    pub target: String,
    /// The tool's name as the reducer declared it.
    pub declared: String,
    /// The plugin it belongs to.
    pub owner: Option<PluginId>,
    /// What runs it.
    pub reducer: Arc<dyn Reduce>,
}

/// A reducer that was registered by itself, to take it out again.
#[derive(Debug, Clone)]
pub struct ReducerHandle(pub(super) Arc<ReducerEntry>);

impl ReducerHandle {
    /// Qualified name of the tool.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.0.target
    }
}

/// Everything one source brings.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    /// Its tools.
    pub tools: Vec<Entry>,
    /// Its reducers.
    pub reducers: Vec<ReducerEntry>,
}

impl Bundle {
    /// The same under a namespace: native tools `NAME`, or `OTHER__NAME`, become `NAMESPACE__NAME`, and so do the
    /// targets of their reducers. The names of other sources are theirs and stay.
    ///
    /// # Errors
    /// A name that would be too long.
    pub fn under(mut self, namespace: &PluginId) -> Result<Self, NameError> {
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

impl From<Entry> for Bundle {
    fn from(tool: Entry) -> Self {
        Self { tools: vec![tool], reducers: Vec::new() }
    }
}

impl From<Vec<Entry>> for Bundle {
    fn from(tools: Vec<Entry>) -> Self {
        Self { tools, reducers: Vec::new() }
    }
}

/// Two things of one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Collision {
    /// A tool of this name is there.
    #[error("a tool `{name}` is already registered by {owner}")]
    Tool {
        /// The name.
        name: String,
        /// Who has it.
        owner: String,
    },
    /// Another source has tools under the plugin's id.
    #[error("its tools would begin with `{namespace}__`, as tools of {owner} do")]
    Namespace {
        /// What the names begin with.
        namespace: String,
        /// Who has it.
        owner: String,
    },
    /// The results of this tool already have a reducer.
    #[error("Reducer already registered for tool '{target}' by {owner}")]
    Reducer {
        /// The tool.
        target: String,
        /// Who has it.
        owner: String,
    },
}

impl Collision {
    pub(crate) fn with_tool(there: &Entry) -> Self {
        Self::Tool { name: there.def.name.as_str().to_owned(), owner: there.owner() }
    }

    pub(crate) fn with_reducer(there: &ReducerEntry) -> Self {
        Self::Reducer { target: there.target.clone(), owner: owner(there.owner.as_ref()) }
    }
}

fn owner(plugin: Option<&PluginId>) -> String {
    plugin.map_or_else(|| "the host".to_owned(), |id| format!("plugin `{id}`"))
}
