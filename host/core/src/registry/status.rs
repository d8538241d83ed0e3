//! The status of tools, for operators.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use toolbay_policy::refusal::PolicyRefusal;

use super::catalog::Catalog;
use super::entry::{ToolEntry, ToolFlags};
use crate::tool::ToolSource;

/// The status of a tool.
#[derive(Debug, Clone, Serialize)]
pub struct ToolStatus {
    /// The qualified name.
    pub name: String,
    /// The display name for people.
    pub title: Option<String>,
    /// The source of the tool; for a plugin with version and digest.
    pub source: Arc<ToolSource>,
    /// The namespace of the qualified name.
    pub namespace: Option<String>,
    /// The toolset.
    pub toolset: Option<String>,
    /// The tags.
    pub tags: Vec<Arc<str>>,
    /// The visibility.
    pub flags: ToolFlags,
    /// Whether the tool is enabled.
    pub enabled: bool,
    /// The reason if the tool is disabled.
    pub disabled_reason: Option<Arc<str>>,
    /// The reason if the tool is unavailable, for the operator.
    pub unavailable: Option<PolicyRefusal>,
    /// SHA-256 of the schemas ([`ToolDef::schema_sha256`](crate::tool::ToolDef::schema_sha256)).
    pub schema_sha256: String,
}

impl ToolEntry {
    /// The status of the tool, under a profile or without one.
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
            unavailable: self.unavailable_reason(profile).map(Cow::into_owned),
            schema_sha256: def.schema_sha256(),
        }
    }
}

impl Catalog {
    /// The status of all tools, sorted by name.
    #[must_use]
    pub fn status(&self) -> Vec<ToolStatus> {
        self.tools().map(|entry| entry.status(None)).collect()
    }
}
