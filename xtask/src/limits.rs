//! `limits`: the table of the numbers that nobody can set, in `docs/reference/limits.md`, out of the sources.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::tidy::{self, Report, Source};

const PAGE: &str = "docs/reference/limits.md";
const BEGIN: &str = "<!-- made by `cargo xtask limits`: begin -->\n";
const END: &str = "<!-- made by `cargo xtask limits`: end -->";

/// Types of numbers.
const TYPES: &[&str] = &["u8", "u16", "u32", "u64", "usize", "i32", "i64", "f64", "Duration"];

/// Writes the table anew.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let sources = tidy::read(workspace)?;
    let page =
        sources.iter().find(|source| source.path == PAGE).with_context(|| format!("`{PAGE}` is gone"))?;
    let made = make(&page.text, &sources).with_context(|| format!("`{PAGE}` has lost its marks"))?;
    std::fs::write(workspace.join(PAGE), made)?;
    println!("{PAGE} is written");
    Ok(())
}

/// Checks that the table is what [`run`] would write.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    let Some(page) = sources.iter().find(|source| source.path == PAGE) else { return };
    if make(&page.text, sources).as_ref() != Some(&page.text) {
        report
            .errors
            .push(format!("{PAGE}: its table is not what the sources say: run `cargo xtask limits`"));
    }
}

fn make(page: &str, sources: &[Source]) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", table(sources)))
}

fn table(sources: &[Source]) -> String {
    let mut table = String::new();
    for part in ["host/core/src/", "host/runtime/src/", "host/mcp/src/"] {
        let files = sources
            .iter()
            .filter(|source| source.path.starts_with(part) && !tidy::is_test_file(&source.path));
        let rows: String = files.map(|source| rows(source, part)).collect();
        if !rows.is_empty() {
            let package = part.trim_end_matches("/src/");
            _ = write!(table, "\n### `{package}`\n\n| constant | value | what |\n|---|---|---|\n{rows}");
        }
    }
    table + "\n"
}

/// The constants of a file that are numbers, with their comments.
fn rows(source: &Source, root: &str) -> String {
    let mut rows = String::new();
    let file = source.path.strip_prefix(root).unwrap_or(&source.path).trim_end_matches(".rs");
    let mut comment = String::new();
    for line in tidy::without_tests(&source.text).lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push_str(text);
            continue;
        }
        if let Some((name, value)) = constant(line) {
            // A constant without a comment belongs to the one above it.
            let what = if comment.is_empty() { "as above" } else { comment.trim() };
            let what = what.replace("[`", "`").replace("`]", "`").replace('|', "\\|");
            _ = writeln!(rows, "| `{file}::{name}` | `{value}` | {what} |");
        }
        comment.clear();
    }
    rows
}

/// Name and value, if the line is a constant that is a number.
fn constant(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    let (name, rest) = line.strip_prefix("const ")?.split_once(": ")?;
    let (kind, value) = rest.strip_suffix(';')?.split_once(" = ")?;
    TYPES.contains(&kind).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_with_their_reasons_and_a_stale_page_is_told() {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let code = "/// Most things,\n/// of a [`Kind`].\npub const MOST: u32 = 1 << 3;\nconst AND: usize = 2;\nconst TEXT: &str = \"a\";\n#[cfg(test)]\nmod tests {\n    const NOT: u32 = 1;\n}\n";
        let mut sources =
            vec![source("host/core/src/a/b.rs", code), source(PAGE, &format!("x\n{BEGIN}old{END}\ny"))];
        let errors = |sources: &[Source]| {
            let mut report = Report::default();
            check(sources, &mut report);
            report.errors.len()
        };
        assert_eq!(errors(&sources), 1);
        let page = make(&sources[1].text, &sources).unwrap();
        assert!(
            page.contains(
                "| `a/b::MOST` | `1 << 3` | Most things, of a `Kind`. |\n| `a/b::AND` | `2` | as above |\n\n<"
            ),
            "{page}"
        );
        assert!(
            page.starts_with("x\n")
                && page.ends_with("\ny")
                && !page.contains("TEXT")
                && !page.contains("NOT")
        );
        sources[1].text = page;
        assert_eq!(errors(&sources), 0);
    }
}
