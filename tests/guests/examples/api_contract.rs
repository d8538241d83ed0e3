//! The plugin of the contract suite (`tests/contract`) in Rust. The versions in other languages are
//! beside the suite and have the same tools, word for word.

use toolbay_sdk::context::Audience;
use toolbay_sdk::invoke::{self, Invocation};
use toolbay_sdk::kv::{self, Scope};
use toolbay_sdk::log::Level;
use toolbay_sdk::prelude::*;
use toolbay_sdk::process::Command;
use toolbay_sdk::types::{BlockAnnotations, BlockBody, ErrorCode, ResourceLink, Role};
use toolbay_sdk::{attachments, config, context, files, http, log, secrets};

/// The settings of the operator.
#[data]
pub struct Settings {
    /// Said first.
    greeting: Option<String>,
}

const BYTES: [u8; 3] = [1, 2, 255];

/// The sum of two numbers.
#[data]
pub struct Sum {
    /// It.
    sum: i64,
}

#[data]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    InputInvalid,
    NotAvailable,
    ExecutionFailed,
    StaleWrite,
}

#[data]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Fast,
    Slow,
}

/// Where it is.
#[data]
pub struct Location {
    /// Its name.
    name: String,
    zip: Option<i64>,
}

/// Tell each audience how far it is.
#[tool]
fn announce() {
    context::progress_to(Audience::Internal, "for the log", 10.0);
    context::progress("for the user", 50.0);
    context::progress_to(Audience::Dashboard, "for the operator", None);
}

/// Store a text for the caller, and say what the turn has.
#[tool(optional(attachments = ["read text/plain", "create text/plain"]))]
fn attach(name: String, text: String) -> Result<String> {
    let made = attachments::create(&name, "text/plain", &text)?;
    let names: Vec<_> = attachments::all().into_iter().map(|one| one.name).collect();
    Ok(format!("{} {} {}, {}", made.id, made.mime_type, made.size, names.join("+")))
}

/// Read a text of the caller.
#[tool(optional(attachments = "read text/plain"))]
fn attached(id: String) -> Result<String> {
    Ok(String::from_utf8_lossy(&attachments::read(&id)?).into_owned())
}

/// Return a block of each kind.
#[tool]
fn blocks() -> Result<Output> {
    let for_user = BlockAnnotations { audience: vec![Role::User], priority: Some(0.5), last_modified: None };
    let for_both = BlockAnnotations {
        audience: vec![Role::User, Role::Assistant],
        priority: None,
        last_modified: Some("2026-01-02T03:04:05Z".to_owned()),
    };
    let link = ResourceLink {
        uri: "https://a.example/x".to_owned(),
        name: "x".to_owned(),
        title: Some("X".to_owned()),
        description: Some("It.".to_owned()),
        mime_type: Some("text/html".to_owned()),
        size: Some(7),
    };
    let output = Output::new("text").text("more").annotate(for_user)?.image(BYTES.into(), "image/png");
    let output = output.audio(BYTES.into(), "audio/wav").annotate(for_both)?.block(BlockBody::Link(link));
    Ok(output.embedded("note://1", "größer", Some("text/plain")).embedded("note://2", BYTES.to_vec(), None))
}

/// Call other tools.
#[tool(optional(invoke = ["contract__echo", "contract__refuse"]))]
fn delegate(tool: String, text: String) -> Result<String> {
    let names: Vec<_> = invoke::tools().into_iter().map(|callable| callable.name).collect();
    let refused = json!({"code": "stale-write", "message": text, "subject": "a", "cost": 1});
    let answers = invoke::call_all([
        Invocation::new(tool, json!({"text": text})),
        Invocation::new("contract__refuse", refused),
        Invocation::new("contract__add", json!({"a": 1})),
    ])?;
    let said = answers.into_iter().map(|answer| match answer {
        Ok(invoked) => invoked.value,
        Err(error) => format!("{} {}", code_of(error.code()), error.message()),
    });
    Ok(format!("{}: {}", names.join("+"), said.collect::<Vec<_>>().join(", ")))
}

fn code_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InputInvalid => "input-invalid",
        ErrorCode::NotAvailable => "not-available",
        ErrorCode::ExecutionFailed => "execution-failed",
        ErrorCode::StaleWrite => "stale-write",
    }
}

