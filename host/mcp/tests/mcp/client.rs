//! A client that writes and reads raw lines.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use toolbay_core::audit::MemoryAudit;
use toolbay_core::pipeline::{CallPolicy, Pipeline};
use toolbay_core::registry::read_output;
use toolbay_core::registry::view::Filter;
use toolbay_core::registry::{Bundle, Registry};
use toolbay_core::session::output_store::{MemoryOutputStore, OutputQuota, OutputStore};
use toolbay_mcp::{CancellationToken, Options, Server};
use toolbay_policy::serve::ServePolicy;

use crate::puppet::{self, PuppetTool};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientEra {
    Legacy,
    Modern,
}

pub(crate) const BOTH_ERAS: [ClientEra; 2] = [ClientEra::Legacy, ClientEra::Modern];

/// Timeout of every response. Reaching it means that the server hangs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct PipeClient {
    era: ClientEra,
    write: Option<WriteHalf<DuplexStream>>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    last_id: u64,
    /// The capabilities that the client declares.
    pub(crate) capabilities: Value,
    /// Messages that arrived while the client waited for another one.
    pub(crate) other_messages: Vec<Value>,
    pub(crate) server: Server,
    pub(crate) registry: Arc<Registry>,
    pub(crate) puppet: Arc<PuppetTool>,
    pub(crate) audit: Arc<MemoryAudit>,
    pub(crate) cancel: CancellationToken,
    pub(crate) ended: JoinHandle<anyhow::Result<()>>,
}

impl PipeClient {
    /// Connects a client without a handshake.
    pub(crate) fn connect(era: ClientEra, options: Options) -> Self {
        Self::connect_with_pipeline(era, options, Filter::default(), |_, pipeline| pipeline)
    }

    /// Connects and initializes a client of a server that saves truncated outputs.
    pub(crate) async fn with_output_store(era: ClientEra, options: Options) -> Self {
        let mut client = Self::connect_with_output_store(era, options);
        client.initialize().await;
        client
    }

    pub(crate) fn connect_with_output_store(era: ClientEra, options: Options) -> Self {
        let quota = OutputQuota { bytes: 1 << 20, session_bytes: 1 << 20, age: Duration::from_secs(600) };
        let spool: Arc<dyn OutputStore> = Arc::new(MemoryOutputStore::new(quota));
        Self::connect_with_pipeline(era, options, Filter::default(), |registry, pipeline| {
            let tools = vec![read_output::entry(Arc::clone(&spool)).unwrap()];
            registry.register(Bundle { tools, reducers: vec![] }).unwrap();
            pipeline.with_output_store(spool)
        })
    }

    /// Connects and initializes a client with these capabilities, of a server with this call policy.
    pub(crate) async fn with_policy(
        era: ClientEra,
        capabilities: Value,
        gates: CallPolicy,
        options: Options,
    ) -> Self {
        let mut client = Self::connect_with_pipeline(era, options, Filter::default(), |_, pipeline| {
            pipeline.with_call_policy(gates)
        });
        client.capabilities = capabilities;
        client.initialize().await;
        client
    }

    /// Connects a client of a server with this filter, without a handshake.
    pub(crate) fn connect_with_filter(era: ClientEra, options: Options, filter: Filter) -> Self {
        Self::connect_with_pipeline(era, options, filter, |_, pipeline| pipeline)
    }

    /// Connects and initializes a client of a server whose plugins are loaded when the token fires.
    pub(crate) async fn while_loading(era: ClientEra, options: Options) -> (Self, CancellationToken) {
        let loaded = CancellationToken::new();
        let wait = loaded.clone();
        let mut client = Self::connect_with(
            era,
            options,
            Filter::default(),
            |_, it| it,
            |server| server.with_loaded_signal(wait),
        );
        client.initialize().await;
        (client, loaded)
    }

    fn connect_with_pipeline(
        era: ClientEra,
        options: Options,
        filter: Filter,
        with: impl FnOnce(&Registry, Pipeline) -> Pipeline,
    ) -> Self {
        Self::connect_with(era, options, filter, with, |server| server)
    }

