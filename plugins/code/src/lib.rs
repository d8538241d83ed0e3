//! The project's own checks as tools: lint, typecheck, run_tests.
//!
//! The operator's settings name the program of each tool, and it runs only if the policy grants it.
//! A model chooses among the configured checks and may narrow them to paths or names. It never writes a command.

mod check;
pub mod lint;
mod problems;
pub mod run_tests;
mod setup;
pub mod typecheck;

use toolbay_sdk::plugin;

plugin! {
    tools: [lint::lint, typecheck::typecheck, run_tests::run_tests],
    available: setup::available,
}
