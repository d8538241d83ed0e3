//! `wit-reference`: generates the page `docs/reference/wit.md` from the comments and signatures of `wit/*.wit`.
//!
//! It parses only the subset of WIT in those files: one item a line, or a block in braces.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::tidy::{self, Report, Source};

const PAGE: &str = "docs/reference/wit.md";

/// The files in the order of the page: exports, shared types, imports.
const FILES: [&str; 9] =
    ["tools", "reducers", "about", "types", "context", "host", "tool-invoke", "worlds", "tools-async"];

const HEAD: &str = "\
<!-- made by `cargo xtask wit-reference` -->

# The contract

What host and plugin say to each other, in WIT: the package `toolbay:plugin@0.1.0`, from the files in `wit`. SDKs hide it;
it is what an SDK for another language is built on. What stays as it is from version to version is in
[Compatibility](../reference/compatibility.md), what an error means in [Errors](errors.md).
";

/// Writes the page.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let page = page(&tidy::read(workspace)?)
        .context("a file of `wit` is missing or has syntax that this task does not parse")?;
    std::fs::write(workspace.join(PAGE), page)?;
    println!("{PAGE} is written");
    Ok(())
}

/// Checks that the page is current.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    let there = sources.iter().find(|source| source.path == PAGE);
    match page(sources) {
        Ok(page) if there.is_some_and(|there| there.text == page) => {}
        Ok(_) => report.errors.push(format!("{PAGE} is out of date: run `cargo xtask wit-reference`")),
        Err(error) => report.errors.push(format!("cannot generate {PAGE}: {error:#}")),
    }
}

fn page(sources: &[Source]) -> Result<String> {
    let contract = |path: &str| path.strip_prefix("wit/").is_some_and(|file| !file.contains('/'));
    let files = sources.iter().filter(|source| contract(&source.path)).count();
    ensure!(files == FILES.len(), "`wit` has {files} files, and `FILES` {}", FILES.len());
    let mut page = HEAD.to_owned();
    for file in FILES {
        let path = format!("wit/{file}.wit");
        let source = sources.iter().find(|source| source.path == path);
        let source = source.with_context(|| format!("`{path}` is gone"))?;
        for item in items(&source.text).with_context(|| format!("`{path}`"))? {
            section(&mut page, &item)?;
        }
    }
    Ok(page)
}

/// A commented item: a type, a function, a member, an interface or a world.
#[derive(Debug, PartialEq, Eq)]
struct WitItem<'a> {
    docs: String,
    /// Up to the brace or the semicolon: `record blob`, `get: func(key: string) -> option<json>`.
    head: &'a str,
    /// The text between the braces, if any.
    body: Option<&'a str>,
}

/// Parses the items of a text. Members of enumerations and records end with commas.
fn items(text: &str) -> Result<Vec<WitItem<'_>>> {
    let (mut items, mut docs, mut rest) = (Vec::new(), String::new(), text.trim_start());
    while !rest.is_empty() {
        if rest.starts_with("//") || rest.starts_with('@') {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            let text = line.strip_prefix("///").map_or("", str::trim);
            if !text.is_empty() {
                _ = write!(docs, "{}{text}", if docs.is_empty() { "" } else { " " });
            }
            rest = after.trim_start();
            continue;
        }
        let (head, body, after) = item(rest)?;
        if !head.starts_with("package ") && !head.starts_with("use ") {
            items.push(WitItem { docs: std::mem::take(&mut docs), head, body });
        }
        rest = after.trim_start();
    }
    Ok(items)
}

/// Splits a text into the head and body of its first item, and the rest.
fn item(text: &str) -> Result<(&str, Option<&str>, &str)> {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' | '<' => depth += 1,
            ')' => depth -= 1,
            // The `>` of an arrow closes nothing.
            '>' if !text[..at].ends_with('-') => depth -= 1,
            ';' | ',' if depth == 0 => return Ok((text[..at].trim_end(), None, &text[at + 1..])),
            '{' if depth == 0 && text.starts_with("use ") => {
                let end = text.find(';').context("`use` without an end")?;
                return Ok((&text[..end], None, &text[end + 1..]));
            }
            '{' if depth == 0 => {
                let end = closing(&text[at..]).with_context(|| format!("`{}` has no end", &text[..at]))?;
                return Ok((text[..at].trim_end(), Some(&text[at + 1..at + end]), &text[at + end + 1..]));
            }
            _ => {}
        }
    }
    // The last member of a block may have no comma.
    Ok((text.trim_end(), None, ""))
}

