//! Reads custom sections of a component: the embedded `plugin.toml`, the comments of its WIT, and the document with prompts,
//! resources and icons.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toolbay_core::tool::manifest::{MAX_BYTES, Manifest, SECTION};
use toolbay_core::tool::prompts_and_resources::{PromptsAndResourcesDocument, SECTION as PROMPTS_SECTION};
use wasmparser::{Parser, Payload};

use super::ExportPath;
use crate::error::LoadError;
use crate::plugins::prompts_and_resources;

/// The section with WIT comments (`wit-parser`, `metadata.rs`), and the supported versions.
const DOCS: &str = "package-docs";
const DOCS_VERSIONS: [u8; 2] = [0, 1];
/// Maximum size of that section, in bytes. A larger one is ignored.
const MAX_DOCS: usize = 1 << 20;

/// The relevant custom sections of a component.
#[derive(Debug, Default)]
pub(crate) struct ComponentSections {
    pub(super) manifest: Option<Manifest>,
    docs: Option<Value>,
    /// The prompts, resources and icons. Language SDKs put them into a core module, and packaging tools into the component.
    pub(crate) prompts_and_resources: Option<PromptsAndResourcesDocument>,
}

/// The path of a component's `plugin.toml`.
pub(crate) fn manifest_path(component: &Path) -> PathBuf {
    component.with_extension("plugin.toml")
}

impl ComponentSections {
    /// Reads the sections, without running anything.
    ///
    /// # Errors
    /// The `plugin.toml` or the document is invalid, or there are two of one.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, LoadError> {
        let mut found = Self::default();
        for payload in Parser::new(0).parse_all(bytes) {
            // The validator reports unreadable bytes.
            let Ok(payload) = payload else { break };
            let Payload::CustomSection(section) = payload else { continue };
            if section.name() == SECTION {
                let manifest = manifest(section.data())?;
                if found.manifest.replace(manifest).is_some() {
                    return Err(manifest_error(
                        "there are two: one embedded in the component and one next to it",
                    ));
                }
            } else if section.name() == PROMPTS_SECTION {
                let document = prompts_and_resources::parse(section.data())?;
                if found.prompts_and_resources.replace(document).is_some() {
                    return Err(prompts_and_resources::section_error("there are two of them"));
                }
            } else if section.name() == DOCS && found.docs.is_none() {
                found.docs = docs(section.data());
            }
        }
        Ok(found)
    }

    pub(crate) fn has_manifest(&self) -> bool {
        self.manifest.is_some()
    }

    /// The WIT comment of a function.
    pub(super) fn comment(&self, export: &ExportPath) -> Option<&str> {
        let docs = self.docs.as_ref()?;
        let function = export.function.as_str();
        let of = |functions| comment_of(functions, function);
        let worlds =
            || docs.get("worlds").and_then(Value::as_object).into_iter().flat_map(|worlds| worlds.values());
        let text = match &export.interface {
            Some(interface) => {
                let path = interface.split_once('@').map_or(interface.as_str(), |(path, _)| path);
                let short = path.rsplit_once('/').map_or(path, |(_, short)| short);
                let in_package = docs.get("interfaces").and_then(|all| all.get(short)?.get("funcs"));
                of(in_package).or_else(|| {
                    worlds().find_map(|world| {
                        let inline = ["interface_exports", "interfaces"].into_iter();
                        inline
                            .filter_map(|key| world.get(key)?.get(short)?.get("funcs"))
                            .find_map(|all| of(Some(all)))
                    })
                })
            }
            None => {
                worlds().find_map(|world| of(world.get("func_exports")).or_else(|| of(world.get("funcs"))))
            }
        };
        text.map(str::trim).filter(|text| !text.is_empty())
    }
}

/// The comment of a function: a string, or an object with it in newer versions.
fn comment_of<'a>(functions: Option<&'a Value>, function: &str) -> Option<&'a str> {
    let comment = functions?.get(function)?;
    comment.as_str().or_else(|| comment.get("docs")?.as_str())
}

fn manifest(data: &[u8]) -> Result<Manifest, LoadError> {
    let text = std::str::from_utf8(data).map_err(|_| manifest_error("it is not UTF-8"))?;
    Manifest::parse(text).map_err(|problem| manifest_error(&problem))
}

fn manifest_error(problem: &str) -> LoadError {
    LoadError::Metadata(format!("its `plugin.toml`: {problem}"))
}

fn docs(data: &[u8]) -> Option<Value> {
    let (version, text) = data.split_first()?;
    if data.len() > MAX_DOCS || !DOCS_VERSIONS.contains(version) {
        return None;
    }
    toolbay_core::tool::json::parse(std::str::from_utf8(text).ok()?).ok()
}

