//! The admin listener: who may use it, what they may do, and the metrics.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

mod fixture;

use fixture::{HANGS, HostFolder, ServerProcess};

/// SHA-256 of `test`.
const TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
/// SHA-256 of `b`.
const B: &str = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";

/// A server with an admin listener: `test` may act, `b` may look.
struct AdminFixture {
    desk: HostFolder,
    server: ServerProcess,
    address: String,
}

/// A response.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a series.
    fn series(&self, name: &str) -> Option<f64> {
        self.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> Answer {
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    // A server that closes with unread input resets the connection.
    drop(stream.read_to_end(&mut bytes));
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

impl AdminFixture {
    fn new(admin: &str) -> Self {
        let policy = format!(
            "[admin]\nlisten = \"127.0.0.1:0\"\ntokens = \"admin.toml\"\n{admin}\n[[rule]]\ntool = \"e__long\"\naction = \"deny\"\n"
        );
        let desk = HostFolder::new(&policy).with_plugin("e", guest_artifacts::API_ECHO);
        let desk = desk.with_plugin("s", guest_artifacts::HOSTILE_SLEEP);
        let token = |name: &str, sha256: &str, role: &str| {
            format!("[[token]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\nrole = \"{role}\"\n")
        };
        desk.write_private(
            "admin.toml",
            &(token("oncall", TEST, "operate") + &token("prometheus", B, "view")),
        );
        let mut server = ServerProcess::serve(&desk);
        let line = server.until_told("operators reach it on http://");
        let address = line.rsplit("http://").next().unwrap().trim().to_owned();
        server.initialize();
        Self { desk, server, address }
    }

    /// Sends a request with these headers.
    fn send(&self, line: &str, headers: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        exchange(&mut stream, &format!("{line} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n"))
    }

    fn with_token(&self, line: &str, token: &str) -> Answer {
        self.send(
            line,
            &format!("host: {}\r\nauthorization: Bearer {token}\r\ncontent-length: 0\r\n", self.address),
        )
    }

    fn call(&mut self, id: u64, tool: &str, args: &Value) -> Value {
        self.server.send(id, "tools/call", &json!({"name": tool, "arguments": args}));
        self.server.result(id)
    }
}

#[test]
fn every_request_needs_a_token_with_its_role() {
    let admin = AdminFixture::new("");
    let own = format!("host: {}\r\n", admin.address);
    for path in ["/metrics", "/api/v1/calls", "/api/v1/server", "/nothing"] {
        let line = format!("GET {path}");
        let missing = admin.send(&line, &own);
        assert_eq!(
            (missing.status, &missing.json()["error"]["code"]),
            (401, &json!("token_missing")),
            "{path}"
        );
        assert!(missing.head.contains("www-authenticate: bearer"), "{missing:?}");
        assert_eq!(admin.with_token(&line, "wrong").status, 401);
    }
    for token in ["b", "test"] {
        let info = admin.with_token("GET /api/v1/server", token);
        assert_eq!((info.status, &info.json()["transport"]), (200, &json!("stdio")), "{info:?}");
    }
    for action in ["stop", "resume", "reload", "calls/1/cancel"] {
        let refused = admin.with_token(&format!("POST /api/v1/{action}"), "b");
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (403, &json!("role")), "{action}");
    }
    assert_eq!(admin.with_token("POST /api/v1/resume", "test").json(), json!({"was_stopped": false}));
    // A token that is taken away ends at once.
    admin.desk.write_private("admin.toml", "");
    assert_eq!(admin.with_token("GET /api/v1/calls", "test").status, 401);
    admin.desk.write_private("admin.toml", "[[token]]\nname = 1");
    assert_eq!(admin.with_token("GET /api/v1/calls", "test").status, 503);
    let log = admin.desk.good(&["log", "--json"]);
    assert!(log.contains("\"reason\":\"token_missing\"") && log.contains("\"reason\":\"role\""), "{log}");
}

#[test]
fn pages_of_other_origins_and_names_are_refused() {
    let admin = AdminFixture::new("");
    let token = "authorization: Bearer test\r\n";
    let port = admin.address.rsplit(':').next().unwrap();
    let get = |headers: &str| admin.send("GET /api/v1/calls", &format!("{headers}{token}")).status;
    assert_eq!(get(&format!("host: localhost:{port}\r\n")), 200);
    assert_eq!(get(&format!("host: {}\r\norigin: http://{}\r\n", admin.address, admin.address)), 200);
    for headers in [
        // A name that an attacker's DNS server points here.
        format!("host: evil.example:{port}\r\n"),
        "host: 127.0.0.1\r\n".to_owned(),
        format!("host: {}\r\norigin: https://evil.example\r\n", admin.address),
        format!("host: {}\r\norigin: null\r\n", admin.address),
        format!("host: {}\r\norigin: http://localhost:{port}\r\n", admin.address),
    ] {
        assert_eq!(get(&headers), 403, "{headers}");
    }
    // Without `Host`, a request is no HTTP/1.1.
    assert!([400, 403].contains(&get("")));
}

#[test]
fn operators_act_and_the_audit_names_them() {
    let mut admin = AdminFixture::new("");
    admin.server.send(1, "tools/call", &json!({"name": "s__sleep", "arguments": {"ms": 25_000}}));
    let running = loop {
        let calls = admin.with_token("GET /api/v1/calls", "b").json();
        if calls[0]["began"] == json!(true) {
            break calls[0]["number"].clone();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let cancelled = admin.with_token(&format!("POST /api/v1/calls/{running}/cancel"), "test");
    assert_eq!((cancelled.status, &cancelled.json()["tool"]), (200, &json!("s__sleep")));
    assert_eq!(admin.server.result(1)["isError"], json!(true));
    let log = admin.desk.good(&["log", "--json"]);
    let action = log.lines().find(|line| line.contains("\"kind\":\"action\"")).unwrap();
    assert!(action.contains("\"by\":\"token:oncall\""), "{action}");
}

#[test]
fn metrics_count_calls_by_known_names_only() {
    let mut admin = AdminFixture::new("metrics = \"open\"");
    assert_eq!(admin.call(1, "e__echo", &json!({}))["isError"], json!(false));
    assert_eq!(admin.call(2, "e__long", &json!({}))["isError"], json!(true));
    for id in 10..20 {
        admin.server.send(
            id,
            "tools/call",
            &json!({"name": format!("unknown_{id}\n# forged 1"), "arguments": {}}),
        );
        admin.server.result_or_error(id);
    }
    let metrics = admin.send("GET /metrics", &format!("host: {}\r\n", admin.address));
    assert_eq!(metrics.status, 200);
    assert!(
        metrics.head.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{metrics:?}"
    );
    let calls = |plugin: &str, tool: &str, outcome: &str| {
        metrics.series(&format!(
            "toolbay_calls_total{{plugin=\"{plugin}\",tool=\"{tool}\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!(calls("e", "e__echo", "ok"), Some(1.0), "{}", metrics.body);
    assert_eq!(calls("e", "e__long", "not_available"), Some(1.0));
    assert!(!metrics.body.contains("unknown_") && !metrics.body.contains("forged"), "{}", metrics.body);
    for (series, expected) in [
        ("toolbay_call_duration_seconds_count{plugin=\"e\"}", 2.0),
        ("toolbay_permissions_total{action=\"deny\"}", 1.0),
        ("toolbay_calls_running", 0.0),
        ("toolbay_plugins_held", 0.0),
        ("toolbay_audit_lost_total", 0.0),
    ] {
        assert_eq!(metrics.series(series), Some(expected), "{series}: {}", metrics.body);
    }
    assert!(metrics.series("toolbay_fuel_total{plugin=\"e\"}").unwrap() > 0.0);
    assert!(
        metrics.body.contains("toolbay_build_info{version=")
            && metrics.body.contains("toolbay_plugin_info{plugin=\"e\"")
    );
    assert!(metrics.body.ends_with("# EOF\n"));
    assert_eq!(admin.send("GET /api/v1/calls", &format!("host: {}\r\n", admin.address)).status, 401);
}

#[test]
fn a_socket_can_be_the_listener() {
    let desk = HostFolder::new("[admin]\nlisten = \"unix:admin.sock\"\ntokens = \"admin.toml\"\n");
    desk.write_private(
        "admin.toml",
        &format!("[[token]]\nname = \"a\"\nsha256 = \"{TEST}\"\nrole = \"view\"\n"),
    );
    for _ in 0..2 {
        let mut server = ServerProcess::serve(&desk);
        server.until_told("operators reach it on unix:");
        let get = |token: &str| {
            let mut stream = UnixStream::connect(desk.path("admin.sock")).unwrap();
            let request = format!(
                "GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
            );
            exchange(&mut stream, &request).status
        };
        assert_eq!((get("test"), get("wrong")), (200, 401));
        // Its socket is left, and the next server takes the place.
        server.signal("KILL");
        server.child.wait().unwrap();
    }
}

#[test]
fn a_bad_section_or_token_file_is_an_error() {
    let desk = HostFolder::new("[admin]\nlisten = \"0.0.0.0:8081\"\ntokens = \"admin.toml\"\n");
    desk.run(&["serve"]).says(2, &["not a loopback address"]);
    desk.write_policy("[admin]\nlisten = \"127.0.0.1:0\"\ntokens = \"admin.toml\"\n");
    desk.run(&["serve", "--http", "0"]).says(3, &["admin.toml"]);
    desk.write_private(
        "admin.toml",
        &format!("[[token]]\nname = \"a\"\nsha256 = \"{TEST}\"\nrole = \"root\"\n"),
    );
    desk.run(&["serve", "--http", "0"]).says(3, &["admin.toml", "unknown variant"]);
    desk.run(&["policy", "check"]).says(2, &["admin.toml", "unknown variant"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    desk.write_private("admin.toml", "");
    desk.write_policy(&format!("[admin]\nlisten = \"{address}\"\ntokens = \"admin.toml\"\n"));
    desk.run(&["serve", "--http", "0"]).says(3, &["[admin]", "in use"]);
    // The second server of a desktop continues without the listener.
    let mut server = ServerProcess::serve(&desk);
    server.until_told("in use");
    server.initialize();
}
