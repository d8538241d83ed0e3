//! Checks a request before its dispatch: host, origin, authentication, rate and quotas.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::ORIGIN;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use rmcp::model::ErrorCode;
use toolbay_policy::refusal::PolicyRefusal;

use super::bodies::{self, GuardedBody};
use super::clients::{ClientState, QuotaKind};
use super::connections::client_network;
use super::dispatch::Dispatcher;
use super::endpoints::Endpoint;
use super::refusals::{with_hint, with_limit, with_reason, with_token};
use super::request_source::RequestSource;
use super::responses::SERVE_LIMITS;
use super::{HttpState, ServeSettings, responses};
use crate::auth::{self, AuthError, CredentialValidity, Principal, TokenProblem};

/// Path prefix of protected resource metadata (RFC 9728); the path of the resource follows.
pub(super) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Longest name of a profile in a path, in bytes.
const MAX_PROFILE: usize = 128;

/// How long a request may take to respond after a shutdown has cancelled it. A cancelled call has 1 s to end.
const SHUTDOWN_RESPONSE_TIME: Duration = Duration::from_millis(1500);

type RefusalResponse = Box<Response<Body>>;

/// Serves one request to an endpoint.
pub(super) async fn serve(state: &Arc<HttpState>, profile: Option<&str>, request: Request) -> Response<Body> {
    if is_preflight(&request) {
        return answer_preflight(state, request.uri(), request.headers());
    }
    let settings = state.settings.load_full();
    let (mut parts, body) = request.into_parts();
    let Some(source) = parts.extensions.remove::<RequestSource>() else {
        let text = "the request has no connection";
        return responses::error(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::INTERNAL_ERROR, text, None);
    };
    let client = source.client_address(&parts.headers, &settings.serve);
    let (host, page) = match check_names(&settings, &parts.uri, &parts.headers) {
        Ok(named) => named,
        Err(refusal) => return *refusal,
    };
    let checks = RequestChecks { state, settings: &settings, source, client, profile, host: &host };
    let mut response = checks.check_and_dispatch(parts, body).await.unwrap_or_else(|refusal| *refusal);
    responses::add_cors_headers(&mut response, page.as_deref());
    response
}

/// Answers the preflight request of a browser.
pub(super) fn answer_preflight(state: &HttpState, uri: &Uri, headers: &HeaderMap) -> Response<Body> {
    match check_names(&state.settings.load(), uri, headers) {
        Ok((_, page)) => {
            let mut response = responses::preflight(headers);
            responses::add_cors_headers(&mut response, page.as_deref());
            response
        }
        Err(refusal) => *refusal,
    }
}

/// Whether a browser asks if a page may send a request.
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    *request.method() == Method::OPTIONS && request.headers().contains_key(ORIGIN)
}

/// Checks `Host` and `Origin`. Returns the host, and the origin if its pages may read the response.
fn check_names(
    settings: &ServeSettings,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(String, Option<String>), RefusalResponse> {
    let refuse = |reason: &'static str| {
        move |PolicyRefusal { text, hint }| {
            let response = responses::error(StatusCode::FORBIDDEN, ErrorCode::INVALID_REQUEST, text, None);
            Box::new(with_reason(with_hint(response, hint), reason))
        }
    };
    let host = settings.hosts.check_host(uri, headers).map_err(refuse("host"))?;
    let page = settings.hosts.check_origin(headers).map_err(refuse("origin"))?;
    Ok((host, page))
}

/// Responds with the resource metadata of the endpoint of a profile.
pub(super) fn resource_metadata(
    state: &HttpState,
    profile: Option<&str>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Response<Body> {
    let settings = state.settings.load();
    let host = match settings.hosts.check_host(uri, headers) {
        Ok(host) => host,
        Err(PolicyRefusal { text, hint }) => {
            let response = responses::problem(StatusCode::FORBIDDEN, text);
            return with_reason(with_hint(response, hint), "host");
        }
    };
    if !profile.is_none_or(is_plain_name) {
        return responses::problem(StatusCode::NOT_FOUND, "unknown profile");
    }
    let page = settings.hosts.check_origin(headers).unwrap_or_default();
    let mut response = match settings.auth.oauth() {
        Some(oauth) if *method == Method::GET || *method == Method::HEAD => {
            let base = base_url(&settings, &host);
            let resource = match profile {
                Some(profile) => format!("{base}/mcp/{profile}"),
                None => format!("{base}/mcp"),
            };
            match auth::required_scopes(oauth, profile.unwrap_or(auth::NO_PROFILE)) {
                Some(scopes) => responses::resource_metadata(oauth, &resource, &scopes),
                None => responses::problem(StatusCode::NOT_FOUND, "no token grants access to this endpoint"),
            }
        }
        _ => responses::problem(StatusCode::NOT_FOUND, "this server does not use an authorization server"),
    };
    responses::add_cors_headers(&mut response, page.as_deref());
    response
}

/// The base URL of this server.
fn base_url(settings: &ServeSettings, host: &str) -> String {
    settings.serve.public_url.clone().unwrap_or_else(|| format!("http://{host}"))
}

/// The checks of one request.
struct RequestChecks<'a> {
    state: &'a Arc<HttpState>,
    settings: &'a Arc<ServeSettings>,
    source: RequestSource,
    /// The client address.
    client: IpAddr,
    profile: Option<&'a str>,
    host: &'a str,
}

