//! `read_file`.

use toolbay_sdk::prelude::*;
use toolbay_sdk::{context, files};

/// A model cannot read a larger file. The host truncates far below.
const FILE_BYTES: usize = 16 << 20;

/// Large enough to need few calls of the host.
const CHUNK_BYTES: u64 = 1 << 20;

/// The text that was read.
#[data]
#[derive(Debug, PartialEq)]
pub struct FileText {
    /// The path of the file.
    pub path: String,
    /// The number of lines in the whole file.
    pub lines: usize,
    /// Version of the file, for `expected_version` of `write_file` and `patch_file`.
    pub version: String,
}

/// Read a text file, or some of its lines.
///
/// Of a long file, read the lines you need with `start_line` and `end_line`.
#[tool(
    toolset = "file", tags = ["read"], read_only, idempotent, closed_world, untrusted_output,
    fs_read = "**", reason = "reads the file you name",
)]
pub fn read_file(
    /// Path of the file.
    #[arg(length(min = 1))]
    path: String,
    /// The first line to read, from 1.
    #[arg(range(min = 1))]
    start_line: Option<usize>,
    /// The last line to read.
    #[arg(range(min = 1))]
    end_line: Option<usize>,
) -> Result<Rendered<FileText>> {
    let (text, version) = read_text(&path)?;
    // A line break at the end does not begin another line.
    let lines = text.lines().count();
    let data = FileText { path, lines, version };
    if start_line.is_none() && end_line.is_none() {
        return Ok(Rendered { text, data });
    }
    let start = start_line.unwrap_or(1);
    let end = end_line.unwrap_or(usize::MAX);
    if start > end {
        return Err(Error::input(format!("end_line {end} is before start_line {start}")).at("/end_line"));
    }
    if start > lines.max(1) {
        return Err(Error::input(format!("`{}` has {lines} lines only", data.path)).at("/start_line"));
    }
    let text = text.split_inclusive('\n').take(end).skip(start - 1).collect();
    Ok(Rendered { text, data })
}

/// Returns the text of a file and its version.
pub(crate) fn read_text(path: &str) -> Result<(String, String)> {
    let mut bytes = Vec::new();
    let mut chunks = files::chunks(path, CHUNK_BYTES);
    for chunk in chunks.by_ref() {
        context::check_cancelled()?;
        bytes.extend(chunk?);
        if bytes.len() > FILE_BYTES {
            let limit = FILE_BYTES >> 20;
            return Err(Error::failed(format!("`{path}` is larger than {limit} MiB; search it instead"))
                .at("too-large"));
        }
    }
    let version = chunks.stat().map(|stat| stat.version.clone()).unwrap_or_default();
    let text = String::from_utf8(bytes).map_err(|_| files::not_text(path))?;
    Ok((text, version))
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::serde_json::Value;
    use toolbay_sdk::testing::{FakeHost, call, describe};
    use toolbay_sdk::types::{ErrorCode, ToolTraits};

    use super::*;

    fn fake() -> FakeHost {
        FakeHost::new().file("a.txt", "one\ntwo\r\nthree\n").file("bin", [0xff, 0xfe]).file("empty", "")
    }

    #[track_caller]
    fn check(mut args: Value, expected: &str) {
        args["path"] = "a.txt".into();
        let output = fake().run(|| call::<read_file>(args)).unwrap();
        assert_eq!(output.value, expected);
        assert_eq!(output.structured.as_deref(), Some(r#"{"path":"a.txt","lines":3,"version":"v1"}"#));
    }

    #[test]
    fn whole_or_by_lines() {
        check(json!({}), "one\ntwo\r\nthree\n");
        check(json!({"start_line": 2}), "two\r\nthree\n");
        check(json!({"end_line": 1}), "one\n");
        check(json!({"start_line": 2, "end_line": 2}), "two\r\n");
        check(json!({"start_line": 3, "end_line": 99}), "three\n");
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let cases = [
            (json!({"path": "a.txt", "start_line": 4}), ErrorCode::InputInvalid, "/start_line"),
            (json!({"path": "a.txt", "start_line": 2, "end_line": 1}), ErrorCode::InputInvalid, "/end_line"),
            (json!({"path": "none"}), ErrorCode::ExecutionFailed, "not-found"),
            (json!({"path": "bin"}), ErrorCode::ExecutionFailed, "not-text"),
        ];
        for (args, code, subject) in cases {
            let error = fake().run(|| call::<read_file>(args)).unwrap_err();
            assert_eq!((error.code(), error.subject()), (code, Some(subject)), "{error}");
        }
    }

    #[test]
    fn an_empty_file_is_empty() {
        assert_eq!(fake().run(|| call::<read_file>(json!({"path": "empty"}))).unwrap().value, "");
        assert_eq!(
            fake().run(|| call::<read_file>(json!({"path": "empty", "start_line": 1}))).unwrap().value,
            ""
        );
    }

    #[test]
    fn it_asks_to_read_and_warns_of_what_others_wrote() {
        let definition = describe::<read_file>();
        assert!(definition.traits.contains(ToolTraits::READ_ONLY | ToolTraits::UNTRUSTED_OUTPUT));
        let [capability] = definition.capabilities.as_slice() else { panic!("one capability") };
        assert_eq!((capability.kind.as_str(), capability.target.as_str()), ("fs-read", "**"));
        assert!(!capability.optional && capability.reason.is_some());
    }
}
