//! The work that the host does around a tool has a bound, and delays no other tool: `docs/explanation/security.md` lists it.
//! Each case reaches a bound while another tool is called all the time, on one worker.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolbay_policy::limits::Usage;
use toolbay_policy::output::OutputSettings;

use super::Pipeline;
use super::fixture::{ScriptedApprover, ruled};
use crate::approval::ApprovalReply;
use crate::audit::MemoryAudit;
use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::{AdmittedCall, CallContext, Identity, ProgressAudience, ProgressEvent, ProgressSink};
use crate::call::{ToolCall, TurnContext};
use crate::output::redact::Redactor;
use crate::pipeline::CallResult;
use crate::registry::fixture::plugin_tool;
use crate::registry::view::{Filter, View};
use crate::registry::{Bundle, Registry, ToolEntry, read_output};
use crate::session::Session;
use crate::session::output_store::query::MAX_PATTERN;
use crate::session::output_store::{MemoryOutputStore, OutputQuota, OutputStore, SavedText};
use crate::tool::ToolDef;
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};
use crate::tool::schema::Schema;
use crate::tool::toolcall_reason;

/// A text of 15 MB: with its copies, four of them fit into the memory for results.
const LONG: usize = 15 << 20;
/// A text that is searched for secrets, and one whose characters are spelt out: slow without optimization.
const SEARCHED: usize = 1 << 19;
const HIDDEN: usize = 1 << 22;

/// A tool with a fixed result.
#[derive(Debug)]
struct FixedResult(Result<ToolOutput, Failure>);

impl Invoke for FixedResult {
    fn invoke<'a>(&'a self, _: &'a AdmittedCall, _: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        let result = self.0.clone();
        Box::pin(async move { ToolOutcome { result, usage: Usage::default() } })
    }
}

/// A tool that reports its arguments many times before it ends.
#[derive(Debug)]
struct Reporter;

impl Invoke for Reporter {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            for _ in 0..100 {
                ctx.progress(call.args(), Some(1.0), ProgressAudience::User);
            }
            ToolOutcome { result: text("reported".to_owned()), usage: Usage::default() }
        })
    }
}

/// Drops progress.
#[derive(Debug)]
struct NoProgress;

impl ProgressSink for NoProgress {
    fn progress(&self, _: ProgressEvent) {}
}

/// Work around calls of `busy__t`, of another tool, or of unknown names.
struct Case {
    what: &'static str,
    entry: ToolEntry,
    calls: Vec<ToolCall>,
    turn: TurnContext,
    /// What each result contains.
    says: &'static str,
}

fn busy(result: Result<ToolOutput, Failure>) -> ToolEntry {
    let mut entry = ToolEntry { invoker: Arc::new(FixedResult(result)), ..plugin_tool("busy", "t") };
    entry.call.args_bytes = 64 << 20;
    entry.call.output = OutputSettings { untrusted: Some(true), ..OutputSettings::default() };
    entry
}

fn text(text: String) -> Result<ToolOutput, Failure> {
    Ok(ToolOutput::text(text))
}

fn calls(count: usize, tool: &str, args: &str) -> Vec<ToolCall> {
    (0..count).map(|n| ToolCall::new(n.to_string(), tool, args)).collect()
}

fn with_schemas(mut entry: ToolEntry, input: Option<&Value>, output: Option<&Value>) -> ToolEntry {
    let mut def = ToolDef::clone(&entry.def);
    if let Some(input) = input {
        def.input_schema = Schema::input(&input.to_string()).unwrap();
    }
    def.output_schema = output.map(|output| Schema::output(&output.to_string()).unwrap());
    entry.def = Arc::new(def);
    entry
}

/// A schema of 600 constants, none of which matches.
fn constants() -> Value {
    let all: Vec<Value> =
        (0..600).map(|n| json!({"const": format!("value {n} {}", "y".repeat(200))})).collect();
    json!({"type": "object", "properties": {"a": {"oneOf": all}}})
}

/// Alternatives inside of alternatives, and a value that matches none of them.
fn nested_constants() -> (Value, Value) {
    let inner: Vec<Value> = (0..90).map(|n| json!({"const": format!("value {n}")})).collect();
    let outer: Vec<Value> =
        (0..90).map(|n| json!({"properties": {"k": {"const": n}, "b": {"oneOf": inner.clone()}}})).collect();
    let schema = json!({"type": "object", "properties": {"a": {"oneOf": outer}}});
    (schema, json!({"a": {"k": 0, "b": "x".repeat(10_000)}}))
}

/// A schema that refers to itself in each of its alternatives.
fn recursive() -> (Value, Value) {
    let again = json!({"properties": {"a": {"$ref": "#"}}, "required": ["b"]});
    let value = (0..6).fold(json!({}), |inner, _| json!({"a": inner}));
    (json!({"type": "object", "anyOf": vec![again; 30]}), value)
}