    fn connect_with(
        era: ClientEra,
        options: Options,
        filter: Filter,
        with: impl FnOnce(&Registry, Pipeline) -> Pipeline,
        serving: impl FnOnce(Server) -> Server,
    ) -> Self {
        let puppet = Arc::<PuppetTool>::default();
        let registry = puppet::registry(&puppet);
        let audit = Arc::<MemoryAudit>::default();
        let pipeline = with(&registry, Pipeline::new(Arc::clone(&audit) as _));
        let server = serving(Server::new(Arc::clone(&registry), pipeline, filter, options));
        // Tests see codes, usage and plugins.
        server.set_usage_meta(&ServePolicy { usage_meta: true, ..ServePolicy::default() });
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(theirs);
        let cancel = CancellationToken::new();
        let ended = tokio::spawn(toolbay_mcp::serve(server.clone(), reader, writer, cancel.clone()));
        let (read, write) = tokio::io::split(ours);
        let lines = BufReader::new(read).lines();
        Self {
            era,
            write: Some(write),
            lines,
            last_id: 0,
            capabilities: json!({}),
            other_messages: vec![],
            server,
            registry,
            puppet,
            audit,
            cancel,
            ended,
        }
    }

    /// Connects and initializes a client.
    pub(crate) async fn with_options(era: ClientEra, options: Options) -> Self {
        let mut client = Self::connect(era, options);
        client.initialize().await;
        client
    }

    pub(crate) async fn initialize(&mut self) {
        let client = self;
        match client.era {
            ClientEra::Legacy => {
                let params = json!({"protocolVersion": "2025-11-25", "capabilities": client.capabilities,
                    "clientInfo": {"name": "test", "version": "0"}});
                let answer = client.send_and_wait("initialize", params).await;
                assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
                client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
            }
            ClientEra::Modern => {
                let answer = client.send_and_wait("server/discover", json!({})).await;
                assert!(answer["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{answer}");
            }
        }
    }

    pub(crate) async fn new(era: ClientEra) -> Self {
        Self::with_options(era, Options::default()).await
    }

    pub(crate) async fn write(&mut self, text: &str) {
        let write = self.write.as_mut().unwrap();
        tokio::time::timeout(RESPONSE_TIMEOUT, write.write_all(text.as_bytes())).await.unwrap().unwrap();
    }

    pub(crate) async fn write_bytes(&mut self, bytes: &[u8]) {
        let write = self.write.as_mut().unwrap();
        tokio::time::timeout(RESPONSE_TIMEOUT, write.write_all(bytes)).await.unwrap().unwrap();
    }

    /// Gives up writing after a partial line, without closing the connection.
    pub(crate) fn abandon_writer(&mut self) {
        std::mem::forget(self.write.take());
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.write(&format!("{message}\n")).await;
    }

    /// Sends a request with the metadata of the era; returns its id.
    pub(crate) async fn request(&mut self, method: &str, mut params: Value) -> u64 {
        self.last_id += 1;
        if self.era == ClientEra::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        self.send(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})).await;
        self.last_id
    }

    pub(crate) async fn cancel_request(&mut self, id: u64) {
        self.send(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}),
        )
        .await;
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(RESPONSE_TIMEOUT, self.lines.next_line())
            .await
            .expect("the server did not respond in time")
            .unwrap()?;
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("not protocol: {line:?}: {e}"));
        assert_eq!(message["jsonrpc"], "2.0");
        Some(message)
    }

    pub(crate) async fn response(&mut self, id: u64) -> Value {
        if let Some(at) = self.other_messages.iter().position(|m| m["id"] == id) {
            return self.other_messages.remove(at);
        }
        loop {
            let message = self.next().await.expect("the server closed the connection");
            if message["id"] == id {
                return message;
            }
            self.other_messages.push(message);
        }
    }

    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        if let Some(at) = self.other_messages.iter().position(|m| m["method"] == method) {
            return self.other_messages.remove(at);
        }
        loop {
            let message = self.next().await.expect("the server closed the connection");
            if message["method"] == method {
                return message;
            }
            self.other_messages.push(message);
        }
    }

    pub(crate) async fn send_and_wait(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.response(id).await
    }

    /// Responds to a request of the server.
    pub(crate) async fn respond(&mut self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    /// Calls a tool and returns the result.
    pub(crate) async fn call(&mut self, tool: &str, args: Value) -> Value {
        let answer = self.send_and_wait("tools/call", json!({"name": tool, "arguments": args})).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// Closes the client's end of the connection.
    pub(crate) async fn close(&mut self) {
        self.write.take().unwrap().shutdown().await.unwrap();
    }

    /// Waits until the server has ended; returns its remaining messages.
    pub(crate) async fn remaining_messages(&mut self) -> Vec<Value> {
        let mut rest = std::mem::take(&mut self.other_messages);
        while let Some(message) = self.next().await {
            rest.push(message);
        }
        tokio::time::timeout(RESPONSE_TIMEOUT, &mut self.ended).await.unwrap().unwrap().unwrap();
        rest
    }
}
