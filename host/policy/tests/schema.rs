//! The JSON Schema of a policy accepts what the parser accepts, and refuses what the parser refuses for its form.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed fixture is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};
use toolbay_policy::Policy;

static SCHEMA: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&Policy::json_schema()).unwrap());

/// Mistakes that do not concern the form, each with what the parser compares.
const NOT_OF_FORM: [(&str, &str); 19] = [
    ("duplicate-key.toml", "the file is not TOML"),
    ("duplicate-table.toml", "the file is not TOML"),
    ("grant-env-of-secret.toml", "`env` and the sources of [secrets]"),
    ("grant-unknown-program.toml", "`process` and the names of [programs]"),
    ("grant-unknown-secret.toml", "`secrets` and the names of [secrets]"),
    ("limits-too-much.toml", "JSON Schema has no order of texts: `2GiB` is a size"),
    ("mcp-key-of-other-kind.toml", "a key of the table and `command`"),
    ("mcp-secret-not-revealed.toml", "`env_secrets` and `reveal` of [secrets]"),
    ("not-utf8.toml", "the file is not text"),
    ("openapi-fetched-without-server.toml", "`document`, `server` and `sha256`"),
    ("openapi-secret.toml", "`secrets` and the names of [secrets]"),
    ("plugin-serial-and-invoke.toml", "`invoke` and `serial`"),
    ("serve-anonymous.toml", "`anonymous` and `tokens`"),
    ("syntax-bare-word.toml", "the file is not TOML"),
    ("syntax-hides-no-name.toml", "the file is not TOML"),
    ("syntax-no-value.toml", "the file is not TOML"),
    ("syntax-open-header.toml", "the file is not TOML"),
    ("syntax-open-text.toml", "the file is not TOML"),
    ("no-such-file.toml", "the file is missing"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn parse(text: &str) -> bool {
    Policy::parse(text, Path::new("/srv"), None).is_ok()
}

/// Parses TOML as an editor does.
fn value(text: &str) -> Option<Value> {
    toml::from_str::<toml::Table>(text).ok().map(|table| serde_json::to_value(table).unwrap())
}

fn problems(value: &Value) -> Vec<String> {
    SCHEMA.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Finds all files below a folder whose names end in one of `ends`, without build output.
fn files(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with('.') || name == "target" || name == "node_modules" {
            continue;
        }
        if path.is_dir() {
            files(&path, ends, found);
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

/// Returns the TOML code blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let mut lines = page.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim() == "```toml" {
            let indent = line.len() - line.trim_start().len();
            let inside = lines.by_ref().take_while(|line| line.trim() != "```");
            found.push(
                inside.map(|line| line.get(indent..).unwrap_or_default()).collect::<Vec<_>>().join("\n"),
            );
        }
    }
    found
}

/// Returns the string literals of a source file, with their escapes resolved.
fn literals(source: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), source);
    while let Some((before, inside)) = rest.split_once('"') {
        let text;
        (text, rest) = if before.ends_with("r#") {
            inside.split_once("\"#").map_or((inside.to_owned(), ""), |(text, rest)| (text.to_owned(), rest))
        } else {
            literal(inside)
        };
        if text.contains('=') || text.contains('[') {
            found.push(text);
        }
    }
    found
}

/// Reads a literal without its opening quote, and returns the rest.
fn literal(inside: &str) -> (String, &str) {
    let (mut text, mut chars) = (String::new(), inside.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => return (text, chars.as_str()),
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('\n') => chars = chars.as_str().trim_start().chars(),
                Some(other) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    (text, "")
}

/// Returns every policy in the repository that the parser accepts, with its file.
fn policies() -> BTreeMap<String, PathBuf> {
    let mut paths = Vec::new();
    files(&root(), &[".md", ".toml", ".rs"], &mut paths);
    let mut all = BTreeMap::new();
    for path in paths {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let texts = match path.extension().and_then(|end| end.to_str()) {
            Some("md") => blocks(&text),
            Some("rs") => literals(&text),
            _ => vec![text],
        };
        for text in texts {
            for candidate in [format!("version = 1\n{text}"), text] {
                if candidate.contains("version = 1\n") && value(&candidate).is_some() && parse(&candidate) {
                    all.insert(candidate, path.clone());
                }
            }
        }
    }
    all
}

#[test]
fn the_schema_is_valid() {
    let schema = Policy::json_schema();
    assert!(jsonschema::meta::is_valid(&schema), "{schema:#}");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], false);
    for line in format!("{schema:#}").lines() {
        let is_text = line.contains("\"description\": ");
        let is_wrong = line.contains("\"null\"") || (is_text && line.contains("]("));
        assert!(!is_wrong, "no null, no links: {line}");
    }
}

