//! The laws of every reducer, for arbitrary text.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use toolbay_reducers::{ALL, ReducerInput, terminal_error};

/// Commands of every strategy, and some without one.
const COMMANDS: [&str; 20] = [
    "git status",
    "git status -sb",
    "git status -z",
    "cargo test",
    "cargo build",
    "cargo install x",
    "pytest -v",
    "python -m unittest",
    "vitest run",
    "node --test",
    "npm test",
    "npm install",
    "go test ./...",
    "go test -json",
    "tsc",
    "pip install x",
    "apt-get install x",
    "cat x",
    "git status; cat x",
    "",
];

/// Fragments of real output, so that strategies recognise the text.
const PIECES: [&str; 72] = [
    "\n",
    "\n",
    "\n",
    "\r\n",
    "\r",
    "\0",
    "\t",
    " ",
    "  ",
    "é",
    "🙂",
    "\u{1b}[31m",
    "\u{1b}",
    "\u{1b}]",
    "a",
    "x.rs",
    "ERROR why",
    "WARN x",
    "10:00:01 INFO took 3 ms",
    "\n?? a\n",
    "\n M b",
    "UU c\n",
    "## main...o/main [ahead 1]\n",
    "On branch main\n",
    "Untracked files:\n\ta\n",
    "# branch.head main\n",
    "? a\n",
    "1 .M N... 1 2 3 4 5 p\n",
    "nothing to commit, working tree clean\n",
    "test a ... ok\n",
    "test a ... FAILED\n",
    "failures:\n",
    "---- a stdout ----\n",
    "stack backtrace:\n",
    "   0: a\n",
    "             at /rustc/x\n",
    "test result: ok. 1 passed; 0 failed; 0 ignored\n",
    "test result: FAILED. 1 passed; 1 failed; 0 ignored\n",
    "   Compiling a v1\n",
    "     Running unittests a\n",
    "error: no\n",
    "warning: x\n --> a\n",
    "=== FAILURES ===\n",
    "____ a ____\n",
    "a.py::b PASSED [ 1%]\n",
    "a.py ..F. [ 1%]\n",
    "=== 1 failed, 2 passed in 0.12s ===\n",
    "====================================\n",
    "Ran 2 tests in 0.1s\n",
    "✓ a\n",
    "  ✔ b\n",
    "✖ c\n",
    "Tests:  1 failed, 2 total\n",
    "ok 1 - a\n  ---\n  ...\n",
    "not ok 2 - b\n",
    "# tests 2\n",
    "=== RUN   TestA\n",
    "--- PASS: TestA (0.00s)\n",
    "--- FAIL: TestB (0.00s)\n",
    "ok  \tp\t0.1s\n",
    "FAIL\n",
    "{\"Action\":\"output\",\"Package\":\"p\",\"Output\":\"FAIL\\n\"}\n",
    "Collecting a\n",
    "added 1 package\n",
    "a.ts(1,2): error TS1: x\n",
    "src/a.rs:1:x\n",
    "dir/\n",
    "[note]\n",
    "{\"id\":1,\"status\":\"done\"},",
    "[",
    "]",
    "File is 400 lines. Showing lines 1-200. Call read_file with start_line/end_line for more.\n",
];

/// Repeated lines, so that texts are long enough to be reduced.
fn output() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => prop::sample::select(PIECES.as_slice()).prop_map(str::to_owned),
        1 => ".{0,12}",
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec((piece, prop_oneof![4 => 1..3usize, 1 => 3..400usize]), 0..24)
        .prop_map(|pieces| pieces.iter().map(|(piece, times)| piece.repeat(*times)).collect())
}

fn args() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(COMMANDS.as_slice())
            .prop_map(|command| serde_json::json!({ "command": command }).to_string()),
        1 => Just("{}".to_owned()),
        1 => ".{0,20}",
    ]
}

fn budget() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(80_000usize), 1 => 0..300usize, 2 => 300..5000usize]
}

const POINTER: &str = "full output written to /spill/é 1.log";
const PHRASE: &str = "full output written to ";

