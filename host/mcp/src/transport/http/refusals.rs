//! Records refused requests: all of them in the audit, and up to a rate in the log. Above the rate, the log contains
//! counts.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::HOST;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use parking_lot::Mutex;
use toolbay_core::audit::refusals::{RefusalCounter, RefusalHandling, RefusalKind};
use toolbay_core::audit::{self, AuditSink, RefusalCountRecord, RequestRecord};
use toolbay_policy::excerpt;
use toolbay_policy::hint::{Hint, Remedy};

/// Why a request was refused, for the audit. Stored as a response extension.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefusalReason(pub(super) &'static str);

/// How the name of a sender without a token begins.
const ANONYMOUS: &str = "anonymous:";

/// The name of the token that a refused request had, for the audit. Stored as a response extension.
#[derive(Debug, Clone)]
struct TokenName(Arc<str>);

/// Adds the name of a request's token to its response.
pub(super) fn with_token(mut response: Response<Body>, token: Option<&Arc<str>>) -> Response<Body> {
    if let Some(token) = token.filter(|token| !token.starts_with(ANONYMOUS)) {
        response.extensions_mut().insert(TokenName(Arc::clone(token)));
    }
    response
}

/// Adds the reason of a refusal to a response.
pub(super) fn with_reason(mut response: Response<Body>, reason: &'static str) -> Response<Body> {
    response.extensions_mut().insert(RefusalReason(reason));
    response
}

/// What would allow a refused request, for the log. The client does not read it (docs/decisions/0049). Stored as a
/// response extension.
#[derive(Debug, Clone)]
struct RefusalHint(Hint);

/// Adds what would allow the request to a response, for the log.
pub(super) fn with_hint(mut response: Response<Body>, hint: Option<Hint>) -> Response<Body> {
    if let Some(hint) = hint {
        response.extensions_mut().insert(RefusalHint(hint));
    }
    response
}

/// Adds the policy line that raises the limit to a response, for the log. The name of the limit is the reason.
pub(super) fn with_limit(response: Response<Body>, table: &str, key: &'static str) -> Response<Body> {
    let remedy = Remedy::Raise { table: table.to_owned(), key: key.to_owned(), value: None };
    with_reason(with_hint(response, Some(remedy.into())), key)
}

/// Records refused requests, and decides which of them the log lists.
#[derive(Debug, Default)]
pub(super) struct RefusedRequests(Mutex<RefusalCounter>);

/// The facts about a request that its record needs.
pub(super) struct RequestSummary {
    method: Method,
    uri: Uri,
    host: Option<HeaderValue>,
}

impl RequestSummary {
    pub(super) fn from_request(request: &Request<Body>) -> Self {
        let host = request.headers().get(HOST).cloned();
        Self { method: request.method().clone(), uri: request.uri().clone(), host }
    }

    fn record(
        self,
        client: String,
        token: Option<String>,
        reason: &'static str,
        status: StatusCode,
    ) -> RequestRecord {
        let host = self.host.map(|host| audit::cut(&String::from_utf8_lossy(host.as_bytes())));
        RequestRecord {
            client,
            reason,
            status: status.as_u16(),
            token,
            method: audit::cut(self.method.as_str()),
            path: audit::cut(self.uri.path()),
            host,
        }
    }
}

impl RefusedRequests {
    /// Records a request if its response is a refusal: 401, 403, 429, or 400 with a reason. Other refusals are only
    /// logged, if they have a hint. `client` returns the client's address.
    pub(super) fn record(
        &self,
        audit: &dyn AuditSink,
        client: impl FnOnce() -> String,
        request: RequestSummary,
        response: &Response<Body>,
    ) {
        let status = response.status();
        let reason = response.extensions().get::<RefusalReason>().map(|reason| reason.0);
        let hint = response.extensions().get::<RefusalHint>().map(|hint| &hint.0);
        let (reason, is_recorded) = match (status, reason) {
            (StatusCode::UNAUTHORIZED, reason) => (reason.unwrap_or("unauthorized"), true),
            (StatusCode::FORBIDDEN, reason) => (reason.unwrap_or("forbidden"), true),
            (StatusCode::TOO_MANY_REQUESTS, reason) => (reason.unwrap_or("too_many"), true),
            // Headers that contradict each other hide what is asked from a proxy, or from this server.
            (StatusCode::BAD_REQUEST, Some(reason)) => (reason, true),
            (_, Some(reason)) if hint.is_some() => (reason, false),
            _ => return,
        };
        let token = response.extensions().get::<TokenName>().map(|name| audit::cut(&name.0));
        let record = request.record(client(), token, reason, status);
        self.log(&record, hint);
        if is_recorded {
            audit.record_request(record);
        }
    }

