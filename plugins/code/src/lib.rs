//! The project's own checks as tools: lint, typecheck, run_tests.
//!
//! Which program each of them runs is a setting of the operator, and only what the policy grants to the plugin runs at all.
//! A model chooses among the checks that are set up and may narrow them to paths or names; it never writes a command.

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
