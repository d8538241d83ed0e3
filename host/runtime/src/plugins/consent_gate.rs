//! Decides about consents when plugins are loaded, and records the decisions in the audit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolbay_core::audit::{AuditSink, GrantEvent, GrantRecord};
use toolbay_policy::Policy;
use toolbay_policy::consent::{
    self, AskingVersion, Authority, Consent, ConsentChange, ConsentDecision, ConsentStore,
};
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_state::digest::Digest;

use crate::plugins::plugin::Plugin;
use crate::storage::timestamp_now;

/// Maximum number of new lines in a message; the rest are counted.
const MAX_SHOWN: usize = 8;

/// Decides about consents when plugins are loaded, and records the decision in the audit.
#[derive(Debug)]
pub(crate) struct ConsentGate {
    /// `None`: no plugin is held.
    pub(crate) store: Option<Arc<dyn ConsentStore>>,
    pub(crate) audit: Arc<dyn AuditSink>,
}

/// A plugin that is about to get what the policy grants it.
pub(crate) struct AskingPlugin<'a> {
    pub(crate) plugin: &'a Plugin,
    pub(crate) version: AskingVersion,
    /// The names of its tools, in the order of its descriptor.
    pub(crate) tools: &'a [ToolName],
}

/// Why a plugin is held, and what runs instead.
#[derive(Debug)]
pub(crate) struct HeldVersion {
    pub(crate) refusal: PolicyRefusal,
    /// The digest of the version that the operator agreed to.
    pub(crate) agreed_digest: Option<Digest>,
}

/// The decision about one plugin.
#[derive(Default)]
struct ConsentOutcome {
    held: Option<HoldReason>,
    /// The digest of the version that the operator agreed to, if this one is held.
    agreed: Option<Digest>,
    /// What changes in the record.
    event: Option<GrantEvent>,
}

impl ConsentGate {
    /// Decides which plugins are held, with one read of the records. Returns `None` for each plugin that is not.
    pub(crate) fn admit(&self, policy: &Policy, asking: &[AskingPlugin<'_>]) -> Vec<Option<HeldVersion>> {
        let authority = |one: &AskingPlugin<'_>| {
            let declared = one.plugin.descriptor.tools.iter().map(|tool| tool.capabilities.as_slice());
            Authority::from_policy(policy, &one.plugin.id, one.tools.iter().zip(declared))
        };
        let granted: Vec<Authority> = asking.iter().map(authority).collect();
        let outcomes = self.decide(policy, asking, &granted);
        let mut all_held = Vec::with_capacity(asking.len());
        for ((one, granted), outcome) in asking.iter().zip(granted).zip(outcomes) {
            let ConsentOutcome { held, agreed, event } = outcome;
            if let Some(event) = event {
                self.audit.record_grant(grant_record(event, one.plugin, granted.clone()));
            }
            let lines = held.as_ref().map_or(&[][..], HoldReason::lines);
            self.audit_load(policy, one.plugin, one.tools, granted, lines);
            all_held.push(
                held.map(|held| HeldVersion { refusal: held.refusal(&one.plugin.id), agreed_digest: agreed }),
            );
        }
        all_held
    }

