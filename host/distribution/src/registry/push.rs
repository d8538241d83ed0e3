//! Uploads of components: the blobs that the registry does not have, then the manifest under its tag. A tag that leads to
//! another component is never moved.

use bytes::Bytes;
use toolbay_core::call::server_connector::ConnectorResponse;
use toolbay_policy::excerpt::one_line;
use url::Url;

use super::{MAX_MANIFEST, MAX_SHOWN, RedirectRule, RegistryClient, RegistryError, read_body};
use crate::digest::BlobDigest;
use crate::media_type::MANIFEST;
use crate::pack::ComponentArtifact;

/// What an upload did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// The tag is new.
    Pushed,
    /// The tag leads to this component already.
    Unchanged,
}

impl RegistryClient {
    /// Uploads a component under the tag of the reference.
    ///
    /// # Errors
    /// The tag leads to another component, the registry refuses the upload, or it stored something else.
    pub async fn push(&self, artifact: &ComponentArtifact) -> Result<PushOutcome, RegistryError> {
        let Some(tag) = self.reference.tag.as_deref().filter(|_| self.reference.digest.is_none()) else {
            let why = format!("`{}` does not name an upload: write `HOST/REPOSITORY:TAG`", self.reference);
            return Err(RegistryError::Refused(why));
        };
        match self.tagged(tag).await? {
            Some(digest) if digest == artifact.digest => return Ok(PushOutcome::Unchanged),
            Some(digest) => {
                let why = format!(
                    "`{}` is {digest} already, and a tag that others may have locked is not moved: choose another tag",
                    self.reference
                );
                return Err(RegistryError::Refused(why));
            }
            None => {}
        }
        for (digest, bytes) in &artifact.blobs {
            self.push_blob(digest, bytes).await?;
        }
        let headers = vec![("content-type".to_owned(), MANIFEST.to_owned())];
        let url = self.url(&format!("manifests/{tag}"))?;
        let response = self.send_upload("PUT", url, headers, artifact.manifest.clone()).await?;
        self.expect(&response, &[201], "the manifest")?;
        // The registry may have rewritten what it got; the tag shows it.
        match self.tagged(tag).await? {
            Some(digest) if digest == artifact.digest => Ok(PushOutcome::Pushed),
            Some(_) | None => {
                let host = &self.reference.host;
                Err(RegistryError::Refused(format!("`{host}` stored another manifest than the one it got")))
            }
        }
    }

    /// The digest of what a tag leads to now; `None` if there is no such tag.
    async fn tagged(&self, tag: &str) -> Result<Option<BlobDigest>, RegistryError> {
        let response = self.get_manifest(tag).await?;
        if response.status == 404 {
            return Ok(None);
        }
        self.expect(&response, &[200], tag)?;
        Ok(Some(BlobDigest::of(&read_body(response, MAX_MANIFEST).await?)))
    }

    /// Uploads a blob, unless the registry has it.
    pub(super) async fn push_blob(&self, digest: &BlobDigest, bytes: &Bytes) -> Result<(), RegistryError> {
        let url = self.url(&format!("blobs/{digest}"))?;
        // A registry that redirects gets the blob once more.
        if self.send_upload("HEAD", url, Vec::new(), Bytes::new()).await?.status == 200 {
            return Ok(());
        }
        let started = self.send_upload("POST", self.url("blobs/uploads/")?, Vec::new(), Bytes::new()).await?;
        self.expect(&started, &[202], "an upload")?;
        let mut url = self.upload_url(&started)?;
        url.query_pairs_mut().append_pair("digest", &digest.to_string());
        let headers = vec![("content-type".to_owned(), "application/octet-stream".to_owned())];
        let response = self.send_upload("PUT", url, headers, bytes.clone()).await?;
        self.expect(&response, &[201], "an upload")
    }

    /// Sends a request of an upload, whose redirects are not followed.
    pub(super) async fn send_upload(
        &self,
        method: &'static str,
        url: Url,
        headers: Vec<(String, String)>,
        body: Bytes,
    ) -> Result<ConnectorResponse, RegistryError> {
        self.exchange(method, url, headers, body, RedirectRule::Return).await
    }

    /// Where a registry wants a blob: at its own origin, because the upload carries the credentials.
    fn upload_url(&self, response: &ConnectorResponse) -> Result<Url, RegistryError> {
        let host = &self.reference.host;
        let location = response.header("location").and_then(|location| self.base.join(location).ok());
        let Some(url) = location else {
            return Err(RegistryError::Refused(format!("`{host}` names no place for the upload")));
        };
        if !self.is_own(&url) || !url.username().is_empty() || url.password().is_some() {
            let origin = one_line(&url.origin().ascii_serialization(), MAX_SHOWN);
            return Err(RegistryError::Refused(format!(
                "`{host}` wants the upload at `{origin}`, which gets none"
            )));
        }
        Ok(url)
    }

    /// Refuses a response with another status.
    pub(super) fn expect(
        &self,
        response: &ConnectorResponse,
        accepted: &[u16],
        what: &str,
    ) -> Result<(), RegistryError> {
        match response.status {
            status if accepted.contains(&status) => Ok(()),
            401 | 403 => Err(self.unauthorized()),
            status => {
                let host = &self.reference.host;
                Err(RegistryError::Failed(format!("`{host}` answered with status {status} to {what}")))
            }
        }
    }
}
