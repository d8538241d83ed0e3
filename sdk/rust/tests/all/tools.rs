//! What `#[tool]` makes of a function: its definition, and what a call with JSON does.

use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json::{self, Value};
use toolbay_sdk::testing::{FakeHost, call, describe};
use toolbay_sdk::types::{ErrorCode, ToolTraits};
use toolbay_sdk::{config, context, files, log};

/// Temperature scale.
#[data]
#[derive(Debug, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Degrees Celsius.
    Celsius,
    /// Degrees Fahrenheit.
    Fahrenheit,
}

/// Where it is.
#[data]
#[derive(Debug, PartialEq)]
pub struct Location {
    /// Its name.
    name: String,
    zip: Option<u32>,
}

/// How warm it will be.
#[data]
#[derive(Debug)]
pub struct Forecast {
    degrees: f64,
}

/// Forecast the weather.
///
/// Use it when asked about tomorrow.
#[tool(
    name = "weather-forecast", title = "Weather", toolset = "web", tags = ["a", "b"],
    read_only, idempotent, untrusted_output,
    net = ["GET https://a.example", "GET https://b.example"], reason = "asks both services",
    secret = "WEATHER_KEY", optional(kv = "session", reason = "remembers the place"),
    max_result_chars = 500, timeout_ms = 2_000,
)]
pub fn forecast(
    /// Where.
    #[arg(length(min = 1, max = 80), regex("^[A-Z]"))]
    place: String,
    /// How many days ahead.
    #[arg(default = 1, range(min = 1, max = 14))]
    days: u32,
    scale: Option<Scale>,
    #[arg(default = "metric")] r#type: String,
    at: Option<Location>,
) -> Result<Json<Forecast>> {
    if place == "Atlantis" {
        return Err(Error::input("there is no such place").at("/place"));
    }
    let far = at.is_some() || scale == Some(Scale::Fahrenheit) || r#type != "metric";
    Ok(Json(Forecast { degrees: if far { 0.5 } else { f64::from(days) } }))
}

/// Do nothing.
#[tool]
pub fn nothing() {}

/// Read a number.
#[tool]
pub fn number(text: String) -> Result<Json<i64>> {
    Ok(Json(text.parse()?))
}

/// List lines.
#[tool]
pub fn list() -> Rendered<Vec<String>> {
    Rendered { text: "a".to_owned(), data: vec!["a".to_owned()] }
}

/// Maybe a forecast.
#[tool]
pub fn maybe(there: bool) -> Json<Option<Forecast>> {
    Json(there.then_some(Forecast { degrees: 1.0 }))
}

/// Everything there is.
#[tool]
pub fn rich() -> Result<Output> {
    Ok(Output::new("see")
        .structured(&json!([1]))?
        .image(vec![1], "image/png")
        .link("attachment:1", "x")
        .cost_usd(0.25))
}

