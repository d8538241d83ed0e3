//! What a supervisor remembers of a server until its next start. The clock is virtual.

use std::borrow::Cow;
use std::path::Path;
use std::sync::LazyLock;
use std::thread::ThreadId;

use rmcp::model::ResourceContents;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::time::Instant;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::{
    ConnectorError, ConnectorRequest, ConnectorResponse, OAuthRequest, ServerProcess,
};
use toolbay_core::registry::view::{Filter, View};
use toolbay_core::tool::ToolDef;
use toolbay_policy::Policy;
use toolbay_policy::mcp_server::{HttpServerConfig, StdioServerConfig};
use toolbay_policy::name::PluginId;

use super::super::Bridge;
use super::super::address::ResourceAddress;
use super::super::bounds::{MAX_RESOURCES, MAX_TOOLS};
use super::super::handshake::negotiation::{Reply, TestServer};
use super::super::inbox::tests::NullConnector;
use super::super::stdio::tests::{pipe_link, pipe_process};
use super::*;

/// Starts a server in this process, and saves in memory.
#[derive(Debug)]
struct MemoryConnector {
    server: Mutex<TestServer>,
    saved: Mutex<Option<Vec<u8>>>,
    /// The methods that the servers of all starts have read.
    seen: Arc<Mutex<Vec<String>>>,
    /// The thread that serves calls: no long text is redacted there.
    worker: ThreadId,
}

impl ServerConnector for MemoryConnector {
    fn start<'a>(
        &'a self,
        _: &'a PluginId,
        _: &'a StdioServerConfig,
    ) -> BoxFuture<'a, Result<ServerProcess, ConnectorError>> {
        let (process, pipe) = pipe_process();
        // Ends with the process.
        tokio::spawn(self.server.lock().serve(pipe, Arc::clone(&self.seen)));
        Box::pin(async { Ok(process) })
    }

    fn send<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a HttpServerConfig,
        request: ConnectorRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
        NullConnector.send(name, endpoint, request)
    }

    fn send_oauth<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a HttpServerConfig,
        request: OAuthRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
        NullConnector.send_oauth(name, endpoint, request)
    }

    fn secrets_fingerprint(&self, _: &StdioServerConfig) -> u64 {
        0
    }

    fn load_tool_list<'a>(&'a self, _: &'a PluginId, _: usize) -> BoxFuture<'a, Option<Vec<u8>>> {
        let saved = self.saved.lock().clone();
        Box::pin(async { saved })
    }

    fn save_tool_list<'a>(&'a self, _: &'a PluginId, bytes: Vec<u8>) -> BoxFuture<'a, ()> {
        *self.saved.lock() = Some(bytes);
        Box::pin(async {})
    }

    fn is_protected_path(&self, _: &std::path::Path, _: bool) -> bool {
        false
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        assert!(text.len() < 1_000 || std::thread::current().id() != self.worker, "{} bytes", text.len());
        Cow::Borrowed(text)
    }
}

impl MemoryConnector {
    fn new(server: TestServer) -> Arc<Self> {
        let (server, worker) = (Mutex::new(server), std::thread::current().id());
        Arc::new(Self { server, saved: Mutex::default(), seen: Arc::default(), worker })
    }

    /// Starts the host once. Returns the revision, the methods of the handshake, and the seconds that it took.
    async fn start_host(self: &Arc<Self>) -> (Option<String>, Vec<String>, u64) {
        let text = "version = 1\n[mcp.s]\ncommand = [\"/usr/bin/true\"]\n";
        let policy = Policy::parse(text, Path::new("/work"), None).unwrap();
        let bridge = Bridge::new(Arc::default(), Arc::clone(self) as _);
        self.seen.lock().clear();
        let begun = Instant::now();
        bridge.apply(&policy);
        bridge.wait_started().await;
        let seconds = begun.elapsed().as_secs();
        let status = bridge.status().remove(0);
        assert_eq!(status.state, ServerState::Ready, "{status:?}");
        let is_handshake = |method: &&String| matches!(method.as_str(), "initialize" | "server/discover");
        let methods = self.seen.lock().iter().filter(is_handshake).cloned().collect();
        bridge.close().await;
        (status.protocol, methods, seconds)
    }
}

