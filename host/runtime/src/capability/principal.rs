//! Who asks the host for something, and what is said when it is refused: one text for the guest and so for a model, and a
//! hint for the operator, kept with the call.

use std::sync::Arc;

use toolbay_core::call::CallContext;
use toolbay_policy::Key;
use toolbay_policy::capability::reach;
use toolbay_policy::limits::{Limit, Limits};
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::{Refusal, not_permitted, raisable};

use super::Granted;

/// A plugin or a service, with what it was granted.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// The plugin, or the service.
    pub(crate) plugin: PluginId,
    /// What the tool was granted; `None` for sealed entries: nothing.
    pub(crate) granted: Option<Arc<Granted>>,
    pub(crate) limits: Arc<Limits>,
    /// The call; `None` for metadata queries and reductions, which run sealed, and where the host itself asks for a
    /// document: then an operator reads what is said.
    pub(crate) ctx: Option<Arc<CallContext>>,
}

impl Principal {
    /// Records that something was refused, keeps for the operator which lines would allow it, and says so. `wish` is what
    /// was asked for, as a list of the policy would write it.
    pub(crate) fn refuse(&self, key: Key, wish: &str) -> String {
        self.note(key, &reach::shown(wish), false);
        let Some(granted) = &self.granted else { return self.nothing_now() };
        let hint = || granted.advice(&self.plugin, key, wish).hint();
        self.refuse_with(&granted.refused(&self.plugin, key, wish), hint)
    }

    /// Keeps a hint for the operator, and returns the text that a guest gets in its place.
    pub(super) fn refuse_with(&self, text: &str, hint: impl FnOnce() -> String) -> String {
        let Some(ctx) = &self.ctx else { return format!("{text}. {}", hint()) };
        if ctx.takes_hints() {
            ctx.advise(format!("{text}. {}", hint()));
        }
        format!("{text}: {}", not_permitted(&ctx.tool))
    }

    /// The same for a refusal that was made elsewhere.
    pub(super) fn tell(&self, refusal: Refusal) -> String {
        match refusal.hint {
            Some(hint) => self.refuse_with(&refusal.text, || hint),
            None => refusal.text,
        }
    }

    /// Names a limit that was reached.
    pub(crate) fn over(&self, what: &str, limit: Limit) -> String {
        let hit = self.limits.hit(limit, &self.plugin);
        let text = format!("{what}: {hit}");
        match (hit.hint(), &self.ctx) {
            (Some(hint), Some(ctx)) => {
                ctx.advise(format!("{text}. {hint}"));
                format!("{text}; {}", raisable(&ctx.tool))
            }
            (Some(hint), None) => format!("{text}. {hint}"),
            (None, _) => text,
        }
    }

    /// The profile of the call.
    pub(super) fn profile(&self) -> Option<&str> {
        self.ctx.as_ref()?.profile.as_deref()
    }

    /// Why a plugin reaches nothing outside of a call.
    pub(super) fn nothing_now(&self) -> String {
        format!("nothing can be reached while plugin `{}` is asked what it is", self.plugin)
    }

    /// Records for the audit that a grant was used, or that something was refused.
    pub(crate) fn note(&self, key: Key, what: &str, allowed: bool) {
        match &self.ctx {
            Some(ctx) => ctx.note(key.name(), what, allowed),
            None if allowed => tracing::info!(service = %self.plugin, allowed, "{what}, for its document"),
            None => {}
        }
    }

    /// Appends a refusal to the result of the call, where the interface has no words for it.
    pub(super) fn unheard(&self, text: &str) {
        if let Some(ctx) = &self.ctx {
            ctx.unheard(text, false);
        }
    }
}
