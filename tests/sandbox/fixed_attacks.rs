//! Attacks that once succeeded. Each test covers a fixed bug.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use canary::processor_time;
use integration_tests::{SETTLED, TestHost, in_a_process, outcome, output, value};
use serde_json::{Value, json};
use toolbay::core::call::invoke::BoxFuture;
use toolbay::core::call::reduce::{Reduce, ReduceContext};
use toolbay::core::registry::{Bundle, ReducerEntry};
use toolbay::core::tool::content::{BlockBody, ContentBlock, ToolOutput, ToolResult};
use toolbay::core::tool::fault::Fault;
use toolbay::core::tool::schema::Schema;
use toolbay::{Filter, HostBuilder, PluginId, Policy, ToolCall, TurnContext};

use super::attacks::sections;

/// Resets the peak that [`peak_mib`] reports, and returns the resident size in MiB.
fn reset_peak() -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    peak_mib()
}

/// The largest resident size of this process so far, in MiB.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// A component with `instances` more instances of a core module, appended to its binary: sections may stand in any
/// order and nothing refers to them.
fn with_instances(path: &str, module: &str, instances: u8) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    let module = wat::parse_str(module).unwrap();
    let modules = sections(&bytes).into_iter().filter(|id| *id == 1).count();
    assert!(modules < 128 && instances < 128, "{modules}");
    let section = |bytes: &mut Vec<u8>, id: u8, content: &[u8]| {
        bytes.push(id);
        let mut length = content.len();
        loop {
            let low = (length & 0x7f) as u8;
            length >>= 7;
            bytes.push(if length == 0 { low } else { low | 0x80 });
            if length == 0 {
                break;
            }
        }
        bytes.extend_from_slice(content);
    };
    section(&mut bytes, 1, &module);
    let mut list = vec![instances];
    for _ in 0..instances {
        list.extend_from_slice(&[0, modules as u8, 0]);
    }
    section(&mut bytes, 2, &list);
    bytes
}

/// Validation walked a schema's chain of references recursively: 2 MiB of stack overflowed before the size check, and
/// the process aborted while it loaded the plugin. The test runs in its own process.
#[test]
fn a_chain_of_references_does_not_overflow_the_stack() {
    if in_a_process(
        "sandbox::fixed_attacks::a_chain_of_references_does_not_overflow_the_stack",
        "ulimit -c 0",
    ) {
        return;
    }
    let block = |n: usize| {
        let (open, close) = (r#"{"not":"#.repeat(55), "}".repeat(55));
        format!(r##""a{n}":{open}{{"$ref":"#/$defs/a{}"}}{close}"##, n + 1)
    };
    let defs: Vec<String> = (0..500).map(block).collect();
    let text =
        format!(r##"{{"type":"object","$ref":"#/$defs/a0","$defs":{{{},"a500":{{}}}}}}"##, defs.join(","));
    assert!(text.len() < 256 << 10);
    // The stack size of a tokio worker.
    let load = std::thread::Builder::new().stack_size(2 << 20).spawn(move || Schema::input(&text).is_err());
    assert!(load.unwrap().join().unwrap());
}

/// Collecting errors took every path through a recursive schema: time and memory doubled with each level.
#[test]
fn a_refusal_is_quick_whatever_the_schema() {
    let schema = Schema::input(
        r##"{"type":"object","$ref":"#/$defs/n","$defs":{"n":{"anyOf":[
            {"properties":{"c":{"$ref":"#/$defs/n"}},"required":["x"]},
            {"properties":{"c":{"$ref":"#/$defs/n"}},"required":["y"]}]}}}"##,
    )
    .unwrap();
    // 17 levels, so that the test ends: each doubles the time without a bound. The parser allows 127.
    let value = (0..17).fold(json!({}), |inner, _| json!({ "c": inner }));
    let start = processor_time();
    assert!(schema.check(&value).is_err());
    let used = processor_time() - start;
    assert!(used < Duration::from_secs(2), "{used:?}");
}

