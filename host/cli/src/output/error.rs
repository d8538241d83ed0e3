//! Why a command ended without a result: `error:` and `help:` lines on stderr, or one JSON object on stdout.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::similar::{TypedName, did_you_mean};

use crate::output::findings::FileFindings;
use crate::output::{print_error, print_findings, print_help, print_json};

/// Longest name that a message repeats, in characters.
const MAX_NAME: usize = 100;

/// Whether `--json` stands on the command line. Read before the arguments are parsed, because it also covers their
/// errors.
static JSON: AtomicBool = AtomicBool::new(false);

/// Whether stdout already has a JSON value. An error after it goes to stderr, so that stdout stays one value.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Notes that a JSON value is printed.
pub(crate) fn record_json_output() {
    PRINTED.store(true, Ordering::Relaxed);
}

/// Chooses the form of errors by the words of the command line.
pub(crate) fn set_form(mut words: impl Iterator<Item = std::ffi::OsString>) {
    // What follows `--` belongs to another program.
    let is_json = words.by_ref().take_while(|word| word != "--").any(|word| word == "--json");
    JSON.store(is_json, Ordering::Relaxed);
}

/// Whether errors are printed as JSON.
pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed) && !PRINTED.load(Ordering::Relaxed)
}

/// The named thing does not exist, or the request cannot be done: exit code 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// Stable word for programs: `unknown_tool`.
    code: &'static str,
    message: String,
    help: Vec<String>,
}

impl CommandError {
    /// An error without help.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: Vec::new() }
    }

    /// The same error with one more `help:` line.
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// The error for a name that does not exist, with the most similar of those that do. `what` is the kind of the name:
    /// `plugin`, `MCP server`. Every command reports unknown names with it, so that they have one exit code.
    pub(crate) fn unknown<'k>(
        code: &'static str,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Self {
        let error = Self::new(code, format!("there is no {what} `{}`", one_line(name, MAX_NAME)));
        match did_you_mean(&TypedName::new(name).nearest(known)) {
            Some(suggestion) => error.with_help(suggestion),
            None => error,
        }
    }

    /// Its stable word for programs.
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// What happened.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Whether it says what to do.
    pub(crate) fn has_help(&self) -> bool {
        !self.help.is_empty()
    }

    /// The error with its help on one line, for programs that show no help of its own.
    pub(crate) fn to_line(&self) -> String {
        let parts: Vec<&str> = std::iter::once(&self.message).chain(&self.help).map(String::as_str).collect();
        parts.join("; ")
    }

    /// Prints the error.
    pub(crate) fn print(&self) {
        if is_json() {
            return print_json_error(&json!({"code": self.code, "message": self.message, "help": self.help}));
        }
        print_error(&self.message);
        self.help.iter().for_each(|help| print_help(help));
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

/// Prints the mistakes of a file.
pub(crate) fn print_file_error(of_file: &FileFindings) {
    if is_json() {
        let findings: Vec<Value> = of_file.json().collect();
        return print_json_error(
            &json!({"code": "invalid_file", "message": of_file.to_string(), "findings": findings}),
        );
    }
    print_findings(of_file);
}

/// Prints an error of the command line, its files or the host.
pub(crate) fn print_other_error(code: &'static str, message: &str) {
    CommandError::new(code, message).print();
}

fn print_json_error(error: &Value) {
    // A reader that closed the pipe is not an error.
    print_json(&json!({ "error": error })).ok();
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
            set_form(words.iter().map(std::ffi::OsString::from));
            assert_eq!(is_json(), expected, "{words:?}");
        }
    }
}
