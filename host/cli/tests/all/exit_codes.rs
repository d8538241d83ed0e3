//! The exit codes of all commands, as the table of `docs/reference/cli.md` has them.
//!
//! The same kind of outcome has the same code in every command. The commands come from the help, so that a new one must say
//! here what it does with a name that does not exist.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::fixture::HostFolder;

/// What each command does with a name that does not exist: code 1. A command stands here once for each kind of name.
const UNKNOWN_NAMES: &[&[&str]] = &[
    &["list", "--profile", "nope"],
    &["search", "xyzzy"],
    &["call", "nope__x"],
    &["batch", "unknown-tool.jsonl"],
    &["bench", "nope__x", "{}"],
    &["output", "--session", "nope"],
    &["output", "--session", "nope", "id"],
    &["prompts", "--profile", "nope"],
    &["resources", "--profile", "nope"],
    &["schemas", "nope__x"],
    &["schemas", "--tag", "nope"],
    &["explain", "nope__x"],
    &["grant", "nope", "--yes"],
    &["grant", "nope"],
    &["grant", "text", "--yes", "--tool", "nope"],
    &["revoke", "nope", "--yes"],
    &["revoke", "nope"],
    &["enable", "nope__x"],
    &["enable", "--namespace", "nope"],
    &["disable", "nope__x"],
    &["disable", "--tag", "nope"],
    &["inspect", "nope"],
    &["inspect", "nope.wasm"],
    &["serve", "--profile", "nope"],
    &["setup", "cursor", "--profile", "nope"],
    &["mcp", "check", "nope"],
    &["mcp", "remove", "nope"],
    &["mcp", "login", "nope"],
    &["mcp", "logout", "nope"],
    &["openapi", "remove", "nope", "--yes"],
    &["openapi", "remove", "nope"],
    &["cancel", "4711-1"],
    &["log", "--tool", "never__x"],
    &["log", "--plugin", "nope"],
    &["log", "--session", "nope"],
    &["log", "--outcome", "nosuch"],
    &["log", "--client", "nosuch"],
    &["log", "--profile", "nosuch"],
    &["kv", "list", "nope"],
    &["kv", "get", "nope", "key"],
    &["kv", "get", "text", "key"],
    &["kv", "remove", "nope", "key"],
    &["kv", "clear", "nope"],
    &["update", "nope"],
    &["export", "out.tar", "nope"],
    &["check", "nope"],
    &["diff", "text", "nope"],
    &["diff", "nope", "text"],
    &["docs", "nope"],
    &["push", "registry.example/acme/x:1", "nope.wasm", "--dry-run"],
];

/// Commands without a name of something that could be missing, each with the reason.
const WITHOUT_NAMES: &[(&str, &str)] = &[
    ("policy check", "it names a file"),
    ("policy schema", "it only prints"),
    ("setup claude-desktop", "as `setup cursor`"),
    ("setup claude-code", "as `setup cursor`"),
    ("setup vscode", "as `setup cursor`"),
    ("setup zed", "as `setup cursor`"),
    ("setup codex", "as `setup cursor`"),
    ("setup server-json", "it only prints"),
    ("setup mcpb", "it writes a file"),
    ("mcp add", "it names something new"),
    ("mcp list", "it lists"),
    ("openapi add", "it names something new"),
    ("openapi check", "it names a file"),
    ("openapi list", "it lists"),
    ("shared publish", "it needs a shared state"),
    ("shared status", "it needs a shared state"),
    ("shared permissions", "it needs a shared state"),
    ("status", "it lists"),
    ("ps", "it lists"),
    ("stop", "it stops all"),
    ("resume", "it resumes all"),
    ("kv usage", "it lists"),
    ("kv backup", "it names something new"),
    ("backup", "it names something new"),
    ("restore", "it names a folder"),
    ("add", "it asks a registry"),
    ("fetch", "it takes the whole lock"),
    ("verify", "it takes the whole lock"),
    ("outdated", "it takes the whole lock"),
    ("import", "it names a file"),
    ("gc", "it takes the whole store"),
    ("new", "it names something new"),
    ("build", "it names a folder"),
    ("test", "it names a folder"),
    ("dev", "it names a folder"),
    ("pack", "it names a folder"),
    ("key new", "it names something new"),
    ("key show", "it names a file"),
    ("man", "it names a folder"),
    ("completions", "its names are those of the command line"),
    ("help", "its names are those of the command line"),
];

