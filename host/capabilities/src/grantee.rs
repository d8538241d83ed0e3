//! The plugin or service that uses a capability, and its refusals: a text for the guest and the model, and a hint for
//! the operator in the record of the call.

use std::sync::{Arc, OnceLock};

use toolbay_core::call::CallContext;
use toolbay_policy::capability::path_rule;
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::{CallLimits, Limit};
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::{PolicyRefusal, limit_notice, not_permitted_notice};
use toolbay_policy::{AccessQuery, GrantKey};

use super::ResolvedGrants;

/// A plugin or a service with its grants.
#[derive(Debug, Clone)]
pub struct Grantee {
    /// The id of the plugin or service.
    pub plugin: PluginId,
    /// The grants of the tool; `None` for sealed entries, which have none.
    pub granted: Option<Arc<ResolvedGrants>>,
    /// The limits of the entry.
    pub limits: Arc<CallLimits>,
    /// The call. `None` for sealed entries (metadata queries and reductions) and when the host itself requests an
    /// OpenAPI document; an operator reads the refusal then.
    pub ctx: Option<Arc<CallContext>>,
    /// Where a refusal without a call puts its hint; `None` to append it to the text.
    pub hint: Option<Arc<OnceLock<Hint>>>,
}

impl Grantee {
    /// Records a refusal in the audit, keeps the policy lines that would allow it as a hint for the operator, and
    /// returns the text for the guest. `entry` is the request as an entry of a policy list.
    pub fn refuse(&self, key: GrantKey, entry: &str) -> String {
        self.note(key, &path_rule::printable_path(entry), false);
        let Some(granted) = &self.granted else { return self.sealed_error() };
        let text = granted.refusal_text(&self.plugin, key, entry);
        let advice = || granted.advice(&self.plugin, self.profile(), key, entry);
        let Some(ctx) = &self.ctx else { return self.without_call(text, advice().hint()) };
        let notice = if ctx.should_build_hint() {
            let advice = advice();
            ctx.add_hint(advice.hint().with_about(&text));
            advice.notice(&ctx.tool)
        } else {
            not_permitted_notice(&ctx.tool)
        };
        format!("{text}: {notice}")
    }

    /// Keeps a hint for the operator and returns the text for the guest.
    pub(super) fn refuse_with(&self, text: &str, hint: impl FnOnce() -> Hint) -> String {
        let Some(ctx) = &self.ctx else { return self.without_call(text.to_owned(), hint()) };
        if ctx.should_build_hint() {
            ctx.add_hint(hint().with_about(text));
        }
        format!("{text}: {}", not_permitted_notice(&ctx.tool))
    }

    /// The text of a refusal without a call.
    fn without_call(&self, text: String, hint: Hint) -> String {
        let Some(kept) = &self.hint else { return hint.with_about(&text).to_string() };
        kept.get_or_init(|| hint);
        text
    }

    /// The hint for a use that a line of the policy excludes, with the tables of the line.
    pub(super) fn exclusion_hint(&self, key: GrantKey, line: &str) -> Hint {
        let tables = match &self.granted {
            Some(granted) if granted.service.is_none() => {
                let (plugin, tool, profile) = (&self.plugin, &granted.tool, self.profile());
                let of = AccessQuery { plugin, tool, profile, key, line };
                granted.services.policy.tables_with_line(of)
            }
            Some(_) | None => "the policy".to_owned(),
        };
        format!("`{}` in `{}` of {tables} excludes it.", path_rule::printable_path(line), key.name()).into()
    }

    /// Keeps advice for the operator and returns the text for the guest. Without a call, the operator reads the text.
    pub fn advise(&self, text: &str, advice: Hint) -> String {
        let Some(ctx) = &self.ctx else { return self.without_call(text.to_owned(), advice) };
        ctx.add_hint(advice.with_about(text));
        text.to_owned()
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
                ctx.add_hint(hint.with_about(&text));
                format!("{text}; {}", limit_notice(&ctx.tool))
            }
            (Some(hint), None) => self.without_call(text, hint),
            (None, _) => text,
        }
    }

    /// The profile of the call.
    pub fn profile(&self) -> Option<&str> {
        self.ctx.as_ref()?.profile.as_deref()
    }

    /// The refusal of every capability outside a call.
    pub(super) fn sealed_error(&self) -> String {
        format!("plugin `{}` has no capabilities while the host queries its metadata", self.plugin)
    }

    /// Records in the audit that a grant was used or refused.
    pub fn note(&self, key: GrantKey, what: &str, allowed: bool) {
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
