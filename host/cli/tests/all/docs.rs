//! Runs the documentation and compares it with real output.
//!
//! The language of each code block in `docs/**/*.md` and the README decides how it is checked:
//!
//! * `toml`: a policy that must parse. With the line `version = 1` it holds for the `console` blocks after it; otherwise it
//!   is a part of a policy. `toml FILE` is another TOML file.
//! * `json`: JSON. `json FILE` is written to that file for the commands.
//! * `console`: every command runs in a shell, and its output must contain the lines below it in order. `…` matches
//!   anything. `console,ignore` is not run.
//! * `rust`: part of a compiled file.
//! * `js`, `ts`, `python`, `c`: built or run by `cargo xtask test languages python node`. `text`, `nginx`: not checked.
//!
//! The cookbook pages have separate plugins and a service at `127.0.0.1:8090`. So have others: see `prepare`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use toolbay_core::tool::content::ErrorCode;
use toolbay_core::tool::fault::FaultKind;
use toolbay_policy::limits::table::LimitTable as _;
use toolbay_policy::limits::{CallLimits, HostLimits};
use toolbay_policy::serve::ServeLimits;
use toolbay_policy::session::SessionLimits;
use toolbay_policy::{GrantKey, Policy};

use crate::fixture::{compile_plugins, isolated};

/// The files for a page's commands, with the policy that holds until the page shows one.
const FILES: [(&str, &str); 3] = [
    ("work/notes/plan.md", "# Plan\n\n- Read the notes\n- Write the report\n"),
    ("work/out/old.txt", "old\n"),
    (
        "toolbay.toml",
        "version = 1\nworkspace = \"work\"\n[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace/out\"]",
    ),
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn read(file: impl AsRef<Path>) -> String {
    std::fs::read_to_string(root().join(file.as_ref())).unwrap()
}

/// All pages below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect()
}

/// All pages of the book, and the README.
pub(crate) fn book() -> Vec<PathBuf> {
    pages(&root().join("docs")).into_iter().chain([root().join("README.md")]).collect()
}

/// The fenced blocks of a page: the text behind the fence, and the content. Blocks in a list are indented.
pub(crate) fn blocks(page: &str) -> Vec<(&str, String)> {
    let (mut blocks, mut lines) = (Vec::new(), page.lines());
    while let Some(line) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let inside = lines.by_ref().take_while(|line| line.trim() != "```");
        let text: Vec<&str> = inside.map(|line| line.strip_prefix(indent).unwrap_or(line)).collect();
        blocks.push((info, text.join("\n")));
    }
    blocks
}

pub(crate) fn shell(dir: &Path, command: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_toolbay")).parent().unwrap();
    let programs = dir.join("bin");
    let path = format!("{}:{}:{}", programs.display(), bin.display(), std::env::var("PATH").unwrap());
    let mut shell = isolated(Command::new("sh"), dir);
    shell.args(["-c", &format!("exec 2>&1 < /dev/null; {command}")]).current_dir(dir).env("PATH", path);
    shell.env("HOME", dir).env("TOOLBAY_CONFIG", "toolbay.toml");
    let plugins = Some(dir.join("plugins")).filter(|plugins| plugins.is_dir());
    shell.env("TOOLBAY_PLUGINS", plugins.unwrap_or_else(|| guest_artifacts::plugins_dir().into()));
    shell
        .env("TRACKER_TOKEN", "0123456789")
        .env("NOTES_TOKEN", "0123456789")
        .env("TOOLBAY_STATE", dir.join(".local/state/toolbay"));
    String::from_utf8(shell.output().unwrap().stdout).unwrap()
}

/// Whether a line matches the page, where `…` matches anything.
fn matches(shown: &str, actual: &str) -> bool {
    match shown.split_once('…') {
        None => shown == actual,
        Some((head, tail)) => actual.strip_prefix(head).is_some_and(|rest| {
            rest.char_indices().any(|(at, _)| matches(tail, &rest[at..])) || matches(tail, "")
        }),
    }
}

