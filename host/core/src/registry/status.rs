//! All that is known of each tool, for operators.

use std::sync::Arc;

use serde::Serialize;

use super::catalog::Catalog;
use super::entry::{Entry, Flags};
use crate::tool::ToolSource;

/// What is known of one tool.
#[derive(Debug, Clone, Serialize)]
pub struct ToolStatus {
    /// Its qualified name.
    pub name: String,
    /// The name for people.
    pub title: Option<String>,
    /// Where it comes from; of a plugin with version and digest.
    pub source: Arc<ToolSource>,
    /// What stands before its own name.
    pub namespace: Option<String>,
    /// Group label.
    pub toolset: Option<String>,
    /// The labels that hold for it.
    pub tags: Vec<Arc<str>>,
    /// How it is shown.
    pub flags: Flags,
    /// Whether it is switched on.
    pub enabled: bool,
    /// Why it is not.
    pub disabled_reason: Option<Arc<str>>,
    /// Why it cannot run here and now, were it on, for the operator: with the lines that would help.
    pub unavailable: Option<String>,
    /// SHA-256 of its schemas ([`ToolDef::schema_sha256`](crate::tool::ToolDef::schema_sha256)).
    pub schema_sha256: String,
}

impl Entry {
    /// What is known of it, under a profile or without one.
    #[must_use]
    pub fn status(&self, profile: Option<&str>) -> ToolStatus {
        let def = &self.def;
        ToolStatus {
            name: def.name.as_str().to_owned(),
            title: def.title.clone(),
            source: def.source.clone(),
            namespace: def.namespace().map(ToOwned::to_owned),
            toolset: def.keywords.toolset.clone(),
            tags: self.tags().to_vec(),
            flags: self.flags,
            enabled: self.availability.disabled.is_none(),
            disabled_reason: self.availability.disabled.clone(),
            unavailable: self.unavailable_under(profile).map(|refusal| refusal.for_operator()),
            schema_sha256: def.schema_sha256(),
        }
    }
}

impl Catalog {
    /// What is known of all tools, in the order of their names.
    #[must_use]
    pub fn status(&self) -> Vec<ToolStatus> {
        self.tools().map(|entry| entry.status(None)).collect()
    }
}
