//! Native tools from Rust types: what a model sees of a function, and what its calls return.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use toolbay::core::call::CallContext;
use toolbay::core::registry::ToolEntry;
use toolbay::core::tool::content::{ErrorCode, ToolError, ToolOutput};
use toolbay::{CallResult, Filter, Host, Json, Policy, Rendered, Session, ToolCall, TurnContext};

/// The scale of a temperature.
#[toolbay::data]
#[serde(rename_all = "lowercase")]
enum Scale {
    Celsius,
    Fahrenheit,
}

/// The weather of a day.
#[toolbay::data]
struct Forecast {
    /// How warm it will be.
    degrees: f64,
    days: u32,
}

/// Forecasts the weather.
///
/// Use it when asked about tomorrow.
#[toolbay::tool(
    title = "Weather", toolset = "web", tags = ["a", "b"], search_hint = "rain", read_only, closed_world,
    max_result_chars = 500, timeout_ms = 2_000, cache_ms = 60_000, serial = "weather"
)]
async fn forecast(
    /// Where.
    #[arg(length(min = 1, max = 80), regex("^[A-Z]"))]
    place: String,
    /// How many days ahead.
    #[arg(default = 1, range(min = 1, max = 14))]
    days: u32,
    scale: Option<Scale>,
    #[arg(default = "metric")] r#type: String,
) -> Result<Json<Forecast>, ToolError> {
    match place.as_str() {
        "Atlantis" => {
            Err(ToolError::new(ErrorCode::InputInvalid, "there is no such place").with_subject("/place"))
        }
        _ if matches!(scale, Some(Scale::Fahrenheit)) || r#type != "metric" => {
            Ok(Json(Forecast { degrees: 70.0, days }))
        }
        _ => Ok(Json(Forecast { degrees: 21.0, days })),
    }
}

/// Names the call that it runs in.
#[toolbay::tool(name = "who-am-i", serial)]
async fn name_call(prefix: String, context: &CallContext) -> String {
    format!("{prefix}{}", context.call_id)
}

/// Parses a number.
#[toolbay::tool]
fn parse(text: String) -> Result<String, std::num::ParseIntError> {
    text.parse().map(|number: u8| number.to_string())
}

/// Lists the days.
#[toolbay::tool]
fn days() -> Rendered<Vec<&'static str>> {
    Rendered { text: "two days".to_owned(), data: vec!["Monday", "Tuesday"] }
}

/// A member of a team, with the members below.
#[toolbay::data]
struct Member {
    name: String,
    #[serde(default)]
    team: Vec<Self>,
}

/// Counts the people of a team.
#[toolbay::tool]
fn count_people(lead: Member) -> String {
    fn count(member: &Member) -> usize {
        member.team.iter().map(count).sum::<usize>() + 1
    }
    format!("{} under {}", count(&lead) - 1, lead.name)
}

/// A counter that all calls share.
#[derive(Default)]
struct Counter {
    total: AtomicU64,
}

#[toolbay::tools]
impl Counter {
    /// Adds to the counter.
    #[tool(idempotent)]
    async fn add(
        &self,
        /// What to add.
        #[arg(default = 1)]
        by: u64,
    ) -> String {
        (self.total.fetch_add(by, Ordering::SeqCst) + by).to_string()
    }

    /// Reads the counter.
    #[tool(name = "read_counter", read_only)]
    fn read(&self, context: &CallContext) -> ToolOutput {
        ToolOutput::text(format!("{}: {}", context.tool, self.get())).with_cost_usd(0.5)
    }

    fn get(&self) -> u64 {
        self.total.load(Ordering::SeqCst)
    }
}

fn host(tools: Vec<ToolEntry>) -> Host {
    let host = Host::builder(Policy::deny_all("/srv/agent".as_ref())).build().unwrap();
    host.register(tools).unwrap();
    host
}

async fn call(host: &Host, tool: &str, args: Value) -> CallResult {
    let calls = vec![ToolCall::new("1", tool, args.to_string())];
    host.call_all(&host.view(Filter::default()), calls, TurnContext::default()).await.remove(0)
}

async fn text(host: &Host, tool: &str, args: Value) -> String {
    match call(host, tool, args).await.result {
        Ok(output) => output.value,
        Err(error) => format!("{}: {error}", error.code().as_str()),
    }
}

#[test]
fn a_definition_comes_from_the_signature() {
    let entry = forecast::tool().unwrap();
    let def = &entry.def;
    assert_eq!((def.name.as_str(), def.title.as_deref()), ("forecast", Some("Weather")));
    assert_eq!(def.description, "Forecasts the weather.\n\nUse it when asked about tomorrow.");
    assert_eq!(
        *def.input_schema.value(),
        json!({
            "type": "object",
            "properties": {
                "place": {
                    "description": "Where.", "type": "string",
                    "minLength": 1, "maxLength": 80, "pattern": "^[A-Z]",
                },
                "days": {
                    "description": "How many days ahead.", "type": "integer",
                    "minimum": 1, "maximum": 14, "default": 1,
                },
                "scale": {
                    "description": "The scale of a temperature.",
                    "anyOf": [{"type": "string", "enum": ["celsius", "fahrenheit"]}, {"type": "null"}],
                },
                "type": {"type": "string", "default": "metric"},
            },
            "additionalProperties": false,
            "required": ["place"],
        })
    );
    assert_eq!(
        *def.output_schema.as_ref().unwrap().value(),
        json!({
            "description": "The weather of a day.", "type": "object",
            "properties": {
                "degrees": {"description": "How warm it will be.", "type": "number"},
                "days": {"type": "integer", "minimum": 0},
            },
            "required": ["degrees", "days"],
        })
    );
    let keywords = &def.keywords;
    assert_eq!(
        (keywords.toolset.as_deref(), &*keywords.tags),
        (Some("web"), &["a".to_owned(), "b".to_owned()][..])
    );
    assert_eq!(keywords.search_hint.as_deref(), Some("rain"));
    assert!(def.traits.read_only && def.traits.closed_world && !def.traits.idempotent);
    assert_eq!((def.max_result_chars, def.timeout), (Some(500), Some(Duration::from_secs(2))));
    assert_eq!(
        (entry.call.serial.as_deref(), entry.call.cache),
        (Some("weather"), Some(Duration::from_secs(60)))
    );
    assert_eq!(entry.call.result_chars, Some(500));
    assert_eq!(name_call::tool().unwrap().call.serial.as_deref(), Some("who-am-i"));
    let listed = days::tool().unwrap();
    assert_eq!(
        *listed.def.output_schema.as_ref().unwrap().value(),
        json!({
            "type": "object", "properties": {"result": {"type": "array", "items": {"type": "string"}}},
            "required": ["result"],
        })
    );
}

