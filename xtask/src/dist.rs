//! `dist`: the files of a release.
//!
//! | file | for |
//! |---|---|
//! | `toolbay-VERSION-MACHINE-linux.tar.gz` | any Linux: program, plugins, man pages, completions, units |
//! | `toolbay_VERSION_MACHINE.deb` | Debian and its relatives |
//! | `*.whl`, `*.tgz` | pip and uv; npm: [`packages`] lists them |
//! | `install.sh`, `toolbay.rb` | any Linux, Homebrew: install a tarball |
//! | `oci/` | an OCI image layout for both machines, without a base image |
//! | `kubernetes.yaml` | a deployment of the image |
//! | `kubernetes-replicas.yaml` | several servers that share state, with NATS |
//! | `toolbay-VERSION.cdx.json` | the SBOM in CycloneDX |
//! | `SHA256SUMS` | checksums of all others |
//!
//! The same commit gives the same bytes, wherever it is built: paths are remapped, times are that of the commit, and each
//! format is written with sorted names. Nothing here signs or uploads.

mod check;
mod compile;
mod contents;
mod debian;
mod graph;
mod image;
mod installers;
mod licences;
mod modules;
mod npm;
mod packages;
mod sbom;
mod tree;
mod version;
mod wheel;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use flate2::Compression;
use sha2::{Digest as _, Sha256};

pub(crate) use check::run as check;
pub(crate) use compile::Profile;
use compile::{Architecture, NATIVE, NATIVE_PLATFORM, PLATFORMS};
use contents::{Contents, PackageKind, ReleaseFiles};
pub(crate) use modules::{BuiltFiles, Module};
pub(crate) use packages::{PackageFolder, README};
use wasm::Component;

use crate::folder::emptied;
use crate::programs::printed;

/// The checksums of the other files.
const CHECKSUMS: &str = "SHA256SUMS";
/// Where `install.sh` and the formula look for the tarballs unless the publisher says where they are.
pub(crate) const EXAMPLE_URL: &str = "https://example.com/toolbay";
/// The manifests of Kubernetes.
const MANIFESTS: [&str; 2] = ["kubernetes.yaml", "kubernetes-replicas.yaml"];

/// What the files of one release have in common.
#[derive(Debug)]
struct Release {
    workspace: PathBuf,
    /// Where builds and files are, `target/dist`.
    folder: PathBuf,
    version: String,
    commit: String,
    /// The time of the commit, in seconds since 1970: that of every file.
    time: u64,
    /// Where the publisher puts the files.
    url: String,
    compression: Compression,
}

impl Release {
    /// The release of the checked-out commit.
    ///
    /// # Errors
    /// Something in it has another version.
    fn of(workspace: &Path, url: &str) -> Result<Self> {
        let manifest: toml::Table = fs::read_to_string(workspace.join("Cargo.toml"))?.parse()?;
        let version =
            manifest.get("workspace").and_then(|table| table.get("package")?.get("version")?.as_str());
        let version = version.context("the workspace has no version")?;
        version::check(workspace, version)?;
        Ok(Self {
            workspace: workspace.to_path_buf(),
            folder: wasm::target_dir(workspace).join("dist"),
            version: version.to_owned(),
            commit: git(workspace, &["rev-parse", "HEAD"])?,
            time: git(workspace, &["log", "-1", "--format=%ct"])?.parse()?,
            url: url.trim_end_matches('/').to_owned(),
            compression: Compression::default(),
        })
    }
}

/// The name of the tarball for a kind of machine.
fn tarball_name(version: &str, architecture: Architecture) -> String {
    format!("toolbay-{version}-{}-linux.tar.gz", architecture.machine)
}

/// What git prints, without the last line break.
fn git(workspace: &Path, args: &[&str]) -> Result<String> {
    Ok(printed(Command::new("git").args(args).current_dir(workspace))?.trim().to_owned())
}

/// Builds the release into `target/dist/release`.
pub(crate) fn run(workspace: &Path, url: &str) -> Result<()> {
    let release = Release::of(workspace, url)?;
    if !git(workspace, &["status", "--porcelain"])?.is_empty() {
        println!("warning: there are changes that are not committed, and the release names the commit");
    }
    let contents = contents(&release, Profile::Release)?;
    let folder = release.folder.join("release");
    let sums = write(&release, &contents, &folder)?;
    print!("{sums}");
    println!("in {}", folder.strip_prefix(workspace).unwrap_or(&folder).display());
    Ok(())
}

