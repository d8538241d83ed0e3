//! Golden files: results of calls, compared with files of the crate.

use std::path::{Path, PathBuf};

use serde_json::Value;
use similar::TextDiff;
use toolbay_state::digest::Digest;

use crate::is_on;

/// The variable that writes the files instead of comparing them.
const UPDATE: &str = "TOOLBAY_UPDATE_GOLDEN";
/// Their folder, relative to the crate.
const FOLDER: &str = "tests/golden";
/// The most lines of a diff that a message shows.
const MAX_LINES: usize = 200;

/// A result under comparison: JSON with sorted keys.
#[derive(Debug, Clone)]
pub struct GoldenFile(Value);

impl GoldenFile {
    pub(crate) fn new(value: Value) -> Self {
        Self(value)
    }

    /// Replaces values that differ in each run by `"[redacted]"`. A JSON pointer such as `/structured/items/*/id` names them;
    /// `*` matches every key or index. Missing values are ignored.
    #[must_use]
    pub fn redact(mut self, pointer: &str) -> Self {
        let steps: Vec<String> =
            pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        if !steps.is_empty() {
            redact(&mut self.0, &steps);
        }
        self
    }

    /// Replaces a text by another one in every string.
    #[must_use]
    pub fn replace(mut self, from: &str, to: &str) -> Self {
        if !from.is_empty() {
            in_texts(&mut self.0, &|text| text.replace(from, to));
        }
        self
    }

    pub(crate) fn compare(self, folder: &Path, name: &str) -> Result<(), String> {
        self.compare_or_write(folder, name, is_on(UPDATE))
    }

    fn compare_or_write(self, folder: &Path, name: &str, write: bool) -> Result<(), String> {
        let file = place(folder, name)?;
        let shown = file.display();
        let mut value = self.0;
        value.sort_all_objects();
        let mut found = serde_json::to_string_pretty(&value).map_err(|error| error.to_string())?;
        found.push('\n');
        if write {
            let written =
                std::fs::create_dir_all(folder.join(FOLDER)).and_then(|()| std::fs::write(&file, found));
            return written.map_err(|error| format!("`{shown}` cannot be written: {error}"));
        }
        let wanted = std::fs::read_to_string(&file).map_err(|error| {
            format!("`{shown}` cannot be read: {error}; to write it, run the test with {UPDATE}=1. It would be:\n{found}")
        })?;
        // A checkout may have converted the line ends.
        let wanted = wanted.replace("\r\n", "\n");
        if wanted == found {
            return Ok(());
        }
        Err(format!(
            "the result is not that of `{shown}`; if it is right, run the test with {UPDATE}=1\n{}",
            difference(&wanted, &found)
        ))
    }
}

/// The file of a name. The name cannot lead to another folder.
fn place(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 100 || !name.chars().all(plain) {
        return Err(format!("`{name}` cannot name a golden file: letters, digits, `-` and `_`, 100 at most"));
    }
    Ok(folder.join(FOLDER).join(format!("{name}.json")))
}

fn redact(value: &mut Value, steps: &[String]) {
    let Some((step, rest)) = steps.split_first() else {
        *value = Value::from("[redacted]");
        return;
    };
    match value {
        Value::Object(members) => {
            for (_, member) in members.iter_mut().filter(|(key, _)| step == "*" || *key == step) {
                redact(member, rest);
            }
        }
        Value::Array(elements) => {
            let is_it = |index: usize| step == "*" || *step == index.to_string();
            for (_, element) in elements.iter_mut().enumerate().filter(|(index, _)| is_it(*index)) {
                redact(element, rest);
            }
        }
        _ => {}
    }
}

fn in_texts(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(elements) => elements.iter_mut().for_each(|element| in_texts(element, change)),
        Value::Object(members) => members.values_mut().for_each(|member| in_texts(member, change)),
        _ => {}
    }
}

/// The differing lines with their context: `-` is the file, `+` the result.
fn difference(wanted: &str, found: &str) -> String {
    let diff = TextDiff::from_lines(wanted, found).unified_diff().to_string();
    let mut shown: Vec<&str> = diff.lines().take(MAX_LINES + 1).collect();
    if let Some(more) = shown.get_mut(MAX_LINES) {
        *more = "…";
    }
    shown.join("\n")
}

/// In hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(folder: &Path, name: &str, text: &str) {
        std::fs::create_dir_all(folder.join(FOLDER)).unwrap();
        std::fs::write(folder.join(FOLDER).join(format!("{name}.json")), text).unwrap();
    }

    #[test]
    fn the_order_of_keys_and_what_is_redacted_do_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        written(
            dir.path(),
            "a",
            "{\n  \"a\": {\n    \"c\": \"[redacted]\",\n    \"d\": 1\n  },\n  \"b\": [\n    \"in $dir\"\n  ]\n}\n",
        );
        let golden = GoldenFile::new(json!({"b": ["in /tmp/x"], "a": {"d": 1, "c": 12345}}));
        let golden = golden.redact("/a/c").redact("/not/there").replace("/tmp/x", "$dir");
        assert_eq!(golden.compare_or_write(dir.path(), "a", false), Ok(()));
        let every = GoldenFile::new(json!({"items": [{"id": 1}, {"id": 2, "k": 3}]})).redact("/items/*/id");
        assert_eq!(every.0, json!({"items": [{"id": "[redacted]"}, {"id": "[redacted]", "k": 3}]}));
    }

    #[test]
    fn a_difference_names_file_lines_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path(), "a", "{\n  \"text\": \"old\"\n}\n");
        let problem =
            GoldenFile::new(json!({"text": "new"})).compare_or_write(dir.path(), "a", false).unwrap_err();
        for part in ["tests/golden/a.json", "-  \"text\": \"old\"", "+  \"text\": \"new\"", UPDATE] {
            assert!(problem.contains(part), "{part}: {problem}");
        }
        let problem = GoldenFile::new(json!({"text": "new"}))
            .compare_or_write(dir.path(), "absent", false)
            .unwrap_err();
        assert!(problem.contains("absent.json") && problem.contains("\"text\": \"new\""), "{problem}");
        for name in ["", "../a", "a/b", "a.json"] {
            let problem = GoldenFile::new(json!(1)).compare_or_write(dir.path(), name, true).unwrap_err();
            assert!(problem.contains("cannot name"), "{name}: {problem}");
        }
    }

    #[test]
    fn what_was_written_is_what_comes() {
        let dir = tempfile::tempdir().unwrap();
        let golden = || GoldenFile::new(json!({"b": 1, "a": [2]}));
        assert_eq!(golden().compare_or_write(dir.path(), "new", true), Ok(()));
        assert_eq!(golden().compare_or_write(dir.path(), "new", false), Ok(()));
    }

    #[test]
    fn a_long_difference_is_cut() {
        let lines = |word: &str| (0..1000).map(|n| format!("{word}{n}\n")).collect::<String>();
        assert_eq!(difference(&lines("a"), &lines("b")).lines().count(), MAX_LINES + 1);
    }
}
