//! Processes that lack what they need: each says what, and none hangs or ends by a signal.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::fixture::{CommandRun, HANGS, HostFolder, ServerProcess, wait_until};

/// A command under limits of the shell.
fn limited(folder: &HostFolder, limits: &str, args: &[&str]) -> Command {
    let mut command = folder.prepare(Command::new("sh"));
    let script = format!("{limits}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_toolbay")]).args(args);
    command
}

fn request(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    let length = body.len();
    let request =
        format!("{head}host: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

fn readiness(address: SocketAddr) -> (u16, String) {
    request(address, "GET /readyz HTTP/1.1\r\n", "")
}

fn call(address: SocketAddr) -> (u16, String) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "e__echo", "arguments": {}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let head = "POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n\
                mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: e__echo\r\n";
    request(address, head, &body.to_string())
}

/// A command in a process that a program prepares: services and containers have limits that a shell cannot set.
fn prepared(folder: &HostFolder, preparation: &str, args: &[&str]) -> Command {
    let mut command = folder.prepare(Command::new("/usr/bin/python3"));
    let script = format!(
        "import ctypes, os, resource, sys\nprogram = os.open(sys.argv[1], os.O_RDONLY)\n{preparation}\n\
         os.execve(program, sys.argv[1:], os.environ)"
    );
    command.args(["-I", "-c", &script, env!("CARGO_BIN_EXE_toolbay")]).args(args);
    command
}

/// The address of a server.
fn address(server: &ServerProcess) -> SocketAddr {
    let line = server.until_told("listening on http://");
    let (_, place) = line.split_once("http://").unwrap();
    place.trim_end_matches("/mcp").parse().unwrap()
}

const SERVE: [&str; 3] = ["serve", "--http", "127.0.0.1:0"];

#[test]
fn a_start_that_cannot_work_names_the_limit() {
    let folder = HostFolder::new("").with_plugin("e", guest_artifacts::API_ECHO);
    // The limit does not hold for root, and counts the processes of the user.
    let processes =
        "resource.setrlimit(resource.RLIMIT_NPROC, (5, 5))\nos.getuid() or os.setuid(100000 + os.getpid())";
    for (command, part) in [
        (limited(&folder, "ulimit -f 1", &SERVE), "ulimit -f"),
        (limited(&folder, "ulimit -n 20", &SERVE), "ulimit -n"),
        (limited(&folder, "ulimit -v 400000", &SERVE), "ulimit -v"),
        (prepared(&folder, processes, &SERVE), "ulimit -u"),
    ] {
        let mut server = ServerProcess::start(command);
        server.until_told(part);
        assert_eq!(server.exit_code(), 3, "{part}");
    }
}

/// The server runs, for the sources that need no guest.
#[test]
fn a_server_whose_limits_let_no_guest_run_is_not_ready_and_names_the_limit() {
    let folder = HostFolder::new("").with_plugin("e", guest_artifacts::API_ECHO);
    // `PR_SET_MDWE` with `PR_MDWE_REFUSE_EXEC_GAIN`, of Linux 6.3.
    let memory = "assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0, 'the kernel is too old'";
    for (command, part) in [
        (limited(&folder, "ulimit -v 3000000", &SERVE), "ulimit -v"),
        (prepared(&folder, memory, &SERVE), "MemoryDenyWriteExecute"),
    ] {
        let server = ServerProcess::start(command);
        let address = address(&server);
        wait_until(part, || {
            let (status, text) = readiness(address);
            status == 503 && text.contains(part)
        });
        assert_eq!(call(address).0, 503, "{part}");
    }
}

/// A stack overflow ended the host by a signal.
#[test]
fn a_small_stack_of_the_main_thread_changes_nothing() {
    let folder = HostFolder::new("").with_plugin("e", guest_artifacts::API_ECHO);
    let run = limited(&folder, "ulimit -s 256", &["call", "e__echo", "{}", "--no-cache"]).output().unwrap();
    CommandRun(run).says(0, &[]);
}

/// It was ready, and each call failed.
#[test]
fn a_server_that_cannot_run_calls_is_not_ready_and_says_why_until_it_can() {
    let folder = HostFolder::new("").with_plugin("e", guest_artifacts::API_ECHO);
    let temporary = folder.path("later");
    // The fixture names a cache. Without one, the code of each plugin is mapped from a temporary folder.
    let mut command = folder.command(&["serve", "--http", "127.0.0.1:0", "--no-cache"]);
    command.env("TMPDIR", &temporary);
    let server = ServerProcess::start(command);
    let address = address(&server);
    wait_until("it says why", || readiness(address).1.contains("TMPDIR"));
    let (status, text) = readiness(address);
    assert!(status == 503 && text.contains("not ready"), "{text}");
    let (status, text) = call(address);
    assert!(
        status == 503 && text.contains("no call can run on this server") && text.contains("\"id\":1"),
        "{text}"
    );
    assert!(text.to_ascii_lowercase().contains("retry-after"), "{text}");
    assert_eq!(request(address, "GET /healthz HTTP/1.1\r\n", "").0, 200);
    fs::create_dir(&temporary).unwrap();
    wait_until("it is ready", || readiness(address).0 == 200);
}

/// A call that used files panicked, since none of their threads could start, and the panic was the plugin's fault.
#[test]
fn a_server_that_can_start_no_thread_says_so_and_runs_calls_once_it_can() {
    let folder =
        HostFolder::new("[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n")
            .with_plugin("files", guest_artifacts::PLUGIN_FILES);
    // The limit counts all threads of a user, and does not hold for root.
    let other = 100_000 + std::process::id();
    let user = format!("os.getuid() or os.setuid({other})");
    let preparation = format!(
        "for root, folders, files in os.walk(os.environ['HOME']):\n    \
             for name in ['.', *files]: os.lchown(os.path.join(root, name), os.getuid() or {other}, -1)\n\
         {user}\n\
         def threads(id):\n    \
             try: return len(os.listdir(f'/proc/{{id}}/task')) if os.stat(f'/proc/{{id}}').st_uid == os.getuid() else 0\n    \
             except OSError: return 0\n\
         own = sum(map(threads, os.listdir('/proc')))\n\
         most = resource.getrlimit(resource.RLIMIT_NPROC)[1]\n\
         resource.setrlimit(resource.RLIMIT_NPROC, (own + 60, most))"
    );
    let mut command = prepared(&folder, &preparation, &["serve"]);
    command.env("TOOLBAY_CACHE", folder.path("cache")).stdin(Stdio::piped());
    let mut server = ServerProcess::start(command);
    server.initialize();
    let mut write = |id, arguments: &Value| {
        server.send(id, "tools/call", &json!({"name": "files__write_file", "arguments": arguments}));
        let response = server.result_or_error(id);
        (response["result"]["isError"] == true, response.to_string())
    };
    // Once the plugin is loaded, and no thread for files has begun.
    let (is_error, text) = write(1, &json!({}));
    assert!(is_error && text.contains("path"), "{text}");
    let arguments = json!({"path": "a.txt", "content": "x"});
    let mut others = Command::new("/usr/bin/python3");
    let threads = "threading.stack_size(65536)\n\
                   for _ in range(100): threading.Thread(target=sys.stdin.read, daemon=True).start()\n\
                   print('started', flush=True)\nsys.stdin.read()";
    others.args(["-I", "-c", &format!("import os, sys, threading\n{user}\n{threads}")]).stdin(Stdio::piped());
    let others = ServerProcess::start(others);
    assert_eq!(others.stdout.recv_timeout(HANGS).unwrap(), "started");
    for id in 2..6 {
        let (is_error, text) = write(id, &arguments);
        assert!(is_error && text.contains("cannot start a thread"), "{text}");
    }
    drop(others);
    let (is_error, text) = write(6, &arguments);
    assert!(!is_error, "{text}");
    assert!(server.stderr.try_iter().all(|line| !line.contains("panicked")));
}
