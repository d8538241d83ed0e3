//! Reads everything that a program can see without a grant.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use guest::wasip2::filesystem::preopens::get_directories;
use guest::wasip2::random::random::get_random_u64;
use guest::{Answer, Args, Value, json, structured, tool};

guest::tools!(tool("look", look), tool("clock", clock));

/// Environment, arguments, stdin, files and network, each with its outcome.
fn look(_: &Args) -> Answer {
    let mut stdin = Vec::new();
    let stdin = std::io::stdin().read_to_end(&mut stdin);
    let paths = ["/", ".", "..", "/etc", "/proc", "/dev", "/tmp", "/workspace", "/home", "/var"];
    let files = [
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/maps",
        "/dev/random",
        "toolbay.toml",
        "../toolbay.toml",
    ];
    structured(&json!({
        "env": std::env::vars_os().map(|(key, value)| json!([key.to_string_lossy(), value.to_string_lossy()])).collect::<Vec<_>>(),
        "args": std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "stdin_bytes": said(stdin.map(|bytes| json!(bytes))),
        "current_dir": said(std::env::current_dir().map(|path| json!(path.to_string_lossy()))),
        "preopens": get_directories().into_iter().map(|(_, path)| path).collect::<Vec<_>>(),
        "dirs": paths.iter().map(|path| (path.to_string(), said(list(path)))).collect::<Value>(),
        "files": files.iter().map(|path| (path.to_string(), said(size(path)))).collect::<Value>(),
        "tcp_connect": said(TcpStream::connect("127.0.0.1:1").map(|_| json!(true))),
        "tcp_connect_out": said(connect("198.51.100.1:80")),
        "tcp_listen": said(TcpListener::bind("127.0.0.1:0").map(|_| json!(true))),
        "udp_bind": said(UdpSocket::bind("127.0.0.1:0").map(|_| json!(true))),
        "dns_localhost": said(lookup("localhost:80")),
        "dns_example": said(lookup("example.com:80")),
    }))
}

/// `{"ok": …}` or `{"error": …}`.
fn said(result: std::io::Result<Value>) -> Value {
    match result {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": format!("{:?}: {error}", error.kind()) }),
    }
}

fn list(path: &str) -> std::io::Result<Value> {
    std::fs::read_dir(path)?.map(|entry| Ok(json!(entry?.file_name().to_string_lossy()))).collect()
}

fn size(path: &str) -> std::io::Result<Value> {
    std::fs::File::open(path)?.take(1 << 16).read_to_end(&mut Vec::new()).map(|bytes| json!(bytes))
}

fn connect(address: &str) -> std::io::Result<Value> {
    let address = address.parse().map_err(std::io::Error::other)?;
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).map(|_| json!(true))
}

fn lookup(name: &str) -> std::io::Result<Value> {
    Ok(name.to_socket_addrs()?.map(|address| json!(address.to_string())).collect())
}

/// Values that differ from call to call, unless the host fixes them.
fn clock(_: &Args) -> Answer {
    let start = Instant::now();
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    structured(&json!({
        "wall_ms": wall.as_millis() as u64,
        "monotonic_ns": guest::wasip2::clocks::monotonic_clock::now(),
        "elapsed_ns": start.elapsed().as_nanos() as u64,
        "random": get_random_u64().to_string(),
    }))
}
