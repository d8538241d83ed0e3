//! What is installed, and where: the tree below `/usr`, `/usr/local` or another folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use wasm::Component;

use super::compile::{Architecture, NATIVE};
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

/// The parts of a release.
#[derive(Debug)]
pub(super) struct Contents {
    programs: Vec<(Architecture, Vec<u8>)>,
    plugins: Tree,
    /// Man pages, completions and documents.
    shared: Tree,
    units: [(&'static str, String); 2],
    policy: String,
    sbom: String,
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
        let sbom = sbom::document(release)?;
        let shared = shared(release, native, &sbom)?;
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
            sbom,
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

    /// The SBOM.
    pub(super) fn sbom(&self) -> &str {
        &self.sbom
    }
}

fn shared(release: &Release, program: &Path, sbom: &str) -> Result<Tree> {
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
    for name in ["LICENSE", "CHANGELOG.md"] {
        tree.file(&format!("share/doc/toolbay/{name}"), fs::read(release.workspace.join(name))?);
    }
    tree.file("share/doc/toolbay/toolbay.cdx.json", sbom);
    Ok(tree)
}
