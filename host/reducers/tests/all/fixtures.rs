//! Real output of real programs, and its reduction.
//!
//! The fixtures come from git 2.47, cargo 1.95, pytest 9.2, Python 3.11, vitest 2.1, jest 29, mocha 10, node 20,
//! TypeScript 5, go 1.19, npm, pip and apt. Names of folders and hosts were replaced.

use std::path::Path;

use toolbay_reducers::{ReducerInput, terminal};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name).with_extension("txt");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn run(command: &str, text: &str) -> Option<String> {
    let args = serde_json::json!({ "command": command }).to_string();
    terminal(text, &ReducerInput { args: &args, turn: 1, budget_chars: 80_000 })
}

/// Reduces a fixture, and checks that it keeps some texts and drops others.
#[track_caller]
fn check(name: &str, command: &str, kept: &[&str], dropped: &[&str]) -> String {
    let text = fixture(name);
    let reduced = run(command, &text).unwrap_or_else(|| panic!("{name} was kept"));
    for kept in kept {
        assert!(text.contains(kept), "{kept:?} is not in {name}");
        assert!(reduced.contains(kept), "{kept:?} is lost of {name}:\n{reduced}");
    }
    for dropped in dropped {
        assert!(text.contains(dropped), "{dropped:?} is not in {name}");
        assert!(!reduced.contains(dropped), "{dropped:?} is left of {name}:\n{reduced}");
    }
    assert!(reduced.chars().count() < text.chars().count());
    assert_eq!(run(command, &reduced), None, "{name} is reduced twice");
    reduced
}

#[test]
fn git_status_says_the_same_in_every_format() {
    let kinds = [
        ("git_long", "git status"),
        ("git_short", "git status -s"),
        ("git_shortb", "git status -sb"),
        ("git_v2", "git status --porcelain=v2"),
        ("git_v2b", "git status --porcelain=v2 --branch"),
        ("git_z", "git status -z"),
        ("git_zb", "git status -z -b"),
        ("git_v2z", "git status --porcelain=v2 -b -z"),
    ];
    for (name, command) in kinds {
        let text = fixture(name);
        // A short status is not longer than its reduction, so it is repeated three times.
        let more: String = match name {
            "git_long" => (0..90).map(|n| format!("\tmore{n}\n")).collect(),
            "git_z" | "git_zb" => (0..90).map(|n| format!("?? more{n}\0")).collect(),
            "git_v2z" => (0..90).map(|n| format!("? more{n}\0")).collect(),
            "git_v2" | "git_v2b" => (0..90).map(|n| format!("? more{n}\n")).collect(),
            _ => (0..90).map(|n| format!("?? more{n}\n")).collect(),
        };
        let reduced = run(
            command,
            &format!(
                "{}{more}",
                text.trim_end_matches('\n').to_owned() + if name.contains('z') { "" } else { "\n" }
            ),
        )
        .unwrap_or_else(|| panic!("{name} was kept"));
        let first = reduced.lines().next().unwrap();
        assert!(first.contains("4 staged, 5 unstaged, 2 conflicts, 107 untracked."), "{name}: {reduced}");
        assert!(reduced.contains("\nconflict: UD both.txt, UU conflict.txt\n"), "{name}: {reduced}");
        assert!(reduced.contains("A added.txt") && reduced.contains("D file5.txt"), "{name}: {reduced}");
        assert!(
            reduced.contains("file4.txt -> ") && reduced.contains("renamed file.txt"),
            "{name}: {reduced}"
        );
        assert!(reduced.contains("D file3.txt") && reduced.contains("M src/mod1.rs"), "{name}: {reduced}");
        let branch = !matches!(name, "git_short" | "git_v2" | "git_z");
        assert_eq!(first.contains("on main, ahead 1, behind 1 of origin/main; "), branch, "{name}: {first}");
        assert_eq!(run(command, &reduced), None, "{name} is reduced twice");
    }
    assert!(
        run("git status", &fixture("git_long"))
            .unwrap()
            .contains("M vendor/sub (modified content, untracked content)")
    );
}

