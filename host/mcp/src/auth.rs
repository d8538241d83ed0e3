//! Authentication: the sender of a request and the profiles it may use.
//!
//! There are three methods, tried in this order: anonymous access (on loopback, or where the operator allows it), a
//! bearer token from a file, and a token of an authorization server. The reason why a token was refused appears only in
//! the log, never in the response.
//!
//! A credential can be revoked while a request is being answered: its entry was removed from the file, the policy
//! changed, or the issuer withdrew the key. Each credential has a cancellation token that fires then
//! ([`CredentialValidity`]).

pub(crate) mod failures;

mod credential;
mod jwt;
mod keys;

mod tokens;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

pub(crate) use credential::CredentialValidity;
pub use keys::{KeyFetcher, MAX_KEYS_BYTES, check_issuer_keys};
pub use tokens::{check_tokens, read_request_state_key, read_trusted, token_names};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tokio_util::sync::CancellationToken;
use toolbay_core::audit::edits::describe_edits;
use toolbay_policy::serve::{OAuthPolicy, ServePolicy};

use jwt::Issuer;
use tokens::BearerTokens;

/// Longest accepted token, in bytes. Tokens with many claims have about 4 KiB.
pub(crate) const MAX_TOKEN: usize = 16 << 10;
/// Stands for the endpoint without a profile in sets of profiles.
pub(crate) const NO_PROFILE: &str = "*";

/// The authenticated or anonymous sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// Unique name: `anonymous:127.0.0.1`, `token:ci`, `oauth:alice`.
    pub(crate) name: Arc<str>,
    /// Whether the sender presented a valid credential.
    pub(crate) authenticated: bool,
    /// The profiles that the sender may use.
    pub(crate) access: ProfileAccess,
    /// When the credential expires.
    expires: Option<SystemTime>,
    /// Fires when the credential is revoked.
    credential: CancellationToken,
}

/// The profiles that a principal may use.
#[derive(Debug, Clone)]
pub(crate) enum ProfileAccess {
    /// All profiles, and the endpoint without one.
    All,
    /// These profiles; [`NO_PROFILE`] is the endpoint without one.
    Only(Arc<BTreeSet<String>>),
    /// Every profile whose required scopes the token has.
    Scopes(BTreeSet<String>, Arc<OAuthPolicy>),
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The request has no token, or an invalid one (401).
    Unauthenticated {
        /// What is wrong. The response says only whether there was a token.
        problem: TokenProblem,
        /// Whose token it is, if its signature is valid.
        token: Option<Arc<str>>,
    },
    /// The token cannot be verified now because the keys are unavailable (503).
    KeysUnavailable,
    /// The token lacks these scopes (403).
    InsufficientScope(BTreeSet<String>),
    /// The token does not grant access to this profile (403).
    ProfileForbidden,
}

/// What is wrong with the token of a request, for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenProblem {
    /// The request has no token.
    Missing,
    /// The token is in no file, and no authorization server is configured.
    Unknown,
    /// The token is not one of an authorization server.
    Malformed,
    /// The authorization server has no such key.
    UnknownKey,
    /// The signature is wrong.
    Signature,
    /// Another authorization server issued the token.
    Issuer,
    /// The token is for another audience.
    Audience,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    NotYetValid,
}

impl TokenProblem {
    /// The reason in the audit.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "token_missing",
            Self::Unknown => "token_unknown",
            Self::Malformed => "token_malformed",
            Self::UnknownKey => "token_key",
            Self::Signature => "token_signature",
            Self::Issuer => "token_issuer",
            Self::Audience => "token_audience",
            Self::Expired => "token_expired",
            Self::NotYetValid => "token_not_yet_valid",
        }
    }
}

impl AuthError {
    /// A request without a valid token.
    fn unauthenticated(problem: TokenProblem) -> Self {
        Self::Unauthenticated { problem, token: None }
    }
}

/// The authentication methods that the policy configures.
#[derive(Debug)]
pub(crate) struct Authenticator {
    /// Present if anonymous access is allowed; fires when a reload disables it.
    anonymous_access: Option<CancellationToken>,
    tokens: Option<BearerTokens>,
    issuer: Option<Arc<Issuer>>,
}

