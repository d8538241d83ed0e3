//! `search_files`.

use regex::{Regex, RegexBuilder};
use toolbay_sdk::prelude::*;
use toolbay_sdk::{context, files};

use crate::glob::Glob;
use crate::shown_name::shown_name;
use crate::walk::{SkippedEntries, walk};

/// Larger files are rarely source code.
const FILE_BYTES: u64 = 2 << 20;

/// The most text that one search reads, in bytes.
const SEARCH_BYTES: u64 = 64 << 20;

/// The longest excerpt of a matching line. Minified files have lines of megabytes.
const LINE_CHARS: usize = 300;

/// Far more than any handwritten pattern needs.
const COMPILED_BYTES: usize = 1 << 20;

/// The result of a search.
#[data]
#[derive(Debug, Default)]
pub struct SearchResult {
    /// The files or the matching lines.
    pub matches: Vec<FileMatch>,
    /// True if results may have been left out.
    pub incomplete: bool,
}

/// A matching file, or a matching line.
#[data]
#[derive(Debug)]
pub struct FileMatch {
    /// Path of the file.
    pub path: String,
    /// Number of the line, from 1, in a search for content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The line, in a search for content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Find files by name, and lines in them by a regular expression.
///
/// Without `content` it lists paths; with it, matching lines as `path:line:text`. Symbolic links are not followed.
#[tool(
    toolset = "file", tags = ["search", "glob", "regex"], read_only, idempotent, closed_world, untrusted_output,
    fs_read = "**", reason = "lists the directories and reads the files you search",
)]
pub fn search_files(
    /// The directory to search.
    #[arg(default = ".", length(min = 1))]
    path: String,
    /// Glob for the files, such as `*.rs` (a name, anywhere) or `src/**/*.{c,h}` (a path below the directory).
    #[arg(default = "*", length(min = 1, max = 1024))]
    pattern: String,
    /// Regular expression a line must match, in the syntax of Rust's `regex` crate; `(?i)` in front ignores case.
    #[arg(length(min = 1, max = 4096))]
    content: Option<String>,
    /// Show at most this many files or lines.
    #[arg(default = 100, range(min = 1, max = 10_000))]
    max_results: usize,
) -> Result<Rendered<SearchResult>> {
    let glob = Glob::new(&pattern)?;
    let content = content.as_deref().map(line_pattern).transpose()?;
    let mut search = Search { max_results, ..Search::default() };
    let gaps = walk(&path, |path, below| {
        if glob.matches(below) {
            match &content {
                None => search.add(FileMatch { path: path.to_owned(), line: None, text: None }),
                Some(regex) => search.read(path, regex)?,
            }
        }
        Ok(!search.full)
    })?;
    Ok(search.finish(&gaps))
}

fn line_pattern(pattern: &str) -> Result<Regex> {
    let regex = RegexBuilder::new(pattern).size_limit(COMPILED_BYTES).build();
    regex.map_err(|error| Error::input(error.to_string()).at("/content"))
}

/// A running search.
#[derive(Debug, Default)]
struct Search {
    text: String,
    matches: Vec<FileMatch>,
    max_results: usize,
    /// The search reached the limit of results or of text.
    full: bool,
    bytes_read: u64,
    skipped_files: usize,
}

impl Search {
    fn add(&mut self, found: FileMatch) {
        if self.matches.len() == self.max_results {
            self.full = true;
            return;
        }
        self.text.push_str(&shown_name(&found.path));
        if let (Some(line), Some(text)) = (found.line, &found.text) {
            self.text.push_str(&format!(":{line}:{text}"));
        }
        self.text.push('\n');
        self.matches.push(found);
    }