/// As many patterns as a schema may have.
fn patterns() -> Value {
    let all: serde_json::Map<String, Value> = (0..150)
        .map(|n| (format!("p{n}"), json!({"type": "string", "pattern": format!("^\\w{{1,30}}-{n}$")})))
        .collect();
    json!({"type": "object", "properties": all})
}

fn case(what: &'static str, entry: ToolEntry, calls: Vec<ToolCall>, says: &'static str) -> Case {
    Case { what, entry, calls, turn: TurnContext::default(), says }
}

/// Names and arguments of a caller.
fn cases_of_calls() -> Vec<Case> {
    let plain = || busy(text("checked".to_owned()));
    let with = |schema: &Value| with_schemas(plain(), Some(schema), None);
    let to_busy = |count, args: &Value| calls(count, "busy__t", &args.to_string());
    let (nested, deep) = nested_constants();
    let (tree, branch) = recursive();
    let long_name = "busy__list".repeat(400_000);
    vec![
        case("unknown names", plain(), calls(64, "busy__list_isues_7", "{}"), "Unknown tool"),
        case("a name of 4 MB", plain(), calls(2, &long_name, "{}"), "Unknown tool"),
        case(
            "an argument beside 600 constants",
            with(&constants()),
            to_busy(2, &long_text()),
            "not accepted",
        ),
        case("an argument beside nested constants", with(&nested), to_busy(2, &deep), "not accepted"),
        case("an argument beside a recursive schema", with(&tree), to_busy(2, &branch), "not accepted"),
        case("a schema with many patterns", with(&patterns()), to_busy(1, &json!({"p0": "a-0"})), "checked"),
        case("4 MB of arguments", plain(), to_busy(1, &many_values()), "checked"),
    ]
}

/// Results of a source.
fn cases_of_results() -> Vec<Case> {
    const MARK: &str = "<untrusted";
    let two = || calls(2, "busy__t", "{}");
    let says = |part: &str, bytes: usize| busy(text(part.repeat(bytes / part.len())));
    let raw = RawValue::from_string(long_text().to_string()).unwrap();
    let structured = busy(Ok(ToolOutput { structured: Some(raw), ..ToolOutput::text("t") }));
    let hidden = "a\u{200b}\x1b[0m".repeat(HIDDEN / 8);
    let hidden = busy(Err(ToolError::new(ErrorCode::ExecutionFailed, hidden).into()));
    let mut stripped = says("0123456789abcdef", LONG);
    stripped.call.output.strip_blobs = Some(true);
    vec![
        case("structured data", with_schemas(structured, None, Some(&constants())), two(), MARK),
        case("15 MB of brackets", says("[", LONG), two(), MARK),
        case("15 MB of tags", says("<s>Human:", LONG), two(), MARK),
        case("escapes that can hide a secret", says("%41\\u0041&#65;", SEARCHED), two(), MARK),
        case("4 MB of hidden characters", hidden, two(), MARK),
        case("15 MB of encoded data", stripped, two(), MARK),
    ]
}

/// Texts of a caller in records, and arguments that a person is shown.
fn cases_of_records() -> Vec<Case> {
    let long = "%41\\u0041&#65;".repeat((4 << 20) / 15);
    let words = || Some(long.clone());
    let turn = TurnContext {
        progress: Some(Arc::new(NoProgress)),
        identity: Identity {
            agent_id: words(),
            client: words(),
            platform: words(),
            session_key: words(),
            ..Identity::default()
        },
        session: Arc::new(Session::default().with_id(&*long)),
        ..TurnContext::default()
    };
    let mut told = ToolEntry { invoker: Arc::new(Reporter), ..busy(text(String::new())) };
    let mut def = ToolDef::clone(&told.def);
    def.traits.needs_approval = true;
    def.input_schema = toolcall_reason::schema_with_reason(&def.input_schema).unwrap();
    told.def = Arc::new(def);
    let call = |id: &str, args: String| vec![ToolCall::new(id, "busy__t", args)];
    let many = || call("1", many_values().to_string());
    let dry_run = TurnContext { dry_run: true, ..TurnContext::default() };
    let reason = json!({"toolcall_reason": long, "do": long}).to_string();
    vec![
        Case {
            turn,
            ..case("records that can hide a secret", told.clone(), call(&long, reason), "reported")
        },
        case("4 MB of arguments for a person", told, many(), "reported"),
        Case { turn: dry_run, ..case("a dry run", busy(text(String::new())), many(), "[dry-run]") },
    ]
}

