//! The client for the client scenarios of the MCP conformance suite: a host with a bridge to the server whose URL is the
//! last argument. It lists the tools and calls each of them through the whole pipeline, as a model would.
//!
//! `MCP_CONFORMANCE_SCENARIO` names the scenario, `MCP_CONFORMANCE_PROTOCOL_VERSION` the protocol revision, and
//! `MCP_CONFORMANCE_CONTEXT` holds the calls that the scenario requires.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program of the tests: a failure is to stop it"
)]

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use toolbay::core::call::invoke::BoxFuture;
use toolbay::{Filter, Host, Policy, ToolCall, TurnContext};
use toolbay_mcp::Bridge;
use toolbay_mcp::client::{
    AuthorizationHandler, Elicitation, ElicitationHandler, ElicitationOutcome, ServerState,
};

/// Accepts every elicitation with the defaults of its form.
#[derive(Debug)]
struct AcceptDefaults;

impl ElicitationHandler for AcceptDefaults {
    fn elicit<'a>(&'a self, question: &'a Elicitation) -> BoxFuture<'a, ElicitationOutcome> {
        let mut form = Map::new();
        let fields = question.schema.get("properties").and_then(Value::as_object);
        for (name, field) in fields.into_iter().flatten() {
            // Fields with a default are left out; the bridge fills them in.
            if field.get("default").is_none() {
                form.insert(name.clone(), sample(field));
            }
        }
        Box::pin(async { ElicitationOutcome::Accept(form) })
    }
}

/// A browser whose user allows everything: it follows the redirect of the authorization server to the listener.
#[derive(Debug)]
struct WillingUser;

impl AuthorizationHandler for WillingUser {
    fn open<'a>(&'a self, _: &'a str, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let head = get(url).await.map_err(|e| e.to_string())?;
            let location = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
            });
            get(&location.ok_or("the authorization server did not redirect")?)
                .await
                .map(drop)
                .map_err(|e| e.to_string())
        })
    }
}

/// Sends a GET request and returns the response as text.
async fn get(url: &str) -> std::io::Result<String> {
    let rest = url.strip_prefix("http://").expect("a URL with http");
    let (authority, path) = rest.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(authority).await?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// The section of the policy about OAuth. The client's secret goes to a file in `dir`.
fn oauth_section(dir: &Path) -> String {
    // The suite compares it with the id that the client presents.
    let mut text =
        "[mcp.s.oauth]\nclient_metadata_url = \"https://conformance-test.local/client-metadata.json\"\n"
            .to_owned();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let word = |key: &str| context.get(key).and_then(Value::as_str);
    if let (Some(id), Some(secret), Some(issuer)) = (word("client_id"), word("client_secret"), word("issuer"))
    {
        let file = dir.join("secret");
        let mut options = std::fs::OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)
            .unwrap()
            .write_all(secret.as_bytes())
            .unwrap();
        text += &format!(
            "client_id = {id:?}\nclient_secret = \"client\"\nissuer = {issuer:?}\n[secrets.client]\nfrom = \"file:{}\"\n\
             origins = [{issuer:?}]\n",
            file.display()
        );
    }
    text
}

/// A value that fits a simple schema.
fn sample(schema: &Value) -> Value {
    match schema.get("type").and_then(Value::as_str) {
        Some("integer" | "number") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    }
}

/// The arguments that a tool's schema requires.
fn arguments(schema: &Value) -> Value {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let property = |name: &str| schema.pointer(&format!("/properties/{name}")).cloned().unwrap_or_default();
    let all =
        required.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), sample(&property(name))));
    Value::Object(all.collect())
}

/// The calls that the scenario requires. A null argument is omitted.
fn wanted() -> Option<Vec<(String, Value)>> {
    let context: Value = serde_json::from_str(&std::env::var("MCP_CONFORMANCE_CONTEXT").ok()?).ok()?;
    let calls = context.get("toolCalls")?.as_array()?;
    let call = |call: &Value| {
        let mut args = call.get("arguments").cloned().unwrap_or_else(|| json!({}));
        if let Some(args) = args.as_object_mut() {
            args.retain(|_, value| !value.is_null());
        }
        Some((call.get("name")?.as_str()?.to_owned(), args))
    };
    calls.iter().map(call).collect()
}

#[tokio::main]
async fn main() -> ExitCode {
    let url = std::env::args().next_back().expect("a URL");
    let legacy = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION")
        .is_ok_and(|version| version.as_str() < "2026-07-28");
    let protocol = if legacy { "legacy" } else { "modern" };
    let here = std::env::current_dir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // The authorization server of the suite is on the loopback interface.
    let text = format!(
        "version = 1\n[mcp.s]\nurl = {url:?}\nprotocol = \"{protocol}\"\ntimeout = \"20s\"\n\
         net_private = [\"127.0.0.0/8\", \"::1/128\"]\n{}",
        oauth_section(dir.path())
    );
    let host = Host::builder(Policy::parse(&text, &here, None).unwrap()).build().unwrap();
    let bridge = Bridge::new(Arc::clone(host.registry()), host.server_connector())
        .with_elicitation_handler(Arc::new(AcceptDefaults))
        .with_authorization_handler(Arc::new(WillingUser));
    bridge.apply(&host.policy());
    bridge.wait_settled(Duration::from_secs(25)).await;
    let status = bridge.status().remove(0);
    for problem in &status.problems {
        eprintln!("problem: {problem}");
    }
    if status.state != ServerState::Ready {
        eprintln!("not ready: {:?}", status.reason);
        return ExitCode::FAILURE;
    }
    let view = host.view(Filter::default());
    let own = |name: &str| format!("mcp__s__{name}");
    let calls = wanted().map(|calls| calls.into_iter().map(|(name, args)| (own(&name), args)).collect());
    let calls: Vec<(String, Value)> = calls.unwrap_or_else(|| {
        let bridged = view.definitions().filter(|entry| entry.def.name.as_str().starts_with("mcp__"));
        bridged.map(|entry| (entry.def.name.to_string(), arguments(entry.def.input_schema.value()))).collect()
    });
    for (name, args) in calls {
        let call = ToolCall::new("1", name.as_str(), args.to_string());
        for delivered in host.call_all(&view, vec![call], TurnContext::default()).await {
            eprintln!("{name}: {:?}", delivered.result);
        }
    }
    bridge.close().await;
    ExitCode::SUCCESS
}
