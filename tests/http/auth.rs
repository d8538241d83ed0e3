//! Authentication over HTTP: who gets access, and that no client reaches the state of another.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use integration_tests::TestHost;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolbay::policy::serve::ServePolicy;
use toolbay_mcp::http::{McpHttpServer, ShutdownSignals};
use toolbay_mcp::{KeyFetcher, Options};

use super::fixture::{FakeAuthorizationServer, HANGS, HttpFixture, RequestBuilder, keys};

fn list() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
}

fn sha256(token: &str) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn write(file: &Path, tokens: &[(&str, &str, &str)]) {
    let lines = tokens.iter().map(|(name, token, more)| {
        format!("[[token]]\nname = \"{name}\"\nsha256 = \"{}\"\n{more}\n", sha256(token))
    });
    std::fs::write(file, lines.collect::<String>()).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

const POLICY: &str =
    "[serve]\ntokens = \"tokens.toml\"\n[profile.few]\ntools = [\"e__echo\"]\n[profile.other]\n";

/// A server with these tokens, and the token file.
pub(crate) async fn desk(tokens: &[(&str, &str, &str)]) -> (HttpFixture, PathBuf) {
    desk_with(tokens, Options { list_wait: HANGS, ..Options::default() }).await
}

pub(crate) async fn desk_with(tokens: &[(&str, &str, &str)], options: Options) -> (HttpFixture, PathBuf) {
    let mut file = PathBuf::new();
    let host = TestHost::built(POLICY, |builder, root| {
        file = root.join("tokens.toml");
        write(&file, tokens);
        builder
    });
    host.load("e", guest_artifacts::API_ECHO).await;
    host.load("s", guest_artifacts::HOSTILE_SLEEP).await;
    (HttpFixture::with(host, KeyFetcher::disabled(), options, |server| server).await, file)
}

#[tokio::test]
async fn a_token_opens_only_its_endpoints() {
    let (desk, _) =
        desk(&[("all", "token-of-all", ""), ("few", "token-of-few", "profiles = [\"few\"]")]).await;
    let ask = |token: &str, path: &str| {
        let ask = desk.modern("tools/list", json!({})).path(path);
        if token.is_empty() { ask } else { ask.bearer(token) }
    };
    for (token, path, status) in [
        ("token-of-all", "/mcp", 200),
        ("token-of-all", "/mcp/few", 200),
        ("token-of-all", "/mcp/unknown", 404),
        ("token-of-few", "/mcp/few", 200),
        ("token-of-few", "/mcp", 403),
        ("token-of-few", "/mcp/other", 403),
        ("token-of-few", "/mcp/unknown", 403),
        ("token-of-fex", "/mcp/few", 401),
        ("", "/mcp", 401),
        ("", "/mcp/unknown", 401),
    ] {
        let answer = ask(token, path).send().await;
        assert_eq!(answer.status, status, "{token} {path}: {}", answer.body);
        let challenge = answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer "));
        assert_eq!(challenge, status == 401, "{token} {path}");
        assert!(!answer.body.contains("token-of"), "{}", answer.body);
    }
    // Refused requests name their token, if it is one.
    let requests = desk.host.audit.take_requests();
    for (status, reason, token) in
        [(403, "profile", Some("token:few")), (401, "token_unknown", None), (401, "token_missing", None)]
    {
        let found = requests.iter().find(|request| (request.status, request.reason) == (status, reason));
        assert_eq!(found.map(|request| request.token.as_deref()), Some(token), "{reason}: {requests:?}");
    }
    let sha256 = sha256("token-of-all");
    for wrong in [
        "Basic dG9rZW4=",
        "Bearer",
        "Bearer ",
        "token-of-all",
        "Bearer token-of-all x",
        &format!("Bearer {sha256}"),
    ] {
        let answer = ask("", "/mcp").header("authorization", wrong).send().await;
        assert_eq!(answer.status, 401, "{wrong}");
    }
    let two = ask("token-of-all", "/mcp").another("authorization", "Bearer token-of-few").send().await;
    assert_eq!((two.status, two.code()), (400, -32020));
    let equal = ask("token-of-all", "/mcp").another("authorization", "Bearer token-of-all").send().await;
    assert_eq!(equal.status, 200);
    let long = ask(&"x".repeat(20_000), "/mcp").send().await;
    assert_eq!(long.status, 401);
    // Health checks need no token and reveal nothing.
    assert_eq!(desk.get("/healthz").send().await.body, "ok\n");
    assert_eq!(desk.get("/.well-known/oauth-protected-resource").send().await.status, 404);
}

#[tokio::test]
async fn two_clients_share_nothing() {
    let (desk, _) = desk(&[("a", "token-a", ""), ("b", "token-b", "")]).await;
    let result = |token: &'static str, tool: &str, args: Value| {
        let ask = desk.modern("tools/call", json!({"name": tool, "arguments": args})).bearer(token);
        async move { ask.send().await.json()["result"].clone() }
    };
    let long = result("token-a", "e__long", json!({"n": 200_000})).await;
    let link = long["content"].as_array().unwrap().iter().find(|block| block["type"] == "resource_link");
    let uri = link.unwrap()["uri"].as_str().unwrap().to_owned();
    let read = |token: &'static str, label: &str| {
        let ask =
            desk.modern("resources/read", json!({"uri": uri})).bearer(token).header("toolbay-session", label);
        async move { ask.send().await.json() }
    };
    assert!(read("token-a", "").await["result"].is_object());
    for label in ["", "x", "http:token:a/", "#", "a/"] {
        assert!(read("token-b", label).await["error"].is_object(), "{label}");
    }
    let kept = desk.modern("resources/list", json!({})).bearer("token-b").send().await.json();
    assert_eq!(kept["result"]["resources"], json!([]));

    // Tools and the audit get the client's label. A label cannot imitate another one.
    let who = |token: &'static str, label: &'static str| {
        let params = json!({"name": "e__ctx", "arguments": {}});
        let ask = desk.modern("tools/call", params).bearer(token).header("toolbay-session", label);
        async move { ask.send().await.json()["result"]["structuredContent"].clone() }
    };
    let (a, b, labelled) = (who("token-a", "").await, who("token-b", "").await, who("token-b", "a").await);
    assert_eq!((&a["agent_id"], &b["agent_id"]), (&json!("token:a"), &json!("token:b")));
    assert_eq!(labelled["agent_id"], "token:b");
    assert_eq!(
        std::collections::BTreeSet::from([&a, &b, &labelled].map(|who| who["session_id"].to_string())).len(),
        3
    );
    assert_eq!(desk.host.audit.take().last().unwrap().agent_id.as_deref(), Some("token:b"));

    // A session belongs to its owner, even if others know its id.
    let id = desk.begin_with(|ask| ask.bearer("token-a")).await;
    let in_session = |token: &str| desk.post(&list()).session(&id).bearer(token);
    assert_eq!(in_session("token-b").send().await.status, 404);
    let stream = desk.get("/mcp").session(&id).header("accept", "text/event-stream").bearer("token-b");
    assert_eq!(stream.send().await.status, 404);
    let end = RequestBuilder::new(desk.address, "DELETE", "/mcp").session(&id);
    assert_eq!(end.clone().bearer("token-b").send().await.status, 404);
    assert_eq!(end.clone().send().await.status, 401);
    assert_eq!(in_session("token-a").send().await.status, 200);
    assert_eq!(end.bearer("token-a").send().await.status, 204);
}

