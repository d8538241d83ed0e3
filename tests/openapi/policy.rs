//! `[openapi.NAME]` of the policy: every key works, a profile narrows, a reload removes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use integration_tests::{TestHost, outcome, policy, refusal};
use serde_json::{Value, json};
use toolbay::{ApprovalReply, ApprovalRequest, Approver, Filter, Host, WatchOptions, WatchedFile};

use super::services::{ReceivedBytes, echo, host};
use crate::loopback::{LoopbackServer, response};

fn document(paths: &[&str]) -> Value {
    let one = |path: &str| {
        let (method, path) = path.split_once(' ').unwrap();
        let id = format!("{method}{}", path.replace('/', "_"));
        (path.to_owned(), json!({ method: {"operationId": id, "tags": [path.split('/').nth(1).unwrap()]} }))
    };
    let paths: serde_json::Map<String, Value> = paths.iter().map(|path| one(path)).collect();
    json!({"openapi": "3.0.3", "servers": [{"url": "https://api.example.com"}], "paths": paths})
}

fn names(host: &Host) -> Vec<String> {
    let catalog = host.registry().snapshot();
    catalog.from_source("openapi").map(|entry| entry.def.name.to_string()).collect()
}

#[derive(Debug, Default)]
struct RecordedApprovals(AtomicUsize);

