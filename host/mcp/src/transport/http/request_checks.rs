//! The way of one request to whoever answers it, and of the response back.

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

use super::body::{self, HoldingBody};
use super::clients::{Client, QuotaKind};
use super::connections::network;
use super::dispatch::Dispatch;
use super::endpoints::Endpoint;
use super::refused::because;
use super::route::Source;
use super::{Settings, State, answer, route};
use crate::auth::{self, CredentialValidity, Principal, Refusal};

/// Longest name of a profile in a path, in bytes.
const MAX_PROFILE: usize = 128;

/// How long a request that is cut off may take to answer: a cancelled call has a second to end.
const OWN_ANSWER: Duration = Duration::from_millis(1500);

type Answer = Box<Response<Body>>;

/// Serves one request to an endpoint.
pub(super) async fn serve(state: &Arc<State>, profile: Option<&str>, request: Request) -> Response<Body> {
    let settings = state.settings.load_full();
    let (mut parts, body) = request.into_parts();
    let Some(source) = parts.extensions.remove::<Source>() else {
        return answer::text(StatusCode::INTERNAL_SERVER_ERROR, "the request belongs to no connection");
    };
    let client = source.client_address(&parts.headers, &settings.serve);
    let named = settings.hosts.host(&parts.uri, &parts.headers);
    let named = named.and_then(|host| Ok((host, settings.hosts.origin(&parts.headers)?)));
    let (host, page) = match named {
        Ok(named) => named,
        Err(problem) => {
            let is_host = settings.hosts.host(&parts.uri, &parts.headers).is_err();
            let response = answer::error(StatusCode::FORBIDDEN, ErrorCode::INVALID_REQUEST, problem, None);
            return because(response, if is_host { "host" } else { "origin" });
        }
    };
    let mut response = if parts.method == Method::OPTIONS && parts.headers.contains_key(ORIGIN) {
        answer::preflight()
    } else {
        let checks = RequestChecks { state, settings: &settings, source, client, profile, host: &host };
        checks.answer(parts, body).await.unwrap_or_else(|refusal| *refusal)
    };
    answer::for_page(&mut response, page.as_deref());
    response
}

/// The metadata of the endpoint of a profile.
pub(super) fn metadata(
    state: &State,
    profile: Option<&str>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Response<Body> {
    let settings = state.settings.load();
    let host = match settings.hosts.host(uri, headers) {
        Ok(host) => host,
        Err(problem) => return because(answer::text(StatusCode::FORBIDDEN, problem), "host"),
    };
    if !profile.is_none_or(is_plain) {
        return answer::text(StatusCode::NOT_FOUND, "there is no such profile");
    }
    let page = settings.hosts.origin(headers).unwrap_or_default();
    let mut response = match settings.auth.oauth() {
        Some(oauth) if *method == Method::GET || *method == Method::HEAD => {
            let base = base(&settings, &host);
            let resource = match profile {
                Some(profile) => format!("{base}/mcp/{profile}"),
                None => format!("{base}/mcp"),
            };
            match auth::wanted_scopes(oauth, profile.unwrap_or(auth::NO_PROFILE)) {
                Some(scopes) => answer::metadata(oauth, &resource, &scopes),
                None => answer::text(StatusCode::NOT_FOUND, "no token opens this endpoint"),
            }
        }
        _ => answer::text(StatusCode::NOT_FOUND, "this server takes no tokens of an authorization server"),
    };
    answer::for_page(&mut response, page.as_deref());
    response
}

/// Under which address clients reach this server.
fn base(settings: &Settings, host: &str) -> String {
    settings.serve.public_url.clone().unwrap_or_else(|| format!("http://{host}"))
}

/// One request that names this server.
struct RequestChecks<'a> {
    state: &'a Arc<State>,
    settings: &'a Arc<Settings>,
    source: Source,
    /// The address of its client.
    client: IpAddr,
    profile: Option<&'a str>,
    host: &'a str,
}

