//! The labels of metrics. Their values come from the registry and from fixed lists, never from a client.

use prometheus_client::encoding::EncodeLabelSet;
use toolbay_core::tool::ToolSource;

/// The outcome of calls of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabels {
    pub(crate) plugin: String,
    pub(crate) tool: String,
    pub(crate) outcome: &'static str,
}

/// A plugin, or another source of tools.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PluginLabels {
    pub(crate) plugin: String,
}

/// A capability that was refused to a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RefusalLabels {
    pub(crate) plugin: String,
    pub(crate) capability: &'static str,
}

/// Why calls of a plugin were refused before their tools were started.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RefusedCallLabels {
    pub(crate) plugin: String,
    pub(crate) reason: &'static str,
}

/// The only label of a metric: its name and its value.
pub(crate) type OneLabel<V> = [(&'static str, V); 1];

/// The value of `plugin`: the id of a plugin, or the label of another source.
pub(crate) fn plugin(source: &ToolSource) -> String {
    source.plugin().map_or_else(|| source.label(), |id| id.as_str().to_owned())
}
