//! The packages of PyPI and npm.
//!
//! | package | what it has |
//! |---|---|
//! | wheel `toolbay`, for each kind of machine and C library | the command, and the library with its native module |
//! | npm `toolbay` | the library, and a script that starts the command |
//! | npm `@toolbay/linux-CPU-LIBC` | the command and the native module; npm installs the one that fits |
//! | wheel `toolbay-plugins`, npm `@toolbay/plugins` | the first-party plugins, for every machine |
//!
//! The program is static and the same for both C libraries. Native modules are not.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Release;
use super::compile::{Libc, NATIVE, NATIVE_PLATFORM, PLATFORMS, Platform};
use super::contents::{Contents, ORIGIN, PackageKind};
use super::npm::NpmPackage;
use super::tree::Tree;
use super::version;
use super::wheel::Wheel;
use crate::{node, python};

const SUMMARY: &str =
    "Run the tools of LLM agents from WebAssembly components, in a sandbox, and serve them over MCP";
const PLUGINS_SUMMARY: &str = "The first-party plugins of Toolbay";
/// The page of the packages with the command.
pub(crate) const README: &str = include_str!("../../packages/README.md");
const PLUGINS_README: &str = include_str!("../../packages/plugins.md");
/// The oldest Node that the packages are for.
const NODE: &str = ">=20";

/// Writes the packages for these platforms into a folder.
pub(super) fn write(
    release: &Release,
    contents: &Contents,
    platforms: &[Platform],
    folder: &Path,
) -> Result<()> {
    for platform in platforms {
        save(folder, python_wheel(release, contents, *platform)?)?;
        save(folder, platform_package(release, contents, *platform)?)?;
    }
    save(folder, node_package(release)?)?;
    save(folder, plugins_wheel(release, contents)?)?;
    save(folder, plugins_package(release, contents)?)
}

fn save(folder: &Path, (name, bytes): (String, Vec<u8>)) -> Result<()> {
    Ok(fs::write(folder.join(name), bytes)?)
}

/// The command and the library for Python.
fn python_wheel(release: &Release, contents: &Contents, platform: Platform) -> Result<(String, Vec<u8>)> {
    let mut scripts = Tree::default();
    scripts.program("toolbay", contents.program(platform.architecture)?);
    let mut modules = contents.modules(PackageKind::Wheel, platform)?;
    for (name, file) in python::sources(&release.workspace)? {
        modules.file(&format!("toolbay/{name}"), fs::read(file)?);
    }
    let wheel = Wheel {
        name: "toolbay",
        summary: SUMMARY,
        readme: README,
        tag: &wheel_tag(platform),
        modules,
        scripts,
        commands: &[],
        documents: contents.documents(PackageKind::Wheel),
    };
    wheel.archive(release)
}

/// The command and the native module for one platform, for Node.
fn platform_package(release: &Release, contents: &Contents, platform: Platform) -> Result<(String, Vec<u8>)> {
    let node = platform.architecture.node;
    let mut files = contents.modules(PackageKind::Npm, platform)?;
    files.program("bin/toolbay", contents.program(platform.architecture)?);
    files.file(ORIGIN, "npm\n");
    let package = NpmPackage {
        name: &platform_name(platform),
        description: &format!(
            "The program and the native module of the package `toolbay` for Linux on {node}"
        ),
        readme: README,
        manifest: json!({
            "os": ["linux"],
            "cpu": [node],
            "libc": [npm_libc(platform.libc)],
            // Programs cannot be started from a ZIP archive of Yarn.
            "preferUnplugged": true,
            "engines": {"node": NODE},
        }),
        files,
        documents: Some(contents.documents(PackageKind::Npm)),
    };
    package.archive(release)
}

/// The Pythons and the platform of a wheel, with the oldest version of each.
fn wheel_tag(platform: Platform) -> String {
    let libc = match platform.libc {
        Libc::Gnu => "manylinux_2_17",
        Libc::Musl => "musllinux_1_2",
    };
    format!("cp311-abi3-{libc}_{}", platform.architecture.machine)
}

/// A C library, as npm says it in the field `libc`.
fn npm_libc(libc: Libc) -> &'static str {
    match libc {
        Libc::Gnu => "glibc",
        Libc::Musl => "musl",
    }
}

/// The name of the npm package for a platform.
pub(super) fn platform_name(platform: Platform) -> String {
    format!("@toolbay/linux-{}-{}", platform.architecture.node, platform.libc.suffix())
}