/// Runs the commands of a block, and fails if a shown line is missing from the output.
fn run(dir: &Path, page: &Path, block: &str) {
    for part in format!("\n{block}").split("\n$ ").skip(1) {
        let (command, shown) = part.split_once('\n').unwrap_or((part, ""));
        let first = command.split(' ').next().unwrap();
        let runs = ["toolbay", "echo", "printf", "mkdir", "cat", "cp", "rm", "for"].contains(&first);
        assert!(runs, "{}: `{command}` is not run: write `console,ignore`", page.display());
        let output = shell(dir, command);
        let mut actual = output.lines();
        for line in shown.lines().filter(|line| *line != "…") {
            let came = actual.any(|actual| matches(line, actual));
            assert!(came, "{}: `{command}` does not print\n{line}\nbut\n{output}", page.display());
        }
    }
}

/// Starts a service that accepts one token and echoes it. Returns its address.
fn tracker() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines().map(|line| line.unwrap());
            let head: Vec<String> = head.take_while(|line| !line.is_empty()).collect();
            let sent = head.iter().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nothing");
            let (status, body) = if sent == "Bearer 0123456789" {
                ("200 OK", format!("{{\"open\":3,\"you_sent\":\"{sent}\"}}"))
            } else {
                ("401 Unauthorized", "who are you?".to_owned())
            };
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    address
}

/// Prepares the folder for a page's commands. Returns the page to run.
fn prepare(page: &Path, dir: &Path) -> String {
    for (file, content) in FILES {
        std::fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        std::fs::write(dir.join(file), content).unwrap();
    }
    let (text, name) = (read(page), page.file_name().unwrap().to_str().unwrap());
    if name == "README.md" && page.parent() == Some(&root()) {
        // The reader of the README has granted nothing yet.
        std::fs::write(dir.join("toolbay.toml"), "version = 1\nworkspace = \"work\"\n").unwrap();
    }
    let plugins = match name {
        "cookbook.md" | "cookbook-policies.md" => {
            vec![("cookbook", guest_artifacts::API_COOKBOOK), ("files", guest_artifacts::PLUGIN_FILES)]
        }
        "debugging.md" => {
            vec![("trap", guest_artifacts::HOSTILE_TRAP), ("text", guest_artifacts::PLUGIN_TEXT)]
        }
        "several-plugins.md" | "update-sdk.md" => vec![],
        _ => return text,
    };
    std::fs::create_dir(dir.join("plugins")).unwrap();
    for (id, wasm) in plugins {
        std::fs::copy(wasm, dir.join(format!("plugins/{id}.wasm"))).unwrap();
    }
    if !name.starts_with("cookbook") {
        replace_python(dir);
        if name == "update-sdk.md" {
            shell(dir, "toolbay new notes --lang python && toolbay build notes");
        }
        return text;
    }
    text.replace("127.0.0.1:8090", &tracker())
}

/// Puts a program in place of Python, which starts the scripts of SDKs: a build, whose last argument is the component, gets
/// a guest, and tests pass.
fn replace_python(dir: &Path) {
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\ncase \"$last\" in *.wasm)\n  mkdir -p target/python && cp '{}' \"$last\" && \
         cp \"$last\" target/python/interpreter.wasm ;;\nesac\n",
        guest_artifacts::API_ECHO
    );
    let program = dir.join("bin/python3");
    std::fs::create_dir(dir.join("bin")).unwrap();
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Checks the blocks and links of a page.
fn check_page(page: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let text = prepare(page, dir.path());
    for (info, block) in blocks(&text) {
        check_block(dir.path(), page, info, &block);
    }
    for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        let there = link.contains("://") || page.parent().unwrap().join(link).exists();
        assert!(there, "{}: the link `{link}` leads nowhere", page.display());
    }
}

