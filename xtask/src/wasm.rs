//! Builds the first-party plugins and the test guests for `wasm32-wasip2`.
//!
//! This code runs cargo from within cargo: as `cargo xtask` and as the build script of `guest-artifacts`. The inner cargo
//! uses a separate target directory because the outer one holds the lock of its own. It does not inherit compiler flags,
//! because flags for the host, clippy or a coverage tool do not apply to guests.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The target triple of guests.
pub const TARGET: &str = "wasm32-wasip2";

/// The first part of a test guest's name, which states its purpose.
pub const GUEST_PREFIXES: [&str; 7] =
    ["api_", "bench_", "cap_", "foreign_", "hostile_", "program_", "reduce_"];

/// Unmodified programs of the registry (name and version) that the tests call as tools.
pub const PROGRAMS: [(&str, &str); 1] = [("titlecase", "3.6.0")];

/// The profiles of plugins and of most guests. The latter builds faster and gives larger files.
const PLUGIN: &str = "plugin";
const GUEST: &str = "guest";

/// The variables with which Clippy takes the place of the compiler.
const LINTS: [&str; 2] = ["RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS"];

/// Guests whose cost is measured: they use the profile of plugins.
const AS_SHIPPED: [&str; 1] = ["bench_hello"];

/// A built component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltComponents {
    /// The plugin ID, or the name of the guest.
    pub name: String,
    /// The path of the component.
    pub file: PathBuf,
}

/// Returns the checkout in which cargo runs this. It is read at run time because checkouts may share a target directory.
///
/// # Errors
/// Cargo does not run this program, or not in the workspace.
pub fn workspace() -> Result<PathBuf> {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).context("run it with `cargo xtask`")?;
    let mut above = package.ancestors();
    let found = above.find(|folder| folder.join("xtask/Cargo.toml").is_file());
    found
        .map(Path::to_path_buf)
        .with_context(|| format!("`{}` is outside of the workspace", package.display()))
}

/// Returns the target directory of the workspace: `CARGO_TARGET_DIR`, or `target`.
#[must_use]
pub fn target_dir(workspace: &Path) -> PathBuf {
    workspace.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Adds the wasm target to the toolchain in use, if it lacks it.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_target() -> Result<()> {
    ensure(TARGET)
}

/// Adds a target to the toolchain in use, if it lacks it.
///
/// # Errors
/// The target is missing and rustup cannot add it.
pub fn ensure(target: &str) -> Result<()> {
    if has_target(target)? {
        return Ok(());
    }
    let advice = format!("the target `{target}` is missing; install it with `rustup target add {target}`");
    let added = Command::new("rustup")
        .args(["target", "add", target])
        .status()
        .with_context(|| format!("cannot run `rustup`: {advice}, or with the installer of your toolchain"))?;
    if !added.success() || !has_target(target)? {
        bail!("`rustup target add {target}` failed: {advice}");
    }
    Ok(())
}

fn has_target(target: &str) -> Result<bool> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc)
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .with_context(|| format!("cannot run `{}`", rustc.display()))?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(output.status.success() && folder.is_dir())
}

/// A cargo command without the environment of the outer cargo, with the target directory for guests.
#[must_use]
pub fn cargo(workspace: &Path) -> Command {
    tool(workspace, &cargo_path())
}

/// The cargo that runs this program.
#[must_use]
pub fn cargo_path() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A command with the environment of [`cargo`].
#[must_use]
pub fn tool(workspace: &Path, program: &OsStr) -> Command {
    let mut command = Command::new(program);
    for (key, _) in std::env::vars_os() {
        if leaks(&key) {
            command.env_remove(key);
        }
    }
    command.current_dir(workspace).env("CARGO_TARGET_DIR", target_dir(workspace).join("guests"));
    command
}

/// Whether a variable describes the running build rather than the machine's toolchain.
fn leaks(key: &OsStr) -> bool {
    const EXACT: [&str; 22] = [
        "CARGO_BIN_NAME",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_CRATE_NAME",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_PRIMARY_PACKAGE",
        "CARGO_TARGET_TMPDIR",
        "CLIPPY_ARGS",
        "DEBUG",
        "HOST",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTDOC",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
        "TARGET",
    ];
    const STARTS: [&str; 6] =
        ["CARGO_CFG_", "CARGO_FEATURE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PROFILE_", "DEP_"];
    key.to_str().is_some_and(|key| EXACT.contains(&key) || STARTS.iter().any(|start| key.starts_with(start)))
}

