//! The requests of the stages to the state that several replicas share.

use std::sync::Arc;

use super::batch::BatchContext;
use crate::call::CallContext;
use crate::call::invoke::Failure;
use crate::call::shared::{CallRights, Lease, LeaseError, SharedState};
use crate::registry::view::ToolEntry;
use crate::session::{Session, StandingApproval};
use crate::tool::content::ToolOutput;
use crate::tool::fault::{Fault, FaultKind};
use crate::tool::refusal::{Refusal, RefusalReason};

/// Refuses a call while this replica has no contact with the others.
pub(crate) fn check_contact(shared: &SharedState) -> Result<(), Refusal> {
    shared.heartbeat.check().map_err(|lost| {
        Refusal::new(RefusalReason::NoContact, format!("Stopped: {lost}"))
            .with_subject("no_contact")
            .with_hint(lost.hint.map(|hint| hint.to_string().into()))
    })
}

/// Takes the call from the budget of its session, if the session has a name. A session without a name stays on this replica.
pub(crate) async fn charge(shared: &SharedState, batch: &BatchContext) -> Result<(), Refusal> {
    let session = &batch.turn.session;
    let Some(account) = session.account() else { return Ok(()) };
    let Some(limits) = session.shared_budget(&batch.call_policy.session) else { return Ok(()) };
    let taken = shared.ledger.take_call(account, limits.budget()).await;
    taken.map_err(|refused| limits.refuse(&refused))
}

/// Returns a call to its budget that was taken and did not run.
pub(crate) fn return_call(shared: &SharedState, batch: &BatchContext) {
    let session = &batch.turn.session;
    if let Some(account) = session.account()
        && session.shared_budget(&batch.call_policy.session).is_some()
    {
        shared.ledger.return_call(account);
    }
}

/// Whether the session has a standing approval. An approval from another replica is also stored in the session.
pub(crate) async fn is_approved(batch: &BatchContext, approval: &StandingApproval) -> bool {
    let session = &batch.turn.session;
    if session.is_approved(approval) {
        return true;
    }
    let Some((shared, account)) = batch.pipeline.shared_state_of(session) else { return false };
    let is_approved = shared.approvals.contains(account, approval.digest()).await;
    if is_approved {
        session.add_approval(approval.clone());
    }
    is_approved
}

/// Adds a standing approval to the session, on all replicas if it has a name.
pub(crate) async fn add_approval(batch: &BatchContext, approval: StandingApproval) {
    let session = &batch.turn.session;
    if let Some((shared, account)) = batch.pipeline.shared_state_of(session) {
        shared.approvals.add(account, approval.digest()).await;
    }
    session.add_approval(approval);
}

/// Adds the cost of a call to its session.
pub(crate) fn add_cost(shared: &SharedState, session: &Session, cost_usd: f64) {
    if let Some(account) = session.account() {
        shared.ledger.add_cost(account, cost_usd);
    }
}

/// A lease that is released when the call has ended.
pub(crate) struct HeldLease(Arc<dyn Lease>);

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Waits for the lease of the serial queue, if the tool has one, and gives the call its rights: those of its caller, and
/// its own lease.
pub(crate) async fn acquire_rights(
    shared: &SharedState,
    batch: &BatchContext,
    entry: &ToolEntry,
    ctx: &CallContext,
) -> Result<Option<HeldLease>, Failure> {
    let of_caller = batch.parent.as_ref().and_then(|parent| parent.ctx.rights().cloned());
    let mut rights = of_caller.unwrap_or_else(|| CallRights::new(Arc::clone(&shared.heartbeat)));
    let lease = match &entry.call.serial {
        Some(queue) => {
            Some(shared.leases.acquire(queue, ctx.cancel()).await.map_err(|error| lease_fault(&error))?)
        }
        None => None,
    };
    let lease = lease.map(|lease| {
        rights.add(Arc::clone(&lease));
        HeldLease(lease)
    });
    // The contact may have been lost while the call waited.
    check_contact(shared)?;
    ctx.set_rights(rights);
    Ok(lease)
}

fn lease_fault(error: &LeaseError) -> Fault {
    let kind = match error {
        LeaseError::Busy(_) => FaultKind::Busy,
        LeaseError::Cancelled => FaultKind::Cancelled,
    };
    Fault::new(kind, error.to_string())
}

/// The result of a call that had rights. A call that failed and has lost them may have had its effects.
pub(crate) fn judge_result(
    rights: &CallRights,
    ctx: &CallContext,
    result: Result<ToolOutput, Failure>,
) -> Result<ToolOutput, Failure> {
    match (&result, rights.check()) {
        (Err(_), Err(lost)) if ctx.has_begun() => {
            let text = format!(
                "{lost}; the call had begun, so check whether it had its effects before you repeat it"
            );
            Err(Fault::new(FaultKind::OutcomeUnknown, text).into())
        }
        _ => result,
    }
}
