//! The tables of the seed systems, and their measured bugs as regression tests.

use serde_json::json;
use toolbay_reducers::{ReducerInput, kanban_list, read_file, terminal};

fn run(command: &str, text: &str) -> Option<String> {
    let args = json!({ "command": command }).to_string();
    terminal(text, &ReducerInput { args: &args, turn: 1, budget_chars: 80_000 })
}

fn read(args: &str, text: &str) -> Option<String> {
    read_file(text, &ReducerInput { args, turn: 1, budget_chars: 80_000 })
}

fn file(lines: usize) -> String {
    (1..=lines).map(|line| format!("line {line}\n")).collect()
}

/// 3.1: git status counts by kind, in a fixed order, without zero counts, and names the first files.
#[test]
fn git_status_counts_and_names_files() {
    let text = format!(" M a.ts\nM  b.ts\n{}", "?? new file with a longer name\n".repeat(40));
    let reduced = run("git status --short", &text).unwrap();
    assert!(reduced.starts_with("git status: 1 staged, 1 unstaged, 40 untracked.\n"), "{reduced}");
    assert!(reduced.contains("unstaged: M a.ts\n") && reduced.ends_with(", … (+30 more)"), "{reduced}");
}

/// 3.1: of a test run, failures and the summary stay.
#[test]
fn a_test_run_keeps_failures_and_the_summary() {
    let text = format!(
        "{}\n FAIL  a.test.ts > adds\nError: 2 is not 3\n\n Test Files  1 failed | 1 passed (2)\n      Tests  1 failed | 40 passed (41)\n   Duration  1s\n",
        " ✓ a passing test\n".repeat(40)
    );
    for command in ["pnpm test", "npm test", "pnpm vitest run", "npx vitest"] {
        let reduced = run(command, &text).unwrap();
        for kept in [
            " FAIL  a.test.ts > adds",
            "Error: 2 is not 3",
            "Test Files  1 failed",
            "Tests  1 failed",
            "Duration",
        ] {
            assert!(reduced.contains(kept), "{command}: {reduced}");
        }
        assert!(!reduced.contains('✓'), "{command}: {reduced}");
    }
}

/// 3.1: of an install, additions, removals, warnings and errors stay.
#[test]
fn an_install_keeps_what_it_did() {
    let text = format!(
        "{}npm warn deprecated a@1: no\nadded 120 packages, removed 3 packages\n\n20 packages are looking for funding\n  run `npm fund` for details\n\n2 high severity vulnerabilities\nnpm error code E1\nend\nend\nend\n",
        "npm http fetch GET 200 x\n".repeat(30)
    );
    let reduced = run("npm install", &text).unwrap();
    for kept in
        ["npm warn deprecated", "added 120 packages", "2 high severity vulnerabilities", "npm error code E1"]
    {
        assert!(reduced.contains(kept), "{reduced}");
    }
    assert!(!reduced.contains("funding") && !reduced.contains("http fetch"), "{reduced}");
}

/// 3.1: any other output is cut only if it is longer than 8192 characters, and never gets longer.
#[test]
fn exactly_at_the_limit_is_untouched_and_one_more_gets_shorter() {
    assert_eq!(run("cat x", &"x".repeat(8192)), None);
    for text in [
        "x".repeat(8193),
        "x".repeat(9000),
        format!("{}\n", "x".repeat(1000)).repeat(10),
        format!("{}\n", "x".repeat(204)).repeat(60),
        "é".repeat(8193),
    ] {
        let reduced = run("cat x", &text).unwrap();
        assert!(reduced.chars().count() <= 8192 && reduced.contains(" left out …]\n"), "{}", reduced.len());
    }
}

/// 3.1 and 4.6: the pointer to saved output stays once, in every strategy.
#[test]
fn the_pointer_is_there_once() {
    let pointer = "full output written to /w/.spill/s-1.log";
    let spilled = format!("[truncated — 99 chars total; {pointer} — use read_file to see the rest]\n");
    for (command, head, tail) in [
        ("git status -s", "?? a long name of a file\n".repeat(40), String::new()),
        ("npm test", " ✓ passes\n".repeat(40), "\n      Tests  40 passed (40)\n a\n b\n c\n".to_owned()),
        ("pip install x", "Collecting x\n".repeat(40), "Successfully installed x-1\na\nb\n".to_owned()),
        ("cat x", "line\n".repeat(3000), "line\n".repeat(3000)),
    ] {
        for text in [
            format!("{head}{spilled}{tail}"),
            format!("{spilled}{head}{tail}"),
            format!("{head}{tail}{spilled}"),
        ] {
            let reduced = run(command, &text).unwrap_or_else(|| panic!("{command} was kept"));
            assert_eq!(reduced.matches(pointer).count(), 1, "{command}: {reduced}");
            assert_eq!(reduced.matches("full output").count(), 1, "{command}: {reduced}");
        }
    }
}

