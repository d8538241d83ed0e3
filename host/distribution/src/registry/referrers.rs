//! Signatures beside a component: referrers of its manifest (OCI distribution specification 1.1, "Listing Referrers"), or
//! for older registries the index under the tag `sha256-HEX`. Every failure is an error: it never counts as "not signed".

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use toolbay_core::call::server_connector::ConnectorResponse;
use toolbay_policy::text::one_line;

use super::{MAX_MANIFEST, RedirectRule, RegistryClient, RegistryError, read_body};
use crate::digest::BlobDigest;
use crate::media_type::{BUNDLE, EMPTY, INDEX, MANIFEST};
use crate::signature::MAX_BUNDLE;

/// Most referrers of a manifest.
const MAX_REFERRERS: usize = 64;
/// Most signatures among them.
const MAX_SIGNATURES: usize = 8;
/// Largest manifest of a signature, in bytes.
const MAX_SIGNATURE_MANIFEST: usize = 64 << 10;
/// The configuration of a signature.
pub(crate) const EMPTY_CONFIG: &[u8] = b"{}";

/// A signature that a registry has. It is not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSignature {
    /// The bundle.
    pub digest: BlobDigest,
    /// Its content.
    pub bytes: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReferrersDocument {
    schema_version: u32,
    manifests: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    media_type: String,
    digest: String,
    artifact_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignatureManifest {
    subject: Option<SignatureLayer>,
    layers: Vec<SignatureLayer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignatureLayer {
    media_type: String,
    digest: String,
    size: u64,
}

impl RegistryClient {
    /// The signatures of a manifest, in the order of the registry. A mirror is asked if the registry cannot be reached:
    /// many mirrors have no signatures.
    ///
    /// # Errors
    /// The registry failed, or a document is not accepted. Too many signatures are an error, too.
    pub async fn signatures(&self, manifest: &BlobDigest) -> Result<Vec<FoundSignature>, RegistryError> {
        let found = self.own_signatures(manifest).await;
        match (found, &self.mirror) {
            (Err(RegistryError::Failed(why)), Some(mirror)) => {
                let found = mirror.own_signatures(manifest).await;
                found.map_err(|error| RegistryError::Failed(format!("{why}; its mirror: {error}")))
            }
            (found, _) => found,
        }
    }

    async fn own_signatures(&self, manifest: &BlobDigest) -> Result<Vec<FoundSignature>, RegistryError> {
        let mut found = Vec::new();
        for digest in self.signature_manifests(manifest).await? {
            found.push(self.fetch_signature(&digest, manifest).await?);
        }
        Ok(found)
    }

    /// Uploads a signature of a manifest.
    ///
    /// # Errors
    /// The registry refuses the upload, or does not list the signature afterwards.
    pub async fn push_signature(
        &self,
        manifest: (&BlobDigest, usize),
        bundle: &[u8],
    ) -> Result<(), RegistryError> {
        let config = Bytes::from_static(EMPTY_CONFIG);
        let bundle = Bytes::copy_from_slice(bundle);
        let (config_digest, bundle_digest) = (BlobDigest::of(&config), BlobDigest::of(&bundle));
        self.push_blob(&config_digest, &config).await?;
        self.push_blob(&bundle_digest, &bundle).await?;
        let document = Bytes::from(signature_manifest(manifest, (&bundle_digest, bundle.len())));
        let digest = BlobDigest::of(&document);
        let response = self.put_manifest(&digest.to_string(), MANIFEST, document.clone()).await?;
        // The registry lists the referrers of this subject itself.
        let is_listed = response.header("oci-subject") == Some(&*manifest.0.to_string());
        if !is_listed {
            self.add_to_index(manifest.0, &digest, document.len()).await?;
        }
        match self.signature_manifests(manifest.0).await?.contains(&digest) {
            true => Ok(()),
            false => {
                let host = &self.reference.host;
                let why =
                    format!("`{host}` does not list the signature: another upload may have replaced it");
                Err(RegistryError::Failed(why))
            }
        }
    }

    /// Adds a signature to the index of a registry without referrers.
    async fn add_to_index(
        &self,
        manifest: &BlobDigest,
        signature: &BlobDigest,
        size: usize,
    ) -> Result<(), RegistryError> {
        let tag = index_tag(manifest);
        let mut manifests = match self.get_manifest(&tag).await? {
            response if response.status == 404 => Vec::new(),
            response => self.read_referrers(response, &tag).await?,
        };
        manifests
            .push(json!({"mediaType": MANIFEST, "digest": signature, "size": size, "artifactType": BUNDLE}));
        if manifests.len() > MAX_REFERRERS {
            return Err(too_many("referrers", MAX_REFERRERS));
        }
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string();
        self.put_manifest(&tag, INDEX, index.into()).await.map(drop)
    }

    async fn put_manifest(
        &self,
        name: &str,
        media_type: &str,
        document: Bytes,
    ) -> Result<ConnectorResponse, RegistryError> {
        let headers = vec![("content-type".to_owned(), media_type.to_owned())];
        let url = self.url(&format!("manifests/{name}"))?;
        let response = self.send_upload("PUT", url, headers, document).await?;
        self.expect(&response, &[201], "the manifest")?;
        Ok(response)
    }

    /// The manifests of the signatures of a manifest.
    async fn signature_manifests(&self, manifest: &BlobDigest) -> Result<Vec<BlobDigest>, RegistryError> {
        let mut url = self.url(&format!("referrers/{manifest}"))?;
        url.query_pairs_mut().append_pair("artifactType", BUNDLE);
        let accept = vec![("accept".to_owned(), INDEX.to_owned())];
        let response = self.exchange("GET", url, accept, Bytes::new(), RedirectRule::Return).await?;
        // Registries without referrers answer in these ways.
        let entries = if matches!(response.status, 303 | 404 | 429) {
            let tag = index_tag(manifest);
            match self.get_manifest(&tag).await? {
                response if response.status == 404 => Vec::new(),
                response => self.read_referrers(response, &tag).await?,
            }
        } else {
            self.read_referrers(response, "referrers").await?
        };
        let mut digests = BTreeSet::new();
        let mut found = Vec::new();
        for entry in entries {
            let referrer: Referrer = serde_json::from_value(entry)
                .map_err(|_| RegistryError::Refused("an entry of the referrers is malformed".to_owned()))?;
            if referrer.media_type != MANIFEST || referrer.artifact_type.as_deref() != Some(BUNDLE) {
                continue;
            }
            let digest: BlobDigest = referrer.digest.parse().map_err(RegistryError::Refused)?;
            if digests.insert(digest.clone()) {
                found.push(digest);
            }
        }
        if found.len() > MAX_SIGNATURES {
            return Err(too_many("signatures", MAX_SIGNATURES));
        }
        Ok(found)
    }

    /// Reads a list of referrers.
    async fn read_referrers(
        &self,
        response: ConnectorResponse,
        name: &str,
    ) -> Result<Vec<Value>, RegistryError> {
        let response = self.expect_success(response, name)?;
        if response.header("link").is_some() {
            return Err(too_many("referrers", MAX_REFERRERS));
        }
        let bytes = read_body(response, MAX_MANIFEST).await?;
        let document: ReferrersDocument = serde_json::from_slice(&bytes).map_err(|error| {
            RegistryError::Refused(format!(
                "the list of referrers is not an OCI index (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
        match document {
            ReferrersDocument { schema_version: 2, manifests } if manifests.len() <= MAX_REFERRERS => {
                Ok(manifests)
            }
            ReferrersDocument { schema_version: 2, .. } => Err(too_many("referrers", MAX_REFERRERS)),
            ReferrersDocument { schema_version, .. } => Err(RegistryError::Refused(format!(
                "the list of referrers has `schemaVersion` {schema_version}, and 2 is known"
            ))),
        }
    }

    /// Fetches the bundle that a signature's manifest names.
    async fn fetch_signature(
        &self,
        digest: &BlobDigest,
        manifest: &BlobDigest,
    ) -> Result<FoundSignature, RegistryError> {
        let refused = |why: &str| RegistryError::Refused(format!("the signature {digest} is refused: {why}"));
        let name = digest.to_string();
        let response = self.expect_success(self.get_manifest(&name).await?, &name)?;
        let bytes = read_body(response, MAX_SIGNATURE_MANIFEST).await?;
        if BlobDigest::of(&bytes) != *digest {
            return Err(refused("its content has another digest"));
        }
        let document: SignatureManifest =
            serde_json::from_slice(&bytes).map_err(|_| refused("it is not an OCI manifest"))?;
        if document.subject.is_none_or(|subject| subject.digest != manifest.to_string()) {
            return Err(refused("it is about another manifest"));
        }
        let [layer] = document.layers.as_slice() else {
            return Err(refused("it does not have exactly one layer"));
        };
        if layer.media_type != BUNDLE {
            let shown = one_line(&layer.media_type, 100);
            return Err(refused(&format!("its layer is `{shown}`, and not `{BUNDLE}`")));
        }
        if layer.size > MAX_BUNDLE as u64 {
            return Err(refused(&format!("it has {} bytes, and the limit is {MAX_BUNDLE}", layer.size)));
        }
        let bundle: BlobDigest = layer.digest.parse().map_err(|why: String| refused(&why))?;
        let bytes = self.fetch_bundle(&bundle).await?;
        Ok(FoundSignature { digest: bundle, bytes })
    }

    /// Fetches a bundle by its digest.
    ///
    /// # Errors
    /// The registry does not have it, or sends something else.
    pub async fn fetch_bundle(&self, bundle: &BlobDigest) -> Result<Vec<u8>, RegistryError> {
        if let Some(mirror) = &self.mirror {
            let fetched = Box::pin(mirror.fetch_bundle(bundle)).await;
            if let Some(fetched) = mirror.unless_absent(fetched) {
                return fetched;
            }
        }
        let url = self.url(&format!("blobs/{bundle}"))?;
        let response = self.exchange("GET", url, Vec::new(), Bytes::new(), RedirectRule::Follow).await?;
        let bytes = read_body(self.expect_success(response, &bundle.to_string())?, MAX_BUNDLE).await?;
        if BlobDigest::of(&bytes) == *bundle {
            return Ok(bytes);
        }
        Err(RegistryError::Refused(format!("the blob {bundle} is refused: its content has another digest")))
    }
}

/// The manifest of a signature: a referrer of `subject`. Both have their sizes in bytes.
pub(crate) fn signature_manifest(subject: (&BlobDigest, usize), bundle: (&BlobDigest, usize)) -> Vec<u8> {
    let config = BlobDigest::of(EMPTY_CONFIG);
    let document = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": BUNDLE,
        "config": {"mediaType": EMPTY, "digest": config, "size": EMPTY_CONFIG.len()},
        "layers": [{"mediaType": BUNDLE, "digest": bundle.0, "size": bundle.1}],
        "subject": {"mediaType": MANIFEST, "digest": subject.0, "size": subject.1},
        "annotations": {"dev.sigstore.bundle.content": "dsse-envelope"},
    });
    document.to_string().into_bytes()
}

/// The tag of the index in which registries without referrers keep them ("Referrers Tag Schema").
fn index_tag(manifest: &BlobDigest) -> String {
    format!("sha256-{}", manifest.hex())
}

fn too_many(what: &str, limit: usize) -> RegistryError {
    RegistryError::Refused(format!("the manifest has too many {what}: the limit is {limit}"))
}
