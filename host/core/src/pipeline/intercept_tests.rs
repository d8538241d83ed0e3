//! Tests of interceptors.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fixture::{GateFixture, calls, fixture, ruled, text};
use super::{CallPolicy, outcome};
use crate::call::invoke::{BoxFuture, Failure};
use crate::call::{AdmittedCall, CallContext, TurnContext};
use crate::pipeline::intercept::{Interceptor, InterceptorAction, InterceptorScope, Interceptors};
use crate::session::Session;
use crate::tool::content::{ErrorCode, ToolError, ToolOutput, ToolResult};
use crate::tool::fault::FaultKind;

/// An interceptor whose text selects its behaviour.
#[derive(Debug)]
struct ScriptedInterceptor(&'static str, Arc<Mutex<Vec<String>>>);

impl Interceptor for ScriptedInterceptor {
    fn before<'a>(
        &'a self,
        call: &'a AdmittedCall,
        _: &'a Arc<CallContext>,
    ) -> BoxFuture<'a, InterceptorAction> {
        self.1.lock().unwrap().push(format!("before {} {}", self.0, call.args()));
        let what = match self.0 {
            "panics at once" => panic!("at once"),
            "changes" => InterceptorAction::Args(serde_json::json!({"n": 7})),
            "spoils" => InterceptorAction::Args(serde_json::json!({"n": "seven"})),
            "floods" => InterceptorAction::Args(serde_json::json!({"do": "x".repeat(20_000)})),
            "answers" => InterceptorAction::Answer(Ok(ToolOutput::text("instead"))),
            "refuses" => InterceptorAction::Answer(Err(ToolError::new(ErrorCode::NotAvailable, "not today"))),
            _ => InterceptorAction::Run,
        };
        let (name, cancelled) = (self.0, std::future::pending::<()>());
        Box::pin(async move {
            match name {
                "panics later" => panic!("later"),
                "hangs" => cancelled.await,
                _ => {}
            }
            what
        })
    }

    fn after<'a>(
        &'a self,
        _: &'a AdmittedCall,
        _: &'a Arc<CallContext>,
        result: &'a Result<ToolOutput, Failure>,
    ) -> BoxFuture<'a, Option<ToolResult>> {
        self.1.lock().unwrap().push(format!("after {} {}", self.0, outcome(result)));
        let new = match self.0 {
            "replaces" => Some(Ok(ToolOutput::text("replaced"))),
            "rejects" => Some(Err(ToolError::new(ErrorCode::ExecutionFailed, "rejected"))),
            "panics after" => panic!("after"),
            _ => None,
        };
        Box::pin(std::future::ready(new))
    }
}

fn with(
    fixture: GateFixture,
    all: &[(InterceptorScope, &'static str)],
) -> (GateFixture, Arc<Mutex<Vec<String>>>) {
    let (mut interceptors, seen) = (Interceptors::default(), Arc::default());
    for (scope, name) in all {
        interceptors.push(scope.clone(), Arc::new(ScriptedInterceptor(name, Arc::clone(&seen))));
    }
    (fixture.map_pipeline(|p| p.with_interceptors(interceptors)), seen)
}

#[tokio::test(start_paused = true)]
async fn interceptors_answer_change_and_replace_without_losing_a_result() {
    for (name, expect, ran) in [
        ("watches", "run 1: {}", 1),
        ("changes", "run 1: {\"n\":7}", 1),
        ("spoils", "the arguments of `p__t` were not accepted: ", 0),
        ("floods", "the arguments of `p__t` were not accepted: they have 20009 bytes", 0),
        ("answers", "instead", 0),
        ("refuses", "not today", 0),
        ("panics at once", "an interceptor panicked", 0),
        ("panics later", "an interceptor panicked", 0),
        ("replaces", "replaced", 1),
        ("rejects", "rejected", 1),
        ("panics after", "run 1: {}", 1),
    ] {
        let (fixture, _) = with(fixture(CallPolicy::default(), |_| {}), &[(InterceptorScope::All, name)]);
        let delivered = fixture.call(&Session::default().into(), "{}").await;
        assert!(text(&delivered).starts_with(expect), "{name}: {}", text(&delivered));
        assert_eq!(fixture.ran(), ran, "{name}");
        let failed = expect.starts_with("an interceptor");
        assert_eq!(outcome(&delivered.result) == "host_failed", failed, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_interceptor_is_the_outermost_and_each_sees_its_scope() {
    let (fixture, seen) = with(
        fixture(CallPolicy::default(), |entry| {
            Arc::make_mut(&mut entry.def).keywords.toolset = Some("set".to_owned());
        }),
        &[
            (InterceptorScope::Tool("p__*".to_owned()), "a"),
            (InterceptorScope::Tool("q__*".to_owned()), "no"),
            (InterceptorScope::Source("plugin:p".to_owned()), "b"),
            (InterceptorScope::Source("builtin".to_owned()), "no"),
            (InterceptorScope::Toolset("set".to_owned()), "c"),
            (InterceptorScope::Toolset("other".to_owned()), "no"),
        ],
    );
    fixture.call(&Session::default().into(), "{\"do\":\"fail\"}").await;
    let order = ["before a", "before b", "before c", "after c", "after b", "after a"];
    for (seen, expect) in seen.lock().unwrap().iter().zip(order) {
        assert!(seen.starts_with(expect), "{seen}");
    }
    assert_eq!(seen.lock().unwrap().len(), 6);
    let turn = TurnContext { dry_run: true, ..TurnContext::default() };
    fixture.all(calls(1, |_| String::new()), turn).await;
    assert_eq!(seen.lock().unwrap().len(), 6, "a dry run is not intercepted");
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_pass_the_permission_rules_again() {
    let rules = "[[rule]]\nargs = { \"/n\" = \"7\" }\naction = \"deny\"\n[[rule]]\naction = \"allow\"";
    let (fixture, _) = with(fixture(ruled(rules), |_| {}), &[(InterceptorScope::All, "changes")]);
    let delivered = fixture.call(&Session::default().into(), "{\"n\":1}").await;
    assert!(text(&delivered).contains("rule 1 of the policy says `deny`"), "{}", text(&delivered));
    assert_eq!(fixture.ran(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_that_hangs_ends_with_the_call() {
    let (fixture, _) = with(fixture(CallPolicy::default(), |_| {}), &[(InterceptorScope::All, "hangs")]);
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        cancel.cancel();
    });
    let results = fixture.all(calls(1, |_| String::new()), turn).await;
    assert!(matches!(&results[0].result, Err(Failure::Fault(fault)) if fault.kind == FaultKind::Cancelled));
}