/// Builds the first-party plugins. A plugin's id is the name of its folder.
///
/// # Errors
/// A plugin does not compile, or its folder lacks an expected file.
pub fn plugins(workspace: &Path) -> Result<Vec<BuiltComponents>> {
    plugins_in(workspace, &target_dir(workspace).join("guests"), OsStr::new(""))
}

/// Builds some of the first-party plugins.
///
/// # Errors
/// As [`plugins`].
pub fn plugins_named(workspace: &Path, ids: &[&str]) -> Result<Vec<BuiltComponents>> {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    build_plugins(workspace, &target_dir(workspace).join("guests"), OsStr::new(""), ids)
}

/// Builds the first-party plugins in a target directory of the caller, with flags as in `CARGO_ENCODED_RUSTFLAGS`.
///
/// # Errors
/// As [`plugins`].
pub fn plugins_in(workspace: &Path, target: &Path, flags: &OsStr) -> Result<Vec<BuiltComponents>> {
    build_plugins(workspace, target, flags, folders(&workspace.join("plugins"))?)
}

fn build_plugins(
    workspace: &Path,
    target: &Path,
    flags: &OsStr,
    ids: Vec<String>,
) -> Result<Vec<BuiltComponents>> {
    let mut command = cargo(workspace);
    command.env("CARGO_TARGET_DIR", target);
    if !flags.is_empty() {
        command.env("CARGO_ENCODED_RUSTFLAGS", flags);
    }
    command.args(["build", "--quiet", "--lib", "--profile", PLUGIN, "--target", TARGET]);
    for id in &ids {
        command.arg("--package").arg(format!("plugin-{id}"));
    }
    run(&mut command, "the plugins")?;
    let folder = target.join(TARGET).join(PLUGIN);
    ids.into_iter()
        .map(|id| {
            let file = folder.join(format!("{}.wasm", id.replace('-', "_")));
            if !file.is_file() {
                bail!(
                    "`plugins/{id}` made no component: it needs in its `Cargo.toml` the package name `plugin-{id}`, \
                     and in `[lib]` the name `{}` and `crate-type = [\"cdylib\", \"rlib\"]`",
                    id.replace('-', "_")
                );
            }
            Ok(BuiltComponents { name: id, file })
        })
        .collect()
}

/// Builds the test guests: the examples of the package `guests`.
///
/// # Errors
/// A guest does not compile, its name has no known prefix, or the package's manifest does not list it.
pub fn guests(workspace: &Path) -> Result<Vec<BuiltComponents>> {
    let package = workspace.join("tests/guests");
    let names = guest_names(&package.join("examples"))?;
    let manifest = package.join("Cargo.toml");
    let manifest =
        fs::read_to_string(&manifest).with_context(|| format!("cannot read `{}`", manifest.display()))?;
    for name in &names {
        if !manifest.lines().any(|line| line == format!("name = \"{name}\"")) {
            bail!(
                "`tests/guests/examples/{name}.rs` is not built: add to `tests/guests/Cargo.toml`\n\n    \
                 [[example]]\n    name = \"{name}\"\n    crate-type = [\"cdylib\"]\n"
            );
        }
    }
    let mut all = guest_cargo(workspace, GUEST);
    // A build with lints lints the guests, too.
    for variable in LINTS {
        if let Some(value) = std::env::var_os(variable) {
            all.env(variable, value);
        }
    }
    run(all.arg("--examples"), "the test guests")?;
    let mut as_shipped = guest_cargo(workspace, PLUGIN);
    for name in AS_SHIPPED {
        as_shipped.args(["--example", name]);
    }
    run(&mut as_shipped, "the guests that are built as plugins are")?;
    let built = |name: String| {
        let profile = if AS_SHIPPED.contains(&&*name) { PLUGIN } else { GUEST };
        BuiltComponents {
            file: output_dir(workspace, profile).join("examples").join(format!("{name}.wasm")),
            name,
        }
    };
    Ok(names.into_iter().map(built).collect())
}

/// A cargo command for the test guests, with one of their profiles.
fn guest_cargo(workspace: &Path, profile: &str) -> Command {
    let mut command = cargo(workspace);
    command.args(["build", "--quiet", "--package", "guests", "--profile", profile, "--target", TARGET]);
    command
}

