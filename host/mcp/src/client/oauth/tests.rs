//! Logins with scripted peers: a server, its authorization server and the user.

mod logout;
mod renewal;
mod servers;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use toolbay_core::call::server_connector::{
    ClientSecretPlacement, ConnectorError, ConnectorResponse, CredentialsLock, OAuthRequest, ServerProcess,
};
use toolbay_policy::Policy;
use toolbay_policy::mcp_server::StdioServerConfig;

use url::Url;

use super::*;

const SERVER: &str = "https://mcp.example/tools/mcp";
const RESOURCE_METADATA: &str = "https://mcp.example/.well-known/oauth-protected-resource/tools/mcp";
const ISSUER: &str = "https://login.example/t";
const SERVER_METADATA: &str = "https://login.example/.well-known/oauth-authorization-server/t";
const REGISTER: &str = "https://login.example/register";
const TOKEN: &str = "https://login.example/token";
const REVOKE: &str = "https://login.example/revoke";

/// Answers the requests of a flow from a table of URL and response. Other URLs answer 404.
#[derive(Debug, Default)]
struct ScriptedPeers {
    answers: Mutex<BTreeMap<String, (u16, String)>>,
    /// The requests, as URL and body.
    seen: Mutex<Vec<(String, String)>>,
    /// Their `authorization`.
    authorizations: Mutex<Vec<String>>,
    /// What the server says to a request without a token, if not that it wants the scope `read`.
    challenge: Mutex<Option<&'static str>>,
    saved: Mutex<Option<Vec<u8>>>,
    /// Why nothing can be saved.
    full: Mutex<Option<String>>,
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Where the token endpoint wants the secret of the policy, if it refuses every other place.
    wants_secret_in: Mutex<Option<ClientSecretPlacement>>,
    /// Holds back the answers to the token endpoint.
    gate: Mutex<Option<Arc<TokenGate>>>,
}

/// Says when a request arrives, and holds back its answer.
#[derive(Debug)]
struct TokenGate {
    arrived: Semaphore,
    answers: Semaphore,
}

impl TokenGate {
    fn closed() -> Arc<Self> {
        Arc::new(Self { arrived: Semaphore::new(0), answers: Semaphore::new(0) })
    }
}

impl ScriptedPeers {
    /// Peers that follow the standards.
    fn sound() -> Arc<Self> {
        let peers = Self::default();
        peers.set(RESOURCE_METADATA, &json!({"resource": SERVER, "authorization_servers": [ISSUER]}));
        peers.set(SERVER_METADATA, &metadata());
        peers.set("https://login.example/register", &json!({"client_id": "c1"}));
        peers.set("https://login.example/token", &json!({
            "access_token": "canary-access", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "canary-refresh",
        }));
        Arc::new(peers)
    }

    fn set(&self, url: &str, body: &Value) {
        self.set_raw(url, 200, &body.to_string());
    }

    fn set_raw(&self, url: &str, status: u16, body: &str) {
        self.answers.lock().insert(url.to_owned(), (status, body.to_owned()));
    }

    fn requests_to(&self, url: &str) -> Vec<String> {
        self.seen.lock().iter().filter(|(to, _)| to == url).map(|(_, body)| body.clone()).collect()
    }
}

fn metadata() -> Value {
    json!({
        "issuer": ISSUER,
        "authorization_endpoint": "https://login.example/authorize?tenant=t",
        "token_endpoint": "https://login.example/token",
        "registration_endpoint": "https://login.example/register",
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["plain", "S256"],
    })
}

fn respond(status: u16, headers: Vec<(String, String)>, body: &str) -> ConnectorResponse {
    let part = Ok(body.as_bytes().to_vec());
    ConnectorResponse { status, headers, body: Box::pin(futures_util::stream::iter([part])) }
}

