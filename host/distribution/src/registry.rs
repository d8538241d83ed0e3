//! A client of OCI registries (OCI distribution specification 1.1), for one repository.
//!
//! Answers of a registry are bounded and proven by digests. The places to which they lead are checked, too: redirects
//! of blobs, and the realm of a challenge. Other redirects are not followed: only the registry itself says what a tag
//! leads to. Credentials go to the registry, and to a realm on another host only if the policy lists it; they never
//! follow a redirect.

mod manifest;
mod push;
mod referrers;
mod tags;
mod token;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use toolbay_core::call::server_connector::{ConnectorError, ConnectorResponse};
use toolbay_core::http_challenge::HttpChallenge;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::quantity::show_duration;
use toolbay_policy::registry::RegistryPolicy;
use url::Url;

use self::manifest::Manifest;
pub use self::manifest::{ComponentManifest, MAX_LAYER};
pub use self::push::PushOutcome;
pub(crate) use self::referrers::{EMPTY_CONFIG, signature_manifest};
pub use self::referrers::{FoundSignature, ManifestSignatures, SkippedReferrer};
pub use self::transport::{RegistryRequest, RegistryTransport, UrlAuthor};
use crate::credentials::{CredentialSource, RegistryCredentials, SecretText};
use crate::digest::BlobDigest;
use crate::media_type::{INDEX, MANIFEST};
use crate::reference::Reference;
use crate::store::{BlobStore, StoreError};

/// Largest manifest in bytes: the limit that the distribution specification suggests.
pub const MAX_MANIFEST: usize = 4 << 20;
/// Most redirects of one request. Registries redirect once, to a storage service.
const MAX_REDIRECTS: usize = 3;
/// Timeout of a request up to the head of its response, and of a document.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a transfer may stall.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the transfer of a component: 64 MiB at 75 KiB per second.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(900);
/// Longest text of a registry in a message, in characters.
const MAX_SHOWN: usize = 200;

/// Why a registry did not give what was asked for. The texts are for the operator and contain no credentials.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry has no such repository, tag or digest.
    #[error("{0}")]
    NotFound(String),
    /// The registry requires other credentials.
    #[error("{0}")]
    Unauthorized(String),
    /// What it sent, or where it leads, is not accepted.
    #[error("{0}")]
    Refused(String),
    /// The registry cannot be reached, or failed.
    #[error("{0}")]
    Failed(String),
    /// The store cannot be written.
    #[error("{0}")]
    Storage(StoreError),
}

impl From<ConnectorError> for RegistryError {
    fn from(error: ConnectorError) -> Self {
        match error {
            ConnectorError::Denied(why) => Self::Refused(why.for_operator()),
            ConnectorError::Redirected(_, why) => Self::Refused(why),
            ConnectorError::Failed(why) => Self::Failed(why.for_operator()),
        }
    }
}

/// A component that a reference leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedComponent {
    /// The manifest.
    pub digest: BlobDigest,
    /// Its content.
    pub bytes: Vec<u8>,
    /// What it says.
    pub manifest: ComponentManifest,
}

/// What a client needs to do in its repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryAccess {
    /// Read.
    Pull,
    /// Read and write.
    Push,
}

/// What happens to a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedirectRule {
    /// The redirect is followed, to places that are checked.
    Follow,
    /// The redirect is the response.
    Return,
}

/// A client for one repository.
#[derive(Debug)]
pub struct RegistryClient {
    reference: Reference,
    base: Url,
    settings: RegistryPolicy,
    access: RegistryAccess,
    transport: Arc<dyn RegistryTransport>,
    credentials: Arc<dyn CredentialSource>,
    /// The value of `authorization`, once the registry asked for it.
    authorization: Mutex<Option<SecretText>>,
    /// Is asked first for what a digest names.
    mirror: Option<Box<Self>>,
}

