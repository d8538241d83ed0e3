//! Servers of both eras that start slowly or strangely. The clock is virtual.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::Instant;

use super::super::stdio::tests::pipe_link;
use super::*;

/// What a server does with one request.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Reply {
    Modern,
    /// A modern result with these members instead of `supportedVersions`, and a megabyte of instructions.
    Odd(&'static str),
    Legacy,
    /// -32601.
    Unknown,
    /// -32022, with the supported versions.
    Unsupported(&'static [&'static str]),
    /// -32602, with the supported versions.
    Invalid(&'static [&'static str]),
    Nothing,
    Exit,
}
use Reply::{Exit, Invalid, Legacy, Modern, Nothing, Odd, Unknown, Unsupported};

/// A server: how long it takes to start, and its replies to the first and all further requests of each method.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct TestServer {
    pub(in super::super) start: u64,
    pub(in super::super) discover: [Reply; 2],
    pub(in super::super) initialize: [Reply; 2],
}

impl TestServer {
    /// Starts the server. Returns the link, and the methods that the server has read.
    fn start(self) -> (Link, Arc<Inbox>, Arc<Mutex<Vec<String>>>) {
        let (link, inbox, pipe) = pipe_link();
        let seen = Arc::new(Mutex::new(Vec::new()));
        // Ends with the link.
        tokio::spawn(self.serve(pipe, Arc::clone(&seen)));
        (Link::Stdio(link), inbox, seen)
    }

