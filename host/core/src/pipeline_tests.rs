use std::sync::atomic::Ordering;
use std::time::Duration;

use toolbay_policy::output::SchemaMismatch;

use super::*;
use crate::audit::{AuditRecord, GrantRecord, MemoryAudit};
use crate::call::fixture::{FixedReducer, ScriptedTool};
use crate::call::invoke::Failure;
use crate::registry::fixture::{plugin_tool, reducer};
use crate::registry::view::{Filter, ToolEntry};
use crate::registry::{Bundle, Registry};
use crate::tool::content::{BlockBody, ContentBlock, ErrorCode, ToolError, ToolOutput};
use crate::tool::fault::{Fault, FaultKind};
use crate::tool::schema::Schema;

struct PipelineFixture {
    registry: Registry,
    audit: Arc<MemoryAudit>,
    tool: Arc<ScriptedTool>,
}

fn fixture(change: impl FnOnce(&mut ToolEntry, &mut Vec<crate::registry::ReducerEntry>)) -> PipelineFixture {
    let tool = Arc::new(ScriptedTool::default());
    let mut entry = plugin_tool("p", "t");
    entry.invoker = Arc::clone(&tool) as _;
    let mut reducers = vec![];
    change(&mut entry, &mut reducers);
    let registry = Registry::default();
    registry.register(Bundle { tools: vec![entry], reducers }).unwrap();
    PipelineFixture { registry, audit: Arc::default(), tool }
}

impl PipelineFixture {
    async fn all(&self, calls: &[&str], turn: TurnContext) -> Vec<CallResult> {
        let calls =
            calls.iter().enumerate().map(|(n, args)| ToolCall::new(n.to_string(), "p__t", *args)).collect();
        let view = View::new(self.registry.snapshot(), Filter::default());
        Pipeline::new(Arc::clone(&self.audit) as _).call_all(&view, calls, turn).await
    }
    async fn one(&self, args: &str) -> CallResult {
        self.all(&[args], TurnContext::default()).await.pop().unwrap()
    }
}

fn value(delivered: &CallResult) -> &str {
    &delivered.result.as_ref().unwrap().value
}