impl RegistryClient {
    /// A client for the repository of a reference.
    ///
    /// # Errors
    /// The host cannot be in a URL.
    pub fn new(
        reference: &Reference,
        access: RegistryAccess,
        settings: RegistryPolicy,
        transport: Arc<dyn RegistryTransport>,
        credentials: Arc<dyn CredentialSource>,
    ) -> Result<Self, RegistryError> {
        let scheme = if settings.plain_http { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{}/v2/{}/", reference.host, reference.repository));
        let base = base.map_err(|error| RegistryError::Refused(error.to_string()))?;
        let (reference, authorization) = (reference.clone(), Mutex::default());
        let mirror = None;
        Ok(Self { reference, base, settings, access, transport, credentials, authorization, mirror })
    }

    /// Asks another registry first for content that a digest names. Only this registry says what a tag leads to.
    #[must_use]
    pub fn with_mirror(self, mirror: Self) -> Self {
        Self { mirror: Some(Box::new(mirror)), ..self }
    }

    /// Finds the component that the reference leads to: by its digest, or else by its tag. An index is followed once.
    ///
    /// # Errors
    /// Fails if the reference leads to no component, or a document is not accepted.
    pub async fn resolve(&self) -> Result<ResolvedComponent, RegistryError> {
        let Reference { tag, digest, .. } = &self.reference;
        let name = match (digest, tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => {
                let why = format!("`{}` names no version: add `:TAG` or `@DIGEST`", self.reference);
                return Err(RegistryError::Refused(why));
            }
        };
        let (found, bytes, manifest) = self.fetch_manifest(&name, digest.as_ref()).await?;
        match manifest {
            Manifest::Component(manifest) => Ok(ResolvedComponent { digest: found, bytes, manifest }),
            Manifest::Index { digest, size } => self.resolve_inner(&digest, size).await,
        }
    }

    /// Fetches the manifest that an index names.
    async fn resolve_inner(&self, inner: &BlobDigest, size: u64) -> Result<ResolvedComponent, RegistryError> {
        let (digest, bytes, manifest) = self.fetch_manifest(&inner.to_string(), Some(inner)).await?;
        if bytes.len() as u64 != size {
            let found = bytes.len();
            let why = format!("the manifest {inner} has {found} bytes, and its index says {size}");
            return Err(RegistryError::Refused(why));
        }
        match manifest {
            Manifest::Component(manifest) => Ok(ResolvedComponent { digest, bytes, manifest }),
            Manifest::Index { .. } => {
                Err(RegistryError::Refused("the index leads to another index".to_owned()))
            }
        }
    }

    /// Downloads a component into a store, unless the store has it. `progress` receives the number of bytes so far.
    ///
    /// # Errors
    /// The transfer failed, or its content has another digest or size. Nothing is stored then.
    pub async fn fetch_layer(
        &self,
        layer: &BlobDigest,
        size: u64,
        store: &BlobStore,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), RegistryError> {
        let (here, wanted) = (store.clone(), *layer);
        if run_blocking(move || Ok(here.reuse(&wanted, size))).await? {
            return Ok(());
        }
        if let Some(mirror) = &self.mirror {
            let fetched = Box::pin(mirror.fetch_layer(layer, size, store, progress)).await;
            if let Some(fetched) = mirror.unless_absent(fetched) {
                return fetched;
            }
        }
        let url = self.url(&format!("blobs/{layer}"))?;
        let response = self.exchange("GET", url, Vec::new(), Bytes::new(), RedirectRule::Follow).await?;
        let response = self.expect_success(response, &layer.to_string())?;
        let transfer = store_body(response, layer, size, store.clone(), progress);
        let stored = tokio::time::timeout(TRANSFER_TIMEOUT, transfer).await.unwrap_or_else(|_| {
            Err(RegistryError::Failed(format!("it took longer than {}", show_duration(TRANSFER_TIMEOUT))))
        });
        stored.map_err(|error| match error {
            RegistryError::Refused(why) => {
                RegistryError::Refused(format!("the blob {layer} is refused: {why}"))
            }
            RegistryError::Failed(why) => {
                RegistryError::Failed(format!("the blob {layer} was not downloaded: {why}"))
            }
            other @ (RegistryError::NotFound(_)
            | RegistryError::Unauthorized(_)
            | RegistryError::Storage(_)) => other,
        })
    }

    /// Fetches a manifest by a tag or digest, and computes its digest.
    async fn fetch_manifest(
        &self,
        name: &str,
        expected: Option<&BlobDigest>,
    ) -> Result<(BlobDigest, Vec<u8>, Manifest), RegistryError> {
        if let (Some(mirror), Some(_)) = (&self.mirror, expected) {
            let fetched = Box::pin(mirror.fetch_manifest(name, expected)).await;
            if let Some(fetched) = mirror.unless_absent(fetched) {
                return fetched;
            }
        }
        let response = self.get_manifest(name).await?;
        let response = self.expect_success(response, name)?;
        let header = |name| response.header(name).map(str::to_owned);
        let (announced, content_type) = (header("docker-content-digest"), header("content-type"));
        let bytes = read_body(response, MAX_MANIFEST).await?;
        let digest = BlobDigest::of(&bytes);
        let announced = announced.as_deref().filter(|announced| *announced != digest.to_string());
        if let Some(promised) = expected.map(BlobDigest::to_string).filter(|it| *it != digest.to_string()) {
            let why = format!("the manifest {promised} is refused: its content has the digest {digest}");
            return Err(RegistryError::Refused(why));
        }
        if let Some(announced) = announced {
            let why = format!(
                "the manifest `{name}` is refused: its content has the digest {digest}, and the registry says `{}`",
                one_line(announced, MAX_SHOWN)
            );
            return Err(RegistryError::Refused(why));
        }
        let manifest = Manifest::parse(&bytes, content_type.as_deref())?;
        Ok((digest, bytes, manifest))
    }

    /// The result of this mirror; `None` if it does not have what it was asked for, or fails. Content that it should
    /// not have sent is an error that names it.
    fn unless_absent<T>(&self, result: Result<T, RegistryError>) -> Option<Result<T, RegistryError>> {
        match result {
            Err(RegistryError::NotFound(_) | RegistryError::Unauthorized(_) | RegistryError::Failed(_)) => {
                None
            }
            Err(RegistryError::Refused(why)) => {
                let host = &self.reference.host;
                Some(Err(RegistryError::Refused(format!("the mirror `{host}`: {why}"))))
            }
            other => Some(other),
        }
    }

    /// Asks for a manifest by a tag or digest.
    async fn get_manifest(&self, name: &str) -> Result<ConnectorResponse, RegistryError> {
        let accept = vec![("accept".to_owned(), format!("{MANIFEST}, {INDEX}"))];
        let url = self.url(&format!("manifests/{name}"))?;
        self.exchange("GET", url, accept, Bytes::new(), RedirectRule::Return).await
    }

    /// A URL below the repository.
    fn url(&self, path: &str) -> Result<Url, RegistryError> {
        self.base.join(path).map_err(|error| RegistryError::Refused(error.to_string()))
    }

    /// Sends a request, and answers one challenge.
    async fn exchange(
        &self,
        method: &'static str,
        mut url: Url,
        headers: Vec<(String, String)>,
        body: Bytes,
        rule: RedirectRule,
    ) -> Result<ConnectorResponse, RegistryError> {
        let (mut redirects, mut is_challenged) = (0, false);
        loop {
            let is_own = self.is_own(&url);
            let author = if is_own { UrlAuthor::Operator } else { UrlAuthor::Registry };
            let authorization = self.authorization.lock().clone().filter(|_| is_own);
            let authorization =
                authorization.map(|value| ("authorization".to_owned(), value.expose().to_owned()));
            let headers = headers.iter().cloned().chain(authorization).collect();
            let request = RegistryRequest { method, url: url.clone(), author, headers, body: body.clone() };
            let response = self.send(request).await?;
            match response.status {
                401 if is_own && !is_challenged => {
                    is_challenged = true;
                    let challenges = HttpChallenge::from_headers(&response.headers);
                    drop(response);
                    self.answer_challenge(&challenges).await?;
                }
                301 | 302 | 303 | 307 | 308 if rule == RedirectRule::Follow => {
                    redirects += 1;
                    url = self.redirect_target(&url, &response, redirects)?;
                }
                _ => return Ok(response),
            }
        }
    }

    /// Sends a request, and waits for the head of its response. An upload has the time of a transfer.
    async fn send(&self, request: RegistryRequest) -> Result<ConnectorResponse, RegistryError> {
        let time = if request.body.is_empty() { TIMEOUT } else { TRANSFER_TIMEOUT };
        let host = request.url.host_str().unwrap_or_default().to_owned();
        match tokio::time::timeout(time, self.transport.send(request)).await {
            Ok(response) => Ok(response?),
            Err(_) => {
                let within = show_duration(time);
                Err(RegistryError::Failed(format!("`{host}` did not answer within {within}")))
            }
        }
    }

    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    fn redirect_target(
        &self,
        url: &Url,
        response: &ConnectorResponse,
        count: usize,
    ) -> Result<Url, RegistryError> {
        let refused = |why: String| Err(RegistryError::Refused(format!("`{}` {why}", self.reference.host)));
        if count > MAX_REDIRECTS {
            return refused(format!("redirects more than {MAX_REDIRECTS} times"));
        }
        let location = response.header("location").and_then(|location| url.join(location).ok());
        let Some(mut to) = location else { return refused("redirects to an invalid location".to_owned()) };
        to.set_fragment(None);
        let is_plain = to.username().is_empty() && to.password().is_none();
        if !is_plain || !(to.scheme() == "https" || self.is_own(&to)) {
            let origin = one_line(&to.origin().ascii_serialization(), MAX_SHOWN);
            return refused(format!("redirects to `{origin}`, which is not followed: it does not use https"));
        }
        Ok(to)
    }

    /// Gets the value of `authorization` that a registry asks for.
    async fn answer_challenge(&self, challenges: &[HttpChallenge]) -> Result<(), RegistryError> {
        let credentials =
            self.credentials.find(&self.reference).await.map_err(RegistryError::Unauthorized)?;
        let token = challenges.iter().find(|one| one.has_scheme("bearer"));
        let basic = challenges.iter().any(|one| one.has_scheme("basic"));
        let value = match (token, credentials) {
            (Some(challenge), credentials) => {
                let token = self.request_token(challenge, credentials.as_ref()).await?;
                format!("Bearer {token}")
            }
            (None, Some(RegistryCredentials::Password(password))) if basic => password.basic(),
            (None, Some(_)) => {
                let why =
                    format!("`{}` asks for credentials of a kind that is not known", self.reference.host);
                return Err(RegistryError::Unauthorized(why));
            }
            (None, None) => return Err(self.unauthorized()),
        };
        *self.authorization.lock() = Some(value.into());
        Ok(())
    }

    fn unauthorized(&self) -> RegistryError {
        let Reference { host, repository, .. } = &self.reference;
        RegistryError::Unauthorized(format!(
            "`{host}` requires a login for `{repository}`, or other credentials: `docker login {host}` or \
             `podman login {host}` saves them"
        ))
    }

    /// Refuses a response without success.
    fn expect_success(
        &self,
        response: ConnectorResponse,
        name: &str,
    ) -> Result<ConnectorResponse, RegistryError> {
        let Reference { host, repository, .. } = &self.reference;
        match response.status {
            200 => Ok(response),
            401 | 403 => Err(self.unauthorized()),
            404 => Err(RegistryError::NotFound(format!("`{host}` has no `{name}` in `{repository}`"))),
            301 | 302 | 303 | 307 | 308 => Err(RegistryError::Refused(format!(
                "`{host}` redirects `{name}`, and only components may be elsewhere: name the registry that has it"
            ))),
            status => {
                Err(RegistryError::Failed(format!("`{host}` answered with status {status} for `{name}`")))
            }
        }
    }
}

/// Reads a document.
async fn read_body(response: ConnectorResponse, most: usize) -> Result<Vec<u8>, RegistryError> {
    let (mut body, mut bytes) = (response.body, Vec::new());
    let read = async {
        while let Some(part) = body.next().await {
            let part = part.map_err(|why| RegistryError::Failed(format!("the response broke off: {why}")))?;
            if bytes.len() + part.len() > most {
                return Err(RegistryError::Refused(format!("the response has more than {most} bytes")));
            }
            bytes.extend(part);
        }
        Ok(())
    };
    let read = tokio::time::timeout(TIMEOUT, read).await;
    read.unwrap_or_else(|_| {
        Err(RegistryError::Failed(format!("the response took longer than {}", show_duration(TIMEOUT))))
    })?;
    Ok(bytes)
}

/// Writes a body into a store.
async fn store_body(
    response: ConnectorResponse,
    layer: &BlobDigest,
    size: u64,
    store: BlobStore,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<(), RegistryError> {
    let length = response.header("content-length").and_then(|text| text.parse::<u64>().ok());
    if let Some(length) = length.filter(|length| *length != size) {
        let why = format!("the registry sends {length} bytes, and its descriptor says {size}");
        return Err(RegistryError::Refused(why));
    }
    let mut writer = run_blocking(move || store.writer(size)).await?;
    let (mut body, mut done) = (response.body, 0);
    loop {
        let part = tokio::time::timeout(STALL_TIMEOUT, body.next()).await;
        let stalled = |_| RegistryError::Failed(format!("nothing came for {}", show_duration(STALL_TIMEOUT)));
        let Some(part) = part.map_err(stalled)? else { break };
        let part = part.map_err(RegistryError::Failed)?;
        done += part.len() as u64;
        writer = run_blocking(move || writer.write(&part).map(|()| writer)).await?;
        progress(done);
    }
    let layer = *layer;
    run_blocking(move || writer.commit(&layer)).await
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, RegistryError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| RegistryError::Failed(error.to_string()))?.map_err(|error| match error {
        StoreError::Mismatch(why) => RegistryError::Refused(why),
        error @ (StoreError::Io { .. } | StoreError::Untrusted { .. }) => RegistryError::Storage(error),
    })
}

#[cfg(test)]
mod tests;
