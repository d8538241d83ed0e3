//! Writes the tables of the documentation.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::bench::machine::Conditions;
use crate::folder::write_between;
use crate::programs::printed;

const PAGE: &str = "docs/explanation/performance.md";
const MARKS: [&str; 2] = ["<!-- cargo xtask peers -->", "<!-- end of cargo xtask peers -->"];

/// Writes the measurements between the markers of the page.
pub(super) fn write(
    workspace: &Path,
    tables: &str,
    conditions: &Conditions,
    missing: &[String],
) -> Result<()> {
    let today = printed(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let mut text = format!("\nMeasured on {}; {}.\n{tables}", today.trim(), conditions.describe());
    if !missing.is_empty() {
        text += "\nNot measured:\n\n";
        text += &missing.iter().map(|why| format!("- {}\n", why.replace('\n', " "))).collect::<String>();
    }
    write_between(&workspace.join(PAGE), MARKS, &text)?;
    println!("the tables are in `{PAGE}`");
    Ok(())
}
