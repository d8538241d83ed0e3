//! The terminal form of every command, held to snapshots in `tests/terminal`. Set `TOOLBAY_WRITE_DOCS=1` to rewrite
//! them.
//!
//! Each command runs on pseudo terminals of several widths and once with pipes. Digests, sizes and temporary paths are
//! replaced, so that a snapshot depends on the form alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::pty;

/// The widths of the terminals, in columns.
const WIDTHS: [u16; 3] = [60, 100, 200];
/// The plugins of the fixture: tools with and without capabilities.
const PLUGINS: [(&str, &str); 3] = [
    ("files", guest_artifacts::PLUGIN_FILES),
    ("hash", guest_artifacts::PLUGIN_HASH),
    ("text", guest_artifacts::PLUGIN_TEXT),
];

/// The names of measured values.
const MEASURED: [&str; 7] = [
    "median",
    "99 of 100 at most",
    "longest",
    "as one batch",
    "guest time of a call",
    "fuel of a call",
    "memory at most",
];

/// What a command printed.
struct Screen {
    code: i32,
    text: String,
}

/// A home directory with plugins and a policy.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new(policy: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Self { dir };
        for folder in ["project/notes", "plugins", ".config/toolbay"] {
            std::fs::create_dir_all(home.path(folder)).unwrap();
        }
        for (name, file) in PLUGINS {
            std::fs::copy(file, home.path("plugins").join(format!("{name}.wasm"))).unwrap();
        }
        let policy = format!("version = 1\nworkspace = \"{}\"\n{policy}", home.path("project").display());
        std::fs::write(home.path(".config/toolbay/toolbay.toml"), policy).unwrap();
        std::fs::write(home.path("project/notes/plan.md"), "# Plan\n").unwrap();
        home
    }

    /// Compiles the plugins: progress is not part of a snapshot.
    fn compile_plugins(&self) {
        self.command("toolbay list").output().unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command line in the home, without a terminal.
    fn command(&self, line: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_toolbay")).parent().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.path("project")).env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin", program.display())).env("HOME", self.dir.path());
        command.env("USER", "me").env("TERM", "xterm").env("NO_COLOR", "1").env("LANG", "C.UTF-8");
        command.env("TOOLBAY_PLUGINS", self.path("plugins"));
        command.env("TOOLBAY_CACHE", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-cache"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command line on a terminal; `input` is typed.
    fn on_terminal(&self, line: &str, columns: u16, input: &str) -> Screen {
        let answers: Vec<&str> = (!input.is_empty()).then_some(input).into_iter().collect();
        let (code, text) = pty::run(self.command(line), columns, &answers);
        // A cleared line is gone from the screen.
        let lines = text.lines().map(|line| line.rsplit("\r\u{1b}[K").next().unwrap());
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        Screen { code, text: self.normalize(&text) }
    }

    /// Runs a command line with pipes: stdout, then the lines of stderr behind `! `.
    fn in_pipe(&self, line: &str) -> Screen {
        let output = self.command(line).output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        let mut text = out;
        for line in err.lines() {
            writeln!(text, "! {line}").unwrap();
        }
        assert!(!text.contains('\u{1b}'), "{line}: a pipe gets no colour: {text:?}");
        Screen { code: output.status.code().unwrap(), text: self.normalize(&text) }
    }

    /// A C project of the plugin `text` whose build copies the component: no compiler runs.
    fn add_project(&self) {
        self.command("toolbay new text --lang c").output().unwrap();
        let script = format!(
            "import os, shutil, sys\nout = sys.argv[sys.argv.index('-o') + 1]\n\
             os.makedirs(os.path.dirname(out), exist_ok=True)\nshutil.copy({:?}, out)\n",
            guest_artifacts::PLUGIN_TEXT
        );
        std::fs::write(self.path("project/text/vendor/toolbay/build.py"), script).unwrap();
    }

    /// Replaces what differs from machine to machine.
    fn normalize(&self, text: &str) -> String {
        let home = self.dir.path().to_str().unwrap();
        // Whether a machine is quiet enough to compare its figures differs, too.
        let lines = text
            .lines()
            .filter(|line| !line.ends_with("do not compare these figures with those of another run"));
        let lines = lines.map(|line| {
            let line = mask_digests(&line.replace(home, "~"));
            // The sandbox and the memory are those of the machine, sizes those of the compiler.
            let key = line.trim_start_matches("! ").split_whitespace().next().unwrap_or_default();
            match key {
                "sandbox" => format!("{}…", line.split_at(line.find(key).unwrap() + key.len()).0),
                "code" | "size" | "section" | "audit" | "toolbay:readme" => mask_digits(&line),
                "text:" if line.contains("B, ") => mask_digits(&line),
                // A line of a server begins with the time.
                _ if key.ends_with('Z') && line.contains(": ") => line.replacen(key, &mask_digits(key), 1),
                _ if MEASURED.iter().any(|name| line.starts_with(name)) => mask_value(&line),
                // The time of a decision is today's, and the user that of the machine.
                _ if line.contains(" agreed to ") => mask_digits(&line),
                _ => line,
            }
        });
        lines.map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// Writes zeros for hexadecimal digests, whose lengths stay.
fn mask_digests(line: &str) -> String {
    let mut masked = String::new();
    let mut word = String::new();
    for c in line.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() {
            word.push(c);
            continue;
        }
        let is_digest = word.len() >= 12 && word.contains(|c: char| c.is_ascii_digit());
        if is_digest {
            masked.push_str(&"0".repeat(word.len()));
        } else {
            masked.push_str(&word);
        }
        word.clear();
        masked.push(c);
    }
    masked.pop();
    masked
}

fn mask_digits(line: &str) -> String {
    line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// Writes `…` for a measured value behind its name.
fn mask_value(line: &str) -> String {
    let end = line.find('\t').or_else(|| line.find("  ")).unwrap_or(line.len());
    let value = line[end..].trim_start();
    format!("{}…", &line[..line.len() - value.len()])
}

/// One step of a snapshot.
struct Step<'a> {
    line: &'a str,
    /// What is typed on the terminal.
    input: &'a str,
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(line: &'a str) -> Self {
        Self { line, input: "" }
    }
}

/// Runs the steps at each width and with pipes, in a fresh home each, and compares with `tests/terminal/NAME.txt`.
fn check<'a>(name: &str, policy: &str, steps: impl IntoIterator<Item = impl Into<Step<'a>>>) {
    let steps: Vec<Step<'a>> = steps.into_iter().map(Into::into).collect();
    check_prepared(name, policy, |_| {}, &steps);
}

