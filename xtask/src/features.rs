//! The crate `toolbay` with some of its features. The build of everything has them all.

use std::path::Path;

use anyhow::Result;

use crate::cargo::{self, cargo, linted};
use crate::foreign::shell;

/// The features that code depends on. `keyring` has a step of its own.
const FEATURES: [&str; 6] = ["compiler", "net", "macros", "mcp", "openapi", "registry"];

/// Checks the crate without features, and fails if it warns.
pub(crate) fn check_none(workspace: &Path) -> Result<()> {
    check(workspace, &[])
}

/// Checks the crate with each feature alone, and tests it without any: the built program compiles in its place.
pub(crate) fn check_each(workspace: &Path) -> Result<()> {
    for feature in FEATURES {
        check(workspace, &["--features", feature])?;
    }
    cargo::build_host(workspace)?;
    let mut test = cargo(workspace);
    test.env("TOOLBAY_TEST_WORKER", cargo::host(workspace));
    shell(test.args(["test", "--package", "toolbay", "--no-default-features", "--test", "all"]))
}

fn check(workspace: &Path, features: &[&str]) -> Result<()> {
    let mut check = linted(workspace)?;
    shell(check.args(["check", "--package", "toolbay", "--lib", "--no-default-features"]).args(features))
}
