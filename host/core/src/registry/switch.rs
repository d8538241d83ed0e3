//! Settings of registered tools: disabling, hiding and metadata overrides, by name, namespace or tag.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Registry;
use super::entry::{MetadataOverride, ToolEntry};
use super::reason::normalize_reason;
use super::settings::{RegistrySettings, Switches};

/// The error for an unknown tool, namespace or tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{}`", toolbay_policy::excerpt::one_line(name, 100))]
pub struct UnknownNameError {
    /// The kind of name: `tool`, `namespace` or `tag`.
    pub what: &'static str,
    /// The name.
    pub name: String,
}

/// Selects tools by their tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagSelector<'a> {
    /// Tools with at least one of these tags.
    Any(&'a [String]),
    /// Tools with all of these tags.
    All(&'a [String]),
}

impl TagSelector<'_> {
    fn names(&self) -> &[String] {
        match self {
            Self::Any(names) | Self::All(names) => names,
        }
    }

    /// Whether a tool has the tags.
    #[must_use]
    pub fn matches(&self, entry: &ToolEntry) -> bool {
        match self {
            Self::Any(names) => names.iter().any(|name| entry.has_tag(name)),
            Self::All(names) => !names.is_empty() && names.iter().all(|name| entry.has_tag(name)),
        }
    }
}

impl Registry {
    /// Replaces all disabled tools and namespaces with saved ones. They apply to tools that are registered later as well.
    pub fn set_switches(&self, switches: &Switches) {
        self.change(|draft| {
            draft.update_settings(
                |_| true,
                |settings| {
                    for setting in settings.tools.values_mut() {
                        setting.disabled = None;
                    }
                    for (name, reason) in &switches.tools {
                        settings.tool_mut(name).disabled = Some(normalize_reason(reason));
                    }
                    let namespaces = switches.namespaces.iter();
                    settings.namespaces = namespaces
                        .map(|(name, reason)| (name.as_str().into(), normalize_reason(reason)))
                        .collect();
                    Vec::new()
                },
            );
        });
    }

    /// Disables a tool: it is not listed, and a call is refused with the reason. The latest reason counts. The tool
    /// stays disabled when its plugin is reloaded.
    ///
    /// # Errors
    /// The tool does not exist.
    pub fn disable(&self, tool: &str, reason: &str) -> Result<(), UnknownNameError> {
        let reason = normalize_reason(reason);
        self.update_tool(tool, |settings, _| settings.tool_mut(tool).disabled = Some(reason)).map(drop)
    }

    /// Enables a tool that [`Registry::disable`], a tag or a hook disabled. Returns the reason if its namespace is
    /// still disabled.
    ///
    /// # Errors
    /// The tool does not exist and has no settings.
    pub fn enable(&self, tool: &str) -> Result<Option<Arc<str>>, UnknownNameError> {
        self.update_tool(tool, |settings, entry| {
            settings.tool_mut(tool).disabled = None;
            if let Some(entry) = entry {
                entry.derived.hook_reason = None;
            }
        })
    }

    /// Disables all tools of a namespace, including later ones. Returns the tools that were enabled. A tool's own
    /// reason takes precedence over that of its namespace.
    ///
    /// # Errors
    /// The namespace does not exist.
    pub fn disable_namespace(
        &self,
        namespace: &str,
        reason: &str,
    ) -> Result<Vec<Arc<str>>, UnknownNameError> {
        let reason = normalize_reason(reason);
        self.update_namespace(namespace, |settings| {
            settings.namespaces.insert(namespace.into(), reason);
        })
    }

    /// Enables a namespace. Returns the tools that are enabled now. Tools that were disabled by name stay disabled.
    ///
    /// # Errors
    /// The namespace does not exist and has no settings.
    pub fn enable_namespace(&self, namespace: &str) -> Result<Vec<Arc<str>>, UnknownNameError> {
        self.update_namespace(namespace, |settings| drop(settings.namespaces.remove(namespace)))
    }

    /// Disables the current tools with these tags. Returns the tools that were enabled. Later tools are not affected;
    /// use permission rules for those.
    ///
    /// # Errors
    /// No tool has one of the tags.
    pub fn disable_tagged(
        &self,
        tags: TagSelector<'_>,
        reason: &str,
    ) -> Result<Vec<Arc<str>>, UnknownNameError> {
        self.update_tagged(tags, &|entry| entry.availability.disabled.is_none(), |settings, entry| {
            settings.tool_mut(entry.def.name.as_str()).disabled = Some(normalize_reason(reason));
        })
    }

    /// Enables the tools with these tags. Returns the tools that are enabled now.
    ///
    /// # Errors
    /// No tool has one of the tags.
    pub fn enable_tagged(&self, tags: TagSelector<'_>) -> Result<Vec<Arc<str>>, UnknownNameError> {
        let tagged =
            self.update_tagged(tags, &|entry| entry.availability.disabled.is_some(), |settings, entry| {
                settings.tool_mut(entry.def.name.as_str()).disabled = None;
                entry.derived.hook_reason = None;
            })?;
        let now = self.snapshot();
        Ok(tagged
            .into_iter()
            .filter(|name| now.get(name).is_some_and(|e| e.availability.disabled.is_none()))
            .collect())
    }

