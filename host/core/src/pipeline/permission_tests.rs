//! Permission rules and approvals.

use std::sync::Arc;
use std::time::Duration;

use toolbay_policy::permission::{Action, MAX_ARGUMENT, Permissions};

use super::fixture::{ScriptedApprover, calls, fixture, ruled, text};
use super::gates_tests::{fault, profile, session};
use super::{CallPolicy, outcome};
use crate::approval::{ApprovalReply, ApprovalRequest, Approver};
use crate::call::TurnContext;
use crate::call::invoke::BoxFuture;
use crate::registry::event::HostEvent;
use crate::registry::view::ToolEntry;
use crate::session::Session;
use crate::tool::ToolSource;
use crate::tool::fault::FaultKind;
use crate::tool::refusal::RefusalReason;

pub(super) const ASK: &str = "[[rule]]\ntool = \"p__*\"\naction = \"ask\"\nreason = \"it writes\"";

#[tokio::test(start_paused = true)]
async fn the_first_matching_rule_decides_whether_to_ask() {
    let person = ScriptedApprover::replying(Some(ApprovalReply::Yes));
    for (gates, told, asked, decision) in [
        (CallPolicy::default(), "run 1: {}", 0, None),
        (
            ruled("[[rule]]\ntool = \"p__*\"\naction = \"allow\""),
            "run 1: {}",
            0,
            Some((Action::Allow, Some(1), true)),
        ),
        (
            ruled(
                "[[rule]]\ntag = \"x\"\naction = \"allow\"\n[[rule]]\naction = \"deny\"\nreason = \"closed\"",
            ),
            "Tool p__t is denied by permission policy: rule 2 of the policy says `deny` (closed); only the operator can \
             allow it, in the policy",
            0,
            Some((Action::Deny, Some(2), false)),
        ),
        (ruled(ASK), "run 1: {}", 1, Some((Action::Ask, Some(1), true))),
        (
            CallPolicy { permissions: Permissions::new(vec![], Action::Deny), ..CallPolicy::default() },
            "Tool p__t is denied by permission policy: no rule of the policy fits, and its `default` is `deny`; only the \
             operator can allow it, in the policy",
            0,
            Some((Action::Deny, None, false)),
        ),
    ] {
        let before = person.count();
        let fixture = fixture(gates, |_| {}).map_pipeline(|p| p.with_approver(Arc::clone(&person) as _));
        let delivered = fixture.call(&session(), "").await;
        assert_eq!((text(&delivered), person.count() - before), (told, asked));
        let advised = delivered.hints.lines.iter().any(|hint| hint.to_string().contains("[[rule]]"));
        assert_eq!(advised, decision.is_some_and(|(_, _, allowed)| !allowed), "{:?}", delivered.hints);
        let record = fixture.audit.take().pop().unwrap();
        assert_eq!(record.permission.map(|d| (d.action, d.rule, d.allowed)), decision);
    }
    let request = person.asked.lock().unwrap().pop().unwrap();
    assert_eq!(
        (request.call_id.as_str(), request.tool.as_str(), request.source.as_str()),
        ("1", "p__t", "plugin:p")
    );
    assert_eq!(request.reason, "rule 1 of the policy says `ask` (it writes)");
}

#[derive(Debug)]
pub(super) struct SilentApprover;