/// Embeds the `plugin.toml` as a custom section, so that there is one form of it and the digest covers both files.
///
/// # Errors
/// The file is too long.
pub(crate) fn embed_manifest(component: &mut Vec<u8>, text: &[u8]) -> Result<(), LoadError> {
    if text.len() > MAX_BYTES {
        return Err(manifest_error(&format!("it has {} bytes, but the limit is {MAX_BYTES}", text.len())));
    }
    let mut section = Vec::new();
    write_leb128(SECTION.len(), &mut section);
    section.extend_from_slice(SECTION.as_bytes());
    section.extend_from_slice(text);
    component.push(0);
    write_leb128(section.len(), component);
    component.append(&mut section);
    Ok(())
}

/// Writes a number in LEB128, as WebAssembly does.
fn write_leb128(mut value: usize, out: &mut Vec<u8>) {
    loop {
        let byte = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn export(interface: Option<&str>, function: &str) -> ExportPath {
        ExportPath { interface: interface.map(str::to_owned), function: function.to_owned() }
    }

    #[test]
    fn an_embedded_manifest_is_found() {
        // Long enough that the length takes two bytes.
        let text = format!("version = 1\n# {}\n[tools.t]\nexport = \"f\"", "x".repeat(300));
        let mut component = EMPTY.to_vec();
        assert!(!ComponentSections::read(&component).unwrap().has_manifest());
        embed_manifest(&mut component, text.as_bytes()).unwrap();
        let found = ComponentSections::read(&component).unwrap().manifest.unwrap();
        assert_eq!(found.tools["t"].export.as_deref(), Some("f"));
        embed_manifest(&mut component, text.as_bytes()).unwrap();
        assert!(ComponentSections::read(&component).unwrap_err().to_string().contains("there are two"));
        for (text, part) in [(&b"\xff"[..], "not UTF-8"), (b"version = 1", "`tools`")] {
            let mut component = EMPTY.to_vec();
            embed_manifest(&mut component, text).unwrap();
            let problem = ComponentSections::read(&component).unwrap_err().to_string();
            assert!(problem.contains(part) && problem.contains("plugin.toml"), "{problem}");
        }
        assert!(embed_manifest(&mut EMPTY.to_vec(), &vec![b'#'; MAX_BYTES + 1]).is_err());
    }

    #[test]
    fn wit_comments_are_found_where_the_wit_tools_put_them() {
        let docs = |version: u8, text: &str| {
            let mut data = vec![version];
            data.extend_from_slice(text.as_bytes());
            ComponentSections { docs: super::docs(&data), ..ComponentSections::default() }
        };
        let old = docs(0, r#"{"interfaces":{"get":{"funcs":{"page":" A page. "}}}}"#);
        assert_eq!(old.comment(&export(Some("a:b/get@1.0.0"), "page")), Some("A page."));
        assert_eq!(old.comment(&export(Some("a:b/put"), "page")), None);
        let new = docs(
            1,
            r#"{"worlds":{"w":{"func_exports":{"f":{"docs":"F."}},"interfaces":{"i":{"funcs":{"g":{"docs":"G."}}}}}}}"#,
        );
        assert_eq!(new.comment(&export(None, "f")), Some("F."));
        assert_eq!(new.comment(&export(Some("i"), "g")), Some("G."));
        assert_eq!(new.comment(&export(None, "g")), None);
        for damaged in [docs(2, "{}"), docs(0, "{"), docs(0, ""), docs(0, "[1]")] {
            assert_eq!(damaged.comment(&export(None, "f")), None);
        }
    }

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

    fn read_bytes(bytes: &[u8]) -> Result<Option<PromptsAndResourcesDocument>, LoadError> {
        ComponentSections::read(bytes).map(|found| found.prompts_and_resources)
    }

    #[test]
    fn only_the_section_with_the_right_name_is_read() {
        let good = br#"{"version":1}"#;
        assert!(read_bytes(&component(&[])).unwrap().is_none());
        assert!(read_bytes(&component(&[("producers", b"x"), ("toolbay:offers2", b"x")])).unwrap().is_none());
        assert!(read_bytes(&component(&[("name", b""), (PROMPTS_SECTION, good)])).unwrap().is_some());
        assert!(read_bytes(b"nonsense").unwrap().is_none());
        for (sections, part) in [
            (vec![(PROMPTS_SECTION, &good[..]), (PROMPTS_SECTION, &good[..])], "two of them"),
            (vec![(PROMPTS_SECTION, &b"\xff"[..])], "not UTF-8"),
            (vec![(PROMPTS_SECTION, &b"{}"[..])], "`version`"),
            (vec![(PROMPTS_SECTION, &br#"{"version":1}{"version":1}"#[..])], "not valid JSON"),
        ] {
            let error = read_bytes(&component(&sections)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(PROMPTS_SECTION), "{error}");
        }
    }
}