    /// Hides a tool: it is in no list and no search finds it, but it is callable.
    ///
    /// # Errors
    /// The tool does not exist.
    pub fn hide(&self, tool: &str) -> Result<(), UnknownNameError> {
        self.update_tool(tool, |settings, _| settings.tool_mut(tool).hidden = true).map(drop)
    }

    /// Stops hiding a tool.
    ///
    /// # Errors
    /// The tool does not exist and has no settings.
    pub fn unhide(&self, tool: &str) -> Result<(), UnknownNameError> {
        self.update_tool(tool, |settings, _| settings.tool_mut(tool).hidden = false).map(drop)
    }

    /// Sets the metadata override of a tool, replacing an earlier one. [`MetadataOverride::default`] restores the
    /// metadata of the source.
    ///
    /// # Errors
    /// The tool does not exist.
    pub fn set_metadata(&self, tool: &str, metadata: MetadataOverride) -> Result<(), UnknownNameError> {
        let metadata = (metadata != MetadataOverride::default()).then(|| Arc::new(metadata));
        self.update_tool(tool, |settings, _| settings.tool_mut(tool).metadata = metadata).map(drop)
    }

    /// Edits the settings of a tool that exists or already has settings. Returns the reason if the tool is disabled
    /// afterwards.
    fn update_tool(
        &self,
        tool: &str,
        edit: impl FnOnce(&mut RegistrySettings, Option<&mut ToolEntry>),
    ) -> Result<Option<Arc<str>>, UnknownNameError> {
        self.try_change(|draft| {
            if !draft.catalog.contains(tool) && !draft.catalog.settings.tools.contains_key(tool) {
                return Err(UnknownNameError { what: "tool", name: tool.to_owned() });
            }
            let mut entry = draft.catalog.get(tool).map(|entry| ToolEntry::clone(entry));
            let is_named = |entry: &ToolEntry| entry.def.name.as_str() == tool;
            draft.update_settings(is_named, |settings| {
                let reason_before = entry.as_ref().and_then(|entry| entry.derived.hook_reason.clone());
                edit(settings, entry.as_mut());
                entry.into_iter().filter(|entry| entry.derived.hook_reason != reason_before).collect()
            });
            Ok(draft.catalog.get(tool).and_then(|entry| entry.availability.disabled.clone()))
        })
    }

    fn update_namespace(
        &self,
        namespace: &str,
        edit: impl FnOnce(&mut RegistrySettings),
    ) -> Result<Vec<Arc<str>>, UnknownNameError> {
        self.try_change(|draft| {
            let is_used = draft.catalog.in_namespace(namespace).next().is_some();
            if !is_used && !draft.catalog.settings.namespaces.contains_key(namespace) {
                return Err(UnknownNameError { what: "namespace", name: namespace.to_owned() });
            }
            let before = draft.catalog.clone();
            draft.update_settings(
                |entry| entry.def.namespace() == Some(namespace),
                |settings| {
                    edit(settings);
                    Vec::new()
                },
            );
            let turned = |(name, entry): (&Arc<str>, &Arc<ToolEntry>)| {
                let was_enabled = before.get(name).is_some_and(|entry| entry.availability.disabled.is_none());
                (was_enabled != entry.availability.disabled.is_none()).then(|| Arc::clone(name))
            };
            Ok(draft.catalog.tools.iter().filter_map(turned).collect())
        })
    }

    fn update_tagged(
        &self,
        tags: TagSelector<'_>,
        which: &dyn Fn(&ToolEntry) -> bool,
        edit: impl Fn(&mut RegistrySettings, &mut ToolEntry),
    ) -> Result<Vec<Arc<str>>, UnknownNameError> {
        self.try_change(|draft| {
            let catalog = &draft.catalog;
            if let Some(tag) =
                tags.names().iter().find(|tag| !catalog.tools().any(|entry| entry.has_tag(tag)))
            {
                return Err(UnknownNameError { what: "tag", name: tag.clone() });
            }
            let matching = catalog.tools().filter(|entry| tags.matches(entry) && which(entry));
            let mut matching: Vec<ToolEntry> = matching.map(|entry| ToolEntry::clone(entry)).collect();
            let names: BTreeSet<Arc<str>> =
                matching.iter().map(|entry| Arc::from(entry.def.name.as_str())).collect();
            draft.update_settings(
                |entry| names.contains(entry.def.name.as_str()),
                |settings| {
                    matching.iter_mut().for_each(|entry| edit(settings, entry));
                    matching
                },
            );
            Ok(names.into_iter().collect())
        })
    }
}
