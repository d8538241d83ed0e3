//! The terminal form of every command: tables and colour on a terminal, plain lines in a pipe.
//!
//! stdout carries the answer, stderr everything else: `error:`, `warning:`, `note:` and `help:` lines, prompts and
//! progress. A guest's result goes to a pipe byte for byte. On a terminal its control characters are escaped: a result
//! must not move the cursor, set the title or hide text.

pub(crate) mod error;
pub(crate) mod findings;
pub(crate) mod format;
pub(crate) mod progress;
pub(crate) mod stderr;
pub(crate) mod table;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::Stdio;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolbay_core::call::invoke::Failure;
use toolbay_core::pipeline::{self, CallResult};
use toolbay_core::tool::content::{BlockBody, ContentBlock, ResourceBody, ToolOutput};
use toolbay_policy::hidden_chars::{escape_hidden, escape_hidden_json};

pub(crate) use error::{CommandError, CommandStatus, host_failure, run_blocking};
use findings::FileFindings;
pub(crate) use format::count_noun;
pub(crate) use table::{Cell, TextTable};

/// Names.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default().bold();
/// Headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// Details.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Success.
pub(crate) const SUCCESS: Style = AnsiColor::Green.on_default();
/// Warnings.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Failures.
pub(crate) const FAILURE: Style = AnsiColor::Red.on_default().bold();

/// The form of messages and of the log on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object for each line: `timestamp`, `level`, `message`, `target` and further fields.
    Json,
}

/// How a command prints: a value that is made from the command line and passed on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Printer {
    /// The result on stdout is one JSON value, or else the error is.
    json: bool,
    /// The form of messages on stderr.
    format: LogFormat,
    /// Messages have a time, and nothing waits until they are written.
    is_server: bool,
}

impl Printer {
    /// The printer of the parsed command line.
    pub(crate) fn new(json: bool, format: LogFormat) -> Self {
        Self { json, format, is_server: false }
    }

    /// The printer before the command line is parsed: its own errors are JSON, too.
    pub(crate) fn from_words(words: impl Iterator<Item = OsString>) -> Self {
        // What follows `--` belongs to another program.
        let json = words.take_while(|word| word != "--").any(|word| word == "--json");
        Self::new(json, LogFormat::Text)
    }

    /// The same printer for a server.
    pub(crate) fn for_server(self) -> Self {
        Self { is_server: true, ..self }
    }

    /// The same printer once stdout has its JSON value: errors go to stderr.
    pub(crate) fn after_result(self) -> Self {
        Self { json: false, ..self }
    }

    /// Whether the result is JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Prints an `error:` line on stderr.
    pub(crate) fn error(self, text: &str) {
        self.message("error", FAILURE, text);
    }

    /// Prints a `warning:` line on stderr: something an operator should know that does not stop the command.
    pub(crate) fn warning(self, text: &str) {
        self.message("warning", WARNING, text);
    }

    /// Prints up to `most` warnings, and one more that `describe_rest` makes of the number of the others.
    pub(crate) fn warnings(
        self,
        texts: &[impl AsRef<str>],
        most: usize,
        describe_rest: impl FnOnce(usize) -> String,
    ) {
        texts.iter().take(most).for_each(|text| self.warning(text.as_ref()));
        if texts.len() > most {
            self.warning(&describe_rest(texts.len() - most));
        }
    }

    /// Prints a `help:` line on stderr: what to do about the error above it, or after the answer.
    pub(crate) fn help(self, text: &str) {
        self.message("help", SUCCESS, text);
    }

    /// Prints a `note:` line on stderr.
    pub(crate) fn note(self, text: &str) {
        self.message("note", NAME, text);
    }

    /// Prints the result of a command: as JSON, or else as a `note:` line. Returns the status of a command that succeeded.
    pub(crate) fn report(self, result: &impl Serialize, text: &str) -> std::io::Result<CommandStatus> {
        if self.json {
            return print_json(result);
        }
        self.note(text);
        Ok(CommandStatus::Success)
    }

    /// Prints the line that ends a table: a summary and the next command. In a pipe it is a note on stderr, so that
    /// stdout holds rows only.
    pub(crate) fn footer(self, text: &str) -> std::io::Result<()> {
        if stdout_is_terminal() {
            return writeln!(stdout(), "{}", escape_hidden(text));
        }
        self.note(text);
        Ok(())
    }

    /// Prints the mistakes of a file on stderr.
    pub(crate) fn findings(self, of_file: &FileFindings) {
        self.line(&match self.format {
            LogFormat::Json => stderr::json_line("error", of_file.render(false).trim_end()),
            LogFormat::Text => style_for_stderr(of_file.render(stderr_is_terminal()).trim_end()),
        });
    }

    /// Writes panics as lines of the log, with a backtrace if the environment asks for one.
    pub(crate) fn report_panics(self) {
        stderr::report_panics(self.format);
    }

    fn message(self, kind: &str, style: Style, text: &str) {
        let text = escape_hidden(text);
        self.line(&match self.format {
            LogFormat::Json => stderr::json_line(kind, &text),
            LogFormat::Text => style_for_stderr(&format!("{style}{kind}:{style:#} {text}")),
        });
    }