fn check_block(dir: &Path, page: &Path, info: &str, block: &str) {
    let policy = |text: &str| {
        Policy::parse(text, dir, None).unwrap_or_else(|e| panic!("{}: {e} in\n{block}", page.display()));
    };
    let (kind, file) = info.split_once(' ').unwrap_or((info, ""));
    match kind {
        "toml" if !file.is_empty() => drop(block.parse::<toml_edit::DocumentMut>().unwrap()),
        "toml" if block.lines().any(|line| line.starts_with("version = 1")) => {
            policy(block);
            std::fs::write(dir.join("toolbay.toml"), block).unwrap();
        }
        "toml" => policy(&format!("version = 1\n{block}")),
        "json" => drop(serde_json::from_str::<Value>(block).unwrap()),
        "console" => run(dir, page, block),
        "rust" | "rust,ignore" | "console,ignore" | "js" | "ts" | "python" | "c" | "text" | "nginx" => {}
        _ => panic!("{}: `{info}` is no kind of block:\n{block}", page.display()),
    }
    if !file.is_empty() {
        let folder = if file.ends_with(".plugin.toml") { "plugins" } else { "." };
        std::fs::create_dir_all(dir.join(folder)).unwrap();
        std::fs::write(dir.join(folder).join(file), block).unwrap();
    }
}

/// Checks the pages without a test of their own, which have no commands.
fn check_other_pages(tested: &[&str]) {
    let has_test = |page: &PathBuf| tested.iter().any(|tested| *page == root().join(tested));
    for page in book().iter().filter(|page| !has_test(page)) {
        let has_commands = blocks(&read(page)).iter().any(|(info, _)| *info == "console");
        assert!(!has_commands, "list `{}` in `pages_with_commands`", page.display());
        check_page(page);
    }
}

/// A test for each page with commands, so that they run side by side, and one for the other pages.
macro_rules! pages_with_commands {
    ($($name:ident: $page:literal,)*) => {
        mod console_blocks_match_real_output {
            use super::*;

            $(
                #[test]
                fn $name() {
                    compile_plugins();
                    check_page(&root().join($page));
                }
            )*

            #[test]
            fn other_pages() {
                check_other_pages(&[$($page),*]);
            }
        }
    };
}

pages_with_commands! {
    cli: "docs/reference/cli.md",
    consent: "docs/reference/capabilities/consent.md",
    cookbook: "docs/how-to/cookbook.md",
    cookbook_policies: "docs/how-to/cookbook-policies.md",
    debugging: "docs/how-to/debugging.md",
    discovery: "docs/reference/discovery.md",
    errors: "docs/reference/errors.md",
    files: "docs/reference/capabilities/files.md",
    first_policy: "docs/tutorials/first-policy.md",
    kanban: "docs/reference/plugins/kanban.md",
    mcp_clients: "docs/how-to/mcp-clients.md",
    mcp_servers: "docs/how-to/mcp-servers.md",
    memory: "docs/reference/plugins/memory.md",
    openapi: "docs/how-to/openapi.md",
    operators: "docs/how-to/operators.md",
    registry: "docs/reference/registry.md",
    results: "docs/reference/results.md",
    several_plugins: "docs/how-to/several-plugins.md",
    script: "docs/reference/plugins/script.md",
    todo: "docs/reference/plugins/todo.md",
    update_sdk: "docs/how-to/update-sdk.md",
}

/// The text of all sources below a folder, without comments, with `…` for the placeholders of messages.
fn messages(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            text += &messages(&path);
        } else if (name.ends_with(".rs") || name.ends_with(".py")) && !name.contains("tests") {
            let source = std::fs::read_to_string(path).unwrap();
            let lines = source.lines().map(str::trim).filter(|line| !line.starts_with("//"));
            // A string that continues on the next line ends with a backslash.
            text += &lines
                .map(|l| l.strip_suffix('\\').map_or(format!("{l}\n"), str::to_owned))
                .collect::<String>();
        }
    }
    let mut parts = text.split('{');
    let mut plain = parts.next().unwrap().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((name, rest)) if !name.contains(['"', '\n', ';']) => plain += &format!("…{rest}"),
            _ => plain += &format!("{{{part}"),
        }
    }
    plain.replace("\\\"", "\"")
}

/// Pages for developers. They name files of the code.
const FOR_DEVELOPERS: [&str; 4] =
    ["ARCHITECTURE.md", "STYLE.md", "docs/explanation/call-tour.md", "docs/how-to/development.md"];

