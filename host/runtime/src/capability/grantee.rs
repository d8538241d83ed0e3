//! The plugin or service that uses a capability, and the texts of its refusals: one for the guest, and so for the
//! model, and a hint for the operator in the record of the call.

use std::sync::Arc;

use toolbay_core::call::CallContext;
use toolbay_policy::GrantKey;
use toolbay_policy::capability::path_rule;
use toolbay_policy::limits::{CallLimits, Limit};
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::{PolicyRefusal, limit_notice, not_permitted_notice};

use super::ResolvedGrants;

/// A plugin or a service with its grants.
#[derive(Debug, Clone)]
pub(crate) struct Grantee {
    /// The id of the plugin or service.
    pub(crate) plugin: PluginId,
    /// The grants of the tool; `None` for sealed entries, which have none.
    pub(crate) granted: Option<Arc<ResolvedGrants>>,
    pub(crate) limits: Arc<CallLimits>,
    /// The call. `None` for sealed entries (metadata queries and reductions) and when the host itself requests an
    /// OpenAPI document; an operator reads the refusal then.
    pub(crate) ctx: Option<Arc<CallContext>>,
}

impl Grantee {
    /// Records a refusal in the audit, keeps the policy lines that would allow it as a hint for the operator, and
    /// returns the text for the guest. `entry` is the request as an entry of a policy list.
    pub(crate) fn refuse(&self, key: GrantKey, entry: &str) -> String {
        self.note(key, &path_rule::printable_path(entry), false);
        let Some(granted) = &self.granted else { return self.sealed_error() };
        let hint = || granted.advice(&self.plugin, key, entry).hint();
        self.refuse_with(&granted.refusal_text(&self.plugin, key, entry), hint)
    }

    /// Keeps a hint for the operator and returns the text for the guest.
    pub(super) fn refuse_with(&self, text: &str, hint: impl FnOnce() -> String) -> String {
        let Some(ctx) = &self.ctx else { return format!("{text}. {}", hint()) };
        if ctx.should_build_hint() {
            ctx.add_hint(format!("{text}. {}", hint()));
        }
        format!("{text}: {}", not_permitted_notice(&ctx.tool))
    }

    /// Like [`Grantee::refuse_with`], for a refusal made elsewhere.
    pub(super) fn report_refusal(&self, refusal: PolicyRefusal) -> String {
        match refusal.hint {
            Some(hint) => self.refuse_with(&refusal.text, || hint),
            None => refusal.text,
        }
    }

    /// Returns the error for a limit that was reached.
    pub(crate) fn limit_error(&self, what: &str, limit: Limit) -> String {
        let hit = self.limits.hit(limit, &self.plugin);
        let text = format!("{what}: {hit}");
        match (hit.hint(), &self.ctx) {
            (Some(hint), Some(ctx)) => {
                ctx.add_hint(format!("{text}. {hint}"));
                format!("{text}; {}", limit_notice(&ctx.tool))
            }
            (Some(hint), None) => format!("{text}. {hint}"),
            (None, _) => text,
        }
    }

    /// The profile of the call.
    pub(super) fn profile(&self) -> Option<&str> {
        self.ctx.as_ref()?.profile.as_deref()
    }

    /// The refusal of every capability outside a call.
    pub(super) fn sealed_error(&self) -> String {
        format!("plugin `{}` has no capabilities while the host queries its metadata", self.plugin)
    }

    /// Records in the audit that a grant was used or refused.
    pub(crate) fn note(&self, key: GrantKey, what: &str, allowed: bool) {
        match &self.ctx {
            Some(ctx) => ctx.record_use(key.name(), what, allowed),
            None if allowed => {
                tracing::info!(service = %self.plugin, allowed, "{what}, for its OpenAPI document");
            }
            None => {}
        }
    }

    /// Appends a refusal to the result of the call, for interfaces that have no error for it.
    pub(super) fn append_refusal(&self, text: &str) {
        if let Some(ctx) = &self.ctx {
            ctx.add_silent_refusal(text, false);
        }
    }
}