/// Builds [`PROGRAMS`], third-party programs that do not use this project's interfaces.
///
/// # Errors
/// The registry lacks a program, or it does not compile.
pub fn programs(workspace: &Path) -> Result<Vec<BuiltComponents>> {
    let root = target_dir(workspace).join("guests").join("programs");
    let mut built = Vec::new();
    for (name, version) in PROGRAMS {
        let mut command = cargo(workspace);
        command.args([
            "install",
            "--quiet",
            "--locked",
            "--no-track",
            "--force",
            "--target",
            TARGET,
            "--root",
        ]);
        command.arg(&root).args(["--version", &format!("={version}"), name]);
        // A published version never changes, so an existing component is current.
        let file = root.join("bin").join(format!("{name}.wasm"));
        let kept = root.join(format!("{name}-{version}.wasm"));
        if !kept.is_file() {
            run(&mut command, &format!("the program `{name}` of the registry"))?;
            fs::rename(&file, &kept).with_context(|| format!("cargo did not write `{}`", file.display()))?;
        }
        built.push(BuiltComponents { name: name.to_owned(), file: kept });
    }
    Ok(built)
}

/// Builds guests, plugins and programs into one folder, as `<guest>.wasm`, `plugins/<id>.wasm` and `programs/<name>.wasm`,
/// and removes all other components there.
///
/// # Errors
/// As [`guests`], [`plugins`] and [`programs`], or the folder cannot be written.
pub fn bundle(workspace: &Path, folder: &Path) -> Result<()> {
    ensure_target()?;
    place(&guests(workspace)?, folder)?;
    place(&plugins(workspace)?, &folder.join("plugins"))?;
    place(&programs(workspace)?, &folder.join("programs"))
}

/// Copies components into a folder as `<name>.wasm`, each atomically, and removes components with other names.
///
/// # Errors
/// A file cannot be read or written.
pub fn place(built: &[BuiltComponents], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let mut kept = BTreeSet::<OsString>::new();
    for component in built {
        let name = format!("{}.wasm", component.name);
        let target = folder.join(&name);
        // A host that watches the folder must never see half a component.
        let part = folder.join(format!(".{name}.{}", std::process::id()));
        fs::copy(&component.file, &part)
            .and_then(|_| fs::rename(&part, &target))
            .with_context(|| format!("cannot write `{}`", target.display()))?;
        kept.insert(name.into());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if path.extension() == Some(OsStr::new("wasm")) && !kept.contains(&entry.file_name()) {
            fs::remove_file(&path).with_context(|| format!("cannot remove `{}`", path.display()))?;
        }
    }
    Ok(())
}

/// Names of the guests in a folder of sources or of components, sorted.
///
/// # Errors
/// A name without one of the [`GUEST_PREFIXES`].
pub fn guest_names(folder: &Path) -> Result<Vec<String>> {
    let mut names = stems(folder, "rs")?;
    names.extend(component_names(folder)?);
    for name in &names {
        if !GUEST_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            bail!(
                "the guest `{name}` in `{}` has a name that does not say what it is for: let it start with one of `{}` \
                 (see `docs/how-to/development.md`), or teach `GUEST_PREFIXES` in `xtask/src/wasm.rs` a new kind",
                folder.display(),
                GUEST_PREFIXES.join("`, `")
            );
        }
    }
    Ok(names)
}

/// Names of the components in a folder, sorted.
///
/// # Errors
/// The folder cannot be read.
pub fn component_names(folder: &Path) -> Result<Vec<String>> {
    stems(folder, "wasm")
}

fn stems(folder: &Path, extension: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new(extension)) {
            names.extend(path.file_stem().and_then(OsStr::to_str).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// Names of the packages in a folder, sorted.
fn folders(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn output_dir(workspace: &Path, profile: &str) -> PathBuf {
    target_dir(workspace).join("guests").join(TARGET).join(profile)
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().context("cannot run `cargo`")?;
    if !status.success() {
        bail!("building {what} failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_outer_cargo_sets_does_not_reach_the_inner_one() {
        for key in
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_PKG_NAME", "RUSTC_WORKSPACE_WRAPPER", "TARGET"]
        {
            assert!(leaks(OsStr::new(key)), "{key}");
        }
        for key in ["CARGO_HOME", "RUSTUP_TOOLCHAIN", "CARGO_NET_OFFLINE", "PATH", "CARGO_MAKEFLAGS"] {
            assert!(!leaks(OsStr::new(key)), "{key}");
        }
    }

    #[test]
    fn a_guest_whose_name_says_nothing_is_refused() {
        let folder = std::env::temp_dir().join(format!("xtask-guest-names-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("hostile_b.rs"), "").unwrap();
        fs::write(folder.join("api_a.rs"), "").unwrap();
        assert_eq!(guest_names(&folder).unwrap(), ["api_a", "hostile_b"]);
        fs::write(folder.join("thing.rs"), "").unwrap();
        let error = guest_names(&folder).unwrap_err().to_string();
        assert!(error.contains("`thing`") && error.contains("`hostile_`"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