/// The files that a page links to, relative to its folder, and those that it names in backticks, relative to the
/// workspace.
fn named_files(page: &str, text: &str) -> Vec<PathBuf> {
    const TOP: [&str; 4] = ["host/", "sdk/", "tests/", "xtask/"];
    let folder = root().join(page).parent().unwrap().to_owned();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let local = links.filter(|link| !link.is_empty() && !link.contains("://"));
    let is_file_name = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let words = text.split(|c: char| !is_file_name(c)).map(|word| word.trim_end_matches('.'));
    let shown = words.filter(|word| TOP.iter().any(|top| word.starts_with(top)) && word.ends_with(".rs"));
    local.map(|link| folder.join(link)).chain(shown.map(|word| root().join(word))).collect()
}

#[test]
fn files_named_by_developer_pages_exist() {
    for page in FOR_DEVELOPERS {
        let named = named_files(page, &read(page));
        assert!(!named.is_empty(), "{page}");
        for file in named {
            assert!(file.exists(), "{page}: there is no {}", file.display());
        }
    }
}

/// The sources of all crates of the host.
pub(crate) fn host_sources() -> Vec<PathBuf> {
    let crates =
        std::fs::read_dir(root().join("host")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    crates.filter(|folder| folder.is_dir()).collect()
}

#[test]
fn each_message_of_troubleshooting_exists_in_the_code() {
    let page = read("docs/how-to/troubleshooting.md");
    let sdk = ["sdk/rust/src", "sdk/rust-macros/src", "sdk/rust-syntax/src", "sdk/python/toolbay_sdk"];
    let folders = host_sources().into_iter().chain(sdk.map(|folder| root().join(folder)));
    let sources: String = folders.map(|folder| messages(&folder)).collect();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let shown: Vec<String> = rows.map(|row| row.replace("\\|", "|")).filter(|row| row != "message").collect();
    assert!(!shown.is_empty());
    for message in shown {
        assert!(sources.contains(&message), "no source has the message\n{message}");
    }
}

/// Compiled programs that contain the code of pages.
const COMPILED: [&str; 9] = [
    "host/runtime/examples/agent.rs",
    "host/runtime/examples/embed.rs",
    "host/runtime/examples/pages.rs",
    "sdk/rust/tests/all/pages.rs",
    "tests/authors/pages.rs",
    "plugins/kanban/tests/component.rs",
    "plugins/web/tests/component.rs",
    "tests/guests/examples/api_cookbook.rs",
    "tests/guests/examples/api_shout.rs",
];
/// Crates below `toolbay`, which is the only one that a program names.
const INNER: [&str; 11] = [
    "toolbay::core::",
    "toolbay::distribution::",
    "toolbay::mcp::",
    "toolbay::policy::",
    "toolbay_capabilities::",
    "toolbay_core::",
    "toolbay_distribution::",
    "toolbay_mcp::",
    "toolbay_policy::",
    "toolbay_sandbox::",
    "toolbay_state::",
];

#[test]
fn programs_of_embedders_name_one_crate() {
    let examples =
        COMPILED.iter().filter(|file| file.starts_with("host/runtime/examples")).map(PathBuf::from);
    for page in examples.chain(book()) {
        let text = read(&page);
        let inner = INNER.iter().find(|name| text.contains(*name));
        assert!(inner.is_none(), "{}: {inner:?}", page.display());
    }
}

/// Pages that are compiled as documentation of a crate.
const DOCTESTS: [&str; 2] = ["docs/reference/discovery.md", "docs/reference/tool-formats.md"];

#[test]
fn rust_blocks_are_part_of_compiled_files() {
    let lines =
        |text: &str| text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
    let compiled: Vec<Vec<String>> = COMPILED.iter().map(|file| lines(&read(file))).collect();
    for page in book() {
        let text = read(&page);
        if DOCTESTS.iter().any(|compiled| page.ends_with(compiled)) {
            continue;
        }
        for (_, block) in blocks(&text).into_iter().filter(|(info, _)| info.starts_with("rust")) {
            let block: Vec<String> = lines(&block);
            let there = compiled.iter().any(|file| file.windows(block.len()).any(|part| part == block));
            assert!(there, "{}: in none of {COMPILED:?}:\n{}", page.display(), block.join("\n"));
        }
    }
}

/// A schema with what it refers to and combines; of a list, the schema of its entries.
fn parts<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let reference = schema["$ref"].as_str().and_then(|to| document.pointer(to.strip_prefix('#')?));
    let combined =
        ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
    let below = reference.into_iter().chain(schema.get("items")).chain(combined);
    std::iter::once(schema).chain(below.flat_map(|part| parts(document, part))).collect()
}

