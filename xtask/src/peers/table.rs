//! Writes the tables of the documentation.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::bench::machine::Conditions;
use crate::programs::printed;

const PAGE: &str = "docs/explanation/performance.md";
const BEGIN: &str = "<!-- cargo xtask peers -->\n";
const END: &str = "<!-- end of cargo xtask peers -->\n";

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
    let page = workspace.join(PAGE);
    let before = std::fs::read_to_string(&page).with_context(|| format!("cannot read `{PAGE}`"))?;
    std::fs::write(&page, placed(&before, &text)?)?;
    println!("the tables are in `{PAGE}`");
    Ok(())
}

/// Returns the page with the text between the markers replaced.
fn placed(page: &str, text: &str) -> Result<String> {
    let marks = || format!("`{PAGE}` lacks the lines `{}` and `{}`", BEGIN.trim(), END.trim());
    let (above, rest) = page.split_once(BEGIN).with_context(marks)?;
    let (_, below) = rest.split_once(END).with_context(marks)?;
    Ok(format!("{above}{BEGIN}{text}\n{END}{below}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = |inside: &str| format!("a\n{BEGIN}{inside}{END}b\n");
        assert_eq!(placed(&page("old\n"), "new\n").unwrap(), page("new\n\n"));
        assert_eq!(placed(&placed(&page(""), "x").unwrap(), "new\n").unwrap(), page("new\n\n"));
        assert!(placed("no marks\n", "new").unwrap_err().to_string().contains("lacks the lines"));
    }
}
