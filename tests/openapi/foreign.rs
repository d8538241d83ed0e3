//! Documents and answers as others write them: one odd thing costs only that thing.

use integration_tests::{TestHost, outcome, refusal, structured, value, words};
use serde_json::{Value, json};
use toolbay::OpenApiInfo;
use toolbay::core::tool::content::{BlockBody, ResourceBody};

use crate::loopback::{LoopbackServer, ReceivedRequest, response};

/// A host with one service, whose document is this text.
struct ServiceFixture {
    host: TestHost,
    info: OpenApiInfo,
    /// Holds the document.
    _dir: tempfile::TempDir,
}

impl ServiceFixture {
    /// `more` are lines of the section.
    async fn new(text: &str, server: &LoopbackServer, more: &str) -> Self {
        let service = Self::load(text, server, more).await;
        assert_eq!(service.info.error, None);
        service
    }

    /// Like [`ServiceFixture::new`], also if the service has no tools.
    async fn load(text: &str, server: &LoopbackServer, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("api");
        std::fs::write(&file, text.replace("SERVER", &server.url(""))).unwrap();
        let file = file.display().to_string();
        let host = TestHost::empty(&format!(
            "[openapi.api]\ndocument = {file:?}\nnet_private = [\"127.0.0.1\"]\n{more}"
        ));
        let info = host.host.load_openapi().await.remove(0);
        Self { host, info, _dir: dir }
    }

    async fn call(&self, tool: &str, args: Value) -> toolbay::CallResult {
        self.host.call(&format!("api__{tool}"), args).await
    }

    fn tools(&self) -> Vec<&str> {
        self.info.tools.keys().map(|name| name.trim_start_matches("api__")).collect()
    }
}

/// Answers each request with its own path and body.
async fn echo_server() -> LoopbackServer {
    LoopbackServer::new(super::services::echo).await
}

