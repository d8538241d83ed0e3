//! Wheels: packages for pip and uv, in the format of PyPA (binary distribution format 1.0, core metadata 2.4).
//!
//! | in the wheel | installed |
//! |---|---|
//! | `NAME-VERSION.data/scripts` | programs, on the search path of the environment |
//! | `NAME-VERSION.dist-info` | metadata, `licenses` (PEP 639), `sboms` (PEP 770), `RECORD` with checksums |
//! | everything else | Python modules, also native ones |

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::Release;
use super::contents::Documents;
use super::tree::Tree;
use super::version;

/// The oldest Python that the packages are for.
const PYTHON: &str = ">=3.11";

/// What a wheel contains.
#[derive(Debug)]
pub(super) struct Wheel<'a> {
    /// The name on PyPI.
    pub(super) name: &'a str,
    pub(super) summary: &'a str,
    pub(super) readme: &'a str,
    /// The Pythons and platforms that can use it, as in `py3-none-any`.
    pub(super) tag: &'a str,
    /// Python modules.
    pub(super) modules: Tree,
    /// Programs.
    pub(super) scripts: Tree,
    /// Commands that are Python functions, each as `NAME = MODULE:FUNCTION`.
    pub(super) commands: &'a [&'a str],
    pub(super) documents: &'a Documents,
}

impl Wheel<'_> {
    /// The name of the file, and its bytes.
    pub(super) fn archive(&self, release: &Release) -> Result<(String, Vec<u8>)> {
        let version = version::of_python(&release.version)?;
        let start = format!("{}-{version}", self.name.replace('-', "_"));
        let information = format!("{start}.dist-info");
        let mut tree = self.modules.clone();
        tree.graft(&format!("{start}.data/scripts"), &self.scripts);
        tree.file(&format!("{information}/METADATA"), self.metadata(&version));
        tree.file(&format!("{information}/WHEEL"), self.compatibility());
        if !self.commands.is_empty() {
            let commands = format!("[console_scripts]\n{}\n", self.commands.join("\n"));
            tree.file(&format!("{information}/entry_points.txt"), commands);
        }
        tree.graft(&format!("{information}/licenses"), &self.documents.notices.files);
        tree.file(&format!("{information}/sboms/{}.cdx.json", self.name), self.documents.sbom.as_str());
        let list = format!("{information}/RECORD");
        let record = record(&tree, &list);
        tree.file(&list, record);
        Ok((format!("{start}-{}.whl", self.tag), tree.zipped(release.compression)?))
    }

    fn metadata(&self, version: &str) -> String {
        let mut fields = format!(
            "Metadata-Version: 2.4\nName: {}\nVersion: {version}\nSummary: {}\nLicense-Expression: {}\n",
            self.name, self.summary, self.documents.notices.expression
        );
        for (path, _) in self.documents.notices.files.files() {
            fields += &format!("License-File: {path}\n");
        }
        fields
            + &format!(
                "Requires-Python: {PYTHON}\nDescription-Content-Type: text/markdown\n\n{}",
                self.readme
            )
    }

    fn compatibility(&self) -> String {
        let is_pure = self.tag.ends_with("-any");
        format!(
            "Wheel-Version: 1.0\nGenerator: toolbay xtask\nRoot-Is-Purelib: {is_pure}\nTag: {}\n",
            self.tag
        )
    }
}

/// The list of all files, with their checksums and sizes.
fn record(tree: &Tree, own: &str) -> String {
    let line = |(path, bytes): (&str, &[u8])| {
        let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        format!("{path},sha256={digest},{}\n", bytes.len())
    };
    tree.files().map(line).collect::<String>() + &format!("{own},,\n")
}
