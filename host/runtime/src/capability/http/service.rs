//! Requests of services that an OpenAPI document describes, and for such documents: through the same client, checks and
//! limits as those of guests. What stands behind the operator's names for secrets is put in here.
//!
//! The first request of a call is one that the host made itself, of an operation that is included: it is judged by method
//! and origin, and by what a profile says of paths. A redirect goes to an included operation, or where the section's own
//! `net` leads.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolbay_openapi::{Credential, Placement, Request, Response, Routes};
use toolbay_policy::capability::net::{self, Allowed, NetRule, Target};
use toolbay_policy::{Key, OpenApi};
use url::Url;

use super::exchange;
use super::seam;
use super::session::{NetError, Own, Session};
use crate::capability::secrets::{Held, Tokens};
use crate::capability::{Granted, Principal};
use crate::engine::bindings::host::http_client::{HttpRequest, HttpResponse};

/// What is known of a service when its requests are judged.
#[derive(Debug)]
pub(crate) struct Service {
    /// Its section of the policy.
    pub(crate) about: Arc<OpenApi>,
    /// Methods and origins of its included operations, as far as the profile of the call reaches.
    pub(crate) own: Vec<NetRule>,
    /// Where else it may redirect to.
    pub(crate) more: Vec<NetRule>,
    /// The requests of its operations.
    pub(crate) routes: Arc<Routes>,
}

impl Service {
    /// How far a request is let through; `first` is one that the host made.
    pub(super) fn judge(&self, target: &Target, url: &Url, first: bool) -> Result<Allowed, Option<String>> {
        let own = first || self.routes.include(target.method(), url);
        let judged = if own { net::judge(&self.own, target) } else { Err(None) };
        judged.or_else(|why| net::judge(&self.more, target).map_err(|other| why.or(other)))
    }
}

/// Sends a request and reads the whole response, of which `most` bytes are wanted.
///
/// # Errors
/// Why there is none; without values of secrets.
pub(crate) async fn send(
    mut request: Request,
    most: u64,
    who: Principal,
    deadline: Instant,
) -> Result<Response, NetError> {
    let tokens = Tokens::default();
    let query = put(&who, &tokens, &mut request)?;
    let url = Url::parse(&request.url).map_err(|e| NetError::Invalid(format!("no URL: {e}")))?;
    let own = Own { method: request.method, url, query };
    let session = Session::of_service(who, deadline, own, tokens)?;
    let request = HttpRequest {
        method: request.method.to_owned(),
        url: request.url,
        headers: request.headers,
        body: request.body,
        timeout_ms: None,
        max_response_bytes: Some(most.min(session.bytes_left().0)),
    };
    let fetched = tokio::time::timeout(session.time(None), exchange::fetch(&session, request)).await;
    let fetched = fetched.unwrap_or(Err(NetError::Timeout)).map_err(|error| seam::error(&session, error))?;
    let HttpResponse { status, headers, body, truncated, .. } = fetched;
    Ok(Response { status, headers, body, truncated })
}

/// Puts stand-ins into the headers, which are swapped where every other is, and names what goes into the query.
fn put(
    who: &Principal,
    tokens: &Tokens,
    request: &mut Request,
) -> Result<Vec<(String, Arc<Held>)>, NetError> {
    let mut query = Vec::new();
    let Some(granted) = &who.granted else { return Err(NetError::Denied(who.nothing_now())) };
    for Credential { secret, placement } in std::mem::take(&mut request.credentials) {
        check(who, granted, &secret)?;
        let held = granted.services.secrets.held(&secret).map_err(NetError::Denied)?;
        let text = tokens.issue(held).map_err(NetError::Transport)?;
        let (name, value) = match placement {
            Placement::Header { name, prefix } => (name, format!("{prefix}{text}")),
            Placement::Basic => ("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(text))),
            Placement::Cookie(name) => {
                if !held.fits_cookie() {
                    let text = format!("the value of the secret `{secret}` cannot stand in a cookie");
                    return Err(NetError::Denied(text));
                }
                let others = request.headers.iter().find(|(one, _)| one.eq_ignore_ascii_case("cookie"));
                let others = others.map(|(_, value)| format!("{value}; ")).unwrap_or_default();
                ("Cookie".to_owned(), format!("{others}{name}={text}"))
            }
            Placement::Query(name) => {
                query.push((name, Arc::clone(held)));
                continue;
            }
        };
        request.headers.retain(|(one, _)| !one.eq_ignore_ascii_case(&name));
        request.headers.push((name, value));
    }
    Ok(query)
}

/// Whether the profile of the call reaches a secret; notes that it is used.
fn check(who: &Principal, granted: &Granted, secret: &str) -> Result<(), NetError> {
    let allowed = granted.grants.secrets.iter().any(|rule| rule.matches(secret));
    who.note(Key::Secrets, secret, allowed);
    if allowed {
        return Ok(());
    }
    let profile = who.profile().unwrap_or_default();
    let text = format!("the secret `{secret}` is beyond the profile `{profile}`");
    Err(NetError::Denied(who.refuse_with(&text, || format!("See `secrets` in [profile.{profile}]."))))
}
