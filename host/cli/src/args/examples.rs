//! The example at the end of each help page.

use clap::Command;

/// The examples by the name of the command; the empty name is the page of `toolbay` itself.
const EXAMPLES: &[(&str, &str)] = &[
    ("", "toolbay list"),
    ("list", "toolbay list --all"),
    ("prompts", "toolbay prompts"),
    ("resources", "toolbay resources --json"),
    ("call", r#"toolbay call text__word_count '{"text": "to be or not to be"}'"#),
    ("batch", "toolbay batch calls.jsonl > results.jsonl"),
    ("bench", r#"toolbay bench text__word_count '{"text": "a b"}' --calls 1000"#),
    ("output", "toolbay output --session notes 1f6b2c --head 20"),
    ("inspect", "toolbay inspect files"),
    ("status", "toolbay status --tools"),
    ("ps", "toolbay ps --json"),
    ("cancel", "toolbay cancel 4711-12"),
    ("stop", "toolbay stop --reason 'leaked token'"),
    ("resume", "toolbay resume"),
    ("backup", "toolbay backup /backup/toolbay-today"),
    ("restore", "toolbay restore /backup/toolbay-today"),
    ("man", "toolbay man /usr/local/share/man/man1"),
    ("enable", "toolbay enable files__write_file"),
    ("disable", "toolbay disable files__write_file --reason 'read-only week'"),
    ("explain", "toolbay explain files__read_file --limits"),
    ("grant", "toolbay grant files --only fs_read"),
    ("revoke", "toolbay revoke files --only fs_write"),
    ("log", "toolbay log --failed --since 1h"),
    ("check", "toolbay check target/plugins/notes.wasm"),
    ("policy", "toolbay policy check"),
    ("policy check", "toolbay policy check toolbay.toml"),
    ("policy schema", "toolbay policy schema > toolbay.schema.json"),
    ("search", "toolbay search count words"),
    ("schemas", "toolbay schemas --format anthropic text__word_count"),
    ("diff", "toolbay diff notes-0.1.wasm notes-0.2.wasm"),
    ("serve", "toolbay serve --http 127.0.0.1:8080"),
    ("shared", "toolbay shared status --shared nats://127.0.0.1:4222"),
    ("shared publish", "toolbay shared publish --shared nats://127.0.0.1:4222"),
    ("shared status", "toolbay shared status --shared nats://127.0.0.1:4222"),
    ("shared permissions", "toolbay shared permissions --shared nats://127.0.0.1:4222"),
    ("add", "toolbay add registry.example/acme/hash:1.4.2"),
    ("fetch", "toolbay fetch --dry-run"),
    ("verify", "toolbay verify --offline"),
    ("outdated", "toolbay outdated"),
    ("update", "toolbay update hash --dry-run"),
    ("export", "toolbay export plugins.tar"),
    ("import", "toolbay import plugins.tar --dry-run"),
    ("gc", "toolbay gc --dry-run"),
    ("push", "toolbay push registry.example/acme/hash:1.4.2 hash.wasm --sign acme.key"),
    ("key", "toolbay key new acme.key"),
    ("key new", "toolbay key new acme.key"),
    ("key show", "toolbay key show acme.pub"),
    ("mcp", "toolbay mcp check github"),
    ("mcp add", "toolbay mcp add time -- uvx mcp-server-time"),
    ("mcp list", "toolbay mcp list"),
    ("mcp remove", "toolbay mcp remove time --dry-run"),
    ("mcp check", "toolbay mcp check time"),
    ("mcp login", "toolbay mcp login notes"),
    ("mcp logout", "toolbay mcp logout notes"),
    ("setup", "toolbay setup claude-code --write"),
    ("setup claude-desktop", "toolbay setup claude-desktop --write"),
    ("setup claude-code", "toolbay setup claude-code --write"),
    ("setup vscode", "toolbay setup vscode --write"),
    ("setup cursor", "toolbay setup cursor --write"),
    ("setup zed", "toolbay setup zed --write"),
    ("setup codex", "toolbay setup codex --write"),
    ("setup server-json", "toolbay setup server-json --name io.github.me/tools"),
    ("setup mcpb", "toolbay setup mcpb toolbay.mcpb"),
    ("openapi", "toolbay openapi check https://api.example.com/openapi.json"),
    ("openapi list", "toolbay openapi list --refresh"),
    ("openapi check", "toolbay openapi check pets.yaml --include tag:pets"),
    ("openapi add", "toolbay openapi add pets pets.yaml --include GET"),
    ("openapi remove", "toolbay openapi remove pets"),
    ("kv", "toolbay kv usage"),
    ("kv list", "toolbay kv list todo"),
    ("kv get", "toolbay kv get todo items"),
    ("kv remove", "toolbay kv remove todo items"),
    ("kv clear", "toolbay kv clear todo"),
    ("kv usage", "toolbay kv usage --json"),
    ("kv backup", "toolbay kv backup kv-backup.redb"),
    ("new", "toolbay new notes --lang python"),
    ("build", "toolbay build --release"),
    ("test", "toolbay test --examples"),
    ("dev", "toolbay dev"),
    ("pack", "toolbay pack --out notes.wasm"),
    ("docs", "toolbay docs notes --out docs/tools"),
    ("completions", "toolbay completions bash > ~/.local/share/bash-completion/completions/toolbay"),
];

/// Adds its example to each page.
pub(super) fn add_to(command: Command) -> Command {
    add_below(command, "")
}

fn add_below(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let below = format!("{path} {name}").trim_start().to_owned();
        command = command.mut_subcommand(name, |sub| add_below(sub, &below));
    }
    match find(path) {
        Some(example) => command.after_help(format!("Example:\n  {example}")),
        None => command,
    }
}

fn find(path: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(name, _)| *name == path).map(|(_, example)| *example)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn check(command: &Command, path: &str) {
        let example = find(path).unwrap_or_else(|| panic!("`toolbay {path}` has no example"));
        let words: Vec<&str> = path.split_whitespace().collect();
        let begins = example.split_whitespace().skip(1).zip(&words).all(|(found, word)| found == *word);
        assert!(begins && example.starts_with("toolbay"), "{path}: {example}");
        for sub in command.get_subcommands() {
            check(sub, format!("{path} {}", sub.get_name()).trim_start());
        }
    }

    #[test]
    fn each_page_has_an_example() {
        check(&crate::args::Args::command(), "");
    }
}
