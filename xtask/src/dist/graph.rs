//! The packages that a part of a release is built from, as cargo resolves them for the targets of a release. Packages that only
//! run while building are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::Release;
use super::compile::{Libc, PLATFORMS};
use super::modules::Module;
use crate::cargo;

/// A part of a release that is built alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Program,
    Module(Module),
    Plugins,
}

impl Part {
    /// All parts.
    pub(super) const ALL: [Self; 4] =
        [Self::Program, Self::Module(Module::Node), Self::Module(Module::Python), Self::Plugins];

    fn targets(self) -> Vec<String> {
        match self {
            Self::Program => {
                PLATFORMS.iter().filter(|one| one.libc == Libc::Musl).map(|one| one.target()).collect()
            }
            Self::Module(_) => PLATFORMS.iter().map(|one| one.target()).collect(),
            Self::Plugins => vec!["wasm32-wasip2".to_owned()],
        }
    }

    /// What the names of its packages begin with.
    fn start(self) -> &'static str {
        match self {
            Self::Program => "toolbay-cli",
            Self::Module(module) => module.package(),
            Self::Plugins => "plugin-",
        }
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

/// A package of cargo.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Package {
    id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    pub(super) license_file: Option<PathBuf>,
    pub(super) manifest_path: PathBuf,
    pub(super) repository: Option<String>,
    pub(super) authors: Vec<String>,
    /// The registry; none for packages of the workspace.
    pub(super) source: Option<String>,
}

impl Package {
    pub(super) fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    /// The expression of SPDX for its licence. Older manifests separate alternatives by a slash.
    pub(super) fn license_expression(&self) -> Option<String> {
        Some(self.license.as_ref()?.replace('/', " OR ").replace("  OR  ", " OR "))
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// Packages, with what each depends on.
#[derive(Debug, Clone, Default)]
pub(super) struct Graph {
    /// By URL, each with the URLs of those that it depends on.
    packages: BTreeMap<String, (Package, BTreeSet<String>)>,
    /// The URLs of the packages that are built.
    roots: BTreeSet<String>,
}

impl Graph {
    /// The packages of a part, with the features that they have in the whole workspace.
    pub(super) fn of(release: &Release, part: Part) -> Result<Self> {
        let targets = part.targets();
        let args: Vec<&str> = targets.iter().flat_map(|target| ["--filter-platform", target]).collect();
        let metadata = cargo::metadata(&release.workspace, &args)?;
        let mut graph = Self::default();
        graph.add(&serde_json::from_slice(&metadata)?, part.start())?;
        Ok(graph)
    }

    /// The packages of both.
    pub(super) fn with(mut self, other: &Self) -> Self {
        for (url, (package, needs)) in &other.packages {
            self.packages
                .entry(url.clone())
                .or_insert_with(|| (package.clone(), BTreeSet::new()))
                .1
                .extend(needs.iter().cloned());
        }
        self.roots.extend(other.roots.iter().cloned());
        self
    }

    /// The packages, each with the URLs of those that it depends on, sorted by URL.
    pub(super) fn packages(&self) -> impl Iterator<Item = (&Package, &BTreeSet<String>)> {
        self.packages.values().map(|(package, needs)| (package, needs))
    }

    /// The URLs of the packages that are built.
    pub(super) fn roots(&self) -> &BTreeSet<String> {
        &self.roots
    }

    /// Adds the packages with this start of their name, and what they depend on.
    fn add(&mut self, metadata: &Metadata, start: &str) -> Result<()> {
        let packages: BTreeMap<&str, &Package> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
        let nodes: BTreeMap<&str, &Node> =
            metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let find = |id: &str| packages.get(id).copied().with_context(|| format!("no package `{id}`"));
        let roots: Vec<&Package> =
            metadata.packages.iter().filter(|package| package.name.starts_with(start)).collect();
        ensure!(!roots.is_empty(), "no package is named `{start}`");
        let mut waiting: Vec<&str> = roots.iter().map(|package| package.id.as_str()).collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            if !seen.insert(id) {
                continue;
            }
            let package = find(id)?;
            let (_, needs) =
                self.packages.entry(package.url()).or_insert_with(|| (package.clone(), BTreeSet::new()));
            let node = nodes.get(id).with_context(|| format!("`{id}` is not resolved"))?;
            let is_linked =
                |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
            for dependency in node.deps.iter().filter(is_linked) {
                needs.insert(find(&dependency.pkg)?.url());
                waiting.push(&dependency.pkg);
            }
        }
        self.roots.extend(roots.into_iter().map(Package::url));
        Ok(())
    }
}