    /// Decides which plugins are held, and why.
    fn decide(
        &self,
        policy: &Policy,
        asking: &[AskingPlugin<'_>],
        granted: &[Authority],
    ) -> Vec<ConsentOutcome> {
        let mut outcomes: Vec<ConsentOutcome> = asking.iter().map(|_| ConsentOutcome::default()).collect();
        let Some(store) = &self.store else { return outcomes };
        // If the policy has no lines for a plugin, there is nothing to agree to. Otherwise there is, even if this
        // version declares nothing, because the next version may.
        let needs_consent = |(one, granted): &(&AskingPlugin<'_>, &Authority)| {
            !granted.is_empty() || policy.grants_anything(&one.plugin.id)
        };
        let mut checked: Vec<_> = (asking.iter().zip(granted).zip(&mut outcomes))
            .filter(|(asked, _)| needs_consent(asked))
            .map(|((one, granted), outcome)| (one, granted, outcome))
            .collect();
        let plugins: Vec<&PluginId> = checked.iter().map(|(one, ..)| &one.plugin.id).collect();
        let is_pinned =
            |one: &AskingPlugin<'_>| policy.pinned_sha256(&one.plugin.id) == Some(&*one.plugin.digest.hex());
        let result = store.update_all(&plugins, &mut |index, known| {
            let Some((one, granted, outcome)) = checked.get_mut(index) else { return ConsentChange::Keep };
            let change;
            (change, **outcome) = evaluate(policy, one, is_pinned(one), granted, known);
            change
        });
        for (one, _, outcome) in checked {
            match &result {
                Ok(true) => {}
                Ok(false) => outcome.event = None,
                Err(_) if is_pinned(one) => *outcome = ConsentOutcome::default(),
                Err(problem) => {
                    let held = Some(HoldReason::StoreUnavailable([problem.clone()]));
                    *outcome = ConsentOutcome { held, ..ConsentOutcome::default() };
                }
            }
        }
        outcomes
    }

    fn audit_load(
        &self,
        policy: &Policy,
        plugin: &Plugin,
        tools: &[ToolName],
        granted: Authority,
        held: &[String],
    ) {
        let mut refused = BTreeMap::new();
        for (name, tool) in tools.iter().zip(&plugin.descriptor.tools) {
            let grants = policy.grant(&plugin.id, name, &tool.capabilities, None);
            let missing: BTreeSet<String> = grants
                .missing()
                .map(|d| format!("{} {}", d.capability.kind.as_str(), d.capability.target))
                .collect();
            if !missing.is_empty() {
                refused.insert(name.to_string(), missing);
            }
        }
        // A plugin that only computes needs no record.
        if !granted.is_empty() || !refused.is_empty() || !held.is_empty() {
            let held = held.to_vec();
            self.audit.record_grant(GrantRecord {
                refused,
                held,
                ..grant_record(GrantEvent::Loaded, plugin, granted)
            });
        }
    }
}

/// The decision about a plugin with this record, and the change of the record.
fn evaluate(
    policy: &Policy,
    asking: &AskingPlugin<'_>,
    pinned: bool,
    granted: &Authority,
    known: Option<&Consent>,
) -> (ConsentChange, ConsentOutcome) {
    let digest = &*asking.plugin.digest.hex();
    let agreed = |granted: &Authority, by: &str| {
        ConsentChange::Replace(Consent {
            digest: digest.to_owned(),
            version: asking.plugin.version().map(ToOwned::to_owned),
            granted: granted.clone(),
            at: timestamp_now(),
            by: by.to_owned(),
        })
    };
    let recorded = |event| ConsentOutcome { event: Some(event), ..ConsentOutcome::default() };
    match consent::evaluate_consent(known, digest, asking.version, pinned, granted, policy.workspace()) {
        ConsentDecision::Unchanged => (ConsentChange::Keep, ConsentOutcome::default()),
        ConsentDecision::NeedsConsent(lines) => {
            let held = Some(HoldReason::NewAuthority(lines));
            let agreed = known.and_then(|known| known.digest.parse().ok());
            (ConsentChange::Keep, ConsentOutcome { held, agreed, event: None })
        }
        ConsentDecision::FirstConsent => {
            (agreed(granted, "the first load under this policy"), recorded(GrantEvent::Recorded))
        }
        ConsentDecision::UpdateRecord(now) => {
            let by = if pinned { "the pin in the policy" } else { "the policy" };
            (agreed(&now, by), recorded(GrantEvent::Followed))
        }
    }
}

fn grant_record(event: GrantEvent, plugin: &Plugin, granted: Authority) -> GrantRecord {
    GrantRecord {
        event,
        plugin: plugin.id.to_string(),
        version: plugin.version().map(ToOwned::to_owned),
        digest: Some(plugin.digest.to_string()),
        origin: plugin.origin.clone(),
        granted,
        refused: BTreeMap::new(),
        held: Vec::new(),
        by: None,
    }
}

/// Why a plugin is held.
#[derive(Debug)]
enum HoldReason {
    /// The plugin would get authority that the operator has not agreed to, one line each.
    NewAuthority(Vec<String>),
    /// The consents cannot be read or written, for this reason. The plugin is not at fault.
    StoreUnavailable([String; 1]),
}

impl HoldReason {
    fn lines(&self) -> &[String] {
        match self {
            Self::NewAuthority(lines) => lines,
            Self::StoreUnavailable(problem) => problem,
        }
    }

    /// The refusal for every call to the plugin.
    fn refusal(&self, id: &PluginId) -> PolicyRefusal {
        match self {
            Self::NewAuthority(lines) => new_authority_refusal(id, lines),
            Self::StoreUnavailable([problem]) => {
                let text = format!("plugin `{id}` is held because the host cannot use the consents file");
                PolicyRefusal::new(text, problem.clone())
            }
        }
    }
}

fn new_authority_refusal(id: &PluginId, lines: &[String]) -> PolicyRefusal {
    let mut shown: Vec<String> = lines.iter().take(MAX_SHOWN).map(|line| format!("+ {line}")).collect();
    if lines.len() > MAX_SHOWN {
        shown.push(format!("and {} more", lines.len() - MAX_SHOWN));
    }
    PolicyRefusal::new(
        format!("plugin `{id}` is held until the operator agrees to its new capabilities"),
        format!("It would get: {}; review it with `toolbay grant {id}`", shown.join(", ")),
    )
}
