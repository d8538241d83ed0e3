//! A tool that runs programs.
//!
//! There is no shell: the host starts the one program that is named, with the arguments as they are, in a sandbox. The
//! capabilities ask for `*` and `**`, which means whatever the operator grants.

mod report;
pub mod terminal;
mod words;

toolbay_sdk::plugin! {
    tools: [terminal::terminal],
}