impl RequestChecks<'_> {
    async fn check_and_dispatch(&self, parts: Parts, body: Body) -> Result<Response<Body>, RefusalResponse> {
        let limits = &self.settings.serve.limits;
        check_method(&parts.method)?;
        let working = self.source.connection.begin_use();
        let principal = self.authenticate(&parts.headers).await?;
        let named = |refusal: RefusalResponse| Box::new(with_token(*refusal, Some(&principal.name)));
        let Endpoint { server, removed } = self.endpoint()?;
        let validity = principal.validity(removed);
        let client = self.check_client(&principal).map_err(named)?;
        if self.state.draining.is_cancelled() {
            let text = "the server is shutting down";
            return Err(Box::new(responses::retry_later(
                StatusCode::SERVICE_UNAVAILABLE,
                text,
                responses::RETRY_SOON,
            )));
        }
        if !client.outbox.wait_drained_in_time().await {
            let text = "the limit `outbox_bytes` is reached: the client has not read the responses to its earlier requests";
            let response = responses::retry_later(StatusCode::TOO_MANY_REQUESTS, text, responses::RETRY_SOON);
            let response = with_reason(with_limit(response, "[host]", "outbox_bytes"), "too_many");
            return Err(named(Box::new(response)));
        }
        // Acquired before the body is read, so that slow uploads count against the quota of their client.
        let kind = quota_kind(&parts);
        let permit = self.state.clients.acquire(&client, kind, limits);
        let permit = permit.map_err(|full| named(Box::new(responses::quota_exceeded(full))));
        let permit = Arc::new(permit?);
        let response = {
            // Pinned in place, because the future is large.
            let mut answering = pin!(async {
                let room = self.state.clients.empty_permit(&client, QuotaKind::BodyBytes);
                let body = bodies::read_body(room, &parts.headers, body, limits).await?;
                let dispatch = Dispatcher {
                    state: self.state,
                    settings: self.settings,
                    server: &server,
                    owner: self.owner_name(&principal),
                    agent_id: principal.authenticated.then(|| principal.name.to_string()),
                    client: Arc::clone(&client),
                    client_address: self.client,
                    validity: validity.clone(),
                };
                dispatch.dispatch(parts, body, Arc::clone(&permit)).await
            });
            if validity.is_expired() {
                return Err(named(self.credential_revoked()));
            }
            tokio::select! {
                // Most requests are answered at once, so the other branches are rarely polled.
                biased;
                response = &mut answering => response.map_err(named)?,
                () = validity.expired() => return Err(named(self.credential_revoked())),
                () = self.wait_shutdown() => return Err(Box::new(responses::shutting_down())),
            }
        };
        // A request cancelled by the expiry may have responded first.
        if validity.is_expired() {
            return Err(named(self.credential_revoked()));
        }
        let ends = self.response_end(kind, validity);
        Ok(response.map(|body| Body::new(GuardedBody::new(body, ends, (permit, working)))))
    }

    /// Authenticates the request, and checks access to the profile.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, RefusalResponse> {
        let auth = &self.settings.auth;
        let anonymous = self.source.anonymous(self.client);
        let principal = auth.authenticate(headers, &anonymous, self.profile).await;
        // Counted only after a failure: a valid token is accepted regardless of wrong ones from this address.
        if let Err(AuthError::Unauthenticated { problem, .. }) = &principal
            && *problem != TokenProblem::Missing
        {
            let counted =
                self.state.failures.record_failure(client_network(self.client), &self.settings.serve.limits);
            counted.map_err(|early| {
                let text = "the limit `auth_failures_per_minute` is reached: too many wrong tokens from this address";
                let response = responses::retry_later(StatusCode::TOO_MANY_REQUESTS, text, early);
                let response = with_limit(response, SERVE_LIMITS, "auth_failures_per_minute");
                Box::new(with_reason(response, "wrong_tokens"))
            })?;
        }
        let refuse = |refusal: &AuthError, token: Option<&Arc<str>>| {
            let (profile, metadata) = self.resource(self.settings);
            let response = responses::unauthorized(refusal, auth.oauth(), profile, &metadata);
            Box::new(with_token(response, token))
        };
        let principal = principal.map_err(|refusal| match &refusal {
            AuthError::Unauthenticated { token, .. } => refuse(&refusal, token.as_ref()),
            _ => refuse(&refusal, None),
        })?;
        match principal.check_profile(self.profile) {
            Ok(()) => Ok(principal),
            Err(refusal) => Err(refuse(&refusal, Some(&principal.name))),
        }
    }

    /// The profile of the endpoint, and the URL of its resource metadata.
    fn resource(&self, settings: &ServeSettings) -> (Option<&str>, String) {
        let profile = self.profile.filter(|profile| is_plain_name(profile));
        (profile, metadata_url(&base_url(settings, self.host), profile))
    }

    /// The response when the credential is no longer valid. The settings that made it invalid say how to get another.
    fn credential_revoked(&self) -> RefusalResponse {
        let settings = self.state.settings.load();
        let (profile, metadata) = self.resource(&settings);
        Box::new(responses::credential_revoked(settings.auth.oauth(), profile, &metadata))
    }

    fn endpoint(&self) -> Result<Endpoint, RefusalResponse> {
        let named = self.profile.is_none_or(is_plain_name);
        let found = named.then(|| self.state.endpoints.get(&self.state.server, self.profile)).flatten();
        found.ok_or_else(|| {
            let text = "unknown profile";
            Box::new(responses::error(StatusCode::NOT_FOUND, ErrorCode::INVALID_REQUEST, text, None))
        })
    }

    /// Returns the client, if it is within its request rate.
    fn check_client(&self, principal: &Principal) -> Result<Arc<ClientState>, RefusalResponse> {
        let limits = &self.settings.serve.limits;
        let client = self.state.clients.get_or_insert(&principal.name, limits);
        let (unavailable, soon) = (StatusCode::SERVICE_UNAVAILABLE, responses::RETRY_SOON);
        let client = client.ok_or_else(|| responses::limit_reached(unavailable, "clients", soon))?;
        // Servers that share state serve the rate together.
        let limit = self.state.server.pipeline.share_of(limits.requests_per_second);
        client.check_rate(limit).map_err(|early| {
            responses::limit_reached(StatusCode::TOO_MANY_REQUESTS, "requests_per_second", early)
        })?;
        Ok(client)
    }

    /// The name of the client within this profile.
    fn owner_name(&self, principal: &Principal) -> Arc<str> {
        format!("http:{}/{}", principal.name, self.profile.unwrap_or_default()).into()
    }

    /// Waits until the server shuts down and cancelled requests had time to respond.
    async fn wait_shutdown(&self) {
        self.state.server.calls.shutdown.cancelled().await;
        tokio::time::sleep(SHUTDOWN_RESPONSE_TIME).await;
    }

    /// The future that ends a streamed response early.
    fn response_end(
        &self,
        kind: QuotaKind,
        validity: CredentialValidity,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (age, draining) = (self.settings.serve.limits.stream_age, self.state.draining.clone());
        async move {
            if kind == QuotaKind::Stream {
                tokio::select! {
                    () = validity.expired() => {}
                    () = draining.cancelled() => {}
                    () = tokio::time::sleep(age) => {}
                }
            } else {
                validity.expired().await;
            }
        }
    }
}

