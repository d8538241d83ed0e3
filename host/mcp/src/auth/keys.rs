//! The keys of an authorization server (RFC 7517), from a file or a URL, and the verification of signatures.
//!
//! The keys are refreshed when a token names an unknown key, and after [`REFRESH_AFTER`]. The constants below bound the
//! frequency, whatever tokens arrive. A refresh runs in its own task, and every request that needs the keys waits for
//! its end. A client that disconnects therefore neither ends a refresh nor starts another.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::{OAuthPolicy, SignatureAlgorithm};
use toolbay_state::regular::open_regular;

use super::AuthError;

/// Largest key set that is read, in bytes.
pub const MAX_KEYS_BYTES: u64 = 256 << 10;
/// Most keys in a set.
const MAX_KEYS: usize = 100;
/// Age after which the keys are refreshed.
const REFRESH_AFTER: Duration = Duration::from_secs(3600);
/// Age after which the keys are no longer trusted, because the issuer may have withdrawn one.
const EXPIRE_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Shortest time between two refreshes. It doubles after each failure.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time between two refreshes while a request needs the keys.
const MAX_REFRESH_INTERVAL: Duration = Duration::from_secs(300);
/// Timeout of a refresh.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Fetches the keys at a URL: at most [`MAX_KEYS_BYTES`].
#[derive(Clone)]
pub struct KeyFetcher(Arc<dyn Fn(String) -> FetchFuture + Send + Sync>);

type FetchFuture = BoxFuture<'static, Result<Vec<u8>, String>>;

impl KeyFetcher {
    /// Creates a fetcher from a function that takes a URL and returns the body.
    pub fn new<F>(fetch: F) -> Self
    where
        F: Fn(String) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync + 'static,
    {
        Self(Arc::new(fetch))
    }

    /// Creates a fetcher that refuses every URL, so that only keys in files can be read.
    #[must_use]
    pub fn disabled() -> Self {
        let error = || "this program reads keys from files only".to_owned();
        Self::new(move |_| Box::pin(async move { Err(error()) }))
    }
}

impl fmt::Debug for KeyFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFetcher")
    }
}

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct IssuerKeys(Arc<KeySource>);

/// The origin of keys, and the keys of the last refresh.
#[derive(Debug)]
struct KeySource {
    from: String,
    in_file: bool,
    fetch: KeyFetcher,
    /// Fires when the issuer is removed from the policy.
    ended: CancellationToken,
    current: ArcSwap<KeySet>,
    refresh_state: Mutex<RefreshState>,
}

#[derive(Debug, Default)]
struct KeySet {
    keys: Vec<Arc<VerificationKey>>,
    /// When the keys were read; `None` if they never were.
    read_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct RefreshState {
    not_before: Option<Instant>,
    failures: u32,
    /// The last refresh, which may still run.
    refresh: Option<RefreshFuture>,
}

impl RefreshState {
    /// Delays the next refresh, exponentially with the number of failures.
    fn back_off(&mut self) {
        let pause = MIN_REFRESH_INTERVAL.saturating_mul(1 << self.failures.min(5)).min(MAX_REFRESH_INTERVAL);
        self.not_before = Instant::now().checked_add(pause);
    }
}

/// The end of a refresh, which several requests can await.
type RefreshFuture = Shared<BoxFuture<'static, ()>>;

/// One public key, for one signature algorithm.
#[derive(Debug)]
pub(super) struct VerificationKey {
    kid: Option<String>,
    algorithm: SignatureAlgorithm,
    public: PublicKey,
    /// Fires when the key is withdrawn, or its issuer is removed from the policy.
    ended: CancellationToken,
}

#[derive(Debug, PartialEq, Eq)]
enum PublicKey {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Point(Vec<u8>),
}

impl IssuerKeys {
    /// Creates the keys of an issuer, which is valid until `ended` fires. Keys that are also in `before` keep their
    /// identity.
    ///
    /// # Errors
    /// The key file cannot be read. Keys at a URL are fetched on first use, so that the server starts even while the
    /// issuer is down.
    pub(super) fn new(
        oauth: &OAuthPolicy,
        fetch: KeyFetcher,
        ended: &CancellationToken,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let from = oauth.jwks.clone();
        let mut set = KeySet::default();
        if oauth.file().is_some() {
            let keys = read_file(&from).and_then(|bytes| parse_key_set(&bytes, ended));
            let keys = keys.map_err(|e| format!("the keys `{from}`: {e}"))?;
            let before = before.map(|before| before.0.current.load_full()).unwrap_or_default();
            set = KeySet { keys: before.reuse_in(keys), read_at: Some(Instant::now()) };
        }
        let in_file = oauth.file().is_some();
        let (ended, current, next) = (ended.clone(), ArcSwap::from_pointee(set), Mutex::default());
        Ok(Self(Arc::new(KeySource { from, in_file, fetch, ended, current, refresh_state: next })))
    }