fn refused(delivered: &CallResult) -> &ToolError {
    match &delivered.result {
        Err(Failure::Refused(error)) => error,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn results_have_the_order_of_the_calls() {
    let fixture = fixture(|_, _| {});
    let start = tokio::time::Instant::now();
    let results = fixture
        .all(&[r#"{"do":"sleep"}"#, r#"{"n":1}"#, r#"{"do":"sleep"}"#, ""], TurnContext::default())
        .await;
    assert_eq!(results.iter().map(value).collect::<Vec<_>>(), ["slept", r#"{"n":1}"#, "slept", "{}"]);
    assert_eq!(results.iter().map(|r| &*r.call_id).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    assert!(start.elapsed() < Duration::from_millis(300), "the calls ran concurrently");
    assert_eq!(fixture.audit.take().len(), 4);
    assert!(fixture.all(&[], TurnContext::default()).await.is_empty());
}

/// Calls that never wait run one after the other, alone and in batches, on a single thread.
#[tokio::test]
async fn a_caller_in_a_tight_loop_lets_other_tasks_run() {
    for calls in [1, 3] {
        let fixture = fixture(|_, _| {});
        let stop = tokio_util::sync::CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            stopped.cancel();
        });
        let mut rounds = 0;
        while !stop.is_cancelled() {
            assert_eq!(fixture.all(&vec!["{}"; calls], TurnContext::default()).await.len(), calls);
            rounds += 1;
            assert!(rounds < 100_000, "no other task has run");
            drop(fixture.audit.take());
        }
    }
}

#[derive(Debug)]
struct PanickingAudit;

impl AuditSink for PanickingAudit {
    fn record(&self, _: AuditRecord) {
        panic!("the disk is full");
    }
    fn record_grant(&self, _: GrantRecord) {}
}

#[tokio::test]
async fn a_panicking_audit_sink_loses_no_result() {
    let fixture = fixture(|_, _| {});
    let view = View::new(fixture.registry.snapshot(), Filter::default());
    let calls = (0..3).map(|n| ToolCall::new(n.to_string(), "p__t", "{}")).collect();
    let results =
        Pipeline::new(Arc::new(PanickingAudit)).call_all(&view, calls, TurnContext::default()).await;
    assert_eq!(results.iter().map(value).collect::<Vec<_>>(), ["{}", "{}", "{}"]);
}

#[tokio::test]
async fn bad_arguments_never_reach_the_tool() {
    let fixture = fixture(|_, _| {});
    let long = format!(r#"{{"do":"{}"}}"#, "x".repeat(20_000));
    for (args, pointer, part) in [
        (r#"{"do":5}"#, Some("/do"), "string"),
        ("{", None, "not valid JSON"),
        ("[]", Some(""), "object"),
        (r#"{"do":"echo","do":"fail"}"#, None, "duplicate key"),
        ("NaN", None, "not valid JSON"),
        ("{\"do\":\"\0\"}", None, "not UTF-8"),
        ("\0the number is rounded", None, "not accepted: the number is rounded"),
        (&long, None, "args_bytes"),
    ] {
        let delivered = fixture.one(args).await;
        let error = refused(&delivered);
        assert_eq!((error.code, error.subject.as_deref()), (ErrorCode::InputInvalid, pointer), "{args:.40}");
        assert!(error.message.contains(part), "{}", error.message);
    }
    assert_eq!(fixture.tool.ran.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_failing_call_does_not_affect_the_other_calls() {
    let fixture = fixture(|_, _| {});
    let calls = [r#"{"do":"panic"}"#, "{}", r#"{"do":"fault"}"#, r#"{"do":"fail"}"#, r#"{"x":"#];
    let results = fixture.all(&calls, TurnContext::default()).await;
    let outcomes: Vec<_> = results.iter().map(|r| outcome(&r.result)).collect();
    assert_eq!(outcomes, ["host_failed", "ok", "trap", "execution_failed", "input_invalid"]);
    assert_eq!(
        outcome(&fixture.one(r#"{"do":"panic"}"#).await.result),
        "host_failed",
        "a single call fails in the same way"
    );
    let unknown = vec![ToolCall::new("a", "no such tool", "{}")];
    let view = View::new(fixture.registry.snapshot(), Filter::default());
    let results =
        Pipeline::new(Arc::clone(&fixture.audit) as _).call_all(&view, unknown, TurnContext::default()).await;
    assert_eq!(refused(&results[0]).message, "Unknown tool: no such tool");
}

#[tokio::test]
async fn texts_are_cut_to_the_budget_and_other_parts_stay() {
    let fixture = fixture(|entry, _| entry.call.result_chars = Some(60));
    let long = fixture.one(r#"{"do":"long"}"#).await;
    assert_eq!(value(&long).chars().count(), 60);
    assert!(value(&long).ends_with("[truncated — 1000 chars total]"));
    let output = long.result.as_ref().unwrap();
    assert_eq!((output.structured.as_ref().unwrap().get(), output.cost_usd), ("[1,2,3]", Some(0.5)));
    let error = fixture.one(r#"{"do":"fail"}"#).await;
    assert_eq!(refused(&error).message.chars().count(), 60, "errors are cut too");
    assert_eq!(fixture.audit.take()[0].cut_from_chars, Some(1000));

    let turn = TurnContext { budget_chars: 200, ..TurnContext::default() };
    let results = fixture.all(&[r#"{"do":"long"}"#; 4], turn).await;
    assert!(results.iter().all(|r| value(r).chars().count() == 50), "floor(200 / 4)");
}

#[tokio::test]
async fn a_reducer_cannot_add_labels_or_metadata() {
    let long = |change: fn(&mut ToolOutput)| {
        let mut output = ToolOutput::text("short");
        change(&mut output);
        Ok(Some(Ok(output)))
    };
    let labelled = long(|output| {
        let title = Some("x".repeat(2000));
        let link = crate::tool::content::ResourceLink {
            uri: String::new(),
            name: String::new(),
            title,
            description: None,
            mime_type: None,
            size: None,
        };
        output.content = vec![ContentBlock { body: BlockBody::Link(link), annotations: None }];
    });
    let meta = long(|output| output.meta = serde_json::value::to_raw_value("its own").ok());
    for (answer, note) in [(labelled, "refused: longer, or another kind of result"), (meta, "reduced")] {
        let fixture = fixture(|_, reducers| {
            let reducer = reducer("p__t", None);
            reducers
                .push(crate::registry::ReducerEntry { reducer: Arc::new(FixedReducer(answer)), ..reducer });
        });
        let delivered = fixture.one(r#"{"do":"long"}"#).await;
        let output = delivered.result.as_ref().unwrap();
        assert!(output.content.is_empty() && output.meta.is_none(), "{output:?}");
        assert_eq!(fixture.audit.take()[0].reducer, Some(note));
    }
}

#[tokio::test]
async fn a_reducer_can_only_shorten_a_result() {
    let ok = |text: &str| Ok(Some(Ok(ToolOutput::text(text))));
    let error = || Ok(Some(Err(ToolError::new(ErrorCode::ExecutionFailed, "no"))));
    for (answer, expect, note) in [
        (ok("short"), "short", "reduced"),
        (Ok(None), "long", "kept"),
        (ok(&"x".repeat(2000)), "long", "refused: longer, or another kind of result"),
        (error(), "long", "refused: longer, or another kind of result"),
        (Err(Fault::new(FaultKind::Trap, "trapped")), "long", "trap"),
    ] {
        let fixture = fixture(|_, reducers| {
            reducers.push(crate::registry::ReducerEntry {
                reducer: Arc::new(FixedReducer(answer)),
                ..reducer("p__t", None)
            });
        });
        let delivered = fixture.one(r#"{"do":"long"}"#).await;
        let expect = if expect == "long" { "🙂".repeat(1000) } else { expect.to_owned() };
        assert_eq!(value(&delivered), expect);
        let output = delivered.result.unwrap();
        assert!(output.structured.is_some() && output.cost_usd == Some(0.5), "{note}");
        assert_eq!(fixture.audit.take()[0].reducer, Some(note));
    }
}

#[tokio::test]
async fn an_output_that_does_not_match_its_schema_is_marked_or_a_fault() {
    let with = |mismatch| {
        fixture(move |entry, _| {
            let schema = Schema::output(r#"{"type":"array"}"#).unwrap();
            Arc::make_mut(&mut entry.def).output_schema = Some(schema);
            entry.call.output.schema_mismatch = mismatch;
        })
    };
    let marked = with(None);
    let marks = |output: CallResult| output.result.unwrap().content.len();
    assert_eq!(marks(marked.one(r#"{"do":"long"}"#).await), 0);
    let odd = marked.one("{}").await;
    assert_eq!(value(&odd), "{}");
    assert_eq!(marks(odd), 1, "the mismatch is noted behind the text");
    let refused = with(Some(SchemaMismatch::Error)).one("{}").await;
    assert_eq!(outcome(&refused.result), "bad_output");
}

#[tokio::test]
async fn a_dry_run_passes_the_gates_and_runs_nothing() {
    let fixture = fixture(|_, _| {});
    let turn = || TurnContext { dry_run: true, ..TurnContext::default() };
    let long = format!(r#"{{"do":"{}"}}"#, "é".repeat(600));
    let results = fixture.all(&[r#"{"n":1}"#, &long, r#"{"n":"x"}"#], turn()).await;
    assert_eq!(value(&results[0]), r#"[dry-run] p__t would be called with: {"n":1}"#);
    assert!(value(&results[1]).ends_with(&format!("{}...[truncated, 600 chars]\"}}", "é".repeat(500))));
    assert_eq!(refused(&results[2]).code, ErrorCode::InputInvalid);
    assert_eq!(fixture.tool.ran.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_turn_ends_every_call() {
    let fixture = fixture(|_, _| {});
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        cancel.cancel();
    });
    let results = fixture.all(&[r#"{"do":"hang"}"#, r#"{"do":"hang"}"#], turn).await;
    assert!(results.iter().all(|r| outcome(&r.result) == "cancelled"));
}
