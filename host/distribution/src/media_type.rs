//! The media types of manifests and components (OCI image specification 1.1; CNCF TAG Runtime, "Wasm OCI Artifact").

/// A manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An index of manifests.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The configuration of a component's manifest.
pub(crate) const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// A component.
pub(crate) const COMPONENT: &str = "application/wasm";
/// A component, as older tools name it.
pub(crate) const OLD_COMPONENT: &str = "application/vnd.wasm.content.layer.v1+wasm";
/// A signature: a sigstore bundle.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The configuration of an artifact that has none.
pub(crate) const EMPTY: &str = "application/vnd.oci.empty.v1+json";
