//! What people read: tables and colour on a terminal, plain text otherwise.
//!
//! A guest's text goes to a pipe as it is, but on a terminal its control characters are escaped: a result must not
//! move the cursor, set the title or hide what it says.

pub(crate) mod findings;
pub(crate) mod progress;
pub(crate) mod stderr;

use std::io::{IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolbay_core::call::invoke::Failure;
use toolbay_core::pipeline::{self, CallResult};
use toolbay_core::tool::content::{BlockBody, ContentBlock, ResourceBody};
use toolbay_policy::text::{visible, visible_json};

use crate::output::findings::FileFindings;

/// Names.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default().bold();
/// Headings.
pub(crate) const HEAD: Style = Style::new().bold();
/// What is less important.
pub(crate) const DIM: Style = Style::new().dimmed();
/// What is fine.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What may not be as it was meant.
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default().bold();
/// What is not.
pub(crate) const WRONG: Style = AnsiColor::Red.on_default().bold();

pub(crate) fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

pub(crate) fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Our stdout; colours vanish when it is not a terminal or the environment asks for none.
pub(crate) fn out() -> AutoStream<std::io::StdoutLock<'static>> {
    anstream::stdout().lock()
}

/// Prints a value as JSON for people and programs. What a terminal would obey or nobody would see is escaped.
pub(crate) fn print_json(value: &impl Serialize) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{}", visible_json(&serde_json::to_string_pretty(value)?))
}

/// Writes a value as JSON on one line, escaped as by [`print_json`].
pub(crate) fn json_line(out: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    writeln!(out, "{}", visible_json(&serde_json::to_string(value)?))
}

/// Says on stderr what is wrong. That stderr may be closed is no reason to fail.
pub(crate) fn complain(text: &str) {
    say("error", WRONG, text);
}

/// Says on stderr what an operator should know, and what does not stop the command.
pub(crate) fn warn(text: &str) {
    say("warning", ODD, text);
}

/// Shows on stderr what is wrong with a file.
pub(crate) fn diagnostics(of_file: &FileFindings) {
    let shown = of_file.render(stderr_is_terminal());
    stderr::message(&styled(shown.trim_end()));
}

/// Says on stderr what goes on.
pub(crate) fn note(text: &str) {
    say("note", NAME, text);
}

fn say(prefix: &str, style: Style, text: &str) {
    stderr::message(&styled(&format!("{style}{prefix}:{style:#} {}", visible(text))));
}

/// A text for stderr; its colours vanish as those of [`out`] do.
pub(crate) fn styled(text: &str) -> String {
    match AutoStream::choice(&std::io::stderr()) {
        ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => text.to_owned(),
    }
}

/// Prints a result for a person, or for the next command in a pipe.
pub(crate) fn result(delivered: &CallResult) -> std::io::Result<()> {
    match &delivered.result {
        Ok(output) => {
            let blocks = output.content.iter().map(describe_block);
            if stdout_is_terminal() {
                let mut out = out();
                writeln!(out, "{}", visible(&output.value))?;
                for block in blocks {
                    writeln!(out, "{DIM}{}{DIM:#}", visible(&block))?;
                }
                return Ok(());
            }
            // Raw, not through the colour filter: bytes of a result are not ours to change.
            let mut out = std::io::stdout().lock();
            out.write_all(output.value.as_bytes())?;
            if !output.value.ends_with('\n') {
                out.write_all(b"\n")?;
            }
            for block in blocks {
                writeln!(out, "{block}")?;
            }
            out.flush()
        }
        Err(failure) => {
            let said = failure.to_string();
            // On stderr nobody takes it for anything but words.
            let said = delivered.shaping.mark.as_ref().map_or(said.as_str(), |mark| mark.inside(&said));
            complain(&format!("{said} ({})", pipeline::outcome(&delivered.result)));
            Ok(())
        }
    }
}

/// Says on stderr what would allow what a call was refused.
pub(crate) fn hints(delivered: &CallResult) {
    for hint in &delivered.hints.lines {
        say("help", GOOD, hint);
    }
}

fn describe_block(block: &ContentBlock) -> String {
    match &block.body {
        BlockBody::Text(text) => text.clone(),
        BlockBody::Image(blob) => format!("[Image: {}, {} bytes]", blob.mime_type, blob.data.len()),
        BlockBody::Audio(blob) => format!("[Audio: {}, {} bytes]", blob.mime_type, blob.data.len()),
        BlockBody::Link(link) => format!("[Link: {} <{}>]", link.name, link.uri),
        BlockBody::Embedded(resource) => match &resource.body {
            ResourceBody::Text(text) => text.clone(),
            ResourceBody::Blob(data) => format!("[Resource: {}, {} bytes]", resource.uri, data.len()),
        },
    }
}

/// The full result as one JSON object.
pub(crate) fn result_json(delivered: &CallResult) -> Value {
    let CallResult { result, shaping, hints, .. } = delivered;
    let output = result.as_ref().ok();
    let raw = |raw: Option<&Box<RawValue>>| raw.map(|raw| json!(raw));
    let kept = shaping.saved.iter().map(|kept| json!({"id": kept.id.as_str(), "bytes": kept.bytes}));
    let blocks = output.filter(|output| !output.content.is_empty());
    let optional = [
        ("cut_from_chars", shaping.cut_from_chars.map(|total| json!(total))),
        ("kept", (!shaping.saved.is_empty()).then(|| kept.collect())),
        ("through", delivered.through.as_ref().map(|through| json!(through))),
        ("call_sha256", delivered.call_sha256.map(|sha256| json!(sha256))),
        ("cached_ms", delivered.cached.map(|age| json!(age.as_millis()))),
        ("source", delivered.source.as_ref().map(|source| json!(source))),
        ("hints", (!hints.lines.is_empty()).then(|| json!(hints.lines))),
        ("value", output.map(|output| json!(output.value))),
        ("structured", raw(output.and_then(|output| output.structured.as_ref()))),
        ("content", blocks.map(|output| output.content.iter().map(describe_block).collect())),
        ("cost_usd", output.and_then(|output| output.cost_usd).map(|cost| json!(cost))),
        ("meta", raw(output.and_then(|output| output.meta.as_ref()))),
        ("error", result.as_ref().err().map(error_json)),
    ];
    let mut object = json!({
        "id": delivered.call_id,
        "tool": delivered.tool,
        "ok": result.is_ok(),
        "outcome": pipeline::outcome(result),
        "usage": delivered.usage,
        "duration_us": delivered.duration_us,
    });
    if let Some(members) = object.as_object_mut() {
        let present = optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        members.extend(present);
    }
    object
}

fn error_json(failure: &Failure) -> Value {
    let code = failure.code();
    match failure {
        Failure::Refused(error) => {
            json!({"code": code, "message": error.message, "subject": error.subject, "cost_usd": error.cost_usd})
        }
        Failure::Fault(fault) => {
            json!({"code": code, "fault": fault.kind, "message": fault.message, "limit": fault.limit,
                "retry_after_ms": fault.retry_after_ms})
        }
        Failure::Host(message) => json!({"code": code, "host": true, "message": message}),
    }
}
