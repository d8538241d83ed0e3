//! Regular expressions from a model: linear time, bounded size, and an error that points at the argument.

use regex::{Regex, RegexBuilder};
use toolbay_sdk::{Error, Result};

/// A program of that size is far beyond what anybody writes by hand; `\w{1000}` would reach it.
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