    /// Searches one file for matching lines. Skips files that are unreadable or not text.
    fn read(&mut self, path: &str, regex: &Regex) -> Result<()> {
        context::check_cancelled()?;
        let Ok(file) = files::read_part(path, 0, FILE_BYTES) else {
            self.skipped_files += 1;
            return Ok(());
        };
        if file.stat.size > FILE_BYTES {
            self.skipped_files += 1;
            return Ok(());
        }
        self.bytes_read += file.data.len() as u64;
        if let Ok(text) = str::from_utf8(&file.data) {
            for (index, line) in text.lines().enumerate().filter(|(_, line)| regex.is_match(line)) {
                let text = line.chars().take(LINE_CHARS).collect();
                self.add(FileMatch { path: path.to_owned(), line: Some(index + 1), text: Some(text) });
                if self.full {
                    return Ok(());
                }
            }
        }
        self.full = self.bytes_read > SEARCH_BYTES;
        Ok(())
    }

    fn finish(mut self, gaps: &SkippedEntries) -> Rendered<SearchResult> {
        let mut notes = Vec::new();
        if self.bytes_read > SEARCH_BYTES {
            notes.push(format!(
                "stopped after reading {} MiB: narrow `path` or `pattern`",
                SEARCH_BYTES >> 20
            ));
        } else if self.full {
            notes.push(format!(
                "there are more than {} results: narrow the search or raise max_results",
                self.max_results
            ));
        }
        if gaps.too_many_entries {
            notes.push("stopped after too many entries: narrow `path`".to_owned());
        }
        let counts = [
            (gaps.deeper_directories, "directories too deep to search"),
            (gaps.unreadable_directories, "directories that cannot be read"),
            (self.skipped_files, "files too large or not readable"),
        ];
        notes.extend(
            counts
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("left out {count} {what}")),
        );
        if self.matches.is_empty() {
            self.text.push_str("Nothing found.\n");
        }
        for note in &notes {
            self.text.push_str(&format!("[{note}]\n"));
        }
        Rendered {
            text: self.text,
            data: SearchResult { matches: self.matches, incomplete: !notes.is_empty() },
        }
    }
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::serde_json::Value;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;

    fn fake() -> FakeHost {
        FakeHost::new()
            .file("src/main.rs", "fn main() {\n    run();\n}\n")
            .file("src/deep/run.rs", "pub fn run() {}\n")
            .file("README.md", "run it\n")
            .file("logo.png", [0xff, 0xd8])
    }

    #[track_caller]
    fn check(args: Value, expected: &str) {
        assert_eq!(fake().run(|| call::<search_files>(args)).unwrap().value, expected);
    }

    #[test]
    fn by_name() {
        check(json!({"pattern": "*.rs"}), "src/main.rs\nsrc/deep/run.rs\n");
        check(json!({"pattern": "src/*.rs"}), "src/main.rs\n");
        check(json!({"path": "src", "pattern": "deep/*"}), "src/deep/run.rs\n");
        check(json!({"pattern": "*.py"}), "Nothing found.\n");
    }

    #[test]
    fn by_content() {
        check(
            json!({"content": r"\brun\("}),
            "src/main.rs:2:    run();\nsrc/deep/run.rs:1:pub fn run() {}\n",
        );
        check(json!({"content": "(?i)RUN", "pattern": "*.md"}), "README.md:1:run it\n");
    }

    #[test]
    fn what_is_left_out_is_said() {
        let note = "[there are more than 1 results: narrow the search or raise max_results]\n";
        check(json!({"pattern": "*.rs", "max_results": 1}), &format!("src/main.rs\n{note}"));
        check(json!({"pattern": "*.md", "max_results": 1}), "README.md\n");

        let large = fake().file("large.txt", "run\n".repeat(1 << 20)).file("no/a", "").deny("no");
        let output = large.run(|| call::<search_files>(json!({"content": "^run it"}))).unwrap();
        let expected = "README.md:1:run it\n[left out 1 directories that cannot be read]\n\
                        [left out 1 files too large or not readable]\n";
        assert_eq!(output.value, expected);
        assert!(output.structured.unwrap().ends_with("\"incomplete\":true}"));
    }

    #[test]
    fn patterns_that_are_none_point_at_the_argument() {
        let subject =
            |args| fake().run(|| call::<search_files>(args)).unwrap_err().subject().map(str::to_owned);
        assert_eq!(subject(json!({"pattern": "["})).as_deref(), Some("/pattern"));
        assert_eq!(subject(json!({"content": "("})).as_deref(), Some("/content"));
    }
}
