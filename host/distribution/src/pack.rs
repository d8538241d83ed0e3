//! The OCI artifact of a component, as other WebAssembly tools write and read it: an image manifest with one layer and a
//! configuration that names the component's imports and exports (CNCF TAG Runtime, "Wasm OCI Artifact"). The same input
//! gives the same bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::digest::BlobDigest;
use crate::media_type::{COMPONENT, CONFIG, MANIFEST};

/// The system interface of the components that this host runs.
const OS: &str = "wasip2";

/// What the artifact says about a component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComponentFacts {
    /// The file name.
    pub title: String,
    /// When it was created (RFC 3339). A fixed time, so that the same component gives the same artifact.
    pub created: String,
    /// The authors.
    pub author: Option<String>,
    /// The names of its imports.
    pub imports: Vec<String>,
    /// The names of its exports.
    pub exports: Vec<String>,
    /// More annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

/// The blobs and the manifest of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentArtifact {
    /// The digest of the manifest.
    pub digest: BlobDigest,
    /// The manifest.
    pub manifest: Bytes,
    /// The configuration and the component, each with its digest.
    pub blobs: [(BlobDigest, Bytes); 2],
}

impl ComponentArtifact {
    /// Makes the artifact of a component.
    #[must_use]
    pub fn new(component: Bytes, facts: &ComponentFacts) -> Self {
        let layer = BlobDigest::of(&component);
        let config = Bytes::from(config(&layer, facts).to_string());
        let config_digest = BlobDigest::of(&config);
        let mut of_layer = descriptor(COMPONENT, &layer, &component);
        put(&mut of_layer, "annotations", json!({"org.opencontainers.image.title": facts.title}));
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config_digest, &config),
            "layers": [of_layer],
        });
        if !facts.annotations.is_empty() {
            put(&mut manifest, "annotations", json!(facts.annotations));
        }
        let manifest = Bytes::from(manifest.to_string());
        let blobs = [(config_digest, config), (layer, component)];
        Self { digest: BlobDigest::of(&manifest), manifest, blobs }
    }
}

fn descriptor(media_type: &str, digest: &BlobDigest, content: &Bytes) -> Value {
    json!({"mediaType": media_type, "digest": digest, "size": content.len()})
}

fn config(layer: &BlobDigest, facts: &ComponentFacts) -> Value {
    let mut config = json!({
        "created": facts.created,
        "architecture": "wasm",
        "os": OS,
        "layerDigests": [layer],
        "component": {"exports": facts.exports, "imports": facts.imports, "target": null},
    });
    if let Some(author) = &facts.author {
        put(&mut config, "author", json!(author));
    }
    config
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_component_gives_the_same_artifact() {
        let facts = ComponentFacts {
            title: "hash.wasm".to_owned(),
            created: "1970-01-01T00:00:00Z".to_owned(),
            exports: vec!["toolbay:plugin/plugin@0.1.0".to_owned()],
            ..ComponentFacts::default()
        };
        let artifact = ComponentArtifact::new(Bytes::from_static(b"wasm"), &facts);
        assert_eq!(artifact, ComponentArtifact::new(Bytes::from_static(b"wasm"), &facts));
        assert_eq!(artifact.digest, BlobDigest::of(&artifact.manifest));
        let [(_, config), (layer, _)] = &artifact.blobs;
        let expected = format!(
            "{{\"created\":\"1970-01-01T00:00:00Z\",\"architecture\":\"wasm\",\"os\":\"wasip2\",\
             \"layerDigests\":[\"{layer}\"],\"component\":{{\"exports\":[\"toolbay:plugin/plugin@0.1.0\"],\
             \"imports\":[],\"target\":null}}}}"
        );
        assert_eq!(config, expected.as_bytes());
        let other = ComponentFacts { title: "other.wasm".to_owned(), ..facts };
        assert_ne!(ComponentArtifact::new(Bytes::from_static(b"wasm"), &other).digest, artifact.digest);
    }
}
