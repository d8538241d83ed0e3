//! One use of every interface of the contract. `tests/data/released` keeps the component of each released version, which
//! must load and answer in every later host.

use guest::host::http_client::{HttpRequest, fetch};
use guest::host::process::{self, Command};
use guest::host::{attachments, config, context, files, kv, log, secrets};
use guest::{Answer, Args, ToolOutput, json, structured, tool};

guest::tools!(
    tool("everything", everything)
        .input(r#"{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}"#)
        .output(r#"{"type":"object"}"#)
        .needs(&[("kv", "plugin", false), ("fs-read", "**", true), ("net", "https://example.com", true)]),
    tool("fail", |_| guest::fail(guest::ErrorCode::StaleWrite, "as asked")),
);

guest::reducers!(["fail"], |input, context| {
    let output = ToolOutput {
        value: format!("{} of turn {}", input.is_ok(), context.turn_count),
        ..guest::output("")
    };
    Some(Ok(output))
});

guest::availability!(|tool| if tool == "gone" { Err("it is gone".to_owned()) } else { Ok(()) });

/// The result of each interface.
fn everything(args: &Args) -> Answer {
    log::write(log::Level::Info, "at work", &[("key".to_owned(), args.text("key", "").to_owned())]);
    context::progress("at work", Some(50.0), context::Audience::User);
    let count = kv::increment(kv::Scope::Plugin, args.text("key", ""), 1);
    let request = HttpRequest {
        method: "GET".to_owned(),
        url: "https://example.com/".to_owned(),
        headers: Vec::new(),
        body: None,
        timeout_ms: Some(1000),
        max_response_bytes: Some(1000),
    };
    let command = Command {
        program: "true".to_owned(),
        args: Vec::new(),
        cwd: None,
        env: Vec::new(),
        stdin: None,
        timeout_ms: None,
        max_output_bytes: None,
    };
    structured(&json!({
        "call": context::call_id(),
        "dry_run": context::dry_run(),
        "setting": config::get("setting"),
        "count": count.ok(),
        "secret": secrets::get("KEY").is_ok(),
        "http": fetch(&request).is_ok(),
        "file": files::read("note", 0, None).ok().map(|file| String::from_utf8_lossy(&file.data).into_owned()),
        "program": process::run(&command).is_ok(),
        "attachments": attachments::all().len(),
    }))
}
