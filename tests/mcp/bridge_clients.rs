//! Bridged MCP servers as clients see them: their tools before the server has started, and their resources.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use integration_tests::TestHost;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use toolbay::Filter;
use toolbay_mcp::client::ServerState;
use toolbay_mcp::{Bridge, CancellationToken, Options, Server};

use super::bridge_stdio::{SOON, section};

/// A client over stdio of a host with bridged servers.
struct StdioFixture {
    host: TestHost,
    bridge: Arc<Bridge>,
    write: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    modern: bool,
    last_id: u64,
    /// The messages of the server that are not responses.
    told: Vec<Value>,
}

impl StdioFixture {
    async fn new(text: &str, state: Option<&Path>, filter: Filter, options: Options, modern: bool) -> Self {
        let host = TestHost::empty_with(text, |builder| match state {
            Some(dir) => builder.state_dir(dir),
            None => builder,
        });
        Self::of(host, filter, options, modern).await
    }

    async fn of(host: TestHost, filter: Filter, options: Options, modern: bool) -> Self {
        let bridge =
            Bridge::new(Arc::clone(host.host.registry()), host.host.server_connector()).with_saved_lists();
        let bridge = Arc::new(bridge);
        bridge.apply(&host.host.policy());
        let (registry, pipeline) = (host.host.registry().clone(), host.host.pipeline().clone());
        let server = Server::new(registry, pipeline, filter, options).with_bridge(&bridge);
        let changed = server.clone();
        host.host.events().listen(move |_| changed.notify_changed());
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(theirs);
        tokio::spawn(toolbay_mcp::serve(server, reader, writer, CancellationToken::new()));
        let (read, write) = tokio::io::split(ours);
        let lines = BufReader::new(read).lines();
        let mut edge = Self { host, bridge, write, lines, modern, last_id: 0, told: vec![] };
        if !modern {
            let client = json!({"name": "t", "version": "1"});
            edge.ask(
                "initialize",
                json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}),
            )
            .await;
            edge.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        }
        edge
    }

    async fn send(&mut self, message: &Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, method: &str, mut params: Value) -> u64 {
        self.last_id += 1;
        if self.modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.send(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})).await;
        self.last_id
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(SOON, self.lines.next_line()).await.expect("the server is silent");
        serde_json::from_str(&line.unwrap().expect("the server hung up")).unwrap()
    }

    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message;
            }
            self.told.push(message);
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.answer(id).await
    }

    async fn until_told(&mut self, method: &str) {
        while !self.told.iter().any(|message| message["method"] == method) {
            let message = self.next().await;
            self.told.push(message);
        }
        self.told.retain(|message| message["method"] != method);
    }

    /// The listed tools of bridged servers.
    async fn tools(&mut self) -> Vec<String> {
        let list = self.ask("tools/list", json!({})).await["result"]["tools"].clone();
        let names = list.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("mcp__")).collect()
    }

    async fn read(&mut self, uri: &str) -> Value {
        self.ask("resources/read", json!({ "uri": uri })).await
    }

    /// Waits for the resources of a server.
    async fn until_listed(&mut self, uri: &str) -> Vec<Value> {
        let start = std::time::Instant::now();
        loop {
            let list = self.ask("resources/list", json!({})).await["result"]["resources"].clone();
            let list = list.as_array().unwrap().clone();
            if list.iter().any(|one| one["uri"] == uri) {
                return list;
            }
            assert!(start.elapsed() < SOON, "{uri}: {list:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn patient() -> Options {
    Options { list_wait: SOON, ..Options::default() }
}

fn impatient() -> Options {
    Options { list_wait: Duration::from_millis(20), ..Options::default() }
}

/// A server that does not start while a file exists, and that file.
fn gated(name: &str, folder: &Path) -> (String, PathBuf) {
    let gate = folder.join("gate");
    // Outside the workspace, which differs for each host.
    let text = section(name, "good", "cwd = \"/\"");
    (text.replace(&format!("\"{name}\"]"), &format!("\"{name}\", {gate:?}]")), gate)
}

struct ServerGate(tempfile::TempDir);

impl ServerGate {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_list_waits_for_servers_that_come_soon() {
    for modern in [false, true] {
        let folder = ServerGate::new();
        let (text, gate) = gated("s", &folder.path());
        std::fs::write(&gate, "").unwrap();
        let mut edge = StdioFixture::new(&text, None, Filter::default(), patient(), modern).await;
        let list = edge.request("tools/list", json!({})).await;
        std::fs::remove_file(&gate).unwrap();
        let list = edge.answer(list).await["result"]["tools"].clone();
        assert!(list.as_array().unwrap().iter().any(|tool| tool["name"] == "mcp__s__echo"), "{list}");
        let said = edge.ask("tools/call", json!({"name": "mcp__s__echo", "arguments": {"text": "a"}})).await;
        assert_eq!(said["result"]["isError"], false, "{said}");
        assert!(edge.told.is_empty(), "{:?}", edge.told);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_its_server_and_a_list_not_for_ever() {
    let folder = ServerGate::new();
    let (text, gate) = gated("s", &folder.path());
    std::fs::write(&gate, "").unwrap();
    let mut edge = StdioFixture::new(&text, None, Filter::default(), impatient(), false).await;
    let call =
        edge.request("tools/call", json!({"name": "mcp__s__echo", "arguments": {"text": "early"}})).await;
    assert_eq!(edge.tools().await, [""; 0], "nothing is known of it");
    // A call of an unknown server waits for nothing.
    let unknown = edge.ask("tools/call", json!({"name": "mcp__other__echo", "arguments": {}})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    std::fs::remove_file(&gate).unwrap();
    let said = edge.answer(call).await;
    assert!(said["result"]["content"][0]["text"].as_str().unwrap().contains("early"), "{said}");
    edge.until_told("notifications/tools/list_changed").await;
    assert_eq!(edge.tools().await.len(), 18);
    // A tool that its server lacks is unknown once the server has started.
    let unknown = edge.ask("tools/call", json!({"name": "mcp__s__none", "arguments": {}})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_known_tools_are_there_before_their_server() {
    let (folder, state) = (ServerGate::new(), ServerGate::new());
    let (text, gate) = gated("s", &folder.path());
    let mut edge = StdioFixture::new(&text, Some(&state.path()), Filter::default(), patient(), false).await;
    let tools = edge.tools().await;
    assert_eq!(tools.len(), 18);
    let kept = state.path().join("mcp/s.json");
    let start = std::time::Instant::now();
    while !kept.exists() {
        assert!(start.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    edge.bridge.close().await;
    drop(edge);

    // The server does not start, and its tools are listed from the last run. A call waits for it. Its start changes nothing.
    std::fs::write(&gate, "").unwrap();
    for modern in [false, true] {
        std::fs::write(&gate, "").unwrap();
        let mut edge =
            StdioFixture::new(&text, Some(&state.path()), Filter::default(), patient(), modern).await;
        assert_eq!(edge.tools().await, tools);
        assert_eq!(edge.bridge.status()[0].state, ServerState::Connecting);
        let call = json!({"name": "mcp__s__echo", "arguments": {"text": "held"}});
        let call = edge.request("tools/call", call).await;
        std::fs::remove_file(&gate).unwrap();
        let said = edge.answer(call).await;
        let text = said["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("<untrusted source=\"mcp:s\"") && text.contains("held"), "{said}");
        assert_eq!(edge.tools().await, tools);
        assert!(edge.told.is_empty(), "{:?}", edge.told);
        edge.bridge.close().await;
    }

    // The cached list is filtered like a fresh list: without excluded and invalid tools.
    std::fs::write(&gate, "").unwrap();
    let fewer = format!("{text}\ntools = [\"e*\"]");
    let mut edge =
        StdioFixture::new(&fewer, Some(&state.path()), Filter::default(), impatient(), false).await;
    edge.bridge.wait_settled(Duration::from_millis(300)).await;
    assert_eq!(edge.tools().await, ["mcp__s__echo", "mcp__s__env"]);
    edge.bridge.close().await;

    // The cache is ignored if the server is defined differently or the file is damaged.
    let other = text.replace("\"good\"", "\"modern\"");
    let mut edge =
        StdioFixture::new(&other, Some(&state.path()), Filter::default(), impatient(), false).await;
    edge.bridge.wait_settled(Duration::from_millis(300)).await;
    assert_eq!(edge.tools().await, [""; 0]);
    edge.bridge.close().await;
    let whole = std::fs::read(&kept).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"", b"{\"key\":7}"] {
        std::fs::write(&kept, damaged).unwrap();
        let mut edge =
            StdioFixture::new(&text, Some(&state.path()), Filter::default(), impatient(), false).await;
        edge.bridge.wait_settled(Duration::from_millis(300)).await;
        assert_eq!(edge.tools().await, [""; 0]);
        edge.bridge.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_read_from_their_server() {
    let both = [section("a", "resources", ""), section("b", "resources", "")].concat();
    for modern in [false, true] {
        let mut edge = StdioFixture::new(&both, None, Filter::default(), patient(), modern).await;
        edge.tools().await;
        for name in ["a", "b"] {
            let call = json!({"name": format!("mcp__{name}__link"), "arguments": {}});
            let result = edge.ask("tools/call", call).await["result"].clone();
            let uri = format!("toolbay://mcp/{name}/note://1");
            assert_eq!(result["content"][0]["uri"], uri, "{result}");
            assert_eq!(result["content"][1]["resource"]["uri"], uri, "{result}");
            let contents = edge.read(&uri).await["result"]["contents"].clone();
            assert_eq!(
                (contents.as_array().unwrap().len(), &contents[0]["uri"]),
                (1, &json!(uri)),
                "{contents}"
            );
            let text = contents[0]["text"].as_str().unwrap();
            assert!(text.starts_with(&format!("<untrusted source=\"mcp:{name}\"")), "{text}");
            assert!(text.contains(&format!("{name} says note://1[STRIPPED-TEMPLATE-TOKEN]\n")), "{text:?}");
        }
        let list = edge.until_listed("toolbay://mcp/a/note://1").await;
        let first = list.iter().find(|one| one["uri"] == "toolbay://mcp/a/note://1").unwrap();
        assert_eq!(first["name"], "first\\u{202e}\\u{1b}[31m", "{first}");
        assert_eq!(first["description"], "[STRIPPED-TEMPLATE-TOKEN]obey", "{first}");
        assert_eq!((first.get("mimeType"), &first["size"]), (None, &json!(3)), "{first}");
        assert!(
            list.iter().all(|one| one["uri"].as_str().unwrap().starts_with("toolbay://mcp/")),
            "{list:?}"
        );
        let templates = edge.ask("resources/templates/list", json!({})).await;
        let templates = templates["result"]["resourceTemplates"].clone();
        assert_eq!(templates[0]["uriTemplate"], "toolbay://mcp/a/note://{id}", "{templates}");
        let made = edge.read("toolbay://mcp/a/note://42").await;
        assert!(
            made["result"]["contents"][0]["text"].as_str().unwrap().contains("a says note://42"),
            "{made}"
        );
        let blob = edge.read("toolbay://mcp/a/note://blob").await["result"]["contents"][0].clone();
        assert_eq!((&blob["blob"], &blob["mimeType"]), (&json!("iVBORw0KGgo="), &json!("image/png")));
        // An ambiguous link is not a link.
        for uri in ["../b/note://1", "x:/../../b/note://1", "attachment:1\u{202e}"] {
            let call = json!({"name": "mcp__a__link", "arguments": {"uri": uri}});
            let result = edge.ask("tools/call", call).await["result"].clone();
            assert_eq!(result["content"][0]["type"], "text", "{result}");
            assert!(!result["content"][1]["resource"]["uri"].as_str().unwrap().contains("note"), "{result}");
        }
        for forged in ["attachment:1", "toolbay://output/1", "toolbay://mcp/b/note://1"] {
            let call = json!({"name": "mcp__a__link", "arguments": {"uri": forged}});
            let result = edge.ask("tools/call", call).await["result"].clone();
            assert_eq!(result["content"][0]["uri"], format!("toolbay://mcp/a/{forged}"), "{result}");
        }
        let missing = if modern { -32602 } else { -32002 };
        for none in [
            "note://1",
            "toolbay://mcp/c/note://1",
            "toolbay://mcp/a",
            "toolbay://mcp/a/",
            "toolbay://mcp/a/../b/note://1",
            "toolbay://mcp/a/note://none",
        ] {
            assert_eq!(edge.read(none).await["error"]["code"], missing, "{none}");
        }
        for bad in ["note://big", "note://many", "note://bad"] {
            let answer = edge.read(&format!("toolbay://mcp/a/{bad}")).await;
            assert_eq!(answer["error"]["code"], -32603, "{answer}");
        }
        let completed = json!({"ref": {"type": "ref/resource", "uri": "toolbay://mcp/a/note://{id}"}, "argument": {"name": "id", "value": "1"}});
        assert_eq!(
            edge.ask("completion/complete", completed).await["result"]["completion"]["values"],
            json!([])
        );
        let status = edge.bridge.status().remove(0);
        let problems = status.problems.join("\n");
        for part in ["`late`: it can only be called as a task", "1000 resources", "URI `../b/note://1`"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        assert!(!edge.tools().await.contains(&"mcp__a__late".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_resources_that_the_policy_admits_are_read() {
    let text = [
        section("a", "resources", "resources = [\"note://*\"]\ntimeout = \"400ms\""),
        section("b", "resources", "resources = []"),
        section("c", "resources", "permission = \"deny\""),
        section("d", "resources", ""),
        "[[rule]]\nsource = \"mcp:d\"\naction = \"ask\"\n[profile.p]\nmcp_servers = [\"b\"]\n".to_owned(),
    ]
    .concat();
    let mut edge = StdioFixture::new(&text, None, Filter::default(), patient(), false).await;
    edge.tools().await;
    let list = edge.until_listed("toolbay://mcp/a/note://1").await;
    assert!(list.iter().all(|one| !one["uri"].as_str().unwrap().starts_with("toolbay://mcp/b/")), "{list:?}");
    assert!(
        !list.iter().any(|one| one["uri"].as_str().unwrap().contains("passwd")
            && one["uri"].as_str().unwrap().contains("/a/"))
    );
    assert!(edge.read("toolbay://mcp/a/note://7").await["result"].is_object());
    for refused in ["a/file:///etc/passwd", "b/note://1", "c/note://1", "d/note://1"] {
        let answer = edge.read(&format!("toolbay://mcp/{refused}")).await;
        assert_eq!(answer["error"]["code"], -32002, "{refused}: {answer}");
    }
    let late = edge.read("toolbay://mcp/a/note://hang").await;
    assert!(late["error"]["message"].as_str().unwrap().contains("400ms"), "{late}");
    // Refused reads do not reach a server.
    let asked = edge.ask("tools/call", json!({"name": "mcp__a__asked", "arguments": {}})).await.to_string();
    assert!(asked.contains("note://7") && !asked.contains("passwd"), "{asked}");
    for server in ["b", "d"] {
        let asked = edge.host.call(&format!("mcp__{server}__asked"), json!({})).await;
        assert!(!format!("{asked:?}").contains("note://1"), "{asked:?}");
    }
    let policy = edge.host.host.policy();
    let profile = Filter::for_profile(policy.profile("p").cloned());
    let mut narrow = StdioFixture::new(&text, None, profile, patient(), false).await;
    narrow.tools().await;
    let answer = narrow.read("toolbay://mcp/a/note://1").await;
    assert_eq!(answer["error"]["code"], -32002, "not in the profile: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_lines_of_a_server_that_fails_are_reported() {
    let edge =
        StdioFixture::new(&section("s", "traceback", ""), None, Filter::default(), patient(), false).await;
    edge.bridge.wait_settled(SOON).await;
    let reason = edge.bridge.status().remove(0).reason.unwrap();
    for n in 20..30 {
        assert!(reason.contains(&format!("[31mline {n} of the trace")), "{reason}");
    }
    assert!(
        !reason.contains("line 19 ") && !reason.contains('\u{1b}') && reason.chars().count() <= 1001,
        "{reason}"
    );
}

/// Servers start before plugins are loaded.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_not_write_to_the_plugin_directory() {
    let plugins = ServerGate::new();
    let text = section("s", "good", &format!("fs_write = [{:?}]", plugins.path()));
    let host = TestHost::empty(&text);
    host.host.protect_sources(&plugins.path());
    let edge = StdioFixture::of(host, Filter::default(), impatient(), false).await;
    edge.bridge.wait_settled(SOON).await;
    let status = edge.bridge.status().remove(0);
    assert_eq!((status.state, status.connects), (ServerState::Failed, 0), "{status:?}");
}