/// All errors were collected before three were shown: 4 MiB of arguments took gigabytes.
#[test]
fn a_refusal_of_many_items_takes_little_memory() {
    let schema = Schema::input(
        r#"{"type":"object","properties":{"p":{"items":{"anyOf":[{"type":"string"},{"type":"null"}]}}}}"#,
    )
    .unwrap();
    let args = toolbay::core::tool::json::parse(&format!(r#"{{"p":[{}1]}}"#, "1,".repeat(249_000))).unwrap();
    let before = reset_peak();
    assert!(schema.check(&args).is_err());
    let more = peak_mib() - before;
    assert!(more < 100, "{more} MiB for half a mebibyte of arguments");
}

/// A pattern ran in time proportional to its size times the size of the text, on an async thread and beyond every limit.
#[test]
fn a_pattern_on_a_long_text_is_quick() {
    let schema =
        Schema::input(r#"{"type":"object","properties":{"p":{"pattern":"^(?:[ab]*a[ab]{900}|x)*y$"}}}"#)
            .unwrap();
    let mut x = 1u32;
    let mut coin = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if x >> 31 == 0 { 'a' } else { 'b' }
    };
    let text: String = (0..100_000).map(|_| coin()).collect();
    let start = processor_time();
    assert!(schema.check(&json!({ "p": text })).is_err());
    let used = processor_time() - start;
    assert!(used < Duration::from_secs(2), "{used:?} for a tenth of a megabyte");
}

/// A key that serde_json reserves changed a schema when it was read from the cache, unchecked.
#[test]
fn a_schema_is_the_same_after_the_cache() {
    let text = r##"{"type":"object","properties":{"a":{"$ref":"#/x"}},
        "x":{"$serde_json::private::RawValue":"{\"type\":\"string\",\"pattern\":\"^a$\"}"}}"##;
    let Ok(fresh) = Schema::input(text) else { return };
    let stored = serde_json::to_vec(fresh.value()).unwrap();
    let read: Value = serde_json::from_slice(&stored).unwrap();
    let args = json!({"a": 5});
    assert_eq!(fresh.check(&args).is_ok(), Schema::from_trusted(read).check(&args).is_ok());
}

#[test]
fn a_relative_base_is_not_the_root() {
    for (base, workspace) in [(".", None), ("sub", None), ("/base", Some(".")), ("/base", Some("work"))] {
        let policy = Policy::parse("version = 1", Path::new(base), workspace.map(Path::new));
        let Ok(policy) = policy else { continue };
        let found = policy.workspace().to_path_buf();
        assert!(found != Path::new("/") && found.starts_with("/base"), "{base} {workspace:?}: {found:?}");
    }
}

/// `Instant + Duration` panicked.
#[tokio::test(flavor = "multi_thread")]
async fn a_huge_timeout_is_refused_or_works() {
    let text = "version = 1\n[limits]\ntimeout = \"18446744073709551615s\"";
    if Policy::parse(text, Path::new("/base"), None).is_err() {
        return;
    }
    let host = TestHost::new(&[], "[limits]\ntimeout = \"18446744073709551615s\"").await;
    let delivered = host.call("neighbour__echo", json!({})).await;
    assert_eq!(outcome(&delivered), "ok", "{delivered:?}");
}

/// The JSON of every result was parsed into a tree before any check: 16 MiB became more than a gigabyte.
#[tokio::test(flavor = "multi_thread")]
async fn a_structured_answer_takes_little_memory() {
    let host = TestHost::new(&[("bad", guest_artifacts::HOSTILE_OUTPUT)], "").await;
    let text = format!("[{}0]", "[0],".repeat(900_000));
    let text = json!({ "json": text }).to_string();
    let before = reset_peak();
    let delivered = host.call_in("bad__json", &text, TurnContext::default()).await;
    let more = peak_mib() - before;
    assert!(more < 150, "{more} MiB for 3.6 MB of `structured`: {}", outcome(&delivered));
}

/// A reducer that gives every result another structured part, and a long block.
#[derive(Debug)]
struct ForgingReducer;

impl Reduce for ForgingReducer {
    fn reduce<'a>(
        &'a self,
        _: &'a ToolResult,
        _: ReduceContext<'a>,
    ) -> BoxFuture<'a, Result<Option<ToolResult>, Fault>> {
        Box::pin(async {
            let structured = serde_json::value::RawValue::from_string(r#"{"n":"forged"}"#.to_owned()).ok();
            let block = ContentBlock { body: BlockBody::Text("x".repeat(1 << 20)), annotations: None };
            Ok(Some(Ok(ToolOutput { structured, content: vec![block], ..ToolOutput::text("") })))
        })
    }
}