impl ServerConnector for ScriptedPeers {
    fn start<'a>(
        &'a self,
        _: &'a PluginId,
        _: &'a StdioServerConfig,
    ) -> BoxFuture<'a, Result<ServerProcess, ConnectorError>> {
        Box::pin(async { Err(ConnectorError::Failed("no programs".into())) })
    }

    fn send<'a>(
        &'a self,
        _: &'a PluginId,
        _: &'a HttpServerConfig,
        _: ConnectorRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
        let challenge = self.challenge.lock().unwrap_or("Bearer scope=\"read\"");
        let header = ("www-authenticate".to_owned(), challenge.to_owned());
        Box::pin(async move { Ok(respond(401, vec![header], "")) })
    }

    fn send_oauth<'a>(
        &'a self,
        _: &'a PluginId,
        _: &'a HttpServerConfig,
        request: OAuthRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
        let body = String::from_utf8(request.body).unwrap();
        let authorization = request.headers.iter().find(|(name, _)| name == "authorization");
        self.authorizations.lock().extend(authorization.map(|(_, value)| value.clone()));
        let gate = self.gate.lock().clone().filter(|_| request.url == TOKEN);
        self.seen.lock().push((request.url.clone(), body));
        let wanted = *self.wants_secret_in.lock();
        let sent = request.client_secret.map(|secret| secret.placement);
        if request.url == TOKEN && wanted.is_some() && wanted != sent {
            return Box::pin(async { Ok(respond(401, Vec::new(), r#"{"error": "access_denied"}"#)) });
        }
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.arrived.add_permits(1);
                gate.answers.acquire().await.unwrap().forget();
            }
            let answer = self.answers.lock().get(&request.url).cloned();
            let (status, body) = answer.unwrap_or((404, "not here".to_owned()));
            Ok(respond(status, Vec::new(), &body))
        })
    }

    fn load_credentials<'a>(
        &'a self,
        _: &'a PluginId,
        _: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, String>> {
        Box::pin(async { Ok(self.saved.lock().clone()) })
    }

    fn save_credentials<'a>(
        &'a self,
        _: &'a PluginId,
        bytes: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<bool, String>> {
        if let Some(why) = self.full.lock().clone() {
            return Box::pin(async { Err(why) });
        }
        *self.saved.lock() = bytes;
        Box::pin(async { Ok(true) })
    }

    fn lock_credentials<'a>(&'a self, _: &'a PluginId) -> BoxFuture<'a, Result<CredentialsLock, String>> {
        Box::pin(async { Ok(CredentialsLock::new(Arc::clone(&self.lock).lock_owned().await)) })
    }

    fn secrets_fingerprint(&self, _: &StdioServerConfig) -> u64 {
        0
    }

    fn is_protected_path(&self, _: &std::path::Path, _: bool) -> bool {
        false
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }
}

/// A user whose browser returns these parameters, after some requests of other programs.
#[derive(Debug)]
struct User {
    answer: &'static str,
    urls: Mutex<Vec<Url>>,
}

impl User {
    fn new(answer: &'static str) -> Arc<Self> {
        Arc::new(Self { answer, urls: Mutex::default() })
    }
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

async fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

impl AuthorizationHandler for User {
    fn open<'a>(&'a self, server: &'a str, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        assert_eq!(server, "s");
        let url = Url::parse(url).unwrap();
        self.urls.lock().push(url.clone());
        let state = parameter(&url, "state").unwrap();
        let port = Url::parse(&parameter(&url, "redirect_uri").unwrap()).unwrap().port().unwrap();
        Box::pin(async move {
            // An idle connection, and requests without the state, change nothing.
            let _idle = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            for path in [
                "/",
                "/callback",
                "/callback?state=guessed&code=evil",
                &format!("/x?state={state}&code=evil"),
            ] {
                assert!(get(port, path).await.starts_with("HTTP/1.1 404"), "{path}");
            }
            let answer = get(port, &format!("/callback?state={state}&{}", self.answer)).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            Ok(())
        })
    }
}

fn server(more: &str) -> Arc<McpServer> {
    let text = format!("version = 1\n[mcp.s]\nurl = \"{SERVER}\"\n{more}");
    Arc::clone(Policy::parse(&text, "/srv".as_ref(), None).unwrap().mcp_server("s").unwrap())
}

