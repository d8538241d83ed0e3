//! Secret placeholders in both kinds of HTTP. A server that knows the value echoes it in every possible way, and
//! the guest requests it in every possible way.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use integration_tests::{TestHost, structured};
use serde_json::{Value, json};

use super::net_fixture::{kind, message};
use crate::loopback::{LoopbackReply, LoopbackServer, ReceivedRequest, redirect, response};

const VALUE: &str = "canary-value-0123456789";

fn secret_file(path: &Path) {
    fs::write(path, VALUE).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Returns the value for every request.
fn indiscreet(seen: &ReceivedRequest) -> LoopbackReply {
    let header = |name: &str| seen.header(name).unwrap_or("none").to_owned();
    let head = "HTTP/1.1 200 X\r\n";
    let stream = |headers: &str| {
        let head = format!("{head}{headers}\r\n").into_bytes();
        LoopbackReply::Endless(
            head,
            format!("log: {VALUE}; ").repeat(40).into_bytes(),
            Duration::from_micros(1),
        )
    };
    match seen.path() {
        "/zstd" => response(200, "content-encoding: zstd\r\n", "(\u{b5}/\u{fd}"),
        "/away" => redirect(302, &format!("http://{VALUE}.invalid/")),
        "/garbage" => redirect(302, &format!("http://[{VALUE}")),
        "/scheme" => redirect(302, &format!("x{VALUE}://x")),
        "/cut" => redirect(302, &format!("http://[{}{VALUE}", "x".repeat(180))),
        "/log" => stream(""),
        "/log.gz" => stream("content-encoding: gzip\r\n"),
        _ => response(
            200,
            "x-a: b\r\n",
            format!(
                "{}|{}|{}|you sent it",
                header("range"),
                header("accept-encoding"),
                header("authorization")
            ),
        ),
    }
}

async fn host(server: &LoopbackServer, id: &str, guest: &str, file: &Path) -> TestHost {
    let url = server.url("");
    let text = format!(
        "[secrets.KEY]\nfrom = \"file:{}\"\norigins = [{url:?}]\n\
         [plugins.{id}.grant]\nsecrets = [\"KEY\"]\nnet = [{url:?}]\nnet_private = [\"127.0.0.1\"]\n\
         [plugins.{id}.limits]\nhttp_bytes = \"64KiB\"",
        file.display()
    );
    TestHost::new(&[(id, guest)], &text).await
}

/// What a guest sends to get an encoding in which the host finds no secret.
fn headers() -> Value {
    json!([["authorization", "Bearer {KEY}"], ["range", "bytes=1-9"], ["accept-encoding", "zstd"]])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echoed_secret_is_redacted_for_every_interface() {
    let dir = tempfile::tempdir().unwrap();
    secret_file(&dir.path().join("key"));
    let server = LoopbackServer::new(indiscreet).await;
    let host = host(&server, "net", guest_artifacts::CAP_NET, &dir.path().join("key")).await;
    let args = |path: &str| json!({ "url": server.url(path), "headers": headers() });
    let said = host.ask("net__fetch_secret", args("/")).await;
    let clean = "none|gzip, deflate, br|Bearer [secret KEY]|you sent it";
    assert_eq!(said["body"], clean, "{said}");
    assert_eq!(server.seen()[0].header("authorization"), Some(format!("Bearer {VALUE}").as_str()));
    let begin = "none|gzip, deflate, br|Bearer ";
    for most in begin.len()..begin.len() + VALUE.len() + 3 {
        let mut args = args("/");
        args["max"] = json!(most);
        let said = host.ask("net__fetch_secret", args).await;
        let body = said["body"].as_str().unwrap();
        assert!(body.len() <= most && clean.starts_with(body), "{most}: {said}");
        assert_eq!(said["truncated"], true, "{most}: {said}");
    }
    for (path, error) in [
        ("/zstd", "transport"),
        ("/away", "denied"),
        ("/garbage", "denied"),
        ("/scheme", "denied"),
        ("/cut", "denied"),
    ] {
        let said = host.ask("net__fetch_secret", args(path)).await;
        assert_eq!(kind(&said), error, "{path}: {said}");
        assert!(!message(&said).contains("canary"), "{path}: {said}");
    }
    // A call without a placeholder gets the full response.
    let said = host.ask("net__fetch", args("/")).await;
    assert_eq!(said["body"], "bytes=1-9|zstd|Bearer {KEY}|you sent it", "{said}");
    assert_eq!(host.ask("net__fetch", args("/zstd")).await["status"], 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echoed_secret_is_redacted_in_wasi_http_and_open_streams() {
    let dir = tempfile::tempdir().unwrap();
    secret_file(&dir.path().join("key"));
    let server = LoopbackServer::new(indiscreet).await;
    let host = host(&server, "w", guest_artifacts::CAP_WASI_HTTP, &dir.path().join("key")).await;
    let args =
        |path: &str| json!({ "authority": server.address.to_string(), "path": path, "headers": headers() });
    let ask = async |early: &str, path: &str| {
        let mut args = args(path);
        args["early"] = json!({ "authority": server.address.to_string(), "path": early });
        structured(&host.provoke("w__fetch_secret", args, Duration::from_secs(25)).await)
    };
    let both = ask("/", "/").await;
    assert_eq!(both["said"]["body"], "none|identity|Bearer [secret KEY]|you sent it", "{both}");
    assert_eq!(both["early"]["body"], "none|none|none|you sent it", "{both}");
    let both = ask("/log", "/zstd").await;
    assert!(both["said"]["error"].is_string(), "{both}");
    let log = both["early"]["body"].as_str().unwrap();
    assert!(log.contains("log: [secret KEY]; ") && !log.contains("canary"), "{both}");
    let both = ask("/log.gz", "/").await;
    assert!(both["early"]["broken"].is_string() && both["early"]["len"] == 0, "{both}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_a_secret_is_out_of_reach_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for folder in ["keys", "links"] {
        fs::create_dir(root.join(folder)).unwrap();
    }
    secret_file(&root.join("keys/token"));
    fs::write(root.join("keys/plain"), "plain").unwrap();
    symlink("../keys/token", root.join("links/source")).unwrap();
    symlink("../keys/token", root.join("links/other")).unwrap();
    for from in ["keys/token", "links/source"] {
        let text = format!(
            "[secrets.KEY]\nfrom = \"file:{}\"\norigins = [\"https://x.org\"]\n\
             [plugins.f.grant]\nfs_read = [{root:?}]\nfs_write = [{root:?}]",
            root.join(from).display()
        );
        let host = TestHost::new(&[("f", guest_artifacts::CAP_FILES)], &text).await;
        for path in ["keys/token", "links/other", "keys/../keys/token"] {
            for tool in ["f__read", "f__write"] {
                let args = json!({ "path": root.join(path).display().to_string(), "text": "mine" });
                let said = host.call(tool, args).await;
                assert!(format!("{said:?}").contains("denied"), "{from} {tool} {path}: {said:?}");
            }
        }
        let said =
            host.ask("f__read", json!({ "path": root.join("keys/plain").display().to_string() })).await;
        assert!(said.get("error").is_none() && said.to_string().contains("plain"), "{from}: {said}");
    }
    assert_eq!(fs::read_to_string(root.join("keys/token")).unwrap(), VALUE);
}