/// `pipeline.rs` promises for a reducer: "never gets longer" and "keeps its structured part".
#[tokio::test(flavor = "multi_thread")]
async fn a_reducer_changes_neither_the_structured_part_nor_adds_text() {
    let host = TestHost::new(&[("bad", guest_artifacts::HOSTILE_OUTPUT)], "").await;
    let reducer = ReducerEntry {
        target: "bad__schema".to_owned(),
        declared: "schema".to_owned(),
        owner: None,
        reducer: std::sync::Arc::new(ForgingReducer),
    };
    host.host.registry().register(Bundle { tools: vec![], reducers: vec![reducer] }).unwrap();
    let delivered = host.call("bad__schema", json!({"json": "{\"n\":1}"})).await;
    assert_eq!(integration_tests::structured(&delivered), json!({"n": 1}), "past the output schema");
    assert!(output(&delivered).content.is_empty(), "and longer by a mebibyte, which no budget cuts");
}

/// The pool had two memories, four tables and twenty instances for each permit, while a call may have 8, 32 and 64.
#[tokio::test(flavor = "multi_thread")]
async fn calls_with_many_memories_do_not_starve_others() {
    let host = TestHost::new(&[], "[host]\nparallel_calls = 8").await;
    let greedy = with_instances(guest_artifacts::HOSTILE_SLEEP, "(module (memory 1))", 7);
    host.host.load_bytes(PluginId::new("greedy").unwrap(), greedy).await.unwrap();
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let sleepers = {
        let (host, view) = (host.host.clone(), host.host.view(Filter::default()));
        let calls = (0..4).map(|n| ToolCall::new(n.to_string(), "greedy__sleep", "{}")).collect();
        tokio::spawn(async move { host.call_all(&view, calls, turn).await })
    };
    host.until_running(4).await;
    tokio::time::sleep(SETTLED).await;
    let neighbour = host.call("neighbour__echo", json!({})).await;
    cancel.cancel();
    let greedy: Vec<_> =
        sleepers.await.unwrap().iter().map(|d| format!("{:?}", d.result.as_ref().err())).collect();
    assert_eq!(
        outcome(&neighbour),
        "ok",
        "four of eight places are free: {:?}; {greedy:?}",
        neighbour.result
    );
}

/// The same with one permit: calls within the limits never ran, and the error said to try again.
#[tokio::test(flavor = "multi_thread")]
async fn everything_within_the_limits_runs_with_one_parallel_call() {
    let host = TestHost::empty_with("[host]\nparallel_calls = 1", HostBuilder::no_cache);
    let three = with_instances(guest_artifacts::API_ECHO, "(module (memory 1))", 3);
    let loaded = host.host.load_bytes(PluginId::new("three").unwrap(), three).await;
    assert!(loaded.is_ok(), "{}", loaded.unwrap_err());
    assert_eq!(outcome(&host.call("three__echo", json!({})).await), "ok");
}