/// Compiles everything.
fn contents(release: &Release, profile: Profile) -> Result<Contents> {
    let programs = compile::programs(release, profile)?;
    let modules = compile::modules(release, profile)?;
    wasm::ensure_target()?;
    let plugins = match profile {
        Profile::Release => compile::plugins(release)?,
        // The tests built them.
        Profile::Test => wasm::plugins(&release.workspace)?,
    };
    Contents::collect(release, &ReleaseFiles { programs, modules, plugins })
}

/// Writes all files of a release into a folder, in place of an earlier one. Returns the checksums.
fn write(release: &Release, contents: &Contents, folder: &Path) -> Result<String> {
    emptied(folder)?;
    let version = &release.version;
    for architecture in compile::ARCHITECTURES {
        write_tarball(release, contents, architecture, folder)?;
        let package = debian::package(release, architecture, contents)?;
        fs::write(folder.join(format!("toolbay_{version}_{}.deb", architecture.debian)), package)?;
    }
    packages::write(release, contents, &PLATFORMS, folder)?;
    installers::write(release, folder)?;
    image::write(release, contents, &folder.join("oci"))?;
    for name in MANIFESTS {
        let manifests = fs::read_to_string(release.workspace.join("docs/deploy").join(name))?;
        let image = format!("toolbay:{version}");
        fs::write(folder.join(name), manifests.replace("toolbay:VERSION", &image))?;
    }
    fs::write(
        folder.join(format!("toolbay-{version}.cdx.json")),
        &contents.documents(PackageKind::System).sbom,
    )?;
    let sums = checksums(folder)?;
    fs::write(folder.join(CHECKSUMS), &sums)?;
    Ok(sums)
}

fn write_tarball(
    release: &Release,
    contents: &Contents,
    architecture: Architecture,
    folder: &Path,
) -> Result<()> {
    let tarball = contents.tarball(architecture)?.gzipped(release.time, release.compression)?;
    Ok(fs::write(folder.join(tarball_name(&release.version, architecture)), tarball)?)
}

/// How archives are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// As they are shipped.
    Shipped,
    /// Not at all.
    Quick,
}

/// Packages what was built for this machine, without the formats that need more than that.
pub(crate) fn package(
    workspace: &Path,
    files: &BuiltFiles,
    packing: Packing,
    folder: &Path,
) -> Result<PackageFolder> {
    let mut release = Release::of(workspace, EXAMPLE_URL)?;
    if packing == Packing::Quick {
        release.compression = Compression::none();
    }
    fs::create_dir_all(&release.folder)?;
    let component = |name: String| Component { file: files.plugins.join(format!("{name}.wasm")), name };
    let modules = files.modules.iter().map(|(module, file)| (*module, NATIVE_PLATFORM, file.clone()));
    let built = ReleaseFiles {
        programs: vec![(NATIVE, files.program.clone())],
        modules: modules.collect(),
        plugins: wasm::component_names(&files.plugins)?.into_iter().map(component).collect(),
    };
    let contents = Contents::collect(&release, &built)?;
    emptied(folder)?;
    packages::write(&release, &contents, &[NATIVE_PLATFORM], folder)?;
    write_tarball(&release, &contents, NATIVE, folder)?;
    installers::write(&release, folder)?;
    PackageFolder::new(&release, folder)
}

/// The files that [`run`] built.
pub(crate) fn built(workspace: &Path) -> Result<PackageFolder> {
    let release = Release::of(workspace, EXAMPLE_URL)?;
    let folder = release.folder.join("release");
    anyhow::ensure!(folder.join(CHECKSUMS).exists(), "there is no release: run `cargo xtask dist` first");
    PackageFolder::new(&release, &folder)
}

/// The lines of `sha256sum` for all files below a folder.
fn checksums(folder: &Path) -> Result<String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(&current)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder)?.to_string_lossy().into_owned();
                files.insert(name, sha256(&fs::read(&path)?));
            }
        }
    }
    Ok(files.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect())
}

/// The SHA-256 as hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
