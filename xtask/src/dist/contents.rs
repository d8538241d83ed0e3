//! What is installed, and where: the tree below `/usr`, `/usr/local` or another folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use wasm::Component;

use super::compile::{Architecture, NATIVE};
use super::graph::{Graph, Part};
use super::licences::Notices;
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

/// What a package says about the part that it contains.
#[derive(Debug, Clone)]
pub(super) struct PartDocuments {
    pub(super) sbom: String,
    pub(super) notices: Notices,
}

impl PartDocuments {
    fn of(release: &Release, name: &str, graph: &Graph) -> Result<Self> {
        Ok(Self { sbom: sbom::document(release, name, graph)?, notices: Notices::of(release, graph)? })
    }
}

/// The parts of a release.
#[derive(Debug)]
pub(super) struct Contents {
    programs: Vec<(Architecture, Vec<u8>)>,
    plugins: Tree,
    /// Man pages, completions and documents.
    shared: Tree,
    units: [(&'static str, String); 2],
    policy: String,
    /// Of the program and the plugins.
    whole: PartDocuments,
    program_documents: PartDocuments,
    plugin_documents: PartDocuments,
    /// The first folder of a tarball.
    name: String,
}

impl Contents {
    /// Reads what was built. The program of this machine writes its man pages and completions.
    pub(super) fn collect(
        release: &Release,
        programs: Vec<(Architecture, PathBuf)>,
        plugins: &[Component],
    ) -> Result<Self> {
        let native = programs.iter().find(|(architecture, _)| *architecture == NATIVE);
        let (_, native) = native.context("the program for this machine was not built")?;
        let [of_program, of_plugins] =
            [Graph::of(release, Part::Program)?, Graph::of(release, Part::Plugins)?];
        let whole = PartDocuments::of(release, "toolbay", &of_program.clone().with(&of_plugins))?;
        let shared = shared(release, native, &whole)?;
        let mut components = Tree::default();
        for plugin in plugins {
            components.file(&format!("{}.wasm", plugin.name), fs::read(&plugin.file)?);
        }
        let read = |(architecture, file): (Architecture, PathBuf)| Ok((architecture, fs::read(file)?));
        let deploy = |name: &str| read_text(&release.workspace.join("docs/deploy").join(name));
        Ok(Self {
            programs: programs.into_iter().map(read).collect::<Result<_>>()?,
            plugins: components,
            shared,
            units: [
                ("toolbay.service", deploy("toolbay.service")?),
                ("toolbay.socket", deploy("toolbay.socket")?),
            ],
            policy: deploy("toolbay.toml")?,
            whole,
            program_documents: PartDocuments::of(release, "toolbay", &of_program)?,
            plugin_documents: PartDocuments::of(release, "toolbay-plugins", &of_plugins)?,
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

    /// The kinds of machines for which there is a program.
    pub(super) fn architectures(&self) -> impl Iterator<Item = Architecture> {
        self.programs.iter().map(|(architecture, _)| *architecture)
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

    /// The SBOM of the program and the plugins.
    pub(super) fn sbom(&self) -> &str {
        &self.whole.sbom
    }

    /// The licences of the program and the plugins.
    pub(super) fn notices(&self) -> &Notices {
        &self.whole.notices
    }

    /// The SBOM and the licences of one part.
    pub(super) fn documents(&self, part: Part) -> &PartDocuments {
        match part {
            Part::Program => &self.program_documents,
            Part::Plugins => &self.plugin_documents,
        }
    }
}

fn shared(release: &Release, program: &Path, whole: &PartDocuments) -> Result<Tree> {
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
    tree.graft("share/doc/toolbay", &whole.notices.files);
    tree.file("share/doc/toolbay/toolbay.cdx.json", whole.sbom.as_str());
    Ok(tree)
}
