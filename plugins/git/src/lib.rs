//! Tools that read a Git repository: status, log, diff. They change nothing.
//!
//! They run the host's `git`. Programs that a repository could make Git run are disabled as far as Git allows (file
//! system monitor, external diffs, text conversion, signatures, pagers). The sandbox of the host confines the rest.

pub mod diff;
pub mod log;
mod run;
pub mod status;

toolbay_sdk::plugin! {
    tools: [status::status, log::log, diff::diff],
}
