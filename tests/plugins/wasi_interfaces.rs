//! Interfaces of WASI beyond the command line: `wasi:config` and `wasi:keyvalue`.

use integration_tests::{TestHost, hints, outcome, refusal, structured, words as value};
use serde_json::{Value, json};
use toolbay::core::tool::content::ErrorCode;

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_policy_are_read_through_wasi_config() {
    let policy = "[plugins.s.config]\nregion = \"eu\"\nretries = 3\ntags = [\"a\", \"b\"]";
    let host = TestHost::new(&[("s", guest_artifacts::FOREIGN_CONFIG)], policy).await;
    for (key, text) in [
        ("region", json!("eu")),
        ("retries", json!("3")),
        ("tags", json!("[\"a\",\"b\"]")),
        ("none", json!(null)),
    ] {
        assert_eq!(host.ask("s__setting", json!({"key": key})).await, json!({"result": text}), "{key}");
    }
    assert_eq!(
        host.ask("s__settings", json!({})).await,
        json!({"result": [["region", "eu"], ["retries", "3"], ["tags", "[\"a\",\"b\"]"]]})
    );
}

async fn shelf(policy: &str) -> TestHost {
    TestHost::new(&[("s", guest_artifacts::FOREIGN_KEYVALUE)], policy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_kept_through_wasi_keyvalue() {
    let host = shelf("[plugins.s.grant]\nkv = [\"plugin\", \"tool\"]").await;
    let call = async |tool: &str, args: Value| host.call(&format!("s__{tool}"), args).await;
    let put = call("put", json!({"bucket": "", "key": "a", "value": "1"})).await;
    assert_eq!(outcome(&put), "ok", "{:?}", put.result);
    // Both are names of the scope `plugin`; each tool has a bucket of its own.
    for (bucket, found) in [("default", json!("1")), ("plugin", json!("1")), ("tool", json!(null))] {
        let taken = call("take", json!({"bucket": bucket, "key": "a"})).await;
        assert_eq!(structured(&taken), json!({"result": found}), "{bucket}");
    }
    assert_eq!(
        structured(&call("add", json!({"bucket": "", "key": "a", "number": 41})).await),
        json!({"result": 42})
    );
    assert_eq!(structured(&call("forget", json!({"bucket": "", "key": "a"})).await), json!({"result": true}));
    // A full page of a thousand keys, and the rest.
    assert_eq!(
        structured(&call("fill", json!({"bucket": "", "count": 1001})).await),
        json!({"result": [1001, 2]})
    );
    for (tool, args, said) in [
        ("put", json!({"bucket": "elsewhere", "key": "a", "value": ""}), "no such store"),
        ("put", json!({"bucket": "", "key": "", "value": ""}), "the key is empty"),
        ("stray", json!({"bucket": ""}), "cursor"),
        ("add", json!({"bucket": "", "key": "n", "number": u64::MAX}), "63 bits"),
    ] {
        let refused = call(tool, args).await;
        assert_eq!(refusal(&refused).code, ErrorCode::ExecutionFailed);
        assert!(refusal(&refused).message.contains(said), "{tool}: {:?}", refusal(&refused));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_without_a_grant_is_denied_and_the_hint_names_the_line() {
    let host = shelf("[plugins.s.grant]\nkv = [\"plugin\"]").await;
    let refused = host.call("s__put", json!({"bucket": "session", "key": "a", "value": "1"})).await;
    assert!(refusal(&refused).message.contains("access denied"), "{:?}", refusal(&refused));
    assert!(
        hints(&refused).contains("kv = [\"session\"]") || hints(&refused).contains("\"session\""),
        "{}",
        hints(&refused)
    );
    let record = format!("{:?}", host.audit.take().pop().unwrap());
    assert!(record.contains("session"), "{record}");
    let explained = host.host.explain("s__put", None).unwrap();
    assert!(
        explained
            .capabilities
            .iter()
            .any(|wish| wish.capability.kind.as_str() == "kv" && wish.refused.is_some())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn values_handles_and_entries_are_bounded() {
    let policy = "[plugins.s.grant]\nkv = [\"plugin\"]\n[plugins.s.limits]\nkv_keys = 10\nkv_value_bytes = \"64KiB\"\n\
                  host_call_bytes = \"256KiB\"\nhandles = 16";
    let host = shelf(policy).await;
    let call = async |tool: &str, args: Value| host.call(&format!("s__{tool}"), args).await;
    let many = call("fill", json!({"bucket": "", "count": 11})).await;
    assert!(refusal(&many).message.contains("quota"), "{:?}", refusal(&many));
    let large = call("put", json!({"bucket": "", "key": "a", "value": "x".repeat(65_537)})).await;
    assert!(refusal(&large).message.contains("too large"), "{:?}", refusal(&large));
    call("put", json!({"bucket": "", "key": "key-00000", "value": "x".repeat(60_000)})).await;
    let copies = call("copies", json!({"bucket": "", "key": "key-00000", "count": 100})).await;
    assert!(refusal(&copies).message.contains("host_call_bytes"), "{:?}", refusal(&copies));
    assert_eq!(value(&call("copies", json!({"bucket": "", "key": "key-00000", "count": 2})).await), "2");
    let hoard = call("hoard", json!({"bucket": "", "count": 1000})).await;
    assert!(outcome(&hoard).contains("memory"), "{:?}", hoard.result);
}