/// The schemas of a section. A part in capitals is a name that the operator chooses: `plugins.ID.grant`.
fn section<'a>(document: &'a Value, path: &str) -> Vec<&'a Value> {
    path.split('.').filter(|part| !part.is_empty()).fold(parts(document, document), |schemas, part| {
        let names = ["additionalProperties", "patternProperties"];
        let is_name = part.chars().all(|c| c.is_ascii_uppercase());
        let below = schemas.into_iter().flat_map(|schema| -> Vec<&Value> {
            match is_name {
                false => schema["properties"].get(part).into_iter().collect(),
                true => names.iter().filter_map(|word| schema.get(*word)).flat_map(of_any_name).collect(),
            }
        });
        below.flat_map(|schema| parts(document, schema)).collect()
    })
}

/// The schemas of the values in a map: one for all names, or one for each pattern of names.
fn of_any_name(values: &Value) -> Vec<&Value> {
    let by_pattern = values.as_object().filter(|values| values.keys().any(|key| key.starts_with('^')));
    by_pattern.map_or_else(|| vec![values], |patterns| patterns.values().collect())
}

/// The keys of a section.
fn keys<'a>(schemas: &[&'a Value]) -> BTreeSet<&'a str> {
    schemas
        .iter()
        .filter_map(|schema| schema["properties"].as_object())
        .flatten()
        .map(|(key, _)| &**key)
        .collect()
}

/// Compares the page with the JSON Schema, which describes what the parser reads.
#[test]
fn every_key_of_the_policy_has_its_row() {
    let (page, schema) = (read("docs/reference/policy.md"), Policy::json_schema());
    let chapters: Vec<(&str, &str)> =
        page.split("\n## ").skip(1).filter_map(|chapter| chapter.split_once('\n')).collect();
    let mut tables = BTreeSet::new();
    for (heading, chapter) in &chapters {
        let path = if *heading == "The file" { "" } else { *heading };
        if path.contains(' ') {
            continue;
        }
        let rows = chapter.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), keys(&section(&schema, path)), "`{heading}`");
        tables.extend(path.split('.').next());
    }
    // A table without a chapter here has a page of its own.
    let file = chapters.iter().find(|(heading, _)| *heading == "The file").unwrap().1;
    for key in keys(&section(&schema, "")) {
        let row = file.lines().find(|line| line.starts_with(&format!("| `{key}` | "))).unwrap();
        let is_table = [key.to_owned(), format!("{key}.NAME")]
            .iter()
            .any(|path| !keys(&section(&schema, path)).is_empty());
        assert!(!is_table || tables.contains(key) || row.contains("]("), "`[{key}]` has no chapter");
    }
}

/// Replaces rows in the first table after `anchor`: all of them, or those with the same key.
fn with_rows(page: &str, anchor: &str, rows: &[String], all: bool) -> String {
    let at = page.find(anchor).unwrap_or_else(|| panic!("no `{anchor}`"));
    let table = at + page[at..].find("\n|---|").unwrap() + 1;
    let body = table + page[table..].find('\n').unwrap() + 1;
    let end = body + page[body..].find("\n\n").map_or(page.len() - body, |end| end + 1);
    let key = |row: &str| row.split(" | ").next().map(str::to_owned);
    let replaced = |line: &str| all || rows.iter().any(|row| key(row) == key(line));
    let old: Vec<&str> = page[body..end].lines().collect();
    let place = old.iter().position(|line| replaced(line)).unwrap_or(old.len());
    let mut kept: Vec<&str> = old.iter().copied().filter(|line| !replaced(line)).collect();
    kept.splice(place..place, rows.iter().map(String::as_str));
    format!("{}{}\n{}", &page[..body], kept.join("\n"), &page[end..])
}