#[test]
fn git_status_is_clean_only_when_it_is() {
    check("git_long_clean", "git status", &["origin/main"], &["working tree"]);
    assert_eq!(
        run("git status", &fixture("git_long_clean")).unwrap(),
        "git status: on main, even with origin/main; clean."
    );
    let new = check("git_long_new", "git status", &["No commits yet"], &["a30"]);
    assert!(new.starts_with("git status: on main; 30 untracked."), "{new}");
    let new = check("git_short_new", "git status -sb", &[], &["a30"]);
    assert!(new.starts_with("git status: on main, no commits yet; 30 untracked."), "{new}");
    // Already minimal.
    for (name, command) in [("git_short_clean", "git status -sb"), ("git_short_empty", "git status -sb")] {
        assert_eq!(run(command, &fixture(name)), None, "{name}");
    }
    assert_eq!(run("git status -v", &fixture("git_verbose")), None, "it has a patch");
}

#[test]
fn cargo_test() {
    check(
        "cargo_test",
        "cargo test --no-fail-fast 2>&1",
        &[
            "warning: unused variable: `unused`\n --> src/lib.rs:3:41",
            "test tests::calm - should panic ... FAILED",
            "note: test did not panic as expected at src/lib.rs:11:32",
            "---- tests::wrong stdout ----\nsaid before\n",
            "panicked at src/lib.rs:10:51:\nassertion `left == right` failed: the sum\n  left: 2\n right: 3\n",
            "             at ./src/lib.rs:10:51",
            "test result: FAILED. 25 passed; 2 failed; 1 ignored;",
            "error: test failed, to rerun pass `--lib`",
            "error: 1 target failed:",
        ],
        &[
            "test tests::a1 ... ok",
            "Compiling",
            "core::panicking",
            "running 28 tests",
            "test one ... ok",
            "tests/more.rs",
        ],
    );
    let ok = check(
        "cargo_test_ok",
        "cargo test",
        &["warning: unused variable"],
        &["tests::a1 ", "Running", "Compiling"],
    );
    assert!(ok.contains("test result: ok. 29 passed; 0 failed; 1 ignored; in 3 suites"), "{ok}");
    check(
        "cargo_test_broken",
        "cargo +nightly t",
        &["error[E0308]: mismatched types\n  --> src/lib.rs:13:19", "error: could not compile `tiny`"],
        &["Compiling"],
    );
}

#[test]
fn cargo_build() {
    check(
        "cargo_build",
        "cargo build",
        &[
            "error[E0308]: mismatched types\n  --> src/lib.rs:13:19",
            "error[E0425]: cannot find function `nothing`",
            "warning: unused variable",
            "error: could not compile `tiny` (lib) due to 2 previous errors",
        ],
        &["Compiling"],
    );
}

#[test]
fn pytest_and_unittest() {
    let failures = [
        ">       assert total([1, 2]) == 4\nE       assert 3 == 4\n",
        "test_bad.py:9: AssertionError",
        "some output",
        "E       AssertionError: boom: é",
        "DeprecationWarning: old",
        "FAILED test_bad.py::test_wrong - assert 3 == 4",
    ];
    let summary = "2 failed, 61 passed, 1 skipped, 2 warnings in ";
    for (name, command) in [("pytest", "python -m pytest"), ("pytest_v", "cd tests && uv run pytest -v")] {
        let reduced = check(name, command, &failures, &["test_ok.py"]);
        assert!(reduced.contains(summary), "{reduced}");
    }
    assert_eq!(run("pytest -q", &fixture("pytest_q")), None, "two lines of dots are all that could go");
    check(
        "pytest_ok_v",
        "pytest -v test_ok.py",
        &["60 passed, 1 skipped in "],
        &["test_many[3]", "platform"],
    );
    assert_eq!(
        run("python3 -m unittest", &fixture("unittest")),
        None,
        "one line of dots is all that could go"
    );
    check(
        "unittest_v",
        "python3 -m unittest -v",
        &[
            "FAIL: test_wrong (unit_case.Case.test_wrong)",
            "line 4, in test_wrong",
            "1 != 2",
            "FAILED (failures=1)",
        ],
        &["... ok"],
    );
}

