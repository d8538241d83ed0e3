//! Cargo and the Wasm target on the author's machine.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Error, Result, anyhow, bail};
use serde_json::Value;
use toolbay::PluginId;

use super::{flags, lock};
use crate::author::language::BuildProfile;
use crate::author::program;
use crate::author::project::ProjectMetadata;
use crate::output::{self, Printer, host_failure};

/// The target of components.
const TARGET: &str = "wasm32-wasip2";

/// The toolchain that builds one project.
#[derive(Debug)]
pub(super) struct Toolchain {
    cargo: PathBuf,
    /// Cargo's folder of programs, searched after `PATH`.
    bin: PathBuf,
    folder: PathBuf,
}

/// A package in the words of `cargo metadata`.
#[derive(Debug)]
pub(super) struct CargoPackage {
    name: String,
    manifest: PathBuf,
    /// The root of its Cargo workspace, which is its own folder if it shares none.
    workspace: PathBuf,
    /// `id` under `[package.metadata.toolbay]`.
    id: Option<String>,
    has_cdylib: bool,
    metadata: ProjectMetadata,
}

impl CargoPackage {
    /// The metadata of the manifest and the lock file.
    pub(super) fn metadata(self) -> ProjectMetadata {
        // The lock file is at the root of the workspace, if the package is in one.
        let lock = self.manifest.ancestors().skip(1).map(|folder| folder.join("Cargo.lock"));
        let lock = lock.filter_map(|file| std::fs::read_to_string(file).ok()).next().unwrap_or_default();
        ProjectMetadata { dependencies: lock::dependencies(&lock, &self.name), ..self.metadata }
    }

    /// The plugin's id: `id` of the manifest, or else the package's name.
    pub(super) fn id(&self) -> Result<PluginId> {
        let id = self.id.as_deref().unwrap_or(&self.name);
        PluginId::new(id).map_err(|error| {
            anyhow!("{error}; give it one in `Cargo.toml`: [package.metadata.toolbay] id = \"…\"")
        })
    }
}

impl Toolchain {
    /// Finds cargo on `PATH` or in rustup's folder.
    pub(super) fn find(folder: &Path) -> Result<Self> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).unwrap_or_default();
        let bin = home.join("bin");
        let cargo = program::find("cargo", std::slice::from_ref(&bin))
            .context("there is no `cargo` on `PATH`; install Rust with rustup (https://rustup.rs)")?;
        Ok(Self { cargo, bin, folder: folder.to_path_buf() })
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Reads the package of the folder with `cargo metadata`.
    pub(super) fn package(&self) -> Result<CargoPackage> {
        let mut command = self.command(&self.cargo);
        let output = command
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("`{}` cannot be run", self.cargo.display()))?;
        if !output.status.success() {
            let folder = self.folder.display();
            bail!("cargo cannot read `{folder}/Cargo.toml` (see its error above)");
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .context("the output of `cargo metadata` is not JSON")
            .map_err(host_failure)?;
        let manifest = self.folder.join("Cargo.toml");
        let workspace = text(&metadata, "workspace_root").map_or(self.folder.as_path(), Path::new);
        let packages = metadata.get("packages").and_then(Value::as_array);
        let own = packages.into_iter().flatten().find(|one| text(one, "manifest_path") == manifest.to_str());
        own.map(|package| read(package, manifest.clone(), workspace.to_path_buf())).with_context(|| {
            format!(
                "`{}` is a workspace without a root package; name the folder of the plugin",
                self.folder.display()
            )
        })
    }

    /// Installs the target for components if it is missing.
    pub(super) fn ensure_target(&self, printer: Printer) -> Result<()> {
        if self.has_target()? {
            return Ok(());
        }
        let Some(rustup) = program::find("rustup", std::slice::from_ref(&self.bin)) else {
            bail!(
                "the Rust toolchain lacks the target `{TARGET}`, and there is no rustup to add it: install the target \
                 with what the toolchain came from, or use rustup (https://rustup.rs)"
            );
        };
        printer.note(&format!("adding the target {TARGET} to the Rust toolchain"));
        let added = self.command(&rustup).args(["target", "add", TARGET]).stdout(Stdio::null()).status();
        if added.is_ok_and(|status| status.success()) && self.has_target()? {
            return Ok(());
        }
        Err(anyhow!(
            "the Rust toolchain lacks the target `{TARGET}`, and rustup could not add it; with a network, run \
             `rustup target add {TARGET}`"
        ))
    }

    fn has_target(&self) -> Result<bool> {
        let named = std::env::var_os("RUSTC").map(PathBuf::from);
        let rustc = named.or_else(|| program::find("rustc", std::slice::from_ref(&self.bin)));
        let rustc = rustc.context(
            "there is a `cargo` but no `rustc` on `PATH`; install Rust with rustup (https://rustup.rs)",
        )?;
        let output = self
            .command(&rustc)
            .args(["--print", "target-libdir", "--target", TARGET])
            .stderr(Stdio::null())
            .output()
            .with_context(|| format!("`{}` cannot be run", rustc.display()))?;
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        Ok(output.status.success() && folder.is_dir())
    }

    /// Runs `cargo test`. Returns whether it succeeded.
    pub(super) fn test(&self) -> Result<bool> {
        let mut command = self.command(&self.cargo);
        command.stdout(output::stderr_for_program().map_err(host_failure)?);
        let status = command.arg("test").status();
        let status = status.with_context(|| format!("`{}` cannot be run", self.cargo.display()));
        Ok(status?.success())
    }

    /// Compiles the package to a component; `None`: cargo reported an error on stderr.
    pub(super) fn build(&self, package: &CargoPackage, profile: BuildProfile) -> Result<Option<PathBuf>> {
        if !package.has_cdylib {
            bail!(
                "`{}` builds no component; write in its `Cargo.toml`: [lib] crate-type = [\"cdylib\", \"rlib\"]",
                package.name
            );
        }
        let mut command = self.command(&self.cargo);
        command.args(["build", "--lib", "--target", TARGET, "--message-format", "json-render-diagnostics"]);
        if profile == BuildProfile::Release {
            command.arg("--release");
        }
        // Cargo compiles a dependency again for other flags, so the plugins of a workspace have the same.
        flags::remap(&mut command, &package.workspace, self.bin.parent());
        let failed = |error: std::io::Error| host_failure(Error::from(error).context("cargo"));
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut component = None;
        if let Some(stdout) = child.stdout.take() {
            // Lines that are not cargo's messages may come from a build script.
            for line in BufReader::new(stdout).lines() {
                let message = line.ok().and_then(|line| serde_json::from_str::<Value>(&line).ok());
                component = message.and_then(|message| artifact(&message, package)).or(component);
            }
        }
        if !child.wait().map_err(failed)?.success() {
            return Ok(None);
        }
        let missing = || host_failure(anyhow!("cargo built `{}` without a component", package.name));
        component.map(Some).ok_or_else(missing)
    }
}

