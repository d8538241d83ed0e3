//! What is installed, and where: the tree below `/usr`, `/usr/local` or another folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use wasm::Component;

use super::compile::{Architecture, NATIVE, Platform};
use super::graph::{Graph, Part};
use super::licences::Notices;
use super::modules::Module;
use super::tree::Tree;
use super::{Release, sbom};
use crate::folder::{emptied, read_text};
use crate::programs::printed;

/// Each shell with the place of its completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/toolbay"),
    ("fish", "share/fish/vendor_completions.d/toolbay.fish"),
    ("zsh", "share/zsh/site-functions/_toolbay"),
];

/// The file that says in which package a program came. The program reads it, and is the same in each package; it finds a wheel by
/// the metadata that each wheel has.
pub(super) const ORIGIN: &str = "share/toolbay/origin";

/// A package, by what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PackageKind {
    /// The tarball, the Debian package and the image.
    System,
    /// The wheel `toolbay`.
    Wheel,
    /// The package of a platform for npm.
    Npm,
    /// The plugins for Python and Node.
    Plugins,
}

impl PackageKind {
    fn name(self) -> &'static str {
        match self {
            Self::System | Self::Wheel | Self::Npm => "toolbay",
            Self::Plugins => "toolbay-plugins",
        }
    }

    fn parts(self) -> &'static [Part] {
        match self {
            Self::System => &[Part::Program, Part::Plugins],
            Self::Wheel => &[Part::Program, Part::Module(Module::Python)],
            Self::Npm => &[Part::Program, Part::Module(Module::Node)],
            Self::Plugins => &[Part::Plugins],
        }
    }
}

/// What a package says about its parts.
#[derive(Debug, Clone)]
pub(super) struct Documents {
    pub(super) sbom: String,
    pub(super) notices: Notices,
}

impl Documents {
    fn of(release: &Release, kind: PackageKind, graphs: &BTreeMap<Part, Graph>) -> Result<Self> {
        let mut graph = Graph::default();
        for part in kind.parts() {
            graph = graph.with(graphs.get(part).with_context(|| format!("no graph of {part:?}"))?);
        }
        let sbom = sbom::document(release, kind.name(), &graph)?;
        Ok(Self { sbom, notices: Notices::of(release, &graph)? })
    }
}

/// The files that were built.
#[derive(Debug)]
pub(super) struct ReleaseFiles {
    pub(super) programs: Vec<(Architecture, PathBuf)>,
    pub(super) modules: Vec<(Module, Platform, PathBuf)>,
    pub(super) plugins: Vec<Component>,
}