#[tokio::test]
async fn revoking_a_token_ends_only_its_streams() {
    let (desk, file) = desk(&[("a", "token-a", ""), ("b", "token-b", "")]).await;
    let listen = |token: &'static str| {
        let params = json!({"notifications": {"toolsListChanged": true}});
        let ask = desk.modern("subscriptions/listen", params).bearer(token);
        async move {
            let mut wire = ask.open().await;
            wire.until("acknowledged").await;
            wire
        }
    };
    let (mut a, mut b) = (listen("token-a").await, listen("token-b").await);
    write(&file, &[("b", "token-b", "")]);
    desk.http.reload_files().unwrap();
    let edits = desk.host.audit.take_actions();
    let edit = edits.iter().find(|edit| edit.action == "tokens").expect("the edit is recorded");
    assert_eq!(edit.reason.as_deref(), Some("removed `token:a`"));
    a.until("0\r\n\r\n").await;
    let asked = |token: &'static str| desk.modern("tools/list", json!({})).bearer(token);
    assert_eq!((asked("token-a").send().await.status, asked("token-b").send().await.status), (401, 200));
    desk.host.load("f", guest_artifacts::API_ECHO).await;
    desk.server.notify_changed();
    b.until("list_changed").await;

    // An unreadable token file changes nothing.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(desk.http.reload_files().unwrap_err().contains("chmod 600"));
    std::fs::remove_file(&file).unwrap();
    assert!(desk.http.reload_files().is_err());
    assert_eq!(asked("token-b").send().await.status, 200);
}

