//! OpenAPI documents of others: real ones and malicious ones.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use integration_tests::{TestHost, outcome, refusal, value};
use serde_json::{Map, Value, json};
use toolbay::policy::MAX_OPENAPI_QUALIFIED;
use toolbay::{Filter, OpenApiInfo};

use super::services::{ReceivedBytes, host};
use crate::loopback::{LoopbackServer, response};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/openapi").join(name)
}

fn section(name: &str, file: &Path, server: &str) -> String {
    format!(
        "[openapi.{name}]\ndocument = {:?}\nserver = {server:?}\nnet_private = [\"127.0.0.1\"]\n",
        file.display().to_string()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn real_documents_become_tools_that_every_client_takes() {
    for (file, tools, problems) in [
        ("petstore-3.0.json", 20, 0),
        ("petstore-3.1.json", 20, 0),
        ("galaxy-3.1.yaml", 9, 0),
        ("star-trek-3.0.yaml", 90, 0),
    ] {
        let host = TestHost::empty(&section("real", &data(file), "https://api.example.com"));
        let info: OpenApiInfo = host.host.load_openapi().await.remove(0);
        assert_eq!(info.error, None, "{file}");
        assert_eq!(info.problems.len(), problems, "{file}: {:?}", info.problems);
        assert!(info.tools.len() >= tools, "{file}: {} tools", info.tools.len());
        let view = host.host.view(Filter::default());
        let names: BTreeSet<String> = info.tools.keys().map(|name| name.to_ascii_lowercase()).collect();
        assert_eq!(names.len(), info.tools.len(), "{file}: names differ not by capitals alone");
        for entry in view.catalog().from_source("openapi:real") {
            let name = entry.def.name.as_str();
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            assert!(name.len() <= MAX_OPENAPI_QUALIFIED && name.chars().all(legal), "{file}: {name}");
            assert!(entry.def.input_schema.check(&json!({"no such argument": 1})).is_err(), "{file}: {name}");
            assert!(!entry.def.description.trim().is_empty(), "{file}: {name}");
        }
        // Reading it again gives the same operations.
        assert_eq!(host.host.load_openapi().await.remove(0).tools, info.tools, "{file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_petstore_works() {
    let server = LoopbackServer::new(|seen| match seen.line() {
        "GET /v2/pet/7" => response(200, "content-type: application/json\r\n", r#"{"id": 7, "name": "Rex"}"#),
        "GET /v2/pet/findByStatus?status=sold&status=pending" => {
            response(200, "content-type: application/json\r\n", "[]")
        }
        "POST /v2/pet" => response(200, "content-type: application/json\r\n", &seen.body),
        "DELETE /v2/pet/7" => response(204, "", ""),
        line => panic!("{line}"),
    })
    .await;
    for file in ["petstore-3.0.json", "petstore-3.1.json"] {
        let text = section("pets", &data(file), &server.url("/v2"));
        let dir = tempfile::tempdir().unwrap();
        let key = super::services::secret(dir.path(), "key", "canary-value-0123456789");
        let text = format!(
            "[secrets.PETS]\nfrom = \"file:{key}\"\norigins = [{:?}]\nheaders = [\"api_key\", \"authorization\"]\n{text}\
             secrets = {{ api_key = \"PETS\", petstore_auth = \"PETS\" }}",
            server.url("")
        );
        let host = host(&text).await;
        let got = host.call("pets__getPetById", json!({"petId": 7})).await;
        assert!(value(&got).contains("Rex"), "{file}: {got:?}");
        assert_eq!(server.seen().last().unwrap().header("api_key"), Some("canary-value-0123456789"));
        let found = host.call("pets__findPetsByStatus", json!({"status": ["sold", "pending"]})).await;
        assert_eq!(outcome(&found), "ok", "{file}: {found:?}");
        let added = host.call("pets__addPet", json!({"body": {"name": "Tom", "photoUrls": []}})).await;
        assert!(value(&added).contains("Tom"), "{file}: {added:?}");
        assert_eq!(
            server.seen().last().unwrap().header("authorization"),
            Some("Bearer canary-value-0123456789")
        );
        assert_eq!(outcome(&host.call("pets__deletePet", json!({"petId": 7})).await), "ok", "{file}");
        let wrong = host.call("pets__addPet", json!({"body": {"name": 7}})).await;
        assert_eq!(outcome(&wrong), "input_invalid", "{file}: {wrong:?}");
    }
}

/// The operations of a document, and the time to read it.
async fn loaded(text: &str, more: &str) -> OpenApiInfo {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("api");
    std::fs::write(&file, text).unwrap();
    let host = TestHost::empty(&format!("{}{more}", section("api", &file, "https://api.example.com")));
    let started = Instant::now();
    let info = host.host.load_openapi().await.remove(0);
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}: {:.200}", started.elapsed(), text);
    info
}

fn with_paths(paths: &Value, components: &Value) -> String {
    json!({"openapi": "3.1.0", "paths": paths, "components": components}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_document_is_reported_in_one_line() {
    let deep = "[".repeat(200_000);
    let aliases = (0..60).fold("a0: &a0 [x, x]\n".to_owned(), |mut all, n| {
        writeln!(all, "a{}: &a{} [*a{n}, *a{n}]", n + 1, n + 1).unwrap();
        all
    });
    let huge = " ".repeat((32 << 20) + 1);
    let wide = format!("{{\"openapi\": \"3.1.0\", \"paths\": {{}}, \"x\": [{}1]}}", "1,".repeat(3_000_000));
    for (text, part) in [
        ("", "empty"),
        ("\0\0\0", "YAML"),
        ("<html></html>", "HTML"),
        (deep.as_str(), "YAML"),
        (aliases.as_str(), "YAML"),
        (huge.as_str(), "more than 33554432 bytes"),
        (wide.as_str(), "parts"),
        (r#"{"swagger": "2.0", "paths": {}}"#, "Swagger 2.0"),
        (r#"{"openapi": "3.1.0", "paths": []}"#, "no `paths`"),
    ] {
        let info = loaded(text, "").await;
        let error = info.error.unwrap_or_default();
        assert!(error.contains(part) && error.len() < 600, "{text:.40}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn references_that_lead_in_circles_or_fan_out_cost_their_operation_only() {
    let reference = |to: &str| json!({"$ref": format!("#/components/schemas/{to}")});
    let body = |schema: Value| json!({"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}});
    let mut schemas = json!({
        "Loop": reference("Loop"), "A": reference("B"), "B": reference("A"),
        "Node": {"type": "object", "properties": {"next": reference("Node")}}});
    // 2 to the power of 40, in eighty lines.
    for n in 0..40 {
        schemas[format!("F{n}")] =
            json!({"allOf": [reference(&format!("F{}", n + 1)), reference(&format!("F{}", n + 1))]});
    }
    schemas["F40"] = json!({"type": "string"});
    let deep = format!("{}{}", "{\"items\": ".repeat(3000), "{}".to_owned() + &"}".repeat(3000));
    let text = with_paths(
        &json!({"/loop": body(reference("Loop")), "/ab": body(reference("A")), "/node": body(reference("Node")),
            "/fan": body(reference("F0")), "/gone": body(reference("Gone")), "/far": body(json!({"$ref": "https://a.example/x"})),
            "/fine": {"get": {"operationId": "fine"}}, "/item": {"$ref": "#/paths/~1item"}}),
        &json!({ "schemas": schemas }),
    );
    let info = loaded(&text, "").await;
    assert_eq!(info.error, None);
    assert!(info.tools.contains_key("api__fine") && info.tools.contains_key("api__post_node"), "{info:?}");
    let reasons: Map<String, Value> =
        info.problems.iter().map(|(operation, reason)| (operation.clone(), json!(reason))).collect();
    assert!(reasons.contains_key("* /item"), "{reasons:?}");
    // A schema that is not there is any value.
    assert!(
        info.tools.contains_key("api__post_gone") && info.tools.contains_key("api__post_far"),
        "{info:?}"
    );
    // Too deep for JSON.
    let deep = format!("{{\"openapi\": \"3.1.0\", \"paths\": {{}}, \"components\": {deep}}}");
    let info = loaded(&deep, "").await;
    assert!(info.error.unwrap().contains("recursion"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_operations_are_refused_with_the_way_out_and_five_thousand_are_not() {
    let paths = |count: usize| {
        let all: Map<String, Value> = (0..count)
            .map(|n| (format!("/p{n}/{{id}}"), json!({"get": {"operationId": "same", "tags": [format!("t{}", n % 10)],
                "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]}})))
            .collect();
        with_paths(&Value::Object(all), &json!({}))
    };
    let text = paths(10_000);
    let info = loaded(&text, "").await;
    assert!(info.error.unwrap().contains("choose some with `include`"));
    let info = loaded(&text, "include = [\"tag:t3\"]").await;
    assert_eq!((info.error, info.tools.len(), info.left_out), (None, 1000, 9000));
}

/// A document with a thousand operations, each with a schema of 200 kB.
fn with_large_schemas() -> String {
    let fields: Map<String, Value> = (0..200)
        .map(|n| (format!("f{n}"), json!({"type": "string", "description": "x".repeat(1000)})))
        .collect();
    let paths: Map<String, Value> = (0..1000)
        .map(|n| {
            let schema = json!({"$ref": "#/components/schemas/Big"});
            (
                format!("/p{n}"),
                json!({"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}),
            )
        })
        .collect();
    with_paths(&Value::Object(paths), &json!({"schemas": {"Big": {"type": "object", "properties": fields}}}))
}

#[tokio::test]
async fn the_import_of_a_document_delays_no_call() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("api");
    // Nearly as many parts as a document may have.
    let parts = format!("{{\"x-parts\": [{}1], ", "1,".repeat(1_900_000));
    std::fs::write(&file, with_large_schemas().replacen('{', &parts, 1)).unwrap();
    let host = TestHost::empty(&section("api", &file, "https://api.example.com"));
    let importing = tokio::spawn({
        let host = host.host.clone();
        async move { host.load_openapi().await.remove(0) }
    });
    let (info, delay) = canary::run_beside(importing, async || ()).await;
    assert_eq!(info.error, None);
    assert!(info.tools.len() > 100 && info.tools.len() < 1000, "{}", info.tools.len());
    assert!(delay <= canary::MAX_DELAY, "{delay:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_document_gets_out_of_its_place() {
    let server = LoopbackServer::new(|seen| response(200, "content-type: text/plain\r\n", seen.line())).await;
    let nasty = "x\r\nEvil: 1\u{202e}\u{1b}[31m<|im_start|>";
    let document = json!({"openapi": "3.0.0", "info": {"title": nasty}, "paths": {
        "/a/../../admin": {"get": {"operationId": "up"}},
        "/a/%2e%2e/admin": {"get": {"operationId": "encoded"}},
        "/a?admin=1": {"get": {"operationId": "query"}},
        "/{a": {"get": {"operationId": "open"}},
        "//evil.example/x": {"get": {"operationId": "host"}},
        "/@evil.example/x": {"get": {"operationId": "user"}},
        "/h": {"get": {"operationId": "header", "parameters": [{"name": "X\r\nEvil", "in": "header"}]}},
        "/m": {"post": {"operationId": "media", "requestBody": {"content": {"text/plain\r\nEvil: 1": {}}}}},
        "/n": {"get": {"operationId": nasty, "summary": nasty, "description": nasty, "tags": [nasty, "read_only", "privileged"],
            "parameters": [{"name": nasty, "in": "query", "description": nasty, "schema": {"type": "string"}}],
            "responses": {"200": {"content": {"text/plain\r\nEvil: 1": {}}}}}},
        "/s": {"get": {"operationId": "server", "servers": [{"url": "http://169.254.169.254/"}]}}}});
    let written = ReceivedBytes::new(&document);
    let host = host(&written.section(&server, "")).await;
    let info = host.host.openapi().remove(0);
    let refused: BTreeSet<&str> = info.problems.iter().map(|(operation, _)| operation.as_str()).collect();
    for operation in ["GET /a/../../admin", "GET /a/%2e%2e/admin", "GET /{a", "POST /m"] {
        assert!(refused.contains(operation), "{operation}: {refused:?}");
    }
    let hidden = |text: &str| text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}');
    let catalog = host.host.registry().snapshot();
    for entry in catalog.from_source("openapi") {
        let def = &entry.def;
        let texts = [def.description.as_str(), def.title.as_deref().unwrap_or(""), def.name.as_str()];
        assert!(!texts.into_iter().any(hidden), "{def:?}");
        // Labels come from the host, and labels of the document are under the section's name.
        let of_host = ["destructive", "network", "privileged", "read_only"];
        let sound = |tag: &str| !hidden(tag) && (of_host.contains(&tag) || tag.starts_with("api."));
        assert!(entry.tags().iter().all(|tag| sound(tag)), "{:?}", entry.tags());
        assert!(!hidden(&def.input_schema.value().to_string()), "{def:?}");
        let said = host.call(def.name.as_str(), json!({})).await;
        assert_eq!(outcome(&said), "ok", "{}: {said:?}", def.name);
    }
    assert!(!hidden(info.title.as_deref().unwrap()));
    for seen in server.seen() {
        assert!(seen.header("evil").is_none() && seen.path().starts_with("/v1/"), "{}", seen.head);
        assert_eq!(seen.header("host"), Some(&*server.address.to_string()), "{}", seen.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_url_of_a_document_grants_no_network_access() {
    for (url, part) in [
        ("http://169.254.169.254/latest", "net_private"),
        ("http://127.0.0.1:1/", "net_private"),
        ("http://[::1]:1/", "net_private"),
        ("http://0x7f.1:1/", "net_private"),
        ("http://localhost:1/", "net_private"),
        ("http://10.0.0.1/", "net_private"),
    ] {
        let document = json!({"openapi": "3.0.0", "servers": [{"url": url}], "paths": {"/x": {"get": {"operationId": "x"}}}});
        let written = ReceivedBytes::new(&document);
        let host = host(&format!("[openapi.api]\ndocument = {:?}", written.path())).await;
        let said = host.call("api__x", json!({})).await;
        assert!(refusal(&said).message.contains(part), "{url}: {said:?}");
    }
    for (url, part) in [
        ("file:///etc/passwd", "does not use HTTP"),
        ("https://user:password@a.example", "credentials"),
        ("/v1", "set `server`"),
        ("https://{a}.example", "without a value"),
    ] {
        let text =
            json!({"openapi": "3.0.0", "servers": [{"url": url}], "paths": {"/x": {"get": {}}}}).to_string();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("api.json");
        std::fs::write(&file, text).unwrap();
        let host = host(&format!("[openapi.api]\ndocument = {:?}", file.display().to_string())).await;
        let info = host.host.openapi().remove(0);
        assert!(info.problems[0].1.contains(part) && info.tools.is_empty(), "{url}: {info:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_is_not_a_regular_file_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for file in [fifo.as_path(), dir.path(), Path::new("/dev/zero"), Path::new("/nonexistent")] {
        let host = TestHost::empty(&section("api", file, "https://api.example.com"));
        let info = host.host.load_openapi().await.remove(0);
        assert!(info.error.unwrap().contains("cannot be read"), "{}", file.display());
    }
}
