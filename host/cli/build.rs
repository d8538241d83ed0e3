//! Puts the sources of the SDKs into the program, because `toolbay new` works without a network and no SDK is
//! published: for each SDK a list of its files, path and text. It also names the commit of the workspace, if Git knows it.
//!
//! A published package has no workspace around it. Links in `sources` put the same files into it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The name of the list, the folder in the workspace, and what is taken of it.
const SDKS: &[(&str, &str, &[&str])] = &[
    ("RUST", "sdk/rust", &["Cargo.toml", "src", "wit"]),
    ("RUST_MACROS", "sdk/rust-macros", &["Cargo.toml", "src"]),
    ("RUST_SYNTAX", "sdk/rust-syntax", &["Cargo.toml", "src"]),
    (
        "JS",
        "sdk/js",
        &[
            "package.json",
            "tsconfig.json",
            "build.mjs",
            "run-tests.mjs",
            "typescript.mjs",
            "index.d.ts",
            "testing.d.ts",
            "src",
            "wit",
        ],
    ),
    ("PYTHON", "sdk/python", &["toolbay_sdk"]),
    ("C", "sdk/c", &["build.py", "names.py", "include", "src", "wit"]),
    // What the manifests of the SDK inherit, and the versions of other crates it was tested with.
    ("WORKSPACE", ".", &["Cargo.toml", "Cargo.lock"]),
];

/// The name of a manifest in a package: cargo leaves out folders that have a `Cargo.toml`.
const PACKAGED_MANIFEST: &str = "manifest.toml";

fn main() -> io::Result<()> {
    let missing = || io::Error::other("cargo sets `OUT_DIR` and `CARGO_MANIFEST_DIR`");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or_else(missing)?);
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or_else(missing)?);
    let root = sources(&here)?;
    name_commit(&here);
    let mut source = String::new();
    for (name, folder, parts) in SDKS {
        let folder = root.join(folder);
        let mut files = Vec::new();
        for part in *parts {
            let part = existing(folder.join(part));
            println!("cargo:rerun-if-changed={}", part.display());
            collect(&part, &mut files)?;
        }
        files.sort();
        writeln!(source, "pub(crate) const {name}: &[(&str, &str)] = &[").map_err(io::Error::other)?;
        for file in files {
            let path = file.strip_prefix(&folder).map_err(io::Error::other)?;
            let path = path.to_string_lossy().replace('\\', "/").replace(PACKAGED_MANIFEST, "Cargo.toml");
            writeln!(source, "    ({path:?}, include_str!({file:?})),").map_err(io::Error::other)?;
        }
        source.push_str("];\n");
    }
    fs::write(out.join("sdk.rs"), source)
}

/// Names the commit for `toolbay --version`, unless the environment does. A package lies in no checkout of this workspace,
/// whatever repository surrounds it.
fn name_commit(package: &Path) {
    println!("cargo:rerun-if-env-changed=TOOLBAY_COMMIT");
    let workspace = package.join("../..");
    if env::var_os("TOOLBAY_COMMIT").is_some() || !workspace.join(".git").exists() {
        return;
    }
    let Some(commit) = git(&workspace, &["rev-parse", "HEAD"]) else { return };
    println!("cargo:rustc-env=TOOLBAY_COMMIT={commit}");
    let branch = git(&workspace, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in [Some("HEAD".to_owned()), branch, Some("packed-refs".to_owned())].into_iter().flatten() {
        let file = git(&workspace, &["rev-parse", "--git-path", &name]).map(|file| workspace.join(file));
        // Cargo would build again each time for a file that does not exist.
        if let Some(file) = file.filter(|file| file.exists()) {
            println!("cargo:rerun-if-changed={}", file.display());
        }
    }
}

/// The output of Git; `None` if it fails or is not installed.
fn git(workspace: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(workspace).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The folder with the SDKs: the workspace, or what the package has of it.
fn sources(package: &Path) -> io::Result<PathBuf> {
    let workspace = package.join("../..");
    let is_workspace = workspace.join("sdk/rust/Cargo.toml").is_file();
    if is_workspace { workspace.canonicalize() } else { Ok(package.join("sources")) }
}

/// The path, or that of the manifest under its name in a package.
fn existing(path: PathBuf) -> PathBuf {
    let is_packaged = path.ends_with("Cargo.toml") && !path.exists();
    if is_packaged { path.with_file_name(PACKAGED_MANIFEST) } else { path }
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_file() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        // Python leaves compiled modules beside its sources.
        if path.file_name().is_none_or(|name| name != "__pycache__") {
            collect(&path, files)?;
        }
    }
    Ok(())
}
