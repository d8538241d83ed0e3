//! The note about a service or MCP server with more tools than most clients accept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use toolbay::{Filter, Host, View};
use toolbay_core::tool::ToolSource;

use crate::output::{Printer, count_noun};

/// Most tools that common clients and model APIs accept.
const MAX_ACCEPTED: usize = 128;

/// The services and servers that were reported, each once.
#[derive(Debug)]
pub(crate) struct LargeSourceReporter {
    filter: Arc<Filter>,
    reported: Mutex<BTreeSet<String>>,
}

impl LargeSourceReporter {
    /// Creates the reporter for clients whose lists pass `filter`.
    pub(crate) fn new(filter: Filter) -> Self {
        Self { filter: Arc::new(filter), reported: Mutex::default() }
    }

    /// Reports each service and server that has too many tools in the list of clients.
    pub(crate) fn report(&self, printer: Printer, host: &Host) {
        let view = View::new(host.registry().snapshot(), Arc::clone(&self.filter));
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for entry in view.definitions() {
            if let ToolSource::Mcp { .. } | ToolSource::OpenApi { .. } = &*entry.def.source {
                let label = entry.def.source.as_label();
                *counts.entry((label.kind, label.name)).or_default() += 1;
            }
        }
        for ((kind, name), tools) in counts {
            let section = format!("{kind}.{name}");
            if tools > MAX_ACCEPTED && self.reported.lock().insert(section.clone()) {
                report_tool_count(printer, &section, tools);
            }
        }
    }
}

/// Reports a service or server that has too many tools. `section` is its section of the policy.
pub(crate) fn report_tool_count(printer: Printer, section: &str, tools: usize) {
    if tools > MAX_ACCEPTED {
        let key = if section.starts_with("mcp.") { "tools" } else { "include" };
        let tools = count_noun(tools, "tool", "tools");
        printer.note(&format!(
            "[{section}] has {tools}, more than the {MAX_ACCEPTED} that most clients accept; choose some with `{key}`, \
             or list none with `toolbay serve --lazy`"
        ));
    }
}
