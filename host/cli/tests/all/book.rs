//! Compares the book with the check of policies and with the library.

use std::path::{Path, PathBuf};

use crate::docs::{blocks, book, host_sources, read, root, shell};
use crate::fixture::compile_plugins;

/// What a finding says about another machine than that of the page's reader: its files, variables and plugins.
const OF_THE_MACHINE: [&str; 8] = [
    "has this name, too, and is not loaded",
    "does not exist",
    "is not set here",
    "is installed",
    "the plugin directory has no file",
    "is in the toolset",
    "has no value here",
    // An excerpt, or the step before the section that names it.
    "nothing uses this",
];

/// The policy of a block, with the version that excerpts leave out. `None` if no key of the block is one of policies.
fn complete_policy(text: &str) -> Option<String> {
    let schema = serde_json::to_value(toolbay_policy::Policy::json_schema()).unwrap();
    let keys = schema["properties"].as_object().unwrap();
    let document: toml_edit::DocumentMut = text.parse().ok()?;
    if !document.iter().any(|(key, _)| keys.contains_key(key)) {
        return None;
    }
    Some(if document.contains_key("version") { text.to_owned() } else { format!("version = 1\n{text}") })
}

/// The policies in the files for deployments: one is a file, others are parts or comments of manifests.
fn deployed() -> Vec<(PathBuf, String)> {
    let files = std::fs::read_dir(root().join("docs/deploy")).unwrap().map(|entry| entry.unwrap().path());
    files
        .flat_map(|file| policies_in(&read(&file)).into_iter().map(move |text| (file.clone(), text)))
        .collect()
}

/// The blocks that begin with the version, without what stands before each of their lines.
fn policies_in(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let begins =
        lines.iter().enumerate().filter_map(|(at, line)| Some((at, line.strip_suffix("version = 1")?)));
    begins
        .filter(|(_, before)| before.trim_matches(['#', ' ']).is_empty())
        .map(|(at, before)| {
            let inside = lines[at..].iter().map_while(|line| match line.strip_prefix(before) {
                None if line.trim().is_empty() => Some(""),
                stripped => stripped,
            });
            inside.collect::<Vec<_>>().join("\n")
        })
        .collect()
}

#[test]
fn manifests_are_yaml_with_policies_that_the_check_sees() {
    for name in ["kubernetes.yaml", "kubernetes-replicas.yaml"] {
        let text = read(format!("docs/deploy/{name}"));
        let manifests: Vec<serde_json::Value> =
            serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(manifests.iter().all(|one| one["kind"].is_string()), "{name}");
        assert!(!policies_in(&text).is_empty(), "{name}");
    }
    assert!(deployed().iter().all(|(_, text)| complete_policy(text).is_some()));
}

/// A reader who copies a policy gets no warning, once the files and plugins are there.
#[test]
fn the_check_finds_nothing_in_the_policies_of_pages() {
    compile_plugins();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("plugins")).unwrap();
    for entry in std::fs::read_dir(guest_artifacts::plugins_dir()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir.path().join("plugins").join(entry.file_name())).unwrap();
    }
    std::fs::copy(guest_artifacts::API_COOKBOOK, dir.path().join("plugins/cookbook.wasm")).unwrap();
    let plugins = std::fs::read_dir(root().join("plugins")).unwrap();
    let of_plugins =
        plugins.map(|entry| entry.unwrap().path().join("README.md")).filter(|page| page.is_file());
    let pages: Vec<(PathBuf, String)> = (book().into_iter().chain(of_plugins))
        .flat_map(|page| {
            let blocks: Vec<String> = blocks(&read(&page))
                .into_iter()
                .filter(|(info, _)| *info == "toml")
                .map(|(_, text)| text)
                .collect();
            blocks.into_iter().map(move |text| (page.clone(), text))
        })
        .chain(deployed())
        .filter_map(|(page, text)| Some((page, complete_policy(&text)?)))
        .collect();
    let mut wrong = Vec::new();
    for (page, text) in &pages {
        std::fs::write(dir.path().join("toolbay.toml"), text).unwrap();
        let report = shell(dir.path(), "toolbay policy check toolbay.toml --json");
        let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{report}"));
        let messages =
            report["findings"].as_array().unwrap().iter().map(|one| one["message"].as_str().unwrap());
        let found: Vec<&str> =
            messages.filter(|message| !OF_THE_MACHINE.iter().any(|part| message.contains(part))).collect();
        if !found.is_empty() {
            wrong.push(format!("{}: {found:#?} in\n{text}", page.display()));
        }
    }
    assert!(wrong.is_empty() && !pages.is_empty(), "{}", wrong.join("\n"));
}

/// The types and members that pages name in backticks, `View::with_bundle`, without variants and paths of modules.
fn named_members(page: &str) -> Vec<(String, String)> {
    let spans = page.split('`').skip(1).step_by(2);
    let member = |span: &str| {
        let (kind, rest) = span.split_once("::")?;
        let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
        let is_type =
            kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.chars().all(char::is_alphanumeric);
        (is_type && !name.is_empty()).then(|| (kind.to_owned(), name))
    };
    spans.filter_map(member).collect()
}

/// All sources below a folder.
fn sources(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.extension().is_some_and(|kind| kind == "rs") {
            true => vec![std::fs::read_to_string(path).unwrap()],
            false if path.is_dir() => sources(&path),
            false => Vec::new(),
        })
        .collect()
}

/// Prose is not compiled, so a renamed method would stay in it.
#[test]
fn each_member_that_a_page_names_is_in_the_library() {
    let folders = host_sources().into_iter().chain([root().join("sdk/rust/src")]);
    let all: Vec<String> = folders.flat_map(|folder| sources(&folder)).collect();
    for page in book() {
        let text = read(&page);
        // Odd backticks of a code block would turn prose into spans.
        let prose: String = text.split("```").step_by(2).collect();
        for (kind, name) in named_members(&prose) {
            let forms =
                [format!("fn {name}("), format!("fn {name}<"), format!("pub {name}: "), format!(" {name}: ")];
            let is_its = |source: &&String| {
                [
                    format!("struct {kind}"),
                    format!("enum {kind}"),
                    format!("trait {kind}"),
                    format!("impl {kind}"),
                    format!(" for {kind}"),
                ]
                .iter()
                .any(|head| source.contains(head))
                    || source.contains(&format!("> {kind}"))
            };
            let there =
                all.iter().filter(is_its).any(|source| forms.iter().any(|form| source.contains(form)));
            assert!(there, "{}: the library has no `{kind}::{name}`", page.display());
        }
    }
}
