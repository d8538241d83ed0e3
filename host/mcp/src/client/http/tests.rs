//! A server over HTTP in this process.

use std::borrow::Cow;
use std::path::Path;

use serde_json::json;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::{ConnectorError, OAuthRequest, ServerConnector, ServerProcess};
use toolbay_policy::mcp_server::{ServerTransport, StdioServerConfig};
use toolbay_policy::name::PluginId;

use super::super::inbox::tests::NullConnector;
use super::*;

/// The status, the Content-Type and the body of an answer.
type Answer = (u16, Option<&'static str>, String);
/// What a server does with the session, the method and the id of a request.
type Respond = dyn Fn(Option<&str>, &str, &Value) -> Answer + Send + Sync;

/// A server over HTTP in this process.
struct Peer {
    answer: Box<Respond>,
    pings: std::sync::atomic::AtomicUsize,
    lost: Arc<LostSessions>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

impl Peer {
    fn new(answer: impl Fn(Option<&str>, &str, &Value) -> Answer + Send + Sync + 'static) -> Arc<Self> {
        let pings = std::sync::atomic::AtomicUsize::new(0);
        Arc::new(Self { answer: Box::new(answer), pings, lost: Arc::default() })
    }

    fn pings(&self) -> usize {
        self.pings.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl ServerConnector for Peer {
    fn start<'a>(
        &'a self,
        name: &'a PluginId,
        child: &'a StdioServerConfig,
    ) -> BoxFuture<'a, Result<ServerProcess, ConnectorError>> {
        NullConnector.start(name, child)
    }

    fn send<'a>(
        &'a self,
        _: &'a PluginId,
        _: &'a HttpServerConfig,
        request: ConnectorRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
        let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let method = sent["method"].as_str().unwrap_or_default();
        if method == "ping" {
            self.pings.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let session = request.headers.iter().find(|(name, _)| name == SESSION_HEADER);
        let (status, kind, body) = (self.answer)(session.map(|(_, id)| id.as_str()), method, &sent["id"]);
        if (300..=399).contains(&status) {
            return Box::pin(async move { Err(ConnectorError::Redirected(status, body)) });
        }
        let mut headers = vec![(SESSION_HEADER.to_owned(), "s-1".to_owned())];
        headers.extend(kind.map(|kind| ("content-type".to_owned(), kind.to_owned())));
        let body: BodyStream = Box::pin(futures_util::stream::iter([Ok(body.into_bytes())]));
        Box::pin(async move { Ok(ConnectorResponse { status, headers, body }) })
    }

    fn send_oauth<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a HttpServerConfig,
        request: OAuthRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
        NullConnector.send_oauth(name, endpoint, request)
    }

    fn secrets_fingerprint(&self, child: &StdioServerConfig) -> u64 {
        NullConnector.secrets_fingerprint(child)
    }

    fn is_protected_path(&self, path: &Path, writing: bool) -> bool {
        NullConnector.is_protected_path(path, writing)
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        NullConnector.redact(text)
    }
}

fn link(peer: &Arc<Peer>) -> Arc<HttpLink> {
    let text = "version = 1\n[mcp.s]\nurl = \"http://127.0.0.1:1/\"\n";
    let policy = toolbay_policy::Policy::parse(text, Path::new("/work"), None).unwrap();
    let ServerTransport::Http(endpoint) = &policy.mcp_server("s").unwrap().transport else { panic!() };
    let connector: Arc<dyn ServerConnector> = Arc::<Peer>::clone(peer);
    let inbox = Arc::new(Inbox::new(PluginId::new("s").unwrap(), connector, None));
    Arc::new(HttpLink::new((**endpoint).clone(), None, inbox, Arc::clone(&peer.lost)))
}

async fn ask(link: &Arc<HttpLink>, id: u64, method: &str) -> Result<String, LinkError> {
    let body = message::encode_request(id, method, &json!({}));
    let request = LinkRequest { id, method, body, headers: Vec::new() };
    link.request(request).await.map(|result| result.get().to_owned())
}

/// A connection with a session.
async fn begun(peer: &Arc<Peer>) -> Arc<HttpLink> {
    let link = link(peer);
    ask(&link, 1, "initialize").await.unwrap();
    link.set_negotiated("2025-11-25", false);
    link
}

fn ok(id: &Value) -> Answer {
    (200, Some("application/json"), json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string())
}

fn error(id: &Value, code: i64) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_is_noticed_whatever_the_server_answers() {
    type Refuse = fn(&Value) -> Answer;
    const JSON: Option<&str> = Some("application/json");
    let refusals: [(&str, Refuse); 22] = [
        ("-32001", |id| (200, Some("application/json"), error(id, -32001))),
        ("-32000", |id| (200, Some("application/json"), error(id, -32000))),
        ("-32600", |id| (200, Some("application/json"), error(id, -32600))),
        ("a null id", |_| (200, Some("application/json"), error(&Value::Null, -32001))),
        ("an event", |id| (200, Some("text/event-stream"), format!("data: {}\n\n", error(id, -32001)))),
        ("302", |_| (302, None, String::new())),
        ("404", |_| (404, Some("text/plain"), "what?".to_owned())),
        ("500", |id| (500, Some("application/json"), error(id, -32000))),
        ("503", |_| (503, None, String::new())),
        ("408", |_| (408, None, String::new())),
        ("415", |_| (415, None, String::new())),
        ("504", |_| (504, None, String::new())),
        ("- -32602", |id| (200, JSON, error(id, -32602))),
        ("- a text", |id| (200, JSON, json!({"jsonrpc": "2.0", "id": id, "error": "expired"}).to_string())),
        ("- a plain error", |_| (200, JSON, r#"{"error": "session expired"}"#.to_owned())),
        ("another id", |_| (200, JSON, error(&json!("server-error"), -32600))),
        ("- the id 0", |_| (200, JSON, error(&json!(0), 1))),
        ("- no outcome", |id| (200, JSON, json!({"jsonrpc": "2.0", "id": id}).to_string())),
        ("- a page", |_| (200, Some("text/html"), "<html>Log in".to_owned())),
        ("- nothing", |_| (200, JSON, String::new())),
        ("- 202", |_| (202, None, String::new())),
        ("- no event", |_| (200, Some("text/event-stream"), String::new())),
    ];
    for (what, refuse) in refusals {
        let peer = Peer::new(move |session, _, id| if session.is_some() { refuse(id) } else { ok(id) });
        let link = begun(&peer).await;
        let refused = ask(&link, 2, "tools/call").await.unwrap_err();
        assert!(link.is_session_lost(), "{what}");
        // The server may have begun a call with an error of its own, or without an answer.
        let runs_again = matches!(refused, LinkError::SessionLost(_));
        assert_eq!(runs_again, !(what.starts_with('5') || what.starts_with("- ")), "{what}");
        // The next call runs in a new session.
        let next = ask(&link, 3, "tools/call").await.unwrap_err();
        assert!(matches!(next, LinkError::SessionLost(_)), "{what}: {next}");
    }
}

#[tokio::test]
async fn a_refusal_for_credentials_keeps_its_policy_line_apart() {
    for status in [401, 403] {
        let peer = Peer::new(move |_, _, _| (status, None, String::new()));
        let error = ask(&link(&peer), 1, "x").await.unwrap_err();
        let text = format!("the server answered with status {status}: it requires credentials");
        assert_eq!(error.to_string(), text);
        let hint = "write in the policy: [mcp.s] bearer = \"NAME\" and [secrets.NAME]";
        assert_eq!(error.refusal().for_operator(), format!("{text}; {hint}"));
        assert_eq!(LinkError::SessionLost(Box::new(error)).refusal().hint, Some(hint.into()));
    }
    // A server's own words are no hint.
    let body = "write in the policy: [mcp.s] sandbox = \"none\"";
    let peer = Peer::new(move |_, _, _| (500, None, body.to_owned()));
    let why = ask(&link(&peer), 1, "x").await.unwrap_err().refusal();
    assert!(why.text.ends_with(body) && why.hint.is_none(), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_with_another_id_names_it() {
    for id in [json!(0), json!("req-77")] {
        let event = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": id, "result": {}}));
        let peer = Peer::new(move |session, _, id| match session {
            Some(_) => (200, Some("text/event-stream"), event.clone()),
            None => ok(id),
        });
        let link = begun(&peer).await;
        let notes = Arc::default();
        let open = link.inbox.requests.open(2, Some(&notes));
        let refused = ask(&link, 2, "tools/call").await.unwrap_err().to_string();
        drop(open);
        assert!(refused.contains(&format!("id {id} ")), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_tools_cost_few_probes_and_no_session() {
    for (code, pings) in [(-32602, 1), (-32603, 0), (-32000, 1)] {
        let peer = Peer::new(move |_, method, id| match method {
            "tools/call" => (200, Some("application/json"), error(id, code)),
            _ => ok(id),
        });
        let link = begun(&peer).await;
        for id in 2..50 {
            let refused = ask(&link, id, "tools/call").await;
            assert!(matches!(refused, Err(LinkError::Rpc(error)) if error.code == code));
        }
        assert_eq!((peer.pings(), link.is_session_lost()), (pings, false), "{code}");
        if pings > 0 {
            tokio::time::advance(2 * super::super::bounds::SESSION_PROBE_INTERVAL).await;
            ask(&link, 50, "tools/call").await.unwrap_err();
            assert_eq!(peer.pings(), 2, "it is asked again later");
        }
    }
    // A server without `ping` knows the session.
    for (code, ping) in [(-32000, -32601), (-32602, -32601), (-32602, -32603)] {
        let peer = Peer::new(move |_, method, id| match method {
            "tools/call" => (200, Some("application/json"), error(id, code)),
            "ping" => (200, Some("application/json"), error(id, ping)),
            _ => ok(id),
        });
        let link = begun(&peer).await;
        ask(&link, 2, "tools/call").await.unwrap_err();
        assert!(!link.is_session_lost(), "{code} {ping}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_no_ping_loses_few_sessions() {
    let peer = Peer::new(|_, method, id| match method {
        "initialize" => ok(id),
        _ => (200, Some("text/html"), "<html>no".to_owned()),
    });
    let mut lost = 0;
    for _ in 0..20 {
        let link = begun(&peer).await;
        ask(&link, 2, "tools/call").await.unwrap_err();
        lost += usize::from(link.is_session_lost());
    }
    assert_eq!(lost, 1);
    tokio::time::advance(2 * super::super::bounds::STABLE_AFTER).await;
    let link = begun(&peer).await;
    ask(&link, 2, "tools/call").await.unwrap_err();
    assert!(link.is_session_lost(), "later, it is found out again");
    // What says nothing of the session costs none.
    let peer = Peer::new(|_, method, id| match method {
        "initialize" => ok(id),
        _ => (429, None, String::new()),
    });
    let link = begun(&peer).await;
    ask(&link, 2, "tools/call").await.unwrap_err();
    assert_eq!((link.is_session_lost(), peer.pings()), (false, 0));
    let peer = Peer::new(|_, method, id| match method {
        "tools/call" => (200, Some("text/html"), "<html>no".to_owned()),
        _ => ok(id),
    });
    let link = begun(&peer).await;
    for id in 2..20 {
        ask(&link, id, "tools/call").await.unwrap_err();
    }
    assert_eq!((link.is_session_lost(), peer.pings()), (false, 1));
}

#[tokio::test]
async fn an_answer_with_odd_values_is_repaired_if_it_has_the_id_of_the_request() {
    for (kind, head) in [("application/json", ""), ("text/event-stream", "data: ")] {
        let answer = move |id: &str| {
            let end = if head.is_empty() { "" } else { "\n\n" };
            format!("{head}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":[NaN,\"a\tb\"]}}{end}")
        };
        let peer = Peer::new(move |_, _, id| (200, Some(kind), answer(&id.to_string())));
        assert_eq!(ask(&link(&peer), 1, "x").await.unwrap(), r#"[null,"a\u0009b"]"#, "{kind}");
        let peer = Peer::new(move |_, _, _| (200, Some(kind), answer("9")));
        assert!(ask(&link(&peer), 1, "x").await.is_err(), "{kind}");
    }
}

#[tokio::test]
async fn json_is_read_under_any_media_type() {
    for kind in [
        None,
        Some("text/plain; charset=utf-8"),
        Some("text/html"),
        Some("Application/JSON-RPC"),
        Some("application/octet-stream"),
        Some(""),
    ] {
        let peer = Peer::new(move |_, _, id| (200, kind, format!("\u{feff}\n {}", ok(id).2)));
        assert!(ask(&link(&peer), 1, "x").await.is_ok(), "{kind:?}");
    }
    for (kind, part) in [
        (Some("text/html;\u{1b}x"), "status 200, Content-Type `text/html;\\u{1b}x` and no JSON"),
        (None, "no Content-Type"),
    ] {
        let peer = Peer::new(move |_, _, _| (200, kind, "<html>Log in".to_owned()));
        let why = ask(&link(&peer), 1, "x").await.unwrap_err().to_string();
        assert!(why.contains(part) && why.contains("`url`") && why.contains("<html>Log in"), "{why}");
    }
}

#[tokio::test]
async fn reading_a_long_response_delays_no_call() {
    for text in super::super::stdio::tests::long_texts() {
        for (kind, before, after) in [("application/json", "", ""), ("text/event-stream", "data: ", "\n\n")] {
            let body = format!("{before}{}{after}", &text[..text.len() - before.len()]);
            let server = Peer::new(move |_, _, _| (200, Some(kind), body.clone()));
            let reading = tokio::spawn(async move { drop(ask(&link(&server), 1, "x").await) });
            let ((), delay) = canary::run_beside(reading, async || ()).await;
            assert!(delay <= canary::MAX_DELAY, "{kind}, {delay:?}: {}", &text[..80]);
        }
    }
}
