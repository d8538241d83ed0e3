//! Tools for texts. They need no capability: their input comes in the arguments.
//!
//! Each tool has its own file. A tool with potentially large output has a limit and states what it left out, because the
//! host would truncate blindly.

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
