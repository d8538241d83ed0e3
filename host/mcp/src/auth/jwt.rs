//! JWT access tokens of an authorization server (RFC 7519, RFC 9068), verified with the issuer's keys.
//!
//! | field | requirement |
//! |---|---|
//! | `alg` | listed in the policy, and the algorithm of the key; `none` and shared secrets are not implemented |
//! | `typ` | `JWT`, `at+jwt` or absent |
//! | `crit` | absent |
//! | `kid` | the `kid` of a key; may be absent if exactly one key fits |
//! | `iss` | the issuer in the policy |
//! | `aud` | the URL of the requested endpoint, or an audience in the policy that is not the URL of another endpoint |
//! | `exp` | present and in the future |
//! | `nbf` | absent or in the past |
//! | `sub` | present: it becomes the name of the principal |
//! | `scope`, `scp` | the scopes, which grant access to profiles |

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::{OAuthPolicy, ServePolicy, SignatureAlgorithm};

use super::keys::{IssuerKeys, KeyFetcher, VerificationKey};
use super::{AuthError, Principal, ProfileAccess, TokenProblem};

/// Longest `sub` and `kid`, in bytes.
const MAX_ID: usize = 200;
/// Most scopes of a token; further ones are ignored.
const MAX_SCOPES: usize = 256;

/// The characters that are percent-encoded in the name of a principal.
const ESCAPED_IN_NAMES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'@').remove(b'|').remove(b'~');

/// The path of the endpoint without a profile. The endpoints of profiles are below it.
const ENDPOINT_PATH: &str = "/mcp";

/// An authorization server, as the policy configures it.
#[derive(Debug)]
pub(super) struct Issuer {
    oauth: Arc<OAuthPolicy>,
    /// Base URL of the endpoints.
    public_url: Option<String>,
    keys: IssuerKeys,
    /// Fires when a reload changes or removes the issuer in the policy.
    ended: CancellationToken,
}

/// What is wrong with a token. The problem goes to the audit and the text to the log, neither to the client.
#[derive(Debug, Clone, Copy)]
struct InvalidToken {
    problem: TokenProblem,
    text: &'static str,
}

impl InvalidToken {
    const fn malformed(text: &'static str) -> Self {
        Self { problem: TokenProblem::Malformed, text }
    }

    /// Logs the text. `principal` is whose token it is, if its signature is valid.
    fn refuse(self, principal: Option<Arc<str>>) -> AuthError {
        tracing::debug!(problem = self.text, "a token was refused");
        AuthError::Unauthenticated { problem: self.problem, token: principal }
    }
}

impl From<InvalidToken> for AuthError {
    fn from(invalid: InvalidToken) -> Self {
        invalid.refuse(None)
    }
}

#[derive(Deserialize)]
struct JoseHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct JwtClaims {
    iss: String,
    aud: StringOrList,
    sub: String,
    exp: f64,
    nbf: Option<f64>,
    scope: Option<String>,
    scp: Option<StringOrList>,
}

/// A claim that is a string or a list of strings.
#[derive(Deserialize)]
#[serde(untagged)]
enum StringOrList {
    One(String),
    Several(Vec<String>),
}

impl StringOrList {
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
    /// Creates the issuer that `serve` configures. If its configuration equals that of `old`, its tokens stay valid:
    /// keys in a file are read again, and keys at a URL are taken over.
    ///
    /// # Errors
    /// The key file cannot be read.
    pub(super) fn from_policy(
        old: Option<&Arc<Self>>,
        oauth: &OAuthPolicy,
        serve: &ServePolicy,
        fetch: &KeyFetcher,
    ) -> Result<Arc<Self>, String> {
        let old = old.filter(|old| *old.oauth == *oauth && old.public_url == serve.public_url);
        if let Some(old) = old
            && oauth.file().is_none()
        {
            return Ok(Arc::clone(old));
        }
        let ended = old.map_or_else(CancellationToken::new, |old| old.ended.clone());
        let keys = IssuerKeys::new(oauth, fetch.clone(), &ended, old.map(|old| &old.keys))?;
        let (oauth, public_url) = (Arc::new(oauth.clone()), serve.public_url.clone());
        Ok(Arc::new(Self { oauth, public_url, keys, ended }))
    }

    /// Revokes the tokens that would not be valid with `other`.
    pub(super) fn revoke_missing(&self, other: Option<&Self>) {
        let same = |other: &&Self| *other.oauth == *self.oauth && other.public_url == self.public_url;
        match other.filter(same) {
            Some(other) => self.keys.revoke_missing(&other.keys),
            None => self.ended.cancel(),
        }
    }

    pub(super) fn oauth(&self) -> &OAuthPolicy {
        &self.oauth
    }