/// Return a text as it is.
#[tool(title = "Echo", toolset = "contract", tags = ["a", "b"], read_only, idempotent, closed_world,
       max_result_chars = 50_000, timeout_ms = 20_000, meta = r#"{"example.org/hint": {"levels": [1, "zwei"]}}"#)]
fn echo(
    /// The text.
    text: String,
) -> String {
    text
}

/// Add two numbers.
#[tool(read_only)]
fn add(
    /// The first.
    a: i64,
    /// The second.
    #[arg(default = 1)]
    b: i64,
) -> Result<Json<Sum>> {
    let sum = a.checked_add(b).ok_or_else(|| Error::input("the sum is too large").at("/b"))?;
    Ok(Json(Sum { sum }))
}

/// Take arguments of every kind.
#[tool(read_only)]
#[allow(clippy::too_many_arguments, reason = "a tool's arguments")]
fn kinds(
    /// A text that is not long.
    #[arg(length(min = 1, max = 20))]
    word: String,
    /// Texts.
    words: Vec<String>,
    /// How.
    mode: Mode,
    place: Option<Location>,
    #[arg(default = 3, range(min = 1, max = 10))] count: i64,
    #[arg(default = 0.5)] ratio: f64,
    #[arg(default = false)] flag: bool,
) -> String {
    let mode = match mode {
        Mode::Fast => "fast",
        Mode::Slow => "slow",
    };
    let place = match place {
        Some(Location { name, zip: Some(zip) }) => format!("{name} {zip}"),
        Some(Location { name, zip: None }) => name,
        None => "nowhere".to_owned(),
    };
    let large = if ratio > 1.0 { "more" } else { "less" };
    format!("{word}, {} words, {mode}, {place}, {count}, {large}, {flag}", words.join("+"))
}

/// Say no.
#[tool]
fn refuse(
    /// How.
    code: Code,
    message: String,
    subject: Option<String>,
    cost: Option<f64>,
) -> Result<String> {
    let error = match code {
        Code::InputInvalid => Error::input(message),
        Code::NotAvailable => Error::not_available(message),
        Code::ExecutionFailed => Error::failed(message),
        Code::StaleWrite => Error::stale(message),
    };
    let error = match subject {
        Some(subject) => error.at(subject),
        None => error,
    };
    Err(match cost {
        Some(cost) => error.cost_usd(cost),
        None => error,
    })
}

/// Fail as code of others fails.
#[tool]
fn crash(message: String) -> Result<String> {
    Err(std::io::Error::other(message))?
}

/// Return nothing.
#[tool]
fn nothing() {}

/// Return all that a result can have.
#[tool]
fn rich() -> Result<Output> {
    Output::new("text")
        .structured(&json!([1, "zwei"]))?
        .image(BYTES.into(), "image/png")
        .link("https://a.example/x", "x")
        .cost_usd(0.25)
        .meta(&json!({"a": 1}))
}

/// Report each step.
#[tool]
fn steps(count: i64) -> String {
    for step in 1..=count {
        context::progress(&format!("step {step} of {count}"), 100.0 * step as f32 / count as f32);
    }
    "done".to_owned()
}

/// Annotate a block that there is not.
#[tool]
fn unannotated() -> Result<Output> {
    Output::new("text").annotate(BlockAnnotations {
        audience: vec![],
        priority: Some(1.0),
        last_modified: None,
    })
}

/// Wait until the caller gives up.
#[tool]
fn wait() -> Result<String> {
    context::progress("waiting", None);
    loop {
        context::check_cancelled()?;
    }
}

/// Compute for ever.
#[tool]
fn spin() -> String {
    loop {
        std::hint::black_box(0);
    }
}

/// Take memory for ever.
#[tool]
fn hog() -> String {
    let mut all = Vec::new();
    loop {
        all.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&all);
    }
}

/// Say where the call is.
#[tool]
fn facts() -> String {
    let turn = context::turn().map_or("none".to_owned(), |turn| turn.to_string());
    let session = context::session_id().unwrap_or_else(|| "none".to_owned());
    let scope: String = context::attribute("memory-scope").unwrap_or_else(|| "none".to_owned());
    format!("budget {}, session {session}, turn {turn}, scope {scope}", context::budget_chars())
}

