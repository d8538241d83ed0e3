//! The Debian package. It installs the program, the plugins, a user and the units, and starts nothing: the policy comes first.

use anyhow::Result;

use super::Release;
use super::compile::Architecture;
use super::contents::{self, Contents};
use super::tree::Tree;
use crate::folder::read_text;

/// What changes in the units: the package has its own folders and a user with a name, to whom files can belong.
const UNIT_CHANGES: [(&str, &str); 5] = [
    ("/usr/local/bin/", "/usr/bin/"),
    ("/usr/local/lib/", "/usr/lib/"),
    (
        "# Where `DynamicUser` has the folders themselves; what is at /var/lib/toolbay is a link, which is not followed.\n",
        "",
    ),
    ("/private/toolbay", "/toolbay"),
    ("DynamicUser=yes", "User=toolbay"),
];

const POSTINST: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = configure ]; then
    if command -v systemd-sysusers >/dev/null; then systemd-sysusers toolbay.conf; fi
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        systemctl try-restart toolbay.service
    fi
fi
";

const PRERM: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now toolbay.socket toolbay.service
fi
";

/// The bytes of the package.
pub(super) fn package(release: &Release, architecture: Architecture, contents: &Contents) -> Result<Vec<u8>> {
    let data = data(release, architecture, contents)?;
    let control = control(release, architecture, &data).gzipped(release.time, release.compression)?;
    let members: [(&str, &[u8]); 3] = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data.gzipped(release.time, release.compression)?),
    ];
    Ok(archive(&members, release.time))
}

fn data(release: &Release, architecture: Architecture, contents: &Contents) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.graft("usr", &contents.installed(architecture)?);
    tree.graft("usr/lib/toolbay/plugins", contents.plugins());
    tree.file(&format!("usr/{}", contents::ORIGIN), "deb\n");
    for (name, unit) in contents.units() {
        let changed = UNIT_CHANGES.iter().fold(unit.clone(), |unit, (from, to)| unit.replace(from, to));
        tree.file(&format!("usr/lib/systemd/system/{name}"), changed);
    }
    let users = read_text(&release.workspace.join("docs/deploy/toolbay.sysusers"))?;
    tree.file("usr/lib/sysusers.d/toolbay.conf", users);
    tree.file("usr/share/doc/toolbay/copyright", COPYRIGHT);
    tree.file("etc/toolbay/toolbay.toml", contents.policy());
    Ok(tree)
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: toolbay

Files: *
Copyright: the authors of Toolbay
License: Apache-2.0
 The text is beside this file, in LICENSE. The licences of the libraries in
 the program are in THIRD-PARTY-LICENSES.
";

fn control(release: &Release, architecture: Architecture, data: &Tree) -> Tree {
    let bytes: usize = data.files().map(|(_, bytes)| bytes.len()).sum();
    let fields = format!(
        "Package: toolbay\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: The authors of Toolbay <toolbay@localhost>\n\
         Installed-Size: {size}\nRecommends: ca-certificates\nSection: net\nPriority: optional\n\
         Description: plugin host for the tools of LLM agents\n \
         Toolbay runs tools from WebAssembly components in a sandbox, under a\n \
         policy, and serves them over MCP.\n",
        // A tilde sorts before the final version, and what follows a hyphen is the packager's.
        version = release.version.replace('-', "~"),
        architecture = architecture.debian,
        size = bytes.div_ceil(1024),
    );
    let mut tree = Tree::default();
    tree.file("control", fields);
    tree.file("conffiles", "/etc/toolbay/toolbay.toml\n");
    tree.program("postinst", POSTINST);
    tree.program("prerm", PRERM);
    tree
}

/// An archive of `ar`, as `deb(5)` describes it.
fn archive(members: &[(&str, &[u8])], time: u64) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, member) in members {
        let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, member.len());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(member);
        if member.len() % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_an_archive_begin_at_even_places() {
        let bytes = archive(&[("a", b"odd"), ("b", b"even")], 1);
        assert_eq!(bytes.len(), 8 + 60 + 4 + 60 + 4);
        assert!(bytes.ends_with(b"`\neven"));
    }

    #[test]
    fn the_units_name_the_folders_of_the_package() {
        let unit = include_str!("../../../docs/deploy/toolbay.service");
        for (from, _) in UNIT_CHANGES {
            assert!(unit.contains(from), "{from}");
        }
    }
}
