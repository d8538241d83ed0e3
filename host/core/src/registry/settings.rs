//! The operator's settings for tools, by name: disabled, hidden, metadata overrides. Settings outlive their tools, so a
//! plugin that is loaded again gets them back.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::{MetadataOverride, ToolEntry};

/// The disabled tools and namespaces, in the form in which a program saves them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// The reasons by qualified name.
    pub tools: BTreeMap<String, String>,
    /// The reasons by namespace.
    pub namespaces: BTreeMap<String, String>,
}

/// All settings, by qualified name and by namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    pub(super) tools: BTreeMap<Arc<str>, ToolSettings>,
    pub(super) namespaces: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ToolSettings {
    pub(super) disabled: Option<Arc<str>>,
    pub(super) hidden: bool,
    pub(super) metadata: Option<Arc<MetadataOverride>>,
}

impl RegistrySettings {
    /// The disabled tools and namespaces.
    #[must_use]
    pub fn switches(&self) -> Switches {
        let off = |(name, setting): (&Arc<str>, &ToolSettings)| {
            Some((name.to_string(), setting.disabled.as_ref()?.to_string()))
        };
        let namespaces = self.namespaces.iter().map(|(name, reason)| (name.to_string(), reason.to_string()));
        Switches { tools: self.tools.iter().filter_map(off).collect(), namespaces: namespaces.collect() }
    }

    /// The metadata override of a tool, if it has one.
    #[must_use]
    pub fn metadata(&self, tool: &str) -> Option<&MetadataOverride> {
        self.tools.get(tool)?.metadata.as_deref()
    }

    /// Applies the settings to a tool.
    pub(crate) fn apply(&self, entry: &mut ToolEntry) {
        let setting = self.tools.get(entry.def.name.as_str());
        // A tool that the operator renamed stays off.
        let full = self.tools.get(entry.def.full_name().as_str());
        let reason = setting.and_then(|setting| setting.disabled.as_ref());
        let reason = reason.or_else(|| full?.disabled.as_ref());
        let of_namespace = entry.def.namespace().and_then(|namespace| self.namespaces.get(namespace));
        // The most specific reason takes precedence.
        entry.availability.disabled = reason.or(of_namespace).or(entry.derived.hook_reason.as_ref()).cloned();
        let hidden = setting.is_some_and(|setting| setting.hidden);
        entry.apply_presentation(hidden, setting.and_then(|setting| setting.metadata.as_deref()));
    }

    pub(super) fn tool_mut(&mut self, tool: &str) -> &mut ToolSettings {
        self.tools.entry(tool.into()).or_default()
    }

    /// Removes settings that have only default values.
    pub(super) fn remove_empty(&mut self) {
        let nothing = ToolSettings::default();
        self.tools.retain(|_, setting| *setting != nothing);
    }
}
