//! The section of a component in which a plugin ships prompts, resources and icons: data that is found by reading the
//! file, without running anything.

use std::sync::Arc;

use toolbay_core::tool::offer::{Document, Offers, SECTION};
use toolbay_policy::name::PluginId;
use wasmparser::{Parser, Payload};

use crate::error::LoadError;

/// The document of a component, checked; `None`: it ships none. Languages put the section into a core module, tools
/// that add it later beside them: it is taken wherever it stands, once.
///
/// # Errors
/// Two such sections, or a document that is not as it must be.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Document>, LoadError> {
    let mut found = None;
    for payload in Parser::new(0).parse_all(bytes) {
        // What cannot be read is left to the validator, which says why.
        let Ok(payload) = payload else { return Ok(None) };
        if let Payload::CustomSection(section) = payload
            && section.name() == SECTION
            && found.replace(section.data()).is_some()
        {
            return Err(bad("there are two of them"));
        }
    }
    let Some(data) = found else { return Ok(None) };
    let text = std::str::from_utf8(data).map_err(|error| bad(&format!("it is no UTF-8: {error}")))?;
    Document::parse(text).map(Some).map_err(|problem| bad(&problem))
}

/// Checks a document against the tools it stands beside.
pub(crate) fn check<'a>(
    document: Option<&Document>,
    tools: impl Iterator<Item = &'a str>,
) -> Result<(), LoadError> {
    document.map_or(Ok(()), |document| document.check_icons(tools).map_err(|problem| bad(&problem)))
}

/// What a plugin offers, under the names by which clients know it.
pub(crate) fn of(plugin: &PluginId, document: Option<&Document>) -> Result<Option<Arc<Offers>>, LoadError> {
    let named = document.map(|document| Offers::of_plugin(plugin, document)).transpose();
    Ok(named.map_err(|problem| bad(&problem))?.map(Arc::new))
}

fn bad(problem: &str) -> LoadError {
    LoadError::Metadata(format!("its section `{SECTION}`: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component of one empty section of this name after another.
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
    fn one_section_is_read_and_others_are_not() {
        let good = br#"{"version":1}"#;
        assert!(read(&component(&[])).unwrap().is_none());
        assert!(read(&component(&[("producers", b"x"), ("toolbay:offers2", b"x")])).unwrap().is_none());
        assert!(read(&component(&[("name", b""), (SECTION, good)])).unwrap().is_some());
        assert!(read(b"nonsense").unwrap().is_none());
        for (sections, part) in [
            (vec![(SECTION, &good[..]), (SECTION, &good[..])], "two of them"),
            (vec![(SECTION, &b"\xff"[..])], "no UTF-8"),
            (vec![(SECTION, &b"{}"[..])], "`version`"),
            (vec![(SECTION, &br#"{"version":1}{"version":1}"#[..])], "not JSON"),
        ] {
            let error = read(&component(&sections)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(SECTION), "{error}");
        }
    }
}
