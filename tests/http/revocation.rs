//! Calls, streams, sessions and tasks end when their basis ends: a revoked or expired token, a stricter policy, a
//! removed endpoint.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolbay::policy::serve::{OAuthPolicy, ServePolicy};
use toolbay_mcp::Options;

use super::auth::{OAUTH, desk, desk_with, write};
use super::fixture::{FakeAuthorizationServer, HttpFixture, MODERN, RawConnection, keys};

const SLEEP: &str = "s__sleep";

fn sleeps() -> Value {
    json!({"name": SLEEP, "arguments": {}})
}

fn listens() -> Value {
    json!({"notifications": {"toolsListChanged": true}})
}

/// The outcomes of this many calls, sorted.
async fn outcomes(desk: &HttpFixture, calls: usize) -> Vec<(String, String)> {
    let record = |record: &toolbay::core::audit::AuditRecord| {
        (record.agent_id.clone().unwrap_or_default(), record.outcome.to_owned())
    };
    let mut outcomes: Vec<_> = desk.records(calls).await.iter().map(record).collect();
    outcomes.sort();
    outcomes
}

fn cancelled(who: &str) -> (String, String) {
    (who.to_owned(), "cancelled".to_owned())
}

/// Waits until the stream has ended normally.
async fn ends(wire: &mut RawConnection) {
    wire.until("0\r\n\r\n").await;
}

#[tokio::test]
async fn revoking_a_token_ends_only_its_calls_in_both_eras() {
    let (desk, file) = desk(&[("a", "token-a", ""), ("b", "token-b", "")]).await;
    let places = desk.host.host.available_call_permits();
    let mut modern = desk.modern("tools/call", sleeps()).bearer("token-a").open().await;
    let session = desk.begin_with(|ask| ask.bearer("token-a")).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": sleeps()});
    let mut legacy = desk.post(&call).session(&session).bearer("token-a").open().await;
    let stream = desk.get("/mcp").session(&session).bearer("token-a").header("accept", "text/event-stream");
    let mut stream = stream.open().await;
    stream.until("\r\n\r\n").await;
    let held = desk.held_tool();
    let mut other = desk.modern("tools/call", json!({"name": "held"})).bearer("token-b").open().await;
    desk.until_running(2, places).await;
    held.until_begun(&desk, 1).await;

    write(&file, &[("b", "token-b", "")]);
    desk.http.reload_files().unwrap();
    let refused = modern.answer().await;
    assert_eq!(refused.status, 401, "{refused:?}");
    assert!(refused.header("www-authenticate").unwrap().contains("invalid_token"));
    ends(&mut legacy).await;
    ends(&mut stream).await;
    desk.until_running(0, places).await;
    assert_eq!(desk.http.counts().sessions, 0, "nobody can use it any more");
    held.end(1);
    assert_eq!(other.answer().await.json()["result"]["content"][0]["text"], "held");
    assert_eq!(
        outcomes(&desk, 3).await,
        [cancelled("token:a"), cancelled("token:a"), ("token:b".into(), "ok".into())]
    );
}

#[tokio::test]
async fn a_task_ends_with_its_token_too() {
    // The call becomes a task at once.
    let options = Options { task_after: Duration::ZERO, ..Options::default() };
    let (desk, file) = desk_with(&[("a", "token-a", "")], options).await;
    let places = desk.host.host.available_call_permits();
    let mut params = sleeps();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let ask = desk.post(&body).modern_headers("tools/call", &params).bearer("token-a");
    let mut wire = ask.open().await;
    let created = wire.answer().await.json();
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    desk.until_running(1, places).await;
    write(&file, &[]);
    desk.http.reload_files().unwrap();
    desk.until_running(0, places).await;
    assert_eq!(outcomes(&desk, 1).await, [cancelled("token:a")]);
}

#[tokio::test]
async fn anonymous_streams_end_when_authentication_is_enabled() {
    let desk = HttpFixture::new("").await;
    let places = desk.host.host.available_call_permits();
    let mut call = desk.modern("tools/call", sleeps()).open().await;
    let mut listening = desk.modern("subscriptions/listen", listens()).open().await;
    listening.until("acknowledged").await;
    desk.begin().await;
    desk.until_running(1, places).await;

    // An unreadable policy ends nothing.
    let file = desk.host.root().join("tokens.toml");
    let asks = ServePolicy { tokens: Some(file.clone()), ..ServePolicy::default() };
    assert!(desk.http.reload(asks.clone()).is_err());
    desk.host.load("f", guest_artifacts::API_ECHO).await;
    desk.server.notify_changed();
    listening.until("list_changed").await;
    assert_eq!(desk.http.counts().sessions, 1);

    write(&file, &[("a", "token-a", "")]);
    desk.http.reload(asks).unwrap();
    ends(&mut listening).await;
    assert_eq!(call.answer().await.status, 401);
    desk.until_running(0, places).await;
    assert_eq!(desk.http.counts().sessions, 0);
    assert_eq!(outcomes(&desk, 1).await, [cancelled("")]);
}