/// The contents of all packages.
#[derive(Debug)]
pub(super) struct Contents {
    programs: Vec<(Architecture, Vec<u8>)>,
    modules: Vec<(Module, Platform, Vec<u8>)>,
    plugins: Tree,
    /// Man pages, completions and documents.
    shared: Tree,
    units: [(&'static str, String); 2],
    policy: String,
    system_documents: Documents,
    wheel_documents: Documents,
    npm_documents: Documents,
    plugin_documents: Documents,
    /// The first folder of a tarball.
    name: String,
}

impl Contents {
    /// Reads what was built. The program of this machine writes its man pages and completions.
    pub(super) fn collect(release: &Release, files: &ReleaseFiles) -> Result<Self> {
        let native = files.programs.iter().find(|(architecture, _)| *architecture == NATIVE);
        let (_, native) = native.context("the program for this machine was not built")?;
        // Each takes a run of cargo.
        let graphs = Part::ALL.into_iter().map(|part| Ok((part, Graph::of(release, part)?)));
        let graphs = graphs.collect::<Result<BTreeMap<_, _>>>()?;
        let documents = |kind| Documents::of(release, kind, &graphs);
        let system_documents = documents(PackageKind::System)?;
        let shared = shared(release, native, &system_documents)?;
        let mut plugins = Tree::default();
        for plugin in &files.plugins {
            plugins.file(&format!("{}.wasm", plugin.name), fs::read(&plugin.file)?);
        }
        let read = |file: &Path| fs::read(file).with_context(|| format!("cannot read `{}`", file.display()));
        let programs = files.programs.iter().map(|(architecture, file)| Ok((*architecture, read(file)?)));
        let modules = files.modules.iter();
        let modules = modules.map(|(module, platform, file)| Ok((*module, *platform, read(file)?)));
        let deploy = |name: &str| read_text(&release.workspace.join("docs/deploy").join(name));
        Ok(Self {
            programs: programs.collect::<Result<_>>()?,
            modules: modules.collect::<Result<_>>()?,
            plugins,
            shared,
            units: [
                ("toolbay.service", deploy("toolbay.service")?),
                ("toolbay.socket", deploy("toolbay.socket")?),
            ],
            policy: deploy("toolbay.toml")?,
            system_documents,
            wheel_documents: documents(PackageKind::Wheel)?,
            npm_documents: documents(PackageKind::Npm)?,
            plugin_documents: documents(PackageKind::Plugins)?,
            name: format!("toolbay-{}", release.version),
        })
    }

    /// The tree for `/usr/local`, below a folder with the release's name.
    pub(super) fn tarball(&self, architecture: Architecture) -> Result<Tree> {
        let mut tree = self.installed(architecture)?;
        tree.graft("lib/toolbay/plugins", &self.plugins);
        for (name, unit) in &self.units {
            tree.file(&format!("lib/systemd/system/{name}"), unit.as_str());
        }
        tree.file("share/doc/toolbay/toolbay.toml", self.policy.as_str());
        tree.file(ORIGIN, "tarball\n");
        let mut below = Tree::default();
        below.graft(&format!("{}-{}-linux", self.name, architecture.machine), &tree);
        Ok(below)
    }

    /// The program with its documents.
    pub(super) fn installed(&self, architecture: Architecture) -> Result<Tree> {
        let mut tree = self.shared.clone();
        tree.program("bin/toolbay", self.program(architecture)?);
        Ok(tree)
    }

    /// The program for a kind of machine.
    pub(super) fn program(&self, architecture: Architecture) -> Result<&[u8]> {
        let found = self.programs.iter().find(|(other, _)| *other == architecture);
        Ok(found.context("the program was not built")?.1.as_slice())
    }

    /// The native modules of a package, at their places.
    pub(super) fn modules(&self, kind: PackageKind, platform: Platform) -> Result<Tree> {
        let mut tree = Tree::default();
        for part in kind.parts() {
            if let Part::Module(module) = part {
                let found = self.modules.iter().find(|(one, of, _)| (one, *of) == (module, platform));
                let (_, _, bytes) = found.with_context(|| format!("`{}` was not built", module.package()))?;
                tree.file(module.path(), bytes.as_slice());
            }
        }
        Ok(tree)
    }

    /// The first-party plugins.
    pub(super) fn plugins(&self) -> &Tree {
        &self.plugins
    }

    /// The units for systemd, which expect the program below `/usr/local`.
    pub(super) fn units(&self) -> &[(&'static str, String)] {
        &self.units
    }

    /// The policy of a fresh installation.
    pub(super) fn policy(&self) -> &str {
        &self.policy
    }

    /// The SBOM and the licences of a package.
    pub(super) fn documents(&self, kind: PackageKind) -> &Documents {
        match kind {
            PackageKind::System => &self.system_documents,
            PackageKind::Wheel => &self.wheel_documents,
            PackageKind::Npm => &self.npm_documents,
            PackageKind::Plugins => &self.plugin_documents,
        }
    }
}

fn shared(release: &Release, program: &Path, documents: &Documents) -> Result<Tree> {
    let mut tree = Tree::default();
    let pages = release.folder.join("man");
    emptied(&pages)?;
    printed(Command::new(program).arg("man").arg(&pages))?;
    for entry in fs::read_dir(&pages)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        tree.file(&format!("share/man/man1/{name}"), fs::read(entry.path())?);
    }
    for (shell, path) in COMPLETIONS {
        tree.file(path, printed(Command::new(program).args(["completions", shell]))?);
    }
    tree.file("share/doc/toolbay/CHANGELOG.md", fs::read(release.workspace.join("CHANGELOG.md"))?);
    tree.graft("share/doc/toolbay", &documents.notices.files);
    tree.file("share/doc/toolbay/toolbay.cdx.json", documents.sbom.as_str());
    Ok(tree)
}