/// Checks every law for one text and every reducer.
fn check(text: &str, ctx: &ReducerInput<'_>) -> Result<(), TestCaseError> {
    let reducers = ALL.iter().map(|builtin| (builtin.name, builtin.reduce));
    for (name, reduce) in reducers.chain([("terminal_error", terminal_error as toolbay_reducers::ReduceFn)]) {
        let Some(answer) = reduce(text, ctx) else { continue };
        let same = reduce(text, ctx);
        prop_assert_eq!(same.as_ref(), Some(&answer), "{} is not deterministic", name);
        prop_assert!(answer.chars().count() < text.chars().count(), "{} is not shorter: {:?}", name, answer);
        prop_assert!(answer.len() <= text.len(), "{} has more bytes: {:?}", name, answer);
        prop_assert!(!answer.trim().is_empty(), "{} leaves nothing", name);
        prop_assert_eq!(reduce(&answer, ctx), None, "{} is not stable on {:?}", name, answer);
        if text.matches(PHRASE).count() == 1 && text.contains(POINTER) {
            prop_assert_eq!(answer.matches(POINTER).count(), 1, "{}: {:?}", name, answer);
            prop_assert_eq!(answer.matches(PHRASE).count(), 1, "{}: {:?}", name, answer);
        } else {
            prop_assert!(
                answer.chars().count() <= ctx.budget_chars,
                "{} is over the budget: {:?}",
                name,
                answer
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_law_holds_for_every_reducer(text in output(), args in args(), budget_chars in budget(), turn in 0..9u32) {
        check(&text, &ReducerInput { args: &args, turn, budget_chars })?;
    }

    #[test]
    fn a_pointer_is_there_once_wherever_it_was(
        before in output(), after in output(), args in args(), budget_chars in budget(), form in 0..4usize,
    ) {
        let pointer = match form {
            0 => format!("{POINTER} — use read_file"),
            1 => format!("\n\n[truncated — 99999 chars total; {POINTER} — use read_file to see the rest]\n\n"),
            2 => format!("[{POINTER}]\n"),
            _ => format!("\n{POINTER}\n"),
        };
        check(&format!("{before}{pointer}{after}"), &ReducerInput { args: &args, turn: 0, budget_chars })?;
    }

    #[test]
    fn arbitrary_text_is_no_danger(text in any::<String>(), args in any::<String>(), budget_chars in any::<usize>()) {
        check(&text, &ReducerInput { args: &args, turn: 0, budget_chars })?;
    }
}

#[test]
fn texts_of_nothing_are_kept() {
    for text in ["", " ", "\n", "\r\n\r\n", "\t\n \u{a0}", &"\n".repeat(100_000), &" ".repeat(100_000)] {
        for builtin in ALL {
            for command in COMMANDS {
                let args = serde_json::json!({ "command": command }).to_string();
                let ctx = ReducerInput { args: &args, turn: 0, budget_chars: 1000 };
                assert_eq!((builtin.reduce)(text, &ctx), None, "{} of {} bytes", builtin.name, text.len());
            }
        }
    }
}

/// The CPU time of this thread on Linux, which a busy machine does not change.
fn time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|first| first.parse().ok());
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// How much larger the large texts are than the small ones.
const GROWTH: u32 = 8;

/// The worst inputs of the reducers, with about this number of bytes.
fn worst_texts(bytes: usize) -> Vec<String> {
    let fill = |piece: &str| piece.repeat(bytes / piece.len());
    let json = |item: &str| format!("[{}1]", fill(item));
    vec![
        fill("x"),
        fill("é\n"),
        fill("?? a\n"),
        fill("?? a\0"),
        format!("On branch main\nUntracked files:\n{}", fill("\ta\n")),
        fill("test a ... ok\n") + "test result: ok. 1 passed; 0 failed; 0 ignored\n",
        fill("running 1 test\nfailures:\n---- a stdout ----\nstack backtrace:\n   0: a\n at /rustc/\n")
            + "test result: FAILED. 0 passed\n",
        fill("error: a\n"),
        fill(" ✓ a\n  x\n") + "# tests 1\n",
        (0..(2 * bytes).isqrt()).map(|n| format!("{}x\n", " ".repeat(n))).collect::<String>() + "# tests 1\n",
        fill("=== RUN   TestA\nFAIL\n"),
        fill("{\"Action\":\"output\",\"Package\":\"p\",\"Output\":\"FAIL\\n\"}\n"),
        fill("____ a ____\n") + "=== 1 failed in 0.1s ===\n",
        fill("Collecting a\n"),
        fill("a.ts(1,2): error TS1: x\n"),
        fill("\u{1b}"),
        fill("\u{1b}["),
        fill("\u{1b}]"),
        fill("\r"),
        fill("full output written to "),
        fill("full output written to a\n"),
        fill("a:"),
        fill("src/a.rs:1:x\n"),
        fill("10:00:01 INFO took 3 ms\n"),
        fill("10:00:01 ERROR took 3 ms\nx\n"),
        json("{\"id\":1,\"status\":\"todo\"},"),
        json("1,"),
        (0..bytes / 18).map(|n| format!("f{n}.e{n}:{n}:x\n")).collect(),
        (0..bytes / 20).fold("[".to_owned(), |all, n| all + &format!("{{\"k{n}\":1}},")) + "1]",
        (0..bytes / 28).fold("[".to_owned(), |all, n| all + &format!("{{\"status\":\"s{n}\"}},")) + "1]",
        (0..bytes / 14).map(|n| format!("f{n}.e{n}\n")).collect(),
    ]
}

/// Fails if the time for a large text is far more than in proportion to that for a small one. The three attempts of a
/// reducer whose time is quadratic all fail, because it takes `GROWTH` times more than in proportion.
fn check_time(what: &str, texts: [&str; 2], reduce: impl Fn(&str)) {
    /// What the caches and the clock of the machine add.
    const SLACK: Duration = Duration::from_millis(50);
    let took = |text: &str| {
        let start = time();
        reduce(text);
        time() - start
    };
    let mut measured = Vec::new();
    for _ in 0..3 {
        let [small, large] = texts.map(took);
        if large <= 3 * GROWTH * small + SLACK {
            return;
        }
        measured.push((small, large));
    }
    panic!("{what}: {measured:?}");
}

#[test]
fn time_is_linear() {
    const BYTES: usize = 16 << 10;
    let larger = worst_texts(GROWTH as usize * BYTES);
    for (small, large) in worst_texts(BYTES).iter().zip(&larger) {
        let begin: String = small.chars().take(30).collect();
        for command in
            ["git status", "cargo test", "pytest", "npm test", "npm install", "go test", "tsc", "cat x"]
        {
            let args = serde_json::json!({ "command": command }).to_string();
            let ctx = ReducerInput { args: &args, turn: 0, budget_chars: 1000 };
            for builtin in ALL.iter().filter(|builtin| builtin.name == "terminal" || command == "cat x") {
                let what = format!("{} for {command} on {begin:?}", builtin.name);
                check_time(&what, [small, large], |text| drop((builtin.reduce)(text, &ctx)));
            }
        }
    }
}