impl Authenticator {
    /// Loads the tokens and keys that `serve` names. Credentials of `before` that did not change stay valid. Nothing is
    /// revoked yet: see [`Self::revoke_removed`].
    ///
    /// # Errors
    /// The token file or the key file cannot be read or is invalid.
    pub(crate) fn load(
        serve: &ServePolicy,
        fetch: &KeyFetcher,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let old = before.and_then(|auth| auth.tokens.as_ref());
        let tokens = serve.tokens.as_deref().map(|file| BearerTokens::read(file, old)).transpose()?;
        let old = before.and_then(|auth| auth.issuer.as_ref());
        let issuer = serve.oauth.as_ref().map(|oauth| Issuer::from_policy(old, oauth, serve, fetch));
        let issuer = issuer.transpose()?;
        let old = before.and_then(|auth| auth.anonymous_access.clone());
        let anonymous_access = (!serve.requires_authentication()).then(|| old.unwrap_or_default());
        Ok(Self { anonymous_access, tokens, issuer })
    }

    /// What differs from the tokens of `before`, by name. `None` if nothing does.
    pub(crate) fn token_edits(&self, before: &Self) -> Option<String> {
        let entries = |auth: &Self| auth.tokens.as_ref().map(BearerTokens::entries).unwrap_or_default();
        describe_edits(&entries(before), &entries(self))
    }

    /// Revokes the credentials of `before` that are not valid here.
    pub(crate) fn revoke_removed(&self, before: &Self) {
        if let (Some(open), None) = (&before.anonymous_access, &self.anonymous_access) {
            open.cancel();
        }
        if let Some(old) = &before.tokens {
            old.revoke_missing(self.tokens.as_ref());
        }
        if let Some(old) = &before.issuer {
            old.revoke_missing(self.issuer.as_deref());
        }
    }

    /// Authenticates a request by its headers, for the endpoint of a profile. With anonymous access, the principal has
    /// the name `anonymous`.
    ///
    /// # Errors
    /// The request has no valid token.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        anonymous: &Arc<str>,
        profile: Option<&str>,
    ) -> Result<Principal, AuthError> {
        if let Some(open) = &self.anonymous_access {
            return Ok(Principal {
                name: Arc::clone(anonymous),
                authenticated: false,
                access: ProfileAccess::All,
                expires: None,
                credential: open.clone(),
            });
        }
        let Some(token) = bearer_token(headers) else {
            let has_header = headers.contains_key(AUTHORIZATION);
            let problem = if has_header { TokenProblem::Malformed } else { TokenProblem::Missing };
            return Err(AuthError::unauthenticated(problem));
        };
        if let Some(principal) = self.tokens.as_ref().and_then(|tokens| tokens.find(token)) {
            return Ok(principal);
        }
        let Some(issuer) = &self.issuer else {
            return Err(AuthError::unauthenticated(TokenProblem::Unknown));
        };
        issuer.verify_token(token, profile).await
    }

    /// The authorization server, from which clients learn the scopes to request.
    pub(crate) fn oauth(&self) -> Option<&OAuthPolicy> {
        self.issuer.as_ref().map(|issuer| issuer.oauth())
    }
}

impl Principal {
    /// The validity of a request of this principal to an endpoint.
    pub(crate) fn validity(&self, endpoint: CancellationToken) -> CredentialValidity {
        CredentialValidity::new(self.credential.clone(), endpoint, self.expires)
    }

    /// Checks that the principal may use a profile.
    ///
    /// # Errors
    /// The token does not grant access. [`AuthError::InsufficientScope`] names the scopes that would.
    pub(crate) fn check_profile(&self, profile: Option<&str>) -> Result<(), AuthError> {
        let profile = profile.unwrap_or(NO_PROFILE);
        match &self.access {
            ProfileAccess::All => Ok(()),
            ProfileAccess::Only(profiles) if profiles.contains(profile) => Ok(()),
            ProfileAccess::Only(_) => Err(AuthError::ProfileForbidden),
            ProfileAccess::Scopes(scopes, oauth) => {
                let wanted = required_scopes(oauth, profile).ok_or(AuthError::ProfileForbidden)?;
                if wanted.is_subset(scopes) { Ok(()) } else { Err(AuthError::InsufficientScope(wanted)) }
            }
        }
    }
}

/// The scopes that grant access to a profile, or with [`NO_PROFILE`] to the endpoint without one. `None` if no scope
/// does.
pub(crate) fn required_scopes(oauth: &OAuthPolicy, profile: &str) -> Option<BTreeSet<String>> {
    let of_profile = match (oauth.profiles.is_empty(), oauth.profiles.get(profile)) {
        (true, _) => None,
        (false, None) => return None,
        (false, some) => some,
    };
    Some(oauth.scopes.iter().chain(of_profile.into_iter().flatten()).cloned().collect())
}

/// The token of `Authorization: Bearer …`, if the header is present exactly once.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}
