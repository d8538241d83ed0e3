//! The metrics of a host, and their page in the documentation.

#![allow(clippy::unwrap_used, reason = "a failed fixture is a failed test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use toolbay::{BoxFuture, CancellationToken, Filter, Host, Policy, ToolCall, TurnContext};
use toolbay_core::approval::Decision;
use toolbay_core::audit::observer::ObservedAudit;
use toolbay_core::audit::{AuditRecord, AuditSink, MemoryAudit, RequestRecord};
use toolbay_core::call::CapabilityUse;
use toolbay_core::call::idempotency::MemoryCallKeys;
use toolbay_core::call::shared::{
    Approvals, FoundTask, Heartbeat, Lease, LeaseError, Leases, LostContact, SharedState, SharedStatus,
    TaskMessage, TaskRecord, TaskStore, TaskStoreError, TaskWrite,
};
use toolbay_core::session::attachment_store::MemoryAttachmentStore;
use toolbay_core::session::ledger::{Budget, Ledger, LedgerError};
use toolbay_core::tool::ToolSource;
use toolbay_core::tool::canonical::Digest;
use toolbay_core::tool::fault::FaultKind;
use toolbay_core::tool::refusal::RefusalReason;
use toolbay_policy::limits::{LimitHit, LimitSetting};
use toolbay_policy::permission::Action;
use toolbay_telemetry::{MAX_TOOLS, Metrics};

/// A record of a real call, to be changed.
async fn record() -> AuditRecord {
    let audit = Arc::new(MemoryAudit::default());
    let host =
        Host::builder(Policy::deny_all(Path::new("/srv"))).audit(Arc::clone(&audit) as _).build().unwrap();
    let call = ToolCall::new("1", "unknown", "{}");
    host.call_all(&host.view(Filter::default()), vec![call], TurnContext::default()).await;
    audit.take().pop().unwrap()
}

fn host() -> Host {
    Host::builder(Policy::deny_all(Path::new("/srv"))).build().unwrap()
}

fn metered() -> (Arc<Metrics>, ObservedAudit) {
    let metrics = Arc::new(Metrics::new());
    (Arc::clone(&metrics), ObservedAudit::new(Arc::new(MemoryAudit::default()), vec![metrics]))
}

/// Names of metrics, without the suffixes of their series.
fn names(text: &str) -> BTreeSet<String> {
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let name = |line: &str| match line.split_once(' ').unwrap() {
        (name, "counter") => format!("{name}_total"),
        (name, _) => name.to_owned(),
    };
    described.map(name).collect()
}

/// Shared state that allows everything.
#[derive(Debug)]
struct Allowing;

impl Heartbeat for Allowing {
    fn check(&self) -> Result<(), LostContact> {
        Ok(())
    }

    fn losses(&self) -> u64 {
        0
    }

    fn replica_count(&self) -> usize {
        2
    }

    fn status(&self) -> SharedStatus {
        SharedStatus { epoch: Some(7), others: [("b".to_owned(), 6)].into(), ..SharedStatus::default() }
    }
}

impl Leases for Allowing {
    fn acquire<'a>(
        &'a self,
        _: &'a str,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Lease>, LeaseError>> {
        Box::pin(std::future::ready(Err(LeaseError::Cancelled)))
    }

    fn held(&self) -> usize {
        3
    }
}

impl Ledger for Allowing {
    fn take_call<'a>(&'a self, _: &'a str, _: Budget) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn return_call(&self, _: &str) {}

    fn add_cost(&self, _: &str, _: f64) {}

    fn budgets(&self) -> usize {
        4
    }
}

impl Approvals for Allowing {
    fn contains<'a>(&'a self, _: &'a str, _: Digest) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }

    fn add<'a>(&'a self, _: &'a str, _: Digest) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl TaskStore for Allowing {
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

#[tokio::test]
async fn every_metric_is_on_its_page() {
    let (metrics, audit) = metered();
    let ports = Arc::new(Allowing);
    let shared = SharedState {
        heartbeat: Arc::clone(&ports) as _,
        leases: Arc::clone(&ports) as _,
        ledger: Arc::clone(&ports) as _,
        approvals: Arc::clone(&ports) as _,
        calls: Arc::new(MemoryCallKeys::default()),
        tasks: ports,
        attachments: Arc::new(MemoryAttachmentStore::default()),
    };
    let host = Host::builder(Policy::deny_all(Path::new("/srv"))).shared_state(shared).build().unwrap();
    metrics.count_reloads(&host);
    host.events().emit(toolbay::HostEvent::PolicyReloaded { restart: Vec::new() });
    let mut one = record().await;
    one.source = Some(Arc::new(ToolSource::Builtin));
    one.permission =
        Some(Decision { action: Action::Deny, rule: None, of_profile: false, allowed: false, by: None });
    one.limit =
        Some(LimitHit { name: "fuel", value: "1".to_owned(), setting: LimitSetting::Nothing(String::new()) });
    one.uses = vec![CapabilityUse { key: "net", what: "https://a".to_owned(), allowed: false }];
    (one.began, one.usage.peak_memory_bytes) = (true, 1 << 20);
    audit.record(one);
    audit.record_request(RequestRecord {
        token: None,
        client: "a".to_owned(),
        reason: "host",
        status: 403,
        method: "GET".to_owned(),
        path: "/".to_owned(),
        host: None,
    });
    let page = include_str!("../../../docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `toolbay_")?.split('`').next());
    let mut rows: BTreeSet<String> = rows.map(|name| format!("toolbay_{name}")).collect();
    let text = metrics.to_text(&host);
    // Without a plugin it has no series.
    assert!(rows.remove("toolbay_plugin_info"));
    let mut found = names(&text);
    found.remove("toolbay_plugin_info");
    assert_eq!(found, rows, "{text}");
    for (gauge, value) in [("contact", 1), ("epoch", 7), ("servers", 2), ("queues", 3), ("budgets", 4)] {
        assert!(text.contains(&format!("\ntoolbay_shared_{gauge} {value}\n")), "{gauge}: {text}");
    }
    assert!(text.contains("toolbay_refusals_total{plugin=\"builtin\",capability=\"net\"} 1"), "{text}");
}

