//! Switching tools off and on, hiding them, telling of them in other words: by name, by namespace, by tag.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Registry;
use super::entry::Entry;
use super::settings::{self, Metadata, Settings, Switches};

/// A name that nothing has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{}`", toolbay_policy::text::one_line(name, 100))]
pub struct Unknown {
    /// `tool`, `namespace` or `tag`.
    pub what: &'static str,
    /// The name.
    pub name: String,
}

/// Which tools are meant by their tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags<'a> {
    /// Those that have one of these.
    Any(&'a [String]),
    /// Those that have all of these.
    All(&'a [String]),
}

impl Tags<'_> {
    fn names(&self) -> &[String] {
        match self {
            Self::Any(names) | Self::All(names) => names,
        }
    }

    fn mean(&self, entry: &Entry) -> bool {
        match self {
            Self::Any(names) => names.iter().any(|name| entry.has_tag(name)),
            Self::All(names) => !names.is_empty() && names.iter().all(|name| entry.has_tag(name)),
        }
    }
}

impl Registry {
    /// Switches off what a program kept, also what is not there yet: in place of all that was switched off before.
    pub fn set_switches(&self, switches: &Switches) {
        self.always(|draft| {
            draft.set(
                |_| true,
                |settings| {
                    for setting in settings.tools.values_mut() {
                        setting.disabled = None;
                    }
                    for (name, reason) in &switches.tools {
                        settings.of(name).disabled = Some(settings::reason(reason));
                    }
                    let namespaces = switches.namespaces.iter();
                    settings.namespaces = namespaces
                        .map(|(name, reason)| (name.as_str().into(), settings::reason(reason)))
                        .collect();
                    Vec::new()
                },
            );
        });
    }

    /// Switches a tool off: it is listed nowhere, and a call is refused with the reason. Off again: the latest reason
    /// counts. It stays so when its plugin is loaded again.
    ///
    /// # Errors
    /// There is no such tool.
    pub fn disable(&self, tool: &str, reason: &str) -> Result<(), Unknown> {
        let reason = settings::reason(reason);
        self.set_one(tool, |settings, _| settings.of(tool).disabled = Some(reason)).map(drop)
    }

    /// Takes back that a tool is off, whoever said so: [`Registry::disable`], a tag, a hook. Returns why it is off
    /// still, if its namespace is.
    ///
    /// # Errors
    /// There is no such tool, and nothing was said of it either.
    pub fn enable(&self, tool: &str) -> Result<Option<Arc<str>>, Unknown> {
        self.set_one(tool, |settings, entry| {
            settings.of(tool).disabled = None;
            if let Some(entry) = entry {
                entry.derived.by_hook = None;
            }
        })
    }

    /// Switches all tools of a namespace off, also those that come later; returns those that were on. A tool's own
    /// reason stands before its namespace's.
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn disable_namespace(&self, namespace: &str, reason: &str) -> Result<Vec<Arc<str>>, Unknown> {
        let reason = settings::reason(reason);
        self.set_namespace(namespace, |settings| {
            settings.namespaces.insert(namespace.into(), reason);
        })
    }

    /// Takes back that a namespace is off; returns the tools that are on now. Those that are off by themselves stay so.
    ///
    /// # Errors
    /// There is no such namespace, and nothing was said of it either.
    pub fn enable_namespace(&self, namespace: &str) -> Result<Vec<Arc<str>>, Unknown> {
        self.set_namespace(namespace, |settings| drop(settings.namespaces.remove(namespace)))
    }

    /// Switches the tools off that have these tags now; returns those that were on. What comes later is not meant:
    /// that is what permissions are for.
    ///
    /// # Errors
    /// A tag that no tool has.
    pub fn disable_tagged(&self, tags: Tags<'_>, reason: &str) -> Result<Vec<Arc<str>>, Unknown> {
        self.set_tagged(tags, &|entry| entry.availability.disabled.is_none(), |settings, entry| {
            settings.of(entry.def.name.as_str()).disabled = Some(settings::reason(reason));
        })
    }

    /// Takes back that the tools with these tags are off; returns those that are on now.
    ///
    /// # Errors
    /// A tag that no tool has.
    pub fn enable_tagged(&self, tags: Tags<'_>) -> Result<Vec<Arc<str>>, Unknown> {
        let meant =
            self.set_tagged(tags, &|entry| entry.availability.disabled.is_some(), |settings, entry| {
                settings.of(entry.def.name.as_str()).disabled = None;
                entry.derived.by_hook = None;
            })?;
        let now = self.snapshot();
        Ok(meant
            .into_iter()
            .filter(|name| now.get(name).is_some_and(|e| e.availability.disabled.is_none()))
            .collect())
    }

