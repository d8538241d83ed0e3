//! What installs a tarball and verifies its checksum: a script for any Linux, and a formula for Homebrew.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Release;
use super::compile::{FOREIGN, NATIVE};
use super::sha256;

/// Each file with its template.
const FILES: [(&str, &str); 2] = [
    ("install.sh", include_str!("../../packages/install.sh")),
    ("toolbay.rb", include_str!("../../packages/toolbay.rb")),
];

/// Writes the files into the folder that has the tarballs.
pub(super) fn write(release: &Release, folder: &Path) -> Result<()> {
    // A package for this machine alone has one tarball.
    let [native, foreign] = [NATIVE, FOREIGN].map(|architecture| {
        let file = folder.join(super::tarball_name(&release.version, architecture));
        fs::read(file).map_or_else(|_| "none".to_owned(), |tarball| sha256(&tarball))
    });
    for (name, template) in FILES {
        let text = template
            .replace("@VERSION@", &release.version)
            .replace("@URL@", &release.url)
            .replace("@SHA256_X86_64@", &native)
            .replace("@SHA256_AARCH64@", &foreign);
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
