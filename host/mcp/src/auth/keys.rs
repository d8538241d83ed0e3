//! The keys of an authorization server (RFC 7517), from a file or from an address, and what they verify.
//!
//! They are read again when a token names a key that is not among them, and now and then; never more often than the
//! constants below say, whatever tokens come in. A reading belongs to no request: it has a task of its own, and whoever
//! needs the keys meanwhile waits for its end. So a client that leaves ends no reading, and begins no other.

use std::fmt;
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
use toolbay_policy::serve::{Algorithm, OAuth};

use crate::auth::regular::open_regular;

/// Largest set of keys that is read, in bytes.
pub const MAX_KEYS_BYTES: u64 = 256 << 10;
/// Most keys of a set.
const MAX_KEYS: usize = 100;
/// After this time the keys are read again.
const FRESH: Duration = Duration::from_secs(3600);
/// After this time without a new reading they do not count any more: the issuer may have taken one back.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// Shortest time between two readings; twice as long after each that failed.
const LEAST_PAUSE: Duration = Duration::from_secs(10);
/// Longest time between two readings of keys that are wanted.
const MOST_PAUSE: Duration = Duration::from_secs(300);
/// How long a reading may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gets the keys that are at an address: at most [`MAX_KEYS_BYTES`].
#[derive(Clone)]
pub struct FetchKeys(Arc<dyn Fn(String) -> Fetched + Send + Sync>);

type Fetched = BoxFuture<'static, Result<Vec<u8>, String>>;

impl FetchKeys {
    /// By this function.
    pub fn new<F>(fetch: F) -> Self
    where
        F: Fn(String) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync + 'static,
    {
        Self(Arc::new(fetch))
    }

    /// Not at all: only keys of files can be read.
    #[must_use]
    pub fn never() -> Self {
        let error = || "this program reads keys from files only".to_owned();
        Self::new(move |_| Box::pin(async move { Err(error()) }))
    }
}

impl fmt::Debug for FetchKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FetchKeys")
    }
}

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct Keys(Arc<Source>);

/// Where keys come from, and those that it had last.
#[derive(Debug)]
struct Source {
    from: String,
    in_file: bool,
    fetch: FetchKeys,
    /// Fires when the issuer does not count any more.
    ended: CancellationToken,
    held: ArcSwap<Set>,
    next: Mutex<Next>,
}

#[derive(Debug, Default)]
struct Set {
    keys: Vec<Arc<Key>>,
    /// When they were read; `None`: never.
    read: Option<Instant>,
}

#[derive(Debug, Default)]
struct Next {
    not_before: Option<Instant>,
    failures: u32,
    /// The last reading, which may be under way.
    reading: Option<Reading>,
}

impl Next {
    /// Lets the next reading wait, the longer the more have failed.
    fn wait(&mut self) {
        let pause = LEAST_PAUSE.saturating_mul(1 << self.failures.min(5)).min(MOST_PAUSE);
        self.not_before = Instant::now().checked_add(pause);
    }
}

/// The end of a reading, for whoever waits for it.
type Reading = Shared<BoxFuture<'static, ()>>;

/// One key, for one kind of signature.
#[derive(Debug)]
pub(super) struct Key {
    kid: Option<String>,
    algorithm: Algorithm,
    public: Public,
    /// Fires when the key was taken back, or its issuer does not count any more.
    ended: CancellationToken,
}

#[derive(Debug, PartialEq, Eq)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Point(Vec<u8>),
}

/// Why there is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// The issuer has none of this name.
    Key,
    /// The issuer's keys cannot be had: nothing can be said of any token.
    Keys,
}

impl Keys {
    /// The keys of an issuer, which counts until `ended` fires. Keys that are also among `before` stay what they are.
    ///
    /// # Errors
    /// They are in a file that cannot be read. Those at an address are read when they are wanted: a server should start
    /// also while another is down.
    pub(super) fn new(
        oauth: &OAuth,
        fetch: FetchKeys,
        ended: &CancellationToken,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let from = oauth.jwks.clone();
        let mut set = Set::default();
        if oauth.file().is_some() {
            let keys = read_file(&from).and_then(|bytes| parse(&bytes, ended));
            let keys = keys.map_err(|e| format!("the keys `{from}`: {e}"))?;
            let before = before.map(|before| before.0.held.load_full()).unwrap_or_default();
            set = Set { keys: before.goes_on_in(keys), read: Some(Instant::now()) };
        }
        let in_file = oauth.file().is_some();
        let (ended, held, next) = (ended.clone(), ArcSwap::from_pointee(set), Mutex::default());
        Ok(Self(Arc::new(Source { from, in_file, fetch, ended, held, next })))
    }

    /// Ends what stands on keys that are not among these others.
    pub(super) fn end_all_but(&self, others: &Self) {
        self.0.held.load().end_all_but(&others.0.held.load());
    }

    /// The key of this name for such signatures.
    ///
    /// # Errors
    /// There is none, or the keys cannot be had.
    pub(super) async fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Arc<Key>, Missing> {
        let held = self.0.held.load_full();
        let age = held.read.map(|read| read.elapsed());
        match (held.find(kid, algorithm), age) {
            (Some(key), Some(age)) if age < FRESH => return Ok(key),
            (Some(key), Some(age)) if age < STALE => match self.read() {
                Some((reading, true)) => reading.await,
                // Who comes while another waits for them takes the old one.
                Some((_, false)) | None => return Ok(key),
            },
            _ => {
                if let Some((reading, _)) = self.read() {
                    reading.await;
                }
            }
        }
        let held = self.0.held.load();
        if held.read.is_none_or(|read| read.elapsed() >= STALE) {
            return Err(Missing::Keys);
        }
        held.find(kid, algorithm).ok_or(Missing::Key)
    }

