//! No import cycle leads from one folder of a crate to another and back.
//!
//! The graph has a node for each source file and an edge for each path that a file writes: `crate::…`, `super::…`,
//! `self::…`, or one that begins with a module that the file declares. A path leads to the deepest module file that it
//! names. A folder of `src` with the file `src/NAME.rs` is one room; all other files of `src` are one room together. Cycles
//! within a room are allowed. Tests may import anything, and the crate root declares everything.

use std::collections::{BTreeMap, BTreeSet};

use super::{Report, Source, code, is_test_file};

/// Reports each group of files that import each other across rooms.
pub(super) fn check(sources: &[Source], report: &mut Report) {
    let mut crates: BTreeMap<&str, Vec<(&str, &Source)>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test_file(&source.path)) {
        if let Some((root, file)) = source.path.split_once("/src/")
            && root.starts_with("host/")
            && let Some(module) = module_path(file)
        {
            crates.entry(root).or_default().push((module, source));
        }
    }
    for (root, files) in crates {
        for cycle in cycles(&imports(&files)) {
            report.errors.push(format!("{root}: these files import each other: {}", cycle.join(", ")));
        }
    }
}

/// The path of a module by its file, with `/`; `None` for a crate root.
fn module_path(file: &str) -> Option<&str> {
    let module = file.strip_suffix(".rs")?;
    let module = module.strip_suffix("/mod").unwrap_or(module);
    (!matches!(module, "lib" | "main")).then_some(module)
}

/// Which modules each module imports.
fn imports<'a>(files: &[(&'a str, &Source)]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let modules: BTreeMap<&str, &'a str> = files.iter().map(|(module, _)| (*module, *module)).collect();
    let deepest = |path: &[&str]| {
        (1..=path.len()).rev().find_map(|depth| modules.get(path.get(..depth)?.join("/").as_str()).copied())
    };
    let of_file = |(module, source): &(&'a str, &Source)| {
        let code = code(&source.text);
        let written = paths(&code, module);
        let found = written.iter().filter_map(|path| {
            let parts: Vec<&str> = path.split("::").collect();
            deepest(&parts).filter(|imported| imported != module)
        });
        (*module, found.collect())
    };
    files.iter().map(of_file).collect()
}

/// The paths that a module writes, from the crate root.
fn paths(code: &str, module: &str) -> BTreeSet<String> {
    let here: Vec<&str> = module.split('/').collect();
    let declared: Vec<&str> = code.lines().filter_map(declared_module).collect();
    let mut found = BTreeSet::new();
    for written in written_paths(code) {
        let parts: Vec<&str> = written.split("::").collect();
        let up = parts.iter().take_while(|part| **part == "super").count();
        let (base, rest): (&[&str], &[&str]) = match parts.first() {
            Some(&"crate") => (&[], parts.get(1..).unwrap_or_default()),
            Some(&"self") => (&here, parts.get(1..).unwrap_or_default()),
            Some(&"super") => (
                here.get(..here.len().saturating_sub(up)).unwrap_or_default(),
                parts.get(up..).unwrap_or_default(),
            ),
            Some(first) if declared.contains(first) => (&here, &parts),
            _ => continue,
        };
        found.insert(base.iter().chain(rest).copied().collect::<Vec<_>>().join("::"));
    }
    found
}

fn declared_module(line: &str) -> Option<&str> {
    let name = line.trim_start().rsplit_once("mod ")?;
    let visible = name.0.is_empty() || name.0.starts_with("pub");
    name.1.strip_suffix(';').filter(|_| visible)
}

/// Every path of at least two names, with the groups of `use` written out.
fn written_paths(code: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(is_name) {
        let path = rest.get(at..).unwrap_or_default();
        let end = path.find(|c: char| !is_name(c) && c != ':').unwrap_or(path.len());
        let (text, after) = path.split_at(end);
        match text.strip_suffix("::") {
            Some(start) if after.starts_with('{') => {
                let length = group_length(after);
                let (group, after) = after.split_at(length);
                let inner = group.trim_start_matches('{').trim_end_matches('}');
                found.extend(entries(inner).iter().flat_map(|entry| expand(start, entry)));
                rest = after;
            }
            _ => {
                if text.contains("::") {
                    found.push(text.trim_end_matches(':').to_owned());
                }
                rest = after;
            }
        }
    }
    found
}

fn expand(start: &str, entry: &str) -> Vec<String> {
    match entry.split_once('{') {
        Some((head, group)) => {
            let start = format!("{start}::{}", head.trim_end_matches("::"));
            let group = group.strip_suffix('}').unwrap_or(group);
            entries(group).iter().flat_map(|entry| expand(&start, entry)).collect()
        }
        None => vec![format!("{start}::{}", entry.split_whitespace().next().unwrap_or_default())],
    }
}

/// The entries of a group, split at its commas.
fn entries(group: &str) -> Vec<String> {
    let (mut all, mut entry, mut depth) = (Vec::new(), String::new(), 0_usize);
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            all.push(std::mem::take(&mut entry));
        } else if !(c.is_whitespace() && entry.is_empty()) {
            entry.push(c);
        }
    }
    all.push(entry);
    all.retain(|entry| !entry.trim().is_empty());
    all
}

/// How long a group in braces is, both included.
fn group_length(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// The groups of modules that reach each other and lie in more than one room.
fn cycles<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (*module, reachable(module, imports))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let folders: BTreeSet<&str> =
        imports.keys().filter_map(|module| module.split_once('/')).map(|(folder, _)| folder).collect();
    let room = |module: &'a str| {
        let top = module.split('/').next().unwrap_or(module);
        if folders.contains(top) { top } else { "" }
    };
    let mut groups = BTreeSet::new();
    for module in imports.keys().filter(|module| reaches(module, module)) {
        let group: Vec<&str> = imports
            .keys()
            .filter(|other| reaches(module, other) && reaches(other, module))
            .copied()
            .collect();
        let rooms: BTreeSet<&str> = group.iter().map(|module| room(module)).collect();
        if rooms.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

fn reachable<'a>(from: &str, imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&'a str> = imports.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source { path: format!("host/x/src/{path}"), text: (*text).to_owned() })
            .collect();
        let mut report = Report::default();
        check(&sources, &mut report);
        report.errors
    }

    #[test]
    fn a_cycle_across_rooms_is_found_however_it_is_written() {
        for back in [
            "use crate::a::A;\n",
            "use crate::{c, a::{self, A}};\n",
            "fn f() { crate::a::g() }\n",
            "use super::super::a::A;\n",
            "use crate::a::deep::{D, E};\n",
            "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nuse crate::a;\n",
        ] {
            let found = errors(&[
                ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
                ("a.rs", "mod deep;\npub use deep::D;\nuse crate::b::inner::B;\n"),
                ("a/deep.rs", "use super::A;\n"),
                ("b.rs", "mod inner;\n"),
                ("b/inner.rs", back),
                ("c.rs", ""),
            ]);
            assert_eq!(found.len(), 1, "{back}: {found:?}");
            assert!(found[0].contains("a, ") && found[0].contains("b/inner"), "{found:?}");
        }
    }

    #[test]
    fn other_imports_are_fine() {
        for back in [
            "",
            "// use crate::a::A;\n",
            "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            "use other_crate::a::A;\n",
            "use super::B;\nuse self::a::A;\n",
        ] {
            let files = [
                ("a.rs", "use crate::b::inner::B;\n"),
                ("b.rs", "mod inner;\nuse inner::B;\n"),
                ("b/inner.rs", back),
            ];
            assert_eq!(errors(&files), Vec::<String>::new(), "{back}");
        }
    }
}