async fn login_with(peers: &Arc<ScriptedPeers>, answer: &'static str) -> Result<LoginOutcome, String> {
    login_to(&server(""), peers, &User::new(answer)).await
}

async fn login_to(
    server: &McpServer,
    peers: &Arc<ScriptedPeers>,
    user: &Arc<User>,
) -> Result<LoginOutcome, String> {
    let connector = Arc::clone(peers) as Arc<dyn ServerConnector>;
    let done = login(server, connector, Arc::clone(user) as Arc<dyn AuthorizationHandler>).await;
    done.map_err(|error| error.to_string())
}

async fn log_out(peers: &Arc<ScriptedPeers>) -> LogoutOutcome {
    let (of, connector) = (server(""), Arc::clone(peers) as Arc<dyn ServerConnector>);
    logout(&of.name, Some(&of), connector).await.unwrap()
}

fn authenticator(peers: &Arc<ScriptedPeers>, more: &str, user: Option<&Arc<User>>) -> Authenticator {
    let handler = user.map(|user| Arc::clone(user) as Arc<dyn AuthorizationHandler>);
    Authenticator::for_server(&server(more), Arc::clone(peers) as Arc<dyn ServerConnector>, handler).unwrap()
}

#[tokio::test]
async fn a_login_saves_tokens_for_its_server_and_another_url_does_not_get_them() {
    let (peers, user) = (ScriptedPeers::sound(), User::new("code=abc"));
    let done = login_to(&server(""), &peers, &user).await.unwrap();
    assert_eq!((done.issuer.as_str(), done.scopes, done.renewable), (ISSUER, vec!["read".to_owned()], true));
    let url = user.urls.lock()[0].clone();
    assert!(url.as_str().starts_with("https://login.example/authorize?tenant=t&response_type=code"), "{url}");
    assert_eq!(parameter(&url, "resource").as_deref(), Some(SERVER));
    assert_eq!(parameter(&url, "code_challenge_method").as_deref(), Some("S256"));
    let form = peers.requests_to("https://login.example/token").remove(0);
    for part in
        ["grant_type=authorization_code", "code=abc", "client_id=c1", "resource=https%3A%2F%2Fmcp.example"]
    {
        assert!(form.contains(part), "{part}: {form}");
    }
    let same = authenticator(&peers, "", None);
    assert_eq!(same.token().await.unwrap().expose(), "canary-access");
    assert!(!format!("{:?}", same.store.current()).contains("canary"), "Debug hides tokens");
    let mut other = authenticator(&peers, "", None);
    other.store = {
        let endpoint =
            HttpServerConfig { url: "https://mcp.example/other".to_owned(), ..other.endpoint.clone() };
        Arc::new(CredentialStore::new(other.name.clone(), endpoint, Arc::clone(&other.connector)))
    };
    assert_eq!(other.token().await, None);
    let pinned = authenticator(&peers, "[mcp.s.oauth]\nissuer = \"https://other.example\"", None);
    assert_eq!(pinned.token().await, None, "the policy names another issuer");
    assert!(log_out(&peers).await.removed && !log_out(&peers).await.removed);
}

#[tokio::test]
async fn an_answer_that_is_refused_or_of_another_issuer_saves_nothing() {
    for (answer, promises, part) in [
        ("error=access_denied&error_description=no%0Athanks", false, "refused: access_denied: no\\nthanks"),
        ("code=abc&iss=https%3A%2F%2Fevil.example", false, "another issuer, `https://evil.example`"),
        ("code=abc&iss=https%3A%2F%2Flogin.example%2Ft%2F", true, "another issuer"),
        ("error=x&iss=https%3A%2F%2Fevil.example", false, "another issuer"),
        ("code=abc", true, "names no issuer"),
        ("code=", false, "no authorization code"),
    ] {
        let peers = ScriptedPeers::sound();
        let mut document = metadata();
        document["authorization_response_iss_parameter_supported"] = json!(promises);
        peers.set(SERVER_METADATA, &document);
        let why = login_with(&peers, answer).await.unwrap_err();
        assert!(why.contains(part), "{answer}: {why}");
        assert_eq!(*peers.saved.lock(), None, "{answer}");
        assert_eq!(peers.requests_to("https://login.example/token"), [] as [&str; 0], "{answer}");
    }
}

