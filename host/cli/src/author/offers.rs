//! Embeds the prompts, resources and icons of a plugin that is not in Rust, where `plugin!` embeds them: the document
//! `offers.json` of the project becomes a section of its component.

use std::fs;

use anyhow::{Context, Error, Result};
use toolbay_core::tool::prompts_and_resources::SECTION;
use toolbay_sdk_syntax::offers;

use super::component::with_sections;
use super::project::{BuiltComponent, Project};

/// The document, beside the plugin's source.
const DOCUMENT: &str = "offers.json";

/// Adds the document to the component if the project has one.
pub(super) fn embed(project: &Project, component: &BuiltComponent) -> Result<()> {
    if !project.folder.join(DOCUMENT).is_file() {
        return Ok(());
    }
    let (document, _files) = offers::embed(&project.folder, DOCUMENT).map_err(Error::msg)?;
    let shown = component.file.display();
    let bytes = fs::read(&component.file).with_context(|| format!("`{shown}` cannot be read"))?;
    let bytes = with_sections(&bytes, &[(SECTION, document)])?;
    fs::write(&component.file, bytes).with_context(|| format!("`{shown}` cannot be written"))
}