/// What is wrong with the words or with a file that they name: code 2.
const WRONG: &[&[&str]] = &[
    &["call", "text__word_count", "--args-file", "nope.json"],
    &["batch", "nope.jsonl"],
    &["batch", "wrong.jsonl"],
    &["policy", "check", "nope.toml"],
    &["policy", "check", "wrong.toml"],
    &["policy", "check", "warning.toml", "--strict"],
    &["call", "text__word_count", "--attach", "nope"],
    &["bench", "text__word_count", "--args-file", "nope.json"],
    &["list", "--workspace", "nope"],
    &["mcp", "add", "new", "https://new.example/mcp", "--ca", "nope.pem"],
    &["openapi", "check", "whole.json", "--ca", "nope.pem"],
    &["push", "registry.example/acme/x:1", "nope.wasm", "--sign", "nope.key"],
    &["push", "registry.example/acme/x:1", "nope.wasm", "--bundle", "nope.json"],
    &["setup", "server-json", "--name", "a/b", "--url", "https://a.example/x", "--bundle", "nope.mcpb"],
    &["setup", "cursor", "--write", "--file", "wrong.jsonl"],
    &["serve", "--http", "0", "--config", "tokens.toml"],
    &["serve", "--http", "0", "--config", "admin.toml"],
    &["list", "--config", "nope.toml"],
    &["list", "--config", "wrong.toml"],
    &["openapi", "check", "nope.json"],
    &["key", "show", "nope.pub"],
    &["fetch", "--config", "locked/toolbay.toml"],
    &["verify", "--config", "locked/toolbay.toml"],
    &["outdated", "--config", "locked/toolbay.toml"],
    &["update", "--config", "locked/toolbay.toml"],
    &["list", "--config", "locked/toolbay.toml"],
    &["build", "nope"],
    &["test", "nope"],
    &["pack", "nope"],
    &["dev", "nope"],
    &["schemas", "--format", "nope"],
    &["completions", "nope"],
    &["log", "--since", "yesterday"],
    &["shared", "status"],
    &["kv", "get", "text", "key", "--scope", "nope"],
];

/// Commands that would make what is there already: code 1.
const EXISTING: &[&[&str]] = &[
    &["new", "there"],
    &["key", "new", "there.key"],
    &["kv", "backup", "there.redb"],
    &["backup", "there"],
    &["mcp", "add", "there", "https://there.example/mcp"],
    &["openapi", "add", "pets", "pets.json", "--yes"],
];

/// Commands that read a whole file or folder that is not there: code 1.
const MISSING: &[&[&str]] = &[
    &["import", "nope.tar"],
    &["restore", "nope"],
    &["restore", "there"],
    &["list", "--plugins", "nope"],
    &["list", "--plugins", "there.key"],
];

/// Where a command cannot write, because a file is where a folder should be: code 1.
const UNWRITABLE: &[&[&str]] = &[
    &["docs", "text", "--out", "there.key"],
    &["man", "there.key"],
    &["call", "text__word_count", "{\"text\": \"a\"}", "--save-attachments", "there.key"],
    &["call", "text__word_count", "{\"text\": \"a\"}", "--audit", "there.key/a"],
    &["kv", "backup", "there.key/a"],
    &["backup", "there.key/a"],
    &["new", "nope/a"],
    &["new", "there.key/a"],
    &["key", "new", "there.key/a"],
    &["setup", "mcpb", "there.key/a"],
    &["setup", "cursor", "--write", "--file", "/proc/nope/mcp.json"],
    &["mcp", "add", "new", "https://new.example/mcp", "--config", "/proc/nope/toolbay.toml"],
    &["openapi", "add", "new", "whole.json", "--yes", "--config", "/proc/nope/toolbay.toml"],
];

/// Commands that show something, or say what they would do, without any problem: code 0.
const GOOD: &[&[&str]] = &[
    &["policy", "schema"],
    &["policy", "check"],
    &["mcp", "list"],
    &["openapi", "list"],
    &["openapi", "check", "whole.json"],
    &["status"],
    &["ps"],
    &["stop"],
    &["resume"],
    &["kv", "usage"],
    &["setup", "server-json"],
    &["setup", "claude-desktop"],
    &["setup", "claude-code"],
    &["setup", "vscode"],
    &["setup", "zed"],
    &["setup", "codex"],
    &["completions", "bash"],
    &["help"],
];

/// Checks that find something to warn about. It fails no command; `policy check --strict` has code 2.
const WARNINGS: &[&[&str]] = &[
    &["policy", "check", "warning.toml"],
    &["openapi", "check", "whole.json", "--include", "GET", "--include", "DELETE"],
    &["check", "text", "--config", "warning.toml"],
    &["list", "--config", "warning.toml"],
];

/// A folder with a plugin, a policy, and files that commands name.
fn folder() -> HostFolder {
    let sections = "[mcp.there]\ncommand = [\"/bin/false\"]\n[openapi.pets]\ndocument = \"work/pets.json\"\n";
    let folder = HostFolder::new(sections).with_plugin("text", guest_artifacts::PLUGIN_TEXT);
    let write = |name: &str, text: &str| fs::write(folder.path("work").join(name), text).unwrap();
    write(
        "pets.json",
        "{\"openapi\": \"3.1.0\", \"info\": {\"title\": \"pets\", \"version\": \"1\"}, \"paths\": {}}",
    );
    let whole = json!({"openapi": "3.1.0", "info": {"title": "whole", "version": "1"}, "servers": [{"url": "https://a.example"}],
        "paths": {"/a": {"get": {"operationId": "a", "responses": {}}}}});
    write("whole.json", &whole.to_string());
    write("warning.toml", "version = 1\n[plugins.txet.grant]\nclock = true\n");
    write("tokens.toml", "version = 1\n[serve]\ntokens = \"nope.toml\"\n");
    write("admin.toml", "version = 1\n[admin]\nlisten = \"127.0.0.1:0\"\ntokens = \"nope.toml\"\n");
    write("wrong.toml", "version = 1\nnope = 1\n");
    write("wrong.jsonl", "{\n");
    write("unknown-tool.jsonl", "{\"tool\": \"nope__x\"}\n");
    write("there.key", "");
    write("there.redb", "");
    fs::create_dir(folder.path("work/there")).unwrap();
    fs::create_dir(folder.path("work/locked")).unwrap();
    write("locked/toolbay.toml", "version = 1\n");
    write("locked/toolbay.lock", "nope");
    // The audit has a record, so that its filters have something to compare.
    folder.good(&["call", "text__word_count", "{\"text\": \"a\"}"]);
    folder
}

