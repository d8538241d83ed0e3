//! `write_file`.

use toolbay_sdk::files;
use toolbay_sdk::prelude::*;

/// The result of a write.
#[data]
#[derive(Debug, PartialEq)]
pub struct WriteReport {
    /// The path of the file.
    pub path: String,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The new version of the file.
    pub version: String,
}

/// Write a whole text file, replacing what it held.
///
/// Refused if the file changed since it was read: then read it again and write what should stand there.
#[tool(
    toolset = "file", tags = ["write"], idempotent, closed_world,
    fs_write = "**", reason = "writes the file you name",
    fs_read = "**", reason = "compares the file with what was read, so that nobody's change is lost",
)]
pub fn write_file(
    /// Path of the file.
    #[arg(length(min = 1))]
    path: String,
    /// The whole new text.
    content: String,
    /// Version the file must still have, as `read_file` gave it. Without it, the file must not have changed since this
    /// session last read it.
    expected_version: Option<String>,
) -> Result<Rendered<WriteReport>> {
    let bytes = content.len() as u64;
    let stat = files::write(&path, &content, expected_version.as_deref())?;
    let text = format!("Wrote {bytes} bytes to `{path}`.");
    Ok(Rendered { text, data: WriteReport { path, bytes: stat.size, version: stat.version } })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;
    use crate::read_file::read_file;

    #[test]
    fn a_new_file_is_written() {
        let fake = FakeHost::new();
        let output = fake.run(|| call::<write_file>(json!({"path": "a", "content": "xé"}))).unwrap();
        assert_eq!(output.value, "Wrote 3 bytes to `a`.");
        assert_eq!(output.structured.as_deref(), Some(r#"{"path":"a","bytes":3,"version":"v1"}"#));
        assert_eq!(fake.text("a").as_deref(), Some("xé"));
    }

    #[test]
    fn a_file_that_changed_since_it_was_read_is_not_overwritten() {
        let fake = FakeHost::new().file("a", "one");
        fake.run(|| call::<read_file>(json!({"path": "a"}))).unwrap();
        fake.set_file("a", "two");
        let error = fake.run(|| call::<write_file>(json!({"path": "a", "content": "three"}))).unwrap_err();
        assert_eq!((error.code(), error.subject()), (ErrorCode::StaleWrite, Some("a")));
        assert_eq!(fake.text("a").as_deref(), Some("two"));
    }

    #[test]
    fn an_expected_version_must_be_the_present_one() {
        let fake = FakeHost::new().file("a", "one");
        let write = |version: &str| {
            fake.run(|| {
                call::<write_file>(json!({"path": "a", "content": "two", "expected_version": version}))
            })
        };
        assert_eq!(write("v9").unwrap_err().code(), ErrorCode::StaleWrite);
        assert!(write("v1").is_ok());
        assert_eq!(write("v1").unwrap_err().code(), ErrorCode::StaleWrite);
    }
}