fn schema(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[test]
fn the_definition_says_what_the_attribute_says() {
    let definition = describe::<forecast>();
    assert_eq!(definition.name, "weather-forecast");
    assert_eq!(definition.title.as_deref(), Some("Weather"));
    assert_eq!(definition.description, "Forecast the weather.\n\nUse it when asked about tomorrow.");
    assert_eq!(definition.toolset.as_deref(), Some("web"));
    assert_eq!(definition.tags, ["a", "b"]);
    let traits = ToolTraits::READ_ONLY | ToolTraits::IDEMPOTENT | ToolTraits::UNTRUSTED_OUTPUT;
    assert_eq!(definition.traits, traits);
    assert_eq!((definition.max_result_chars, definition.timeout_ms), (Some(500), Some(2_000)));
    let capabilities: Vec<_> = definition
        .capabilities
        .iter()
        .map(|asked| (asked.kind.as_str(), asked.target.as_str(), asked.optional, asked.reason.as_deref()))
        .collect();
    let expected = [
        ("net", "GET https://a.example", false, Some("asks both services")),
        ("net", "GET https://b.example", false, Some("asks both services")),
        ("secret", "WEATHER_KEY", false, None),
        ("kv", "session", true, Some("remembers the place")),
    ];
    assert_eq!(capabilities, expected);
}

#[test]
fn without_options_nothing_is_claimed() {
    let definition = describe::<nothing>();
    assert_eq!((definition.name.as_str(), definition.description.as_str()), ("nothing", "Do nothing."));
    assert!(definition.traits.is_empty() && definition.capabilities.is_empty() && definition.tags.is_empty());
    assert_eq!((definition.title, definition.toolset, definition.output_schema), (None, None, None));
    assert_eq!(definition.input_schema, r#"{"type":"object","additionalProperties":false,"properties":{}}"#);
}

#[test]
fn the_input_schema_is_exact_and_in_the_order_of_the_arguments() {
    let text = describe::<forecast>().input_schema;
    let expected = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "place": {"type": "string", "description": "Where.", "minLength": 1, "maxLength": 80, "pattern": "^[A-Z]"},
            "days": {"type": "integer", "description": "How many days ahead.", "default": 1, "minimum": 1, "maximum": 14},
            "scale": {"anyOf": [
                {"description": "Temperature scale.", "oneOf": [
                    {"type": "string", "const": "celsius", "description": "Degrees Celsius."},
                    {"type": "string", "const": "fahrenheit", "description": "Degrees Fahrenheit."},
                ]},
                {"type": "null"},
            ]},
            "type": {"type": "string", "default": "metric"},
            "at": {
                "type": ["object", "null"],
                "description": "Where it is.",
                "properties": {
                    "name": {"type": "string", "description": "Its name."},
                    "zip": {"type": ["integer", "null"], "minimum": 0},
                },
                "required": ["name"],
            },
        },
        "required": ["place"],
    });
    assert_eq!(schema(&text), expected, "{text}");
    let position = |name: &str| text.find(&format!("\"{name}\":{{")).unwrap();
    assert!(
        position("place") < position("days")
            && position("days") < position("type")
            && position("type") < position("at")
    );
}

#[test]
fn the_output_schema_follows_the_value() {
    let of = |text: Option<String>| schema(&text.unwrap());
    let object = json!({"type": "object", "description": "How warm it will be.", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]});
    assert_eq!(of(describe::<forecast>().output_schema), object);

    let wrapped =
        |inner: Value| json!({"type": "object", "properties": {"result": inner}, "required": ["result"]});
    assert_eq!(of(describe::<number>().output_schema), wrapped(json!({"type": "integer"})));
    let strings = json!({"type": "array", "items": {"type": "string"}});
    assert_eq!(of(describe::<list>().output_schema), wrapped(strings));
    let mut either = object;
    either["type"] = json!(["object", "null"]);
    let both = json!({"type": "object", "anyOf": [either, wrapped(either.clone())]});
    assert_eq!(of(describe::<maybe>().output_schema), both);
    assert_eq!(describe::<rich>().output_schema, None);
}