/// All commands, from the help: `mcp add`.
fn commands(folder: &HostFolder) -> BTreeSet<String> {
    let names = |text: &str, from: &str| -> Vec<String> {
        let (_, list) = text.split_once(from).unwrap_or_else(|| panic!("{text}"));
        let (list, _) = list.split_once("\nOptions:").unwrap_or((list, ""));
        let rows = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        rows.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    let mut all = BTreeSet::new();
    for name in names(&folder.good(&["help"]), "Usage:") {
        let help = folder.run(&[&name, "--help"]).out();
        if help.contains("\nCommands:\n") {
            let below = names(&help, "\nCommands:\n").into_iter().filter(|below| below != "help");
            all.extend(below.map(|below| format!("{name} {below}")));
        } else {
            all.insert(name);
        }
    }
    all
}

/// Runs each command, and lists those that do not end as expected.
fn check(folder: &HostFolder, cases: &[&[&str]], expected: i32) {
    let wrong: Vec<String> = (cases.iter())
        .filter_map(|words| {
            let run = folder.run(words);
            let code = run.0.status.code();
            let is_silent = run.out().is_empty() && run.err().is_empty();
            (code != Some(expected) || is_silent)
                .then(|| format!("{words:?}: {code:?}\n{}{}", run.out(), run.err()))
        })
        .collect();
    assert!(wrong.is_empty(), "expected {expected}:\n{}", wrong.join("\n"));
}

#[test]
fn each_command_says_what_it_does_with_a_name_that_does_not_exist() {
    let folder = folder();
    let named = |command: &String| {
        let words: Vec<&str> = command.split(' ').collect();
        UNKNOWN_NAMES.iter().any(|case| case.starts_with(&words))
            != WITHOUT_NAMES.iter().any(|(name, _)| name == command)
    };
    let all = commands(&folder);
    let missing: Vec<&String> = all.iter().filter(|command| !named(command)).collect();
    assert!(missing.is_empty(), "in neither table, or in both: {missing:?}");
    check(&folder, UNKNOWN_NAMES, 1);
}

#[test]
fn an_unknown_name_is_an_error_with_a_code_for_programs() {
    let folder = folder();
    for (words, code) in [
        (&["kv", "list", "nope", "--json"][..], "unknown_plugin"),
        (&["output", "--session", "nope", "--json"], "unknown_session"),
        (&["log", "--outcome", "nosuch", "--json"], "unknown_name"),
        (&["disable", "--namespace", "nope", "--json"], "unknown_namespace"),
        (&["mcp", "check", "nope", "--json"], "unknown_server"),
        (&["list", "--profile", "nope", "--json"], "unknown_profile"),
    ] {
        let value: Value = folder.run(words).says(1, &[]).json();
        assert_eq!(value["error"]["code"], code, "{words:?}: {value}");
    }
    let near = folder.run(&["kv", "list", "txet"]).says(1, &[]).err();
    assert!(near.contains("did you mean `text`?"), "{near}");
}

#[test]
fn a_wrong_option_or_file_has_the_same_code_in_every_command() {
    let folder = folder();
    for command in commands(&folder) {
        let words: Vec<&str> = command.split(' ').chain(["--no-such-option"]).collect();
        // `help` takes names of commands only, and knows no options.
        folder.run(&words).says(2, &[]);
    }
    check(&folder, WRONG, 2);
}

#[test]
fn a_path_that_is_not_there_or_cannot_be_written_has_the_same_code_in_every_command() {
    let folder = folder();
    check(&folder, MISSING, 1);
    check(&folder, UNWRITABLE, 1);
    let call = folder.run(UNWRITABLE[2]).says(1, &[]);
    assert_eq!(call.out(), "", "the tool ran before its folder was checked");
}

#[test]
fn what_is_there_already_has_the_same_code_in_every_command() {
    check(&folder(), EXISTING, 1);
}

#[test]
fn what_only_shows_something_succeeds() {
    check(&folder(), GOOD, 0);
}

#[test]
fn a_warning_fails_no_check() {
    let folder = folder();
    check(&folder, WARNINGS, 0);
    for words in WARNINGS.iter().filter(|words| words[0] != "check") {
        folder.run(words).says(0, &["warning"]);
    }
    folder.run(&[WARNINGS[1], &["--strict"]].concat()).says(1, &["warning"]);
}
