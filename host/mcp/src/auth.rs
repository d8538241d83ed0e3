//! Who sent a request, and which profiles are open to them.
//!
//! Three ways, in this order: nobody is asked (loopback, or where the operator says so), a bearer token of a file, a
//! token of an authorization server. What is wrong with a token is told to nobody but the log.
//!
//! What a caller came with can be taken back while a request is answered: a line of the file is gone, the policy asks for
//! something else, the issuer has taken a key out of use. Each has a token that fires then ([`CredentialValidity`]).

pub(crate) mod failures;
pub(crate) mod regular;

mod credential;
mod jwt;
mod keys;

mod tokens;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

pub(crate) use credential::CredentialValidity;
pub use keys::{FetchKeys, MAX_KEYS_BYTES};
pub use tokens::check_tokens;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::{OAuth, Serve};

use jwt::{Issuer, Problem};
use tokens::Tokens;

/// Longest token that is looked at, in bytes: those with many claims have some four thousand.
pub(crate) const MAX_TOKEN: usize = 16 << 10;
/// Stands for the endpoint without a profile.
pub(crate) const NO_PROFILE: &str = "*";

/// Who sent a request.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// A name that no other has: `anonymous:127.0.0.1`, `token:ci`, `oauth:alice`.
    pub(crate) name: Arc<str>,
    /// Whether they said who they are.
    pub(crate) known: bool,
    /// Which profiles are open to them.
    pub(crate) access: ProfileAccess,
    /// Until when.
    expires: Option<SystemTime>,
    /// Fires when what they came with does not count any more.
    credential: CancellationToken,
}

/// Which profiles are open to a caller.
#[derive(Debug, Clone)]
pub(crate) enum ProfileAccess {
    /// All, and the endpoint without one.
    All,
    /// These; [`NO_PROFILE`] is the endpoint without one.
    Only(Arc<BTreeSet<String>>),
    /// Those for which the token has the scopes.
    Scopes(BTreeSet<String>, Arc<OAuth>),
}

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No token, or none that counts (401).
    Unknown {
        /// Whether there was one.
        presented: bool,
    },
    /// Whether the token counts cannot be told now (503).
    NoKeys,
    /// Not with the scopes of this token, but with these (403).
    Scopes(BTreeSet<String>),
    /// Not with this token (403).
    Profile,
}

/// The ways in.
#[derive(Debug)]
pub(crate) struct Auth {
    /// Fires when somebody is asked who they are; absent where they are.
    nobody_asked: Option<CancellationToken>,
    tokens: Option<Tokens>,
    issuer: Option<Arc<Issuer>>,
}

impl Auth {
    /// Reads what `serve` names. What `before` had goes on where nothing changed. Nothing else happens yet.
    ///
    /// # Errors
    /// The file of tokens or of keys cannot be read, or says nothing sensible.
    pub(crate) fn read(serve: &Serve, fetch: &FetchKeys, before: Option<&Self>) -> Result<Self, String> {
        let old = before.and_then(|auth| auth.tokens.as_ref());
        let tokens = serve.tokens.as_deref().map(|file| Tokens::read(file, old)).transpose()?;
        let old = before.and_then(|auth| auth.issuer.as_ref());
        let issuer = serve.oauth.as_ref().map(|oauth| Issuer::following(old, oauth, serve, fetch));
        let issuer = issuer.transpose()?;
        let old = before.and_then(|auth| auth.nobody_asked.clone());
        let nobody_asked = (!serve.asks_who()).then(|| old.unwrap_or_default());
        Ok(Self { nobody_asked, tokens, issuer })
    }

    /// Takes the place of another: what counted there and does not count here ends.
    pub(crate) fn replaces(&self, before: &Self) {
        if let (Some(open), None) = (&before.nobody_asked, &self.nobody_asked) {
            open.cancel();
        }
        if let Some(old) = &before.tokens {
            old.end_all_but(self.tokens.as_ref());
        }
        if let Some(old) = &before.issuer {
            old.end_all_but(self.issuer.as_deref());
        }
    }

    /// Who sent a request with these headers to the endpoint of a profile; where nobody is asked, they have the name
    /// `anonymous`.
    ///
    /// # Errors
    /// They have to say who they are, and did not.
    pub(crate) async fn principal(
        &self,
        headers: &HeaderMap,
        anonymous: &Arc<str>,
        profile: Option<&str>,
    ) -> Result<Principal, Refusal> {
        if let Some(open) = &self.nobody_asked {
            return Ok(Principal {
                name: Arc::clone(anonymous),
                known: false,
                access: ProfileAccess::All,
                expires: None,
                credential: open.clone(),
            });
        }
        let Some(token) = bearer(headers) else {
            return Err(Refusal::Unknown { presented: headers.contains_key(AUTHORIZATION) });
        };
        if let Some(caller) = self.tokens.as_ref().and_then(|tokens| tokens.find(token)) {
            return Ok(caller);
        }
        let Some(issuer) = &self.issuer else { return Err(Refusal::Unknown { presented: true }) };
        issuer.principal(token, profile).await.map_err(|problem| match problem {
            Problem::Keys => Refusal::NoKeys,
            Problem::Token(problem) => {
                tracing::debug!(problem, "a token was refused");
                Refusal::Unknown { presented: true }
            }
        })
    }

    /// Scopes that a client should ask for.
    pub(crate) fn oauth(&self) -> Option<&OAuth> {
        self.issuer.as_ref().map(|issuer| issuer.oauth())
    }
}

impl Principal {
    /// On what a request of theirs to this endpoint stands.
    pub(crate) fn validity(&self, endpoint: CancellationToken) -> CredentialValidity {
        CredentialValidity::new(self.credential.clone(), endpoint, self.expires)
    }

    /// Whether a profile is open to them.
    ///
    /// # Errors
    /// It is not; with other scopes it might be.
    pub(crate) fn may(&self, profile: Option<&str>) -> Result<(), Refusal> {
        let profile = profile.unwrap_or(NO_PROFILE);
        match &self.access {
            ProfileAccess::All => Ok(()),
            ProfileAccess::Only(profiles) if profiles.contains(profile) => Ok(()),
            ProfileAccess::Only(_) => Err(Refusal::Profile),
            ProfileAccess::Scopes(scopes, oauth) => {
                let wanted = wanted_scopes(oauth, profile).ok_or(Refusal::Profile)?;
                if wanted.is_subset(scopes) { Ok(()) } else { Err(Refusal::Scopes(wanted)) }
            }
        }
    }
}

/// The scopes that open a profile, or with [`NO_PROFILE`] the endpoint without one; `None`: none do.
pub(crate) fn wanted_scopes(oauth: &OAuth, profile: &str) -> Option<BTreeSet<String>> {
    let of_profile = match (oauth.profiles.is_empty(), oauth.profiles.get(profile)) {
        (true, _) => None,
        (false, None) => return None,
        (false, some) => some,
    };
    Some(oauth.scopes.iter().chain(of_profile.into_iter().flatten()).cloned().collect())
}

/// The token of `Authorization: Bearer …`, if there is exactly one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}