#[test]
fn defaults_fill_in_what_is_left_out() {
    assert_eq!(call::<forecast>(json!({"place": "Bern"})).unwrap().value, r#"{"degrees":1.0}"#);
    let args = json!({"place": "Bern", "days": 3, "scale": null, "type": "metric"});
    assert_eq!(call::<forecast>(args).unwrap().value, r#"{"degrees":3.0}"#);
    let args = json!({"place": "Bern", "scale": "fahrenheit", "at": {"name": "x", "zip": 1}});
    assert_eq!(call::<forecast>(args).unwrap().structured.as_deref(), Some(r#"{"degrees":0.5}"#));
}

#[test]
fn what_the_types_forbid_is_invalid_input() {
    let cases = [
        (json!({}), "missing field `place`"),
        (json!({"place": "Bern", "day": 1}), "unknown field `day`"),
        (json!({"place": "Bern", "days": -1}), "invalid value"),
        (json!({"place": "Bern", "scale": "kelvin"}), "unknown variant `kelvin`"),
    ];
    for (args, expected) in cases {
        let error = call::<forecast>(args).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InputInvalid);
        assert!(error.message().contains(expected), "{error}");
    }
}

#[test]
fn errors_keep_their_code_and_subject() {
    let error = call::<forecast>(json!({"place": "Atlantis"})).unwrap_err();
    assert_eq!((error.code(), error.subject()), (ErrorCode::InputInvalid, Some("/place")));
    let error = call::<number>(json!({"text": "x"})).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (ErrorCode::ExecutionFailed, "invalid digit found in string")
    );
}

#[test]
fn every_return_type_becomes_an_output() {
    assert_eq!(call::<nothing>(json!({})).unwrap(), Output::new(""));
    let output = call::<number>(json!({"text": "7"})).unwrap();
    assert_eq!((output.value.as_str(), output.structured.as_deref()), ("7", Some(r#"{"result":7}"#)));
    let output = call::<list>(json!({})).unwrap();
    assert_eq!((output.value.as_str(), output.structured.as_deref()), ("a", Some(r#"{"result":["a"]}"#)));
    let output = call::<maybe>(json!({"there": false})).unwrap();
    assert_eq!(output.structured.as_deref(), Some(r#"{"result":null}"#));
    let output = call::<rich>(json!({})).unwrap();
    assert_eq!((output.content.len(), output.cost_usd), (2, Some(0.25)));
}

/// Talks to the host in every way a fake plays.
#[tool(fs_read = "**")]
fn talkative(path: String) -> Result<String> {
    context::progress("starting", 10.0);
    log::write(log::Level::Info, "reading", &[("path", &path)]);
    let greeting: String = config::require("greeting")?;
    context::check_cancelled()?;
    Ok(format!("{greeting} {}", files::read_text(&path)?))
}

#[test]
fn a_fake_host_plays_and_remembers() {
    let fake = FakeHost::new().file("a", "world").config("greeting", "hello");
    assert_eq!(fake.run(|| talkative("a".to_owned())).unwrap(), "hello world");
    assert_eq!((fake.progress()[0].message.as_str(), fake.progress()[0].percent), ("starting", Some(10.0)));
    assert_eq!(fake.log()[0].fields, [("path".to_owned(), "a".to_owned())]);

    let error = fake.clone().cancelled_after(0).run(|| talkative("a".to_owned())).unwrap_err();
    assert_eq!(error.subject(), Some("cancelled"));
}

#[test]
fn without_a_fake_nothing_is_granted() {
    assert_eq!(talkative("a".to_owned()).unwrap_err().subject(), Some("config"));
    assert_eq!(files::read("a").unwrap_err().code(), ErrorCode::NotAvailable);
    assert_eq!(toolbay_sdk::secrets::get("a").unwrap_err().code(), ErrorCode::NotAvailable);
    assert_eq!(toolbay_sdk::http::get("https://a.example").send().unwrap_err().subject(), Some("denied"));
    let command = toolbay_sdk::process::Command::new("ls").arg("-l");
    assert_eq!(command.run().unwrap_err().subject(), Some("denied"));
}

#[test]
fn file_errors_are_tool_errors() {
    let fake = FakeHost::new().file("a", "1").file("b/c", "2").deny("b");
    fake.run(|| {
        let cases = [
            (files::read("b/c").unwrap_err(), ErrorCode::NotAvailable, Some("denied")),
            (files::read("none").unwrap_err(), ErrorCode::ExecutionFailed, Some("not-found")),
            (files::write("a", "x", Some("v0")).unwrap_err(), ErrorCode::StaleWrite, Some("a")),
            (files::read_dir("a").unwrap_err(), ErrorCode::ExecutionFailed, None),
        ];
        for (error, code, subject) in cases {
            assert_eq!((error.code(), error.subject()), (code, subject), "{error}");
        }
    });
}