#[tokio::test]
async fn tokens_of_an_authorization_server_end_with_their_time_their_key_and_their_policy() {
    let issuers =
        [FakeAuthorizationServer::new(), FakeAuthorizationServer::new(), FakeAuthorizationServer::new()];
    let now = Arc::new(Mutex::new(issuers[0].jwks()));
    let served = Arc::clone(&now);
    let desk = HttpFixture::fetching(OAUTH, keys(move || served.lock().unwrap().clone())).await;
    let places = desk.host.host.available_call_permits();
    let audience = || json!("https://tools.example/mcp/few");
    let open = async |token: &str| {
        let ask = |method: &str, params: Value| desk.modern(method, params).path("/mcp/few").bearer(token);
        let mut listening = ask("subscriptions/listen", listens()).open().await;
        listening.until("acknowledged").await;
        let call = ask("tools/call", sleeps()).open().await;
        desk.until_running(1, places).await;
        (listening, call)
    };
    let ended = async |(mut listening, mut call): (RawConnection, RawConnection)| {
        ends(&mut listening).await;
        let refused = call.answer().await;
        assert_eq!(refused.status, 401);
        let challenge = refused.header("www-authenticate").unwrap().to_owned();
        desk.until_running(0, places).await;
        challenge
    };
    let token = |issuer: &FakeAuthorizationServer, seconds: i64| {
        issuer.token_for(&audience(), "alice", "tools", seconds)
    };

    // The expiry of the token. The client can begin to authorize again from the response.
    assert_eq!(
        ended(open(&token(&issuers[0], 4)).await).await,
        "Bearer resource_metadata=\"https://tools.example/.well-known/oauth-protected-resource/mcp/few\", \
         error=\"invalid_token\", scope=\"tools\""
    );

    // The policy for its issuer changes. An unchanged issuer ends nothing.
    let before = desk.host.host.policy().serve().clone();
    let opened = open(&token(&issuers[0], 300)).await;
    desk.http.reload(before.clone()).unwrap();
    let oauth = before.oauth.clone().unwrap();
    let stricter = OAuthPolicy { scopes: ["tools".to_owned(), "more".to_owned()].into(), ..oauth.clone() };
    assert_eq!(desk.host.host.available_call_permits(), places - 1);
    desk.http.reload(ServePolicy { oauth: Some(stricter), ..before.clone() }).unwrap();
    assert!(ended(opened).await.ends_with("scope=\"more tools\""), "what the new policy requires");

    // The key changes in its file, while the policy section stays the same.
    let file = desk.host.root().join("keys.json");
    std::fs::write(&file, issuers[1].jwks().to_string()).unwrap();
    let oauth = OAuthPolicy { jwks: file.to_string_lossy().into_owned(), ..oauth };
    desk.http.reload(ServePolicy { oauth: Some(oauth), ..before }).unwrap();
    let opened = open(&token(&issuers[1], 300)).await;
    desk.http.reload_files().unwrap();
    assert_eq!(desk.host.host.available_call_permits(), places - 1, "the same key");
    std::fs::write(&file, "nonsense").unwrap();
    assert!(desk.http.reload_files().unwrap_err().contains("keys.json"));
    assert_eq!(desk.host.host.available_call_permits(), places - 1, "nothing can be read");
    std::fs::write(&file, issuers[2].jwks().to_string()).unwrap();
    desk.http.reload_files().unwrap();
    ended(opened).await;
    let asked = |issuer: &FakeAuthorizationServer| {
        desk.modern("tools/list", json!({})).path("/mcp/few").bearer(&token(issuer, 300))
    };
    assert_eq!(asked(&issuers[1]).send().await.status, 401);
    assert_eq!(asked(&issuers[2]).send().await.status, 200);
    assert_eq!(outcomes(&desk, 3).await, vec![cancelled("oauth:alice"); 3]);
}

#[tokio::test]
async fn removing_an_endpoint_ends_its_streams() {
    let desk = HttpFixture::new("[profile.few]\n[profile.more]\n").await;
    let places = desk.host.host.available_call_permits();
    let open = async |path: &str| {
        let mut wire = desk.modern("subscriptions/listen", listens()).path(path).open().await;
        wire.until("acknowledged").await;
        wire
    };
    let (mut few, mut more) = (open("/mcp/few").await, open("/mcp/more").await);
    let mut call = desk.modern("tools/call", sleeps()).path("/mcp/few").open().await;
    desk.until_running(1, places).await;
    let policy = integration_tests::policy("[profile.more]\n", &desk.host.root());
    desk.host.host.reload_policy(policy).await.unwrap();
    desk.http.reload(desk.host.host.policy().serve().clone()).unwrap();
    ends(&mut few).await;
    assert_eq!(call.answer().await.status, 401);
    desk.until_running(0, places).await;
    desk.host.load("f", guest_artifacts::API_ECHO).await;
    desk.server.notify_changed();
    more.until("list_changed").await;
}
