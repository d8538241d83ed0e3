//! Real requests write a record, which answers them afterwards.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use toolbay_testing::TestHost;

/// The variables with the server and the record, for the child process.
const ORIGIN: &str = "TOOLBAY_TEST_ORIGIN";
const FILE: &str = "TOOLBAY_TEST_RECORD";

/// Reads a page with a secret in the request, and returns the text of the tool.
fn read(origin: &str, file: &Path) -> String {
    let host = TestHost::of_file("web", guest_artifacts::PLUGIN_WEB)
        .allow_net(origin)
        // The tool cannot run without it.
        .allow_net("https://unused.example")
        .grant("net_private", "127.0.0.1")
        .secret("web/api", "canary-0123456789", origin)
        .recorded_http(file)
        .start();
    let request = json!({"url": format!("{origin}/page"), "method": "POST", "body": "{}", "secret": "api"});
    host.call("http_request", request).text().to_owned()
}

/// Serves one request, echoes its head, and ends.
fn serve(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = [0; 4096];
    let length = stream.read(&mut request).unwrap();
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    let body = format!("you said: {request}");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nset-cookie: id=tasty\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    request
}

#[test]
fn a_request_is_recorded_and_then_replayed_without_its_credentials() {
    if let (Ok(origin), Some(file)) = (std::env::var(ORIGIN), std::env::var_os(FILE)) {
        assert!(read(&origin, Path::new(&file)).contains("you said: POST /page"));
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.json");
    let server = std::thread::spawn(move || serve(&listener));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "record::a_request_is_recorded_and_then_replayed_without_its_credentials"])
        .envs([("TOOLBAY_RECORD_HTTP", "1"), (ORIGIN, &origin)])
        .env(FILE, &file)
        .output();
    let child = child.unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let sent = server.join().unwrap().to_ascii_lowercase();
    assert!(sent.contains("canary-0123456789") && sent.contains("accept-encoding: identity"), "{sent}");
    let record = std::fs::read_to_string(&file).unwrap();
    assert!(record.contains("you said: POST /page"), "{record}");
    assert!(!record.contains("canary") && !record.contains("tasty"), "{record}");
    // The server has ended.
    assert!(read(&origin, &file).contains("you said: POST /page"));
}
