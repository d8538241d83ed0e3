//! Packages for npm: the tarball that `npm pack` would write, with sorted names and one time.

use anyhow::Result;
use serde_json::{Value, json};

use super::Release;
use super::contents::Documents;
use super::tree::Tree;
use crate::folder::read_text;

/// What a package contains.
#[derive(Debug)]
pub(super) struct NpmPackage<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) readme: &'a str,
    /// The members of `package.json` besides those that every package has.
    pub(super) manifest: Value,
    pub(super) files: Tree,
    /// None: the package has no code of others.
    pub(super) documents: Option<&'a Documents>,
}

impl NpmPackage<'_> {
    /// The name of the file, and its bytes.
    pub(super) fn archive(&self, release: &Release) -> Result<(String, Vec<u8>)> {
        let licence = self.documents.map_or("Apache-2.0", |documents| &documents.notices.expression);
        let mut manifest = json!({
            "name": self.name,
            "version": release.version,
            "description": self.description,
            "license": licence,
        });
        if let (Some(all), Some(more)) = (manifest.as_object_mut(), self.manifest.as_object()) {
            all.extend(more.clone());
        }
        let mut package = self.files.clone();
        package.file("package.json", serde_json::to_string_pretty(&manifest)? + "\n");
        package.file("README.md", self.readme);
        match self.documents {
            Some(documents) => {
                package.file("sbom.cdx.json", documents.sbom.as_str());
                for (path, bytes) in documents.notices.files.files() {
                    package.file(path, bytes);
                }
            }
            None => package.file("LICENSE", read_text(&release.workspace.join("LICENSE"))?),
        }
        let mut tree = Tree::default();
        tree.graft("package", &package);
        let file = format!("{}-{}.tgz", self.name.trim_start_matches('@').replace('/', "-"), release.version);
        Ok((file, tree.gzipped(release.time, release.compression)?))
    }
}