    /// The reading that is under way, or begins now, and whether it began with this look; `None`: that was just done.
    fn read(&self) -> Option<(Reading, bool)> {
        let mut next = self.0.next.lock();
        if let Some(reading) = next.reading.as_ref().filter(|reading| reading.peek().is_none()) {
            return Some((reading.clone(), false));
        }
        if next.not_before.is_some_and(|not_before| Instant::now() < not_before) {
            return None;
        }
        // Until it is known to have gone well.
        next.failures = next.failures.saturating_add(1);
        next.wait();
        let source = Arc::clone(&self.0);
        // Ends within ten seconds.
        let reading = tokio::spawn(async move { source.read_again().await }).map(drop).boxed().shared();
        next.reading = Some(reading.clone());
        Some((reading, true))
    }
}

impl Source {
    /// Reads them again.
    async fn read_again(&self) {
        let got = tokio::time::timeout(PATIENCE, self.get()).await;
        let got = got.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())));
        match got.and_then(|bytes| parse(&bytes, &self.ended)) {
            Ok(keys) => {
                let before = self.held.load_full();
                let set = Set { keys: before.goes_on_in(keys), read: Some(Instant::now()) };
                before.end_all_but(&set);
                self.held.store(Arc::new(set));
                self.next.lock().failures = 0;
            }
            Err(problem) => {
                tracing::warn!(from = self.from, problem, "the keys for tokens cannot be read");
            }
        }
        self.next.lock().wait();
    }

    async fn get(&self) -> Result<Vec<u8>, String> {
        if !self.in_file {
            return (self.fetch.0)(self.from.clone()).await;
        }
        let file = self.from.clone();
        tokio::task::spawn_blocking(move || read_file(&file)).await.map_err(|e| e.to_string())?
    }
}

impl Set {
    /// New keys, of which those that were here before are the same as then.
    fn goes_on_in(&self, keys: Vec<Arc<Key>>) -> Vec<Arc<Key>> {
        let known = |new: Arc<Key>| self.keys.iter().find(|old| old.is(&new)).map_or(new, Arc::clone);
        keys.into_iter().map(known).collect()
    }

    fn end_all_but(&self, others: &Self) {
        let gone = self.keys.iter().filter(|key| !others.keys.iter().any(|other| other.is(key)));
        gone.for_each(|key| key.ended.cancel());
    }

    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Arc<Key>> {
        let mut fit = self.keys.iter().filter(|key| {
            key.algorithm == algorithm && (kid.is_none() || key.kid.is_none() || key.kid.as_deref() == kid)
        });
        match kid {
            Some(_) => fit.clone().find(|key| key.kid.as_deref() == kid).or_else(|| only(&mut fit)).cloned(),
            None => only(&mut fit).cloned(),
        }
    }
}

fn only<T>(items: &mut impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

impl Key {
    /// Fires when what this key signed does not count any more.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    fn is(&self, other: &Self) -> bool {
        self.kid == other.kid && self.algorithm == other.algorithm && self.public == other.public
    }

    /// Whether the holder of this key signed the message.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match (&self.public, self.algorithm) {
            (Public::Rsa { n, e }, Algorithm::RS256) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Public::Point(point), Algorithm::ES256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Public::Point(point), Algorithm::EdDSA) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
            (Public::Rsa { .. }, Algorithm::ES256 | Algorithm::EdDSA)
            | (Public::Point(_), Algorithm::RS256) => {
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

/// The keys of a set that are for such signatures as are taken here; others are left out. They count until `ended` fires.
pub(super) fn parse(bytes: &[u8], ended: &CancellationToken) -> Result<Vec<Arc<Key>>, String> {
    if bytes.len() as u64 > MAX_KEYS_BYTES {
        return Err(format!("more than {MAX_KEYS_BYTES} bytes"));
    }
    let set: JwkSet = serde_json::from_slice(bytes).map_err(|_| "is no JWK set".to_owned())?;
    if set.keys.len() > MAX_KEYS {
        return Err(format!("more than {MAX_KEYS} keys"));
    }
    let keys: Vec<Arc<Key>> = (set.keys.into_iter())
        .filter_map(|key| serde_json::from_value::<Jwk>(key).ok())
        .filter_map(|key| key.read(ended).map(Arc::new))
        .collect();
    if keys.is_empty() { Err("no key for RS256, ES256 or EdDSA".to_owned()) } else { Ok(keys) }
}

impl Jwk {
    fn read(self, ended: &CancellationToken) -> Option<Key> {
        let to_verify = self.usage.as_deref().is_none_or(|usage| usage == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let (algorithm, name, public) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let number = |text: &Option<String>| {
                    let bytes = decode(text.as_deref()?)?;
                    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                    bytes.get(zeros..).map(<[u8]>::to_vec)
                };
                let public = Public::Rsa { n: number(&self.n)?, e: number(&self.e)? };
                (Algorithm::RS256, "RS256", public)
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (decode(self.x.as_deref()?)?, decode(self.y.as_deref()?)?);
                if x.len() != 32 || y.len() != 32 {
                    return None;
                }
                (Algorithm::ES256, "ES256", Public::Point([vec![4], x, y].concat()))
            }
            ("OKP", Some("Ed25519")) => {
                (Algorithm::EdDSA, "EdDSA", Public::Point(decode(self.x.as_deref()?)?))
            }
            _ => return None,
        };
        let of_this_kind =
            self.alg.as_deref().is_none_or(|alg| alg == name || (name == "EdDSA" && alg == "Ed25519"));
        let ended = ended.child_token();
        (to_verify && of_this_kind).then_some(Key { kid: self.kid, algorithm, public, ended })
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
