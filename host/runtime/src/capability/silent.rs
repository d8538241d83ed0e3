//! Refusals that WASI has no words for: a clock that stands still, bytes that repeat, no folder, an error without a
//! reason. A component that knows nothing of this host takes them for the world, and so would whoever reads its result.
//! When it uses what was refused, the call notes it, and the refusal is appended to the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use toolbay_core::call::CallContext;
use toolbay_policy::Decision;
use toolbay_policy::capability::CapabilityKind;
use toolbay_policy::refusal::not_permitted;

use super::{Capabilities, Granted};

/// One kind of use that is refused, for the interface that meets it. Cheap to make and to clone.
#[derive(Debug, Clone)]
pub(crate) struct Silent {
    ctx: Arc<CallContext>,
    granted: Arc<Granted>,
    what: &'static What,
    /// Noted once: a guest may ask for the time a million times.
    noted: Arc<AtomicBool>,
}

/// What is used, and what a guest gets instead.
#[derive(Debug)]
pub(crate) struct What {
    kinds: &'static [CapabilityKind],
    text: &'static str,
    /// Languages ask for it before the author's code runs: only a failure can be due to it.
    of_failure: bool,
}

/// Reads of the wall clock.
pub(crate) static CLOCK: What = What {
    kinds: &[CapabilityKind::Clock],
    text: "the tool read the clock, which is not granted to it: the clock stands at 2025-01-01T00:00:00Z",
    of_failure: false,
};
/// Random bytes.
pub(crate) static RANDOM: What = What {
    kinds: &[CapabilityKind::Random],
    text: "the tool drew random bytes, which are not granted to it: they are the same in each call",
    of_failure: false,
};
/// The list of folders, where there is none.
pub(crate) static FOLDERS: What = What {
    kinds: &[CapabilityKind::FsRead, CapabilityKind::FsWrite],
    text: "the tool looked for files, and no folder is granted to it",
    of_failure: true,
};
/// A file that is opened to be written.
pub(crate) static WRITING: What = What {
    kinds: &[CapabilityKind::FsWrite],
    text: "the tool tried to write a file, which is not granted to it",
    of_failure: false,
};

impl Silent {
    /// For one kind of use; `None`: it is granted, or the tool never asked for it.
    pub(crate) fn new(of: &Capabilities, what: &'static What) -> Option<Self> {
        let (Some(granted), Some(ctx)) = (&of.who.granted, &of.who.ctx) else { return None };
        let silent = Self { ctx: Arc::clone(ctx), granted: Arc::clone(granted), what, noted: Arc::default() };
        (silent.refused().next().is_some() || silent.is_unknown()).then_some(silent)
    }

    /// What its author declares of it and the policy does not grant.
    fn refused(&self) -> impl Iterator<Item = &Decision> {
        self.granted.grants.missing().filter(|one| self.what.kinds.contains(&one.capability.kind))
    }

    /// A component that does not know the contract uses what the file beside it does not declare.
    fn is_unknown(&self) -> bool {
        let mut decisions = self.granted.grants.decisions.iter();
        self.granted.foreign && !decisions.any(|one| self.what.kinds.contains(&one.capability.kind))
    }

    /// Notes that it was used.
    pub(crate) fn used(&self) {
        if self.noted.swap(true, Ordering::Relaxed) {
            return;
        }
        let What { kinds, text, of_failure } = self.what;
        let names: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.as_str())).collect();
        if self.is_unknown() {
            let hint = format!(
                "{text}. Its author declares it under `needs` in the file beside it: {}.",
                names.join(", ")
            );
            self.ctx.advise(hint);
        }
        for hint in self.refused().filter_map(|one| one.hint.as_deref()) {
            self.ctx.advise(format!("{text}. {hint}"));
        }
        self.ctx.unheard(&format!("{text}: {}", not_permitted(&self.ctx.tool)), *of_failure);
    }
}