/// The code declares the rows of limits and capabilities. `TOOLBAY_WRITE_DOCS=1` writes them.
#[test]
fn the_tables_of_limits_and_capabilities_are_those_of_the_code() {
    let kinds = |absent: &str, how: Option<&str>| -> Vec<String> {
        let row = |key: &GrantKey| {
            let default = if key.is_switch() && how.is_none() { "`false`" } else { absent };
            let what = how.map_or_else(
                || key.grants(),
                |how| if key.is_switch() { "`false` takes it away" } else { how },
            );
            format!("| `{}` | {default} | {what} |", key.name())
        };
        GrantKey::ALL.iter().map(row).collect()
    };
    let as_granted = Some("as in the grant");
    let limits = [
        ("## What the policy sets", CallLimits::documentation(), true),
        ("\n`[host]` bounds", HostLimits::documentation(), true),
        ("## serve", ServeLimits::documentation(), true),
    ];
    let policy = [
        ("## session", SessionLimits::documentation(), true),
        ("## plugins.ID.grant", kinds("nothing", None), false),
        ("## plugins.ID.tools.TOOL", kinds("the plugin's", as_granted), false),
        ("## profile.NAME", kinds("the grant's", as_granted), false),
    ];
    for (file, tables) in
        [("docs/reference/limits.md", limits.to_vec()), ("docs/reference/policy.md", policy.to_vec())]
    {
        check_tables(file, &tables);
    }
}

/// The contract suite shows that each language has the features of its table.
#[test]
fn the_tables_of_sdk_features_are_those_of_the_contract_suite() {
    let table: toml_edit::DocumentMut = read("tests/contract/table.toml").parse().unwrap();
    let row = |row: &toml_edit::Table| {
        let cells = ["feature", "rust", "js", "python", "c"].map(|key| row[key].as_str().unwrap());
        format!("|{}|", cells.join("|"))
    };
    let rows = table["row"].as_array_of_tables().unwrap().iter().map(row).collect();
    check_tables("docs/reference/languages.md", &[("## What each SDK has", rows, true)]);
}

/// Compares the tables after anchors with declared rows, or writes the rows.
fn check_tables(file: &str, tables: &[(&str, Vec<String>, bool)]) {
    let page = read(file);
    let written =
        tables.iter().fold(page.clone(), |page, (anchor, rows, all)| with_rows(&page, anchor, rows, *all));
    if std::env::var_os("TOOLBAY_WRITE_DOCS").is_some() {
        std::fs::write(root().join(file), &written).unwrap();
        return;
    }
    let differs = page.lines().zip(written.lines()).find(|(shown, declared)| shown != declared);
    assert!(page == written, "{file}: {differs:#?}; `TOOLBAY_WRITE_DOCS=1` writes the tables");
}

/// The words for all values of an enum. The compiler names one that is missing.
macro_rules! words {
    ($kind:ident: $($name:ident),+ $(,)?) => {{
        let _listed = |one: $kind| match one { $($kind::$name => (),)+ };
        [$($kind::$name.as_str()),+]
    }};
}

#[test]
fn every_code_and_every_fault_has_its_row() {
    let codes = words!(ErrorCode: InputInvalid, NotAvailable, ExecutionFailed, StaleWrite);
    let faults = words!(FaultKind: Trap, OutOfFuel, Deadline, OutOfMemory, OutputTooLarge, BadOutput, Cancelled,
        OutcomeUnknown, Busy, Suspended);
    let page = read("docs/reference/errors.md");
    for (heading, words) in [("Codes", &codes[..]), ("Faults", &faults[..])] {
        let (_, chapter) = page.split_once(&format!("\n## {heading}\n")).unwrap();
        let chapter = chapter.split("\n## ").next().unwrap();
        let rows = chapter.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), words.iter().copied().collect(), "{heading}");
    }
}
