//! Reads the custom section with a plugin's prompts, resources and icons, without running anything.

use std::sync::Arc;

use toolbay_core::tool::prompts_and_resources::{PromptsAndResources, PromptsAndResourcesDocument, SECTION};
use toolbay_policy::name::PluginId;
use wasmparser::{Parser, Payload};

use crate::error::LoadError;

/// The validated document of a component; `None` if it has none. Language SDKs put the section into a core module, and
/// packaging tools into the component. It is found in either, but only once.
///
/// # Errors
/// The component has two such sections, or the document is invalid.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<PromptsAndResourcesDocument>, LoadError> {
    let mut found = None;
    for payload in Parser::new(0).parse_all(bytes) {
        // The validator reports unreadable bytes.
        let Ok(payload) = payload else { return Ok(None) };
        if let Payload::CustomSection(section) = payload
            && section.name() == SECTION
            && found.replace(section.data()).is_some()
        {
            return Err(section_error("there are two of them"));
        }
    }
    let Some(data) = found else { return Ok(None) };
    let text =
        std::str::from_utf8(data).map_err(|error| section_error(&format!("it is not UTF-8: {error}")))?;
    PromptsAndResourcesDocument::parse(text).map(Some).map_err(|problem| section_error(&problem))
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

fn section_error(problem: &str) -> LoadError {
    LoadError::Metadata(format!("its section `{SECTION}`: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component that consists of the given custom sections.
    fn component(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
        for (name, data) in sections {
            let length = u8::try_from(name.len() + 1 + data.len()).unwrap();
            bytes.extend([0, length, u8::try_from(name.len()).unwrap()]);
            bytes.extend(name.as_bytes());
            bytes.extend(*data);
        }
        bytes
    }

    #[test]
    fn only_the_section_with_the_right_name_is_read() {
        let good = br#"{"version":1}"#;
        assert!(read(&component(&[])).unwrap().is_none());
        assert!(read(&component(&[("producers", b"x"), ("toolbay:offers2", b"x")])).unwrap().is_none());
        assert!(read(&component(&[("name", b""), (SECTION, good)])).unwrap().is_some());
        assert!(read(b"nonsense").unwrap().is_none());
        for (sections, part) in [
            (vec![(SECTION, &good[..]), (SECTION, &good[..])], "two of them"),
            (vec![(SECTION, &b"\xff"[..])], "not UTF-8"),
            (vec![(SECTION, &b"{}"[..])], "`version`"),
            (vec![(SECTION, &br#"{"version":1}{"version":1}"#[..])], "not valid JSON"),
        ] {
            let error = read(&component(&sections)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(SECTION), "{error}");
        }
    }
}
