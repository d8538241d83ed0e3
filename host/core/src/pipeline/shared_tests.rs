//! Calls on a host with shared state: lost contact, lost leases, spent budgets.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use toolbay_policy::session::SessionLimits;

use super::fixture::{GateFixture, fixture, limited, ruled, text};
use super::gates_tests::fault;
use super::permission_tests::ASK;
use crate::approval::ApprovalReply;
use crate::call::idempotency::MemoryCallKeys;
use crate::call::shared::{
    Approvals, FoundTask, Heartbeat, Lease, LeaseError, Leases, LostContact, SharedState, SharedStatus,
    TaskMessage, TaskRecord, TaskStore, TaskStoreError, TaskWrite,
};
use crate::pipeline::fixture::ScriptedApprover;
use crate::session::Session;
use crate::session::attachment_store::MemoryAttachmentStore;
use crate::session::ledger::{Budget, Ledger, LedgerError};
use crate::tool::canonical::Digest;
use crate::tool::fault::FaultKind;

/// Shared state under the control of a test.
#[derive(Debug, Default)]
struct Scripted {
    lost: AtomicBool,
    losses: AtomicU64,
    spent: Mutex<Vec<String>>,
    refusal: Option<LedgerError>,
    no_lease: Option<LeaseError>,
    leases: Mutex<Vec<Arc<ScriptedLease>>>,
    approvals: Mutex<HashSet<(String, Digest)>>,
    calls: MemoryCallKeys,
}

#[derive(Debug, Default)]
struct ScriptedLease {
    gone: AtomicBool,
    released: AtomicBool,
}

impl Heartbeat for Scripted {
    fn check(&self) -> Result<(), LostContact> {
        let hint = Some("start the store".into());
        let lost = LostContact { reason: "no contact with the other replicas".into(), hint };
        if self.lost.load(Ordering::Relaxed) { Err(lost) } else { Ok(()) }
    }

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    fn replica_count(&self) -> usize {
        3
    }

    fn status(&self) -> SharedStatus {
        SharedStatus { name: "this".to_owned(), epoch: Some(7), ..SharedStatus::default() }
    }
}

impl Lease for ScriptedLease {
    fn is_held(&self) -> bool {
        !self.gone.load(Ordering::Relaxed) && !self.released.load(Ordering::Relaxed)
    }

    fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
    }
}

impl Leases for Scripted {
    fn acquire<'a>(
        &'a self,
        _queue: &'a str,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Lease>, LeaseError>> {
        Box::pin(async {
            if let Some(error) = &self.no_lease {
                return Err(error.clone());
            }
            let lease = Arc::<ScriptedLease>::default();
            self.leases.lock().push(Arc::clone(&lease));
            Ok(lease as Arc<dyn Lease>)
        })
    }

    fn held(&self) -> usize {
        self.leases.lock().len()
    }
}

impl Ledger for Scripted {
    fn take_call<'a>(&'a self, account: &'a str, budget: Budget) -> BoxFuture<'a, Result<(), LedgerError>> {
        self.spent.lock().push(format!("{account}: {:?} {:?}", budget.calls, budget.cost_usd));
        Box::pin(async { self.refusal.clone().map_or(Ok(()), Err) })
    }

    fn return_call(&self, account: &str) {
        self.spent.lock().push(format!("{account}: back"));
    }

    fn add_cost(&self, account: &str, cost_usd: f64) {
        self.spent.lock().push(format!("{account}: ${cost_usd}"));
    }

    fn budgets(&self) -> usize {
        self.spent.lock().len()
    }
}

impl Approvals for Scripted {
    fn contains<'a>(&'a self, account: &'a str, approval: Digest) -> BoxFuture<'a, bool> {
        let contains = self.approvals.lock().contains(&(account.to_owned(), approval));
        Box::pin(std::future::ready(contains))
    }

    fn add<'a>(&'a self, account: &'a str, approval: Digest) -> BoxFuture<'a, ()> {
        self.approvals.lock().insert((account.to_owned(), approval));
        Box::pin(std::future::ready(()))
    }
}