    /// Verifies a token for the endpoint of a profile and returns its principal.
    ///
    /// # Errors
    /// The token is invalid, or the keys are unavailable.
    pub(super) async fn verify_token(
        &self,
        token: &str,
        profile: Option<&str>,
    ) -> Result<Principal, AuthError> {
        let invalid = |problem, text| InvalidToken { problem, text };
        let not_jwt = invalid(TokenProblem::Unknown, "the token is not a JWT");
        let (signed, signature) = token.rsplit_once('.').ok_or(not_jwt)?;
        let (header, claims) = signed.split_once('.').ok_or(not_jwt)?;
        let header: JoseHeader =
            decode_json(header).ok_or(InvalidToken::malformed("the header is not valid"))?;
        let algorithm = self.check_header(&header).map_err(InvalidToken::malformed)?;
        let signature = URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| InvalidToken::malformed("the signature is not base64url"))?;
        let key = self.keys.find(header.kid.as_deref(), algorithm).await?;
        let key = key.ok_or(invalid(TokenProblem::UnknownKey, "the issuer has no matching key"))?;
        if !key.verify(signed.as_bytes(), &signature) {
            return Err(invalid(TokenProblem::Signature, "the signature is wrong").into());
        }
        let claims: JwtClaims =
            decode_json(claims).ok_or(InvalidToken::malformed("the claims are not valid"))?;
        self.check_claims(&claims, &key, profile)
            .map_err(|invalid| invalid.refuse(principal_name(&claims.sub)))
    }

    /// Whether a token with this audience is valid for the endpoint of a profile.
    fn accepts_audience(&self, audience: &str, profile: Option<&str>) -> bool {
        match self.endpoint_for_url(audience) {
            Some(endpoint) => endpoint == profile,
            None => self.oauth.audience.contains(audience),
        }
    }

    /// The profile whose endpoint has this URL. `None` if the URL is not an endpoint of this server.
    fn endpoint_for_url<'a>(&self, address: &'a str) -> Option<Option<&'a str>> {
        let path = address.strip_prefix(self.public_url.as_deref()?)?.strip_prefix(ENDPOINT_PATH)?;
        match path.split_once('/') {
            None => path.is_empty().then_some(None),
            Some(("", "")) => Some(None),
            Some(("", profile)) => (!profile.contains('/')).then_some(Some(profile)),
            Some(_) => None,
        }
    }

    fn check_header(&self, header: &JoseHeader) -> Result<SignatureAlgorithm, &'static str> {
        let algorithm = match header.alg.as_str() {
            "RS256" => SignatureAlgorithm::RS256,
            "ES256" => SignatureAlgorithm::ES256,
            "EdDSA" => SignatureAlgorithm::EdDSA,
            _ => return Err("`alg` is not supported"),
        };
        if !self.oauth.algorithms.contains(&algorithm) {
            return Err("`alg` is not listed in `algorithms`");
        }
        if header.crit.is_some() {
            return Err("`crit` is not supported");
        }
        let typ = header.typ.as_deref().unwrap_or("JWT");
        let typ = typ.strip_prefix("application/").unwrap_or(typ);
        if !typ.eq_ignore_ascii_case("JWT") && !typ.eq_ignore_ascii_case("at+jwt") {
            return Err("`typ` is neither `JWT` nor `at+jwt`");
        }
        if header.kid.as_ref().is_some_and(|kid| kid.len() > MAX_ID) {
            return Err("`kid` is too long");
        }
        Ok(algorithm)
    }

    fn check_claims(
        &self,
        claims: &JwtClaims,
        key: &VerificationKey,
        profile: Option<&str>,
    ) -> Result<Principal, InvalidToken> {
        let invalid = |problem, text| Err(InvalidToken { problem, text });
        if claims.iss != self.oauth.issuer {
            return invalid(TokenProblem::Issuer, "`iss` is not the issuer");
        }
        if !claims.aud.iter().any(|one| self.accepts_audience(one, profile)) {
            return invalid(TokenProblem::Audience, "`aud` does not include this endpoint");
        }
        let now = SystemTime::now();
        let leeway = self.oauth.leeway;
        let expires = parse_numeric_date(claims.exp)
            .and_then(|exp| exp.checked_add(leeway))
            .ok_or(InvalidToken::malformed("`exp` is not a valid time"))?;
        if expires <= now {
            return invalid(TokenProblem::Expired, "the token has expired");
        }
        if let Some(nbf) = claims.nbf {
            let begins =
                parse_numeric_date(nbf).ok_or(InvalidToken::malformed("`nbf` is not a valid time"))?;
            if now.checked_add(leeway).is_none_or(|now| begins > now) {
                return invalid(TokenProblem::NotYetValid, "the token is not valid yet");
            }
        }
        let name =
            principal_name(&claims.sub).ok_or(InvalidToken::malformed("`sub` is empty or too long"))?;
        let scopes: BTreeSet<String> = (claims.scope.as_deref().into_iter())
            .chain(claims.scp.iter().flat_map(StringOrList::iter))
            .flat_map(str::split_ascii_whitespace)
            .take(MAX_SCOPES)
            .map(ToOwned::to_owned)
            .collect();
        Ok(Principal {
            name,
            authenticated: true,
            access: ProfileAccess::Scopes(scopes, Arc::clone(&self.oauth)),
            expires: Some(expires),
            credential: key.ended(),
        })
    }
}

/// The name of a principal; `None` if `sub` is empty or too long. Escaped, so that `sub` cannot contain the separators of
/// names.
fn principal_name(sub: &str) -> Option<Arc<str>> {
    let is_legal = !sub.is_empty() && sub.len() <= MAX_ID;
    is_legal.then(|| format!("oauth:{}", utf8_percent_encode(sub, ESCAPED_IN_NAMES)).into())
}

fn decode_json<T: for<'de> Deserialize<'de>>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Parses a `NumericDate` of RFC 7519: seconds since 1970.
fn parse_numeric_date(seconds: f64) -> Option<SystemTime> {
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
