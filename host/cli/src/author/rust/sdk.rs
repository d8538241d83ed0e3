//! The SDK for a new project: its sources in `vendor/`, with standalone manifests.

use anyhow::{Context, Result};
use toml_edit::{DocumentMut, Item, TableLike, value};

use crate::author::embedded;
use crate::author::template::TemplateFile;

/// The packages in `vendor/`, each in a folder of the same name.
pub(super) const NAMES: [&str; 3] = ["toolbay-sdk", "toolbay-sdk-macros", "toolbay-sdk-syntax"];
/// Tables of a manifest that only this workspace needs.
const OURS: [&str; 3] = ["lints", "dev-dependencies", "package.metadata"];

/// The lock file of the workspace.
pub(super) fn lock() -> &'static str {
    text(embedded::WORKSPACE, "Cargo.lock")
}

/// The files of `vendor/`.
pub(super) fn vendored() -> Result<Vec<TemplateFile>> {
    let workspace = text(embedded::WORKSPACE, "Cargo.toml").parse().context("the workspace's manifest")?;
    let mut files = Vec::new();
    let packages = [embedded::RUST, embedded::RUST_MACROS, embedded::RUST_SYNTAX];
    for (name, sources) in NAMES.into_iter().zip(packages) {
        for (path, text) in sources {
            let target = format!("vendor/{name}/{path}");
            files.push(match *path {
                "Cargo.toml" => TemplateFile::new(target, standalone_manifest(text, &workspace)?),
                _ => TemplateFile::new(target, *text),
            });
        }
    }
    Ok(files)
}

fn text(files: &'static [(&str, &str)], path: &str) -> &'static str {
    files.iter().find(|(name, _)| *name == path).map_or("", |(_, text)| text)
}

/// A manifest in which the workspace's values replace `workspace = true`.
fn standalone_manifest(manifest: &str, workspace: &DocumentMut) -> Result<String> {
    let mut document: DocumentMut = manifest.parse().context("a manifest of the SDK")?;
    for table in OURS {
        document.remove(table);
    }
    let shared = |key: &str| workspace.get("workspace")?.as_table_like()?.get(key)?.as_table_like();
    for (table, key) in [("package", "package"), ("dependencies", "dependencies")] {
        let own = document.get_mut(table).and_then(Item::as_table_like_mut);
        if let (Some(own), Some(shared)) = (own, shared(key)) {
            inherit(own, shared);
        }
    }
    Ok(document.to_string())
}

/// Replaces `workspace = true` with the workspace's value. The SDK's own crates are siblings.
fn inherit(own: &mut dyn TableLike, shared: &dyn TableLike) {
    for (key, item) in own.iter_mut() {
        let inherits = item.as_table_like().is_some_and(|table| table.contains_key("workspace"));
        let Some(whole) = shared.get(key.get()).filter(|_| inherits) else { continue };
        *item = whole.clone();
        if let Some(table) = item.as_table_like_mut()
            && table.contains_key("path")
        {
            table.insert("path", value(format!("../{}", key.get())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendored_manifests_are_standalone() {
        let files = vendored().unwrap();
        for name in NAMES {
            let path = format!("vendor/{name}/Cargo.toml");
            let file = files.iter().find(|file| file.path == path).unwrap();
            let manifest: DocumentMut = file.text.parse().unwrap();
            assert!(!file.text.contains("workspace ="), "{}", file.text);
            assert_eq!(manifest["package"]["name"].as_str(), Some(name));
            assert!(
                manifest["package"]["version"].is_str() && manifest["dependencies"]["serde_json"].is_value()
            );
        }
        let sdk = files.iter().find(|file| file.path == "vendor/toolbay-sdk/Cargo.toml").unwrap();
        assert!(sdk.text.contains(r#"path = "../toolbay-sdk-macros""#), "{}", sdk.text);
        assert!(files.iter().any(|file| file.path == "vendor/toolbay-sdk/src/lib.rs"));
    }
}
