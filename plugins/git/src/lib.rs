//! Tools that look at a Git repository: status, log, diff. They change nothing.
//!
//! They run the host's `git`. What a repository could make it run is switched off as far as Git lets it be (the file
//! system monitor, external diffs, text conversion, signatures, pagers); the rest the host's sandbox holds.

pub mod diff;
pub mod log;
mod run;
pub mod status;

toolbay_sdk::plugin! {
    tools: [status::status, log::log, diff::diff],
}