/// Each key of each table has a description.
#[test]
fn every_key_has_a_description() {
    fn undescribed(at: &str, schema: &Value, found: &mut Vec<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let is_told = property.get("description").is_some() || property.get("$ref").is_some();
            if property.is_object() && !is_told {
                found.push(format!("{at}.{key}"));
            }
            undescribed(&format!("{at}.{key}"), property, found);
        }
    }
    let schema = Policy::json_schema();
    let mut found = Vec::new();
    undescribed("", &schema, &mut found);
    for (name, table) in schema["$defs"].as_object().unwrap() {
        undescribed(name, table, &mut found);
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn the_schema_accepts_every_valid_policy() {
    let all = policies();
    for end in ["md", "rs", "toml"] {
        assert!(
            all.values().any(|path| path.extension().is_some_and(|own| own == end)),
            "no policy in a file `.{end}`"
        );
    }
    let mut wrong = Vec::new();
    for (text, path) in &all {
        let problems = problems(&value(text).unwrap());
        if !problems.is_empty() {
            wrong.push(format!("{}: {}\n{text}", path.display(), problems.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n\n"));
}

#[test]
fn the_schema_refuses_each_mistake_of_form() {
    let cases = root().join("host/cli/tests/policies");
    let expected = std::fs::read_to_string(cases.join("expected.txt")).unwrap();
    // `policy>tokens` is about the second file.
    let errors = expected.lines().filter(|line| line.contains(": error: ") && !line.contains('>'));
    let names: BTreeSet<&str> = errors.filter_map(|line| line.split(':').next()).collect();
    assert!(!names.is_empty());
    for name in names {
        let reason = NOT_OF_FORM.iter().find(|(of, _)| *of == name).map(|(_, reason)| *reason);
        let text = std::fs::read(cases.join(name)).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let accepted = text.and_then(|text| value(&text)).is_none_or(|value| SCHEMA.is_valid(&value));
        match (accepted, reason) {
            (true, None) => panic!("{name}: the schema accepts it"),
            (false, Some(reason)) => panic!("{name}: the schema refuses it, though it is about: {reason}"),
            (true, Some(_)) | (false, None) => {}
        }
    }
}

/// A mutation of one value of a policy.
#[derive(Debug, Clone, Copy)]
enum Mutation {
    UnknownKey,
    WrongType,
    Negative,
    Huge,
    WrongUnit,
    Zero,
}

fn mutate(value: &mut Value, mutation: Mutation) -> bool {
    let is_amount = |text: &str| {
        let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < text.len() && ["s", "ms", "m", "KiB", "MiB", "GiB"].contains(&digits)
    };
    *value = match (mutation, &*value) {
        (Mutation::UnknownKey, Value::Object(table)) => {
            let mut table = table.clone();
            table.insert("none_such".to_owned(), true.into());
            table.into()
        }
        (Mutation::WrongType, Value::Bool(_) | Value::Object(_)) => "text".into(),
        (Mutation::WrongType, Value::String(_)) => true.into(),
        (Mutation::WrongType, Value::Number(_)) => json!({}),
        (Mutation::WrongType, Value::Array(_)) => 3.into(),
        (Mutation::Negative, Value::Number(_)) => (-1).into(),
        (Mutation::Huge, Value::Number(_)) => (1_u64 << 41).into(),
        (Mutation::WrongUnit, Value::String(text)) if is_amount(text) => "12 parsecs".into(),
        (Mutation::Zero, Value::String(text)) if is_amount(text) => {
            text.replace(|c: char| c.is_ascii_digit(), "0").into()
        }
        _ => return false,
    };
    true
}

/// Pointers to a value and to all values below it.
fn pointers(at: &str, value: &Value, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(table) => {
            table.iter().for_each(|(key, below)| pointers(&format!("{at}/{}", escaped(key)), below, found));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, below)| pointers(&format!("{at}/{n}"), below, found));
        }
        _ => {}
    }
}

static POOL: LazyLock<Vec<Value>> =
    LazyLock::new(|| policies().keys().map(|text| value(text).unwrap()).collect());

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_mutation_is_refused_by_both_or_by_none(
        policy in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        mutation in prop::sample::select(vec![
            Mutation::UnknownKey, Mutation::WrongType, Mutation::Negative, Mutation::Huge, Mutation::WrongUnit, Mutation::Zero,
        ]),
    ) {
        let mut changed = policy.get(&POOL).clone();
        let mut places = Vec::new();
        pointers("", &changed, &mut places);
        places.retain(|at| mutate(&mut changed.pointer(at).unwrap().clone(), mutation));
        prop_assume!(!places.is_empty());
        let at = place.get(&places);
        mutate(changed.pointer_mut(at).unwrap(), mutation);
        // The root must stay a table.
        prop_assume!(changed.is_object());
        let text = toml::to_string(&changed).unwrap();
        let accepted = SCHEMA.is_valid(&changed);
        prop_assert_eq!(parse(&text), accepted, "{:?} at {}:\n{}\n{:?}", mutation, at, text, problems(&changed));
    }
}