    pub(in super::super) async fn serve(self, pipe: tokio::io::DuplexStream, seen: Arc<Mutex<Vec<String>>>) {
        tokio::time::sleep(Duration::from_secs(self.start)).await;
        let (reader, mut writer) = tokio::io::split(pipe);
        let mut lines = BufReader::new(reader).lines();
        let mut counts = [0; 3];
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let method = message["method"].as_str().unwrap_or_default().to_owned();
            seen.lock().push(method.clone());
            if method == "tools/list" {
                let result = json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                continue;
            }
            let (replies, kind) = match method.as_str() {
                "server/discover" => (self.discover, 0),
                "initialize" => (self.initialize, 1),
                // Some servers refuse the notification, with an error without an id.
                _ => ([Unknown; 2], 2),
            };
            let reply = replies[counts[kind]];
            counts[kind] = 1;
            let refuse = |code: i64, supported: &[&str]| json!({"error": {"code": code, "message": "no", "data": {"supported": supported, "requested": "x"}}});
            let mut answer = match reply {
                Modern => json!({"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}),
                Odd(members) => {
                    let long = "i".repeat(1 << 20);
                    let result = format!("{{{members}\"instructions\":\"{long}\"}}");
                    json!({"result": serde_json::from_str::<Value>(&result).unwrap()})
                }
                Legacy => {
                    json!({"result": {"protocolVersion": message["params"]["protocolVersion"], "capabilities": []}})
                }
                Unknown => refuse(-32601, &[]),
                Unsupported(versions) => refuse(-32022, versions),
                Invalid(versions) => refuse(-32602, versions),
                Nothing => continue,
                Exit => return,
            };
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = message["id"].clone();
            writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
    }
}

/// The negotiated version or the error, the methods that the server read, and the seconds that it took.
async fn negotiate(
    server: TestServer,
    protocol: ProtocolEra,
    remembered: Option<Era>,
) -> (Result<String, BeginError>, Vec<String>, u64) {
    let begun = Instant::now();
    let (link, inbox, seen) = server.start();
    let session = ClientSession::begin(link, inbox, protocol, remembered);
    let session = tokio::time::timeout(Duration::from_secs(60), session).await;
    let found = match session {
        Ok(begun) => begun.map(|session| session.negotiated.protocol.clone()),
        Err(_) => Err(BeginError::Failed(LinkError::Closed("start_timeout".into()))),
    };
    let seconds = begun.elapsed().as_secs();
    let seen = seen.lock().clone();
    (found, seen, seconds)
}

const BOTH: &[&str] = &["server/discover", "initialize"];
const ONLY_MODERN: &[&str] = &[MODERN];

#[tokio::test(start_paused = true)]
async fn the_era_of_every_server_is_found() {
    for (what, start, discover, initialize, expect, methods) in [
        ("modern", 0, [Modern; 2], [Unsupported(ONLY_MODERN); 2], MODERN, &BOTH[..1]),
        (
            "modern, no versions",
            0,
            [Odd("\"capabilities\":{\"tools\":{}},"); 2],
            [Unsupported(ONLY_MODERN); 2],
            MODERN,
            &BOTH[..1],
        ),
        ("legacy, odd", 0, [Odd(""); 2], [Legacy; 2], LEGACY, BOTH),
        ("modern, slow", 6, [Modern; 2], [Unsupported(ONLY_MODERN); 2], MODERN, BOTH),
        ("modern, very slow", 50, [Modern; 2], [Unsupported(ONLY_MODERN); 2], MODERN, BOTH),
        ("modern, slow, ignores the handshake", 6, [Modern; 2], [Nothing; 2], MODERN, BOTH),
        ("modern, slow, unknown method", 6, [Modern; 2], [Unknown; 2], MODERN, BOTH),
        ("modern, slow, exits on the handshake", 6, [Modern; 2], [Exit; 2], MODERN, BOTH),
        ("both, slow", 6, [Modern; 2], [Legacy; 2], MODERN, BOTH),
        ("legacy", 0, [Unknown; 2], [Legacy; 2], LEGACY, BOTH),
        ("legacy, slow", 30, [Unknown; 2], [Legacy; 2], LEGACY, BOTH),
        ("legacy, deaf", 0, [Nothing; 2], [Legacy; 2], LEGACY, BOTH),
        ("legacy, deaf and slow", 30, [Nothing; 2], [Legacy; 2], LEGACY, BOTH),
        ("legacy, listed by discover", 0, [Unsupported(&[LEGACY]); 2], [Legacy; 2], LEGACY, BOTH),
        (
            "older, named in the refusal",
            0,
            [Unknown; 2],
            [Invalid(&["1999-01-01", "2024-11-05"]), Legacy],
            "2024-11-05",
            BOTH,
        ),
        (
            "modern after the handshake was refused",
            0,
            [Unknown, Modern],
            [Unsupported(ONLY_MODERN); 2],
            MODERN,
            &["server/discover", "initialize", "server/discover"],
        ),
        (
            "modern, deaf at first",
            0,
            [Nothing, Modern],
            [Unsupported(ONLY_MODERN); 2],
            MODERN,
            &["server/discover", "initialize", "server/discover"],
        ),
    ] {
        let server = TestServer { start, discover, initialize };
        let (found, seen, seconds) = negotiate(server, ProtocolEra::Auto, None).await;
        assert_eq!(found.ok().as_deref(), Some(expect), "{what}");
        assert!(
            seen.starts_with(&methods.iter().map(ToString::to_string).collect::<Vec<_>>()),
            "{what}: {seen:?}"
        );
        assert!(seconds <= start.max(DISCOVER_TIMEOUT.as_secs()), "{what}: {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_remembered_era_comes_first() {
    let slow = TestServer { start: 30, discover: [Modern; 2], initialize: [Exit; 2] };
    let (found, seen, _) = negotiate(slow, ProtocolEra::Auto, Some(Era::Modern)).await;
    assert_eq!((found.unwrap(), seen), (MODERN.to_owned(), vec!["server/discover".to_owned()]));
    let older = TestServer { start: 30, discover: [Exit; 2], initialize: [Legacy; 2] };
    let (found, seen, _) = negotiate(older, ProtocolEra::Auto, Some(Era::Legacy)).await;
    assert_eq!((found.unwrap(), &*seen[0]), (LEGACY.to_owned(), "initialize"));
    // The server has changed its era since.
    for refusal in [Unsupported(ONLY_MODERN), Unknown] {
        let upgraded = TestServer { start: 0, discover: [Modern; 2], initialize: [refusal; 2] };
        assert_eq!(negotiate(upgraded, ProtocolEra::Auto, Some(Era::Legacy)).await.0.unwrap(), MODERN);
    }
    let downgraded = TestServer { start: 0, discover: [Unknown; 2], initialize: [Legacy; 2] };
    assert_eq!(negotiate(downgraded, ProtocolEra::Auto, Some(Era::Modern)).await.0.unwrap(), LEGACY);
}

#[tokio::test(start_paused = true)]
async fn what_no_era_fits_fails_with_the_reason() {
    for (what, protocol, discover, initialize, part) in [
        ("exits", ProtocolEra::Auto, [Exit; 2], [Exit; 2], "RetryAsLegacy"),
        ("refuses both", ProtocolEra::Auto, [Unknown; 2], [Unknown; 2], "-32601"),
        (
            "newer",
            ProtocolEra::Auto,
            [Unsupported(&["2099-01-01"]); 2],
            [Unsupported(&["2099-01-01"]); 2],
            "-32022",
        ),
        (
            "odd",
            ProtocolEra::Auto,
            [Odd("\"supportedVersions\":[\"2099-01-01\"],"); 2],
            [Unsupported(ONLY_MODERN); 2],
            "it supports 2099-01-01, but not 2026-07-28",
        ),
        (
            "refuses, odd",
            ProtocolEra::Auto,
            [Odd(""); 2],
            [Unsupported(ONLY_MODERN); 2],
            "it lists no versions",
        ),
        ("never answers", ProtocolEra::Auto, [Nothing; 2], [Nothing; 2], "start_timeout"),
        ("only legacy", ProtocolEra::Modern, [Unknown; 2], [Legacy; 2], "does not support revision"),
        ("only modern", ProtocolEra::Legacy, [Modern; 2], [Unsupported(ONLY_MODERN); 2], "-32022"),
    ] {
        let server = TestServer { start: 6, discover, initialize };
        let (found, seen, _) = negotiate(server, protocol, None).await;
        let error = format!("{:?}", found.unwrap_err());
        assert!(error.contains(part), "{what}: {error} {seen:?}");
        let is_auto = protocol == ProtocolEra::Auto;
        assert!(is_auto || seen.iter().all(|method| *method == seen[0]), "one era only: {what}: {seen:?}");
    }
}