/// The position of the brace that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.char_indices().find_map(|(at, character)| {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// An interface or a world.
fn section(page: &mut String, item: &WitItem<'_>) -> Result<()> {
    let (kind, name) = item.head.split_once(' ').with_context(|| format!("`{}`", item.head))?;
    ensure!(matches!(kind, "interface" | "world"), "`{}` is neither an interface nor a world", item.head);
    _ = write!(page, "\n## {kind} `{name}`\n");
    paragraph(page, &item.docs);
    let members = items(item.body.context("it has no braces")?)?;
    let (blocks, lines): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.body.is_some());
    table(page, if kind == "world" { "it" } else { "function or type" }, &lines);
    for block in blocks {
        _ = write!(page, "\n### {}\n", titled(block.head));
        paragraph(page, &block.docs);
        let column = if block.head.starts_with("record") { "field" } else { "case" };
        table(page, column, &items(block.body.unwrap_or_default())?.iter().collect::<Vec<_>>());
    }
    Ok(())
}

/// `record blob` as a heading.
fn titled(head: &str) -> String {
    head.split_once(' ').map_or_else(|| format!("`{head}`"), |(kind, name)| format!("{kind} `{name}`"))
}

fn paragraph(page: &mut String, docs: &str) {
    if !docs.is_empty() {
        _ = write!(page, "\n{docs}\n");
    }
}

fn table(page: &mut String, column: &str, items: &[&WitItem<'_>]) {
    if items.is_empty() {
        return;
    }
    _ = write!(page, "\n| {column} | |\n|---|---|\n");
    for WitItem { docs, head, .. } in items {
        let head: Vec<&str> = head.split_whitespace().collect();
        _ = writeln!(page, "| `{}` | {} |", head.join(" "), docs.replace('|', "\\|"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "package a:b@0.1.0;\n\n/// Things,\n/// and more.\n@since(version = 0.1.0)\ninterface things {\n  \
        use types.{json};\n  enum level { low, high }\n  record thing {\n    /// What it is.\n    name: string,\n    \
        at: tuple<u8, u8>,\n  }\n  /// Gets | one.\n  get: func(key: string,\n    by: u8) -> result<option<thing>, level>;\n}\n\
        world all { import things; }\n";

    #[test]
    fn comments_members_and_signatures_are_read() {
        let mut page = String::new();
        for item in items(TEXT).unwrap() {
            section(&mut page, &item).unwrap();
        }
        let expected = "\n## interface `things`\n\nThings, and more.\n\n| function or type | |\n|---|---|\n\
            | `get: func(key: string, by: u8) -> result<option<thing>, level>` | Gets \\| one. |\n\
            \n### enum `level`\n\n| case | |\n|---|---|\n| `low` |  |\n| `high` |  |\n\
            \n### record `thing`\n\n| field | |\n|---|---|\n| `name: string` | What it is. |\n| `at: tuple<u8, u8>` |  |\n\
            \n## world `all`\n\n| it | |\n|---|---|\n| `import things` |  |\n";
        assert_eq!(page, expected);
    }

    #[test]
    fn a_stale_page_and_a_new_file_are_told() {
        let source = |path: String, text: &str| Source { path, text: text.to_owned() };
        let mut sources: Vec<Source> =
            FILES.iter().map(|file| source(format!("wit/{file}.wit"), TEXT)).collect();
        let errors = |sources: &[Source]| {
            let mut report = Report::default();
            check(sources, &mut report);
            report.errors.concat()
        };
        assert!(errors(&sources).contains("run `cargo xtask wit-reference`"));
        let page = page(&sources).unwrap();
        sources.push(source(PAGE.to_owned(), &page));
        assert_eq!(errors(&sources), "");
        sources.push(source("wit/released/0.1.0/types.wit".to_owned(), ""));
        assert_eq!(errors(&sources), "");
        sources.push(source("wit/new.wit".to_owned(), TEXT));
        assert!(errors(&sources).contains("10 files"), "{}", errors(&sources));
    }
}
