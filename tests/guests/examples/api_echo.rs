//! Every kind of result, and every getter of the call context.

use guest::host::{config, context, log};
use guest::types::{
    Blob, BlockAnnotations, BlockBody, ContentBlock, EmbeddedResource, ResourceBody, ResourceLink, Role,
};
use guest::{
    Answer, Args, ErrorCode, ToolError, ToolOutput, fail, json, output, raw_tool, structured, text, tool,
};

guest::tools!(
    raw_tool("echo", text),
    tool("structured", |args| structured(args.all())).output(r#"{"type":"object"}"#),
    tool("meta", meta),
    tool("content", content),
    tool("error", error)
        .input(r#"{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}"#),
    tool("long", long),
    tool("untrusted", |args| text(args.text("text", ""))).untrusted(),
    tool("progress", progress),
    tool("ctx", ctx),
    tool("config", |_| structured(&settings())),
    tool("log", write_log),
);

/// `meta` and a cost.
fn meta(args: &Args) -> Answer {
    Ok(ToolOutput { meta: Some(args.all().to_string()), cost_usd: Some(0.25), ..output("meta") })
}

/// One block of each kind.
fn content(_: &Args) -> Answer {
    let annotations = BlockAnnotations {
        audience: vec![Role::User, Role::Assistant],
        priority: Some(0.5),
        last_modified: None,
    };
    let block = |body| ContentBlock { body, annotations: None };
    Ok(ToolOutput {
        content: vec![
            ContentBlock { body: BlockBody::Text("a block".into()), annotations: Some(annotations) },
            block(BlockBody::Image(Blob {
                data: vec![0x89, b'P', b'N', b'G'],
                mime_type: "image/png".into(),
            })),
            block(BlockBody::Audio(Blob {
                data: vec![b'R', b'I', b'F', b'F'],
                mime_type: "audio/wav".into(),
            })),
            block(BlockBody::Link(ResourceLink {
                uri: "https://example.com/a".into(),
                name: "a".into(),
                title: Some("A".into()),
                description: Some("A link.".into()),
                mime_type: Some("text/html".into()),
                size: Some(12),
            })),
            block(embedded("file:///a.txt", "text/plain", ResourceBody::Text("inside".into()))),
            block(embedded(
                "file:///b.bin",
                "application/octet-stream",
                ResourceBody::Blob(vec![0, 1, 2, 255]),
            )),
        ],
        ..output("content")
    })
}

fn embedded(uri: &str, mime_type: &str, body: ResourceBody) -> BlockBody {
    BlockBody::Embedded(EmbeddedResource { uri: uri.into(), mime_type: Some(mime_type.into()), body })
}

/// The error `code`, with `message`, about `subject`.
fn error(args: &Args) -> Answer {
    let code = match args.text("code", "") {
        "input-invalid" => ErrorCode::InputInvalid,
        "not-available" => ErrorCode::NotAvailable,
        "execution-failed" => ErrorCode::ExecutionFailed,
        "stale-write" => ErrorCode::StaleWrite,
        other => return fail(ErrorCode::InputInvalid, format!("no code `{other}`")),
    };
    Err(ToolError {
        code,
        message: args.text("message", "as asked").into(),
        subject: Some(args.text("subject", "/code").into()),
        cost_usd: Some(0.5),
    })
}

/// `n` characters: ASCII, or with `emoji` of four bytes each.
fn long(args: &Args) -> Answer {
    let characters = usize::try_from(args.number("n", 100_000)).unwrap_or(0);
    text(if args.flag("emoji") {
        "🦀".repeat(characters)
    } else {
        "abcdefghi\n".repeat(characters / 10 + 1)[..characters].to_owned()
    })
}

/// `n` events for `audience`, with the percentage.
fn progress(args: &Args) -> Answer {
    let audience = match args.text("audience", "user") {
        "internal" => context::Audience::Internal,
        "dashboard" => context::Audience::Dashboard,
        _ => context::Audience::User,
    };
    let events = args.number("n", 3);
    for event in 1..=events {
        let percent = event as f32 * 100.0 / events as f32;
        context::progress(&format!("step {event}"), Some(percent), audience);
    }
    text(format!("{events} events"))
}

/// All getters as JSON; `attribute` names the attribute to read.
fn ctx(args: &Args) -> Answer {
    structured(&json!({
        "cancelled": context::cancelled(),
        "budget_chars": context::budget_chars(),
        "remaining_ms": context::remaining_ms(),
        "dry_run": context::dry_run(),
        "call_id": context::call_id(),
        "session_id": context::session_id(),
        "session_key": context::session_key(),
        "platform": context::platform(),
        "working_dir": context::working_dir(),
        "agent_id": context::agent_id(),
        "personality_id": context::personality_id(),
        "team_id": context::team_id(),
        "turn": context::turn(),
        "message_count": context::message_count(),
        "attribute": context::attribute(args.text("attribute", "traceparent")),
    }))
}

/// Each setting of the operator as its JSON text.
fn settings() -> guest::Value {
    config::keys().into_iter().map(|key| (key.clone(), json!(config::get(&key)))).collect()
}

/// `n` lines with `message`, at each level in turn.
fn write_log(args: &Args) -> Answer {
    use log::Level::{Debug, Error, Info, Trace, Warn};
    let message = args.text("message", "line");
    for (line, level) in (0..args.number("n", 5)).zip([Trace, Debug, Info, Warn, Error].into_iter().cycle()) {
        log::write(level, message, &[("line".to_owned(), line.to_string())]);
    }
    text("logged")
}
