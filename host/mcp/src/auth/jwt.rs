//! Tokens of an authorization server: signed JSON (RFC 7519, RFC 9068), of which the issuer's keys tell that they are.
//!
//! | looked at | must be |
//! |---|---|
//! | `alg` | one of the policy's, and that of the key; there is no code here for `none` or for shared secrets |
//! | `typ`, `crit` | `JWT`, `at+jwt` or absent; absent |
//! | `kid` | that of a key; without one, there is only one key that fits |
//! | `iss` | the policy's |
//! | `aud` | the address of the endpoint that the request is for, or one of the policy's that is of no other endpoint |
//! | `exp`, `nbf` | not past, which a token must say; not ahead, if it says |
//! | `sub` | there: it is who the caller is |
//! | `scope`, `scp` | what opens profiles |

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::{Algorithm, OAuth, Serve};

use super::keys::{FetchKeys, Key, Keys, Missing};
use super::{Principal, ProfileAccess};

/// Longest `sub` and `kid`, in bytes.
const MAX_ID: usize = 200;
/// Most scopes of a token that are looked at.
const MAX_SCOPES: usize = 256;

/// What is escaped in the name of a caller.
const SEPARATES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'@').remove(b'|').remove(b'~');

/// The path of the endpoint without a profile; those of profiles are below it.
const ENDPOINT: &str = "/mcp";

/// Who issues tokens.
#[derive(Debug)]
pub(super) struct Issuer {
    oauth: Arc<OAuth>,
    /// Under which address the endpoints are.
    public_url: Option<String>,
    keys: Keys,
    /// Fires when the policy says something else of the issuer, or nothing.
    ended: CancellationToken,
}

/// Why a token says nothing of its bearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    /// It is nobody's; why is for the log, not for who sent it.
    Token(&'static str),
    /// The issuer's keys cannot be had.
    Keys,
}

impl From<&'static str> for Problem {
    fn from(problem: &'static str) -> Self {
        Self::Token(problem)
    }
}

impl From<Missing> for Problem {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Key => Self::Token("there is no key for it"),
            Missing::Keys => Self::Keys,
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    sub: String,
    exp: f64,
    nbf: Option<f64>,
    scope: Option<String>,
    scp: Option<Audience>,
}

/// One text, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
        .iter()
        .map(String::as_str)
    }
}

impl Issuer {
    /// The issuer that `serve` names. Where it says the same as before, what stands on its tokens goes on; its keys are read
    /// again if they are in a file, and are those of before if they are at an address.
    ///
    /// # Errors
    /// Its keys are in a file that cannot be read.
    pub(super) fn following(
        old: Option<&Arc<Self>>,
        oauth: &OAuth,
        serve: &Serve,
        fetch: &FetchKeys,
    ) -> Result<Arc<Self>, String> {
        let old = old.filter(|old| *old.oauth == *oauth && old.public_url == serve.public_url);
        if let Some(old) = old
            && oauth.file().is_none()
        {
            return Ok(Arc::clone(old));
        }
        let ended = old.map_or_else(CancellationToken::new, |old| old.ended.clone());
        let keys = Keys::new(oauth, fetch.clone(), &ended, old.map(|old| &old.keys))?;
        let (oauth, public_url) = (Arc::new(oauth.clone()), serve.public_url.clone());
        Ok(Arc::new(Self { oauth, public_url, keys, ended }))
    }

    /// Ends what stands on tokens that would not count with this other one.
    pub(super) fn end_all_but(&self, other: Option<&Self>) {
        let same = |other: &&Self| *other.oauth == *self.oauth && other.public_url == self.public_url;
        match other.filter(same) {
            Some(other) => self.keys.end_all_but(&other.keys),
            None => self.ended.cancel(),
        }
    }

    pub(super) fn oauth(&self) -> &OAuth {
        &self.oauth
    }

