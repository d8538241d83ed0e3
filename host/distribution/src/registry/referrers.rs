//! Signatures beside a component: referrers of its manifest (OCI distribution specification 1.1, "Listing Referrers"), or
//! for older registries the index under the tag `sha256-HEX`.
//!
//! | entry of the list | |
//! |---|---|
//! | of the type of signatures | a signature |
//! | without a type, or of the empty one: not every tool and registry copies it from the manifest | its manifest decides |
//! | of another type | skipped |
//! | that cannot be read, or whose manifest is not accepted | skipped, as a failure |
//!
//! A list that is too long is requested again with the type of signatures as its filter. Skipped entries are named. A
//! failure never counts as "not signed": see [`ManifestSignatures::require_readable`].

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use toolbay_core::call::server_connector::ConnectorResponse;
use toolbay_policy::excerpt::one_line;
use url::Url;

use super::{MAX_MANIFEST, RedirectRule, RegistryClient, RegistryError, read_body};
use crate::digest::BlobDigest;
use crate::media_type::{BUNDLE, EMPTY, INDEX, MANIFEST};
use crate::signature::MAX_BUNDLE;

/// Most referrers of a manifest. Each of no type costs a request.
const MAX_REFERRERS: usize = 64;
/// Most signatures among them.
const MAX_SIGNATURES: usize = 8;
/// Most characters of a text of a registry in a message.
const MAX_SHOWN: usize = 100;
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

/// The signatures of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManifestSignatures {
    /// In the order of the registry.
    pub found: Vec<FoundSignature>,
    /// What else refers to the manifest.
    pub skipped: Vec<SkippedReferrer>,
}

impl ManifestSignatures {
    /// Returns the signatures, if there is one or everything could be read.
    ///
    /// # Errors
    /// Fails if no signature was found, and something that may be one could not be read.
    pub fn require_readable(self) -> Result<Self, RegistryError> {
        match self.skipped.iter().find(|one| one.is_failure) {
            Some(unread) if self.found.is_empty() => Err(RegistryError::Refused(unread.text.clone())),
            _ => Ok(self),
        }
    }
}

/// An entry in the list of referrers that is no signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedReferrer {
    /// Its digest and the reason, on one line.
    pub text: String,
    /// Whether it may be a signature that could not be read.
    pub is_failure: bool,
}

/// A list of referrers, as a registry sends it.
enum ReferrerList {
    Complete(Vec<Value>),
    TooLong,
}

/// What an entry of the list leads to.
enum Referrer {
    Signature(BlobDigest),
    /// A manifest that says itself what it is.
    Untyped(BlobDigest),
}

