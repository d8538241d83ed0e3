//! Manifests of components: one layer with a component, described by an OCI image manifest, or by an index with one such
//! manifest for WebAssembly (OCI image specification 1.1). Artifacts of other tools have other configurations and
//! annotations, which do not matter here.

use serde::Deserialize;
use toolbay_policy::excerpt::one_line;

use super::RegistryError;
use crate::digest::BlobDigest;
use crate::media_type::{COMPONENT, INDEX, MANIFEST, OLD_COMPONENT};

/// The media types of components.
const COMPONENTS: [&str; 2] = [COMPONENT, OLD_COMPONENT];
/// Largest component in bytes. The host loads no larger one.
pub const MAX_LAYER: u64 = 64 << 20;
/// Most layers of a manifest, and manifests of an index.
const MAX_ENTRIES: usize = 64;

/// A parsed manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Manifest {
    /// Of one component.
    Component(ComponentManifest),
    /// An index: the manifest for WebAssembly, and its size in bytes.
    Index { digest: BlobDigest, size: u64 },
}

/// A manifest of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentManifest {
    /// The component.
    pub layer: BlobDigest,
    /// Its size in bytes, at most [`MAX_LAYER`].
    pub size: u64,
}

impl ComponentManifest {
    /// Parses the manifest of a component.
    ///
    /// # Errors
    /// Fails if the bytes are not the manifest of a component.
    pub fn parse(bytes: &[u8]) -> Result<Self, RegistryError> {
        match Manifest::parse(bytes, None)? {
            Manifest::Component(manifest) => Ok(manifest),
            Manifest::Index { .. } => {
                Err(RegistryError::Refused("an index is not the manifest of a component".to_owned()))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestDocument {
    schema_version: u32,
    media_type: Option<String>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    urls: Vec<String>,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
}

impl Manifest {
    /// Parses a manifest. `content_type` is what the registry says that it is.
    pub(super) fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, RegistryError> {
        let refused = |why: String| RegistryError::Refused(format!("the manifest is refused: {why}"));
        let document: ManifestDocument = serde_json::from_slice(bytes).map_err(|error| {
            refused(format!("it is not an OCI manifest (line {}, column {})", error.line(), error.column()))
        })?;
        if document.schema_version != 2 {
            return Err(refused(format!(
                "it has `schemaVersion` {}, and 2 is known",
                document.schema_version
            )));
        }
        let announced = content_type.map(|text| text.split(';').next().unwrap_or(text).trim());
        // One document must not be a manifest for one reader and an index for another (CVE-2021-41190).
        let media_type = match (document.media_type.as_deref(), announced) {
            (Some(inside), Some(announced)) if inside != announced => {
                let (inside, announced) = (one_line(inside, 100), one_line(announced, 100));
                return Err(refused(format!(
                    "it says that it is `{inside}`, and the registry says `{announced}`"
                )));
            }
            (inside, announced) => inside.or(announced).unwrap_or_default(),
        };
        match (media_type, document.layers, document.manifests) {
            (MANIFEST, Some(layers), None) => component(&layers).map(Self::Component),
            (INDEX, None, Some(manifests)) => wasm_manifest(&manifests),
            (MANIFEST | INDEX, ..) => Err("it is both a manifest and an index, or neither".to_owned()),
            (other, ..) => Err(format!("`{}` is not an OCI manifest", one_line(other, 100))),
        }
        .map_err(refused)
    }
}

fn component(layers: &[Descriptor]) -> Result<ComponentManifest, String> {
    check_count(layers.len())?;
    let mut components = layers.iter().filter(|layer| COMPONENTS.contains(&layer.media_type.as_str()));
    let (Some(layer), None) = (components.next(), components.next()) else {
        return Err(format!("it has {} layers, and exactly one must be `{}`", layers.len(), COMPONENT));
    };
    if layers.iter().any(|layer| !layer.urls.is_empty()) {
        return Err("a layer has `urls`, which lead to other hosts".to_owned());
    }
    if layer.size > MAX_LAYER {
        return Err(format!("the component has {} bytes, and the limit is {MAX_LAYER}", layer.size));
    }
    Ok(ComponentManifest { layer: layer.digest.parse()?, size: layer.size })
}

/// The only manifest of an index, or the only one for WebAssembly.
fn wasm_manifest(manifests: &[Descriptor]) -> Result<Manifest, String> {
    check_count(manifests.len())?;
    let is_wasm = |one: &&Descriptor| one.platform.as_ref().is_some_and(|it| it.architecture == "wasm");
    let wasm: Vec<&Descriptor> = manifests.iter().filter(is_wasm).collect();
    let found = match (manifests, wasm.as_slice()) {
        ([one], _) => one,
        (_, [one]) => *one,
        _ => {
            let (all, wasm) = (manifests.len(), wasm.len());
            return Err(format!(
                "the index has {all} manifests, {wasm} of them for WebAssembly: name one by its digest"
            ));
        }
    };
    match found.media_type.as_str() {
        MANIFEST => Ok(Manifest::Index { digest: found.digest.parse()?, size: found.size }),
        other => Err(format!("the index leads to `{}`, which is not a manifest", one_line(other, 100))),
    }
}

fn check_count(entries: usize) -> Result<(), String> {
    match entries > MAX_ENTRIES {
        true => Err(format!("it has {entries} entries, and the limit is {MAX_ENTRIES}")),
        false => Ok(()),
    }
}