fn read(package: &Value, manifest: PathBuf, workspace: PathBuf) -> CargoPackage {
    let targets = package.get("targets").and_then(Value::as_array);
    let kinds = targets.into_iter().flatten().filter_map(|target| target.get("crate_types")?.as_array());
    let id = package.pointer("/metadata/toolbay/id").and_then(Value::as_str);
    CargoPackage {
        name: text(package, "name").unwrap_or_default().to_owned(),
        manifest,
        workspace,
        id: id.map(str::to_owned),
        has_cdylib: kinds.flatten().any(|kind| kind == "cdylib"),
        metadata: metadata(package),
    }
}

fn metadata(package: &Value) -> ProjectMetadata {
    let field = |key: &str| text(package, key).unwrap_or_default().to_owned();
    let authors = package.get("authors").and_then(Value::as_array);
    let authors: Vec<_> = authors.into_iter().flatten().filter_map(Value::as_str).collect();
    ProjectMetadata {
        version: field("version"),
        description: field("description"),
        authors: authors.join(", "),
        licenses: field("license"),
        homepage: field("homepage"),
        source: field("repository"),
        dependencies: Vec::new(),
    }
}

/// The component of a `compiler-artifact` message.
fn artifact(message: &Value, package: &CargoPackage) -> Option<PathBuf> {
    let ours = text(message, "manifest_path") == package.manifest.to_str();
    if !ours || text(message, "reason") != Some("compiler-artifact") {
        return None;
    }
    let files = message.get("filenames")?.as_array()?.iter().filter_map(Value::as_str);
    files.map(PathBuf::from).find(|file| file.extension().is_some_and(|end| end == "wasm"))
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_id_in_the_manifest_overrides_the_name() {
        let manifest = PathBuf::from("/p/Cargo.toml");
        let of = |metadata: Value| {
            let package = json!({"name": "plugin-text", "targets": [{"crate_types": ["cdylib"]}], "metadata": metadata});
            read(&package, manifest.clone(), PathBuf::from("/p"))
        };
        assert_eq!(of(Value::Null).id().unwrap().as_str(), "plugin-text");
        assert_eq!(of(json!({"toolbay": {"id": "text"}})).id().unwrap().as_str(), "text");
        assert!(of(json!({"toolbay": {"id": "a__b"}})).id().is_err());
        assert!(of(Value::Null).has_cdylib);
    }

    #[test]
    fn only_the_artifact_of_the_package_is_used() {
        let package = read(&json!({"name": "a"}), PathBuf::from("/p/Cargo.toml"), PathBuf::from("/p"));
        let message = |manifest: &str, file: &str| json!({"reason": "compiler-artifact", "manifest_path": manifest, "filenames": [file]});
        let found = artifact(&message("/p/Cargo.toml", "/p/target/a.wasm"), &package);
        assert_eq!(found, Some(PathBuf::from("/p/target/a.wasm")));
        assert_eq!(artifact(&message("/q/Cargo.toml", "/q/target/q.wasm"), &package), None);
        assert_eq!(artifact(&message("/p/Cargo.toml", "/p/target/liba.rlib"), &package), None);
    }
}
