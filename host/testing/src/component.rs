//! The component under test: built from the crate, once for each test program, or an existing file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use toolbay::PluginId;

use crate::{crate_folder, target_folder};

/// The target of components.
const TARGET: &str = "wasm32-wasip2";

/// A component and its plugin id.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    pub(crate) id: PluginId,
    pub(crate) file: PathBuf,
}

impl Component {
    /// Builds the crate under test like `toolbay build` does.
    pub(crate) fn of_crate() -> Result<Self, String> {
        static BUILT: OnceLock<Result<Component, String>> = OnceLock::new();
        BUILT.get_or_init(|| build(&crate_folder())).clone()
    }

    /// Uses an existing file.
    pub(crate) fn of_file(id: &str, file: &Path) -> Result<Self, String> {
        let id = PluginId::new(id).map_err(|error| error.to_string())?;
        Ok(Self { id, file: file.to_path_buf() })
    }
}

fn build(folder: &Path) -> Result<Component, String> {
    let manifest = folder.join("Cargo.toml");
    let id = plugin_id(&manifest)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Variables that cargo sets for the test must not reach the nested cargo.
    for (key, _) in std::env::vars_os() {
        let own = key.to_str().is_some_and(|key| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|start| key.starts_with(start))
        });
        if own {
            command.env_remove(key);
        }
    }
    command
        .args(["build", "--lib", "--target", TARGET, "--message-format", "json-render-diagnostics"])
        .arg("--manifest-path")
        .arg(&manifest)
        .current_dir(folder)
        .stdin(Stdio::null());
    // A separate target folder: `toolbay build` uses other flags, so sharing it would rebuild everything each time.
    if let Some(target) = target_folder() {
        command.arg("--target-dir").arg(target);
    }
    let output = command.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "the component does not build: run `toolbay build` (the target is added by `rustup target add {TARGET}`)\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let file =
        messages.lines().filter_map(|line| artifact(line, &manifest)).next_back().ok_or_else(|| {
            "cargo made no component: write in `Cargo.toml`: [lib] crate-type = [\"cdylib\", \"rlib\"]"
                .to_owned()
        })?;
    Ok(Component { id, file })
}

/// The plugin id: the package name, unless the manifest sets another, as for `toolbay build`.
fn plugin_id(manifest: &Path) -> Result<PluginId, String> {
    let shown = manifest.display();
    let text = std::fs::read_to_string(manifest)
        .map_err(|error| format!("`{shown}`: {error}; run the tests with `cargo test`"))?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| format!("`{shown}`: {error}"))?;
    let package = table.get("package").and_then(toml::Value::as_table);
    let named = package.and_then(|package| package.get("metadata")?.get("toolbay")?.get("id")?.as_str());
    let id = named.or_else(|| package?.get("name")?.as_str());
    let id = id.ok_or_else(|| format!("`{shown}` has no [package] with a name"))?;
    PluginId::new(id).map_err(|error| {
        format!("{error}; give it one in `Cargo.toml`: [package.metadata.toolbay] id = \"…\"")
    })
}

/// The component that a message of cargo names.
fn artifact(line: &str, manifest: &Path) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_own = message.get("manifest_path")?.as_str() == manifest.to_str();
    if !is_own || message.get("reason")?.as_str() != Some("compiler-artifact") {
        return None;
    }
    let files = message.get("filenames")?.as_array()?.iter().filter_map(Value::as_str).map(PathBuf::from);
    files.into_iter().find(|file| file.extension().is_some_and(|end| end == "wasm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_the_one_that_toolbay_build_takes() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = dir.path().join("Cargo.toml");
        let of = |text: &str| {
            std::fs::write(&manifest, text).unwrap();
            plugin_id(&manifest).map(|id| id.to_string())
        };
        assert_eq!(of("[package]\nname = \"a\"").unwrap(), "a");
        assert_eq!(of("[package]\nname = \"a\"\n[package.metadata.toolbay]\nid = \"b\"").unwrap(), "b");
        assert!(of("[package]\nname = \"a__b\"").unwrap_err().contains("package.metadata.toolbay"));
        assert!(of("[workspace]").unwrap_err().contains("no [package]"));
        assert!(plugin_id(Path::new("/nowhere/Cargo.toml")).unwrap_err().contains("cargo test"));
    }

    #[test]
    fn a_crate_that_makes_no_component_is_told_what_to_write() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = "[package]\nname = \"plain\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
        std::fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::fs::write(dir.path().join("src/lib.rs"), "").unwrap();
        let problem = build(dir.path()).unwrap_err();
        assert!(problem.contains("crate-type = [\"cdylib\", \"rlib\"]"), "{problem}");
        std::fs::write(dir.path().join("src/lib.rs"), "fn f() -> u8 { }").unwrap();
        let problem = build(dir.path()).unwrap_err();
        assert!(problem.contains("toolbay build") && problem.contains("mismatched types"), "{problem}");
    }
}
