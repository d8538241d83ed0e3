//! One line in the log when the keywords that a source's schemas lose change.

use std::fmt::Write as _;
use std::sync::Arc;

use toolbay_policy::excerpt::one_line;

use super::entry::ToolEntry;

/// Most tools in the line. The rest is counted.
const MAX_TOOLS: usize = 3;
/// Longest line, in characters.
const MAX_LINE: usize = 2000;

/// Logs the keywords of a source that are not checked, if they changed.
pub(super) fn log_change(source: &str, old: Option<&[Arc<ToolEntry>]>, new: Option<&[Arc<ToolEntry>]>) {
    let line = describe(new.unwrap_or_default());
    if let Some(line) = line.filter(|line| describe(old.unwrap_or_default()).as_ref() != Some(line)) {
        tracing::warn!(source, "{line}");
    }
}

/// The keywords that are not checked, in one line; `None` if all are.
fn describe(tools: &[Arc<ToolEntry>]) -> Option<String> {
    let (mut keywords, mut weak, mut text) = (0, 0, String::new());
    for entry in tools {
        let lost: Vec<_> = entry.def.dropped_keywords().collect();
        if lost.is_empty() {
            continue;
        }
        weak += 1;
        for (schema, dropped) in lost {
            keywords += dropped.count();
            if weak <= MAX_TOOLS {
                _ = write!(text, "; {schema} schema of `{}`: {dropped}", entry.def.name);
            }
        }
    }
    if weak > MAX_TOOLS {
        _ = write!(text, "; and {} more tools", weak - MAX_TOOLS);
    }
    let what = format!("schemas of {weak} tools have {keywords} keywords that are not checked{text}");
    (weak > 0).then(|| one_line(&what, MAX_LINE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixture::mcp_tool;
    use crate::tool::ToolDef;
    use crate::tool::schema::SchemaReader;

    #[test]
    fn the_line_names_the_first_and_counts_the_rest() {
        let entry = |name: &str, schema: &str| {
            let mut entry = mcp_tool("s", name);
            let input_schema = SchemaReader::for_plugins().input(Some(schema));
            entry.def = Arc::new(ToolDef { input_schema, ..ToolDef::clone(&entry.def) });
            Arc::new(entry)
        };
        let good = entry("good", r#"{"type":"object"}"#);
        assert_eq!(describe(std::slice::from_ref(&good)), None);
        let weak = |name: &str| entry(name, r#"{"required":true,"properties":{"a":{"type":"s"}}}"#);
        let line = describe(&[good, weak("a"), weak("b"), weak("c"), weak("d")]).unwrap();
        assert!(line.starts_with("schemas of 4 tools have 8 keywords that are not checked; "), "{line}");
        assert!(
            line.contains("input schema of `mcp__s__a`: 2 keywords: /required (")
                && line.contains("mcp__s__c")
        );
        assert!(line.ends_with("; and 1 more tools") && !line.contains("mcp__s__d"), "{line}");
    }
}
