//! WASI calls that request more than they may get at once.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use integration_tests::{TestHost, fault, outcome, structured, value};
use serde_json::json;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{Filter, ToolCall, TurnContext};

const SOON: Duration = Duration::from_secs(20);
const BOTH: &str = "[plugins.io.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n";

async fn host(policy: &str) -> TestHost {
    TestHost::new(&[("io", guest_artifacts::HOSTILE_IO)], policy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_is_checked_before_anything_is_allocated() {
    let host = host("").await;
    for (tool, n) in [
        ("io__write_zeroes", u64::MAX),
        ("io__write_zeroes", 1 << 40),
        ("io__blocking_zeroes", 1 << 40),
        ("io__random", u64::MAX),
        ("io__random", 100_000),
        ("io__insecure_random", u64::MAX),
        ("io__insecure_random", 100_000),
    ] {
        let delivered = host.provoke(tool, json!({ "n": n }), SOON).await;
        assert_eq!(fault(&delivered).kind, FaultKind::Trap, "{tool} {n}");
    }
    assert_eq!(value(&host.provoke("io__random", json!({"n": 65_536}), SOON).await), "65536");
    assert_eq!(value(&host.provoke("io__write_zeroes", json!({"n": 65_536}), SOON).await), "Ok(())");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_polls_are_no_way_around_a_limit() {
    let brief = "[plugins.io.tools.empty_writes]\nlimits = { timeout = \"300ms\" }";
    let host = host(&format!("[plugins.io.limits]\nfuel = 1_000_000_000_000\n{brief}")).await;
    let delivered = host.provoke("io__empty_writes", json!({}), SOON).await;
    assert!(matches!(fault(&delivered).kind, FaultKind::Deadline | FaultKind::OutOfMemory), "{delivered:?}");
    assert_eq!(outcome(&host.provoke("io__splice", json!({}), SOON).await), "ok");
    let none = host.provoke("io__poll_none", json!({}), SOON).await;
    assert_eq!(fault(&none).kind, FaultKind::Trap);
    assert_eq!(value(&host.provoke("io__poll_many", json!({"n": 1000}), SOON).await), "1000");
    let many = host.provoke("io__poll_many", json!({"n": 1_000_000}), SOON).await;
    assert!(matches!(outcome(&many), "trap" | "output_too_large" | "out_of_memory"), "{many:?}");
    let most = host.provoke("io__poll_many", json!({"n": 8_000_000}), SOON).await;
    assert_ne!(outcome(&most), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_in_bounded_parts() {
    let host = host(BOTH).await;
    fs::write(host.root().join("a.txt"), vec![7; 3 << 20]).unwrap();
    let said = structured(&host.provoke("io__read_far", json!({"path": "a.txt"}), SOON).await);
    assert!(said["whole"].as_str().unwrap().starts_with("Ok"), "{said}");
    let said =
        structured(&host.provoke("io__sparse", json!({"path": "big", "size": 1_u64 << 40}), SOON).await);
    assert!(said["read"].as_str().is_some(), "{said}");
    let said = host.provoke("io__read_far", json!({"path": "big"}), SOON).await;
    assert_eq!(outcome(&said), "ok", "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_path_leads_out() {
    for write in [false, true] {
        let host = host(if write { BOTH } else { "[plugins.io.grant]\nfs_read = [\"$workspace\"]" }).await;
        let root = host.root();
        fs::create_dir(root.join("in")).unwrap();
        fs::write(root.join("a.txt"), "hello").unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("../../../../../../../../etc", root.join("etc")).unwrap();
        symlink("/", root.join("root")).unwrap();
        for path in [
            "..",
            "../",
            "../.",
            "./..",
            "in/../..",
            "in/../../",
            "/",
            "//",
            "/etc",
            "up",
            "up/",
            "up/.",
            "etc/",
            "etc/passwd",
            "etc/passwd/",
            "root/",
            "root/etc/passwd",
            "in/../up/",
            "\0",
            "..\0",
            "",
        ] {
            let args = json!({"path": path, "link": "l", "old": "../../../../etc/passwd"});
            let said = structured(&host.provoke("io__dotdot", args, SOON).await);
            assert!(said["open"].as_str().unwrap().starts_with("Err"), "{path:?}: {said}");
        }
        let args = json!({"path": "a.txt", "write": true, "truncate": true});
        let said = structured(&host.provoke("io__dotdot", args, SOON).await);
        assert_eq!(said["open"].as_str().unwrap().starts_with("Ok"), write, "{said}");
        assert_eq!(fs::metadata(root.join("a.txt")).unwrap().len(), if write { 0 } else { 5 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_files_are_bounded_for_each_call_and_closed_after_it() {
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    let host = host(&format!("{BOTH}[plugins.io.limits]\nhandles = 100")).await;
    fs::write(host.root().join("a.txt"), "x").unwrap();
    let before = count();
    let view = host.host.view(Filter::default());
    let calls = (0..16)
        .map(|n| ToolCall::new(n.to_string(), "io__open_many", r#"{"path": "a.txt", "ms": 100, "n": 90}"#))
        .collect();
    let results = host.host.call_all(&view, calls, TurnContext::default()).await;
    assert!(results.iter().all(|r| outcome(r) == "ok"), "{:?}", results[0]);
    assert!(count() <= before + 16, "{} files open, {before} before", count());
    let too_many = host.provoke("io__open_many", json!({"path": "a.txt"}), SOON).await;
    assert_eq!(fault(&too_many).limit.as_ref().map(|l| l.name), Some("handles"), "{too_many:?}");
}