/// The library for Node, and the script that starts the command. npm installs the package of the platform beside it.
fn node_package(release: &Release) -> Result<(String, Vec<u8>)> {
    let names = PLATFORMS.iter().map(|platform| (platform_name(*platform), json!(release.version)));
    let mut files = Tree::default();
    for (name, file) in node::sources(&release.workspace)? {
        let bytes = fs::read(file)?;
        match name.starts_with("bin/") {
            true => files.program(&name, bytes),
            false => files.file(&name, bytes),
        }
    }
    let mut manifest = node::manifest(&release.workspace)?;
    manifest.insert("optionalDependencies".to_owned(), names.collect::<Map<String, Value>>().into());
    let package = NpmPackage {
        name: "toolbay",
        description: SUMMARY,
        readme: README,
        manifest: manifest.into(),
        files,
        documents: None,
    };
    package.archive(release)
}

/// The plugins for Python. They are data of a module that knows where they are.
fn plugins_wheel(release: &Release, contents: &Contents) -> Result<(String, Vec<u8>)> {
    let mut modules = Tree::default();
    modules.file(
        "toolbay_plugins/__init__.py",
        include_str!("../../packages/python/toolbay_plugins/__init__.py"),
    );
    modules.file("toolbay_plugins/py.typed", "");
    modules.graft("toolbay_plugins/plugins", contents.plugins());
    let wheel = Wheel {
        name: "toolbay-plugins",
        summary: PLUGINS_SUMMARY,
        readme: PLUGINS_README,
        tag: "py3-none-any",
        modules,
        scripts: Tree::default(),
        commands: &["toolbay-plugins = toolbay_plugins:main"],
        documents: contents.documents(PackageKind::Plugins),
    };
    wheel.archive(release)
}

/// The plugins for Node.
fn plugins_package(release: &Release, contents: &Contents) -> Result<(String, Vec<u8>)> {
    let mut files = Tree::default();
    files.file("index.js", include_str!("../../packages/npm/plugins.js"));
    files.file("index.d.ts", include_str!("../../packages/npm/plugins.d.ts"));
    files.program("bin/toolbay-plugins.js", include_str!("../../packages/npm/toolbay-plugins.js"));
    files.graft("plugins", contents.plugins());
    let package = NpmPackage {
        name: "@toolbay/plugins",
        description: PLUGINS_SUMMARY,
        readme: PLUGINS_README,
        manifest: json!({
            "main": "index.js",
            "types": "index.d.ts",
            "bin": {"toolbay-plugins": "bin/toolbay-plugins.js"},
            // The host reads the plugins as files, which a ZIP archive of Yarn hides.
            "preferUnplugged": true,
            "engines": {"node": NODE},
        }),
        files,
        documents: Some(contents.documents(PackageKind::Plugins)),
    };
    package.archive(release)
}

/// The packages for this machine in a folder.
#[derive(Debug)]
pub(crate) struct PackageFolder {
    folder: PathBuf,
    version: String,
    python_version: String,
}

impl PackageFolder {
    pub(super) fn new(release: &Release, folder: &Path) -> Result<Self> {
        let python_version = version::of_python(&release.version)?;
        Ok(Self { folder: folder.to_path_buf(), version: release.version.clone(), python_version })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The wheel with the command and the library.
    pub(crate) fn wheel(&self) -> PathBuf {
        self.wheel_of(NATIVE_PLATFORM)
    }

    /// The wheel for a platform.
    pub(super) fn wheel_of(&self, platform: Platform) -> PathBuf {
        self.file(&format!("toolbay-{}-{}.whl", self.python_version, wheel_tag(platform)))
    }

    /// The wheel with the plugins.
    pub(crate) fn plugins_wheel(&self) -> PathBuf {
        self.file(&format!("toolbay_plugins-{}-py3-none-any.whl", self.python_version))
    }

    /// The npm package with the program.
    pub(crate) fn npm_platform(&self) -> PathBuf {
        self.npm_package(&platform_name(NATIVE_PLATFORM))
    }

    pub(crate) fn npm_platform_name(&self) -> String {
        platform_name(NATIVE_PLATFORM)
    }

    /// The npm packages that a user of the command and the plugins installs.
    pub(crate) fn npm(&self) -> [PathBuf; 3] {
        [self.npm_package("toolbay"), self.npm_platform(), self.npm_package("@toolbay/plugins")]
    }

    /// An npm package by its name.
    pub(super) fn npm_package(&self, name: &str) -> PathBuf {
        let name = name.trim_start_matches('@').replace('/', "-");
        self.file(&format!("{name}-{}.tgz", self.version))
    }

    /// The name of the tarball that `install.sh` downloads.
    pub(crate) fn tarball_name(&self) -> String {
        super::tarball_name(&self.version, NATIVE)
    }
}
