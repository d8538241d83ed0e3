//! Calls in progress: how they are listed, cancelled and stopped.

use std::sync::Arc;

use super::fixture::{fixture, ruled, text};
use super::gates_tests::{fault, session};
use super::permission_tests::{ASK, SilentApprover};
use crate::pipeline::running::RunningCall;
use crate::tool::fault::FaultKind;

#[tokio::test(start_paused = true)]
async fn running_calls_are_listed_and_cancelled() {
    let fixture = fixture(ruled(ASK), |_| {}).map_pipeline(|p| p.with_approver(Arc::new(SilentApprover)));
    let running = fixture.pipeline.running();
    let (session, other) = (session(), session());
    let (first, second) = (fixture.call(&session, "{}"), fixture.call(&other, "{}"));
    let look = async {
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        let calls = running.list();
        let shown = |call: &RunningCall| (call.number, call.tool.clone(), call.began, call.elapsed_ms);
        let [one, two] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!(
            (shown(one), shown(two)),
            ((1, "p__t".into(), false, 1500), (2, "p__t".into(), false, 1500))
        );
        assert_eq!(running.cancel(1).unwrap().number, 1);
        assert!(running.cancel(3).is_none());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!((running.count(), running.stop("an incident")), (1, 1));
    };
    let (first, second, ()) = tokio::join!(first, second, look);
    assert_eq!((fault(&first), fault(&second)), (FaultKind::Cancelled, FaultKind::Cancelled));
    assert_eq!((running.count(), running.stopped().as_deref()), (0, Some("an incident")));
    let refused = fixture.call(&session, "{}").await;
    assert_eq!(text(&refused), "Stopped: the operator stopped all calls: an incident");
    assert_eq!(refused.hints.lines, ["`toolbay resume` allows calls again".into()]);
    assert!(running.resume() && !running.resume());
}
