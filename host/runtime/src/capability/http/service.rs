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
use toolbay_core::call::CallContext;
use toolbay_openapi::{Credential, Placement, Routes};
use toolbay_policy::capability::net::{self, Allowed, NetRule, Target};
use toolbay_policy::limits::Limits;
use toolbay_policy::refusal::not_permitted;
use toolbay_policy::{Key, OpenApi};
use url::Url;

use super::exchange;
use super::seam;
use super::session::{NetError, Own, Session};
use crate::capability::Granted;
use crate::capability::secrets::Tokens;
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

/// One request of a service, before secrets are put into it.
#[derive(Debug)]
pub(crate) struct ServiceRequest {
    /// The method.
    pub(crate) method: &'static str,
    /// The whole URL.
    pub(crate) url: String,
    /// Header fields.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Option<Vec<u8>>,
    /// Secrets, each with its place.
    pub(crate) credentials: Vec<Credential>,
    /// Where the body of the response is cut.
    pub(crate) most: u64,
}

/// Who sends a request, and within which bounds.
#[derive(Debug)]
pub(crate) struct Sender {
    /// What may be reached.
    pub(crate) granted: Arc<Granted>,
    /// Its limits.
    pub(crate) limits: Arc<Limits>,
    /// The call; `None`: the host itself, for a document.
    pub(crate) ctx: Option<Arc<CallContext>>,
    /// When it has to be done.
    pub(crate) deadline: Instant,
}

impl Sender {
    /// Sends a request and reads the whole response.
    ///
    /// # Errors
    /// Why there is none; without values of secrets.
    pub(crate) async fn send(self, mut request: ServiceRequest) -> Result<HttpResponse, NetError> {
        let tokens = Tokens::default();
        let query = self.put(&tokens, &mut request)?;
        let url = Url::parse(&request.url).map_err(|e| NetError::Invalid(format!("no URL: {e}")))?;
        let own = Own { method: request.method, url, query };
        let name = self.granted.service.as_ref().map(|service| service.about.name.clone());
        let name = name.ok_or_else(|| NetError::Denied("it belongs to no service".to_owned()))?;
        let session = Session::of_service(self, name, own, tokens);
        let request = HttpRequest {
            method: request.method.to_owned(),
            url: request.url,
            headers: request.headers,
            body: request.body,
            timeout_ms: None,
            max_response_bytes: Some(request.most.min(session.bytes_left().0)),
        };
        let fetched = tokio::time::timeout(session.time(None), exchange::fetch(&session, request)).await;
        fetched.unwrap_or(Err(NetError::Timeout)).map_err(|error| seam::error(&session, error))
    }

    /// Puts stand-ins into the headers, which are swapped where every other is, and names what goes into the query.
    fn put(
        &self,
        tokens: &Tokens,
        request: &mut ServiceRequest,
    ) -> Result<Vec<(String, Arc<crate::capability::secrets::Held>)>, NetError> {
        let mut query = Vec::new();
        for Credential { secret, placement } in std::mem::take(&mut request.credentials) {
            self.check(&secret)?;
            let vault = &self.granted.services.secrets;
            let held = vault.held(&secret).map_err(NetError::Denied)?;
            let text = tokens.issue(held).map_err(NetError::Transport)?;
            let (name, value) = match placement {
                Placement::Header { name, prefix } => (name, format!("{prefix}{text}")),
                Placement::Basic => ("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(text))),
                Placement::Cookie(name) => {
                    if !held.fits_cookie() {
                        let text = format!("the value of the secret `{secret}` can not stand in a cookie");
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
    fn check(&self, secret: &str) -> Result<(), NetError> {
        let granted = self.granted.grants.secrets.iter().any(|rule| rule.matches(secret));
        if let Some(ctx) = &self.ctx {
            ctx.note(Key::Secrets.name(), secret, granted);
        }
        if granted {
            return Ok(());
        }
        let profile = self.ctx.as_ref().and_then(|ctx| ctx.profile.clone());
        let profile = profile.as_deref().unwrap_or_default();
        let text = format!("the secret `{secret}` is beyond the profile `{profile}`");
        Err(NetError::Denied(match &self.ctx {
            Some(ctx) => {
                ctx.advise(format!("{text}. See `secrets` in [profile.{profile}]."));
                format!("{text}: {}", not_permitted(&ctx.tool))
            }
            None => text,
        }))
    }
}