/// A metadata query took an instance without a permit, so it failed while all permits were taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_loads_while_all_places_are_taken() {
    let host = TestHost::empty_with("[host]\nparallel_calls = 1", HostBuilder::no_cache);
    host.load("sleep", guest_artifacts::HOSTILE_SLEEP).await;
    let view = host.host.view(Filter::default());
    let busy = {
        let host = host.host.clone();
        let calls = vec![ToolCall::new("1", "sleep__sleep", r#"{"ms": 1500}"#)];
        tokio::spawn(async move { host.call_all(&view, calls, TurnContext::default()).await })
    };
    host.until_running(1).await;
    let bytes = fs::read(guest_artifacts::API_ECHO).unwrap();
    let loaded = host.host.load_bytes(PluginId::new("late").unwrap(), bytes).await;
    assert_eq!(outcome(&busy.await.unwrap()[0]), "ok");
    assert!(loaded.is_ok(), "{}", loaded.unwrap_err());
}

/// A call that was cancelled before it started ran, and its write happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_cancelled_before_it_began_does_nothing() {
    let policy = "[plugins.f.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]";
    let host = TestHost::new(&[("f", guest_artifacts::CAP_FILES)], policy).await;
    let turn = TurnContext::default();
    turn.cancel.cancel();
    let delivered = host.call_in("f__write", r#"{"path": "new.txt", "text": "written"}"#, turn.clone()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!host.root().join("new.txt").exists(), "`{}`, and the file was written", outcome(&delivered));
    assert_eq!(outcome(&delivered), "cancelled");
    let delivered = host.call_in("neighbour__echo", "{}", turn).await;
    assert_eq!(outcome(&delivered), "cancelled", "a pure call ran to its end");
}

/// The reducer did not notice the cancellation.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_ends_in_its_reducer_too() {
    let host =
        TestHost::new(&[("r", guest_artifacts::REDUCE_BAD)], "[plugins.r.limits]\nfuel = 1_000_000_000_000")
            .await;
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let cancelled = tokio::spawn(async move {
        // Long enough for the call, and a part of what the reducer sleeps.
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel();
        Instant::now()
    });
    drop(host.call_in("r__produce", r#"{"reduce": "sleep"}"#, turn).await);
    let took = cancelled.await.unwrap().elapsed();
    // By itself, a reduction ends after five seconds.
    assert!(took < Duration::from_secs(3), "it went on for {took:?}");
}

/// 1024 handles were 1024 files of the host, the default limit of a process.
#[tokio::test(flavor = "multi_thread")]
async fn one_call_cannot_use_all_file_descriptors() {
    if in_a_process("sandbox::fixed_attacks::one_call_cannot_use_all_file_descriptors", "ulimit -n 1024") {
        return;
    }
    let policy =
        "[plugins.io.grant]\nfs_read = [\"$workspace\"]\n[plugins.f.grant]\nfs_read = [\"$workspace\"]";
    let host =
        TestHost::new(&[("io", guest_artifacts::HOSTILE_IO), ("f", guest_artifacts::CAP_FILES)], policy)
            .await;
    fs::write(host.root().join("a.txt"), "x").unwrap();
    let view = host.host.view(Filter::default());
    let holder = {
        let host = host.host.clone();
        let args = json!({"path": "a.txt", "ms": 2000, "n": 1010}).to_string();
        tokio::spawn(async move {
            host.call_all(&view, vec![ToolCall::new("1", "io__open_many", args)], TurnContext::default())
                .await
        })
    };
    // It holds what it can get, or has ended because it wanted too much.
    for _ in 0..50 {
        if holder.is_finished() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let neighbour = host.ask("f__read", json!({"path": "a.txt"})).await;
    let held = holder.await.unwrap();
    assert_eq!(neighbour["text"], "x", "{neighbour}; {:?}", held[0].result);
}

/// 40 KB of component, and the time and memory to compile them.
#[tokio::test(flavor = "multi_thread")]
async fn compiling_is_bounded() {
    if in_a_process("sandbox::fixed_attacks::compiling_is_bounded", "ulimit -v 40000000") {
        return;
    }
    let (locals, blocks) = (3000, 3000);
    let mut text = format!("(module (func (param i32) (local {}) (loop ", "i32 ".repeat(locals));
    for n in 0..blocks {
        text += &format!(
            "(if (local.get 0) (then (local.set {} (local.get {})))) (br_if 0 (local.get {}))",
            1 + n % locals,
            1 + (n * 7) % locals,
            1 + (n * 13) % locals
        );
    }
    text += ")))";
    let bytes = with_instances(guest_artifacts::API_ECHO, &text, 0);
    let host = TestHost::empty_with("", HostBuilder::no_cache);
    let (before, start) = (reset_peak(), Instant::now());
    let loaded = tokio::time::timeout(
        Duration::from_secs(100),
        host.host.load_bytes(PluginId::new("slow").unwrap(), bytes.clone()),
    )
    .await;
    let (took, more) = (start.elapsed(), peak_mib() - before);
    assert!(
        took < Duration::from_secs(20) && more < 500,
        "{took:?}, {more} MiB for {} bytes: {:?}",
        bytes.len(),
        loaded.map(|l| l.is_ok())
    );
}

#[test]
fn a_refusal_names_its_place_shortly_and_shows_no_control_character() {
    let schema = Schema::input(r#"{"type":"object","additionalProperties":{"type":"string"}}"#).unwrap();
    let mismatch = schema.check(&json!({ "k".repeat(1 << 20): 1 })).unwrap_err();
    assert!(mismatch.pointer.len() < 2000 && mismatch.message.len() < 2000, "{}", mismatch.pointer.len());
    for text in [
        r#"{"type":"object","$ref":"x\u001b[31m\nFORGED"}"#,
        r#"{"type":"object","properties":{"a":{"type":"\u202e\u009b"}}}"#,
    ] {
        let error = Schema::input(text).unwrap_err().to_string();
        assert!(!error.contains(|c: char| c.is_control() || c == '\u{202e}'), "{error:?}");
    }
}

/// A guest with write access to the workspace left a link there, which became a granted folder at the next start.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_does_not_widen_a_grant_by_a_link() {
    let policy = "[plugins.io.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n[plugins.f.grant]\nfs_read = [\"$workspace/notes\"]";
    let host = TestHost::empty(policy);
    host.load("io", guest_artifacts::HOSTILE_IO).await;
    let old = format!("..{}", "/..".repeat(host.root().components().count()) + "/etc");
    host.ask("io__dotdot", json!({"path": "a", "old": old, "link": "notes"})).await;
    // As after a start.
    host.load("f", guest_artifacts::CAP_FILES).await;
    let said = host.call("f__read", json!({"path": "notes/passwd"})).await;
    assert!(!format!("{said:?}").contains("root:"), "{old}: {said:.300?}");
}

/// A folder of the policy was opened by its path, so a link in the workspace led outside.
#[tokio::test(flavor = "multi_thread")]
async fn a_granted_folder_of_the_workspace_is_in_the_workspace() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.txt"), "secret").unwrap();
    let host = TestHost::empty("[plugins.f.grant]\nfs_read = [\"$workspace/notes\"]");
    symlink(outside.path(), host.root().join("notes")).unwrap();
    host.load("f", guest_artifacts::CAP_FILES).await;
    let said = host.call("f__read", json!({"path": "notes/secret.txt"})).await;
    assert!(!format!("{said:?}").contains("\"secret\\\""), "{said:?}");
    assert!(said.result.is_err() || output(&said).value.contains("error"), "{}", value(&said));
}

/// A recreated folder was not opened again, not even when the plugin was reloaded.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_opens_the_folders_again() {
    let host = TestHost::empty("[plugins.f.grant]\nfs_read = [\"$workspace/out\"]");
    let out = host.root().join("out");
    fs::create_dir(&out).unwrap();
    host.load("f", guest_artifacts::CAP_FILES).await;
    fs::remove_dir(&out).unwrap();
    fs::create_dir(&out).unwrap();
    fs::write(out.join("a.txt"), "new").unwrap();
    host.load("f", guest_artifacts::CAP_FILES).await;
    assert_eq!(host.ask("f__read", json!({"path": "out/a.txt"})).await["text"], "new");
}

/// A function that returns a list of flags: the host stores each name as a separate text.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_result_of_flags_takes_little_memory() {
    let name = "sandbox::fixed_attacks::a_foreign_result_of_flags_takes_little_memory";
    if in_a_process(name, "ulimit -c 0") {
        return;
    }
    let names: String = ('a'..='z').map(|c| format!("\"{c}\" ")).collect();
    let more: String = ('a'..='f').map(|c| format!("\"z{c}\" ")).collect();
    let component = format!(
        r#"(component
            (type $flags (flags {names}{more}))
            (export $all "all" (type $flags))
            (core module $m
                (memory (export "memory") 32)
                (func (export "lots") (result i32)
                    (memory.fill (i32.const 1024) (i32.const 255) (i32.const 1000000))
                    (i32.store (i32.const 0) (i32.const 1024))
                    (i32.store (i32.const 4) (i32.const 200000))
                    (i32.const 0)))
            (core instance $i (instantiate $m))
            (func $lots (result (list $all)) (canon lift (core func $i "lots") (memory (core memory $i "memory"))))
            (export "lots" (func $lots)))"#
    );
    let host = TestHost::empty("");
    let bytes = wat::parse_str(component).unwrap();
    host.host.load_bytes(PluginId::new("f").unwrap(), bytes).await.unwrap();
    let before = reset_peak();
    let said = host.call("f__lots", json!({})).await;
    assert_eq!(outcome(&said), "output_too_large", "{said:?}");
    let peak = peak_mib() - before;
    assert!(peak < 64, "{peak} MiB");
}
