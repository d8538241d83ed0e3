//! Reduces the output of a terminal by the command.
//!
//! | run | kept | dropped |
//! |---|---|---|
//! | `git status`, any format | branch, counts, the first files of each kind | the other names |
//! | `cargo test`, `cargo nextest`, `pytest`, `unittest`, `vitest`, `jest`, `mocha`, `node --test`, `npm test`, `go test` | every failure with message and location, the summary | passing tests |
//! | `cargo build`, `check`, `clippy`, …, `tsc` | errors, warnings, the summary | progress |
//! | `npm`, `pnpm`, `yarn`, `pip`, `uv`, `apt`, `cargo install` | additions and removals, warnings, errors, the summary | progress |
//! | anything else | everything up to 8192 characters; then start and end | the middle |
//!
//! ```text
//! $ cargo test                                     [29 lines left out: passing tests and progress]
//!    Compiling tiny v0.1.0                         test tests::wrong ... FAILED
//! running 27 tests
//! test tests::a1 ... ok                       ->   failures:
//! … (25 more)                                      ---- tests::wrong stdout ----
//! test tests::wrong ... FAILED                     panicked at src/lib.rs:10:51:
//! …                                                …
//! test result: FAILED. 25 passed; 1 failed; …      test result: FAILED. 25 passed; 1 failed; …
//! ```
//!
//! A strategy applies only to a simple command ([`command`]) whose output it recognises. Otherwise the last row applies.

mod cargo;
mod command;
mod compiler;
mod frame;
mod git;
mod go;
mod install;
mod javascript;
mod noise;
mod python;

use crate::cut::{chars, ends};
use crate::shape::plain;
use crate::{ReducerInput, law, pointer};
use command::SimpleCommand;

/// Longer output of unknown commands is cut; about two thousand tokens.
const MOST_CHARS: usize = 8192;

/// Failures and diagnostics are the purpose of a test run, so they get more room.
const MOST_FINDINGS_CHARS: usize = 16_384;

/// A strategy: takes the output and the most characters; returns `None` for other output.
type Strategy = fn(&str, usize) -> Option<String>;

/// Shortens the output of a command.
#[must_use]
pub fn terminal(text: &str, ctx: &ReducerInput<'_>) -> Option<String> {
    let strategy = command::parse(ctx.args).and_then(|command| strategy(&command));
    law::apply(text, ctx, |text, ctx| shorten(text, strategy, ctx.budget_chars))
}

/// Shortens the message of a failed command, only if it exceeds the budget, and never its last lines.
///
/// The host would cut the end, where the reason of a failure stands.
#[must_use]
pub fn terminal_error(message: &str, ctx: &ReducerInput<'_>) -> Option<String> {
    law::apply(message, ctx, |text, ctx| ends(text, ctx.budget_chars))
}

fn shorten(text: &str, strategy: Option<Strategy>, budget: usize) -> Option<String> {
    let text = plain(text);
    if let Some(strategy) = strategy {
        let most = budget.min(MOST_FINDINGS_CHARS);
        // The pointer does not belong to the command. `law` restores it.
        let own: String;
        let output = if pointer::last(&text).is_some() {
            own = text.split_inclusive('\n').filter(|line| !pointer::is_in(line)).collect();
            &own
        } else {
            &*text
        };
        if let Some(shown) = frame::around(output, most, strategy) {
            return Some(shown);
        }
    }
    let most = budget.min(MOST_CHARS);
    ends(&text, most).or_else(|| (chars(&text) <= most).then(|| text.into_owned()))
}

fn strategy(command: &SimpleCommand) -> Option<Strategy> {
    let first = command.first().unwrap_or_default();
    let is_one_of = |names: &[&str]| names.contains(&first);
    Some(match command.program.as_str() {
        "git" if is_git_status(command) => |text, _| git::status(text),
        "cargo" => {
            let first = command.words().find(|word| !word.starts_with('+')).unwrap_or_default();
            match first {
                "test" | "t" | "nextest" => cargo::test,
                "build" | "b" | "check" | "c" | "clippy" | "rustc" | "doc" | "d" | "bench" | "fix" => {
                    compiler::cargo
                }
                "install" | "update" | "fetch" | "add" | "remove" | "uninstall" => install::install,
                _ => return None,
            }
        }
        "pytest" | "py.test" => python::pytest,
        "unittest" => python::unittest,
        "vitest" | "jest" | "mocha" | "ava" => javascript::test,
        "node" if command.has("--test") => javascript::test,
        "npm" | "pnpm" | "yarn" | "bun" => match package_script(command) {
            ShellScript::Test => any_test,
            ShellScript::Install => install::install,
            ShellScript::Other => return None,
        },
        "go" if first == "test" => go::test,
        "tsc" | "vue-tsc" => compiler::typescript,
        "pip" | "pip3" if is_one_of(&["install", "uninstall", "download", "wheel"]) => install::install,
        "uv" if is_one_of(&["pip", "sync", "add", "remove", "lock", "tool"]) => install::install,
        "apt" | "apt-get" => install::install,
        _ => return None,
    })
}

/// The subcommand follows git's global options. Some options have a value.
fn is_git_status(command: &SimpleCommand) -> bool {
    let mut args = command.args.iter().map(String::as_str);
    loop {
        match args.next() {
            Some("-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace") => drop(args.next()),
            Some(option) if option.starts_with('-') => {}
            subcommand => return subcommand == Some("status"),
        }
    }
}

enum ShellScript {
    Test,
    Install,
    Other,
}

/// The subcommand of a JavaScript package manager. A script is known by name only, so its output decides.
fn package_script(command: &SimpleCommand) -> ShellScript {
    let mut words = command.words();
    let word = words.next();
    let word = if matches!(word, Some("run" | "run-script")) { words.next() } else { word };
    match word {
        Some("t" | "tst" | "test" | "vitest" | "jest" | "mocha" | "ava") => ShellScript::Test,
        Some(word) if word.starts_with("test:") || word.ends_with(":test") => ShellScript::Test,
        None if command.program == "yarn" => ShellScript::Install,
        Some(
            "install" | "i" | "ci" | "add" | "remove" | "rm" | "uninstall" | "un" | "update" | "up"
            | "upgrade",
        ) => ShellScript::Install,
        _ => ShellScript::Other,
    }
}

/// The output of a script that runs unknown test programs.
fn any_test(text: &str, most: usize) -> Option<String> {
    let known: [Strategy; 5] = [javascript::test, cargo::test, python::pytest, python::unittest, go::test];
    known.into_iter().find_map(|strategy| strategy(text, most))
}