impl Approver for RecordedApprovals {
    fn ask<'a>(
        &'a self,
        _: &'a ApprovalRequest,
    ) -> std::pin::Pin<Box<dyn Future<Output = ApprovalReply> + Send + 'a>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(ApprovalReply::Yes))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_selected_and_typos_are_reported() {
    let server = LoopbackServer::new(echo).await;
    let written =
        ReceivedBytes::new(&document(&["get /pets", "post /cats", "delete /dogs", "get /dogs/all"]));
    for (lines, expected) in [
        ("", vec!["api__delete_dogs", "api__get_dogs_all", "api__get_pets", "api__post_cats"]),
        ("include = [\"tag:dogs\"]", vec!["api__delete_dogs", "api__get_dogs_all"]),
        ("include = [\"/dogs*\"]\nexclude = [\"DELETE\"]", vec!["api__get_dogs_all"]),
        (
            "include = [\"op:get_*\", \"POST /cats\"]",
            vec!["api__get_dogs_all", "api__get_pets", "api__post_cats"],
        ),
        ("include = [\"GET\"]\nexclude = [\"tag:pets\"]", vec!["api__get_dogs_all"]),
    ] {
        let host = host(&written.section(&server, lines)).await;
        assert_eq!(names(&host.host), expected, "{lines}");
    }
    for (lines, part) in [
        ("exclude = [\"op:delete_dog\"]", "`exclude` has `op:delete_dog`"),
        ("include = [\"dogs\"]", "selects nothing"),
        ("[openapi.api.tools.get_pet]\napprove = true", "[openapi.api.tools.get_pet]"),
    ] {
        let host = TestHost::empty(&written.section(&server, lines));
        let info = host.host.load_openapi().await.remove(0);
        assert!(info.error.as_deref().is_some_and(|error| error.contains(part)), "{lines}: {info:?}");
        assert!(names(&host.host).is_empty());
    }
    let host = host(&written.section(&server, "include = [\"GET\", \"tag:birds\"]")).await;
    let info = host.host.openapi().remove(0);
    assert_eq!((info.tools.len(), info.left_out), (2, 2));
    assert!(info.warnings[0].contains("tag:birds"), "{info:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_section_of_a_service_sets_approval_refusal_caching_and_limits() {
    let server = LoopbackServer::new(echo).await;
    let written = ReceivedBytes::new(&document(&["get /pets", "post /cats", "delete /dogs", "put /birds"]));
    let asked = Arc::new(RecordedApprovals::default());
    let lines = "approve = \"writes\"\n\
        [openapi.api.tools.delete_dogs]\npermission = \"deny\"\n\
        [openapi.api.tools.put_birds]\napprove = false\nlimits = { args_bytes = 10 }\n\
        [openapi.api.tools.get_pets]\ncache = \"5m\"";
    let (section, approver) = (written.section(&server, lines), Arc::clone(&asked));
    let host = TestHost::empty_with(&section, |builder| builder.approver(approver));
    host.host.load_openapi().await;
    assert_eq!(outcome(&host.call("api__post_cats", json!({})).await), "ok");
    assert_eq!(asked.0.load(Ordering::SeqCst), 1, "what writes is asked about");
    let said = host.call("api__delete_dogs", json!({})).await;
    assert!(refusal(&said).message.contains("[openapi.api.tools.delete_dogs]"), "{said:?}");
    assert_eq!(outcome(&host.call("api__put_birds", json!({})).await), "ok");
    assert_eq!(asked.0.load(Ordering::SeqCst), 1);
    let long = host.call("api__put_birds", json!({"a": "0123456789"})).await;
    assert_eq!(outcome(&long), "input_invalid");
    let turn =
        toolbay::TurnContext { session: Arc::new(toolbay::Session::with_name("s")), ..Default::default() };
    let before = server.seen().len();
    for _ in 0..3 {
        assert_eq!(outcome(&host.call_in("api__get_pets", "{}", turn.clone()).await), "ok");
    }
    assert_eq!(server.seen().len() - before, 1, "the second and third were looked up");
    // Permission rules of the policy apply to services, too.
    let ruled = self::host(&format!(
        "[[rule]]\nsource = \"openapi:api\"\ntag = \"destructive\"\naction = \"deny\"\n{}",
        written.section(&server, "")
    ))
    .await;
    assert_eq!(outcome(&ruled.call("api__post_cats", json!({})).await), "not_available");
    assert_eq!(outcome(&ruled.call("api__get_pets", json!({})).await), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_reaches_no_further_than_its_lists() {
    let server = LoopbackServer::new(echo).await;
    let mut document = document(&["get /pets", "post /pets2"]);
    document["paths"]["/pets2"]["post"]["security"] = json!([{"key": []}]);
    document["components"] = json!({"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}});
    let written = ReceivedBytes::new(&document);
    let file = super::services::secret(written.dir.path(), "key", "canary-value-0123456789");
    let origin = server.url("");
    let host = host(&format!(
        "[secrets.KEY]\nfrom = \"file:{file}\"\norigins = [{origin:?}]\n\
         [profile.all]\n[profile.none]\nnet = []\n[profile.reads]\nnet = [\"GET {origin}\"]\n\
         [profile.path]\nnet = [\"{origin}/v1/other/*\"]\n[profile.poor]\nsecrets = []\n[profile.public]\nnet_private = []\n{}",
        written.section(&server, "secrets = { key = \"KEY\" }")
    ))
    .await;
    let call = async |profile: &str, tool: &str| {
        let profile = host.host.policy().profile(profile).cloned();
        let view = host.host.view(Filter::for_profile(profile));
        let calls = vec![toolbay::ToolCall::new("1", tool, "{}")];
        host.host.call_all(&view, calls, toolbay::TurnContext::default()).await.remove(0)
    };
    for (profile, get, post) in [
        ("all", "ok", "ok"),
        ("none", "not_available", "not_available"),
        ("reads", "ok", "not_available"),
        ("path", "not_available", "not_available"),
        ("poor", "ok", "not_available"),
        ("public", "not_available", "not_available"),
    ] {
        let before = server.seen().len();
        let got = [call(profile, "api__get_pets").await, call(profile, "api__post_pets2").await];
        assert_eq!([outcome(&got[0]), outcome(&got[1])], [get, post], "{profile}: {got:?}");
        assert_eq!(server.seen().len() - before, [get, post].iter().filter(|one| **one == "ok").count());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_need_their_line() {
    let server = LoopbackServer::new(echo).await;
    let written = ReceivedBytes::new(&document(&["get /pets"]));
    let section = written.section(&server, "").replace("net_private = [\"127.0.0.1\"]", "");
    let said = host(&section).await.call("api__get_pets", json!({})).await;
    assert!(!refusal(&said).message.contains("[openapi"), "{said:?}");
    let lines = "[openapi.api]\nnet_private = [\"127.0.0.1/32\"]";
    assert!(integration_tests::hints(&said).contains(lines), "{said:?}");
    assert!(server.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reloaded_policy_adds_and_removes_operations() {
    let server = LoopbackServer::new(echo).await;
    let written = ReceivedBytes::new(&document(&["get /pets", "post /cats"]));
    let host = host(&written.section(&server, "")).await;
    let reload = async |text: &str| {
        host.host.reload_policy(policy(text, &host.root())).await.unwrap();
    };
    reload(&written.section(&server, "include = [\"GET\"]")).await;
    assert_eq!(names(&host.host), ["api__get_pets"]);
    reload("").await;
    assert!(names(&host.host).is_empty() && host.host.openapi().is_empty());
    let said = host.call("api__get_pets", json!({})).await;
    assert_eq!(refusal(&said).message, "Unknown tool: api__get_pets");
    reload(&written.section(&server, "")).await;
    assert_eq!(outcome(&host.call("api__post_cats", json!({})).await), "ok");
    // An invalid section loses its tools. Other services keep theirs.
    let broken = format!(
        "{}\n[openapi.gone]\ndocument = \"/nonexistent.json\"",
        written.section(&server, "exclude = [\"op:nope\"]")
    );
    reload(&broken).await;
    assert!(names(&host.host).is_empty(), "{:?}", host.host.openapi());
    reload(&format!("{}\n[openapi.gone]\ndocument = \"/nonexistent.json\"", written.section(&server, "")))
        .await;
    assert_eq!(names(&host.host).len(), 2);
    let gone = host.host.openapi().into_iter().find(|info| info.name == "gone").unwrap();
    assert!(gone.error.unwrap().contains("cannot be read"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_breaks_later_leaves_its_earlier_tools() {
    let server = LoopbackServer::new(echo).await;
    let written = ReceivedBytes::new(&document(&["get /pets"]));
    let host = host(&written.section(&server, "")).await;
    std::fs::write(written.path(), "no document").unwrap();
    let info = host.host.load_openapi().await.remove(0);
    assert!(info.error.is_some());
    assert_eq!(outcome(&host.call("api__get_pets", json!({})).await), "ok");
    std::fs::write(written.path(), document(&["get /pets", "get /cats"]).to_string()).unwrap();
    assert_eq!(host.host.load_openapi().await.remove(0).error, None);
    assert_eq!(names(&host.host).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_document_is_read_again() {
    let server = LoopbackServer::new(echo).await;
    let written = ReceivedBytes::new(&document(&["get /pets"]));
    let host = host(&written.section(&server, "")).await;
    let options = WatchOptions {
        settle: Duration::from_millis(50),
        poll: Duration::from_millis(200),
        files: vec![WatchedFile::document(written.path())],
    };
    let _watch = host.host.watch(&host.root().join("plugins"), options).await;
    std::fs::write(written.path(), document(&["get /cats"]).to_string()).unwrap();
    let start = std::time::Instant::now();
    while names(&host.host) != ["api__get_cats"] {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", host.host.openapi());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A host that trusts the server's certificate and stores copies in `cache`.
fn trusting(text: &str, pem: &str, cache: &std::path::Path) -> Host {
    let policy = policy(text, std::path::Path::new("/"));
    Host::builder(policy).cache_dir(cache).tls_roots_pem(pem.as_bytes()).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_fetched_once_and_cached_for_offline_use() {
    use std::os::unix::fs::PermissionsExt as _;
    let text = document(&["get /pets"]).to_string();
    let (server, pem) = LoopbackServer::tls(&["localhost"], move |seen| match seen.header("if-none-match") {
        Some("\"one\"") => response(304, "", ""),
        _ => response(200, "etag: \"one\"\r\ncontent-type: application/json\r\n", &text),
    })
    .await;
    let cache = tempfile::tempdir().unwrap();
    std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let port = server.port();
    let section = |more: &str| {
        format!(
            "[openapi.api]\ndocument = \"https://localhost:{port}/api.json\"\nserver = \"https://api.example.com\"\n\
             net_private = [\"127.0.0.0/8\", \"::1\"]\n{more}"
        )
    };
    let load = async |more: &str| {
        let host = trusting(&section(more), &pem, cache.path());
        let info = host.load_openapi().await.remove(0);
        (info, names(&host))
    };
    let (first, tools) = load("").await;
    assert_eq!((first.error, tools.len(), server.seen().len()), (None, 1, 1));
    assert_eq!(load("").await.0.error, None);
    assert_eq!(server.seen().len(), 1, "what is fresh is not asked for");
    assert_eq!(load("refresh = \"0s\"").await.0.error, None);
    assert_eq!(server.seen().last().unwrap().header("if-none-match"), Some("\"one\""));
    let asked = server.seen().len();
    let digest = first.digest.unwrap();
    assert_eq!(load(&format!("refresh = \"0s\"\nsha256 = \"{digest}\"")).await.0.error, None);
    assert_eq!(server.seen().len(), asked, "what is pinned is never asked for again");
    let (wrong, tools) = load(&format!("sha256 = \"{}\"", "0".repeat(64))).await;
    assert!(wrong.error.unwrap().contains("the policy pins") && tools.is_empty());
    // The server is gone, and the copy is used.
    drop(server);
    let (stale, tools) = load("refresh = \"0s\"").await;
    assert_eq!((stale.error, tools.len()), (None, 1));
    assert!(stale.warnings[0].contains("the cached copy is used"), "{:?}", stale.warnings);
    // A copy that others could have written is not used.
    let copies = cache.path().join("openapi");
    let file = std::fs::read_dir(&copies).unwrap().next().unwrap().unwrap().path();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let (none, tools) = load("refresh = \"0s\"").await;
    assert!(none.error.is_some() && tools.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_documents_can_do_no_harm() {
    let text = document(&["get /pets"]).to_string();
    let (server, pem) = LoopbackServer::tls(&["localhost"], move |seen| match seen.path() {
        "/silent" => crate::loopback::LoopbackReply::Silence,
        "/huge" => response(200, "", vec![b' '; 33 << 20]),
        "/gone" => response(404, "", ""),
        "/away" => crate::loopback::redirect(302, "https://127.0.0.1:1/api.json"),
        "/http" => crate::loopback::redirect(302, "http://localhost/api.json"),
        "/near" => crate::loopback::redirect(302, "/api.json"),
        "/html" => response(200, "content-type: text/html\r\n", "<html>"),
        "/binary" => response(200, "", [0xff, 0xfd]),
        "/api.json" => response(200, "", &text),
        path => panic!("{path}"),
    })
    .await;
    let load = async |path: &str, more: &str| {
        let cache = tempfile::tempdir().unwrap();
        let text = format!(
            "[openapi.api]\ndocument = \"https://localhost:{}{path}\"\nserver = \"https://api.example.com\"\n{more}",
            server.port()
        );
        let host = trusting(&text, &pem, cache.path());
        host.load_openapi().await.remove(0)
    };
    let private = "net_private = [\"127.0.0.0/8\", \"::1\"]";
    let fails = async |path: &str, part: &str| {
        let info = load(path, private).await;
        assert!(info.error.as_deref().is_some_and(|error| error.contains(part)), "{path}: {info:?}");
    };
    let others = async {
        for (path, part) in [
            ("/huge", "more than"),
            ("/gone", "answered 404"),
            ("/away", "[openapi.api]\nnet = "),
            ("/http", "[openapi.api]\nnet = "),
            ("/html", "HTML"),
            ("/binary", "UTF-8"),
        ] {
            fails(path, part).await;
        }
        assert_eq!(load("/near", private).await.error, None);
        let info = load("/api.json", "").await;
        assert!(info.error.unwrap().contains("net_private"), "a document is no way into the private network");
    };
    // The host's own time for a document, which no policy sets.
    tokio::join!(fails("/silent", "20 seconds"), others);
}

/// A server that accepts the request for a document and never answers delays neither other services nor later policies.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_holds_up_no_other_source() {
    let silent = LoopbackServer::new(|_| crate::loopback::LoopbackReply::Silence).await;
    let server = LoopbackServer::new(echo).await;
    let written = ReceivedBytes::new(&document(&["get /pets"]));
    let slow = |name: &str| {
        format!(
            "[openapi.{name}]\ndocument = {:?}\nserver = \"https://api.example.com\"\nnet_private = [\"127.0.0.1\"]\n",
            silent.url("/api.json")
        )
    };
    let started = std::time::Instant::now();
    let soon = async |what: &str, host: &TestHost, holds: &dyn Fn(&Host) -> bool| {
        while !holds(&host.host) {
            // A document must arrive within 20 seconds.
            assert!(started.elapsed() < Duration::from_secs(15), "{what}: {:?}", host.host.openapi());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let host = TestHost::empty("");
    let file = host.root().join("watched.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("");
    let (from, root) = (file.clone(), host.root());
    let read = move || Ok(policy(&std::fs::read_to_string(&from).map_err(|e| e.to_string())?, &root));
    let options = WatchOptions {
        settle: Duration::from_millis(50),
        poll: Duration::from_millis(100),
        files: vec![WatchedFile::policy(&file, read)],
    };
    let _watch = host.host.watch(&host.root().join("plugins"), options).await;
    let text = ["a", "b", "c", "d", "e"].map(slow).concat() + &written.section(&server, "");
    write(&text);
    soon("the one that is there", &host, &|host| names(host) == ["api__get_pets"]).await;
    write(&format!("{}{}", slow("a"), written.section(&server, "include = [\"op:nothing\"]")));
    soon("the next policy", &host, &|host| names(host).is_empty()).await;
    assert!(!silent.seen().is_empty(), "it was asked");
}

/// The policy names another document than at the start. It is read, and watched from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_a_new_policy_names_is_watched() {
    let server = LoopbackServer::new(echo).await;
    let (first, second) =
        (ReceivedBytes::new(&document(&["get /pets"])), ReceivedBytes::new(&document(&["get /cats"])));
    let host = TestHost::empty("");
    let file = host.root().join("watched.toml");
    std::fs::write(&file, first.section(&server, "")).unwrap();
    let (from, root) = (file.clone(), host.root());
    let read = move || Ok(policy(&std::fs::read_to_string(&from).map_err(|e| e.to_string())?, &root));
    let options = WatchOptions {
        settle: Duration::from_millis(50),
        poll: Duration::from_millis(100),
        files: vec![WatchedFile::policy(&file, read), WatchedFile::document(first.path())],
    };
    let watch = host.host.watch(&host.root().join("plugins"), options).await;
    watch.reload();
    let soon = async |what: &str, tool: &str| {
        let start = std::time::Instant::now();
        while names(&host.host) != [tool] {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}: {:?}", names(&host.host));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the first policy", "api__get_pets").await;
    std::fs::write(&file, second.section(&server, "")).unwrap();
    soon("the next policy", "api__get_cats").await;
    std::fs::write(second.path(), document(&["get /dogs"]).to_string()).unwrap();
    soon("its document", "api__get_dogs").await;
}