#[tokio::test]
async fn a_public_address_needs_authentication() {
    let host = TestHost::empty("");
    let server = || {
        let (registry, pipeline) = (host.host.registry().clone(), host.host.pipeline().clone());
        toolbay_mcp::Server::new(
            registry,
            pipeline,
            toolbay::Filter::default(),
            toolbay_mcp::Options::default(),
        )
    };
    let make = |serve: ServePolicy, address: &str| {
        McpHttpServer::new(
            server(),
            serve,
            vec![address.parse().unwrap()],
            KeyFetcher::disabled(),
            ShutdownSignals::default(),
        )
        .map(drop)
    };
    for far in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]:80"] {
        let problem = make(ServePolicy::default(), far).unwrap_err();
        for way in ["tokens = ", "[serve.oauth]", "anonymous = true", "127.0.0.1"] {
            assert!(problem.contains(way), "{problem}");
        }
        assert!(make(ServePolicy { anonymous: true, ..ServePolicy::default() }, far).is_ok());
    }
    for near in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80"] {
        assert!(make(ServePolicy::default(), near).is_ok());
    }
    // A reloaded policy does not open it either.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    write(&file, &[("a", "token-a", "")]);
    let guarded = ServePolicy { tokens: Some(file), ..ServePolicy::default() };
    let listens = vec!["0.0.0.0:80".parse().unwrap()];
    let http =
        McpHttpServer::new(server(), guarded, listens, KeyFetcher::disabled(), ShutdownSignals::default())
            .unwrap();
    assert!(http.reload(ServePolicy::default()).is_err());
}

pub(crate) const OAUTH: &str = "[serve]\npublic_url = \"https://tools.example\"\n[serve.oauth]\nissuer = \"https://id.example\"\n\
    audience = [\"https://tools.example/mcp\"]\njwks = \"https://id.example/keys\"\nscopes = [\"tools\"]\nleeway = \"0s\"\n\
    [serve.oauth.profiles]\n\"*\" = [\"tools:all\"]\nfew = []\n[profile.few]\n[profile.other]\n";

#[tokio::test]
async fn scopes_of_an_access_token_select_the_profile() {
    let issuer = Arc::new(FakeAuthorizationServer::new());
    let jwks = issuer.jwks();
    let desk = HttpFixture::fetching(OAUTH, keys(move || jwks.clone())).await;
    let ask = |token: &str, path: &str| desk.modern("tools/list", json!({})).path(path).bearer(token);

    let nobody = desk.modern("tools/list", json!({})).path("/mcp/few").send().await;
    assert_eq!(nobody.status, 401);
    assert_eq!(
        nobody.header("www-authenticate"),
        Some(
            "Bearer resource_metadata=\"https://tools.example/.well-known/oauth-protected-resource/mcp/few\", scope=\"tools\""
        )
    );
    let metadata = desk.get("/.well-known/oauth-protected-resource/mcp/few").send().await;
    assert_eq!(metadata.status, 200);
    let metadata = metadata.json();
    assert_eq!(metadata["resource"], "https://tools.example/mcp/few");
    assert_eq!(metadata["authorization_servers"], json!(["https://id.example"]));
    assert_eq!(metadata["scopes_supported"], json!(["tools"]));
    for path in ["", "/mcp"] {
        let whole = desk.get(&format!("/.well-known/oauth-protected-resource{path}")).send().await.json();
        assert_eq!(whole["resource"], "https://tools.example/mcp");
        assert_eq!(whole["scopes_supported"], json!(["tools", "tools:all"]));
    }
    let closed = desk.get("/.well-known/oauth-protected-resource/mcp/other").send().await;
    assert_eq!(closed.status, 404, "no token opens it");
    // Each endpoint names its own requirements.
    let nobody = desk.modern("tools/list", json!({})).send().await;
    let challenge = nobody.header("www-authenticate").unwrap().to_owned();
    assert!(challenge.contains("/mcp\", scope=\"tools tools:all\""), "{challenge}");

    let whole = ["https://tools.example/mcp", "https://tools.example/mcp/few"];
    let some = issuer.token_for(&json!(whole), "alice", "tools", 300);
    let all = issuer.token("alice", "tools tools:all", 300);
    assert_eq!(ask(&all, "/mcp/few").send().await.status, 401, "it is for /mcp");
    let few = issuer.token_for(&json!(whole[1]), "alice", "tools tools:all", 300);
    assert_eq!(ask(&few, "/mcp").send().await.status, 401, "it is for /mcp/few");
    assert_eq!(ask(&some, "/mcp/few").send().await.status, 200);
    assert_eq!(ask(&all, "/mcp").send().await.status, 200);
    let step_up = ask(&some, "/mcp").send().await;
    assert_eq!(step_up.status, 403);
    let challenge = step_up.header("www-authenticate").unwrap();
    assert!(
        challenge.contains("error=\"insufficient_scope\"") && challenge.contains("scope=\"tools tools:all\""),
        "{challenge}"
    );
    let other = issuer.token_for(&json!("https://tools.example/mcp/other"), "alice", "tools tools:all", 300);
    assert_eq!(ask(&other, "/mcp/other").send().await.status, 403, "not named, so not open");

    let stranger = FakeAuthorizationServer::new().token_for(&json!(whole), "alice", "tools", 300);
    let expired = issuer.token_for(&json!(whole), "alice", "tools", -5);
    let altered = some.replace(&some[some.len() - 8..], "AAAAAAAA");
    for wrong in [&stranger, &expired, &altered, &"x.y.z".to_owned()] {
        let answer = ask(wrong, "/mcp/few").send().await;
        assert_eq!(answer.status, 401);
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    }
}