    /// Hides a tool: it is in no list and found by no search, and still callable.
    ///
    /// # Errors
    /// There is no such tool.
    pub fn hide(&self, tool: &str) -> Result<(), Unknown> {
        self.set_one(tool, |settings, _| settings.of(tool).hidden = true).map(drop)
    }

    /// Takes back that a tool is hidden.
    ///
    /// # Errors
    /// There is no such tool, and nothing was said of it either.
    pub fn unhide(&self, tool: &str) -> Result<(), Unknown> {
        self.set_one(tool, |settings, _| settings.of(tool).hidden = false).map(drop)
    }

    /// The tools that are hidden, in the order of their names.
    #[must_use]
    pub fn hidden(&self) -> Vec<Arc<str>> {
        let catalog = self.snapshot();
        catalog
            .tools
            .iter()
            .filter(|(_, entry)| entry.flags.hidden)
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    /// Tells of a tool in other words, in place of those given before; with [`Metadata::default`] in its source's own.
    ///
    /// # Errors
    /// There is no such tool.
    pub fn set_metadata(&self, tool: &str, metadata: Metadata) -> Result<(), Unknown> {
        let metadata = (metadata != Metadata::default()).then(|| Arc::new(metadata));
        self.set_one(tool, |settings, _| settings.of(tool).metadata = metadata).map(drop)
    }

    /// Changes what is said of one tool, which must be known or have been spoken of; returns why it is off now.
    fn set_one(
        &self,
        tool: &str,
        edit: impl FnOnce(&mut Settings, Option<&mut Entry>),
    ) -> Result<Option<Arc<str>>, Unknown> {
        self.change(|draft| {
            if !draft.catalog.has(tool) && !draft.catalog.settings.tools.contains_key(tool) {
                return Err(Unknown { what: "tool", name: tool.to_owned() });
            }
            let mut entry = draft.catalog.get(tool).map(|entry| Entry::clone(entry));
            let meant = |entry: &Entry| entry.def.name.as_str() == tool;
            draft.set(meant, |settings| {
                let had = entry.as_ref().and_then(|entry| entry.derived.by_hook.clone());
                edit(settings, entry.as_mut());
                entry.into_iter().filter(|entry| entry.derived.by_hook != had).collect()
            });
            Ok(draft.catalog.get(tool).and_then(|entry| entry.availability.disabled.clone()))
        })
    }

    fn set_namespace(
        &self,
        namespace: &str,
        edit: impl FnOnce(&mut Settings),
    ) -> Result<Vec<Arc<str>>, Unknown> {
        self.change(|draft| {
            let known = draft.catalog.in_namespace(namespace).next().is_some();
            if !known && !draft.catalog.settings.namespaces.contains_key(namespace) {
                return Err(Unknown { what: "namespace", name: namespace.to_owned() });
            }
            let before = draft.catalog.clone();
            draft.set(
                |entry| entry.def.namespace() == Some(namespace),
                |settings| {
                    edit(settings);
                    Vec::new()
                },
            );
            let turned = |(name, entry): (&Arc<str>, &Arc<Entry>)| {
                let was = before.get(name).is_some_and(|entry| entry.availability.disabled.is_none());
                (was != entry.availability.disabled.is_none()).then(|| Arc::clone(name))
            };
            Ok(draft.catalog.tools.iter().filter_map(turned).collect())
        })
    }

    fn set_tagged(
        &self,
        tags: Tags<'_>,
        which: &dyn Fn(&Entry) -> bool,
        edit: impl Fn(&mut Settings, &mut Entry),
    ) -> Result<Vec<Arc<str>>, Unknown> {
        self.change(|draft| {
            let catalog = &draft.catalog;
            if let Some(tag) =
                tags.names().iter().find(|tag| !catalog.tools().any(|entry| entry.has_tag(tag)))
            {
                return Err(Unknown { what: "tag", name: tag.clone() });
            }
            let meant = catalog.tools().filter(|entry| tags.mean(entry) && which(entry));
            let mut meant: Vec<Entry> = meant.map(|entry| Entry::clone(entry)).collect();
            let names: BTreeSet<Arc<str>> =
                meant.iter().map(|entry| Arc::from(entry.def.name.as_str())).collect();
            draft.set(
                |entry| names.contains(entry.def.name.as_str()),
                |settings| {
                    meant.iter_mut().for_each(|entry| edit(settings, entry));
                    meant
                },
            );
            Ok(names.into_iter().collect())
        })
    }
}
