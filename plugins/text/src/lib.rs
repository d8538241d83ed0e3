//! Tools for texts. They need nothing from the host: what they work on comes in the arguments.
//!
//! One tool a file. Every tool that can give much has a limit of its own and says what it left out, because a cut by the
//! host would be blind.

pub mod diff;
pub mod grep;
pub mod json_query;
pub mod lines;
mod pattern;
mod query_path;
pub mod replace;
pub mod words;

toolbay_sdk::plugin! {
    tools: [
        words::word_count,
        grep::grep,
        json_query::json_query,
        diff::diff,
        lines::slice_lines,
        replace::replace,
    ],
}
