//! The parts of a component's file: how large each is, and the custom sections that say what it is.
//!
//! Sections of the names that the tools of WebAssembly use (`version`, `description`, `licenses`, `source`, `homepage`,
//! `authors`, and `.dep-v0` for the list of dependencies) are read by those tools too. A host runs nothing of them.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use wasmparser::{Parser, Payload};

/// What a component's file is made of.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Bytes of all functions, of all core modules.
    pub(crate) code: u64,
    /// Bytes of constant data.
    pub(crate) data: u64,
    /// Custom sections by name, with their bytes, wherever they stand.
    pub(crate) custom: BTreeMap<String, u64>,
    /// Bytes of everything else: types, imports, exports, tables.
    pub(crate) rest: u64,
    /// Names of the interfaces that it exports.
    pub(crate) exports: Vec<String>,
}

impl Parts {
    /// Takes a file apart.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self> {
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

    /// Versions of the contract that it speaks, from the names of what it exports.
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

/// The component with these custom sections at its end, instead of those of the same names that it had at its top.
pub(crate) fn with(bytes: &[u8], sections: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
    let Some(head) = bytes.get(..8) else { bail!("the file is too short to be a component") };
    let mut out = head.to_vec();
    for part in top(bytes)? {
        let replaced = part.custom.is_some_and(|(name, _)| sections.iter().any(|(new, _)| *new == name));
        if !replaced {
            out.extend_from_slice(part.whole);
        }
    }
    for (name, data) in sections {
        let mut content = Vec::new();
        leb128(&mut content, name.len());
        content.extend_from_slice(name.as_bytes());
        content.extend_from_slice(data);
        out.push(0);
        leb128(&mut out, content.len());
        out.extend_from_slice(&content);
    }
    Ok(out)
}

/// One section at the top of a component.
struct Top<'a> {
    /// With its head.
    whole: &'a [u8],
    /// Name and content, if it is a custom section.
    custom: Option<(&'a str, &'a [u8])>,
}

fn top(bytes: &[u8]) -> Result<Vec<Top<'_>>> {
    let mut parts = Vec::new();
    let mut rest = bytes.get(8..).unwrap_or_default();
    while let Some((&id, tail)) = rest.split_first() {
        let Some((size, content)) = read_leb128(tail) else { bail!("a section has no length") };
        let (Some(content), Some(next)) = (content.get(..size), content.get(size..)) else {
            bail!("a section is longer than the file")
        };
        let whole = rest.get(..rest.len() - next.len()).unwrap_or_default();
        let custom = (id == 0).then(|| custom(content)).flatten();
        parts.push(Top { whole, custom });
        rest = next;
    }
    Ok(parts)
}

fn custom(content: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = read_leb128(content)?;
    let (name, data) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(name).ok()?, data))
}

fn leb128(out: &mut Vec<u8>, mut number: usize) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or_default();
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn read_leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut number = 0_usize;
    // Five times seven bits hold every length.
    for place in 0..5 {
        let byte = *bytes.get(place)?;
        number |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((number, bytes.get(place + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The custom section of this name at the top of a component.
    fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let mut sections = top(bytes).unwrap().into_iter().filter_map(|part| part.custom);
        sections.find(|(found, _)| *found == name).map(|(_, data)| data)
    }

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn sections_are_added_found_and_replaced() {
        let long = vec![b'x'; 300];
        let one = with(EMPTY, &[("version", b"1".to_vec()), ("toolbay:readme", long.clone())]).unwrap();
        assert_eq!(section(&one, "version"), Some(&b"1"[..]));
        assert_eq!(section(&one, "toolbay:readme"), Some(long.as_slice()));
        assert_eq!(section(&one, "other"), None);
        let two = with(&one, &[("version", b"2".to_vec())]).unwrap();
        assert_eq!(section(&two, "version"), Some(&b"2"[..]));
        let parts = Parts::of(&two).unwrap();
        assert_eq!(parts.custom.keys().collect::<Vec<_>>(), ["toolbay:readme", "version"]);
    }

    #[test]
    fn what_is_no_component_is_an_error() {
        assert!(with(b"\0asm", &[]).is_err());
        assert!(with(b"\0asm\x0d\0\x01\0\0\x7f", &[]).is_err());
        assert!(with(b"\0asm\x0d\0\x01\0\0\xff\xff\xff\xff\xff\xff", &[]).is_err());
        assert!(Parts::of(b"junk").is_err());
    }
}
