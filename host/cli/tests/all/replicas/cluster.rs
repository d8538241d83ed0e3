//! Servers that share state, and a client of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::fixture::{CommandRun, HANGS, HostFolder, ServerProcess, wait_until};
use crate::replicas::process::NatsProcess;

/// The id of the next request in a session.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// NATS, and the folder of an operator who publishes to it.
pub(crate) struct SharedFixture {
    pub(crate) nats: NatsProcess,
    /// The ports of the other servers of its cluster.
    others: Vec<u16>,
    pub(crate) operator: HostFolder,
}

impl SharedFixture {
    /// Publishes a policy with the plugins `e` (echo), `s` (sleep), `k` (key-value) and `f` (attachments).
    pub(crate) fn new(policy: &str) -> Self {
        Self::with_nats(NatsProcess::start(""), &[], policy)
    }

    /// As [`SharedFixture::new`], with a server of a NATS cluster and the ports of the others.
    pub(crate) fn with_nats(nats: NatsProcess, others: &[u16], policy: &str) -> Self {
        let operator = HostFolder::new(policy)
            .with_plugin("e", guest_artifacts::API_ECHO)
            .with_plugin("s", guest_artifacts::HOSTILE_SLEEP)
            .with_plugin("k", guest_artifacts::CAP_KV)
            .with_plugin("f", guest_artifacts::CAP_ATTACHMENTS);
        let fixture = Self { nats, others: others.to_vec(), operator };
        // A cluster takes a moment to elect its leader.
        wait_until("NATS is ready", || fixture.run(&["shared", "status"]).0.status.code() == Some(2));
        fixture.publish().says(0, &["epoch 1 is published, with 4 plugins"]);
        fixture
    }

    pub(crate) fn url(&self) -> String {
        let ports = std::iter::once(&self.nats.port).chain(&self.others);
        let servers: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("nats://{}", servers.join(","))
    }

    pub(crate) fn publish(&self) -> CommandRun {
        self.run(&["shared", "publish"])
    }

    /// Runs a command of the operator with `--shared`.
    pub(crate) fn run(&self, args: &[&str]) -> CommandRun {
        let url = self.url();
        self.operator.run(&[args, &["--shared", &url]].concat())
    }

    /// Starts a server with a state directory of its own and nothing else.
    pub(crate) fn server(&self, name: &str) -> Replica {
        self.server_at(name, &self.url())
    }

    /// As [`SharedFixture::server`], with another way to NATS.
    pub(crate) fn server_at(&self, name: &str, url: &str) -> Replica {
        self.server_with(name, url, |command| command)
    }