#[tokio::test]
async fn arguments_and_results_are_those_of_the_function() {
    let host = host(vec![
        forecast::tool().unwrap(),
        name_call::tool().unwrap(),
        parse::tool().unwrap(),
        days::tool().unwrap(),
        count_people::tool().unwrap(),
    ]);
    for (tool, args, expected) in [
        ("forecast", json!({"place": "Rome"}), r#"{"degrees":21.0,"days":1}"#),
        (
            "forecast",
            json!({"place": "Rome", "days": 2, "scale": "fahrenheit"}),
            r#"{"degrees":70.0,"days":2}"#,
        ),
        (
            "forecast",
            json!({"place": "Rome", "scale": null, "type": "imperial"}),
            r#"{"degrees":70.0,"days":1}"#,
        ),
        ("forecast", json!({"place": "Atlantis"}), "input_invalid: there is no such place"),
        ("who-am-i", json!({"prefix": "call "}), "call 1"),
        ("parse", json!({"text": "7"}), "7"),
        ("parse", json!({"text": "x"}), "execution_failed: invalid digit found in string"),
        ("days", json!({}), "two days"),
        (
            "count_people",
            json!({"lead": {"name": "Ada", "team": [{"name": "Bob", "team": []}]}}),
            "1 under Ada",
        ),
    ] {
        assert_eq!(text(&host, tool, args.clone()).await, expected, "{tool} {args}");
    }
    for args in [
        json!({}),
        json!({"place": "rome"}),
        json!({"place": "Rome", "days": 15}),
        json!({"place": "Rome", "x": 1}),
    ] {
        assert!(text(&host, "forecast", args.clone()).await.starts_with("input_invalid: "), "{args}");
    }
    let structured = call(&host, "days", json!({})).await.result.unwrap().structured.unwrap();
    assert_eq!(structured.get(), r#"{"result":["Monday","Tuesday"]}"#);
    // JSON Schema counts 2.0 as a whole number.
    let whole = text(&host, "forecast", json!({"place": "Rome", "days": 2.0})).await;
    assert!(whole.starts_with("input_invalid: invalid arguments: "), "{whole}");
}

#[tokio::test]
async fn the_tools_of_a_value_share_it_with_the_program() {
    let counter = Arc::new(Counter::default());
    let tools =
        Counter::tools(Arc::clone(&counter)).unwrap().with_namespace(&"counter".parse().unwrap()).unwrap();
    let host = host(tools.tools);
    assert_eq!(text(&host, "counter__add", json!({})).await, "1");
    assert_eq!(text(&host, "counter__add", json!({"by": 4})).await, "5");
    counter.total.store(7, Ordering::SeqCst);
    let read = call(&host, "counter__read_counter", json!({})).await;
    assert_eq!(read.cost_usd(), Some(0.5));
    assert_eq!(read.result.unwrap().value, "counter__read_counter: 7");
}

/// Tools with settings that the pipeline applies.
#[derive(Default)]
struct Settings {
    running: AtomicU64,
    runs: AtomicU64,
}

#[toolbay::tools]
impl Settings {
    /// Says how many other calls run.
    #[tool(serial)]
    async fn count_others(&self) -> String {
        let others = self.running.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        others.to_string()
    }

    /// Counts its runs.
    #[tool(cache_ms = 600_000)]
    fn count_runs(&self) -> String {
        (self.runs.fetch_add(1, Ordering::SeqCst) + 1).to_string()
    }

    /// Writes too much.
    #[tool(max_result_chars = 1000)]
    fn write_much(&self) -> String {
        "x".repeat(5000)
    }

    /// Never ends.
    #[tool(timeout_ms = 10)]
    async fn wait(&self) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn the_pipeline_applies_the_options() {
    let host = host(Settings::tools(Arc::default()).unwrap().tools);
    let view = host.view(Filter::default());
    let session = Arc::new(Session::with_random_key());
    let turn = TurnContext { session, ..TurnContext::default() };
    let calls = (0..5).map(|n| ToolCall::new(n.to_string(), "count_others", "{}")).collect();
    let results = host.call_all(&view, calls, turn.clone()).await;
    assert!(results.iter().all(|done| done.result.as_ref().unwrap().value == "0"), "{results:?}");
    for _ in 0..2 {
        let calls = vec![ToolCall::new("1", "count_runs", "{}")];
        let done = host.call_all(&view, calls, turn.clone()).await.remove(0);
        assert_eq!(done.result.unwrap().value, "1", "the second result is the first one");
    }
    assert_eq!(call(&host, "write_much", json!({})).await.shaping.cut_from_chars, Some(5000));
    let late = text(&host, "wait", json!({})).await;
    assert_eq!(late, "execution_failed: the native tool exceeded its timeout of 10ms");
}