impl TaskStore for Scripted {
    fn put(&self, _: TaskRecord) -> BoxFuture<'_, Result<TaskWrite, TaskStoreError>> {
        Box::pin(std::future::ready(Ok(TaskWrite::Stored)))
    }

    fn end<'a>(&'a self, _: &'a FoundTask, _: String) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn get<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<Option<FoundTask>, TaskStoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn send<'a>(&'a self, _: &'a FoundTask, _: TaskMessage) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive(&self) -> BoxFuture<'_, (String, TaskMessage)> {
        Box::pin(std::future::pending())
    }
}

fn with(shared: &Arc<Scripted>, fixture: GateFixture) -> GateFixture {
    let state = SharedState {
        heartbeat: Arc::clone(shared) as _,
        leases: Arc::clone(shared) as _,
        ledger: Arc::clone(shared) as _,
        approvals: Arc::clone(shared) as _,
        calls: Arc::new(shared.calls.clone()),
        tasks: Arc::clone(shared) as _,
        attachments: Arc::new(MemoryAttachmentStore::default()),
    };
    fixture.map_pipeline(|pipeline| pipeline.with_shared_state(state))
}

fn five_calls() -> crate::pipeline::CallPolicy {
    limited(SessionLimits { max_calls: Some(5), max_cost_usd: Some(2.0), ..SessionLimits::default() })
}

