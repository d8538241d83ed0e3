//! A client that writes and reads lines, and believes nothing.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use toolbay_core::audit::MemoryAudit;
use toolbay_core::pipeline::{Gates, Pipeline};
use toolbay_core::registry::read_output;
use toolbay_core::registry::view::Filter;
use toolbay_core::registry::{Bundle, Registry};
use toolbay_core::session::spool::{MemorySpool, Quota, Spool};
use toolbay_mcp::{CancellationToken, Options, Server};

use crate::puppet::{self, Puppet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

pub(crate) const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

/// Nothing in these tests takes long; whatever takes this long hangs.
const HANGS: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    era: Era,
    write: Option<WriteHalf<DuplexStream>>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    last_id: u64,
    /// What the client says it can do.
    pub(crate) capabilities: Value,
    /// Messages that came while another was waited for.
    pub(crate) others: Vec<Value>,
    pub(crate) server: Server,
    pub(crate) registry: Arc<Registry>,
    pub(crate) puppet: Arc<Puppet>,
    pub(crate) audit: Arc<MemoryAudit>,
    pub(crate) cancel: CancellationToken,
    pub(crate) ended: JoinHandle<anyhow::Result<()>>,
}

impl Client {
    /// A client that has said nothing yet.
    pub(crate) fn silent(era: Era, options: Options) -> Self {
        Self::over(era, options, Filter::default(), |_, pipeline| pipeline)
    }

    /// One that has begun, of a server that keeps what it cuts.
    pub(crate) async fn spooling(era: Era, options: Options) -> Self {
        let mut client = Self::spooling_silent(era, options);
        client.begin().await;
        client
    }

    pub(crate) fn spooling_silent(era: Era, options: Options) -> Self {
        let quota = Quota { bytes: 1 << 20, session_bytes: 1 << 20, age: Duration::from_secs(600) };
        let spool: Arc<dyn Spool> = Arc::new(MemorySpool::new(quota));
        Self::over(era, options, Filter::default(), |registry, pipeline| {
            let tools = vec![read_output::entry(Arc::clone(&spool)).unwrap()];
            registry.register(Bundle { tools, reducers: vec![] }).unwrap();
            pipeline.with_spool(spool)
        })
    }

    /// A client that can do that, of a server under these gates; it has begun.
    pub(crate) async fn gated(era: Era, capabilities: Value, gates: Gates, options: Options) -> Self {
        let mut client =
            Self::over(era, options, Filter::default(), |_, pipeline| pipeline.with_gates(gates));
        client.capabilities = capabilities;
        client.begin().await;
        client
    }

    /// The same, of a server that lets through what a filter does.
    pub(crate) fn filtered(era: Era, options: Options, filter: Filter) -> Self {
        Self::over(era, options, filter, |_, pipeline| pipeline)
    }

    /// A client that has begun, of a server whose plugins are there when the token fires.
    pub(crate) async fn loading(era: Era, options: Options) -> (Self, CancellationToken) {
        let loaded = CancellationToken::new();
        let wait = loaded.clone();
        let mut client =
            Self::of(era, options, Filter::default(), |_, it| it, |server| server.waiting_for(wait));
        client.begin().await;
        (client, loaded)
    }

    fn over(
        era: Era,
        options: Options,
        filter: Filter,
        with: impl FnOnce(&Registry, Pipeline) -> Pipeline,
    ) -> Self {
        Self::of(era, options, filter, with, |server| server)
    }

    fn of(
        era: Era,
        options: Options,
        filter: Filter,
        with: impl FnOnce(&Registry, Pipeline) -> Pipeline,
        serving: impl FnOnce(Server) -> Server,
    ) -> Self {
        let puppet = Arc::<Puppet>::default();
        let registry = puppet::registry(&puppet);
        let audit = Arc::<MemoryAudit>::default();
        let pipeline = with(&registry, Pipeline::new(Arc::clone(&audit) as _));
        let server = serving(Server::new(Arc::clone(&registry), pipeline, filter, options));
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
            others: vec![],
            server,
            registry,
            puppet,
            audit,
            cancel,
            ended,
        }
    }

    /// A client that has begun as its era does.
    pub(crate) async fn with(era: Era, options: Options) -> Self {
        let mut client = Self::silent(era, options);
        client.begin().await;
        client
    }

    pub(crate) async fn begin(&mut self) {
        let client = self;
        match client.era {
            Era::Legacy => {
                let params = json!({"protocolVersion": "2025-11-25", "capabilities": client.capabilities,
                    "clientInfo": {"name": "test", "version": "0"}});
                let answer = client.ask("initialize", params).await;
                assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
                client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
            }
            Era::Modern => {
                let answer = client.ask("server/discover", json!({})).await;
                assert!(answer["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{answer}");
            }
        }
    }

    pub(crate) async fn new(era: Era) -> Self {
        Self::with(era, Options::default()).await
    }

    pub(crate) async fn write(&mut self, text: &str) {
        let write = self.write.as_mut().unwrap();
        tokio::time::timeout(HANGS, write.write_all(text.as_bytes())).await.unwrap().unwrap();
    }

    pub(crate) async fn write_bytes(&mut self, bytes: &[u8]) {
        let write = self.write.as_mut().unwrap();
        tokio::time::timeout(HANGS, write.write_all(bytes)).await.unwrap().unwrap();
    }

    /// A part of a line was written: nothing more can be.
    pub(crate) fn write_is_broken(&mut self) {
        std::mem::forget(self.write.take());
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.write(&format!("{message}\n")).await;
    }

    /// Sends a request as the era wants it; returns its id.
    pub(crate) async fn request(&mut self, method: &str, mut params: Value) -> u64 {
        self.last_id += 1;
        if self.era == Era::Modern {
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

    /// The next message, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(HANGS, self.lines.next_line())
            .await
            .expect("the server is silent")
            .unwrap()?;
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("not protocol: {line:?}: {e}"));
        assert_eq!(message["jsonrpc"], "2.0");
        Some(message)
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.others.iter().position(|m| m["id"] == id) {
            return self.others.remove(at);
        }
        loop {
            let message = self.next().await.expect("the server hung up");
            if message["id"] == id {
                return message;
            }
            self.others.push(message);
        }
    }

    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        if let Some(at) = self.others.iter().position(|m| m["method"] == method) {
            return self.others.remove(at);
        }
        loop {
            let message = self.next().await.expect("the server hung up");
            if message["method"] == method {
                return message;
            }
            self.others.push(message);
        }
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.answer(id).await
    }

    /// Answers a request of the server.
    pub(crate) async fn reply(&mut self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    /// The result of a call of `tool` with the arguments.
    pub(crate) async fn call(&mut self, tool: &str, args: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": args})).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// Closes the client's end.
    pub(crate) async fn hang_up(&mut self) {
        self.write.take().unwrap().shutdown().await.unwrap();
    }

    /// Waits until the server has ended; returns what it still said.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut rest = std::mem::take(&mut self.others);
        while let Some(message) = self.next().await {
            rest.push(message);
        }
        tokio::time::timeout(HANGS, &mut self.ended).await.unwrap().unwrap().unwrap();
        rest
    }
}