    /// Revokes the keys that are not in `others`.
    pub(super) fn revoke_missing(&self, others: &Self) {
        self.0.current.load().revoke_missing(&others.0.current.load());
    }

    /// Finds the key with this `kid` for a signature algorithm. Without a `kid`, exactly one key must fit.
    ///
    /// # Errors
    /// The keys are unavailable.
    pub(super) async fn find(
        &self,
        kid: Option<&str>,
        algorithm: SignatureAlgorithm,
    ) -> Result<Option<Arc<VerificationKey>>, AuthError> {
        let current = self.0.current.load_full();
        let age = current.read_at.map(|read| read.elapsed());
        match (current.find(kid, algorithm), age) {
            (Some(key), Some(age)) if age < REFRESH_AFTER => return Ok(Some(key)),
            (Some(key), Some(age)) if age < EXPIRE_AFTER => match self.start_refresh() {
                Some((refresh, true)) => refresh.await,
                // Another request already waits for the refresh: this one uses the old key.
                Some((_, false)) | None => return Ok(Some(key)),
            },
            _ => {
                if let Some((refresh, _)) = self.start_refresh() {
                    refresh.await;
                }
            }
        }
        let current = self.0.current.load();
        if current.read_at.is_none_or(|read| read.elapsed() >= EXPIRE_AFTER) {
            return Err(AuthError::KeysUnavailable);
        }
        Ok(current.find(kid, algorithm))
    }

    /// Returns the running refresh, or starts one, and whether this call started it. `None` if the last refresh is too
    /// recent.
    fn start_refresh(&self) -> Option<(RefreshFuture, bool)> {
        let mut next = self.0.refresh_state.lock();
        if let Some(refresh) = next.refresh.as_ref().filter(|refresh| refresh.peek().is_none()) {
            return Some((refresh.clone(), false));
        }
        if next.not_before.is_some_and(|not_before| Instant::now() < not_before) {
            return None;
        }
        // Counted as a failure until the refresh succeeds.
        next.failures = next.failures.saturating_add(1);
        next.back_off();
        let source = Arc::clone(&self.0);
        // The task owns itself and ends within `FETCH_TIMEOUT`.
        let refresh = tokio::spawn(async move { source.refresh().await }).map(drop).boxed().shared();
        next.refresh = Some(refresh.clone());
        Some((refresh, true))
    }
}

impl KeySource {
    /// Reads the keys again, and revokes those that the source no longer has.
    async fn refresh(&self) {
        let got = tokio::time::timeout(FETCH_TIMEOUT, self.fetch_bytes()).await;
        let got = got.unwrap_or_else(|_| Err(format!("no response within {} s", FETCH_TIMEOUT.as_secs())));
        match got.and_then(|bytes| parse_key_set(&bytes, &self.ended)) {
            Ok(keys) => {
                let before = self.current.load_full();
                let set = KeySet { keys: before.reuse_in(keys), read_at: Some(Instant::now()) };
                before.revoke_missing(&set);
                self.current.store(Arc::new(set));
                self.refresh_state.lock().failures = 0;
            }
            Err(problem) => {
                tracing::warn!(
                    from = self.from,
                    problem,
                    "the keys of the authorization server cannot be read"
                );
            }
        }
        self.refresh_state.lock().back_off();
    }

    async fn fetch_bytes(&self) -> Result<Vec<u8>, String> {
        if !self.in_file {
            return (self.fetch.0)(self.from.clone()).await;
        }
        let file = self.from.clone();
        tokio::task::spawn_blocking(move || read_file(&file)).await.map_err(|e| e.to_string())?
    }
}

impl KeySet {
    /// Replaces each new key that this set already has by the existing one, so that its tokens stay valid.
    fn reuse_in(&self, keys: Vec<Arc<VerificationKey>>) -> Vec<Arc<VerificationKey>> {
        let known = |new: Arc<VerificationKey>| {
            self.keys.iter().find(|old| old.is_same_key(&new)).map_or(new, Arc::clone)
        };
        keys.into_iter().map(known).collect()
    }

