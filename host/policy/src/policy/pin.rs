//! The pin of a file in a policy: its SHA-256.

use crate::problem::PolicyProblem;

/// Checks a SHA-256 in hex and converts it to lower case.
pub(super) fn normalize_sha256(sha256: &mut Option<String>) -> Result<(), PolicyProblem> {
    let Some(digest) = sha256 else { return Ok(()) };
    digest.make_ascii_lowercase();
    match digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(()),
        false => Err(PolicyProblem::at_keys(["sha256"], "`sha256` is not 64 hex digits")),
    }
}
