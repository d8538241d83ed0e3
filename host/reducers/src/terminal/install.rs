//! Package managers: `npm`, `pnpm`, `yarn`, `bun`, `pip`, `uv`, `apt`, `cargo install`.

use super::compiler;
use super::noise::{ClassifiedLines, LineAction};
use crate::shape::{begins, digits};

/// Progress lines. Other lines say what was added, removed and found.
const PROGRESS: &[&str] = &[
    // pip
    "Building wheel",
    "Collecting ",
    "Created wheel",
    "Downloading ",
    "Getting requirements to build",
    "Installing build dependencies",
    "Installing collected packages",
    "Looking in ",
    "Obtaining ",
    "Preparing metadata",
    "Requirement already satisfied",
    "Stored in directory",
    "Using cached ",
    "━",
    "Attempting uninstall",
    "Found existing installation",
    "Uninstalling ",
    // apt
    "(Reading database",
    "Building dependency tree",
    "Get:",
    "Hit:",
    "Ign:",
    "Preparing to unpack",
    "Processing triggers",
    "Reading package lists",
    "Reading state information",
    "Selecting previously unselected",
    "Setting up ",
    "Unpacking ",
    "Created symlink ",
    // npm, pnpm, yarn
    "npm http ",
    "npm sill ",
    "npm verb ",
    "npm timing ",
    "run `npm fund`",
    "Progress: ",
    "info ",
    "➤ YN0000: ┌",
    "➤ YN0000: └",
    "➤ YN0013: ",
    // uv
    "Built ",
    "Downloaded ",
    "Prepared ",
];

/// A line with one of these words is never progress.
const TELLING: &[&str] = &[
    "warn",
    "err",
    "fail",
    "vulnerab",
    "deprecat",
    "denied",
    "not found",
    "conflict",
    "incompatib",
    "unable",
    "missing",
    "broken",
];

/// Drops progress; `None` if there is none.
pub(super) fn install(text: &str, most: usize) -> Option<String> {
    let mut found = false;
    let sorted = ClassifiedLines::new(text, |line| {
        let noise = is_progress(line);
        found |= noise;
        if noise { LineAction::Drop } else { LineAction::Keep }
    });
    found.then(|| sorted.show("progress", most))
}

fn is_progress(line: &str) -> bool {
    let trimmed = line.trim();
    let known = begins(trimmed, PROGRESS)
        || trimmed.ends_with("looking for funding")
        || is_step(trimmed)
        || is_bar(trimmed)
        || compiler::is_progress(line) && !trimmed.starts_with("Adding ");
    known && !tells(trimmed)
}

/// `[1/4] Resolving packages...`, of yarn.
fn is_step(trimmed: &str) -> bool {
    let rest =
        trimmed.strip_prefix('[').and_then(digits).and_then(|(_, rest)| digits(rest.strip_prefix('/')?));
    rest.is_some_and(|(_, rest)| rest.starts_with("] "))
}

/// `+++++++---`, of pnpm.
fn is_bar(trimmed: &str) -> bool {
    trimmed.len() > 1 && trimmed.chars().all(|c| matches!(c, '+' | '-'))
}

/// The words are ASCII only.
fn tells(trimmed: &str) -> bool {
    let lower = trimmed.to_ascii_lowercase();
    TELLING.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_something_is_not_progress() {
        for line in [
            "Collecting requests",
            "  Downloading a.whl (10 kB)",
            "   Compiling serde v1",
            "Get:1 mirror/debian a 1.0",
            "[1/4] Resolving packages...",
            "+++++-----",
            "20 packages are looking for funding",
            "Progress: resolved 10, reused 10",
        ] {
            assert!(is_progress(line), "{line}");
        }
        for line in [
            "Downloading a failed: no space",
            "Setting up x: dependency error",
            "added 14 packages in 4s",
            "removed 2 packages",
            "3 high severity vulnerabilities",
            "npm warn deprecated a@1",
            "Successfully installed a-1",
            "+ express 4.0.0",
            "E: Unable to locate package x",
            "0 upgraded, 4 newly installed, 0 to remove",
            "      Adding serde v1 to dependencies",
            "  Installed package `a v1`",
            "[gw0] x",
            "-",
            "",
        ] {
            assert!(!is_progress(line), "{line}");
        }
    }

    #[test]
    fn text_without_progress_is_no_install() {
        assert_eq!(install("run npm install first\nsecret\n0 errors\n", 1000), None);
    }
}
