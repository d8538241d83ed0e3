//! `patch_file`.

use toolbay_sdk::files;
use toolbay_sdk::prelude::*;

use crate::patch::{self, HunkPlace};
use crate::read_file::read_text;

/// The result of a patch.
#[data]
#[derive(Debug, PartialEq)]
pub struct PatchReport {
    /// The path of the file.
    pub path: String,
    /// The place of each hunk, in the order of the patch.
    pub hunks: Vec<AppliedHunk>,
    /// The number of added lines.
    pub added: usize,
    /// The number of removed lines.
    pub removed: usize,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The new version of the file.
    pub version: String,
}

/// The place of an applied hunk.
#[data]
#[derive(Debug, PartialEq)]
pub struct AppliedHunk {
    /// Its first line in the new file, from 1.
    pub line: usize,
    /// How many lines below the line that the patch names; negative: above. Absent if the patch names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
}

impl From<HunkPlace> for AppliedHunk {
    fn from(place: HunkPlace) -> Self {
        Self { line: place.line, offset: place.offset }
    }
}

/// Change parts of one text file: all of them, or none.
///
/// The patch is a unified diff, or blocks of whole lines to find and their replacement:
/// `<<<<<<< SEARCH`, the lines, `=======`, the new lines, `>>>>>>> REPLACE`, each on a line of its own. Lines that stay
/// or go must be in the file exactly as written, at the line of the hunk's header or in one place only. Refused if the
/// file changed since it was read: then read it again.
#[tool(
    toolset = "file", tags = ["write", "edit"], closed_world, meta = r#"{"internal_reads": true}"#,
    fs_write = "**", reason = "writes the file you name",
    fs_read = "**", reason = "reads the file you patch",
)]
pub fn patch_file(
    /// Path of the file.
    #[arg(length(min = 1))]
    path: String,
    /// A unified diff of this file, or search/replace blocks.
    #[arg(length(min = 1))]
    patch: String,
    /// Version the file must still have, as `read_file` gave it. Without it, the file must not have changed since this
    /// session last read it.
    expected_version: Option<String>,
) -> Result<Rendered<PatchReport>> {
    let refused = |why: String| Error::input(why).at("/patch");
    let hunks = patch::parse(&patch).map_err(refused)?;
    let (text, version) = read_text(&path)?;
    if expected_version.as_ref().is_some_and(|expected| *expected != version) {
        return Err(files::stale(&path));
    }
    let patched = patch::apply(&text, &hunks).map_err(refused)?;
    if patched.text == text {
        return Err(refused("the patch changes nothing".to_owned()));
    }
    let stat = files::write(&path, &patched.text, expected_version.as_deref())?;
    let shifted: Vec<String> = (patched.places.iter().zip(1..))
        .filter_map(|(place, n)| Some((n, place.line, place.offset.filter(|offset| *offset != 0)?)))
        .map(|(n, line, offset)| {
            format!("\nHunk {n} applied at line {line}, {offset:+} lines from its header.")
        })
        .collect();
    let text = format!(
        "Patched `{path}`. Hunks: {}, lines added: {}, removed: {}.{}",
        hunks.len(),
        patched.added,
        patched.removed,
        shifted.concat()
    );
    let data = PatchReport {
        path,
        hunks: patched.places.into_iter().map(AppliedHunk::from).collect(),
        added: patched.added,
        removed: patched.removed,
        bytes: stat.size,
        version: stat.version,
    };
    Ok(Rendered { text, data })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::serde_json::Value;
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;
    use crate::read_file::read_file;
    use crate::write_file::write_file;

    const PATCH: &str = "@@ -1,2 +1,2 @@\n one\n-two\n+2\n";

    fn fake() -> FakeHost {
        FakeHost::new().file("a", "one\ntwo\n")
    }

    #[track_caller]
    fn refused(fake: &FakeHost, args: Value) -> (ErrorCode, Option<String>) {
        let error = fake.run(|| call::<patch_file>(args)).unwrap_err();
        (error.code(), error.subject().map(str::to_owned))
    }

    #[test]
    fn a_patch_changes_the_file_and_reports_the_hunks() {
        let fake = fake();
        let output = fake.run(|| call::<patch_file>(json!({"path": "a", "patch": PATCH}))).unwrap();
        assert_eq!(output.value, "Patched `a`. Hunks: 1, lines added: 1, removed: 1.");
        let expected =
            r#"{"path":"a","hunks":[{"line":1,"offset":0}],"added":1,"removed":1,"bytes":6,"version":"v2"}"#;
        assert_eq!(output.structured.as_deref(), Some(expected));
        assert_eq!(fake.text("a").as_deref(), Some("one\n2\n"));
    }

    #[test]
    fn a_shifted_hunk_is_reported() {
        let fake = FakeHost::new().file("a", "zero\none\ntwo\n");
        let output = fake.run(|| call::<patch_file>(json!({"path": "a", "patch": PATCH}))).unwrap();
        assert!(
            output.value.ends_with("\nHunk 1 applied at line 2, +1 lines from its header."),
            "{}",
            output.value
        );
    }

    #[test]
    fn what_does_not_apply_changes_nothing_and_points_at_the_patch() {
        for patch in ["no patch", "@@\n-three\n", "@@\n one\n", "@@\n-one\n@@\n-three\n"] {
            let fake = fake();
            let (code, subject) = refused(&fake, json!({"path": "a", "patch": patch}));
            assert_eq!((code, subject.as_deref()), (ErrorCode::InputInvalid, Some("/patch")), "{patch}");
            assert_eq!(fake.text("a").as_deref(), Some("one\ntwo\n"));
        }
        let (code, subject) = refused(&fake(), json!({"path": "none", "patch": PATCH}));
        assert_eq!((code, subject.as_deref()), (ErrorCode::ExecutionFailed, Some("not-found")));
    }

    #[test]
    fn a_file_that_changed_since_it_was_read_is_not_patched() {
        let fake = fake();
        fake.run(|| call::<read_file>(json!({"path": "a"}))).unwrap();
        fake.set_file("a", "one\ntwo\nthree\n");
        let stale = (ErrorCode::StaleWrite, Some("a".to_owned()));
        assert_eq!(refused(&fake, json!({"path": "a", "patch": PATCH})), stale);
        // The refused patch read the file, but showed nothing of it.
        let write = json!({"path": "a", "content": "mine"});
        let error = fake.run(|| call::<write_file>(write)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::StaleWrite);
        assert_eq!(fake.text("a").as_deref(), Some("one\ntwo\nthree\n"));

        fake.run(|| call::<read_file>(json!({"path": "a"}))).unwrap();
        fake.run(|| call::<patch_file>(json!({"path": "a", "patch": PATCH}))).unwrap();
        assert_eq!(fake.text("a").as_deref(), Some("one\n2\nthree\n"));
    }

    #[test]
    fn an_expected_version_must_be_the_present_one() {
        let fake = fake();
        let args = |version: &str| json!({"path": "a", "patch": PATCH, "expected_version": version});
        assert_eq!(refused(&fake, args("v9")).0, ErrorCode::StaleWrite);
        fake.run(|| call::<patch_file>(args("v1"))).unwrap();
        assert_eq!(refused(&fake, args("v1")).0, ErrorCode::StaleWrite);
    }
}
