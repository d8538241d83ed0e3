//! Servers that share state, and a client of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::fixture::{CommandRun, HANGS, HostFolder, ServerProcess, wait_until};
use crate::process::NatsProcess;

/// NATS, and the folder of an operator who publishes to it.
pub(crate) struct SharedFixture {
    pub(crate) nats: NatsProcess,
    pub(crate) operator: HostFolder,
}

impl SharedFixture {
    /// Publishes a policy with the plugins `e` (echo), `s` (sleep) and `k` (key-value).
    pub(crate) fn new(policy: &str) -> Self {
        let operator = HostFolder::new(policy)
            .with_plugin("e", guest_artifacts::API_ECHO)
            .with_plugin("s", guest_artifacts::HOSTILE_SLEEP)
            .with_plugin("k", guest_artifacts::CAP_KV);
        let fixture = Self { nats: NatsProcess::start(""), operator };
        fixture.publish().says(0, &["epoch 1 is published, with 3 plugins"]);
        fixture
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.nats.port)
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
        let folder = HostFolder::new("");
        std::fs::remove_file(folder.path("toolbay.toml")).unwrap();
        let server = self.start(name, folder);
        wait_until("it is ready", || server.get("/readyz").0 == 200);
        server
    }

    /// Starts a server in a folder.
    pub(crate) fn start(&self, name: &str, folder: HostFolder) -> Replica {
        let args = ["serve", "--http", "127.0.0.1:0", "--shared", &self.url(), "--replica", name];
        let process = ServerProcess::start(folder.command(&args));
        let line = process.until_told("listening on http://");
        let (_, place) = line.split_once("http://").unwrap();
        let client = Client(place.trim_end_matches("/mcp").parse().unwrap());
        Replica { client, process, _folder: folder }
    }
}

/// A server.
pub(crate) struct Replica {
    pub(crate) process: ServerProcess,
    /// Its state lives as long as it.
    _folder: HostFolder,
    pub(crate) client: Client,
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
        read(self.open(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")))
    }

    fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.0).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends a call of the protocol 2026-07-28.
    pub(crate) fn send(&self, tool: &str, args: &Value) -> TcpStream {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": tool, "arguments": args, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        self.open(&format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n\r\n{body}",
            body.len()
        ))
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

/// Reads the result of a call.
pub(crate) fn result(stream: TcpStream) -> (String, bool) {
    let (status, body) = read(stream);
    let line = body.lines().find(|line| line.contains("\"jsonrpc\"")).unwrap_or_default();
    let json = line[line.find('{').unwrap_or(0)..line.rfind('}').map_or(0, |at| at + 1)].to_owned();
    let message: Value = serde_json::from_str(&json).unwrap_or_else(|_| panic!("{status}: {body}"));
    let result = &message["result"];
    match result["content"][0]["text"].as_str() {
        Some(text) => (text.to_owned(), result["isError"] == true),
        None => (message.to_string(), true),
    }
}

fn read(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}
