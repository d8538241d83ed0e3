//! The custom section with a plugin's prompts, resources and icons.

use std::sync::Arc;

use toolbay_core::tool::prompts_and_resources::{PromptsAndResources, PromptsAndResourcesDocument, SECTION};
use toolbay_policy::name::PluginId;

use crate::error::LoadError;

/// Reads the content of a section.
///
/// # Errors
/// The document is invalid.
pub(crate) fn parse(data: &[u8]) -> Result<PromptsAndResourcesDocument, LoadError> {
    let text =
        std::str::from_utf8(data).map_err(|error| section_error(&format!("it is not UTF-8: {error}")))?;
    PromptsAndResourcesDocument::parse(text).map_err(|problem| section_error(&problem))
}

/// Checks a document against the plugin's tools.
pub(crate) fn check<'a>(
    document: Option<&PromptsAndResourcesDocument>,
    tools: impl Iterator<Item = &'a str>,
) -> Result<(), LoadError> {
    document.map_or(Ok(()), |document| document.check_icons(tools).map_err(|problem| section_error(&problem)))
}

/// The document of a plugin, with the names that clients see.
pub(crate) fn from_document(
    plugin: &PluginId,
    document: Option<&PromptsAndResourcesDocument>,
) -> Result<Option<Arc<PromptsAndResources>>, LoadError> {
    let named = document.map(|document| PromptsAndResources::from_plugin(plugin, document)).transpose();
    Ok(named.map_err(|problem| section_error(&problem))?.map(Arc::new))
}

/// An error of the section.
pub(crate) fn section_error(problem: &str) -> LoadError {
    LoadError::Metadata(format!("its section `{SECTION}`: {problem}"))
}