#[tokio::test]
async fn metadata_that_speak_for_others_are_refused() {
    let resource = |value: Value| (RESOURCE_METADATA, value);
    let changed = |key: &str, value: Value| {
        let mut document = metadata();
        document[key] = value;
        (SERVER_METADATA, document)
    };
    let named = |issuer: &str| resource(json!({"resource": SERVER, "authorization_servers": [issuer]}));
    for ((url, document), part) in [
        (
            resource(json!({"resource": "https://evil.example/mcp", "authorization_servers": [ISSUER]})),
            "another resource",
        ),
        (
            resource(json!({"resource": "https://mcp.example/tools/m", "authorization_servers": [ISSUER]})),
            "another resource",
        ),
        (resource(json!({"resource": SERVER})), "no authorization server"),
        (resource(json!({"resource": SERVER, "authorization_servers": "x"})), "is no URL"),
        (resource(json!({"resource": SERVER, "authorization_servers": [1]})), "no authorization server"),
        (resource(json!({"authorization_servers": [ISSUER]})), "not as its standard says"),
        (named("http://login.example/t"), "does not use https"),
        (named("http://10.0.0.1/"), "does not use https"),
        (named("file:///etc/passwd"), "does not use https"),
        (named("https://nothing.example/"), "publishes no metadata"),
        (changed("issuer", json!("https://evil.example")), "another issuer"),
        (changed("code_challenge_methods_supported", json!(["plain"])), "PKCE"),
        (changed("code_challenge_methods_supported", json!([])), "does not support PKCE"),
        (changed("code_challenge_methods_supported", json!(null)), "assume_pkce = true"),
        (changed("response_types_supported", json!(["token"])), "response type"),
        (changed("authorization_endpoint", json!("javascript:alert(1)")), "does not use https"),
        (changed("token_endpoint", json!("http://login.example/token")), "does not use https"),
        (changed("registration_endpoint", json!(null)), "client_id ="),
        (changed("token_endpoint_auth_methods_supported", json!(["tls_client_auth"])), "none of these ways"),
    ] {
        let peers = ScriptedPeers::sound();
        peers.set(url, &document);
        let why = login_with(&peers, "code=abc").await.unwrap_err();
        assert!(why.contains(part), "{document}: {why}");
        assert_eq!(*peers.saved.lock(), None, "{document}");
    }
}

#[tokio::test]
async fn large_and_redirecting_answers_are_refused() {
    let peers = ScriptedPeers::sound();
    peers.set_raw(SERVER_METADATA, 200, &" ".repeat(http::MAX_BODY + 1));
    assert!(login_with(&peers, "code=abc").await.unwrap_err().contains("more than 256KiB"));
    peers.set_raw(SERVER_METADATA, 302, "");
    assert!(login_with(&peers, "code=abc").await.unwrap_err().contains("publishes no metadata"));
    peers.set(SERVER_METADATA, &metadata());
    for url in ["https://login.example/register", "https://login.example/token"] {
        let peers = ScriptedPeers::sound();
        peers.set_raw(url, 307, "{}");
        assert!(login_with(&peers, "code=abc").await.unwrap_err().contains("status 307"), "{url}");
        peers.set_raw(
            url,
            400,
            &json!({"error": "bad", "error_description": "x\n".repeat(1000)}).to_string(),
        );
        let why = login_with(&peers, "code=abc").await.unwrap_err();
        assert!(why.contains("bad: x\\n") && why.len() < 600, "{why}");
        assert_eq!(*peers.saved.lock(), None);
    }
}

