//! `terminal`.

use toolbay_sdk::context;
use toolbay_sdk::prelude::*;
use toolbay_sdk::process::Command;

use crate::report::head_and_tail;
use crate::words;

/// Characters of the result that do not come from the program.
const AROUND: usize = 200;

/// The result of a program.
#[data]
#[derive(Debug, PartialEq)]
pub struct ExitReport {
    /// The exit code; absent when a signal ended the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The beginning and the end of its standard output.
    pub stdout: String,
    /// The beginning and the end of its standard error.
    pub stderr: String,
    /// Whether output was left out.
    pub truncated: bool,
}

/// Run one program and read what it says.
///
/// No shell is involved: no pipes, no redirection, no variables, no globs. Give `command` as one line, which is split at
/// spaces outside of quotes, or `program` with `args`. Only programs and arguments that the operator granted are run; a
/// refusal says what to ask the operator for. The program works on the granted files and ends with this call.
#[tool(
    toolset = "shell", tags = ["process"], untrusted_output,
    process = "*", reason = "runs the program you name",
    optional(fs_read = "**", reason = "programs read the files of this grant"),
    optional(fs_write = "**", reason = "programs write the files of this grant"),
)]
pub fn terminal(
    /// The whole command line, as `git log -n 5`. Text with special characters stands in single quotes.
    command: Option<String>,
    /// The name of the program, instead of `command`.
    program: Option<String>,
    /// Its arguments, each as it is: no quoting.
    #[arg(default = Vec::new())]
    args: Vec<String>,
    /// The folder to run it in.
    cwd: Option<String>,
    /// What it reads from standard input.
    stdin: Option<String>,
    /// End it after this many milliseconds.
    #[arg(range(min = 1))]
    timeout_ms: Option<u32>,
) -> Result<Rendered<ExitReport>> {
    let mut words = match (command, program) {
        (Some(_), _) if !args.is_empty() => {
            return Err(Error::input("`args` belongs to `program`, not to `command`").at("/args"));
        }
        (Some(line), None) => words::split(&line)?,
        (None, Some(program)) => std::iter::once(program).chain(args).collect(),
        (Some(_), Some(_)) => {
            return Err(Error::input("give `command` or `program`, not both").at("/program"));
        }
        (None, None) => Vec::new(),
    };
    if words.is_empty() {
        return Err(Error::input("there is no program to run").at("/command"));
    }
    let mut run = Command::new(words.remove(0)).args(words);
    run.cwd = cwd;
    run.stdin = stdin.map(String::into_bytes);
    run.timeout_ms = timeout_ms;
    let done = run.run()?;

    let room = (context::budget_chars() as usize).saturating_sub(AROUND);
    let (stdout, stderr) = (done.stdout_text(), done.stderr_text());
    // Error output is usually short, so it gets the space it needs, up to half.
    let for_errors = stderr.chars().count().min(room / 2);
    let for_output = room - for_errors;
    let truncated =
        done.truncated || stdout.chars().count() > for_output || stderr.chars().count() > for_errors;
    let ended = ExitReport {
        exit_code: done.exit_code,
        stdout: head_and_tail(&stdout, for_output.saturating_sub(AROUND)),
        stderr: head_and_tail(&stderr, for_errors),
        truncated,
    };
    Ok(Rendered { text: report(&ended, done.truncated), data: ended })
}

fn report(ended: &ExitReport, cut: bool) -> String {
    let mut text = String::new();
    for (name, said) in [("", &ended.stdout), ("[stderr]\n", &ended.stderr)] {
        if !said.is_empty() {
            text.push_str(name);
            text.push_str(said);
            if !said.ends_with('\n') {
                text.push('\n');
            }
        }
    }
    if cut {
        text.push_str("[it said more than the host keeps]\n");
    }
    match ended.exit_code {
        Some(code) => text.push_str(&format!("[exit code {code}]")),
        None => text.push_str("[ended by a signal]"),
    }
    text
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::process::Completed;
    use toolbay_sdk::testing::{FakeHost, call, describe};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    fn fake() -> FakeHost {
        FakeHost::new()
            .program("echo", |command| Completed::of(0, command.args.join(" ") + "\n", ""))
            .program("fail", |_| Completed {
                exit_code: Some(3),
                stderr: b"no".to_vec(),
                ..Completed::of(0, "", "")
            })
    }

    #[test]
    fn a_line_and_a_list_are_the_same_program() {
        let fake = fake();
        let line = fake.run(|| call::<terminal>(json!({"command": "echo 'a b' c"}))).unwrap();
        assert_eq!(line.value, "a b c\n[exit code 0]");
        let list = fake.run(|| call::<terminal>(json!({"program": "echo", "args": ["a b", "c"]}))).unwrap();
        assert_eq!(list.value, line.value);
        assert!(fake.commands().iter().all(|command| command.args == ["a b", "c"]));
        let asked = json!({"command": "echo", "cwd": "sub", "stdin": "in", "timeout_ms": 5});
        fake.run(|| call::<terminal>(asked)).unwrap();
        let last = fake.commands().pop().unwrap();
        assert_eq!(
            (last.cwd.as_deref(), last.stdin.as_deref(), last.timeout_ms),
            (Some("sub"), Some(&b"in"[..]), Some(5))
        );
    }

    #[test]
    fn a_program_that_fails_is_an_answer() {
        let output = fake().run(|| call::<terminal>(json!({"command": "fail"}))).unwrap();
        assert_eq!(output.value, "[stderr]\nno\n[exit code 3]");
        assert!(output.structured.unwrap().contains(r#""exit_code":3"#));
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        for args in [
            json!({}),
            json!({"command": " "}),
            json!({"command": "echo", "program": "echo"}),
            json!({"command": "echo", "args": ["x"]}),
            json!({"command": "echo | cat"}),
        ] {
            let error = fake().run(|| call::<terminal>(args.clone())).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InputInvalid, "{args}");
        }
        let error = fake().run(|| call::<terminal>(json!({"command": "rm -r x"}))).unwrap_err();
        assert_eq!((error.code(), error.subject()), (ErrorCode::NotAvailable, Some("denied")));
    }

    #[test]
    fn a_long_output_keeps_its_end() {
        let fake = FakeHost::new().budget_chars(1000).program("long", |_| {
            let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
            Completed { truncated: true, ..Completed::of(1, lines, "error: it broke\n") }
        });
        let output = fake.run(|| call::<terminal>(json!({"command": "long"}))).unwrap();
        assert!(output.value.chars().count() <= 1000, "{}", output.value.len());
        for part in ["line 0\n", "characters left out]", "line 999\n", "error: it broke", "[exit code 1]"] {
            assert!(output.value.contains(part), "{part}: {}", output.value);
        }
    }

    #[test]
    fn it_asks_for_whatever_is_granted() {
        let definition = describe::<terminal>();
        let asked: Vec<_> = definition
            .capabilities
            .iter()
            .map(|c| (c.kind.as_str(), c.target.as_str(), c.optional))
            .collect();
        assert_eq!(asked, [("process", "*", false), ("fs-read", "**", true), ("fs-write", "**", true)]);
    }
}