fn check_prepared(name: &str, policy: &str, prepare: impl Fn(&Home), steps: &[Step<'_>]) {
    let homes: Vec<Home> = (0..=WIDTHS.len()).map(|_| Home::new(policy)).collect();
    homes[0].compile_plugins();
    homes.iter().for_each(&prepare);
    let mut text = String::new();
    for step in steps {
        let mut screens: Vec<(String, Screen)> = Vec::new();
        for (home, width) in homes.iter().zip(WIDTHS) {
            let screen = home.on_terminal(step.line, width, step.input);
            let fits = |line: &str| line.chars().count() <= usize::from(width);
            let is_table = |line: &str| line.contains("   ") && !line.starts_with("    ");
            let wide: Vec<&str> = screen.text.lines().filter(|line| is_table(line) && !fits(line)).collect();
            assert!(wide.is_empty(), "{name}: a table is wider than {width} columns: {wide:#?}");
            screens.push((format!("{width} columns"), screen));
        }
        screens.push(("pipe".to_owned(), homes[WIDTHS.len()].in_pipe(step.line)));
        writeln!(text, "$ {}", step.line).unwrap();
        for (index, (title, screen)) in screens.iter().enumerate() {
            let same = |other: &(String, Screen)| other.1.text == screen.text && other.1.code == screen.code;
            if screens[..index].iter().any(same) {
                continue;
            }
            let also = screens[index + 1..].iter().filter(|other| same(other));
            let titles: Vec<&str> =
                std::iter::once(title.as_str()).chain(also.map(|other| other.0.as_str())).collect();
            writeln!(text, "--- {} (exit code {})\n{}", titles.join(", "), screen.code, screen.text).unwrap();
        }
    }
    compare(name, &text);
}

fn compare(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/terminal").join(format!("{name}.txt"));
    if std::env::var_os("TOOLBAY_WRITE_DOCS").is_some() {
        std::fs::write(&file, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        expected,
        text,
        "`{}` differs; run this test with `TOOLBAY_WRITE_DOCS=1` to rewrite it",
        file.display()
    );
}

const GRANTED: &str = "[plugins.files.grant]\nfs_read = [\"$workspace\"]\n";

#[test]
fn list() {
    check("list", "", ["toolbay list", "toolbay list --all"]);
}

#[test]
fn list_without_plugins() {
    let prepare = |home: &Home| std::fs::remove_dir_all(home.path("plugins")).unwrap();
    let steps = ["toolbay list --plugins ../none", "env -u TOOLBAY_PLUGINS toolbay list"].map(Step::from);
    check_prepared("no_plugins", "", prepare, &steps);
}

#[test]
fn plugins_that_fail_to_load_are_one_line() {
    let prepare = |home: &Home| {
        for name in ["a", "b"] {
            std::fs::write(home.path("plugins").join(format!("{name}.wasm")), "junk").unwrap();
        }
    };
    let steps = ["toolbay search words", "toolbay status"].map(Step::from);
    check_prepared("failed_plugins", "", prepare, &steps);
}

#[test]
fn call() {
    check(
        "call",
        "[plugins.hash.limits]\nfuel = 20_000\n",
        [
            r#"toolbay call text__word_count '{"text": "to be or not to be"}'"#,
            r#"toolbay call files__read_file '{"path": "notes/plan.md"}'"#,
            "toolbay call text__word_cont '{}'",
            "toolbay call nobody__knows '{}'",
            r#"toolbay call hash__hash_text '{"text": "x", "algorithm": "sha256"}'"#,
            r#"toolbay call text__word_count '{"text": 5}'"#,
            "toolbay call text__word_count text=a",
        ],
    );
}

#[test]
fn call_beyond_the_grant() {
    check("call_beyond_grant", GRANTED, [r#"toolbay call files__read_file '{"path": "/etc/passwd"}'"#]);
}

#[test]
fn inspect() {
    check("inspect", GRANTED, ["toolbay inspect files", "toolbay inspect text", "toolbay inspect nobody"]);
}

#[test]
fn explain() {
    let refused = ["toolbay explain files__read_file", "toolbay explain text__word_cont"];
    check("explain", "", refused);
    check(
        "explain_granted",
        GRANTED,
        ["toolbay explain files__read_file", "toolbay explain text__word_count"],
    );
    check(
        "explain_limits",
        "[plugins.text.limits]\nfuel = 5_000_000\n",
        ["toolbay explain text__word_count --limits"],
    );
}

#[test]
fn grant_and_revoke() {
    let steps = [
        Step { line: "toolbay grant files", input: "n\n" },
        Step { line: "toolbay grant files --only fs_read --dry-run", input: "" },
        Step { line: "toolbay grant files --only fs_read --yes", input: "" },
        Step { line: "toolbay grant files --only fs_read --yes", input: "" },
        Step { line: "toolbay grant files --only fs_read,fs_write --dry-run --json", input: "" },
        Step { line: "cat ../.config/toolbay/toolbay.toml", input: "" },
        Step { line: "toolbay revoke files --dry-run", input: "" },
        Step { line: "toolbay grant text --yes", input: "" },
        Step { line: "toolbay revoke text --yes", input: "" },
    ];
    check_prepared("grant", "", |_| {}, &steps);
}

#[test]
fn status() {
    check("status", GRANTED, ["toolbay status", "toolbay status --tools"]);
}

/// A record of the audit at a fixed time.
fn records() -> String {
    let call = |time: &str, outcome: &str, tool: &str, micros: u64, more: &str| {
        format!(
            "{{\"kind\":\"call\",\"time\":\"2026-01-02T{time}Z\",\"tool\":\"{tool}\",\"platform\":\"cli\",\
             \"outcome\":\"{outcome}\",\"duration_us\":{micros}{more}}}\n"
        )
    };
    let denied = ",\"uses\":[{\"key\":\"fs_read\",\"what\":\"../secrets\",\"allowed\":false}],\"usage\":{}";
    let limit = ",\"limit\":{\"name\":\"timeout\",\"value\":\"30s\",\"setting\":\"[plugins.web.limits] timeout = …\"},\
                 \"session_id\":\"notes\",\"usage\":{}";
    [
        call("14:42:54.120000", "ok", "text__word_count", 7_240, ",\"usage\":{\"fuel\":12345}"),
        call("14:43:01.000000", "denied", "files__read_file", 120, denied),
        call("14:43:09.000000", "deadline", "web__fetch_url", 30_000_000, limit),
        "{\"kind\":\"grant\",\"time\":\"2026-01-02T14:43:10.000000Z\",\"event\":\"loaded\",\"plugin\":\"files\",\
         \"version\":\"0.1.1\",\"digest\":\"7a489e1139d97a48\"}\nnonsense\n"
            .to_owned(),
    ]
    .concat()
}

#[test]
fn log() {
    let prepare = |home: &Home| std::fs::write(home.path("project/audit.jsonl"), records()).unwrap();
    let steps = [
        "toolbay log --audit audit.jsonl",
        "toolbay log --audit audit.jsonl --failed --limit 1",
        "toolbay log --audit audit.jsonl --stats",
        "toolbay log",
    ];
    check_prepared("log", "", prepare, &steps.map(Step::from));
}

#[test]
fn policy_check() {
    let prepare = |home: &Home| {
        let policy = "version = 1\n\n[plugins.files.grnt]\nfs_read = []\n";
        std::fs::write(home.path("project/wrong.toml"), policy).unwrap();
        let policy = "version = 1\n\n[plugins.fils.grant]\nfs_read = []\n";
        std::fs::write(home.path("project/name.toml"), policy).unwrap();
    };
    let steps = [
        "toolbay policy check wrong.toml",
        "toolbay policy check name.toml",
        "toolbay policy check",
        "toolbay list --config wrong.toml",
    ];
    check_prepared("policy_check", "", prepare, &steps.map(Step::from));
}

#[test]
fn search_and_schemas() {
    check("search", "", ["toolbay search count words", "toolbay search zzzz"]);
    check(
        "schemas",
        "",
        ["toolbay schemas --format openai-chat text__word_count", "toolbay schemas --format mcp nobody"],
    );
}

#[test]
fn lists_that_are_empty() {
    check(
        "empty_lists",
        "",
        [
            "toolbay prompts",
            "toolbay resources",
            "toolbay mcp list",
            "toolbay openapi list",
            "toolbay output --session none",
            "toolbay kv list text",
            "toolbay kv usage",
            "toolbay kv get text nothing",
        ],
    );
}

#[test]
fn switches() {
    check(
        "switches",
        "",
        [
            "toolbay disable text__word_count --reason 'read-only week'",
            "toolbay list --all",
            "toolbay enable text__word_cont",
            "toolbay enable text__word_count",
            "toolbay enable text__word_count",
        ],
    );
}

#[test]
fn check_diff_and_docs() {
    let prepare = |home: &Home| std::fs::write(home.path("project/junk.wasm"), "junk").unwrap();
    let steps = [
        "toolbay check text files junk.wasm",
        "toolbay diff text hash",
        "toolbay diff text text",
        "toolbay new greetings --lang python",
        "toolbay new greetings --lang python",
        "toolbay build junk",
    ];
    check_prepared("check", "", prepare, &steps.map(Step::from));
}

#[test]
fn build_test_and_pack() {
    let steps = [
        "toolbay build text",
        "toolbay build text --replace",
        "toolbay test text",
        "toolbay pack text",
        "echo 'raise SystemExit(1)' > text/vendor/toolbay/build.py; toolbay build text",
    ];
    check_prepared("build", "", Home::add_project, &steps.map(Step::from));
}

#[test]
fn bench() {
    let steps = [
        r#"toolbay bench text__word_count '{"text": "a b"}' --calls 2"#,
        "toolbay bench text__word_count '{}' --calls 2",
    ];
    check("bench", "", steps);
}

/// The start of a server whose policy has a mistake and of whose plugins one is broken. Lists wait for the plugins.
#[test]
fn serve() {
    let prepare = |home: &Home| {
        std::fs::write(home.path("plugins/broken.wasm"), "junk").unwrap();
        let message = |more: &str| format!("{{\"jsonrpc\": \"2.0\", {more}}}\n");
        let requests = [
            message(
                r#""id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}"#,
            ),
            message(r#""method": "notifications/initialized""#),
            message(r#""id": 2, "method": "tools/list""#),
        ];
        std::fs::write(home.path("project/requests"), requests.concat()).unwrap();
    };
    let steps = ["toolbay serve < requests > answers", "toolbay serve --http nonsense"].map(Step::from);
    check_prepared("serve", "[plugins.fils.grant]\nfs_read = []\n", prepare, &steps);
}

#[test]
fn errors_in_json() {
    check(
        "json_errors",
        "",
        [
            "toolbay inspect nobody --json",
            "toolbay explain nobody --json",
            "toolbay list --json --profile none",
            "toolbay list --json --plugins ../none",
            "toolbay list --json --config ../none.toml",
            "toolbay list --json --frobnicate",
        ],
    );
}

#[test]
fn help_pages() {
    check("help", "", ["toolbay help", "toolbay call --help", "toolbay list -h", "toolbay frobnicate"]);
}

#[test]
fn a_terminal_gets_colours() {
    let home = Home::new("");
    home.compile_plugins();
    let screen = home.on_terminal("env -u NO_COLOR toolbay list", 100, "");
    assert!(screen.text.contains("\u{1b}["), "{}", screen.text);
}