#[tokio::test(start_paused = true)]
async fn without_contact_no_call_begins() {
    let shared = Arc::<Scripted>::default();
    let fixture = with(&shared, fixture(five_calls(), |_| {}));
    let session = Arc::new(Session::with_name("team"));
    shared.lost.store(true, Ordering::Relaxed);
    let refused = fixture.call(&session, "{}").await;
    assert_eq!(text(&refused), "Stopped: no contact with the other replicas");
    assert_eq!(refused.hints.lines, ["start the store".into()]);
    assert_eq!((fixture.ran(), session.calls(), shared.spent.lock().len()), (0, 0, 0));
    shared.lost.store(false, Ordering::Relaxed);
    assert!(fixture.call(&session, "{}").await.result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn sessions_with_a_name_share_their_budgets() {
    let shared = Arc::<Scripted>::default();
    let fixture = with(&shared, fixture(five_calls(), |_| {}));
    fixture.call(&Arc::new(Session::with_name("team")), "{}").await.result.unwrap();
    assert_eq!(*shared.spent.lock(), ["team: Some(5) Some(2.0)", "team: $0.25"]);
    let pipeline = &fixture.pipeline;
    assert_eq!((pipeline.share_of(100), pipeline.share_of(1), pipeline.share_of(0)), (34, 1, 0));
    let status = pipeline.shared_status().unwrap();
    assert_eq!((status.name.as_str(), status.epoch, status.budgets, status.queues), ("this", Some(7), 2, 0));
    shared.spent.lock().clear();
    // A session without a name lives on its host, and so does its budget.
    fixture.call(&Arc::new(Session::with_random_key()), "{}").await.result.unwrap();
    assert_eq!(shared.spent.lock().len(), 0);
    let unlimited = with(&shared, self::fixture(limited(SessionLimits::default()), |_| {}));
    unlimited.call(&Arc::new(Session::with_name("team")), "{}").await.result.unwrap();
    assert_eq!(*shared.spent.lock(), ["team: $0.25"]);
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_is_refused_as_on_one_host() {
    for (refusal, expected, hint) in [
        (LedgerError::CallsSpent, "Stopped: hit 5-tool-call budget for this session", "max_calls"),
        (LedgerError::CostSpent, "Stopped: hit $2 budget cap for this session", "max_cost_usd"),
        (
            LedgerError::Unavailable("no reply within 2 s".to_owned()),
            "Stopped: the budget of this session cannot be read: no reply within 2 s",
            "",
        ),
    ] {
        let shared = Arc::new(Scripted { refusal: Some(refusal), ..Scripted::default() });
        let fixture = with(&shared, fixture(five_calls(), |_| {}));
        let refused = fixture.call(&Arc::new(Session::with_name("team")), "{}").await;
        assert!(text(&refused).starts_with(expected), "{}", text(&refused));
        assert!(
            hint.is_empty() || refused.hints.lines.iter().any(|line| line.to_string().contains(hint)),
            "{:?}",
            refused.hints
        );
        assert_eq!(fixture.ran(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_an_approval_of_the_client_is_returned() {
    let shared = Arc::<Scripted>::default();
    let policy = crate::pipeline::CallPolicy {
        session: SessionLimits { max_calls: Some(5), ..SessionLimits::default() },
        ..ruled(ASK)
    };
    let approver = ScriptedApprover::replying(Some(ApprovalReply::Deferred));
    let fixture = with(&shared, fixture(policy, |_| {})).map_pipeline(|p| p.with_approver(approver));
    assert!(fixture.call(&Arc::new(Session::with_name("team")), "{}").await.result.is_err());
    assert_eq!(*shared.spent.lock(), ["team: Some(5) None", "team: back"]);
}

#[tokio::test(start_paused = true)]
async fn a_serial_call_has_a_lease_until_it_ends() {
    let shared = Arc::<Scripted>::default();
    let fixture = with(&shared, fixture(ruled("rule = []"), |tool| tool.call.serial = Some("queue".into())));
    let session = Arc::new(Session::with_random_key());
    let call = fixture.call(&session, "{}");
    let look = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let leases = shared.leases.lock();
        assert!(matches!(&leases[..], [lease] if lease.is_held()), "{leases:?}");
    };
    let (done, ()) = tokio::join!(call, look);
    assert!(done.result.is_ok());
    assert!(shared.leases.lock().iter().all(|lease| lease.released.load(Ordering::Relaxed)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_without_its_lease_has_an_unknown_outcome() {
    let shared = Arc::<Scripted>::default();
    let fixture = with(&shared, fixture(ruled("rule = []"), |tool| tool.call.serial = Some("queue".into())));
    let session = Arc::new(Session::with_random_key());
    for (args, unknown) in [(r#"{"do": "fail"}"#, true), ("{}", false)] {
        let call = fixture.call(&session, args);
        let lose = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            shared.leases.lock().iter().for_each(|lease| lease.gone.store(true, Ordering::Relaxed));
        };
        let (done, ()) = tokio::join!(call, lose);
        // A result that came in spite of it is a result: every host call that it needed was made under the lease.
        assert_eq!(done.result.is_err(), unknown, "{args}");
        if unknown {
            assert_eq!(fault(&done), FaultKind::OutcomeUnknown);
            assert!(text(&done).contains("check whether it had its effects"), "{}", text(&done));
        }
    }
    let outcomes: Vec<_> = fixture.audit.take().iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, ["outcome_unknown", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_may_not_act_after_a_loss_of_contact_that_is_over() {
    let shared = Arc::<Scripted>::default();
    let fixture = with(&shared, fixture(ruled("rule = []"), |_| {}));
    let session = Arc::new(Session::with_random_key());
    let call = fixture.call(&session, r#"{"do": "fail"}"#);
    let lose = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        shared.losses.fetch_add(1, Ordering::Relaxed);
    };
    let (done, ()) = tokio::join!(call, lose);
    assert_eq!(fault(&done), FaultKind::OutcomeUnknown);
    assert!(
        text(&done).contains("lost the contact with the shared state during the call"),
        "{}",
        text(&done)
    );
    assert!(fixture.call(&session, "{}").await.result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_lease_has_not_begun() {
    for (error, kind) in [
        (LeaseError::Busy("another replica runs a call of `queue`".to_owned()), FaultKind::Busy),
        (LeaseError::Cancelled, FaultKind::Cancelled),
    ] {
        let shared = Arc::new(Scripted { no_lease: Some(error), ..Scripted::default() });
        let fixture =
            with(&shared, fixture(ruled("rule = []"), |tool| tool.call.serial = Some("queue".into())));
        let refused = fixture.call(&Arc::new(Session::with_random_key()), "{}").await;
        assert_eq!((fault(&refused), fixture.ran()), (kind, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_standing_approval_holds_on_the_other_host() {
    let shared = Arc::<Scripted>::default();
    let (yes, no) =
        (ScriptedApprover::replying(Some(ApprovalReply::Always)), ScriptedApprover::replying(None));
    let asking =
        |approver| with(&shared, fixture(ruled(ASK), |_| {})).map_pipeline(|p| p.with_approver(approver));
    let (one, two) = (asking(Arc::clone(&yes) as _), asking(no));
    let team = || Arc::new(Session::with_name("team"));
    assert!(one.call(&team(), "{}").await.result.is_ok());
    assert!(two.call(&team(), "{}").await.result.is_ok(), "approved on the other host");
    assert!(two.call(&Arc::new(Session::with_name("other")), "{}").await.result.is_err());
}
