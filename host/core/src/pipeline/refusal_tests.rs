//! What a refusal tells a caller: its reason, its remedy, and nothing about tools that the caller must not know.

use std::collections::BTreeSet;
use std::sync::Arc;

use toolbay_policy::output::OutputSettings;

use super::fixture::{GateFixture, calls, fixture, ruled, text};
use super::gates_tests::{profile, session};
use super::permission_tests::{ASK, SilentApprover};
use super::{CallPolicy, CallResult};
use crate::call::{ToolCall, TurnContext};
use crate::tool::fault::FaultKind;
use crate::tool::refusal::RefusalReason;

#[tokio::test(start_paused = true)]
async fn the_hint_has_the_lines_of_every_table_that_keeps_the_call_from_running() {
    let mut fixture = fixture(ruled("[[rule]]\naction = \"deny\""), |_| {});
    fixture.filter.profile = profile("[[profile.reader.rule]]\naction = \"ask\"");
    let delivered = fixture.call(&session(), "{}").await;
    let hint = delivered.hints.lines[0].to_string();
    assert!(hint.contains("before rule 1:\n[[rule]]"), "{hint}");
    assert!(hint.contains("before rule 1:\n[[profile.reader.rule]]"), "{hint}");
}

/// Takes the tool out of the caller's view.
type HideTool = fn(&mut GateFixture);

#[tokio::test(start_paused = true)]
async fn a_caller_does_not_learn_the_names_of_tools_outside_of_its_view() {
    let hides: [(HideTool, RefusalReason); 4] = [
        (|f| f.filter.exclude_tools = BTreeSet::from(["p__t".to_owned()]), RefusalReason::Excluded),
        (|f| f.filter.allowed_tools = Some(BTreeSet::new()), RefusalReason::Filter),
        (|f| f.filter.profile = profile("tools = [\"q__other\"]"), RefusalReason::Profile),
        (|f| f.filter.profile = profile("exclude_tools = [\"p__t\"]"), RefusalReason::Excluded),
    ];
    for (hide, reason) in hides {
        let policy = CallPolicy {
            output: OutputSettings { policy_hints: Some(true), ..Default::default() },
            ..CallPolicy::default()
        };
        let mut fixture = fixture(policy, |_| {});
        hide(&mut fixture);
        let names = ["p__t", "p__u"];
        let calls = names.map(|name| ToolCall::new(name, name, "{}")).to_vec();
        let [of_hidden, of_unknown] =
            <[CallResult; 2]>::try_from(fixture.all(calls, TurnContext::default()).await).unwrap();
        let seen = |delivered: &CallResult| {
            let text = text(delivered).replace(delivered.tool.as_str(), "NAME");
            (text, delivered.source.is_some(), delivered.hints.for_model(None))
        };
        assert_eq!(seen(&of_hidden), seen(&of_unknown), "{reason}");
        assert!(
            of_hidden.hints.lines[0].to_string().starts_with("`p__t` exists, and is "),
            "{:?}",
            of_hidden.hints
        );
        let records = fixture.audit.take();
        let of = |name: &str| records.iter().find(|record| &*record.tool == name).unwrap();
        assert_eq!((of("p__t").refusal, of("p__t").source.is_some()), (Some(reason), true));
        assert_eq!(of("p__u").refusal, Some(RefusalReason::UnknownTool));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ran_is_no_refusal_and_one_that_waited_too_long_is() {
    let fixture = fixture(CallPolicy::default(), |entry| entry.call.serial = Some("q".into()));
    fixture.call(&session(), "{\"do\":\"fail\"}").await;
    assert_eq!(fixture.audit.take()[0].refusal, None, "an error of the tool");
    let turn = TurnContext::default();
    turn.cancel.cancel();
    fixture.all(calls(1, |_| "{}".to_owned()), turn).await;
    assert_eq!(fixture.audit.take()[0].refusal, Some(RefusalReason::Fault(FaultKind::Cancelled)));
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_a_person_thinks_is_no_work() {
    let fixture = fixture(ruled(ASK), |_| {}).map_pipeline(|p| p.with_approver(Arc::new(SilentApprover)));
    fixture.call(&session(), "{}").await;
    let record = fixture.audit.take().pop().unwrap();
    assert!(record.waited_us >= 300_000_000 && record.working_us() < 1_000_000, "{record:?}");
    let patient = super::fixture::fixture(CallPolicy::default(), |_| {});
    patient.call(&session(), "{}").await;
    let record = patient.audit.take().pop().unwrap();
    assert_eq!((record.waited_us, record.working_us()), (0, record.duration_us));
}
