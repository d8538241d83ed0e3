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

/// A decision of the permission rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PermissionLabels {
    pub(crate) action: &'static str,
}

/// A limit of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LimitLabels {
    pub(crate) limit: &'static str,
}

/// The result of reading files again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReloadLabels {
    pub(crate) result: &'static str,
}

/// The status of a refused HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StatusLabels {
    pub(crate) status: u16,
}

/// A loaded plugin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PluginInfoLabels {
    pub(crate) plugin: String,
    pub(crate) version: String,
    pub(crate) digest: String,
}

/// This program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct BuildLabels {
    pub(crate) version: &'static str,
    pub(crate) wasmtime: &'static str,
    pub(crate) contract: &'static str,
}

/// The value of `plugin`: the id of a plugin, or the label of another source.
pub(crate) fn plugin(source: &ToolSource) -> String {
    source.plugin().map_or_else(|| source.label(), |id| id.as_str().to_owned())
}
