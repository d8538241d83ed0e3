//! The admin listener: who may use it, what they may do, and the metrics.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;

use crate::fixture::admin::{AdminFixture, TEST, exchange};
use crate::fixture::{HostFolder, ServerProcess};

#[test]
fn every_request_needs_a_token_with_its_role() {
    let admin = AdminFixture::with_admin("");
    let own = format!("host: {}\r\n", admin.address);
    for path in ["/metrics", "/api/v1/calls", "/api/v1/server", "/api/v1/nothing"] {
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
    let admin = AdminFixture::with_admin("");
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
    let mut admin = AdminFixture::with_admin("");
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
    let unknown = admin.with_token("POST /api/v1/tools/nope__x/enable", "test");
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!("unknown_tool")));
    let log = admin.desk.good(&["log", "--json"]);
    let action = log.lines().find(|line| line.contains("\"kind\":\"action\"")).unwrap();
    assert!(action.contains("\"by\":\"token:oncall\""), "{action}");
}

#[test]
fn metrics_count_calls_by_known_names_only() {
    let mut admin = AdminFixture::with_admin("metrics = \"open\"");
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
    assert!(!metrics.body.contains("\"unknown_1") && !metrics.body.contains("forged"), "{}", metrics.body);
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
    desk.run(&["serve", "--http", "0"]).says(2, &["admin.toml"]);
    desk.write_private(
        "admin.toml",
        &format!("[[token]]\nname = \"a\"\nsha256 = \"{TEST}\"\nrole = \"root\"\n"),
    );
    desk.run(&["serve", "--http", "0"]).says(2, &["admin.toml", "unknown variant"]);
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