    /// Writes one or more lines as they are.
    fn line(self, text: &str) {
        stderr::write_message(text, self.format, self.is_server);
    }
}

pub(crate) fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

pub(crate) fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// The columns of the terminal on stdout; `None`: stdout is not a terminal.
pub(crate) fn stdout_width() -> Option<usize> {
    width(&std::io::stdout())
}

/// The columns of the terminal on stderr; `None`: stderr is not a terminal.
pub(crate) fn stderr_width() -> Option<usize> {
    width(&std::io::stderr())
}

fn width(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    /// The width of a terminal that does not know its own.
    const DEFAULT: usize = 80;
    let columns = |size: rustix::termios::Winsize| usize::from(size.ws_col);
    let known = || rustix::termios::tcgetwinsize(stream).ok().map(columns).filter(|columns| *columns > 0);
    stream.is_terminal().then(|| known().unwrap_or(DEFAULT))
}

/// stderr for the stdout of a program that a command starts: its output is not the command's answer.
pub(crate) fn stderr_for_program() -> std::io::Result<Stdio> {
    Ok(std::io::stderr().as_fd().try_clone_to_owned()?.into())
}

/// Locks stdout. Colours vanish when it is not a terminal or the environment asks for none.
pub(crate) fn stdout() -> AutoStream<std::io::StdoutLock<'static>> {
    anstream::stdout().lock()
}

/// Prints the result of a command as JSON for people and programs. Control and invisible characters are escaped. Returns the
/// status of a command that succeeded.
pub(crate) fn print_json(value: &impl Serialize) -> std::io::Result<CommandStatus> {
    writeln!(std::io::stdout().lock(), "{}", escape_hidden_json(&serde_json::to_string_pretty(value)?))?;
    Ok(CommandStatus::Success)
}

/// Writes a value as JSON on one line, escaped as by [`print_json`].
pub(crate) fn write_json_line(out: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    writeln!(out, "{}", escape_hidden_json(&serde_json::to_string(value)?))
}

/// Prepares a text for stderr: colours vanish when stderr is not a terminal or the environment asks for none.
pub(crate) fn style_for_stderr(text: &str) -> String {
    match AutoStream::choice(&std::io::stderr()) {
        ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => text.to_owned(),
    }
}

/// Asks on the terminal. Returns the reply in lower case; it is empty at the end of the input.
pub(crate) fn read_reply(question: &str) -> std::io::Result<String> {
    stderr::write_prompt(&style_for_stderr(&format!("{question} ")));
    let mut reply = String::new();
    std::io::stdin().read_line(&mut reply)?;
    Ok(reply.trim().to_ascii_lowercase())
}

/// Prints the output of a call, for a person or for the next command in a pipe.
pub(crate) fn print_tool_output(output: &ToolOutput) -> std::io::Result<()> {
    let blocks = output.content.iter().map(describe_block);
    if stdout_is_terminal() {
        let mut out = stdout();
        writeln!(out, "{}", escape_hidden(&output.value))?;
        for block in blocks {
            writeln!(out, "{DIM}{}{DIM:#}", escape_hidden(&block))?;
        }
        return Ok(());
    }
    // Not through the colour filter, which would change the bytes of the result.
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
    let blocks = delivered.content();
    let optional = [
        ("cut_from_chars", shaping.cut_from_chars.map(|total| json!(total))),
        ("kept", (!shaping.saved.is_empty()).then(|| kept.collect())),
        ("through", delivered.through.as_ref().map(|through| json!(through))),
        ("call_sha256", delivered.call_sha256.map(|sha256| json!(sha256))),
        ("cached_ms", delivered.cached.map(|age| json!(age.as_millis()))),
        ("source", delivered.source.as_ref().map(|source| json!(source))),
        ("hints", (!hints.lines.is_empty()).then(|| json!(hints.lines))),
        ("value", output.map(|output| json!(output.value))),
        ("structured", delivered.structured().map(|raw| json!(raw))),
        ("content", (!blocks.is_empty()).then(|| blocks.iter().map(describe_block).collect())),
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

/// Inserts a member into a JSON object.
pub(crate) fn insert_member(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(members) = object.as_object_mut() {
        members.insert(key.to_owned(), value.into());
    }
}

fn error_json(failure: &Failure) -> Value {
    let code = failure.code();
    match failure {
        Failure::Refused(error) => {
            let mut shown = json!({"code": code, "message": error.message, "subject": error.subject, "cost_usd": error.cost_usd});
            if let Some(reason) = error.refusal {
                insert_member(&mut shown, "refusal", json!(reason));
            }
            shown
        }
        Failure::Fault(fault) => {
            json!({"code": code, "fault": fault.kind, "message": fault.message, "limit": fault.limit,
                "retry_after_ms": fault.retry_after_ms})
        }
        Failure::Host(message) => json!({"code": code, "host": true, "message": message}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_words_choose_the_form() {
        for (words, expected) in [
            (&["list", "--json"][..], true),
            (&["list"], false),
            (&["mcp", "add", "x", "--", "p", "--json"], false),
        ] {
            let printer = Printer::from_words(words.iter().map(OsString::from));
            assert_eq!(printer.is_json(), expected, "{words:?}");
        }
    }
}
