//! HTTP handlers as tools: the manifest describes the request of each.

use std::time::Duration;

use integration_tests::{TestHost, fault, refusal, structured, words as value};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbay::PluginId;
use toolbay::core::tool::content::ErrorCode;
use toolbay::core::tool::fault::FaultKind;

const SOON: Duration = Duration::from_secs(25);

const MANIFEST: &str = r#"
version = 1
name = "service"
[tools.echo]
description = "Give back what arrived."
args.id = { type = "string" }
args.text = { type = "string", optional = true }
http = { method = "POST", path = "/echo", query = { id = "{id}", more = "{text}" }, body = "{text}" }
[tools.json]
description = "Give back the arguments."
args.a = { type = "integer" }
args.b = { type = "array", items = { type = "string" }, optional = true }
output = { type = "object", properties = { got = { type = "object" } }, required = ["got"] }
http = { method = "PUT", path = "/json", json = ["a", "b"] }
[tools.at]
description = "Ask for a path."
args.path = { type = "string" }
args.count = { type = "integer", default = 0 }
http = { path = "/{path}", headers = { accept = "text/{path}" } }
[tools.flood]
description = "Get a long answer."
http = { path = "/flood", query = { } }
[tools.headers]
description = "Show the headers."
args.lang = { type = "string" }
http = { path = "/headers", headers = { accept-language = "{lang}" } }
"#;

/// Handlers of WASI 0.2 and 0.3.
const HANDLERS: [&str; 2] = [guest_artifacts::FOREIGN_HTTP, guest_artifacts::FOREIGN_ASYNC_HANDLER];

fn service(handler: &str, manifest: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let component = folder.path().join("service.wasm");
    std::fs::copy(handler, &component).unwrap();
    std::fs::write(folder.path().join("service.plugin.toml"), manifest).unwrap();
    (folder, component.to_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_the_manifest_is_a_tool() {
    for handler in HANDLERS {
        let (_folder, component) = service(handler, MANIFEST);
        let host = TestHost::new(&[("s", component.as_str())], "").await;
        let call = async |tool: &str, args: Value| host.call(&format!("s__{tool}"), args).await;
        let said = call("echo", json!({"id": "a b", "text": "hello & co"})).await;
        assert_eq!(value(&said), "Method::Post id=a%20b&more=hello%20%26%20co hello & co");
        assert_eq!(value(&call("echo", json!({"id": "1"})).await), "Method::Post id=1 ");
        let said = call("json", json!({"a": 1, "b": ["x"]})).await;
        assert_eq!(structured(&said), json!({"got": {"a": 1, "b": ["x"]}}));
        let said = call("headers", json!({"lang": "de"})).await;
        assert!(value(&said).contains("accept-language: de") && !value(&said).contains("host"), "{said:?}");
        let host_said = call("at", json!({"path": "host"})).await;
        assert!(value(&host_said).contains("localhost"), "{host_said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_response_is_an_error_of_the_tool() {
    for handler in HANDLERS {
        let (_folder, component) = service(handler, MANIFEST);
        let host = TestHost::new(&[("s", component.as_str())], "").await;
        let failed = host.call("s__at", json!({"path": "nowhere"})).await;
        assert_eq!(refusal(&failed).code, ErrorCode::ExecutionFailed);
        assert_eq!(refusal(&failed).subject.as_deref(), Some("http-status-404"));
        assert!(
            refusal(&failed).message.contains("status 404: nothing is at /nowhere"),
            "{:?}",
            refusal(&failed)
        );
        // An argument cannot leave its part of the path.
        let failed = host.call("s__at", json!({"path": "../echo?x=y"})).await;
        assert!(
            refusal(&failed).message.contains("nothing is at /..%2Fecho%3Fx%3Dy"),
            "{:?}",
            refusal(&failed)
        );
        let refused = host.call("s__headers", json!({"lang": "a\r\nx: b"})).await;
        assert_eq!(refusal(&refused).code, ErrorCode::InputInvalid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_does_not_come_is_an_error_of_the_tool() {
    for (handler, path, said) in [
        (guest_artifacts::FOREIGN_HTTP, "silent", "sent no response"),
        (guest_artifacts::FOREIGN_HTTP, "forgotten", "ended before its response was complete"),
        (guest_artifacts::FOREIGN_HTTP, "unfinished", "ended before its response was complete"),
        (guest_artifacts::FOREIGN_ASYNC_HANDLER, "silent", "the handler failed: ErrorCode::InternalError"),
    ] {
        let (_folder, component) = service(handler, MANIFEST);
        let host = TestHost::new(&[("s", component.as_str())], "").await;
        let failed = host.call("s__at", json!({"path": path})).await;
        assert!(refusal(&failed).message.contains(said), "{path}: {:?}", refusal(&failed));
    }
    // Its task may still write: the host waits until the deadline.
    let (_folder, component) = service(guest_artifacts::FOREIGN_ASYNC_HANDLER, MANIFEST);
    let host = TestHost::new(&[("s", component.as_str())], "[plugins.s.limits]\ntimeout = \"1s\"").await;
    let delivered = host.provoke("s__at", json!({"path": "unfinished"}), SOON).await;
    assert_eq!(fault(&delivered).kind, FaultKind::Deadline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_runs_under_the_same_limits() {
    let manifest =
        MANIFEST.replace("path = \"/flood\", query = { }", "path = \"/flood\", query = { 200000 = \"\" }");
    let policy = "[plugins.s.limits]\nfuel = 500_000_000\nhost_call_bytes = \"64KiB\"";
    for handler in HANDLERS {
        let (_folder, component) = service(handler, &manifest);
        let host = TestHost::new(&[("s", component.as_str())], policy).await;
        for (tool, args, kind) in [
            ("at", json!({"path": "trap"}), FaultKind::Trap),
            ("at", json!({"path": "spin"}), FaultKind::OutOfFuel),
            ("flood", json!({}), FaultKind::OutputTooLarge),
        ] {
            let delivered = host.provoke(&format!("s__{tool}"), args, SOON).await;
            assert_eq!(fault(&delivered).kind, kind, "{tool}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_without_a_manifest_says_what_is_missing() {
    let host = TestHost::empty("");
    let load = async |path: &str| {
        host.host.load_file(PluginId::new("s").unwrap(), path.as_ref()).await.unwrap_err().to_string()
    };
    let problem = load(guest_artifacts::FOREIGN_HTTP).await;
    assert!(problem.contains("it is an HTTP handler: add a file NAME.plugin.toml"), "{problem}");
    let folder = tempfile::tempdir().unwrap();
    let component = folder.path().join("echo.wasm");
    std::fs::copy(guest_artifacts::FOREIGN_ECHO, &component).unwrap();
    std::fs::write(folder.path().join("echo.plugin.toml"), MANIFEST).unwrap();
    let problem = load(component.to_str().unwrap()).await;
    assert!(problem.contains("does not handle HTTP"), "{problem}");
}
