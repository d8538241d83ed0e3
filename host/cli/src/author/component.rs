//! The parts of a component's file: their sizes, and the custom sections with its metadata.
//!
//! WebAssembly tools read the same sections: `version`, `description`, `licenses`, `source`, `homepage`, `authors`, and
//! `.dep-v0` for the dependencies. A host does not execute them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Result;
use wasm_encoder::{ComponentSection as _, CustomSection};
use wasmparser::{Parser, Payload};

/// The parts of a component's file.
#[derive(Debug, Default)]
pub(crate) struct ComponentParts {
    /// Bytes of the functions of all core modules.
    pub(crate) code: u64,
    /// Bytes of constant data.
    pub(crate) data: u64,
    /// Bytes of the custom sections by name, at every nesting level.
    pub(crate) custom: BTreeMap<String, u64>,
    /// Bytes of everything else: types, imports, exports, tables.
    pub(crate) rest: u64,
    /// Names of the imported interfaces.
    pub(crate) imports: Vec<String>,
    /// Names of the exported interfaces.
    pub(crate) exports: Vec<String>,
}

impl ComponentParts {
    /// Parses a component's file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut parts = Self::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::CodeSectionStart { size, .. } => parts.code += u64::from(size),
                Payload::DataSection(section) => parts.data += length(&section.range()),
                Payload::CustomSection(section) => {
                    *parts.custom.entry(section.name().to_owned()).or_default() += length(&section.range());
                }
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        parts.imports.push(import?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        parts.exports.push(export?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        let counted = parts.code + parts.data + parts.custom.values().sum::<u64>();
        parts.rest = (bytes.len() as u64).saturating_sub(counted);
        Ok(parts)
    }

    /// The contract version of its exports; `None`: it does not use the contract.
    pub(crate) fn contract(&self) -> Option<&str> {
        self.exports
            .iter()
            .find_map(|name| name.strip_prefix("toolbay:plugin/")?.split_once('@'))
            .map(|(_, v)| v)
    }
}

fn length(range: &std::ops::Range<usize>) -> u64 {
    range.len() as u64
}

/// Appends custom sections to a component and removes its top-level sections of the same names.
pub(crate) fn with_sections(bytes: &[u8], sections: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let (mut done, mut depth) = (0, 0_usize);
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        let end = match (&payload, payload.as_section()) {
            (Payload::Version { range, .. }, _) if depth == 0 => range.end,
            (_, Some((_, range))) if depth == 0 => range.end,
            _ => done,
        };
        let is_replaced = matches!(&payload, Payload::CustomSection(old) if sections.iter().any(|(new, _)| *new == old.name()));
        if !is_replaced {
            out.extend_from_slice(bytes.get(done..end).unwrap_or_default());
        }
        done = end;
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    for (name, data) in sections {
        CustomSection { name: Cow::Borrowed(name), data: Cow::Borrowed(data) }.append_to_component(&mut out);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The custom section of this name in a component.
    fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
        Parser::new(0).parse_all(bytes).find_map(|payload| match payload.unwrap() {
            Payload::CustomSection(section) if section.name() == name => Some(section.data()),
            _ => None,
        })
    }

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn sections_are_added_found_and_replaced() {
        let long = vec![b'x'; 300];
        let one =
            with_sections(EMPTY, &[("version", b"1".to_vec()), ("toolbay:readme", long.clone())]).unwrap();
        assert_eq!(section(&one, "version"), Some(&b"1"[..]));
        assert_eq!(section(&one, "toolbay:readme"), Some(long.as_slice()));
        assert_eq!(section(&one, "other"), None);
        let two = with_sections(&one, &[("version", b"2".to_vec())]).unwrap();
        assert_eq!(section(&two, "version"), Some(&b"2"[..]));
        let parts = ComponentParts::parse(&two).unwrap();
        assert_eq!(parts.custom.keys().collect::<Vec<_>>(), ["toolbay:readme", "version"]);
    }

    #[test]
    fn invalid_components_are_errors() {
        assert!(with_sections(b"\0asm", &[]).is_err());
        assert!(with_sections(b"\0asm\x0d\0\x01\0\0\x7f", &[]).is_err());
        assert!(with_sections(b"\0asm\x0d\0\x01\0\0\xff\xff\xff\xff\xff\xff", &[]).is_err());
        assert!(ComponentParts::parse(b"junk").is_err());
    }
}
