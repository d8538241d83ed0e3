use std::path::Path;

use toolbay::{Filter, Host, Policy, ToolCall, TurnContext};
use toolbay_core::audit::MemoryAudit;

use super::*;

/// The record of a real call, to be changed.
async fn record() -> AuditRecord {
    let audit = Arc::new(MemoryAudit::default());
    let host =
        Host::builder(Policy::deny_all(Path::new("/srv"))).audit(Arc::clone(&audit) as _).build().unwrap();
    let view = host.view(Filter::default());
    host.call_all(&view, vec![ToolCall::new("1", "p__t", "{}")], TurnContext::default()).await;
    audit.take().pop().unwrap()
}

fn numbers(calls: &[Arc<FinishedCall>]) -> Vec<u64> {
    calls.iter().map(|call| call.number).collect()
}

#[tokio::test]
async fn filters_and_pages_find_the_newest_calls() {
    let (history, record) = (CallHistory::default(), record().await);
    for at in 1..=MAX_CALLS as u64 + 10 {
        let (tool, outcome) = if at % 2 == 0 { ("p__even", "ok") } else { ("p__odd", "trap") };
        history.observe_call(&AuditRecord { tool: tool.into(), outcome, ..record.clone() });
    }
    let all = CallFilter::default();
    let last = MAX_CALLS as u64 + 10;
    assert_eq!((history.count(), history.find(&all, None, usize::MAX).len()), (last, MAX_CALLS));
    assert_eq!(numbers(&history.find(&all, None, 2)), [last, last - 1]);
    assert_eq!(numbers(&history.find(&all, Some(last - 1), 2)), [last - 2, last - 3]);
    assert!(history.get(10).is_none() && history.get(11).is_some() && history.get(last + 1).is_none());
    for (filter, expected) in [
        (CallFilter { text: "even".to_owned(), ..all.clone() }, last),
        (CallFilter { outcome: "failed".to_owned(), ..all.clone() }, last - 1),
        (CallFilter { outcome: "trap".to_owned(), ..all.clone() }, last - 1),
    ] {
        assert_eq!(numbers(&history.find(&filter, None, 1)), [expected], "{filter:?}");
    }
    let none = CallFilter { plugin: "q".to_owned(), ..all };
    assert!(history.find(&none, None, 1).is_empty());
    let points = history.chart();
    let (calls, failures) = points
        .iter()
        .fold((0, 0), |(calls, failures), point| (calls + point.calls, failures + point.failures));
    assert_eq!((points.len(), calls, failures), (60, last, last / 2));
}

#[tokio::test]
async fn hostile_records_and_sessions_are_bounded() {
    let (history, record) = (CallHistory::default(), record().await);
    for at in 0..3000 {
        history.observe_call(&AuditRecord {
            session_id: Some(format!("s{at}")),
            hints: vec!["x".repeat(8 << 10).into(); 16],
            ..record.clone()
        });
    }
    let kept = history.find(&CallFilter::default(), None, usize::MAX).len();
    assert!(kept <= MAX_BYTES / (128 << 10) && kept > 100, "{kept}");
    let sessions = history.sessions();
    assert!(sessions.len() <= 1000, "{}", sessions.len());
    assert_eq!(sessions[0].0, "s2999");
}

#[tokio::test]
async fn a_slow_reader_learns_how_much_it_lost() {
    let (history, record) = (CallHistory::default(), record().await);
    let mut reader = history.subscribe(1).unwrap();
    assert!(history.subscribe(1).is_none());
    for _ in 0..STREAM_CALLS + 7 {
        history.observe_call(&record);
    }
    assert_eq!(reader.recv().await.unwrap_err(), broadcast::error::RecvError::Lagged(7));
    assert_eq!(reader.recv().await.unwrap().number, 8);
}