    /// Whose token this is, at the endpoint of a profile.
    ///
    /// # Errors
    /// It is nobody's, or that cannot be told.
    pub(super) async fn principal(&self, token: &str, profile: Option<&str>) -> Result<Principal, Problem> {
        let (signed, signature) = token.rsplit_once('.').ok_or("it is no JWT")?;
        let (header, claims) = signed.split_once('.').ok_or("it is no JWT")?;
        let header: Header = decode(header).ok_or("its header is none")?;
        let algorithm = self.algorithm(&header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "its signature is no base64url")?;
        let key = self.keys.find(header.kid.as_deref(), algorithm).await?;
        if !key.verifies(signed.as_bytes(), &signature) {
            return Err("its signature is wrong".into());
        }
        Ok(self.read(&decode(claims).ok_or("its claims are none")?, &key, profile)?)
    }

    /// Whether a token for this audience is one for the endpoint of a profile.
    fn is_for(&self, audience: &str, profile: Option<&str>) -> bool {
        match self.endpoint_at(audience) {
            Some(endpoint) => endpoint == profile,
            None => self.oauth.audience.contains(audience),
        }
    }

    /// Which endpoint is at an address, if it is one of this server's.
    fn endpoint_at<'a>(&self, address: &'a str) -> Option<Option<&'a str>> {
        let path = address.strip_prefix(self.public_url.as_deref()?)?.strip_prefix(ENDPOINT)?;
        match path.split_once('/') {
            None => path.is_empty().then_some(None),
            Some(("", "")) => Some(None),
            Some(("", profile)) => (!profile.contains('/')).then_some(Some(profile)),
            Some(_) => None,
        }
    }

    fn algorithm(&self, header: &Header) -> Result<Algorithm, &'static str> {
        let algorithm = match header.alg.as_str() {
            "RS256" => Algorithm::RS256,
            "ES256" => Algorithm::ES256,
            "EdDSA" => Algorithm::EdDSA,
            _ => return Err("its `alg` is none that counts"),
        };
        if !self.oauth.algorithms.contains(&algorithm) {
            return Err("its `alg` is not among `algorithms`");
        }
        if header.crit.is_some() {
            return Err("it has a `crit` that is not understood");
        }
        let typ = header.typ.as_deref().unwrap_or("JWT");
        let typ = typ.strip_prefix("application/").unwrap_or(typ);
        if !typ.eq_ignore_ascii_case("JWT") && !typ.eq_ignore_ascii_case("at+jwt") {
            return Err("its `typ` is another");
        }
        if header.kid.as_ref().is_some_and(|kid| kid.len() > MAX_ID) {
            return Err("its `kid` is too long");
        }
        Ok(algorithm)
    }

    fn read(&self, claims: &Claims, key: &Key, profile: Option<&str>) -> Result<Principal, &'static str> {
        if claims.iss != self.oauth.issuer {
            return Err("its `iss` is another");
        }
        if !claims.aud.iter().any(|one| self.is_for(one, profile)) {
            return Err("its `aud` is another");
        }
        let now = SystemTime::now();
        let leeway = self.oauth.leeway;
        let expires =
            time(claims.exp).and_then(|exp| exp.checked_add(leeway)).ok_or("its `exp` is no time")?;
        if expires <= now {
            return Err("it has expired");
        }
        if let Some(nbf) = claims.nbf {
            let begins = time(nbf).ok_or("its `nbf` is no time")?;
            if now.checked_add(leeway).is_none_or(|now| begins > now) {
                return Err("it does not count yet");
            }
        }
        if claims.sub.is_empty() || claims.sub.len() > MAX_ID {
            return Err("its `sub` is empty or too long");
        }
        let scopes: BTreeSet<String> = (claims.scope.as_deref().into_iter())
            .chain(claims.scp.iter().flat_map(Audience::iter))
            .flat_map(str::split_ascii_whitespace)
            .take(MAX_SCOPES)
            .map(ToOwned::to_owned)
            .collect();
        Ok(Principal {
            // What separates the parts of names cannot be in it.
            name: format!("oauth:{}", utf8_percent_encode(&claims.sub, SEPARATES)).into(),
            known: true,
            access: ProfileAccess::Scopes(scopes, Arc::clone(&self.oauth)),
            expires: Some(expires),
            credential: key.ended(),
        })
    }
}

fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// A `NumericDate`.
fn time(seconds: f64) -> Option<SystemTime> {
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
