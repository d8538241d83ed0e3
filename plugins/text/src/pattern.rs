//! Regular expressions from a model: linear time, bounded size, and an error that names the argument.

use regex::{Regex, RegexBuilder};
use toolbay_sdk::{Error, Result};

/// Far more than any handwritten pattern needs; `\w{1000}` would exceed it.
const COMPILED_BYTES: usize = 1 << 20;

/// Compiles the argument `pattern`.
pub(crate) fn compile(pattern: &str, ignore_case: bool) -> Result<Regex> {
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .multi_line(true)
        .size_limit(COMPILED_BYTES)
        .build()
        .map_err(|error| Error::input(error.to_string()).at("/pattern"))
}