#[tokio::test]
async fn wrong_tokens_are_throttled_and_valid_tokens_never() {
    let policy = "[serve]\ntokens = \"tokens.toml\"\n[serve.limits]\nauth_failures_per_minute = 5\n";
    let host = TestHost::built(policy, |builder, root| {
        write(&root.join("tokens.toml"), &[("a", "token-a", ""), ("b", "token-b", "")]);
        builder
    });
    let desk = HttpFixture::of(host, KeyFetcher::disabled(), None).await;
    let ask = |token: &str| desk.modern("tools/list", json!({})).bearer(token);
    assert_eq!(ask("token-a").send().await.status, 200);
    let mut statuses = Vec::new();
    for n in 0..20 {
        let answer = ask(&format!("guess-{n}")).send().await;
        if answer.status == 429 {
            assert!(answer.body.contains("auth_failures_per_minute"), "{}", answer.body);
            assert!(answer.header("retry-after").is_some() && answer.header("www-authenticate").is_none());
        }
        statuses.push(answer.status);
    }
    let refused = statuses.iter().filter(|status| **status == 401).count();
    assert!((5..=8).contains(&refused), "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429));
    assert_eq!(ask("token-a").send().await.status, 200, "it was let in before");
    assert_eq!(ask("token-b").send().await.status, 200, "it is seen for the first time");
    // A request without a token still gets the challenge.
    assert_eq!(desk.modern("tools/list", json!({})).send().await.status, 401);
}

#[tokio::test]
async fn only_a_trusted_proxy_names_the_client_of_a_wrong_token() {
    for (proxies, believed) in [("\"127.0.0.0/8\"", true), ("\"192.0.2.1\"", false), ("", false)] {
        let policy = format!(
            "[serve]\ntokens = \"tokens.toml\"\ntrusted_proxies = [{proxies}]\n[serve.limits]\nauth_failures_per_minute = 3\n"
        );
        let host = TestHost::built(&policy, |builder, root| {
            write(&root.join("tokens.toml"), &[("a", "token-a", "")]);
            builder
        });
        let desk = HttpFixture::of(host, KeyFetcher::disabled(), None).await;
        let ask = async |token: &str, header: &str, value: &str| {
            let ask = desk.modern("tools/list", json!({})).bearer(token).header(header, value);
            ask.send().await.status
        };
        // What the client claims stands to the left of what the proxy observed.
        for n in 0..10 {
            ask("guess", "x-forwarded-for", &format!("198.51.100.{n}, 203.0.113.5")).await;
        }
        assert_eq!(ask("guess", "x-forwarded-for", "203.0.113.5").await, 429);
        let other = if believed { 401 } else { 429 };
        assert_eq!(ask("guess", "x-forwarded-for", "203.0.113.6").await, other, "{proxies}");
        assert_eq!(ask("guess", "forwarded", "for=\"[2001:db8::1]:80\"").await, other, "{proxies}");
        assert_eq!(ask("token-a", "x-forwarded-for", "203.0.113.5").await, 200);
        // A client on the machine of the proxy has the address that the proxy wrote, whatever it claims.
        for n in 0..10 {
            ask("guess", "x-forwarded-for", &format!("198.51.100.{n}, 127.0.0.1")).await;
        }
        assert_eq!(ask("guess", "x-forwarded-for", "198.51.100.77, 127.0.0.1").await, 429, "{proxies}");
    }
}