impl RequestChecks<'_> {
    async fn answer(&self, parts: Parts, body: Body) -> Result<Response<Body>, Answer> {
        let limits = &self.settings.serve.limits;
        check_method(&parts.method)?;
        let working = self.source.connection.work();
        let principal = self.principal(&parts.headers).await?;
        let Endpoint { server, gone } = self.endpoint()?;
        let validity = principal.validity(gone);
        let client = self.client(&principal)?;
        if self.state.draining.is_cancelled() {
            let text = "the server is about to end";
            return Err(Box::new(answer::later(StatusCode::SERVICE_UNAVAILABLE, text, answer::SOON)));
        }
        if !client.outbox.drained_in_time().await {
            let text = "the client has not read the answers to its earlier requests; to allow more: [host] \
                        outbox_bytes = …";
            return Err(Box::new(answer::later(StatusCode::TOO_MANY_REQUESTS, text, answer::SOON)));
        }
        // Before its body is read: who sends slowly uses up its own share.
        let kind = kind(&parts);
        let permit = self.state.clients.share(&client, kind, limits);
        let permit = Arc::new(permit.map_err(|full| Box::new(answer::full(full)))?);
        let response = {
            // Pinned where it is made: it is large.
            let mut answering = pin!(async {
                let room = self.state.clients.nothing(&client, QuotaKind::BodyBytes);
                let body = body::read(room, &parts.headers, body, limits).await?;
                let dispatch = Dispatch {
                    state: self.state,
                    settings: self.settings,
                    server: &server,
                    owner: self.owner(&principal),
                    agent: principal.known.then(|| principal.name.to_string()),
                    client: Arc::clone(&client),
                    validity: validity.clone(),
                };
                dispatch.answer(parts, body, Arc::clone(&permit)).await
            });
            if validity.is_expired() {
                return Err(Box::new(answer::over()));
            }
            tokio::select! {
                // Most are answered at once, and need not be told of what may end them.
                biased;
                response = &mut answering => response?,
                () = validity.expired() => return Err(Box::new(answer::over())),
                () = self.cut_off() => return Err(Box::new(answer::cut_off())),
            }
        };
        // What was ended for that may have answered first.
        if validity.is_expired() {
            return Err(Box::new(answer::over()));
        }
        let ends = self.ends(kind, validity);
        Ok(response.map(|body| Body::new(HoldingBody::new(body, ends, (permit, working)))))
    }

    /// Who it is; may they do this?
    async fn principal(&self, headers: &HeaderMap) -> Result<Principal, Answer> {
        let auth = &self.settings.auth;
        let anonymous = self.source.anonymous(self.client);
        let caller = auth.principal(headers, &anonymous, self.profile).await;
        // The token first: a valid one is let in, however many wrong ones came from this address.
        if let Err(Refusal::Unknown { presented: true }) = &caller {
            let counted = self.state.failures.count(network(self.client), &self.settings.serve.limits);
            counted.map_err(|early| {
                let text = "too many wrong tokens from this address; to allow more: [serve.limits] \
                            auth_failures_per_minute = …";
                Box::new(because(answer::later(StatusCode::TOO_MANY_REQUESTS, text, early), "wrong_tokens"))
            })?;
        }
        caller.and_then(|caller| caller.may(self.profile).map(|()| caller)).map_err(|refusal| {
            let profile = self.profile.filter(|profile| is_plain(profile));
            let metadata = route::metadata_address(&base(self.settings, self.host), profile);
            Box::new(answer::refused(&refusal, auth.oauth(), profile, &metadata))
        })
    }

    fn endpoint(&self) -> Result<Endpoint, Answer> {
        let named = self.profile.is_none_or(is_plain);
        let found = named.then(|| self.state.endpoints.get(&self.state.server, self.profile)).flatten();
        found.ok_or_else(|| {
            let text = "the policy has no profile of this name";
            Box::new(answer::error(StatusCode::NOT_FOUND, ErrorCode::INVALID_REQUEST, text, None))
        })
    }

    /// The client, if it keeps to its pace.
    fn client(&self, principal: &Principal) -> Result<Arc<Client>, Answer> {
        let limits = &self.settings.serve.limits;
        let client = self.state.clients.get(&principal.name, limits).ok_or_else(|| {
            let text = "the server has as many clients as it may; to allow more: [serve.limits] clients = …";
            Box::new(answer::later(StatusCode::SERVICE_UNAVAILABLE, text, answer::SOON))
        })?;
        client.pace(limits).map_err(|early| {
            let text = "too many requests a second; to allow more: [serve.limits] requests_per_second = …";
            Box::new(because(
                answer::later(StatusCode::TOO_MANY_REQUESTS, text, early),
                "requests_per_second",
            ))
        })?;
        Ok(client)
    }

    /// Under which name this client has something for this profile alone.
    fn owner(&self, principal: &Principal) -> Arc<str> {
        format!("http:{}/{}", principal.name, self.profile.unwrap_or_default()).into()
    }

    /// Waits until the server ends and what was cut off had time for an answer of its own.
    async fn cut_off(&self) {
        self.state.server.calls.cut_off.cancelled().await;
        tokio::time::sleep(OWN_ANSWER).await;
    }

    /// What ends a response that comes in pieces.
    fn ends(&self, kind: QuotaKind, validity: CredentialValidity) -> impl Future<Output = ()> + Send + use<> {
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

fn check_method(method: &Method) -> Result<(), Answer> {
    if matches!(*method, Method::POST | Method::GET | Method::DELETE) {
        return Ok(());
    }
    let mut response = answer::text(StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE");
    let allow = axum::http::HeaderValue::from_static("POST, GET, DELETE");
    response.headers_mut().insert(axum::http::header::ALLOW, allow);
    Err(Box::new(response))
}

/// What a request takes: `subscriptions/listen` and the stream of a session stay open.
fn kind(parts: &Parts) -> QuotaKind {
    let listens = parts.headers.get("mcp-method").is_some_and(|method| method == "subscriptions/listen");
    if parts.method == Method::GET || listens { QuotaKind::Stream } else { QuotaKind::Request }
}

/// Whether a name can stand in a path as it is.
fn is_plain(profile: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'~');
    profile.bytes().all(legal) && profile.len() <= MAX_PROFILE
}
