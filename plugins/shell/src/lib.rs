//! A tool that runs programs.
//!
//! No shell is involved: the host starts the named program with the arguments unchanged, in a sandbox. The declared
//! `*` and `**` mean everything that the operator grants.

mod report;
pub mod terminal;
mod words;

toolbay_sdk::plugin! {
    tools: [terminal::terminal],
}
