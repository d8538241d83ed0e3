//! Tools that a source names and that are not registered. A call of such a name says why.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolbay_policy::refusal::PolicyRefusal;

use super::Registry;
use super::catalog::Catalog;

/// The names of a source that are no tools, each with the reason.
pub(super) type LeftOutTools = Arc<BTreeMap<String, PolicyRefusal>>;

impl Registry {
    /// Sets the qualified names of a source that are no tools, each with the reason. `label` is the
    /// [label](crate::tool::ToolSource::label) of the source. Views do not list them. An empty map removes the earlier entries.
    pub fn set_left_out(&self, label: &str, tools: BTreeMap<String, PolicyRefusal>) {
        self.change(|draft| {
            draft.silent_change = true;
            match tools.is_empty() {
                true => drop(draft.catalog.left_out.remove(label)),
                false => drop(draft.catalog.left_out.insert(label.into(), Arc::new(tools))),
            }
        });
    }
}

impl Catalog {
    /// The source that leaves a name out, and the reason.
    pub(super) fn left_out(&self, name: &str) -> Option<(&str, &PolicyRefusal)> {
        self.left_out.iter().find_map(|(label, tools)| Some((&**label, tools.get(name)?)))
    }
}