/// The URL of the resource metadata for the endpoint of a profile.
fn metadata_url(base: &str, profile: Option<&str>) -> String {
    match profile {
        Some(profile) => format!("{base}{METADATA_PATH}/mcp/{profile}"),
        None => format!("{base}{METADATA_PATH}/mcp"),
    }
}

fn check_method(method: &Method) -> Result<(), RefusalResponse> {
    if matches!(*method, Method::POST | Method::GET | Method::DELETE) {
        return Ok(());
    }
    let (status, code) = (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::INVALID_REQUEST);
    let mut response = responses::error(status, code, "the endpoint takes POST, GET and DELETE", None);
    let allow = axum::http::HeaderValue::from_static("POST, GET, DELETE");
    response.headers_mut().insert(axum::http::header::ALLOW, allow);
    Err(Box::new(response))
}

/// The quota of a request. `subscriptions/listen` and the stream of a session stay open and count as streams.
fn quota_kind(parts: &Parts) -> QuotaKind {
    let listens = parts.headers.get("mcp-method").is_some_and(|method| method == "subscriptions/listen");
    if parts.method == Method::GET || listens { QuotaKind::Stream } else { QuotaKind::Request }
}

/// Whether a name needs no escaping in a path.
fn is_plain_name(profile: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'~');
    profile.bytes().all(legal) && profile.len() <= MAX_PROFILE
}