#[tokio::test(start_paused = true)]
async fn the_era_of_a_server_is_remembered_for_its_next_start() {
    let deaf = TestServer { start: 0, discover: [Reply::Nothing; 2], initialize: [Reply::Legacy; 2] };
    let crashing = TestServer { discover: [Reply::Exit; 2], ..deaf };
    let modern = TestServer { start: 30, discover: [Reply::Modern; 2], initialize: [Reply::Unknown; 2] };
    for (server, first, next) in [
        (deaf, &["server/discover", "initialize"][..], "initialize"),
        (crashing, &["server/discover", "initialize"], "initialize"),
        (modern, &["server/discover", "initialize"], "server/discover"),
    ] {
        let connector = MemoryConnector::new(server);
        let (protocol, methods, _) = connector.start_host().await;
        assert_eq!(methods, first, "{server:?}");
        for _ in 0..2 {
            let (again, methods, seconds) = connector.start_host().await;
            assert_eq!((again.as_ref(), methods), (protocol.as_ref(), vec![next.to_owned()]), "{server:?}");
            assert_eq!(seconds, server.start, "it waits for nothing else: {server:?}");
        }
        let saved = String::from_utf8(connector.saved.lock().clone().unwrap()).unwrap();
        assert!(saved.contains("\"era\":"), "{saved}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_remembered_era_that_no_longer_holds_is_corrected() {
    let legacy = TestServer { start: 0, discover: [Reply::Unknown; 2], initialize: [Reply::Legacy; 2] };
    let modern = TestServer { start: 0, discover: [Reply::Modern; 2], initialize: [Reply::Unknown; 2] };
    for (before, after) in [(legacy, modern), (modern, legacy)] {
        let connector = MemoryConnector::new(before);
        let (old, ..) = connector.start_host().await;
        *connector.server.lock() = after;
        let (new, ..) = connector.start_host().await;
        assert!(new.is_some() && new != old, "{old:?} {new:?}");
        let (same, methods, _) = connector.start_host().await;
        assert_eq!((same, methods.len()), (new, 1), "the new one is remembered");
    }
}

#[tokio::test(start_paused = true)]
async fn a_section_for_a_tool_that_the_server_does_not_list_is_named() {
    let legacy = TestServer { start: 0, discover: [Reply::Unknown; 2], initialize: [Reply::Legacy; 2] };
    let text = "version = 1\n[mcp.s]\ncommand = [\"/usr/bin/true\"]\nexclude = [\"off\"]\n\
                [mcp.s.tool.delet_all]\npermission = \"deny\"\n[mcp.s.tool.off]\npermission = \"deny\"\n";
    let policy = Policy::parse(text, Path::new("/work"), None).unwrap();
    let bridge = Bridge::new(Arc::default(), MemoryConnector::new(legacy) as _);
    bridge.apply(&policy);
    bridge.wait_started().await;
    let status = bridge.status().remove(0);
    bridge.close().await;
    let [problem] = status.problems.as_slice() else { panic!("{status:?}") };
    assert!(problem.contains("no tool `delet_all`"), "{problem}");
}

/// The result or the error with which a server answers a method, of its first page or of a later one.
type Respond = fn(&str, bool) -> &'static str;

/// A server that answers every request.
async fn serve(pipe: DuplexStream, respond: Arc<Mutex<Respond>>) {
    let (reader, mut writer) = tokio::io::split(pipe);
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request: Value = serde_json::from_str(&line).unwrap();
        let respond = *respond.lock();
        let answer = respond(request["method"].as_str().unwrap(), request["params"]["cursor"].is_string());
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{answer}}}\n", request["id"]);
        writer.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// A supervisor with a session with this server, which declares tools and resources.
fn begun(respond: &Arc<Mutex<Respond>>) -> (Arc<Supervisor>, Arc<ClientSession>, Arc<MemoryConnector>) {
    let legacy = TestServer { start: 0, discover: [Reply::Unknown; 2], initialize: [Reply::Legacy; 2] };
    let connector = MemoryConnector::new(legacy);
    let text = "version = 1\n[mcp.s]\ncommand = [\"/usr/bin/true\"]\n";
    let policy = Policy::parse(text, Path::new("/work"), None).unwrap();
    let context = BridgeContext {
        registry: Arc::default(),
        connector: Arc::clone(&connector) as _,
        elicitation_handler: None,
        authorization_handler: None,
        reducer: None,
        compute: ComputePool::default(),
        uses_saved_lists: false,
        changes: watch::Sender::new(0),
    };
    let server = Arc::clone(policy.mcp_servers().next().unwrap());
    let supervisor = Arc::new(Supervisor::new(server, context));
    let (link, inbox, pipe) = pipe_link();
    // Ends with the link.
    tokio::spawn(serve(pipe, Arc::clone(respond)));
    let mut session = ClientSession::new(Link::Stdio(link), inbox);
    (session.negotiated.has_tools, session.negotiated.has_resources) = (true, true);
    (supervisor, Arc::new(session), connector)
}

const REFUSED: &str = r#""error":{"code":-32601,"message":"no"}"#;

#[tokio::test(start_paused = true)]
async fn what_a_server_listed_stays_while_its_lists_cannot_be_read() {
    let respond: Arc<Mutex<Respond>> = Arc::new(Mutex::new(|_, _| REFUSED));
    let (supervisor, session, connector) = begun(&respond);
    let read = async |answers: Respond| {
        *respond.lock() = answers;
        supervisor.read_lists(&session, true).await.unwrap();
        let catalog = supervisor.context.registry.snapshot();
        let tools: Vec<_> = catalog.tools().map(|entry| entry.def.name.tool_part().to_owned()).collect();
        let offered = supervisor.resources();
        let counts = (offered.resources.len(), offered.templates.len());
        (tools.join(" "), counts, supervisor.status().problems.join("; "))
    };
    let (tools, counts, problems) = read(|_, _| REFUSED).await;
    assert_eq!((&*tools, counts), ("", (0, 0)), "nothing was known");
    assert!(problems.contains("declares tools, but refuses") && !problems.contains("before"), "{problems}");
    let whole: Respond = |method, _| match method {
        "tools/list" => {
            r#""result":{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}}]}"#
        }
        "resources/list" => r#""result":{"resources":[{"uri":"x:a"},{"uri":"x:b"}]}"#,
        _ => r#""result":{"resourceTemplates":[{"uriTemplate":"x:{a}"}]}"#,
    };
    let all = ("a b".to_owned(), (2, 1), String::new());
    assert_eq!(read(whole).await, all);
    let odd: [Respond; 5] = [
        |_, _| REFUSED,
        |_, _| r#""error":{"code":-32603,"message":"busy"}"#,
        |_, _| r#""result":{}"#,
        |_, _| r#""result":7"#,
        |_, _| r#""result":{"tools":[],"tools":[],"resources":[],"resources":[]}"#,
    ];
    for answers in odd {
        let (tools, counts, problems) = read(answers).await;
        assert_eq!((&tools, counts), (&all.0, all.1), "{problems}");
        for kept in ["2 tools", "2 resources", "1 resource template"] {
            assert!(problems.contains(&format!("it listed before stays: {kept}")), "{problems}");
        }
        let saved = String::from_utf8(connector.saved.lock().clone().unwrap()).unwrap();
        assert!(saved.contains("\"b\""), "{saved}");
    }
    // A list that breaks off brings what it has.
    let (tools, counts, problems) = read(|method, is_later| match (method, is_later) {
        (_, true) => REFUSED,
        ("tools/list", _) => {
            r#""result":{"tools":[{"name":"c","inputSchema":{"type":"object"}}],"nextCursor":"n"}"#
        }
        ("resources/list", _) => r#""result":{"resources":[{"uri":"x:c"}],"nextCursor":"n"}"#,
        _ => r#""result":{"resourceTemplates":[],"nextCursor":"n"}"#,
    })
    .await;
    assert_eq!((&*tools, counts), ("a b c", (3, 1)));
    assert!(problems.contains("page 2") && problems.contains("stays: 2 tools"), "{problems}");
    // A list that was read counts, also an empty one.
    assert_eq!(read(whole).await, all);
    let none: Respond = |_, _| r#""result":{"tools":[],"resources":[],"resourceTemplates":[]}"#;
    assert_eq!(read(none).await, (String::new(), (0, 0), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_model_reads_no_policy_line_of_a_server_that_is_not_ready() {
    let respond: Arc<Mutex<Respond>> = Arc::new(Mutex::new(|_, _| REFUSED));
    let (supervisor, ..) = begun(&respond);
    let hint = "to allow more time, write in the policy: [mcp.s] start_timeout = …";
    let why = PolicyRefusal::new("it did not start within 5s", hint);
    let paused = supervisor.pause(&why, false, 1);
    assert!(tokio::time::timeout(Duration::ZERO, paused).await.is_err(), "it waits for the next attempt");
    let Failure::Refused(error) = supervisor.unavailable_error() else { panic!("a tool error") };
    assert_eq!(error.message, "the MCP server `s` is unavailable: it did not start within 5s");
    assert_eq!(error.hint, Some(hint.into()));
    let reason = format!("it did not start within 5s; {hint}");
    assert_eq!(supervisor.status().reason, Some(reason), "the operator reads the whole sentence");
    supervisor.set_state(ServerState::Ready, None);
    assert_eq!(supervisor.status().reason, None);
}

#[tokio::test]
async fn the_lists_of_a_server_delay_no_call() {
    // As many tools as are imported, and more patterns than are compiled.
    static TOOLS: LazyLock<String> = LazyLock::new(|| {
        let one = |n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}});
        let mut tools: Vec<Value> = (1..MAX_TOOLS).map(one).collect();
        let patterns: Map<String, Value> =
            (0..2_000).map(|n| (format!("p{n}"), json!({"pattern": format!("^\\w{{1,30}}-{n}$")}))).collect();
        let schema = json!({"type": "object", "properties": patterns});
        tools.push(json!({"name": "patterns", "description": "x".repeat(5_000), "inputSchema": schema}));
        format!("\"result\":{}", json!({ "tools": tools }))
    });
    static RESOURCES: LazyLock<String> = LazyLock::new(|| {
        let one = |n| json!({"uri": format!("x:{n}"), "description": "x".repeat(2_000)});
        let all: Vec<Value> = (0..MAX_RESOURCES).map(one).collect();
        format!("\"result\":{}", json!({"resources": all, "resourceTemplates": []}))
    });
    let respond: Arc<Mutex<Respond>> = Arc::new(Mutex::new(|method, _| match method {
        "tools/list" => TOOLS.as_str(),
        _ => RESOURCES.as_str(),
    }));
    let (supervisor, session, _) = begun(&respond);
    let reading = tokio::spawn({
        let supervisor = Arc::clone(&supervisor);
        async move { supervisor.read_lists(&session, true).await }
    });
    let (read, delay) = canary::run_beside(reading, async || ()).await;
    assert_eq!(read, Ok(()));
    assert_eq!(supervisor.context.registry.snapshot().tools().len(), MAX_TOOLS);
    assert_eq!(supervisor.resources().resources.len(), MAX_RESOURCES);
    assert!(delay <= canary::MAX_DELAY, "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn a_repaired_resource_says_so_in_its_last_part() {
    let respond: Arc<Mutex<Respond>> =
        Arc::new(Mutex::new(|_, _| r#""result":{"contents":[{"uri":"x:a","text":"t","size":NaN}]}"#));
    let (supervisor, session, _) = begun(&respond);
    supervisor.set_state(ServerState::Ready, Some(session));
    let asked = ResourceAddress { server: "s", server_uri: "x:a" };
    let mut parts = Vec::new();
    for part in supervisor.read_resource(asked).await.unwrap() {
        let ResourceContents::TextResourceContents { uri, text, .. } = part else { panic!("{part:?}") };
        assert_eq!(uri, "toolbay://mcp/s/x:a");
        parts.push(text);
    }
    assert_eq!(parts.len(), 2, "{parts:?}");
    assert!(
        parts[1].starts_with("[repaired: the resource was not valid JSON: numbers such as NaN"),
        "{parts:?}"
    );
    *respond.lock() = |_, _| r#""result":{"contents":[{"uri":"x:a","text":"t"}]}"#;
    assert_eq!(supervisor.read_resource(asked).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_policy_sees_an_unlisted_resource_in_each_spelling() {
    let legacy = TestServer { start: 0, discover: [Reply::Unknown; 2], initialize: [Reply::Legacy; 2] };
    let text = "version = 1\n[mcp.s]\ncommand = [\"/usr/bin/true\"]\nresources = [\"x:~*\"]\n";
    let policy = Policy::parse(text, Path::new("/work"), None).unwrap();
    let registry = Arc::<Registry>::default();
    let bridge = Bridge::new(Arc::clone(&registry), MemoryConnector::new(legacy) as _);
    bridge.apply(&policy);
    bridge.wait_started().await;
    let view = View::new(registry.snapshot(), Filter::default());
    for (uri, expect) in [
        ("x:~a", Some(["x:~a"; 3])),
        ("x:%7ea%2fb", Some(["x:%7ea%2fb", "x:~a%2Fb", "x:~a%2Fb"])),
        ("x:%2F~a", None),
        ("x:~/%2e%2e/a", None),
    ] {
        let mut seen = None;
        let refuse = |_: &ToolDef, _: &[Arc<str>], spelled: &[Value]| {
            seen = Some(spelled.to_vec());
            false
        };
        assert!(bridge.read(&view, &format!("toolbay://mcp/s/{uri}"), refuse).await.is_err());
        let expect = expect.map(|all| all.map(|uri| json!({"uri": uri})).to_vec());
        assert_eq!(seen, expect, "{uri}");
    }
    bridge.close().await;
}
