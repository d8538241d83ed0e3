//! The OCI image layout: for each kind of machine one layer with the program, the plugins and empty folders, without a base
//! image, a shell or any other program.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::compile::{ARCHITECTURES, Architecture};
use super::contents::{self, Contents, PackageKind};
use super::tree::{ROOT, Tree, gzip};
use super::{Release, sha256};

/// The user of the server: the number that images without a base use for one without privileges.
const USER: u64 = 65532;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Writes the layout into a folder.
pub(super) fn write(release: &Release, contents: &Contents, folder: &Path) -> Result<()> {
    let blobs = Blobs { folder: folder.join("blobs/sha256") };
    fs::create_dir_all(&blobs.folder)?;
    let mut manifests = Vec::new();
    for architecture in ARCHITECTURES {
        manifests.push(image(release, architecture, contents, &blobs)?);
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    let mut named = blobs.write(INDEX, index.to_string().as_bytes())?;
    // Clients choose an image of a layout by this name.
    set(&mut named, "annotations", json!({"org.opencontainers.image.ref.name": release.version}));
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]});
    fs::write(folder.join("index.json"), index.to_string())?;
    fs::write(folder.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    Ok(())
}

/// Writes the image of one kind of machine and returns its descriptor.
fn image(release: &Release, architecture: Architecture, contents: &Contents, blobs: &Blobs) -> Result<Value> {
    let tar = layer(architecture, contents)?.tar(release.time)?;
    let layer = blobs.write(LAYER, &gzip(&tar, release.compression)?)?;
    let config = json!({
        "architecture": architecture.debian,
        "os": "linux",
        "config": {
            "User": USER.to_string(),
            "Env": [
                "TOOLBAY_CONFIG=/etc/toolbay/toolbay.toml",
                "TOOLBAY_PLUGINS=/usr/lib/toolbay/plugins",
                "TOOLBAY_STATE=/var/lib/toolbay",
                "TOOLBAY_CACHE=/var/cache/toolbay",
            ],
            "Entrypoint": ["/usr/bin/toolbay"],
            "Cmd": ["serve", "--http", "0.0.0.0:8080"],
            "ExposedPorts": {"8080/tcp": {}},
            "Volumes": {"/var/lib/toolbay": {}},
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "toolbay",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.revision": release.commit,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&tar))]},
    });
    let config = blobs.write(CONFIG, config.to_string().as_bytes())?;
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let mut descriptor = blobs.write(MANIFEST, manifest.to_string().as_bytes())?;
    set(&mut descriptor, "platform", json!({"architecture": architecture.debian, "os": "linux"}));
    Ok(descriptor)
}

fn layer(architecture: Architecture, contents: &Contents) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.program("usr/bin/toolbay", contents.program(architecture)?);
    tree.graft("usr/lib/toolbay/plugins", contents.plugins());
    tree.file(
        "usr/share/doc/toolbay/toolbay.cdx.json",
        contents.documents(PackageKind::System).sbom.as_str(),
    );
    tree.graft("usr/share/doc/toolbay", &contents.documents(PackageKind::System).notices.files);
    tree.file(&format!("usr/{}", contents::ORIGIN), "image\n");
    tree.file("etc/toolbay/toolbay.toml", contents.policy());
    tree.folder("tmp", 0o1777, ROOT);
    for folder in ["var/lib/toolbay", "var/cache/toolbay"] {
        tree.folder(folder, 0o700, USER);
    }
    Ok(tree)
}

/// Blobs, by their digests.
struct Blobs {
    folder: PathBuf,
}

impl Blobs {
    /// Writes a blob and returns its descriptor.
    fn write(&self, kind: &str, bytes: &[u8]) -> Result<Value> {
        let digest = sha256(bytes);
        fs::write(self.folder.join(&digest), bytes)?;
        Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
    }
}

fn set(descriptor: &mut Value, key: &str, value: Value) {
    if let Some(fields) = descriptor.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}