#[test]
fn bug_long_format_is_not_clean() {
    let text = "On branch main\nChanges not staged for commit:\n  (use \"git add <file>...\" to update what will be committed)\n\tmodified:   a.ts\n\nno changes added to commit (use \"git add\" and/or \"git commit -a\")\n";
    let reduced = run("git status", text).unwrap();
    assert_eq!(reduced, "git status: on main; 1 unstaged.\nunstaged: M a.ts");
}

#[test]
fn bug_words_in_a_command_or_a_text_are_not_what_was_run() {
    for command in [
        "cat notes.txt; git status",
        "echo \"run npm install first\" && cat log",
        "echo git status",
        "cat vitest",
    ] {
        for text in [
            "secret plan: ship on Friday\n",
            "run npm install first\nsecret\n0 errors\n",
            "git status\n M a\n",
        ] {
            assert_eq!(run(command, text), None, "{command} of {text}");
        }
    }
    assert_eq!(run("git status", "secret plan: ship on Friday\n"), None);
}

#[test]
fn bug_the_branch_line_is_not_a_file() {
    let reduced =
        run("git status -sb", &format!("## main\n{}", "?? a file with a name\n".repeat(20))).unwrap();
    assert!(reduced.starts_with("git status: on main; 20 untracked.\n"), "{reduced}");
    assert!(!reduced.contains("##"), "{reduced}");
}

#[test]
fn bug_unstaged_deletes_and_conflicts_count() {
    let text = format!(" D gone\nUU both\n{}", "?? a file with a name\n".repeat(20));
    let reduced = run("git status -s", &text).unwrap();
    assert!(reduced.starts_with("git status: 1 unstaged, 1 conflict, 20 untracked.\n"), "{reduced}");
    assert!(reduced.contains("unstaged: D gone\nconflict: UU both\n"), "{reduced}");
}

#[test]
fn bug_the_last_line_break_is_no_line() {
    assert_eq!(read("{}", &file(200)), None);
    assert_eq!(read("{}", &file(199)), None);
    let reduced = read("{}", &file(400)).unwrap();
    assert_eq!(reduced.lines().count(), 201);
    assert!(
        reduced.starts_with("File is 400 lines")
            && reduced.contains("line 200")
            && !reduced.contains("line 201")
    );
}

#[test]
fn bug_an_explicit_range_is_not_cut() {
    for args in [
        r#"{"start_line": 1, "end_line": 300}"#,
        r#"{"lineStart": 1}"#,
        r#"{"lineEnd": 300}"#,
        r#"{"offset": 0, "limit": 300}"#,
    ] {
        assert_eq!(read(args, &file(300)), None, "{args}");
    }
    assert!(read("{}", &file(300)).unwrap().contains("start_line/end_line"));
}

#[test]
fn bug_an_assertion_error_is_a_failure() {
    let text = format!(
        "{}\n ❯ a.test.ts (41 tests | 1 failed)\nAssertionError: x\n\n Test Files  1 failed (1)\n      Tests  1 failed | 40 passed (41)\n",
        " ✓ a passing test\n".repeat(40)
    );
    assert!(run("npx vitest run", &text).unwrap().contains("AssertionError: x"));
}

#[test]
fn bug_a_null_among_the_tasks_is_no_trouble() {
    let tasks = json!([null, {"id": 1, "status": "todo", "title": "a title that is long enough"}]);
    let two = tasks.as_array().unwrap();
    let mut many: Vec<_> = two.iter().cycle().take(20).cloned().collect();
    many.push(json!("x"));
    let reduced =
        kanban_list(&json!(many).to_string(), &ReducerInput { args: "{}", turn: 1, budget_chars: 80_000 })
            .unwrap();
    assert!(reduced.starts_with("Counts by status: unknown=11, todo=10. Top 5 open: "), "{reduced}");
}

/// A failed command keeps its end, whatever ran.
#[test]
fn the_last_lines_always_stay() {
    for command in ["cargo test", "cargo build", "npm install", "pytest -v", "npm test", "go test -v", "make"]
    {
        let noise = "   Compiling a v1\ntest a ... ok\nCollecting x\na.py::b PASSED [ 1%]\n ✓ a\n--- PASS: A (0.00s)\n".repeat(400);
        let text = format!("{noise}   Compiling b v1\nCollecting y\nKilled\n");
        let reduced = run(command, &text).unwrap();
        assert!(reduced.ends_with("   Compiling b v1\nCollecting y\nKilled\n"), "{command}: {reduced}");
    }
}