#[tokio::test]
async fn a_server_cannot_ask_the_user_without_end() {
    let (peers, user) = (ScriptedPeers::sound(), User::new("code=abc"));
    let asking = authenticator(&peers, "", Some(&user));
    let mut refused = None;
    for n in 0..10 {
        let used = asking.token().await;
        let challenge =
            Challenge { scopes: [format!("s{n}")].into(), insufficient_scope: n > 0, ..Challenge::default() };
        if let Err(error) = asking.respond(&challenge, used.as_ref()).await {
            refused = Some((n, error.to_string()));
            break;
        }
        // Each access token differs, as those of a real server do.
        let next = json!({"access_token": format!("t{n}"), "token_type": "bearer"});
        peers.set("https://login.example/token", &next);
    }
    let (n, why) = refused.unwrap();
    assert!(n == MAX_PROMPTS && why.contains("3 authorizations"), "{n}: {why}");
    let scopes = parameter(&user.urls.lock()[2], "scope").unwrap();
    assert_eq!(scopes, "s0 s1 s2", "a step up keeps the earlier scopes");
    let registered = peers.requests_to(REGISTER);
    assert!(registered.len() == 3 && registered[2].contains("\"scope\":\"s0 s1 s2\""), "{registered:?}");
}

#[tokio::test]
async fn a_challenge_that_a_login_cannot_meet_asks_nobody() {
    let (peers, user) = (ScriptedPeers::sound(), User::new("code=abc"));
    login_with(&peers, "code=abc").await.unwrap();
    for (more, scopes, part) in [
        ("", vec!["read"], "names none that the token lacks"),
        ("", vec![], "names none that the token lacks"),
        ("[mcp.s.oauth]\nscopes = [\"read\"]", vec!["admin"], "[mcp.s.oauth] scopes = [\"admin\"]"),
    ] {
        let asking = authenticator(&peers, more, Some(&user));
        let used = asking.token().await;
        let scopes = scopes.into_iter().map(str::to_owned).collect();
        let challenge = Challenge { scopes, insufficient_scope: true, ..Challenge::default() };
        let why = asking.respond(&challenge, used.as_ref()).await.unwrap_err().to_string();
        assert!(why.contains(part), "{more}: {why}");
    }
    assert_eq!(user.urls.lock().len(), 0);
    // Without a user, the next login requests the scopes.
    let alone = authenticator(&peers, "", None);
    let used = alone.token().await;
    let challenge =
        Challenge { scopes: ["write".to_owned()].into(), insufficient_scope: true, ..Challenge::default() };
    assert!(alone.respond(&challenge, used.as_ref()).await.is_err());
    login_to(&server(""), &peers, &user).await.unwrap();
    assert_eq!(parameter(&user.urls.lock()[0], "scope").as_deref(), Some("read write"));
}

#[tokio::test]
async fn a_client_of_the_policy_is_presented_to_its_issuer_only() {
    let section =
        "[mcp.s.oauth]\nclient_id = \"mine\"\nissuer = \"https://login.example/t\"\nredirect_port = 0";
    let text = format!("version = 1\n[mcp.s]\nurl = \"{SERVER}\"\n{section}");
    assert!(Policy::parse(&text, "/srv".as_ref(), None).is_err(), "port 0");
    let section = section.replace("\nredirect_port = 0", "");
    let (peers, user) = (ScriptedPeers::sound(), User::new("code=abc"));
    login_to(&server(&section), &peers, &user).await.unwrap();
    assert_eq!(parameter(&user.urls.lock()[0], "client_id").as_deref(), Some("mine"));
    assert_eq!(peers.requests_to("https://login.example/register"), [] as [&str; 0]);
    let evil = json!({"resource": SERVER, "authorization_servers": ["https://evil.example"]});
    peers.set(RESOURCE_METADATA, &evil);
    let why = login_to(&server(&section), &peers, &user).await.unwrap_err();
    assert!(why.contains("the `issuer` of the policy"), "{why}");
}

/// Metadata with another member.
fn metadata_with(member: &str, value: Value) -> Value {
    let mut document = metadata();
    document[member] = value;
    document
}

/// An issued token with a refresh token, which has already ended if `lifetime` is 0.
fn issued(access: &str, refresh: &str, lifetime: u64) -> Value {
    json!({"access_token": access, "token_type": "Bearer", "expires_in": lifetime, "refresh_token": refresh})
}
