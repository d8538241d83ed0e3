//! `toolbay serve --http` as an operator uses it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{HANGS, HostFolder, ServerProcess, wait_until};

/// SHA-256 of `test`.
const TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn folder(policy: &str) -> HostFolder {
    let folder = HostFolder::new(policy).with_plugin("e", guest_artifacts::API_ECHO);
    folder.with_plugin("s", guest_artifacts::HOSTILE_SLEEP)
}

fn serve(folder: &HostFolder) -> HttpServerProcess {
    HttpServerProcess::start(folder.command(&["serve", "--http", "127.0.0.1:0"]))
}

struct HttpServerProcess {
    process: ServerProcess,
    address: SocketAddr,
}

impl std::ops::Deref for HttpServerProcess {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

impl std::ops::DerefMut for HttpServerProcess {
    fn deref_mut(&mut self) -> &mut ServerProcess {
        &mut self.process
    }
}

impl HttpServerProcess {
    fn start(command: Command) -> Self {
        let process = ServerProcess::start(command);
        let line = process.until_told("listening on http://");
        let (_, place) = line.split_once("http://").unwrap();
        let server = Self { address: place.trim_end_matches("/mcp").parse().unwrap(), process };
        wait_until("it is ready", || server.get("/readyz").0 == 200);
        server
    }

    /// Sends a request with its own headers.
    fn open(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let (line, own) = head.split_once('\n').unwrap_or((head, ""));
        let length = format!("content-length: {}", body.len());
        let headers = own.lines().chain(["host: localhost", "connection: close", &length]);
        let headers: String = headers.map(|header| format!("{}\r\n", header.trim())).collect();
        stream.write_all(format!("{line} HTTP/1.1\r\n{headers}\r\n{body}").as_bytes()).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        stream
    }

    fn get(&self, path: &str) -> (u16, String) {
        read(self.open(&format!("GET {path}"), ""))
    }

    fn call(&self, tool: &str, args: &Value, token: &str) -> TcpStream {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": tool, "arguments": args, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let head = format!(
            "POST /mcp\nauthorization: Bearer {token}\ncontent-type: application/json\n\
             accept: application/json, text/event-stream\nmcp-protocol-version: 2026-07-28\n\
             mcp-method: tools/call\nmcp-name: {tool}"
        );
        self.open(&head, &body.to_string())
    }

    fn echoes(&self, token: &str) -> u16 {
        read(self.call("e__echo", &json!({"a": 1}), token)).0
    }
}