#[test]
fn javascript_tests() {
    check(
        "vitest_verbose",
        "pnpm vitest run --reporter=verbose",
        &[
            "said before",
            " FAIL  bad.test.js > is wrong\nAssertionError: expected 2 to be 3",
            " ❯ bad.test.js:3:68",
            "Error: boom: é\n ❯ bad.test.js:4:30",
            " Test Files  1 failed | 1 passed (2)\n      Tests  2 failed | 31 passed | 1 skipped (34)",
        ],
        &[" ✓ "],
    );
    assert_eq!(run("npx vitest run", &fixture("vitest")), None, "one line is all that could go");
    assert_eq!(run("jest", &fixture("jest")), None, "one line is all that could go");
    check(
        "jest_verbose",
        "npm test",
        &[
            "● is wrong\n\n    expect(received).toBe(expected)",
            "at Object.toBe (bad.test.js:2:68)",
            "boom: é",
            "Tests:       2 failed, 31 passed, 33 total",
        ],
        &["PASS ./ok.test.js", "✓"],
    );
    check(
        "mocha",
        "yarn mocha",
        &[
            "  Array\n",
            "    #sort()\n",
            "1) is stable",
            "22 passing",
            "1 failing",
            "at Context.<anonymous> (m/a.spec.js:3:82)",
        ],
        &["✔", "    #indexOf()\n"],
    );
}

#[test]
fn node_tests() {
    check(
        "node_tap",
        "node --test",
        &["not ok 13 - is wrong\n", "location: '/project/a.test.mjs:2:83'", "# tests 20", "# fail 1"],
        &["ok 1 - adds 0", "# Subtest: adds 11"],
    );
    for (name, command) in [("node_spec", "node --test --test-reporter=spec"), ("npm_test", "npm test")] {
        check(
            name,
            command,
            &["▶ sums", "✖ is wrong", "2 !== 3", "a.test.mjs:2:113", "ℹ pass 18", "✖ failing tests:"],
            &["✔", "▶ fine"],
        );
    }
}

#[test]
fn go_test() {
    let failure =
        ["--- FAIL: TestWrong (0.00s)", "a_test.go:4: Add(1, 1) = 2, want 3", "FAIL\texample.org/tiny/a\t"];
    assert_eq!(run("go test ./...", &fixture("go_test")), None, "one line is all that could go");
    check("go_test_v", "go test -v ./...", &failure, &["TestMany/n3", "checking 15"]);
    let reduced = run("go test -json ./...", &fixture("go_test_json")).unwrap();
    assert!(failure.iter().all(|kept| reduced.contains(kept)) && !reduced.contains("TestMany"), "{reduced}");
}

#[test]
fn compilers() {
    // It has no progress lines.
    for (name, command) in [("tsc", "tsc --noEmit"), ("tsc_pretty", "npx tsc")] {
        let text = fixture(name);
        match run(command, &text) {
            None => assert!(!text.contains('\u{1b}')),
            Some(reduced) => {
                assert!(!reduced.contains('\u{1b}') && reduced.contains("error TS2322: Type 'string'"));
            }
        }
    }
}

#[test]
fn installs() {
    check(
        "pip_install",
        "pip install pytest requests",
        &["Successfully installed certifi-2026.10.18"],
        &["Collecting", "Downloading"],
    );
    check(
        "apt_install",
        "sudo apt-get install -y golang-go",
        &[
            "The following NEW packages will be installed:",
            "0 upgraded, 4 newly installed",
            "Need to get 81.1 MB",
        ],
        &["Unpacking", "Get:1", "Reading database"],
    );
    for name in ["npm_install", "npm_install_error"] {
        assert_eq!(run("npm install x", &fixture(name)), None, "{name} says nothing that could go");
    }
}

#[test]
fn the_same_texts_of_another_command_are_left_alone() {
    for name in ["git_long", "cargo_test", "pytest_v", "vitest", "go_test_v", "pip_install", "apt_install"] {
        let text = fixture(name);
        for command in
            ["cat log.txt", "cat log.txt; git status", "cargo test | cat", "echo npm install && cat log.txt"]
        {
            assert_eq!(run(command, &text.replace('\r', "")), None, "{name} of {command}");
        }
    }
}
