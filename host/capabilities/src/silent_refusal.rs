//! Refusals that WASI cannot report: a frozen clock, repeating random bytes, no preopened folder, an error without a
//! reason. A plain component, and the model that reads its result, would take them for facts. When a component uses
//! one of them, the call records it and appends the refusal to the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use toolbay_core::call::CallContext;
use toolbay_policy::GrantDecision;
use toolbay_policy::capability::CapabilityKind;
use toolbay_policy::hint::Hint;
use toolbay_policy::name_list::list_all_names;
use toolbay_policy::refusal::not_permitted_notice;

use super::{Capabilities, ResolvedGrants};

/// Reports the use of a capability that is not granted. Cheap to create and to clone.
#[derive(Debug, Clone)]
pub(crate) struct SilentRefusal {
    ctx: Arc<CallContext>,
    granted: Arc<ResolvedGrants>,
    ungranted_use: &'static UngrantedUse,
    /// Reported once per entry: a guest may read the clock a million times.
    noted: Arc<AtomicBool>,
}

/// A use without a grant, and its substitute.
#[derive(Debug)]
pub(crate) struct UngrantedUse {
    kinds: &'static [CapabilityKind],
    text: &'static str,
    /// Appended only to a failed result: language runtimes make this use before the author's code runs.
    only_on_failure: bool,
    /// The tools that are reported although they do not declare the use.
    undeclared: UndeclaredUse,
}

/// Which tools that do not declare a use are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UndeclaredUse {
    /// All tools, because only the author's code makes this use.
    OfAll,
    /// Tools of plain components, which cannot declare it.
    OfPlainComponents,
}

/// Reads of the wall clock.
pub(crate) static CLOCK_READS: UngrantedUse = UngrantedUse {
    kinds: &[CapabilityKind::Clock],
    text: "the tool read the clock without the capability `clock`: the clock is frozen at 2025-01-01T00:00:00Z",
    only_on_failure: false,
    undeclared: UndeclaredUse::OfPlainComponents,
};
/// Random bytes. Hash seeds are drawn elsewhere, and the SDKs draw nothing before the author's code does.
pub(crate) static RANDOM_BYTES: UngrantedUse = UngrantedUse {
    kinds: &[CapabilityKind::Random],
    text: "the tool drew random bytes without the capability `random`: the bytes are the same in each call",
    only_on_failure: false,
    undeclared: UndeclaredUse::OfAll,
};
/// A listing of the preopened folders when there are none.
pub(crate) static FOLDER_LISTING: UngrantedUse = UngrantedUse {
    kinds: &[CapabilityKind::FsRead, CapabilityKind::FsWrite],
    text: "the tool looked for files, but no folder is granted to it",
    only_on_failure: true,
    undeclared: UndeclaredUse::OfPlainComponents,
};
/// A file opened for writing.
pub(crate) static FILE_WRITES: UngrantedUse = UngrantedUse {
    kinds: &[CapabilityKind::FsWrite],
    text: "the tool tried to write a file without a grant for writing",
    only_on_failure: false,
    undeclared: UndeclaredUse::OfPlainComponents,
};

impl SilentRefusal {
    /// Returns the reporter for a use; `None` when the use is granted, or is not reported for a tool that did not declare
    /// it.
    pub(crate) fn new(of: &Capabilities, ungranted_use: &'static UngrantedUse) -> Option<Self> {
        let (Some(granted), Some(ctx)) = (&of.grantee.granted, &of.grantee.ctx) else { return None };
        let silent =
            Self { ctx: Arc::clone(ctx), granted: Arc::clone(granted), ungranted_use, noted: Arc::default() };
        (silent.declared_refusals().next().is_some() || silent.is_undeclared()).then_some(silent)
    }

    /// The declared capabilities of this use that the policy does not grant.
    fn declared_refusals(&self) -> impl Iterator<Item = &GrantDecision> {
        self.granted.grants.missing().filter(|one| self.ungranted_use.kinds.contains(&one.capability.kind))
    }

    /// Whether the tool makes this use without declaring it, and is reported for it.
    fn is_undeclared(&self) -> bool {
        let mut decisions = self.granted.grants.decisions.iter();
        let is_reported = self.granted.is_plain || self.ungranted_use.undeclared == UndeclaredUse::OfAll;
        is_reported && !decisions.any(|one| self.ungranted_use.kinds.contains(&one.capability.kind))
    }

    fn add_hint(&self, hint: Hint) {
        self.ctx.add_hint(hint.with_about(self.ungranted_use.text));
    }

    /// Records the use.
    pub(crate) fn record_use(&self) {
        if self.noted.swap(true, Ordering::Relaxed) {
            return;
        }
        let UngrantedUse { kinds, text, only_on_failure, undeclared: _ } = self.ungranted_use;
        let names = list_all_names(kinds.iter().map(CapabilityKind::as_str));
        let mut notice = not_permitted_notice(&self.ctx.tool);
        match (self.is_undeclared(), self.granted.is_plain) {
            (false, _) => {}
            (true, true) => self.add_hint(
                format!("To declare it, write `needs` in the metadata file next to the component: {names}.")
                    .into(),
            ),
            (true, false) => {
                notice = "the tool does not declare it".to_owned();
                self.add_hint(format!("Only a tool that declares {names} can be granted it.").into());
            }
        }
        self.declared_refusals().filter_map(GrantDecision::hint).for_each(|hint| self.add_hint(hint));
        self.ctx.add_silent_refusal(&format!("{text}: {notice}"), *only_on_failure);
    }
}