fn read(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

#[test]
fn refused_requests_are_in_the_audit_and_in_the_log() {
    let desk = folder("[serve]\ntokens = \"tokens.toml\"\n");
    desk.write_private("tokens.toml", &format!("[[token]]\nname = \"ci\"\nsha256 = \"{TEST}\"\n"));
    let mut server = serve(&desk);
    assert_eq!(server.echoes("test"), 200);
    for _ in 0..100 {
        assert!([401, 429].contains(&server.echoes("wrong")));
    }
    server.until_told("a request was refused");
    assert_eq!(read(server.open("POST /mcp", "{}")).0, 401);
    assert_eq!(read(server.open("POST /mcp\nhost: evil.example", "{}")).0, 400);
    server.signal("TERM");
    assert_eq!(server.exit_code(), 0);
    let log = desk.command(&["log", "--json"]).output().unwrap();
    let lines = String::from_utf8(log.stdout).unwrap();
    let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str, reason: &str| {
        let of = records.iter().filter(|record| record["kind"] == kind && record["reason"] == reason);
        of.cloned().collect::<Vec<_>>()
    };
    for (reason, status) in [("token_unknown", 401), ("token_missing", 401), ("headers", 400)] {
        let found = of("request", reason);
        assert!(!found.is_empty() && found.len() <= 20, "{reason}: {}", found.len());
        assert_eq!((&found[0]["client"], &found[0]["status"]), (&json!("127.0.0.1"), &json!(status)));
        assert_eq!((&found[0]["method"], &found[0]["path"]), (&json!("POST"), &json!("/mcp")));
    }
    // Refusals without a line of their own are counted, including those pending when the server ended.
    let wrong = ["token_unknown", "wrong_tokens"];
    let listed: usize = wrong.iter().map(|reason| of("request", reason).len()).sum();
    let counts = wrong.iter().flat_map(|reason| of("refused", reason));
    let counted: u64 = counts.map(|record| record["count"].as_u64().unwrap()).sum();
    assert_eq!(listed as u64 + counted, 100);
}

#[test]
fn running_calls_are_answered_after_sigterm() {
    let desk = folder("");
    let mut server = serve(&desk);
    assert_eq!(server.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(server.echoes("none"), 200);
    let running = server.call("s__sleep", &json!({"ms": 2000}), "none");
    std::thread::sleep(Duration::from_millis(500));
    server.signal("TERM");
    let (status, body) = read(running);
    assert!(status == 200 && body.contains("slept"), "{status} {body}");
    assert_eq!(server.exit_code(), 0);
    assert_eq!(server.stdout.recv().ok(), None, "nothing is on stdout");
}

#[test]
fn a_second_sigterm_ends_the_server_at_once() {
    let desk = folder("[serve.limits]\ndrain_grace = \"60m\"\n[limits]\ntimeout = \"60m\"\n");
    let mut server = serve(&desk);
    let running = server.call("s__sleep", &json!({}), "none");
    std::thread::sleep(Duration::from_millis(500));
    server.signal("INT");
    wait_until("it is not ready", || TcpStream::connect(server.address).is_err());
    assert!(server.child.try_wait().unwrap().is_none(), "the call still runs");
    server.signal("INT");
    assert_eq!(server.exit_code(), 0);
    drop(running);
}

#[test]
fn a_call_that_a_drain_cuts_off_is_answered_with_an_error() {
    let desk = folder("[serve.limits]\ndrain_grace = \"300ms\"\n");
    let mut server = serve(&desk);
    assert_eq!(server.echoes("none"), 200);
    let running = server.call("s__sleep", &json!({"ms": 25_000}), "none");
    // Two connections may be answered in either order, so the test asks which call runs.
    std::thread::sleep(Duration::from_millis(500));
    server.signal("TERM");
    let (status, body) = read(running);
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["result"]["isError"], json!(true), "{body}");
    assert!(body["result"]["content"][0]["text"].as_str().unwrap().contains("shutting down"), "{body}");
    assert_eq!(server.exit_code(), 0);
}

#[test]
fn idle_connections_do_not_use_up_the_descriptors() {
    // Without `idle_timeout` they would stay for an hour.
    let desk = folder("[serve.limits]\nidle_timeout = \"60m\"\n");
    let mut command = desk.prepare(Command::new("sh"));
    let program = env!("CARGO_BIN_EXE_toolbay");
    command.args(["-c", &format!("ulimit -n 256; exec {program} serve --http 127.0.0.1:0")]);
    let server = HttpServerProcess::start(command);
    let idle: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for _ in 0..20 {
        assert_eq!(server.get("/healthz").0, 200);
    }
    assert_eq!(server.echoes("none"), 200, "a call has descriptors, too");
    drop(idle);
}

#[test]
fn a_public_address_needs_tokens_or_anonymous_clients() {
    let desk = folder("");
    for address in ["0.0.0.0:0", "[::]:0"] {
        let output = desk.command(&["serve", "--http", address]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("[serve] tokens") && told.contains("anonymous = true"), "{told}");
    }
    for wrong in ["nonsense", "127.0.0.1:99999", "systemd"] {
        let output = desk.command(&["serve", "--http", wrong]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    desk.write_policy("[serve]\ntokens = \"none.toml\"\n");
    let output = desk.command(&["serve", "--http", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("none.toml"));

    desk.write_policy("[serve]\nanonymous = true\n");
    let server = HttpServerProcess::start(desk.command(&["serve", "--http", "0.0.0.0:0"]));
    assert_eq!(server.echoes("none"), 200);
}

#[test]
fn tokens_and_the_policy_are_reloaded() {
    let desk = folder("[serve]\ntokens = \"tokens.toml\"\n");
    desk.write_private("tokens.toml", "");
    let server = serve(&desk);
    assert_eq!(server.echoes("test"), 401);
    desk.write_private("tokens.toml", &format!("[[token]]\nname = \"t\"\nsha256 = \"{TEST}\"\n"));
    server.until_told("the files of [serve] were read again");
    assert_eq!(server.echoes("test"), 200);
    desk.write_private("tokens.toml", "nonsense");
    server.until_told("[serve] stays as before");
    assert_eq!(server.echoes("test"), 200);
    desk.write_private("tokens.toml", "");
    server.until_told("the files of [serve] were read again");
    assert_eq!(server.echoes("test"), 401);
    // On a loopback address the operator may allow anonymous clients.
    desk.write_policy("");
    server.until_told("the policy was read again");
    wait_until("nobody is asked", || server.echoes("test") == 200);
}

#[test]
fn files_of_a_new_policy_are_watched_and_sighup_reloads_them() {
    let desk = folder("");
    let server = serve(&desk);
    assert_eq!(server.echoes("test"), 200);
    // The policy names the file before it exists.
    desk.write_policy("[serve]\ntokens = \"tokens.toml\"\n");
    server.until_told("[serve] stays as before");
    desk.write_private("tokens.toml", &format!("[[token]]\nname = \"t\"\nsha256 = \"{TEST}\"\n"));
    server.until_told("the files of [serve] were read again");
    assert_eq!((server.echoes("wrong"), server.echoes("test")), (401, 200));
    server.signal("HUP");
    server.until_told("the files of [serve] were read again");
    assert_eq!(server.echoes("test"), 200);
}

/// An unprivileged user, if this process may start programs as another user.
const NOBODY: u32 = 65534;

#[test]
fn the_systemd_unit_works_as_documented() {
    let desk = folder("");
    let is_root = rustix::process::geteuid().is_root();
    let us = if is_root { NOBODY } else { rustix::process::geteuid().as_raw() };
    let own = |path: PathBuf| std::os::unix::fs::chown(path, Some(us), None).unwrap();
    fs::set_permissions(desk.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    // As with `DynamicUser`: the service owns the folders, and links lead to them from the usual paths.
    for folder in ["lib", "cache"] {
        let private = desk.path(&format!("var/{folder}/private/toolbay"));
        fs::create_dir_all(&private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("private/toolbay", desk.path(&format!("var/{folder}/toolbay"))).unwrap();
        own(private);
    }
    fs::create_dir_all(desk.path("etc/toolbay")).unwrap();
    fs::create_dir_all(desk.path("usr/local/lib/toolbay")).unwrap();
    fs::rename(desk.path("plugins"), desk.path("usr/local/lib/toolbay/plugins")).unwrap();
    let tokens = desk.path("etc/toolbay/tokens.toml");
    fs::write(&tokens, format!("[[token]]\nname = \"t\"\nsha256 = \"{TEST}\"\n")).unwrap();
    let policy = format!("version = 1\n[serve]\ntokens = \"{}\"\n", tokens.display());
    fs::write(desk.path("etc/toolbay/toolbay.toml"), policy).unwrap();
    // The environment of the unit, below this folder.
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deploy/toolbay.service");
    let unit = fs::read_to_string(unit).unwrap();
    let said = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
    let environment: Vec<(&str, PathBuf)> = said
        .flat_map(str::split_ascii_whitespace)
        .filter_map(|one| one.split_once("=/"))
        .map(|(key, path)| (key, desk.path(path)))
        .collect();
    assert_eq!(environment.len(), 4, "{unit}");
    let start = || {
        let mut command = desk.command(&["serve", "--http", "127.0.0.1:0"]);
        command.envs(environment.iter().map(|(key, path)| (key, path)));
        if is_root {
            std::os::unix::process::CommandExt::uid(&mut command, NOBODY).current_dir("/");
        }
        command
    };
    // Files of root that others may read and not write, as secrets are mounted. Without root the service owns the file.
    let modes: &[u32] = if is_root { &[0o644, 0o444] } else { &[0o600, 0o400] };
    for mode in modes {
        fs::set_permissions(&tokens, fs::Permissions::from_mode(*mode)).unwrap();
        let server = HttpServerProcess::start(start());
        assert_eq!((server.echoes("test"), server.echoes("wrong")), (200, 401), "{mode:o}");
    }
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o666)).unwrap();
    let output = start().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr).unwrap().contains("users other than the owner can write the file")
    );
}

#[test]
fn the_socket_of_a_unit_is_served() {
    let desk = folder("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut command = desk.prepare(Command::new("sh"));
    let program = env!("CARGO_BIN_EXE_toolbay");
    // As with systemd: the socket is descriptor 3, and `LISTEN_PID` is the process's id.
    let line = format!(
        "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec {program} serve --http systemd"
    );
    command.args(["-c", &line]).stdin(Stdio::from(OwnedFd::from(listener)));
    let server = HttpServerProcess::start(command);
    assert_eq!(server.address, address);
    assert_eq!(server.echoes("none"), 200);
}