fn last(server: &LoopbackServer) -> ReceivedRequest {
    server.seen().pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_in_yaml_is_read_by_the_rules_of_version_1_2() {
    let server = echo_server().await;
    let text = r#"
openapi: 3.0.3
info: {title: T, version: "1"}
servers: [{url: "SERVER"}]
paths:
  /at: {get: {operationId: placeAt, parameters: [{name: x, in: query, schema: {type: number}}, {name: y, in: query, schema: {type: number}}], responses: {200: {description: ok}}}}
  /vat: {get: {operationId: vatOf, parameters: [{name: country, in: query, schema: {type: string, enum: [DE, NO, SE]}}, {name: mode, in: query, schema: {type: string, enum: [on, off], default: off}}], responses: {200: {description: ok}}}}
  /off: {get: {operationId: off, responses: {200: {description: ok}}}}
"#;
    let service = ServiceFixture::new(text, &server, "").await;
    assert_eq!((service.tools(), service.info.problems.len()), (vec!["off", "placeAt", "vatOf"], 0));
    assert_eq!(outcome(&service.call("vatOf", json!({"country": "NO", "mode": "off"})).await), "ok");
    assert_eq!(last(&server).line(), "GET /vat?country=NO&mode=off");
    assert_eq!(outcome(&service.call("placeAt", json!({"x": 1, "y": 2})).await), "ok");
    assert_eq!(last(&server).line(), "GET /at?x=1&y=2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_skipped_operation_says_why() {
    let server = echo_server().await;
    let text = r#"
openapi: 3.0.3
info: {title: T, version: "1"}
servers: [{url: "SERVER"}]
paths:
  things/{id}: {get: {operationId: oneThing, parameters: [{name: id, in: path, required: true, schema: {type: string}}], responses: {200: {description: ok}}}}
  /undeclared/{who}: {get: {operationId: greet, responses: {200: {description: ok}}}}
  /sound: {get: {operationId: sound, responses: {200: {description: ok}}}, trace: {operationId: traced}}
  /far: {get: {operationId: far, servers: [{url: "https://{region}.example"}]}}
"#;
    let service = ServiceFixture::new(text, &server, "").await;
    assert_eq!(service.tools(), ["oneThing", "sound"]);
    let skipped: Vec<&str> = service.info.problems.iter().map(|(operation, _)| operation.as_str()).collect();
    assert_eq!(skipped, ["TRACE /sound", "GET /undeclared/{who}", "GET /far"]);
    assert_eq!(outcome(&service.call("oneThing", json!({"id": "7"})).await), "ok");
    assert_eq!(last(&server).line(), "GET /things/7");
    for (tool, part) in [
        ("greet", "GET /undeclared/{who}"),
        ("greet", "its path has `{who}`, which is not a parameter"),
        ("traced", "the method TRACE is not supported"),
        ("far", "a variable without a value"),
    ] {
        let said = service.call(tool, json!({})).await;
        assert!(refusal(&said).message.contains(part), "{said:?}");
        // What to write in the policy is for the operator.
        assert!(!refusal(&said).message.contains("variables ="), "{said:?}");
    }
    assert!(service.info.problems[2].1.contains("variables = { \"region\" = \"…\" }"));
    let other = service.call("other", json!({})).await;
    assert_eq!(refusal(&other).message, "Unknown tool: api__other");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_count_as_text_in_server_variables_and_versions() {
    let server = echo_server().await;
    let port = server.address.port();
    let text = format!(
        "openapi: 3.1\ninfo: {{title: T, version: 1.0}}\n\
         servers: [{{url: \"http://127.0.0.1:{{port}}/{{stage}}\", variables: {{port: {{default: 1, enum: [1, {port}]}}, stage: {{default: 2}}}}}}]\n\
         paths:\n  /a: {{get: {{operationId: 404, tags: [7], parameters: [{{name: 5, in: query}}], responses: {{200: {{description: ok}}}}}}}}\n"
    );
    let more = format!("variables = {{ port = \"{port}\" }}\ninclude = [\"tag:7\"]\n");
    let service = ServiceFixture::new(&text, &server, &more).await;
    assert_eq!(service.tools(), ["404"]);
    assert_eq!(outcome(&service.call("404", json!({"5": "x"})).await), "ok");
    assert_eq!(last(&server).line(), "GET /2/a?5=x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_judged_as_its_author_means_it() {
    let server = echo_server().await;
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let body = |media: &str, schema: Value| json!({"required": true, "content": {media: {"schema": schema}}});
    let post = |id: &str, body: Value| json!({"post": {"operationId": id, "requestBody": body}});
    let marks = |items: &str| json!({"type": "object", "properties": {"marks": {"type": "array", "items": {"type": items}}}});
    let paid = |name: &str| json!({"type": "object", "required": ["by"], "properties": {"by": {"type": "string"}, name: {"type": "string"}}});
    let text = json!({"openapi": "3.0.3", "servers": [{"url": "SERVER"}],
        "paths": {
            "/notes": post("addNote", body("application/json", json!({"allOf": [reference("Saved"),
                {"type": "object", "required": ["key", "text"], "properties": {"text": {"type": "string"}}}]}))),
            "/photos": post("addPhoto", body("multipart/form-data", json!({"allOf": [reference("Titled"),
                {"type": "object", "required": ["photo"], "properties": {"photo": {"type": "string", "format": "binary"}}}]}))),
            "/pay": post("pay", body("application/json", json!({"oneOf": [reference("Card"), reference("Bank")],
                "discriminator": {"propertyName": "by", "mapping": {"card": "#/components/schemas/Card", "bank": "#/components/schemas/Bank"}}}))),
            "/marks": post("mark", body("application/json", json!({"oneOf": [marks("string"), marks("object")]}))),
        },
        "components": {"schemas": {
            "Saved": {"type": "object", "properties": {"key": {"type": "string", "readOnly": true}}},
            "Titled": {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}},
            "Card": paid("number"), "Bank": paid("iban")}}});
    let service = ServiceFixture::new(&text.to_string(), &server, "").await;
    assert_eq!(service.tools(), ["addNote", "addPhoto", "mark", "pay"]);
    for (tool, good, bad) in [
        ("addNote", json!({"text": "a"}), json!({})),
        ("pay", json!({"by": "bank", "iban": "X1"}), json!({"by": "bank", "iban": 7})),
        ("mark", json!({"marks": []}), json!({"marks": [7]})),
    ] {
        let said = service.call(tool, json!({ "body": good })).await;
        assert_eq!(outcome(&said), "ok", "{said:?}");
        assert_eq!(serde_json::from_slice::<Value>(&last(&server).body).unwrap(), good);
        assert_eq!(outcome(&service.call(tool, json!({ "body": bad })).await), "input_invalid", "{tool}");
    }
    let view = service.host.host.view(toolbay::Filter::default());
    let note = view.catalog().get("api__addNote").unwrap().def.input_schema.value().to_string();
    assert!(!note.contains("\"key\""), "it is not offered: {note}");
    let photo = json!({"title": "t", "photo": {"base64": "iVBORw0KGgo=", "filename": "a.png", "mime_type": "image/png"}});
    assert_eq!(outcome(&service.call("addPhoto", json!({ "body": photo })).await), "ok");
    let sent = last(&server).body;
    let part = b"name=\"photo\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n\x1a\n\r\n";
    assert!(sent.windows(part.len()).any(|bytes| bytes == part), "{}", String::from_utf8_lossy(&sent));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_read_in_their_charset_and_say_where_to_go_on() {
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/cn" => response(200, "content-type: text/plain; charset=GBK\r\n", b"\xc4\xe3\xba\xc3"),
        "/jp" => response(200, "content-type: text/html; charset=Shift_JIS\r\n", b"\x82\xb1\x82\xf1"),
        "/eu" => response(200, "content-type: text/csv; charset=windows-1252\r\n", b"5 \x80"),
        "/odd" => response(200, "content-type: text/plain; charset=x-odd\r\n", b"a\xff"),
        "/bom" => response(200, "content-type: application/json\r\n", b"\xef\xbb\xbf{\"a\": 1}"),
        "/job" => response(202, "location: /jobs/17?full=true\r\nretry-after: 5\r\n", ""),
        "/made" => response(201, "location: /elsewhere\r\ncontent-type: application/json\r\n", "{}"),
        "/moved" => response(303, "location: /elsewhere?a=b\r\nretry-after: 9\r\n", ""),
        "/choices" => response(300, "location: /jobs/1\r\n", ""),
        path => panic!("{path}"),
    })
    .await;
    let get = |id: &str| json!({"get": {"operationId": id}});
    let text = json!({"openapi": "3.0.3", "servers": [{"url": "SERVER"}], "paths": {
        "/cn": get("cn"), "/jp": get("jp"), "/eu": get("eu"), "/odd": get("odd"), "/bom": get("bom"), "/job": get("job"),
        "/made": get("made"), "/moved": get("moved"), "/choices": get("choices"),
        "/jobs/{id}": {"get": {"operationId": "oneJob", "parameters": [
            {"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}},
            {"name": "full", "in": "query", "schema": {"type": "boolean"}}]}}}});
    let service = ServiceFixture::new(&text.to_string(), &server, "").await;
    for (tool, text) in [("cn", "你好"), ("jp", "こん"), ("eu", "5 €")] {
        assert_eq!(words(&service.call(tool, json!({})).await).trim(), text);
    }
    let odd = service.call("odd", json!({})).await;
    assert!(value(&odd).contains("`x-odd`") && !value(&odd).contains('\u{fffd}'), "{odd:?}");
    let block = &odd.result.as_ref().unwrap().content[0].body;
    assert!(matches!(block, BlockBody::Embedded(file) if file.body == ResourceBody::Blob(b"a\xff".to_vec())));
    let marked = service.call("bom", json!({})).await;
    assert_eq!(structured(&marked), json!({"a": 1}));
    assert!(!value(&marked).contains('\u{feff}'));
    let job = service.call("job", json!({})).await;
    assert!(
        value(&job).contains(
            "Location: /jobs/17?full=true, which is `api__oneJob` with {\"id\":17,\"full\":true}\nRetry-After: 5"
        ),
        "{job:?}"
    );
    let made = service.call("made", json!({})).await;
    assert!(value(&made).contains("Location: /elsewhere") && structured(&made) == json!({}), "{made:?}");
    for (tool, location) in [
        ("moved", "303 with the location /elsewhere?a=b (retry after 9), which is not followed"),
        ("choices", "/jobs/1"),
    ] {
        let said = service.call(tool, json!({})).await;
        assert!(refusal(&said).message.contains(location), "{said:?}");
    }
    assert!(!server.seen().iter().any(|seen| seen.path().starts_with("/jobs")), "nothing is followed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_without_members_is_left_out_of_the_request() {
    let server = echo_server().await;
    let text = r#"
openapi: 3.0.3
info: {title: T, version: "1"}
servers: [{url: "SERVER"}]
paths:
  /q: {get: {operationId: find, parameters: [{name: tags, in: query, explode: false, schema: {type: array, items: {type: string}}}, {name: X-Ids, in: header, schema: {type: array, items: {type: string}}}, {name: seen, in: cookie, explode: false, schema: {type: array, items: {type: string}}}], responses: {200: {description: ok}}}}
  /f: {post: {operationId: form, requestBody: {content: {application/x-www-form-urlencoded: {schema: {type: object}, encoding: {l: {explode: false}}}}}}}
"#;
    let service = ServiceFixture::new(text, &server, "").await;
    assert_eq!(outcome(&service.call("find", json!({"tags": [], "X-Ids": [], "seen": []})).await), "ok");
    let seen = last(&server);
    assert_eq!((seen.line(), seen.header("x-ids"), seen.header("cookie")), ("GET /q", None, None));
    assert_eq!(outcome(&service.call("find", json!({"tags": [""]})).await), "ok");
    assert_eq!(last(&server).line(), "GET /q?tags=");
    assert_eq!(outcome(&service.call("form", json!({"body": {"l": [], "a": 1}})).await), "ok");
    assert_eq!(last(&server).body, b"a=1");
}

/// As in the document of Anthropic: most paths are there twice, and differ in their query.
#[tokio::test(flavor = "multi_thread")]
async fn paths_that_differ_in_their_query_all_become_tools() {
    let server = echo_server().await;
    let mut paths = json!({});
    for n in 0..53 {
        for (query, prefix) in [("", ""), ("?beta=true", "beta_")] {
            paths[format!("/v1/r{n}/{{id}}{query}")] = json!({"post": {"operationId": format!("{prefix}r{n}"), "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]}});
        }
    }
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "SERVER"}], "paths": paths}).to_string();
    let service = ServiceFixture::new(&text, &server, "").await;
    assert_eq!((service.info.tools.len(), service.info.problems.len()), (106, 0));
    for (tool, line) in [("r7", "POST /v1/r7/a%20b"), ("beta_r7", "POST /v1/r7/a%20b?beta=true")] {
        assert_eq!(outcome(&service.call(tool, json!({"id": "a b"})).await), "ok");
        assert_eq!(last(&server).line(), line);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_names_a_tool_and_rules_with_its_other_name_still_apply() {
    let server = echo_server().await;
    let get = |id: &str| json!({"get": {"operationId": id}});
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "SERVER"}], "paths": {
        "/a": get("listEveryOverdueInvoice"), "/b": get("overdue"), "/c": get("other")}});
    let more = "[openapi.api.tools.listEveryOverdueInvoice]\nname = \"overdue\"\nlimits = { timeout = \"7s\" }\n\
                [[rule]]\ntool = \"api__listEvery*\"\naction = \"deny\"\n";
    let service = ServiceFixture::new(&text.to_string(), &server, more).await;
    // The document cannot take the name that the operator gave.
    assert_eq!(service.tools(), ["other", "overdue"]);
    assert_eq!(service.info.tools["api__overdue"], "GET /a");
    assert!(service.info.problems[0].1.contains("[openapi.api.tools.listEveryOverdueInvoice]"));
    assert_eq!(
        outcome(&service.call("overdue", json!({})).await),
        "not_available",
        "the rule binds to the tool"
    );
    assert_eq!(outcome(&service.call("other", json!({})).await), "ok");
}

/// Sections that are stricter than the service keep it away, because the tool that they mean may have another name.
#[tokio::test(flavor = "multi_thread")]
async fn a_section_for_a_tool_that_is_gone_costs_the_service_only_if_it_is_stricter() {
    let server = echo_server().await;
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "SERVER"}], "paths": {
        "/a": {"get": {"operationId": "a"}}}});
    for (line, stays) in [
        ("limits = { timeout = \"5s\" }", true),
        ("name = \"a\"", true),
        ("approve = false", true),
        ("approve = true", false),
        ("permission = \"deny\"", false),
    ] {
        let more = format!("[openapi.api.tools.oldname]\n{line}\n");
        let service = ServiceFixture::load(&text.to_string(), &server, &more).await;
        assert_eq!(service.tools().len(), usize::from(stays), "{line}");
        let lines =
            service.info.warnings.iter().chain(&service.info.error).filter(|line| line.contains("`oldname`"));
        assert_eq!(lines.count(), 1, "{line}: {:?}", service.info);
    }
}