/// Lists all values of an enum. The compiler names one that is missing.
macro_rules! all {
    ($kind:ident: $($name:ident),+ $(,)?; $($other:pat)?) => {{
        let _listed = |one: $kind| match one { $($kind::$name => (),)+ $($other => (),)? };
        [$($kind::$name),+]
    }};
}

/// The log, the page of operators, metrics and spans show the same word.
#[tokio::test]
async fn every_reason_of_a_refusal_has_its_own_name_in_the_audit_the_metrics_and_the_book() {
    let gates = all!(RefusalReason: Stopped, NoContact, MaxCalls, MaxCallsPerTurn, MaxCost, MaxIdenticalCalls,
        MaxIdenticalCallsPerTurn, BudgetUnavailable, Invoke, UnknownTool, LeftOut, SourceAbsent, Excluded,
        Filter, Profile, Disabled, Unavailable, ArgumentsTooLarge, ArgumentsNotJson, ArgumentsInvalid, Rule,
        NoApprover, Person, ApprovalTimeout, ApproverFailed, InputRequired, IdempotencyKey, Interceptor,
        Invoker, Host; RefusalReason::Fault(_));
    let faults = all!(FaultKind: Trap, OutOfFuel, Deadline, OutOfMemory, OutputTooLarge, BadOutput, Cancelled,
        OutcomeUnknown, Busy, Suspended;);
    let page = include_str!("../../../docs/reference/audit.md");
    let missing: Vec<&str> = gates
        .map(RefusalReason::as_str)
        .into_iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "docs/reference/audit.md");
    let reasons: Vec<RefusalReason> = gates.into_iter().chain(faults.map(RefusalReason::Fault)).collect();
    let names: BTreeSet<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(names.len(), reasons.len(), "{names:?}");

    let ((metrics, audit), host, one) = (metered(), host(), record().await);
    for reason in reasons {
        let refused = AuditRecord { refusal: Some(reason), ..one.clone() };
        let line: serde_json::Value = serde_json::to_value(&refused).unwrap();
        assert_eq!(line["refusal"], reason.as_str());
        audit.record(refused);
    }
    let text = metrics.to_text(&host);
    let counted: BTreeSet<&str> = (text.lines())
        .filter_map(|line| line.strip_prefix("toolbay_refused_calls_total{")?.strip_suffix("\"} 1"))
        .filter_map(|labels| Some(labels.split_once("reason=\"")?.1))
        .collect();
    assert_eq!(counted, names, "{text}");
}

#[tokio::test]
async fn the_number_of_series_is_bounded() {
    let ((metrics, audit), host) = (metered(), host());
    let one = record().await;
    let source = Some(Arc::new(ToolSource::Builtin));
    for number in 0..MAX_TOOLS + 50 {
        let tool = format!("tool_{number}").into();
        audit.record(AuditRecord { tool, source: source.clone(), ..one.clone() });
        let unknown = format!("unknown_{number}").into();
        audit.record(AuditRecord { tool: unknown, source: None, ..one.clone() });
    }
    let text = metrics.to_text(&host);
    let series = text
        .lines()
        .filter(|line| line.starts_with("toolbay_calls_total{") && line.contains("not_available"));
    assert!(series.count() <= MAX_TOOLS + 2);
    assert!(!text.contains("\"unknown_1"));
    let other = text.lines().find(|line| line.contains("tool=\"_OTHER\",outcome=\"not_available\"")).unwrap();
    let count: u64 = other.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(count >= 50 + MAX_TOOLS as u64, "{other}");
}

#[tokio::test]
async fn hostile_names_stay_one_label() {
    let ((metrics, audit), host) = (metered(), host());
    let tool = "a\"} 1\n# EOF\nforged\\".into();
    audit.record(AuditRecord { tool, source: Some(Arc::new(ToolSource::Builtin)), ..record().await });
    let text = metrics.to_text(&host);
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    assert_eq!(text.lines().filter(|line| *line == "# EOF").count(), 1, "{text}");
}