    /// As [`SharedFixture::server_at`], with changes to the command.
    pub(crate) fn server_with(
        &self,
        name: &str,
        url: &str,
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Replica {
        let folder = HostFolder::new("");
        std::fs::remove_file(folder.path("toolbay.toml")).unwrap();
        let server = start(name, url, folder, change);
        wait_until("it is ready", || server.get("/readyz").0 == 200);
        server
    }

    /// Starts a server in a folder.
    pub(crate) fn start(&self, name: &str, folder: HostFolder) -> Replica {
        start(name, &self.url(), folder, |command| command)
    }

    /// Starts a server again, with the state of the one that ended.
    pub(crate) fn restart(&self, name: &str, ended: Replica) -> Replica {
        let Replica { folder, process, .. } = ended;
        drop(process);
        self.start(name, folder)
    }

    /// The audit lines that all servers have forwarded.
    pub(crate) fn forwarded_audit(&self) -> Vec<Value> {
        let printed = self.run(&["log", "--json"]).says(0, &[]).out();
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn start(
    name: &str,
    url: &str,
    folder: HostFolder,
    change: impl FnOnce(&mut Command) -> &mut Command,
) -> Replica {
    let args = ["serve", "--http", "127.0.0.1:0", "--shared", url, "--replica", name];
    let mut command = folder.command(&args);
    change(&mut command);
    let process = ServerProcess::start(command);
    let line = process.until_told("listening on http://");
    let (_, place) = line.split_once("http://").unwrap();
    let client = Client(place.trim_end_matches("/mcp").parse().unwrap());
    Replica { client, process, folder }
}

/// A server.
pub(crate) struct Replica {
    pub(crate) process: ServerProcess,
    folder: HostFolder,
    pub(crate) client: Client,
}

impl Replica {
    /// The lines of its own audit, without one that is being written.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let text = self.folder.read("state/audit.jsonl");
        let (lines, _) = text.rsplit_once('\n').unwrap_or_default();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl std::ops::Deref for Replica {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A client without a session, at the address of a server or of a balancer.
#[derive(Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

impl Client {
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        read_whole(self.open(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")))
    }

    /// Whether a request reaches a server that is ready.
    pub(crate) fn is_ready(&self) -> bool {
        TcpStream::connect(self.0).is_ok() && self.get("/readyz").0 == 200
    }

    fn open(&self, request: &str) -> TcpStream {
        self.try_open(request).unwrap()
    }

    fn try_open(&self, request: &str) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.0)?;
        stream.set_read_timeout(Some(HANGS))?;
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }

    /// Opens a session of the protocol 2025-11-25. Returns its id.
    pub(crate) fn initialize(&self) -> String {
        let client = json!({"name": "t", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        let (_, text) = read_whole(self.send_in(None, "initialize", &params));
        let header = text.lines().find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:"));
        let header = header.unwrap_or_else(|| panic!("no session in {text}"));
        header.split_once(':').unwrap().1.trim().to_owned()
    }

    /// The status of a request in a session.
    pub(crate) fn status_in(&self, session: &str, method: &str) -> u16 {
        read_whole(self.send_in(Some(session), method, &json!({}))).0
    }

    /// The text of the result of a call in a session, and whether it is an error.
    pub(crate) fn call_in(&self, session: &str, tool: &str, args: &Value) -> (String, bool) {
        result(self.send_in(Some(session), "tools/call", &json!({"name": tool, "arguments": args})))
    }

    fn send_in(&self, session: Option<&str>, method: &str, params: &Value) -> TcpStream {
        // Requests of a session that run at the same time must not share an id.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let session = session.map(|id| format!("mcp-session-id: {id}\r\n")).unwrap_or_default();
        self.open(&format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: 2025-11-25\r\n{session}\r\n{body}",
            body.len()
        ))
    }

    /// Sends a call of the protocol 2026-07-28.
    pub(crate) fn send(&self, tool: &str, args: &Value) -> TcpStream {
        self.open(&call_request(tool, args))
    }

    /// As [`Client::call`]; the error says how the connection failed, or what came instead of a result.
    pub(crate) fn try_call(&self, tool: &str, args: &Value) -> Result<(String, bool), String> {
        let mut stream = self.try_open(&call_request(tool, args)).map_err(|error| error.to_string())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(|error| error.to_string())?;
        parse_result(&text).ok_or(text)
    }

    /// The result of a call of a client that can be asked, or its error. `more` is added to the parameters.
    pub(crate) fn request(&self, tool: &str, args: &Value, more: &Value) -> Value {
        let mut params = json!({"name": tool, "arguments": args});
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        let message = self.message("tools/call", tool, &params);
        if message["result"].is_object() { message["result"].clone() } else { message["error"].clone() }
    }

    /// The answer to a request of a client that can be asked and can poll tasks.
    pub(crate) fn message(&self, method: &str, subject: &str, params: &Value) -> Value {
        let (_, text) = read_whole(self.send_message(method, subject, params));
        parse_message(&text).unwrap_or_else(|| panic!("{text}"))
    }

    /// As [`Client::message`], without the answer.
    pub(crate) fn send_message(&self, method: &str, subject: &str, params: &Value) -> TcpStream {
        let capabilities = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
        let mut params = params.clone();
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        self.open(&to_request(method, subject, &params))
    }

    /// The text of a result, and whether it is an error.
    pub(crate) fn call(&self, tool: &str, args: &Value) -> (String, bool) {
        result(self.send(tool, args))
    }

    /// Whether a call of `e__echo` succeeds.
    pub(crate) fn echoes(&self) -> bool {
        !self.call("e__echo", &json!({"a": 1})).1
    }
}

fn call_request(tool: &str, args: &Value) -> String {
    to_request("tools/call", tool, &call_params(tool, args))
}

fn call_params(tool: &str, args: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"name": tool, "arguments": args, "_meta": meta})
}

fn to_request(method: &str, subject: &str, params: &Value) -> String {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\nmcp-name: {subject}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads the result of a call.
pub(crate) fn result(stream: TcpStream) -> (String, bool) {
    let (_, text) = read_whole(stream);
    parse_result(&text).unwrap_or_else(|| panic!("{text}"))
}

/// The text of the result in a response, and whether it is an error.
fn parse_result(response: &str) -> Option<(String, bool)> {
    let message = parse_message(response)?;
    let result = &message["result"];
    match result["content"][0]["text"].as_str() {
        Some(text) => Some((text.to_owned(), result["isError"] == true)),
        None => Some((message.to_string(), true)),
    }
}

fn parse_message(response: &str) -> Option<Value> {
    let line = response.lines().find(|line| line.contains("\"jsonrpc\""))?;
    serde_json::from_str(line.get(line.find('{')?..=line.rfind('}')?)?).ok()
}

/// The status and the whole text of a response.
fn read_whole(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), text)
}
