//! The manners of a daemon: JSON logs, the service manager, versions, man pages, backups.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::{HANGS, HostFolder, ServerProcess};

fn folder() -> HostFolder {
    HostFolder::new("").with_plugin("e", guest_artifacts::API_ECHO)
}

fn serve(desk: &HostFolder, args: &[&str], environment: &[(&str, &Path)]) -> ServerProcess {
    let mut command = desk.command(&[&["serve"], args].concat());
    command.stdin(Stdio::piped()).envs(environment.iter().copied());
    ServerProcess::start(command)
}

#[test]
fn the_log_is_json_lines_on_request() {
    let desk = folder();
    std::fs::write(desk.path("plugins/broken.wasm"), "\u{1b}[31m").unwrap();
    let server = serve(&desk, &["--log-format", "json", "--log", "debug"], &[]);
    let mut lines = server.told_until("broken.wasm");
    desk.write_policy("[plugins]\nx = 1");
    lines.extend(server.told_until("previous policy"));
    desk.write_policy("[limits]\ntimeout = \"7s\"\n");
    lines.extend(server.told_until("was read again"));
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let texts = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap_or_else(|| panic!("{key}: {line}")).to_owned();
        [text("timestamp"), text("level"), text("target"), text("message")]
    };
    for line in &lines {
        let [time, ..] = texts(line);
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
    }
    let level = |part: &str| {
        let line = lines.iter().map(texts).find(|[.., message]| message.contains(part));
        line.map(|[_, level, target, _]| (level, target)).unwrap()
    };
    let own = |level: &str| (level.to_owned(), "toolbay".to_owned());
    assert_eq!(level("broken.wasm"), own("WARN"));
    assert_eq!(level("previous policy"), own("ERROR"));
    assert_eq!(level("was read again"), own("INFO"));
    assert!(lines.iter().any(|line| line["level"] == "DEBUG"), "lines of the log");
    let failed = desk.run(&["call", "nothing", "{}", "--log-format", "json"]);
    let failed = failed.says(1, &[]).err();
    failed.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).expect(line)));
}

#[test]
fn the_service_manager_learns_each_state() {
    let desk = folder();
    let path = desk.path("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(HANGS)).unwrap();
    let told = || {
        let mut buffer = [0; 4096];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let mut server = serve(&desk, &[], &[("NOTIFY_SOCKET", &path)]);
    assert_eq!(told(), "READY=1\n");
    server.signal("HUP");
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1\n");
    server.signal("TERM");
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(server.exit_code(), 0);
    // A manager that is gone disturbs nobody.
    drop(manager);
    let mut server = serve(&desk, &[], &[("NOTIFY_SOCKET", &path)]);
    server.initialize();
    server.stdin = None;
    assert_eq!(server.exit_code(), 0);
}

#[test]
fn the_version_names_what_the_program_speaks() {
    let desk = folder();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(desk.good(&["-V"]).trim(), format!("toolbay {version}"));
    let long = desk.good(&["--version"]);
    let lock =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock")).unwrap();
    let wasmtime = lock.split("name = \"wasmtime\"\nversion = \"").nth(1).unwrap().split('"').next().unwrap();
    let wit =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/worlds.wit")).unwrap();
    let contract = wit.split("package ").nth(1).unwrap().split(';').next().unwrap();
    for (key, value) in
        [("wasmtime", wasmtime), ("contract", contract), ("mcp", "2024-11-05, "), ("commit", "")]
    {
        let line = long.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{long}"));
        assert!(line.contains(value), "{line}");
    }
    assert!(long.contains("2025-11-25") && long.trim_end().ends_with("2026-07-28"), "{long}");
}

#[test]
fn every_command_has_a_man_page() {
    let desk = folder();
    let dir = desk.path("man");
    desk.run(&["man", dir.to_str().unwrap()]).says(0, &["man pages"]);
    for (page, part) in
        [("toolbay.1", "toolbay"), ("toolbay-serve.1", "MCP"), ("toolbay-policy-check.1", "policy")]
    {
        let text = std::fs::read_to_string(dir.join(page)).unwrap();
        assert!(text.contains(".SH NAME") && text.contains(part), "{page}");
    }
}

#[test]
fn the_state_is_backed_up_while_a_server_runs_and_restored_after_it() {
    let policy = "[plugins.k.grant]\nkv = [\"plugin\", \"tool\", \"session\"]\n";
    let desk = HostFolder::new(policy).with_plugin("k", guest_artifacts::CAP_KV);
    let count = || {
        let args = json!({"op": "increment", "key": "n"}).to_string();
        desk.run(&["call", "k__do", &args, "--json"]).says(0, &[]).json()["structured"]["sum"].clone()
    };
    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    assert_eq!((count(), count()), (json!(1), json!(2)));
    let backup = desk.path("backup");
    let backup = backup.to_str().unwrap();
    desk.run(&["backup", backup]).says(0, &["backed up"]);
    desk.run(&["backup", backup]).says(1, &["already exists"]);
    assert_eq!(count(), json!(3));
    desk.run(&["restore", backup]).says(1, &["a server uses", &server.child.id().to_string()]);
    server.stdin = None;
    assert_eq!(server.exit_code(), 0);

    let audit = desk.path("backup/state/audit.jsonl");
    let good = std::fs::read(&audit).unwrap();
    std::fs::write(&audit, "{}").unwrap();
    desk.run(&["restore", backup]).says(1, &["the backup is damaged", "audit.jsonl"]);
    assert_eq!(count(), json!(4), "nothing changed");
    std::fs::write(&audit, good).unwrap();
    let restored = desk.run(&["restore", backup, "--json"]).says(0, &[]).json();
    assert!(Path::new(restored["replaced"].as_str().unwrap()).join("kv.redb").exists(), "{restored}");
    assert_eq!(count(), json!(3), "the count of the backup continues");
}
