//! Attacks that the host withstands: arguments, budgets, limits at their edges, start functions, cache and reloads.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use integration_tests::{TestHost, fault, outcome, policy, refusal, value};
use serde_json::json;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{Filter, Host, PluginId, ToolCall, TurnContext};

use super::compile_bombs::soon;

/// A component with `instances` more instances of a core module, appended to its binary: sections may stand in any
/// order and nothing refers to them.
fn with_instances(path: &str, module: &str, instances: u8) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    let module = wat::parse_str(module).unwrap();
    let modules = u8::try_from(sections(&bytes).into_iter().filter(|id| *id == 1).count()).unwrap();
    assert!(modules < 128 && instances < 128);
    let mut list = vec![instances];
    for _ in 0..instances {
        list.extend_from_slice(&[0, modules, 0]);
    }
    for (id, content) in [(1, module), (2, list)] {
        bytes.push(id);
        let mut length = content.len();
        while length > 0x7f {
            bytes.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend_from_slice(&content);
    }
    bytes
}

/// The section ids of a component.
pub(crate) fn sections(bytes: &[u8]) -> Vec<u8> {
    let (mut at, mut ids) = (8, Vec::new());
    while let Some(id) = bytes.get(at) {
        ids.push(*id);
        at += 1;
        let (mut length, mut shift) = (0, 0);
        loop {
            let byte = bytes[at];
            at += 1;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        at += length;
    }
    ids
}

/// A way to corrupt a cache file: its name and the manipulation.
type CacheTampering = (&'static str, fn(&std::path::Path));

#[tokio::test(flavor = "multi_thread")]
async fn initialization_is_bounded() {
    let host = TestHost::new(&[], "[limits]\nfuel = 100_000_000\nmemory = \"16MiB\"").await;
    for (module, instances, part) in [
        ("(module (func $f (loop br 0)) (start $f))", 1, "fuel"),
        (
            "(module (memory 1) (func $f (drop (memory.grow (i32.const 1000))) unreachable) (start $f))",
            1,
            "memory",
        ),
        ("(module (memory 200))", 2, "memory"),
        ("(module (table 40000 funcref))", 2, "table_elements"),
        ("(module)", 100, "instances"),
        ("(module (func $f call $f) (start $f))", 1, "stack"),
    ] {
        let bytes = with_instances(guest_artifacts::API_ECHO, module, instances);
        let start = Instant::now();
        let error = host.host.load_bytes(PluginId::new("x").unwrap(), bytes).await.unwrap_err().to_string();
        assert!(error.contains(part), "{module}: {error}");
        assert!(start.elapsed() < Duration::from_secs(20), "{module}: {:?}", start.elapsed());
        assert_eq!(value(&host.call("neighbour__echo", json!({})).await), "{}");
    }
    assert!(host.host.plugin("x").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_json_arguments_are_refused() {
    let host = TestHost::new(&[], "").await;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    for args in [
        "\u{feff}{}",
        r#"{"a":1e400}"#,
        r#"{"a":-1e400}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"a":{"b":1,"\u0062":2}}"#,
        r#"{"a":01}"#,
        r#"{"a":+1}"#,
        r#"{"a":.5}"#,
        "{\"a\":\"\n\"}",
        r#"{"a":Infinity}"#,
        "{} {}",
        "{}\0",
        "\0",
        r#"{"a":1,}"#,
        "/**/{}",
        &deep,
    ] {
        let delivered = host.call_in("neighbour__echo", args, TurnContext::default()).await;
        assert_eq!(refusal(&delivered).code.as_str(), "input_invalid", "{args:?}");
    }
    for args in [
        r#"{"a":-0}"#,
        r#"{"a":-0.0e-0}"#,
        r#"{"a":123456789012345678901234567890}"#,
        r#"{"__proto__":{"constructor":1},"":0}"#,
        r#"{"a":"\u0000\uffff\ud83d\ude42"}"#,
        " \n\t{} \r\n",
    ] {
        let delivered = host.call_in("neighbour__echo", args, TurnContext::default()).await;
        assert_eq!(value(&delivered), args, "the text reaches the guest unchanged");
    }
    assert_eq!(value(&host.call_in("neighbour__echo", " \u{a0}\n", TurnContext::default()).await), "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_nothing_has_are_refused_shortly() {
    let host = TestHost::new(&[], "").await;
    for name in [
        "",
        "__",
        "neighbour",
        "neighbour__",
        "neighbour__ECHO",
        "Neighbour__echo",
        " neighbour__echo",
        "neighbour__echo\0",
    ] {
        let delivered = host.call(name, json!({})).await;
        assert_eq!(refusal(&delivered).code.as_str(), "not_available", "{name:?}");
    }
    let delivered = host.call(&"é".repeat(1 << 20), json!({})).await;
    assert!(refusal(&delivered).message.chars().count() < 150);
    assert!(host.audit.take().iter().all(|record| record.tool.chars().count() <= 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_budget_is_too_small_or_too_large() {
    let host = TestHost::new(&[("trap", guest_artifacts::HOSTILE_TRAP)], "").await;
    let calls = [
        ("neighbour__long", r#"{"n": 5000}"#),
        ("neighbour__long", r#"{"n": 5000, "emoji": true}"#),
        ("neighbour__nothing_of_that_name", "{}"),
        ("neighbour__echo", "no JSON"),
        ("trap__trap", r#"{"how": "panic"}"#),
    ];
    for budget in [0, 1, 29, 35, 36, 100, 4999, usize::MAX] {
        for (tool, args) in calls {
            let turn = TurnContext { budget_chars: budget, ..TurnContext::default() };
            let delivered = host.call_in(tool, args, turn).await;
            let text = match &delivered.result {
                Ok(output) => output.value.clone(),
                Err(failure) => failure.to_string(),
            };
            assert!(text.chars().count() <= budget, "{tool} {budget}: {text}");
            assert!(budget < 5000 || delivered.shaping.cut_from_chars.is_none());
        }
    }
    // More calls than characters.
    let calls = (0..200).map(|n| ToolCall::new(n.to_string(), "neighbour__long", "{}")).collect();
    let turn = TurnContext { budget_chars: 100, ..TurnContext::default() };
    let results = host.host.call_all(&host.host.view(Filter::default()), calls, turn).await;
    assert_eq!(results.len(), 200);
    assert!(results.iter().enumerate().all(|(n, r)| *r.call_id == *n.to_string() && value(r).is_empty()));
    assert_eq!(
        host.host.call_all(&host.host.view(Filter::default()), vec![], TurnContext::default()).await.len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_work_at_their_edges() {
    for (text, expect) in [
        ("fuel = 18_446_744_073_709_551_615", "ok"),
        ("fuel = 9_223_372_036_854_775_808", "ok"),
        ("fuel = 1", "out_of_fuel"),
        ("memory = 0", "out_of_memory"),
        ("memory = \"1GiB\"", "ok"),
        ("instances = 0", "out_of_memory"),
        ("memories = 0", "out_of_memory"),
        ("table_elements = 0", "out_of_memory"),
        ("host_call_bytes = 0", "output_too_large"),
        ("host_call_bytes = 18_446_744_073_709_551_615", "ok"),
        ("args_bytes = 1", "input_invalid"),
        ("stdio_bytes = 0", "ok"),
        ("stdio_bytes = 18_446_744_073_709_551_615", "ok"),
        ("log_lines = 0\nprogress_events = 0", "ok"),
        ("result_chars = 0", "ok"),
        ("timeout = \"1ms\"", "deadline"),
    ] {
        // The limit applies to the tool alone, because metadata queries need limits that let them answer.
        let table = text.replace(" = ", "=").replace('\n', ",");
        let host = TestHost::new(
            &[("sleep", guest_artifacts::HOSTILE_SLEEP)],
            &format!("[plugins.neighbour.tools.echo]\nlimits = {{{table}}}\n[plugins.sleep.tools.sleep]\nlimits = {{{table}}}"),
        )
        .await;
        let delivered = if expect == "deadline" {
            host.call("sleep__sleep", json!({"ms": 5000})).await
        } else {
            host.call("neighbour__echo", json!({"a": 1})).await
        };
        assert_eq!(outcome(&delivered), expect, "{text}: {:?}", delivered.result);
        assert_eq!(host.host.available_call_permits(), 64, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_are_loaded_and_unloaded_during_calls() {
    let host = Arc::new(TestHost::new(&[], "").await);
    let stop = Instant::now() + Duration::from_secs(1);
    let id = || PluginId::new("p").unwrap();
    let changers: Vec<_> = (0..3)
        .map(|n| {
            let host = host.host.clone();
            tokio::spawn(async move {
                while Instant::now() < stop {
                    let path = [guest_artifacts::API_ECHO, guest_artifacts::HOSTILE_SLEEP][n % 2];
                    if n == 2 {
                        host.unload(&id());
                    } else {
                        host.load_file(id(), std::path::Path::new(path)).await.unwrap();
                    }
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
            })
        })
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    while Instant::now() < stop {
        let view = host.host.view(Filter::default());
        let calls = (0..8)
            .map(|n| {
                ToolCall::new(n.to_string(), if n % 2 == 0 { "p__echo" } else { "p__sleep" }, r#"{"ms":1}"#)
            })
            .collect();
        let results = host.host.call_all(&view, calls, TurnContext::default()).await;
        assert_eq!(results.len(), 8);
        for delivered in results {
            let outcome = outcome(&delivered);
            assert!(matches!(outcome, "ok" | "not_available"), "{:?}", delivered.result);
            seen.insert(outcome);
        }
    }
    for changer in changers {
        changer.await.unwrap();
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(host.host.available_call_permits(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_share_a_cache_and_a_corrupt_entry_is_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let make = || Host::builder(policy("", folder.path())).cache_dir(&cache).build().unwrap();
    let loads = (0..6).map(|_| {
        let host = make();
        tokio::spawn(async move {
            host.load_file(PluginId::new("e").unwrap(), std::path::Path::new(guest_artifacts::BENCH_ECHO))
                .await
                .unwrap();
            call(&host).await
        })
    });
    for load in loads.collect::<Vec<_>>() {
        assert_eq!(load.await.unwrap(), "ok");
    }
    let files = || fs::read_dir(&cache).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    assert_eq!(files().len(), 2, "one code, one description, nothing half: {:?}", files());
    let spoil: [CacheTampering; 5] = [
        ("cut", |file| fs::write(file, &fs::read(file).unwrap()[..100]).unwrap()),
        ("bit", |file| {
            let mut bytes = fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(file, bytes).unwrap();
        }),
        ("empty", |file| fs::write(file, "").unwrap()),
        ("folder", |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
        ("link", |file| {
            fs::remove_dir(file).ok();
            fs::remove_file(file).ok();
            std::os::unix::fs::symlink("/dev/zero", file).unwrap();
        }),
    ];
    for (name, spoil) in spoil {
        for extension in ["cwasm", "json"] {
            for file in files() {
                if file.extension().is_some_and(|e| e == extension) {
                    spoil(&file);
                }
            }
            let host = make();
            let id = PluginId::new("e").unwrap();
            host.load_file(id, std::path::Path::new(guest_artifacts::BENCH_ECHO)).await.unwrap();
            assert_eq!(call(&host).await, "ok", "{name} {extension}");
        }
    }
}

async fn call(host: &Host) -> &'static str {
    let view = host.view(Filter::default());
    let calls = vec![ToolCall::new("1", "e__echo", "{}")];
    outcome(&host.call_all(&view, calls, TurnContext::default()).await[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn special_files_of_a_folder_are_not_waited_for() {
    let policy = "[plugins.f.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n[plugins.f.limits]\ntimeout = \"5s\"";
    let host = TestHost::new(&[("f", guest_artifacts::CAP_FILES)], policy).await;
    let fifo = host.root().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(host.root().join("socket")).unwrap();
    let view = host.host.view(Filter::default());
    let calls = (0..64)
        .map(|n| {
            let tool = ["f__read", "f__write", "f__append"][n % 3];
            let path = ["fifo", "socket"][n / 3 % 2];
            ToolCall::new(n.to_string(), tool, json!({"path": path, "text": "x"}).to_string())
        })
        .collect();
    let start = Instant::now();
    let results = host.host.call_all(&view, calls, TurnContext::default()).await;
    assert!(results.iter().all(|r| integration_tests::structured(r)["error"] == "other"), "{:?}", results[0]);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(host.ask("f__remove", json!({"path": "fifo"})).await, json!({}));
    assert!(fs::read_dir(host.root()).unwrap().count() == 1, "nothing half is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_of_a_file_leave_one_complete_content() {
    let policy = "[plugins.f.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]";
    let host = TestHost::new(&[("f", guest_artifacts::CAP_FILES)], policy).await;
    fs::write(host.root().join("a.txt"), "").unwrap();
    let view = host.host.view(Filter::default());
    let calls = (0..100)
        .map(|n| {
            ToolCall::new(
                n.to_string(),
                "f__append",
                json!({"path": "a.txt", "text": format!("{n:03}\n")}).to_string(),
            )
        })
        .collect();
    let turn = TurnContext { session: toolbay::Session::with_name("s").into(), ..TurnContext::default() };
    let results = host.host.call_all(&view, calls, turn).await;
    let done = results.iter().filter(|r| integration_tests::structured(r).get("error").is_none()).count();
    let stale = results.iter().filter(|r| integration_tests::structured(r)["error"] == "stale").count();
    let text = fs::read_to_string(host.root().join("a.txt")).unwrap();
    assert_eq!(done + stale, 100);
    assert!(done >= 1 && text.lines().all(|line| line.len() == 3), "{text}");
    assert_eq!(fs::read_dir(host.root()).unwrap().count(), 1, "no temporary file is left");
    eprintln!("{done} written, {stale} stale, {} lines", text.lines().count());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_dropped_while_it_writes_leaves_no_part() {
    let policy = "[plugins.f.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]";
    let host = TestHost::new(&[("f", guest_artifacts::CAP_FILES)], policy).await;
    let view = host.host.view(Filter::default());
    let text = "x".repeat(2 << 20);
    for wait in [1, 5, 20, 50] {
        let calls = (0..16)
            .map(|n| {
                ToolCall::new(
                    n.to_string(),
                    "f__write",
                    json!({"path": format!("{n}.txt"), "text": text}).to_string(),
                )
            })
            .collect();
        let batch = host.host.call_all(&view, calls, TurnContext::default());
        drop(tokio::time::timeout(Duration::from_millis(wait), batch).await);
    }
    host.until_running(0).await;
    // Writes that threads had begun come to their end.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let half = || {
        let entries = fs::read_dir(host.root()).unwrap().map(Result::unwrap);
        let is_whole = |entry: &fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            // A file may go between the two looks.
            name.ends_with(".txt") && entry.metadata().is_ok_and(|data| data.len() == 2 << 20)
        };
        entries.filter(|entry| !is_whole(entry)).collect::<Vec<_>>()
    };
    soon("a file is left half written", || half().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_text_does_not_change_the_kind_of_fault() {
    let host = TestHost::new(&[("trap", guest_artifacts::HOSTILE_TRAP)], "").await;
    let delivered = host.call("trap__trap", json!({"how": "panic"})).await;
    assert_eq!(fault(&delivered).kind, FaultKind::Trap);
    assert!(!fault(&delivered).message.contains('\n'));
}
