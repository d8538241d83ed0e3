//! Approval of calls on the command line. No command sees the terminal of the test run.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::fixture::{HostFolder, status_and_output};

const POLICY: &str = "\
    [[rule]]\ntool = \"*__long\"\naction = \"deny\"\n\
    [[rule]]\ntool = \"*__echo\"\naction = \"ask\"\nreason = \"an echo\"\n\
    [session]\nmax_identical_calls = 2\n";

struct ApprovalFixture(HostFolder);

impl ApprovalFixture {
    fn new() -> Self {
        Self(HostFolder::new(POLICY).with_plugin("e", guest_artifacts::API_ECHO))
    }

    /// Runs `program` in the folder of the test with `toolbay` on its path.
    fn command(&self, program: &str) -> Command {
        let bin = Path::new(env!("CARGO_BIN_EXE_toolbay")).parent().unwrap();
        let mut command = self.0.prepare(Command::new(program));
        command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
        command
    }

    /// Runs `toolbay` in a new session without a terminal.
    fn run(&self, args: &[&str], stdin: &str) -> Output {
        let mut child = self
            .command("setsid")
            .args(["--wait", "toolbay"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs a command line on a terminal and types each answer after its question. Returns the terminal's output.
    fn at_a_terminal(&self, line: &str, answers: &[&str]) -> String {
        let mut child = self
            .command("script")
            .args(["-qec", line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut typed, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (mut screen, mut bytes) = (String::new(), [0; 1024]);
        let mut answers = answers.iter();
        let mut questions = 0;
        loop {
            match shown.read(&mut bytes).unwrap() {
                0 => break,
                count => screen.push_str(&String::from_utf8_lossy(&bytes[..count])),
            }
            let asked = screen.matches("in this run: ").count() + screen.matches("y, n or a: ").count();
            while questions < asked {
                questions += 1;
                let answer = answers.next().unwrap_or_else(|| panic!("one question too many: {screen}"));
                typed.write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
        }
        child.wait().unwrap();
        assert_eq!(answers.len(), 0, "not every question came: {screen}");
        screen
    }
}

#[test]
fn without_a_terminal_only_flags_approve_a_call() {
    let cli = ApprovalFixture::new();
    let (code, out, err) = status_and_output(&cli.run(&["call", "e__echo", "{}"], "y\n"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("rule 2 of the policy says `ask` (an echo), and no approver is available"), "{err}");
    assert_eq!(
        status_and_output(&cli.run(&["call", "e__echo", "{}", "--yes"], "")),
        (Some(0), "{}\n".into(), String::new())
    );
    let (code, _, err) = status_and_output(&cli.run(&["call", "e__echo", "--deny"], ""));
    assert!(code == Some(1) && err.contains("the answer was no: `--deny` was given"), "{err}");
    let (code, _, err) = status_and_output(&cli.run(&["call", "e__long", "--yes"], ""));
    assert!(
        code == Some(1) && err.contains("rule 1 of the policy says `deny`"),
        "`--yes` is no policy: {err}"
    );
    let (code, out, _) = status_and_output(&cli.run(&["call", "e__echo", "--yes", "--dry-run"], ""));
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "[dry-run] e__echo would be called, if it is approved with: {}\n")
    );
    assert_eq!(status_and_output(&cli.run(&["call", "e__echo", "--yes", "--deny"], "")).0, Some(2));
    let (_, log, _) = status_and_output(&cli.run(&["log", "--refused", "--tool", "e__long"], ""));
    assert!(log.contains("refused permission: rule 1 says deny"), "{log}");
    let (_, log, _) = status_and_output(&cli.run(&["log", "--json", "--tool", "e__echo"], ""));
    let decided: Vec<Value> =
        log.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["permission"].clone()).collect();
    assert_eq!(
        decided[..2],
        [
            json!({"action": "ask", "rule": 2, "of_profile": false, "allowed": false, "by": null}),
            json!({"action": "ask", "rule": 2, "of_profile": false, "allowed": true, "by": "session"}),
        ]
    );
}

#[test]
fn a_batch_reports_its_cost_and_is_one_session() {
    let cli = ApprovalFixture::new();
    let calls = json!([
        {"tool": "e__meta"},
        {"tool": "e__error", "args": {"code": "execution-failed"}},
        {"tool": "e__meta", "args": {}},
        {"tool": "e__meta", "args": {}},
    ]);
    let output = cli.run(&["batch", "-", "--json"], &calls.to_string());
    let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((&all["calls"], &all["failed"], &all["cost_usd"]), (&json!(4), &json!(2), &json!(1.0)));
    let results = all["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    assert_eq!(results[0]["call_sha256"], results[2]["call_sha256"]);
    let stopped =
        results.iter().filter(|r| r["error"]["message"].as_str().is_some_and(|m| m.starts_with("Stopped: ")));
    assert_eq!(stopped.count(), 1, "{all}");
}

#[test]
fn the_terminal_asks_for_approval_when_stdin_carries_the_arguments() {
    let cli = ApprovalFixture::new();
    let screen = cli.at_a_terminal("toolbay call e__echo '{\"a\":1}'", &["y"]);
    assert!(
        screen.contains("e__echo (plugin:e) wants to run: rule 2 of the policy says `ask` (an echo)"),
        "{screen}"
    );
    assert!(screen.trim_end().ends_with("{\"a\":1}"), "{screen}");
    let screen = cli.at_a_terminal("echo '{\"a\":1}' | toolbay call e__echo - > out.txt", &["what?", "yes"]);
    assert!(screen.contains("y, n or a: "), "{screen}");
    assert_eq!(std::fs::read_to_string(cli.0.path("work/out.txt")).unwrap(), "{\"a\":1}\n");
    let screen = cli.at_a_terminal("toolbay call e__echo", &["n"]);
    assert!(screen.contains("the answer was no"), "{screen}");
    let batch = "printf '{\"tool\":\"e__echo\",\"args\":{\"n\":1}}\\n{\"tool\":\"e__echo\",\"args\":{\"n\":2}}\\n' > b; toolbay batch b";
    let screen = cli.at_a_terminal(batch, &["y", "n"]);
    assert_eq!(screen.matches("\"ok\":true").count(), 1, "{screen}");
    let hidden = "toolbay call e__echo '{\"a\":\"\\u001b[2J\\u202e\"}'";
    let screen = cli.at_a_terminal(hidden, &["n"]);
    assert!(!screen.contains("\u{1b}[2J") && !screen.contains('\u{202e}'), "{screen:?}");
}