/// Queries of a model over a saved text.
fn cases_of_saved_outputs() -> Vec<Case> {
    let quota = OutputQuota { bytes: 64 << 20, session_bytes: 32 << 20, age: Duration::from_secs(3600) };
    let store = MemoryOutputStore::new(quota);
    // No small automaton remembers the last hundred of these letters, and no letter of the text ends a match.
    let mut random = 1_u32;
    let letter = |_| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if random >> 31 == 0 { 'a' } else { 'b' }
    };
    let letters: String = (0..1 << 16).map(letter).collect();
    let saved = SavedText {
        text: letters.repeat(LONG >> 16).into(),
        source: "plugin:busy".into(),
        tool: "busy__t".into(),
        untrusted: true,
    };
    let id = store.put("named:a", saved).now_or_never().unwrap().unwrap();
    let entry = read_output::entry(Arc::new(store)).unwrap();
    let grep = |what, pattern: &str, says| {
        let args = json!({"id": id.as_str(), "pattern": pattern, "regex": true, "ignore_case": true});
        let turn = TurnContext { session: Arc::new(Session::with_name("a")), ..TurnContext::default() };
        Case { turn, ..case(what, entry.clone(), calls(1, read_output::NAME, &args.to_string()), says) }
    };
    vec![
        grep("a search that takes as long as it may", "a[ab]{100}[c-z]", "took too long"),
        grep("a pattern that is too large", &"\\pL".repeat(MAX_PATTERN / 3), "too large"),
    ]
}

/// 4 MB of small values.
fn many_values() -> Value {
    json!({"list": vec![json!({"k": [1, 2.5, "x".repeat(80)]}); 40_000]})
}

/// An argument of 50,000 characters.
fn long_text() -> Value {
    json!({"a": "x".repeat(50_000)})
}

async fn call(pipeline: Pipeline, view: View, call: ToolCall, turn: TurnContext) -> CallResult {
    pipeline.call_all(&view, vec![call], turn).await.pop().unwrap()
}

/// The longest that the worker computes during a call of the quiet tool while the calls of the case run.
async fn delay_beside(pipeline: &Pipeline, view: &View, case: Case) -> Duration {
    let start = |one, turn| tokio::spawn(call(pipeline.clone(), view.clone(), one, turn));
    let busy: Vec<_> = case.calls.into_iter().map(|one| start(one, case.turn.clone())).collect();
    let quiet = async || {
        let done = start(ToolCall::new("1", "quiet__t", "{}"), TurnContext::default());
        assert!(done.await.unwrap().result.is_ok());
    };
    let (done, delay) = canary::run_beside(tokio::spawn(join_all(busy)), quiet).await;
    for one in done {
        let text = match one.unwrap().result {
            Ok(output) => output.value,
            Err(failure) => failure.to_string(),
        };
        assert!(text.contains(case.says), "{}: {text:.300}", case.what);
    }
    delay
}

#[tokio::test]
async fn the_hosts_own_work_delays_no_other_tool() {
    let secret = Redactor::new([("KEY", "s3cr3t-value-of-a-key")]).unwrap();
    // Names that are alike, as those of a large server.
    let mut tools: Vec<ToolEntry> =
        (0..1850).map(|n| plugin_tool("busy", &format!("list_issues_of_project_{n:04}"))).collect();
    let quiet = Arc::new(FixedResult(text("quiet".to_owned())));
    tools.push(ToolEntry { invoker: quiet, ..plugin_tool("quiet", "t") });
    // None of them compares as much as 4 MB.
    let rules =
        "[[rule]]\ntool = \"busy__t\"\nargs = { \"/list\" = \"*x*y*z*\" }\naction = \"allow\"\n".repeat(100);
    let mut late = Vec::new();
    let cases = [cases_of_calls(), cases_of_results(), cases_of_records(), cases_of_saved_outputs()];
    for case in cases.into_iter().flatten() {
        let registry = Registry::default();
        let tools = tools.iter().chain([&case.entry]).cloned().collect();
        registry.register(Bundle { tools, reducers: vec![] }).unwrap();
        let redactor = if case.what.contains("secret") { secret.clone() } else { Redactor::default() };
        let pipeline = Pipeline::new(Arc::<MemoryAudit>::default() as _)
            .with_redactor(redactor)
            .with_call_policy(ruled(&rules))
            .with_approver(ScriptedApprover::replying(Some(ApprovalReply::Yes)));
        let view = View::new(registry.snapshot(), Filter::default());
        let what = case.what;
        let delay = delay_beside(&pipeline, &view, case).await;
        if delay > canary::MAX_DELAY {
            late.push(format!("{what}: {delay:?}"));
        }
    }
    assert!(late.is_empty(), "{late:?}");
}
