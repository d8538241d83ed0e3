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
    let sum = |machine: &str| anyhow::Ok(sha256(&fs::read(folder.join(release.tarball_name(machine)))?));
    write_with(release, [&sum(NATIVE.machine)?, &sum(FOREIGN.machine)?], folder)
}

/// Writes the files with the checksums of the tarballs for x86-64 and ARM.
pub(super) fn write_with(release: &Release, [native, foreign]: [&str; 2], folder: &Path) -> Result<()> {
    for (name, template) in FILES {
        let text = template
            .replace("@VERSION@", &release.version)
            .replace("@URL@", &release.url)
            .replace("@SHA256_X86_64@", native)
            .replace("@SHA256_AARCH64@", foreign);
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
