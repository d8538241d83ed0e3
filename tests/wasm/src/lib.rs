//! Builds WebAssembly for the project's tasks and for the build script of `guest-artifacts`: first-party plugins, test guests,
//! and programs of the registry.
//!
//! It is a package apart from the tasks, so that an edit of a task builds no guest again.

mod cargo;
mod folder;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

pub use cargo::{TARGET, add_target, cargo, cargo_path, ensure_target, target_dir, tool, workspace};
use cargo::{build, guest_target_dir};
pub use folder::{component_names, place};

/// Unmodified programs of the registry (name and version) that the tests call as tools.
const PROGRAMS: [(&str, &str); 1] = [("titlecase", "3.6.0")];

/// The profiles of plugins and of most guests. The latter builds faster and gives larger files.
const PLUGIN: &str = "plugin";
const GUEST: &str = "guest";

/// The variables with which Clippy takes the place of the compiler.
const LINTS: [&str; 2] = ["RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS"];

/// Guests whose cost is measured: they use the profile of plugins.
const AS_SHIPPED: [&str; 1] = ["bench_hello"];

/// A built component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The plugin ID, or the name of the guest.
    pub name: String,
    /// The path of the component.
    pub file: PathBuf,
}

/// Builds the first-party plugins. A plugin's id is the name of its folder.
///
/// # Errors
/// A plugin does not compile, or its folder lacks an expected file.
pub fn plugins(workspace: &Path) -> Result<Vec<Component>> {
    plugins_in(workspace, &guest_target_dir(workspace), OsStr::new(""))
}

/// Builds some of the first-party plugins.
///
/// # Errors
/// As [`plugins`].
pub fn plugins_named(workspace: &Path, ids: &[&str]) -> Result<Vec<Component>> {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    build_plugins(workspace, &guest_target_dir(workspace), OsStr::new(""), ids)
}

/// Builds the first-party plugins in a target directory of the caller, with flags as in `CARGO_ENCODED_RUSTFLAGS`.
///
/// # Errors
/// As [`plugins`].
pub fn plugins_in(workspace: &Path, target: &Path, flags: &OsStr) -> Result<Vec<Component>> {
    build_plugins(workspace, target, flags, folder::packages(&workspace.join("plugins"))?)
}

fn build_plugins(workspace: &Path, target: &Path, flags: &OsStr, ids: Vec<String>) -> Result<Vec<Component>> {
    let mut command = cargo(workspace);
    command.env("CARGO_TARGET_DIR", target);
    if !flags.is_empty() {
        command.env("CARGO_ENCODED_RUSTFLAGS", flags);
    }
    command.args(["build", "--quiet", "--lib", "--profile", PLUGIN, "--target", TARGET]);
    for id in &ids {
        command.arg("--package").arg(format!("plugin-{id}"));
    }
    build(&mut command, "the plugins")?;
    let component = |id: String| {
        let library = id.replace('-', "_");
        let file = target.join(TARGET).join(PLUGIN).join(format!("{library}.wasm"));
        ensure!(
            file.is_file(),
            "`plugins/{id}` made no component: it needs in its `Cargo.toml` the package name `plugin-{id}`, \
             and in `[lib]` the name `{library}` and `crate-type = [\"cdylib\", \"rlib\"]`"
        );
        Ok(Component { name: id, file })
    };
    ids.into_iter().map(component).collect()
}

/// Builds the test guests: the examples of the package `guests`.
///
/// # Errors
/// A guest does not compile, or the package's manifest does not list it.
pub fn guests(workspace: &Path) -> Result<Vec<Component>> {
    let mut all = guest_cargo(workspace, GUEST);
    // A build with lints lints the guests, too.
    for variable in LINTS {
        if let Some(value) = std::env::var_os(variable) {
            all.env(variable, value);
        }
    }
    build(all.arg("--examples"), "the test guests")?;
    let mut as_shipped = guest_cargo(workspace, PLUGIN);
    for name in AS_SHIPPED {
        as_shipped.args(["--example", name]);
    }
    build(&mut as_shipped, "the guests that are built as plugins are")?;
    let component = |name: String| {
        let profile = if AS_SHIPPED.contains(&&*name) { PLUGIN } else { GUEST };
        let folder = guest_target_dir(workspace).join(TARGET).join(profile).join("examples");
        let file = folder.join(format!("{name}.wasm"));
        ensure!(
            file.is_file(),
            "`tests/guests/examples/{name}.rs` is not built: add to `tests/guests/Cargo.toml`\n\n    \
             [[example]]\n    name = \"{name}\"\n    crate-type = [\"cdylib\"]\n"
        );
        Ok(Component { name, file })
    };
    folder::stems(&workspace.join("tests/guests/examples"), "rs")?.into_iter().map(component).collect()
}

/// A cargo command for the test guests, with one of their profiles.
fn guest_cargo(workspace: &Path, profile: &str) -> Command {
    let mut command = cargo(workspace);
    command.args(["build", "--quiet", "--package", "guests", "--profile", profile, "--target", TARGET]);
    command
}

/// Builds third-party programs that do not use this project's interfaces.
fn programs(workspace: &Path) -> Result<Vec<Component>> {
    let root = guest_target_dir(workspace).join("programs");
    let mut built = Vec::new();
    for (name, version) in PROGRAMS {
        // A published version never changes, so an existing component is current.
        let kept = root.join(format!("{name}-{version}.wasm"));
        if !kept.is_file() {
            let mut install = cargo(workspace);
            install.args(["install", "--quiet", "--locked", "--no-track", "--force", "--target", TARGET]);
            install.arg("--root").arg(&root).args(["--version", &format!("={version}"), name]);
            build(&mut install, &format!("the program `{name}` of the registry"))?;
            let file = root.join("bin").join(format!("{name}.wasm"));
            fs::rename(&file, &kept).with_context(|| format!("cargo did not write `{}`", file.display()))?;
        }
        built.push(Component { name: name.to_owned(), file: kept });
    }
    Ok(built)
}

/// Builds guests, plugins and programs into one folder, as `<guest>.wasm`, `plugins/<id>.wasm` and `programs/<name>.wasm`,
/// and removes all other components there.
///
/// # Errors
/// A component does not compile, the registry lacks a program, or the folder cannot be written.
pub fn bundle(workspace: &Path, folder: &Path) -> Result<()> {
    ensure_target()?;
    place(&guests(workspace)?, folder)?;
    place(&plugins(workspace)?, &folder.join("plugins"))?;
    place(&programs(workspace)?, &folder.join("programs"))
}