impl Referrer {
    fn digest(&self) -> &BlobDigest {
        match self {
            Self::Signature(digest) | Self::Untyped(digest) => digest,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReferrersDocument {
    schema_version: u32,
    /// `null` for an empty list: so Go writes it. If the member is absent, the document is something else.
    #[serde(deserialize_with = "Option::deserialize")]
    manifests: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignatureManifest {
    artifact_type: Option<String>,
    subject: Option<SignatureLayer>,
    layers: Option<Vec<SignatureLayer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignatureLayer {
    media_type: String,
    digest: String,
    size: u64,
}

impl RegistryClient {
    /// The signatures of a manifest. A mirror is asked if the registry cannot be reached: many mirrors have no signatures.
    ///
    /// # Errors
    /// The registry failed, or there are too many.
    pub async fn signatures(&self, manifest: &BlobDigest) -> Result<ManifestSignatures, RegistryError> {
        let found = self.own_signatures(manifest).await;
        match (found, &self.mirror) {
            (Err(RegistryError::Failed(why)), Some(mirror)) => {
                let found = mirror.own_signatures(manifest).await;
                found.map_err(|error| RegistryError::Failed(format!("{why}; its mirror: {error}")))
            }
            (found, _) => found,
        }
    }

    async fn own_signatures(&self, manifest: &BlobDigest) -> Result<ManifestSignatures, RegistryError> {
        let (referrers, skipped) = self.referrers(manifest).await?;
        let mut signatures = ManifestSignatures { found: Vec::new(), skipped };
        for referrer in referrers {
            match self.fetch_signature(&referrer, manifest).await {
                Ok(Some(found)) => signatures.found.push(found),
                Ok(None) => signatures.skipped.push(skip(referrer.digest(), "it is no signature")),
                Err(error @ (RegistryError::Refused(_) | RegistryError::NotFound(_))) => {
                    signatures.skipped.push(SkippedReferrer { text: error.to_string(), is_failure: true });
                }
                Err(error) => return Err(error),
            }
            if signatures.found.len() > MAX_SIGNATURES {
                return Err(too_many("signatures", MAX_SIGNATURES));
            }
        }
        Ok(signatures)
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
        let (referrers, _) = self.referrers(manifest.0).await?;
        match referrers.iter().any(|referrer| *referrer.digest() == digest) {
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
            response => self.read_whole_list(response, &tag).await?,
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

    /// What refers to a manifest and may be a signature, and what is skipped.
    async fn referrers(
        &self,
        manifest: &BlobDigest,
    ) -> Result<(Vec<Referrer>, Vec<SkippedReferrer>), RegistryError> {
        let (entries, unread) = self.list_referrers(manifest).await?;
        let (mut found, mut skipped) = (Vec::new(), Vec::from_iter(unread));
        let mut digests = BTreeSet::new();
        for entry in entries {
            match classify(&entry) {
                Ok(referrer) if digests.insert(*referrer.digest()) => found.push(referrer),
                Ok(_) => {}
                Err(one) => skipped.push(one),
            }
        }
        let signatures = found.iter().filter(|referrer| matches!(referrer, Referrer::Signature(_))).count();
        if signatures > MAX_SIGNATURES {
            return Err(too_many("signatures", MAX_SIGNATURES));
        }
        Ok((found, skipped))
    }

    /// The list of referrers. A filter could leave out signatures without a type, so only a list that is too long is
    /// requested with one, and then what it leaves out is named.
    async fn list_referrers(
        &self,
        manifest: &BlobDigest,
    ) -> Result<(Vec<Value>, Option<SkippedReferrer>), RegistryError> {
        let url = self.url(&format!("referrers/{manifest}"))?;
        let response = self.request_list(url.clone()).await?;
        // Registries without referrers answer in these ways.
        if matches!(response.status, 303 | 404 | 429) {
            let tag = index_tag(manifest);
            return match self.get_manifest(&tag).await? {
                response if response.status == 404 => Ok((Vec::new(), None)),
                response => Ok((self.read_whole_list(response, &tag).await?, None)),
            };
        }
        match self.read_referrers(response, "referrers").await? {
            ReferrerList::Complete(entries) => Ok((entries, None)),
            ReferrerList::TooLong => {
                let mut filtered = url;
                filtered.query_pairs_mut().append_pair("artifactType", BUNDLE);
                let response = self.request_list(filtered).await?;
                Ok((self.read_whole_list(response, "referrers").await?, Some(unfiltered())))
            }
        }
    }

    async fn request_list(&self, url: Url) -> Result<ConnectorResponse, RegistryError> {
        let accept = vec![("accept".to_owned(), INDEX.to_owned())];
        self.exchange("GET", url, accept, Bytes::new(), RedirectRule::Return).await
    }

    async fn read_whole_list(
        &self,
        response: ConnectorResponse,
        name: &str,
    ) -> Result<Vec<Value>, RegistryError> {
        match self.read_referrers(response, name).await? {
            ReferrerList::Complete(entries) => Ok(entries),
            ReferrerList::TooLong => Err(too_many("referrers", MAX_REFERRERS)),
        }
    }

    /// Reads a list of referrers.
    async fn read_referrers(
        &self,
        response: ConnectorResponse,
        name: &str,
    ) -> Result<ReferrerList, RegistryError> {
        let response = self.expect_success(response, name)?;
        if response.header("link").is_some() {
            return Ok(ReferrerList::TooLong);
        }
        let bytes = read_body(response, MAX_MANIFEST).await?;
        let document: ReferrersDocument = serde_json::from_slice(&bytes).map_err(|error| {
            RegistryError::Refused(format!(
                "the list of referrers is not an OCI index (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
        let ReferrersDocument { schema_version, manifests } = document;
        let entries = manifests.unwrap_or_default();
        match schema_version {
            2 if entries.len() <= MAX_REFERRERS => Ok(ReferrerList::Complete(entries)),
            2 => Ok(ReferrerList::TooLong),
            other => Err(RegistryError::Refused(format!(
                "the list of referrers has `schemaVersion` {other}, and 2 is known"
            ))),
        }
    }

    /// Fetches the bundle that a signature's manifest names. `None`: a manifest without a type that is no signature.
    async fn fetch_signature(
        &self,
        referrer: &Referrer,
        manifest: &BlobDigest,
    ) -> Result<Option<FoundSignature>, RegistryError> {
        let digest = referrer.digest();
        let refused = |why: &str| RegistryError::Refused(format!("the signature {digest} is refused: {why}"));
        let name = digest.to_string();
        let response = self.expect_success(self.get_manifest(&name).await?, &name)?;
        let bytes = read_body(response, MAX_SIGNATURE_MANIFEST).await?;
        if BlobDigest::of(&bytes) != *digest {
            return Err(refused("its content has another digest"));
        }
        let document: SignatureManifest =
            serde_json::from_slice(&bytes).map_err(|_| refused("it is not an OCI manifest"))?;
        let layers = document.layers.unwrap_or_default();
        let is_signature = document.artifact_type.as_deref() == Some(BUNDLE)
            || layers.iter().any(|layer| layer.media_type == BUNDLE);
        if matches!(referrer, Referrer::Untyped(_)) && !is_signature {
            return Ok(None);
        }
        if document.subject.is_none_or(|subject| subject.digest != manifest.to_string()) {
            return Err(refused("it is about another manifest"));
        }
        let [layer] = layers.as_slice() else {
            return Err(refused("it does not have exactly one layer"));
        };
        if layer.media_type != BUNDLE {
            let shown = one_line(&layer.media_type, MAX_SHOWN);
            return Err(refused(&format!("its layer is `{shown}`, and not `{BUNDLE}`")));
        }
        if layer.size > MAX_BUNDLE as u64 {
            return Err(refused(&format!("it has {} bytes, and the limit is {MAX_BUNDLE}", layer.size)));
        }
        let bundle: BlobDigest = layer.digest.parse().map_err(|why: String| refused(&why))?;
        let bytes = self.fetch_bundle(&bundle).await?;
        Ok(Some(FoundSignature { digest: bundle, bytes }))
    }

    /// Fetches a bundle by its digest.
    ///
    /// # Errors
    /// Fails if the registry does not have the bundle, or sends other content.
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

/// Reads an entry of the list.
fn classify(entry: &Value) -> Result<Referrer, SkippedReferrer> {
    let text = |member: &str| entry.get(member).and_then(Value::as_str);
    let digest = text("digest").unwrap_or_default();
    let skip = |why: String, is_failure: bool| SkippedReferrer {
        text: format!("the referrer `{}` is skipped: {why}", one_line(digest, MAX_SHOWN)),
        is_failure,
    };
    let is_signature = match text("artifactType").unwrap_or_default() {
        BUNDLE => true,
        "" | EMPTY => false,
        other => return Err(skip(format!("its type is `{}`", one_line(other, MAX_SHOWN)), false)),
    };
    match text("mediaType") {
        Some(MANIFEST) => {}
        Some(other) => return Err(skip(format!("it is `{}`", one_line(other, MAX_SHOWN)), false)),
        None => return Err(skip("its entry is malformed: it has no `mediaType`".to_owned(), true)),
    }
    let digest: BlobDigest =
        digest.parse().map_err(|why: String| skip(format!("its entry is malformed: {why}"), true))?;
    Ok(if is_signature { Referrer::Signature(digest) } else { Referrer::Untyped(digest) })
}

fn skip(digest: &BlobDigest, why: &str) -> SkippedReferrer {
    SkippedReferrer { text: format!("the referrer `{digest}` is skipped: {why}"), is_failure: false }
}

/// What a filter leaves out of a list that is too long. Signatures without a type may be among it.
fn unfiltered() -> SkippedReferrer {
    let text = format!(
        "the manifest has more referrers than the limit of {MAX_REFERRERS}: those whose entry does not have the type \
         `{BUNDLE}` were not looked at"
    );
    SkippedReferrer { text, is_failure: true }
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
