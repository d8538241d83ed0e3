//! The binary as people and scripts use it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::fixture::{compile_plugins, toolbay};

struct Cli {
    dir: tempfile::TempDir,
}

impl Cli {
    fn new(policy: &str) -> Self {
        compile_plugins();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let policy = format!("version = 1\nworkspace = \"work\"\n{policy}");
        std::fs::write(dir.path().join("toolbay.toml"), policy).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a plugin directory with these guests and a broken file.
    fn plugins(&self, guests: &[(&str, &str)]) -> String {
        let plugins = self.path("plugins");
        std::fs::create_dir(&plugins).unwrap();
        for (name, path) in guests {
            std::fs::copy(path, plugins.join(format!("{name}.wasm"))).unwrap();
        }
        std::fs::write(plugins.join("broken.wasm"), "junk").unwrap();
        plugins.to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = toolbay(self.dir.path());
        command
            .args(args)
            .env("TOOLBAY_PLUGINS", guest_artifacts::plugins_dir())
            .env("TOOLBAY_CONFIG", self.path("toolbay.toml"))
            .env("TOOLBAY_STATE", self.path("state"))
            .env("CANARY_SECRET", "canary-5c1f")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn run_with(&self, args: &[&str], input: &str) -> Output {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn object(output: &Output) -> Value {
    serde_json::from_str(&out(output)).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn list_is_plain_when_piped_and_sorted() {
    let cli = Cli::new("");
    let listed = cli.run(&["list"]);
    assert_eq!(code(&listed), 0, "{listed:?}");
    let text = out(&listed);
    let names: Vec<_> = text.lines().map(|l| l.split_once('\t').unwrap().0).collect();
    assert!(names.is_sorted() && names.contains(&"text__word_count") && !text.contains('\u{1b}'), "{text}");
    assert!(!names.contains(&"files__read_file"), "what needs a grant is not listed");
    assert!(err(&listed).contains("list --all"));
    let all = out(&cli.run(&["list", "--all"]));
    assert!(all.contains("files__read_file\tneeds fs_read"), "{all}");
    let definitions = object(&cli.run(&["list", "--json"]));
    let count = definitions.as_array().unwrap().iter().find(|d| d["name"] == "text__word_count").unwrap();
    assert_eq!(count["input_schema"]["required"], json!(["text"]));
    assert_eq!(count["source"]["id"], "text");
}

#[test]
fn prompts_and_resources_are_listed() {
    let cli = Cli::new("[profile.none]\ntools = []\n");
    let plugins = cli.plugins(&[("e", guest_artifacts::API_EVERYTHING)]);
    let lines = |args: &[&str]| {
        let output = cli.run(&[args, &["--plugins", &plugins]].concat());
        assert_eq!(code(&output), 0, "{output:?}");
        out(&output)
    };
    let prompts = lines(&["prompts"]);
    let names: Vec<_> = prompts.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert!(
        !names.is_empty() && names.is_sorted() && names.iter().all(|name| name.starts_with("e__")),
        "{prompts}"
    );
    assert!(prompts.lines().all(|line| line.matches('\t').count() == 2), "{prompts}");
    let values: Value = serde_json::from_str(&lines(&["prompts", "--json"])).unwrap();
    let values = values.as_array().unwrap();
    assert_eq!(values.iter().map(|one| one["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    assert!(values.iter().any(|one| one["arguments"][0]["required"] == true), "{values:?}");

    let resources = lines(&["resources"]);
    assert!(resources.lines().all(|line| line.starts_with("toolbay://plugin/e/")), "{resources}");
    assert!(resources.contains("bytes\t") && resources.contains("template\t"), "{resources}");
    let values: Value = serde_json::from_str(&lines(&["resources", "--json"])).unwrap();
    assert_eq!(values.as_array().unwrap().len(), resources.lines().count());
    // A client sees only those of plugins with a callable tool.
    assert_eq!(lines(&["prompts", "--profile", "none"]), "");
}

#[test]
fn call_takes_arguments_in_every_way() {
    let cli = Cli::new("");
    let file = cli.path("args.json");
    std::fs::write(&file, r#"{"text": "a b a"}"#).unwrap();
    for output in [
        cli.run(&["call", "text__word_count", r#"{"text": "a b a"}"#]),
        cli.run(&["call", "text__word_count", "--args-file", file.to_str().unwrap()]),
        cli.run_with(&["call", "text__word_count", "-"], r#"{"text": "a b a"}"#),
        cli.run_with(&["call", "text__word_count", "--args-file", "-"], r#"{"text": "a b a"}"#),
    ] {
        assert_eq!(code(&output), 0, "{output:?}");
        assert!(out(&output).contains("\"words\":3"), "{output:?}");
    }
    let full = object(&cli.run(&["call", "text__word_count", r#"{"text": "a"}"#, "--json"]));
    assert_eq!((&full["ok"], &full["outcome"]), (&json!(true), &json!("ok")));
    assert!(full["usage"]["fuel"].as_u64().unwrap() > 0);
    assert!(full["usage"]["peak_memory_bytes"].as_u64().unwrap() > 0);
    let dry = out(&cli.run(&["call", "text__word_count", r#"{"text": "a"}"#, "--dry-run"]));
    assert_eq!(dry, "[dry-run] text__word_count would be called with: {\"text\":\"a\"}\n");
    let long = json!({"text": "word ".repeat(500), "pattern": "nothing", "replacement": ""}).to_string();
    let cut = out(&cli.run(&["call", "text__replace", &long, "--budget", "60"]));
    assert!(cut.trim_end().ends_with("chars total]") && cut.trim_end().chars().count() <= 60, "{cut}");
}

/// A policy removes the fuel limit of one plugin: every command that shows fuel reports it.
#[test]
fn uncounted_fuel_is_reported_by_each_command() {
    let cli = Cli::new("[plugins.text.limits]\nfuel = \"none\"");
    let full = object(&cli.run(&["call", "text__word_count", r#"{"text": "a"}"#, "--json"]));
    assert_eq!((&full["ok"], full["usage"].get("fuel")), (&json!(true), None), "{full}");
    let explained = out(&cli.run(&["explain", "text__word_count", "--limits"]));
    assert!(explained.contains("none") && explained.contains("[plugins.text.limits] fuel"), "{explained}");
    let status = out(&cli.run(&["status"]));
    let line = status.lines().find_map(|line| line.strip_prefix("not-counted\t")).unwrap();
    assert!(line.contains("text__word_count") && !line.contains("hash__"), "{line}");
    assert!(out(&cli.run(&["inspect", "text"])).contains("not counted"));
    assert!(!out(&cli.run(&["inspect", "hash"])).contains("not counted"));
    assert!(object(&cli.run(&["inspect", "text", "--json"]))["fuel"].is_null());
}

#[test]
fn exit_codes_separate_tool_usage_and_host_errors() {
    let cli = Cli::new("[plugins.hash.limits]\nfuel = 20_000");
    for (args, expect, part) in [
        (vec!["call", "text__word_count", r#"{"text": 5}"#], 1, "/text"),
        (vec!["call", "text__word_count", "text=a"], 1, "not valid JSON"),
        (vec!["call", "nobody__knows"], 1, "there is no tool `nobody__knows`"),
        (
            vec!["call", "files__read_file", r#"{"path": "x"}"#],
            1,
            "[plugins.files.grant]\n        fs_read = [\"$workspace\"]",
        ),
        (
            vec!["call", "hash__hash_text", r#"{"text": "x", "algorithm": "sha256"}"#],
            1,
            "[plugins.hash.limits]\n        fuel = 40_000",
        ),
        (vec!["call"], 2, "Usage"),
        (vec!["frobnicate"], 2, "frobnicate"),
        (vec!["call", "text__word_count", "--args-file", "/no/such/file"], 2, "/no/such/file"),
        (vec!["list", "--config", "/no/such/policy"], 2, "/no/such/policy"),
        (vec!["list", "--log", "a=b=c"], 2, "--log"),
        (vec!["batch", "/no/such/batch"], 2, "/no/such/batch"),
        (vec!["list", "--plugins", "/no/such/dir"], 1, "/no/such/dir"),
    ] {
        let output = cli.run(&args);
        assert_eq!(code(&output), expect, "{args:?}: {output:?}");
        assert!(err(&output).contains(part), "{args:?}: {output:?}");
        assert_eq!(out(&output), "", "{args:?}");
        assert!(!err(&output).contains("panicked"), "{args:?}");
    }
    std::fs::write(cli.path("toolbay.toml"), "version = 1\n[plugins.x.grant]\nnets = [\"https://a\"]")
        .unwrap();
    let policy = cli.run(&["list"]);
    assert_eq!(code(&policy), 2);
    assert!(
        err(&policy).contains("toolbay.toml:3:1") && err(&policy).contains("unknown key `nets`"),
        "{policy:?}"
    );
}

#[test]
fn batch_runs_all_and_keeps_the_order() {
    let cli = Cli::new("");
    let lines = concat!(
        "{\"id\": \"b\", \"tool\": \"text__word_count\", \"args\": {\"text\": \"x y\"}}\n\n",
        "{\"tool\": \"nobody__knows\"}\n",
        "{\"id\": \"a\", \"tool\": \"hash__hash_text\", \"args\": {\"text\": \"abc\", \"algorithm\": \"crc32\"}}\n",
    );
    let output = cli.run_with(&["batch", "-"], lines);
    assert_eq!(code(&output), 1, "{output:?}");
    let results: Vec<Value> = out(&output).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let seen: Vec<_> =
        results.iter().map(|r| (r["id"].as_str().unwrap(), r["outcome"].as_str().unwrap())).collect();
    assert_eq!(seen, [("b", "ok"), ("2", "not_available"), ("a", "ok")]);
    let bad = cli.run_with(&["batch", "-"], "{\"tool\": \"a\"}\nnonsense\n");
    assert_eq!(code(&bad), 2);
    assert!(err(&bad).contains("line 2"), "{bad:?}");
    assert_eq!(code(&cli.run_with(&["batch", "-"], "")), 0);
}

#[test]
fn inspect_and_check_describe_a_plugin() {
    let cli = Cli::new("[plugins.files.grant]\nfs_read = [\"$workspace\"]");
    let shown = out(&cli.run(&["inspect", "files"]));
    for part in [
        "files__read_file\tready",
        "fs_read\t**\tread_file\t$workspace",
        "needs fs_write",
        "sha256",
        "Apache-2.0",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let info = object(&cli.run(&["inspect", guest_artifacts::PLUGIN_TEXT, "--json"]));
    assert_eq!((&info["id"], &info["capabilities"]), (&json!("text"), &json!([])));
    assert_eq!(code(&cli.run(&["inspect", "nobody"])), 1);

    let junk = cli.path("junk.wasm");
    std::fs::write(&junk, "junk").unwrap();
    let good = cli.run(&["check", "text", guest_artifacts::PLUGIN_HASH]);
    assert_eq!(code(&good), 0, "{good:?}");
    let bad = cli.run(&["check", "text", junk.to_str().unwrap(), guest_artifacts::HOSTILE_METADATA_SPIN]);
    assert_eq!(code(&bad), 1, "{bad:?}");
    assert!(out(&bad).contains("is not WebAssembly") && out(&bad).contains("fuel"), "{bad:?}");
}

#[test]
fn guest_output_stays_off_stdout_and_secrets_stay_out_of_the_guest() {
    let cli = Cli::new("");
    let dir =
        cli.plugins(&[("loud", guest_artifacts::HOSTILE_STDOUT), ("env", guest_artifacts::HOSTILE_ENV)]);
    let loud = cli.run(&["call", "loud__all", "{}", "--plugins", &dir]);
    assert_eq!((code(&loud), out(&loud).as_str()), (0, "done\n"), "{loud:?}");
    // A slow machine reports that it compiles.
    let others: Vec<String> =
        err(&loud).lines().filter(|line| !line.contains("ompil")).map(str::to_owned).collect();
    assert!(others.is_empty(), "a broken plugin is reported by `list`, not by a call: {others:?}");
    let listed = cli.run(&["list", "--plugins", &dir]);
    let broken = err(&listed).lines().filter(|line| line.contains("broken.wasm: is not WebAssembly")).count();
    assert!(broken == 1 && err(&listed).contains("warning: "), "{listed:?}");
    let logged = cli.run(&["call", "loud__all", "{}", "--plugins", &dir, "--log", "info"]);
    assert_eq!(out(&logged), "done\n");
    assert!(err(&logged).contains("forged") && !err(&logged).contains('\u{1b}'), "escaped, and in the log");
    assert!(err(&logged).len() < 2 << 20, "bounded: {}", err(&logged).len());
    let env = cli.run(&["call", "env__look", "{}", "--plugins", &dir, "--json"]);
    assert!(!out(&env).contains("canary-5c1f") && !err(&env).contains("canary-5c1f"));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let cli = Cli::new("");
    let mut child =
        cli.command(&["list", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!err(&output).contains("panicked"), "{output:?}");
    assert_eq!(code(&output), 0, "{output:?}");
}

#[test]
fn audit_lines_are_appended_without_arguments() {
    let cli = Cli::new("");
    let audit = cli.path("audit.jsonl");
    for _ in 0..2 {
        let args = r#"{"text": "canary-5c1f"}"#;
        cli.run(&["call", "text__word_count", args, "--audit", audit.to_str().unwrap()]);
    }
    let text = std::fs::read_to_string(&audit).unwrap();
    let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let lines: Vec<Value> = lines.filter(|record| record["kind"] == "call").collect();
    assert_eq!((lines.len(), &lines[0]["outcome"]), (2, &json!("ok")));
    assert!(!text.contains("canary-5c1f"));
    assert!(!cli.path("state/audit.jsonl").exists());
    cli.run(&["call", "text__word_count", "{}", "--no-audit"]);
    assert!(!cli.path("state/audit.jsonl").exists());
    cli.run(&["call", "text__word_count", "{}"]);
    let text = std::fs::read_to_string(cli.path("state/audit.jsonl")).unwrap();
    assert!(text.contains(r#""outcome":"input_invalid""#), "{text}");
    let bad = cli.run(&["call", "text__word_count", "{}", "--audit", "/no/such/folder/audit"]);
    assert!(code(&bad) == 1 && err(&bad).contains("--no-audit"), "{bad:?}");
    std::os::unix::fs::symlink(&audit, cli.path("link")).unwrap();
    let link = cli.path("link");
    let bad = cli.run(&["call", "text__word_count", "{}", "--audit", link.to_str().unwrap()]);
    assert!(code(&bad) == 1 && err(&bad).contains("is a symbolic link"), "{bad:?}");
}

#[test]
fn a_plugin_that_did_not_change_is_recorded_once() {
    let cli = Cli::new("");
    let loaded = || {
        let text = std::fs::read_to_string(cli.path("state/audit.jsonl")).unwrap();
        text.lines().filter(|line| line.contains(r#""event":"loaded""#)).count()
    };
    cli.run(&["call", "text__word_count", r#"{"text": "a"}"#]);
    let first = loaded();
    for _ in 0..3 {
        cli.run(&["call", "text__word_count", r#"{"text": "a"}"#]);
    }
    assert_eq!(loaded(), first);
    assert!(first > 0);
}

#[test]
fn a_policy_that_requires_the_audit_refuses_to_run_without_one() {
    let cli = Cli::new("[audit]\nrequired = true\n");
    let args = r#"{"text": "a"}"#;
    let none = cli.run(&["call", "text__word_count", args, "--no-audit"]);
    assert!(code(&none) == 2 && err(&none).contains("required = true"), "{none:?}");
    let full = cli.run(&["call", "text__word_count", args, "--audit", "/dev/full"]);
    assert!(code(&full) == 3 && err(&full).contains("cannot be recorded"), "{full:?}");
    assert_eq!(code(&cli.run(&["call", "text__word_count", args])), 0);
    let cli = Cli::new("");
    let full = cli.run(&["call", "text__word_count", args, "--audit", "/dev/full"]);
    assert!(code(&full) == 0 && err(&full).contains("the audit cannot be written"), "{full:?}");
}

#[test]
fn serve_speaks_protocol_and_nothing_else() {
    let cli = Cli::new("");
    let plugins = cli.plugins(&[("loud", guest_artifacts::HOSTILE_STDOUT)]);
    let client = json!({"name": "t", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let requests = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "loud__all", "arguments": {}}}),
    ];
    let input: String = requests.iter().map(|r| format!("{r}\n")).collect();
    let twice = cli.run(&["serve", &plugins, "--plugins", &plugins]);
    assert_eq!(code(&twice), 2, "{twice:?}");
    let output = cli.run_with(&["serve", &plugins], &input);
    assert_eq!(code(&output), 0, "{output:?}");
    let answers: Vec<Value> =
        out(&output).lines().map(|l| serde_json::from_str(l).expect("only JSON on stdout")).collect();
    let mut ids: Vec<_> =
        answers.iter().map(|a| a["id"].as_i64().expect("only answers to what was asked")).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3], "{answers:?}");
    let call = answers.iter().find(|a| a["id"] == 3).unwrap();
    assert_eq!(call["result"]["content"][0]["text"], "done");
}

#[test]
fn only_the_command_line_opens_protected_paths() {
    let cli = Cli::new(
        "[plugins.files.grant]\nfs_read = [\"$workspace/../home\", \"$workspace/../home/.ssh\"]\nfs_write = [\"$workspace/..\"]",
    );
    std::fs::create_dir_all(cli.path("home/.ssh")).unwrap();
    std::fs::write(cli.path("home/.ssh/id"), "canary").unwrap();
    let run = |args: &[&str]| cli.command(args).env("HOME", cli.path("home")).output().unwrap();
    let read = ["call", "files__read_file", r#"{"path": "../home/.ssh/id"}"#];
    let refused = run(&read);
    assert_eq!(code(&refused), 1);
    assert!(
        err(&refused).contains("--allow-protected-path") && !out(&refused).contains("canary"),
        "{refused:?}"
    );
    let place = cli.path("home/.ssh");
    let opened = run(&[read.as_slice(), &["--allow-protected-path", place.to_str().unwrap()]].concat());
    assert!(out(&opened).contains("canary"), "{opened:?}");
    // The policy file is protected wherever it is.
    let rewrite = r#"{"path": "../toolbay.toml", "content": "version = 1"}"#;
    let rewritten =
        run(&["call", "files__write_file", rewrite, "--allow-protected-path", place.to_str().unwrap()]);
    assert_eq!(code(&rewritten), 1, "{rewritten:?}");
    assert!(std::fs::read_to_string(cli.path("toolbay.toml")).unwrap().contains("plugins.files"));
}

#[test]
fn search_finds_what_can_be_called() {
    let cli = Cli::new("");
    let found = cli.run(&["search", "count", "words"]);
    assert_eq!(code(&found), 0, "{found:?}");
    assert!(out(&found).starts_with("text__word_count\t"), "{found:?}");
    let one = cli.run(&["search", "text", "--limit", "1"]);
    assert_eq!(out(&one).lines().count(), 1);
    let exact = object(&cli.run(&["search", "Text/Word-Count", "--json"]));
    assert_eq!(
        (&exact["tools"][0]["name"], &exact["tools"][0]["score"]),
        (&json!("text__word_count"), &json!(1.0))
    );
    assert!(
        exact["tools"][0]["schema"]["properties"].is_object()
            && exact["tools"].as_array().unwrap().len() == 1
    );
    let nothing = cli.run(&["search", "xyzzy", "--json"]);
    assert_eq!((code(&nothing), &object(&nothing)["tools"]), (1, &json!([])));
    assert!(
        !out(&cli.run(&["search", "read a file from disk"])).contains("files__read_file"),
        "it has no grant"
    );
    for wrong in [&["search", " ?! "][..], &["search", "x", "--limit", "0"], &["search"]] {
        assert_eq!(code(&cli.run(wrong)), 2, "{wrong:?}");
    }
}

#[test]
fn schemas_are_printed_in_each_format() {
    let cli = Cli::new("");
    for (format, pointer) in [
        ("openai-chat", "/0/function/parameters"),
        ("openai-responses", "/0/parameters"),
        ("anthropic", "/0/input_schema"),
        ("gemini", "/0/functionDeclarations/0/parametersJsonSchema"),
        ("mcp", "/0/inputSchema"),
    ] {
        let one = object(&cli.run(&["schemas", "--format", format, "text__word_count"]));
        assert_eq!(one.pointer(pointer).unwrap()["required"], json!(["text"]), "{format}");
        let all = object(&cli.run(&["schemas", "--format", format]));
        assert!(all.to_string().contains("text__grep"), "{format}");
        let report = object(&cli.run(&["schemas", "--format", format, "--report"]));
        assert!(report["tools"].is_array() && report["lost"].is_array() && report["not_strict"] == json!([]));
    }
    let strict = cli.run(&["schemas", "--format", "anthropic", "--strict", "text__word_count"]);
    assert_eq!(code(&strict), 0);
    assert!(err(&strict).contains("text__word_count: not strict"), "{strict:?}");
    for (args, expected) in [
        (&["schemas", "--format", "gemini", "--strict"][..], 2),
        (&["schemas", "--format", "openai"], 2),
        (&["schemas"], 0),
        (&["schemas", "--format", "mcp", "text__nothing", "files__read_file"], 1),
        (&["schemas", "--tag", "regx"], 1),
        (&["schemas", "--exclude-tag", "regx"], 1),
        (&["schemas", "--tag", "regex", "text__word_count"], 2),
    ] {
        assert_eq!(code(&cli.run(args)), expected, "{args:?}");
    }
    assert!(err(&cli.run(&["schemas", "--tag", "regx"])).contains("did you mean `regex`"));
    for (args, names) in [
        (&["--tag", "edit"][..], &["text__replace"][..]),
        (&["--tag", "edit", "--tag", "regex", "--all-tags"], &["text__replace"]),
        (&["--tag", "edit", "--tag", "compare"], &["text__diff", "text__replace"]),
        (&["--tag", "edit", "--tag", "compare", "--exclude-tag", "edit"], &["text__diff"]),
        (&["--tag", "edit", "--tag", "compare", "--all-tags"], &[]),
    ] {
        let tools = object(&cli.run(&[&["schemas"], args].concat()));
        let found: Vec<&str> =
            tools.as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{args:?}");
    }
    let missing = err(&cli.run(&["schemas", "--format", "mcp", "text__nothing", "files__read_file"]));
    assert!(missing.contains("there is no tool `text__nothing`") && missing.contains("fs_read"), "{missing}");
}

#[test]
fn diff_shows_the_impact_of_a_new_version() {
    let cli = Cli::new("");
    let same = cli.run(&["diff", "text", "text"]);
    assert_eq!((code(&same), out(&same).as_str()), (0, "impact\tcompatible\n"), "{same:?}");
    let other = cli.run(&["diff", "text", "hash"]);
    assert_eq!(code(&other), 1);
    let text = out(&other);
    assert!(
        text.contains("tool removed") && text.contains("word_count") && text.contains("breaking"),
        "{text}"
    );
    assert!(text.contains("capability added\tfs-read of **"), "{text}");
    let report = object(&cli.run(&["diff", "text", "hash", "--json"]));
    assert_eq!(report["impact"], "breaking");
    assert_eq!(report["capabilities_added"][0]["kind"], "fs-read");
    assert!(report["added"].as_array().unwrap().contains(&json!("hash_file")), "{report}");
    let back = object(&cli.run(&["diff", "hash", "text", "--json"]));
    assert_eq!(back["capabilities_removed"], report["capabilities_added"]);
    // A copy of a component has no differences.
    let plugins = Path::new(guest_artifacts::plugins_dir()).join("text.wasm");
    let copy = cli.path("text-2.wasm");
    std::fs::copy(&plugins, &copy).unwrap();
    let copied = cli.run(&["diff", plugins.to_str().unwrap(), copy.to_str().unwrap()]);
    assert_eq!(code(&copied), 0, "{copied:?}");
    std::fs::write(&copy, "junk").unwrap();
    for wrong in [["diff", "text", "nobody"], ["diff", "text", copy.to_str().unwrap()]] {
        let refused = cli.run(&wrong);
        assert_eq!((code(&refused), out(&refused).as_str()), (1, ""), "{refused:?}");
    }
}

#[test]
fn a_benchmark_reports_the_load_of_the_machine() {
    let cli = Cli::new("");
    let done = cli.run(&["bench", "text__word_count", r#"{"text": "a b"}"#, "--calls", "20", "--json"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let told: Value = serde_json::from_str(&out(&done)).unwrap();
    assert_eq!((&told["calls"], &told["tool"]), (&json!(20), &json!("text__word_count")));
    let quiet = told["load"].as_f64().zip(told["stolen_percent"].as_f64());
    let quiet = quiet.is_some_and(|(load, stolen)| load <= 0.7 && stolen <= 2.0);
    assert_eq!(told["comparable"], json!(quiet), "{told}");
    if told["load"].is_number() {
        assert_eq!(err(&done).contains("do not compare these figures"), !quiet, "{}", err(&done));
    }
}

#[test]
fn the_version_names_the_commit_of_a_checkout() {
    let cli = Cli::new("");
    let version = out(&cli.run(&["--version"]));
    let commit = version.lines().find_map(|line| line.strip_prefix("commit ")).unwrap().trim();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists();
    let is_hash = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    assert_eq!(is_hash, checkout, "{version}");
}
