//! Checks that every attack of `tests/hostile.toml` names tests that exist, and that a test uses every guest.

use crate::tidy::{Report, Source};

const INDEX: &str = "tests/hostile.toml";
const TESTS: &str = "tests/";
const GUESTS: &str = "tests/guests/examples/";

/// Checks the index and the guests.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    let find = |path: &str| sources.iter().find(|source| source.path == path);
    if let Some(index) = find(INDEX) {
        let mut ids = Vec::new();
        for (number, line) in index.text.lines().enumerate() {
            let place = format!("{INDEX}:{}", number + 1);
            if let Some(id) = line.strip_prefix("id = ") {
                if ids.contains(&id) {
                    report.errors.push(format!("{place}: duplicate attack {id}"));
                }
                ids.push(id);
            }
            let Some(tests) = line.strip_prefix("tests = ") else { continue };
            let names: Vec<&str> = tests.split('"').skip(1).step_by(2).collect();
            if names.is_empty() {
                report.errors.push(format!("{place}: an attack names no test"));
            }
            for name in names {
                if !exists(name, find) {
                    report.errors.push(format!("{place}: there is no test `{name}`"));
                }
            }
        }
    }
    check_guests(sources, report);
}

/// `room::module::name`, `path.rs::name`; `*` for all tests of the file.
fn exists<'a>(name: &str, find: impl Fn(&str) -> Option<&'a Source>) -> bool {
    let Some((place, test)) = name.rsplit_once("::") else { return false };
    let path = if place.contains('/') {
        place.to_owned()
    } else {
        format!("{TESTS}{}.rs", place.replace("::", "/"))
    };
    let Some(source) = find(&path) else { return false };
    match test {
        "*" => source.text.contains("#[test]") || source.text.contains("#[tokio::test"),
        // A function, or an entry of a macro that generates one.
        _ => source.text.lines().any(|line| {
            let line = line.trim_start();
            [format!("fn {test}("), format!("async fn {test}("), format!("{test}: ")]
                .iter()
                .any(|start| line.starts_with(start.as_str()))
        }),
    }
}

fn check_guests(sources: &[Source], report: &mut Report) {
    let users: Vec<&Source> = sources
        .iter()
        .filter(|source| source.path.ends_with(".rs") && !source.path.starts_with("tests/guests/"))
        .collect();
    for guest in sources.iter().filter_map(|source| source.path.strip_prefix(GUESTS)) {
        let Some(name) = guest.strip_suffix(".rs").filter(|name| !name.contains('/')) else { continue };
        let constant = name.to_uppercase();
        let named = |text: &str| {
            text.match_indices(&constant).any(|(at, _)| {
                let rest = text.get(at + constant.len()..).unwrap_or("");
                !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                    && !text.get(..at).unwrap_or("").ends_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        };
        if !users.iter().any(|source| named(&source.text)) {
            report.errors.push(format!("{GUESTS}{guest}: no test uses `guest_artifacts::{constant}`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(index: &str, guest: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let sources = [
            source(INDEX, index),
            source(
                "tests/room/a.rs",
                "#[test]\nfn holds() { load(HOSTILE_ONE); }\ntargets! {\n    json: \"json\";\n}",
            ),
            source("host/x/src/b.rs", "    #[test]\n    fn inside() {}\n"),
            source(&format!("{GUESTS}{guest}.rs"), ""),
        ];
        let mut report = Report::default();
        check(&sources, &mut report);
        report.errors
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let index = |test: &str| format!("[[attack]]\nid = \"a\"\ntests = [\"{test}\"]\n");
        for good in
            ["room::a::holds", "room::a::json", "room::a::*", "host/x/src/b.rs::inside", "host/x/src/b.rs::*"]
        {
            assert_eq!(errors(&index(good), "hostile_one"), Vec::<String>::new(), "{good}");
        }
        for bad in [
            "room::a::hold",
            "room::a::holds_not",
            "room::b::holds",
            "a::holds",
            "holds",
            "host/x/src/c.rs::*",
        ] {
            assert_eq!(errors(&index(bad), "hostile_one").len(), 1, "{bad}");
        }
        assert_eq!(errors("[[attack]]\nid = \"a\"\ntests = []\n", "hostile_one").len(), 1);
        assert_eq!(errors("id = \"a\"\nid = \"a\"\n", "hostile_one").len(), 1);
    }

    #[test]
    fn a_guest_that_nobody_uses_is_found() {
        assert_eq!(errors("", "hostile_on").len(), 1);
        assert_eq!(errors("", "hostile_one_more").len(), 1);
    }
}
