//! Warnings about names of tools that some clients refuse, because they are longer than `[serve] name_budget`.

use toolbay::Policy;
use toolbay_policy::NamedTool;

use crate::output::{Printer, count_noun};

/// Most warnings with a line each.
const MAX_LINES: usize = 5;

/// Reports the tools with long names.
pub(crate) fn report<'a>(printer: Printer, policy: &Policy, tools: impl Iterator<Item = NamedTool<'a>>) {
    let warnings: Vec<String> = tools.filter_map(|tool| policy.long_name_warning(tool)).collect();
    printer.warnings(&warnings, MAX_LINES, |more| {
        format!("{} too long", count_noun(more, "more name is", "more names are"))
    });
}