    fn revoke_missing(&self, others: &Self) {
        let withdrawn =
            self.keys.iter().filter(|key| !others.keys.iter().any(|other| other.is_same_key(key)));
        withdrawn.for_each(|key| key.ended.cancel());
    }

    fn find(&self, kid: Option<&str>, algorithm: SignatureAlgorithm) -> Option<Arc<VerificationKey>> {
        let mut fit = self.keys.iter().filter(|key| {
            key.algorithm == algorithm && (kid.is_none() || key.kid.is_none() || key.kid.as_deref() == kid)
        });
        match kid {
            Some(_) => {
                fit.clone().find(|key| key.kid.as_deref() == kid).or_else(|| single(&mut fit)).cloned()
            }
            None => single(&mut fit).cloned(),
        }
    }
}

fn single<T>(items: &mut impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

impl VerificationKey {
    /// Fires when tokens that this key signed are no longer valid.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    fn is_same_key(&self, other: &Self) -> bool {
        self.kid == other.kid && self.algorithm == other.algorithm && self.public == other.public
    }

    /// Verifies the signature of a message.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match (&self.public, self.algorithm) {
            (PublicKey::Rsa { n, e }, SignatureAlgorithm::RS256) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (PublicKey::Point(point), SignatureAlgorithm::ES256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (PublicKey::Point(point), SignatureAlgorithm::EdDSA) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
            (PublicKey::Rsa { .. }, SignatureAlgorithm::ES256 | SignatureAlgorithm::EdDSA)
            | (PublicKey::Point(_), SignatureAlgorithm::RS256) => {
                return false;
            }
        };
        verified.is_ok()
    }
}

fn read_file(file: &str) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let file = open_regular(file.as_ref()).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    file.take(MAX_KEYS_BYTES + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// Checks that a file has keys for tokens of an authorization server. Blocks.
///
/// # Errors
/// The file cannot be read, or has no key that can be used.
pub fn check_issuer_keys(file: &Path) -> Result<(), String> {
    let bytes = read_file(&file.to_string_lossy())?;
    parse_key_set(&bytes, &CancellationToken::new()).map(drop)
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Parses a JWK set. Keys for unsupported algorithms or other uses are left out. The keys are valid until `ended`
/// fires.
pub(super) fn parse_key_set(
    bytes: &[u8],
    ended: &CancellationToken,
) -> Result<Vec<Arc<VerificationKey>>, String> {
    if bytes.len() as u64 > MAX_KEYS_BYTES {
        return Err(format!("more than {MAX_KEYS_BYTES} bytes"));
    }
    let set: JwkSet = serde_json::from_slice(bytes).map_err(|_| "is not a JWK set".to_owned())?;
    if set.keys.len() > MAX_KEYS {
        return Err(format!("more than {MAX_KEYS} keys"));
    }
    let keys: Vec<Arc<VerificationKey>> = (set.keys.into_iter())
        .filter_map(|key| serde_json::from_value::<Jwk>(key).ok())
        .filter_map(|key| key.into_key(ended).map(Arc::new))
        .collect();
    if keys.is_empty() { Err("no key for RS256, ES256 or EdDSA".to_owned()) } else { Ok(keys) }
}

impl Jwk {
    fn into_key(self, ended: &CancellationToken) -> Option<VerificationKey> {
        let to_verify = self.usage.as_deref().is_none_or(|usage| usage == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let (algorithm, name, public) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let number = |text: &Option<String>| {
                    let bytes = decode(text.as_deref()?)?;
                    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                    bytes.get(zeros..).map(<[u8]>::to_vec)
                };
                let public = PublicKey::Rsa { n: number(&self.n)?, e: number(&self.e)? };
                (SignatureAlgorithm::RS256, "RS256", public)
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (decode(self.x.as_deref()?)?, decode(self.y.as_deref()?)?);
                if x.len() != 32 || y.len() != 32 {
                    return None;
                }
                (SignatureAlgorithm::ES256, "ES256", PublicKey::Point([vec![4], x, y].concat()))
            }
            ("OKP", Some("Ed25519")) => {
                (SignatureAlgorithm::EdDSA, "EdDSA", PublicKey::Point(decode(self.x.as_deref()?)?))
            }
            _ => return None,
        };
        let of_this_kind =
            self.alg.as_deref().is_none_or(|alg| alg == name || (name == "EdDSA" && alg == "Ed25519"));
        let ended = ended.child_token();
        (to_verify && of_this_kind).then_some(VerificationKey { kid: self.kid, algorithm, public, ended })
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