/// Return a setting.
#[tool]
fn setting(key: String) -> Result<String> {
    config::require(&key)
}

/// Write a line for the operator.
#[tool]
fn note(text: String) {
    let letters = text.chars().count().to_string();
    log::write(Level::Warn, text, &[("kind", "note"), ("letters", &letters)]);
}

/// Read a file.
#[tool(fs_read = "$workspace/**", reason = "reads the file you name")]
fn read(path: String) -> Result<String> {
    files::read_text(&path)
}

/// Write a file.
#[tool(fs_read = "$workspace/**", fs_write = "$workspace/**")]
fn write(path: String, text: String, version: Option<String>) -> Result<String> {
    let stat = files::write(&path, text, version.as_deref())?;
    Ok(format!("{} bytes", stat.size))
}

/// List a folder.
#[tool(fs_read = "$workspace/**")]
fn list(path: String) -> Result<String> {
    let mut names: Vec<_> = files::read_dir(&path)?.into_iter().map(|entry| entry.name).collect();
    names.sort();
    Ok(names.join(","))
}

/// Remember a text, and say what was there.
#[tool(optional(kv = ["tool", "plugin"]))]
fn remember(key: String, text: String) -> Result<String> {
    let before = kv::get(Scope::Plugin, &key)?;
    kv::set(Scope::Plugin, &key, &text, None)?;
    let same = kv::replace(Scope::Plugin, &key, Some(text.as_bytes()), &text)?;
    let keys = kv::keys(Scope::Plugin, "", None, 10)?;
    let before = before.map_or("nothing".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(format!("{before}, {same}, {}", keys.join("+")))
}

/// Draw random numbers.
#[tool(optional(random))]
fn draw(count: i64) -> String {
    let drawn = (0..count).map(|_| wasip2::random::random::get_random_u64().to_string());
    drawn.collect::<Vec<_>>().join(" ")
}

/// Count up.
#[tool(optional(kv = "plugin"))]
fn count(key: String, by: i64) -> Result<String> {
    Ok(kv::increment(Scope::Plugin, &key, by)?.to_string())
}

/// Fetch a page.
#[tool(optional(net = ["http://*", "http://127.0.0.1:1"]))]
fn fetch(url: String) -> Result<String> {
    let response = http::get(url).header("x-test", "yes").send()?;
    Ok(format!("{} {}", response.status, response.text()))
}

/// Use a secret.
#[tool(optional(secret = "KEY"))]
fn secret(name: String) -> Result<String> {
    Ok(if secrets::get(&name)?.revealed { "the value" } else { "a placeholder" }.to_owned())
}

/// Run a program.
#[tool(optional(process = "echo *"))]
fn run(program: String, args: Vec<String>) -> Result<String> {
    let done = Command::new(program).args(args).run()?;
    Ok(format!("{}: {}", done.exit_code.unwrap_or(-1), done.stdout_text().trim_end()))
}

/// Be there only with a setting.
#[tool]
fn sometimes() -> String {
    "here".to_owned()
}

fn available(tool: &str) -> std::result::Result<(), String> {
    if tool == "sometimes" && config::keys().is_empty() {
        return Err("it needs a setting".to_owned());
    }
    Ok(())
}

/// Return this many lines.
#[tool]
fn lines(count: i64) -> String {
    (1..=count).map(|line| format!("line {line}\n")).collect()
}

/// Keeps the first line.
#[reducer("lines")]
fn first_line(input: &ToolResult, _ctx: &ReduceContext) -> Option<ToolResult> {
    let output = input.as_ref().ok()?;
    let (first, _rest) = output.value.split_once('\n')?;
    Some(Ok(Output { value: format!("{first}…"), ..output.clone() }))
}

plugin! {
    tools: [add, announce, attach, attached, blocks, count, crash, delegate, draw, echo, facts, fetch, hog, kinds, lines, list, note,
            nothing, read, refuse, remember, rich, run, secret, setting, sometimes, spin, steps, unannotated, wait, write],
    reducers: [first_line],
    available: available,
    config: Settings,
    offers: "../contract/plugin/offers.json",
    reusable: true,
}