impl Approver for SilentApprover {
    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn every_reply_but_yes_refuses_the_call() {
    let no = |text: Option<&str>| {
        ScriptedApprover::replying(Some(ApprovalReply::No(text.map(str::to_owned)))) as Arc<dyn Approver>
    };
    let again = "a later call asks again";
    let person = "only that person can change it";
    for (approver, why, remedy, by, reason) in [
        (
            None,
            "no approver is available",
            "it runs where a person can be asked",
            None,
            RefusalReason::NoApprover,
        ),
        (Some(no(None)), "the answer was no", person, Some("host"), RefusalReason::Person),
        (
            Some(no(Some("not on Sundays"))),
            "the answer was no: not on Sundays",
            person,
            Some("host"),
            RefusalReason::Person,
        ),
        (
            Some(ScriptedApprover::replying(None) as _),
            "the approver failed",
            again,
            Some("host"),
            RefusalReason::ApproverFailed,
        ),
        (
            Some(Arc::new(SilentApprover) as _),
            "the approver did not answer within 300s (`[permissions] ask_timeout`)",
            again,
            Some("host"),
            RefusalReason::ApprovalTimeout,
        ),
    ] {
        let fixture = fixture(ruled(ASK), |_| {}).map_pipeline(|p| match approver {
            Some(approver) => p.with_approver(approver),
            None => p,
        });
        let mut events = fixture.pipeline.events().stream();
        let delivered = fixture.call(&session(), "{}").await;
        let told = text(&delivered);
        assert!(told.contains(&format!("says `ask` (it writes), and {why}; {remedy}")), "{told}");
        assert_eq!((outcome(&delivered.result), fixture.ran()), ("not_available", 0));
        let record = fixture.audit.take().pop().unwrap();
        let decision = record.permission.unwrap();
        assert_eq!(record.refusal, Some(reason));
        assert_eq!((decision.action, decision.allowed, decision.by), (Action::Ask, false, by));
        if by.is_some() {
            assert!(matches!(events.recv().await, Ok(HostEvent::PermissionAsked { .. })));
        }
        assert!(
            matches!(events.recv().await, Ok(HostEvent::PermissionDenied { reason: Some(r), .. }) if r.contains(why))
        );
        assert!(matches!(events.recv().await, Ok(HostEvent::ToolError { outcome: "not_available", .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn an_approver_sees_integers_as_they_were_written() {
    let person = ScriptedApprover::replying(Some(ApprovalReply::Yes));
    let fixture = fixture(ruled(ASK), |_| {}).map_pipeline(|p| p.with_approver(Arc::clone(&person) as _));
    for n in ["18446744073709551616", "18446744073709551617"] {
        assert_eq!(outcome(&fixture.call(&session(), &format!("{{\"n\": {n}}}")).await.result), "ok");
    }
    let asked = person.asked.lock().unwrap();
    let [one, other] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(&*one.args_text, "{\"n\": 18446744073709551616}");
    assert_eq!(other.preview.beginning, "{\"n\":18446744073709551617}");
    assert_ne!(one.preview.sha256, other.preview.sha256, "an answer to one call is not one to the other");
}

#[tokio::test(start_paused = true)]
async fn an_approval_request_ends_with_its_call() {
    let fixture = fixture(ruled(ASK), |_| {}).map_pipeline(|p| p.with_approver(Arc::new(SilentApprover)));
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        cancel.cancel();
    });
    for delivered in fixture.all(calls(2, |_| String::new()), turn).await {
        assert_eq!(fault(&delivered), FaultKind::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn the_sessions_approver_takes_precedence_and_always_lasts_for_the_session() {
    let (host, own) = (
        ScriptedApprover::replying(Some(ApprovalReply::No(None))),
        ScriptedApprover::replying(Some(ApprovalReply::Always)),
    );
    let fixture = fixture(ruled(ASK), |_| {}).map_pipeline(|p| p.with_approver(Arc::clone(&host) as _));
    let session = Arc::new(Session::default().with_approver(Arc::clone(&own) as _));
    for n in 0..3 {
        assert_eq!(outcome(&fixture.call(&session, &format!("{{\"n\":{n}}}")).await.result), "ok");
    }
    let by: Vec<_> = fixture.audit.take().iter().map(|r| r.permission.unwrap().by).collect();
    assert_eq!(
        (by, own.count(), host.count()),
        (vec![Some("session"), Some("before"), Some("before")], 1, 0)
    );
    assert_eq!(outcome(&fixture.call(&Arc::default(), "{}").await.result), "not_available");
    assert_eq!(host.count(), 1, "another session has no standing approval");
    // A different rule needs a new approval.
    fixture.pipeline.set_call_policy(ruled("[[rule]]\naction = \"ask\"\nreason = \"another\""));
    fixture.call(&session, "{}").await;
    assert_eq!(own.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_has_one_open_request_so_always_covers_the_waiting_calls() {
    let person = ScriptedApprover::replying(Some(ApprovalReply::Always));
    let fixture = fixture(ruled(ASK), |_| {}).map_pipeline(|p| p.with_approver(Arc::clone(&person) as _));
    let results = fixture.all(calls(20, |n| format!("{{\"n\":{n}}}")), TurnContext::default()).await;
    assert!(results.iter().all(|r| r.result.is_ok()));
    assert_eq!(person.count(), 1, "one reply covers the whole batch");
}

#[tokio::test(start_paused = true)]
async fn a_profile_can_only_make_the_rules_stricter() {
    let deny = "[[profile.reader.rule]]\naction = \"deny\"";
    let allow = "[[profile.reader.rule]]\naction = \"allow\"";
    for (policy, of_profile, expect) in [
        (CallPolicy::default(), deny, "[[profile.reader.rule]]"),
        (ruled("[[rule]]\naction = \"deny\""), allow, "rule 1 of the policy says `deny`"),
        (ruled(ASK), deny, "rule 1 of [profile.reader] says `deny`"),
        (ruled(ASK), allow, "rule 1 of the policy says `ask` (it writes), and no approver is available"),
        (
            ruled("[[rule]]\naction = \"allow\""),
            "permissions = { default = \"deny\" }",
            "no rule of [profile.reader] fits",
        ),
        (CallPolicy::default(), allow, "run 1: {}"),
        (CallPolicy::default(), "", "run 1: {}"),
    ] {
        let mut fixture = fixture(policy, |_| {});
        fixture.filter.profile = profile(of_profile);
        let delivered = fixture.call(&session(), "{}").await;
        let words = format!("{}\n{:?}", text(&delivered), delivered.hints.lines);
        assert!(words.contains(expect), "{words}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_author_wants_approval_is_asked_for() {
    let wants = |entry: &mut ToolEntry| Arc::make_mut(&mut entry.def).traits.needs_approval = true;
    let nobody = fixture(CallPolicy::default(), wants);
    let told = nobody.call(&session(), "{}").await;
    let expect = "its author wants every call approved (`needs_approval`), and no approver is available";
    assert!(text(&told).contains(expect), "{}", text(&told));
    let of_service = fixture(CallPolicy::default(), |entry: &mut ToolEntry| {
        wants(entry);
        Arc::make_mut(&mut entry.def).source = ToolSource::OpenApi { document: "pets".into() }.into();
    });
    let told = of_service.call(&session(), "{}").await;
    assert!(text(&told).contains("`approve` of [openapi.pets] in the policy"), "{}", text(&told));
    let person = ScriptedApprover::replying(Some(ApprovalReply::Yes));
    let asked =
        fixture(CallPolicy::default(), wants).map_pipeline(|p| p.with_approver(Arc::clone(&person) as _));
    assert_eq!((outcome(&asked.call(&session(), "{}").await.result), person.count()), ("ok", 1));
    let ruled = fixture(ruled("[[rule]]\naction = \"allow\""), wants);
    assert_eq!(outcome(&ruled.call(&session(), "{}").await.result), "ok");
    let off = Permissions { needs_approval: Action::Allow, ..Permissions::default() };
    let off = fixture(CallPolicy { permissions: off, ..CallPolicy::default() }, wants);
    assert_eq!(outcome(&off.call(&session(), "{}").await.result), "ok");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_a_long_argument_says_that_a_shorter_one_may_run() {
    let rule = "[[rule]]\nargs = { \"/a\" = \"b*\" }\naction = \"deny\"";
    let fixture = fixture(ruled(rule), |entry| entry.call.args_bytes = 1 << 20);
    let call = async |length: usize| {
        let delivered = fixture.call(&session(), &format!("{{\"a\": \"{}\"}}", "a".repeat(length))).await;
        text(&delivered).to_owned()
    };
    let told = call(MAX_ARGUMENT + 1).await;
    assert!(told.contains("the argument `/a` has more than 64KiB"), "{told}");
    assert!(told.contains("a shorter argument is compared, and may run"), "{told}");
    let told = call(MAX_ARGUMENT).await;
    assert!(!told.contains("denied"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_refusal_and_requests_no_approval() {
    let dry = || TurnContext { dry_run: true, ..TurnContext::default() };
    let refused = fixture(ruled("[[rule]]\naction = \"deny\""), |_| {});
    let results = refused.all(calls(1, |_| String::new()), dry()).await;
    assert_eq!(outcome(&results[0].result), "not_available");
    let person = ScriptedApprover::replying(Some(ApprovalReply::Yes));
    let asking = fixture(ruled(ASK), |_| {}).map_pipeline(|p| p.with_approver(Arc::clone(&person) as _));
    let results = asking.all(calls(1, |_| String::new()), dry()).await;
    assert_eq!(text(&results[0]), "[dry-run] p__t would be called, if it is approved with: {}");
    assert_eq!((asking.ran(), person.count()), (0, 0));
}