    fn log(&self, record: &RequestRecord, hint: Option<&Hint>) {
        let now = Instant::now();
        let mut counter = self.0.lock();
        let counts = counter.due_counts(now);
        let refusal = counter.add(now, &record.client, RefusalKind::of_request(record.reason), &record.path);
        drop(counter);
        counts.into_iter().for_each(log_count);
        if refusal == RefusalHandling::Listed {
            let RequestRecord { client, token, reason, status, .. } = record;
            let token = token.as_deref().unwrap_or_default();
            let path = excerpt::one_line(&record.path, audit::MAX_TEXT);
            let host = record.host.as_deref().map(|host| excerpt::one_line(host, audit::MAX_TEXT));
            let host = host.unwrap_or_default();
            let hint = hint.map(tracing::field::display);
            tracing::warn!(target: "toolbay::audit", client, token, reason, status, path, host, hint, "a request was refused");
        }
    }

    /// Logs the counts that are due.
    pub(super) fn log_due(&self) {
        let counts = self.0.lock().due_counts(Instant::now());
        counts.into_iter().for_each(log_count);
    }
}

fn log_count(count: toolbay_core::audit::refusals::RefusalCount) {
    let RefusalCountRecord { client, reason, count, seconds, .. } = RefusalCountRecord::new("request", count);
    let client = client.unwrap_or_else(|| "several".to_owned());
    tracing::warn!(target: "toolbay::audit", client, reason, count, seconds, "requests were refused");
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_core::audit::MemoryAudit;
    use toolbay_core::audit::refusals::LISTED_PER_CLIENT;

    #[test]
    fn only_refusals_are_recorded_with_their_reason() {
        let (requests, audit) = (RefusedRequests::default(), MemoryAudit::default());
        let answer = |status: u16, reason: Option<&'static str>| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            match reason {
                Some(reason) => with_reason(response, reason),
                None => response,
            }
        };
        for (status, reason, expect) in [
            (401, Some("token_unknown"), Some("token_unknown")),
            (401, None, Some("unauthorized")),
            (403, Some("host"), Some("host")),
            (429, None, Some("too_many")),
            (400, Some("headers"), Some("headers")),
            (400, None, None),
            (200, None, None),
            (404, Some("x"), None),
            (503, None, None),
        ] {
            let long = format!("http://{}/mcp/{}?token=secret", "h".repeat(300), "p".repeat(300));
            let request =
                Request::builder().uri(long).header(HOST, "evil\u{e9}").body(Body::empty()).unwrap();
            let summary = RequestSummary::from_request(&request);
            requests.record(&audit, || "192.0.2.1".to_owned(), summary, &answer(status, reason));
            let found = audit.take_requests().pop();
            assert_eq!(found.as_ref().map(|found| found.reason), expect, "{status}");
            let Some(found) = found else { continue };
            assert_eq!(
                (found.status, found.client.as_str(), found.method.as_str()),
                (status, "192.0.2.1", "GET")
            );
            assert!(found.path.len() <= 100 && !found.path.contains("secret"), "{}", found.path);
            assert!(found.host.is_some());
        }
    }

    #[test]
    fn a_limit_that_is_no_refusal_of_a_client_is_only_logged_with_its_policy_line() {
        let (requests, audit) = (RefusedRequests::default(), MemoryAudit::default());
        for (status, is_recorded) in [
            (StatusCode::REQUEST_TIMEOUT, false),
            (StatusCode::PAYLOAD_TOO_LARGE, false),
            (StatusCode::TOO_MANY_REQUESTS, true),
            (StatusCode::SERVICE_UNAVAILABLE, false),
        ] {
            let mut response = with_limit(Response::new(Body::empty()), "[serve.limits]", "body_bytes");
            *response.status_mut() = status;
            let hint = response.extensions().get::<RefusalHint>().map(|hint| hint.0.to_string());
            let line = "To raise it, write in the policy: [serve.limits] body_bytes = …";
            assert_eq!(hint.as_deref(), Some(line));
            let summary = RequestSummary::from_request(&Request::new(Body::empty()));
            requests.record(&audit, || "192.0.2.1".to_owned(), summary, &response);
            let reason = audit.take_requests().pop().map(|found| found.reason);
            assert_eq!(reason, is_recorded.then_some("body_bytes"), "{status}");
        }
    }

    #[test]
    fn the_log_lists_a_bounded_number() {
        let requests = RefusedRequests::default();
        let record = |n: usize| RequestRecord {
            client: "192.0.2.1".to_owned(),
            reason: "host",
            status: 403,
            token: None,
            method: "GET".to_owned(),
            path: n.to_string(),
            host: None,
        };
        (0..1000).for_each(|n| requests.log(&record(n), None));
        let counts = requests.0.lock().take_counts(Instant::now());
        assert_eq!(counts[0].count, 1000 - u64::from(LISTED_PER_CLIENT));
    }
}
