//! The audit: what it records about calls, failures and programs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use integration_tests::{TestHost, cache_dir, policy};
use serde_json::{Value, json};
use toolbay::core::audit::refusals::LISTED_PER_CLIENT;
use toolbay::core::audit::{AuditEvent, AuditSink as _, GrantEvent};
use toolbay::policy::hidden_chars;
use toolbay::{AuditReader, FileAudit, Filter, Host, PluginId, Retention, Session, ToolCall, TurnContext};

const POLICY: &str =
    "[plugins.c.grant]\nkv = [\"tool\"]\n[plugins.c.limits]\nfuel = 40_000_000\n[profile.p]\n";

async fn host() -> TestHost {
    let host = TestHost::new(&[], POLICY).await;
    host.load("c", guest_artifacts::CAP_CONSENT).await;
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_has_caller_tool_arguments_and_outcome() {
    let host = host().await;
    let mut turn = TurnContext { session: Session::with_name("session").into(), ..TurnContext::default() };
    turn.identity.agent_id = Some("agent".to_owned());
    turn.identity.platform = Some("x".repeat(1000));
    let args = r#"{"what": "canary", "times": 2}"#;
    let profile = host.host.policy().profile("p").cloned();
    let view = host.host.view(Filter::for_profile(profile));
    host.host.call_all(&view, vec![ToolCall::new("id", "c__ask", args)], turn).await;
    let record = host.audit.take().pop().unwrap();
    assert_eq!((&*record.call_id, &*record.tool, record.outcome), ("id", "c__ask", "ok"));
    assert_eq!((record.session_id.as_deref(), record.agent_id.as_deref()), (Some("session"), Some("agent")));
    assert_eq!((record.platform.unwrap().len(), record.profile.as_deref()), (100, Some("p")));
    assert_eq!(record.source.unwrap().plugin().unwrap().as_str(), "c");
    let refused: Vec<_> = record.uses.iter().map(|one| (one.key, one.what.as_str(), one.allowed)).collect();
    assert_eq!(refused, [("secrets", "0canary", false), ("secrets", "1canary", false)]);
    assert!(record.usage.fuel > Some(0) && record.usage.args_bytes > 0 && record.duration_us > 0);
    // The digest covers the parsed arguments, so formatting does not change it.
    let digests =
        ["{\"a\":1,\"b\":[true]}", " {\"b\" : [true],\n\"a\":1.0}", "{\"a\":2,\"b\":[true]}", "", "{}", "{"];
    let mut found = Vec::new();
    for args in digests {
        host.call_in("neighbour__echo", args, TurnContext::default()).await;
        found.push(host.audit.take().pop().unwrap().args_sha256);
    }
    assert!(found[0].is_some() && found[0] == found[1] && found[0] != found[2], "{found:?}");
    assert!(found[3] == found[4] && found[5].is_none(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_text_cannot_forge_a_line_or_fill_the_disk() {
    let host = host().await;
    let what = "\n{\"kind\":\"call\"}\u{1b}[31m\u{2028}\u{202e}".repeat(40);
    host.call("c__ask", json!({"what": what, "times": 200})).await;
    let record = host.audit.take().pop().unwrap();
    assert_eq!((record.uses.len(), record.uses_not_kept), (64, 136), "each once, and the rest counted");
    let line = AuditEvent::Call(&record).to_json("t");
    assert!(line.len() <= 64 << 10 && line.matches('\n').count() == 1, "{} bytes", line.len());
    assert!(!line.trim_end().contains(hidden_chars::is_hidden));
    let name = "\u{202e}\n".repeat(500);
    host.call(&name, json!({})).await;
    let record = host.audit.take().pop().unwrap();
    assert_eq!((record.tool.chars().count(), record.source.is_none()), (100, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_names_the_limit_and_an_abandoned_call_is_recorded() {
    let host = TestHost::new(
        &[("s", guest_artifacts::HOSTILE_SLEEP), ("l", guest_artifacts::HOSTILE_SPIN)],
        "[plugins.l.limits]\nfuel = 1_000_000",
    )
    .await;
    let spins = host.host.view(Filter::default());
    let spin =
        spins.definitions().find(|e| e.def.name.as_str().starts_with("l__")).unwrap().def.name.to_string();
    host.call(&spin, json!({})).await;
    let record = host.audit.take().pop().unwrap();
    assert_eq!((record.outcome, record.limit.unwrap().name), ("out_of_fuel", "fuel"));
    let sleep =
        spins.definitions().find(|e| e.def.name.as_str().starts_with("s__")).unwrap().def.name.to_string();
    let calls = (0..3).map(|n| ToolCall::new(n.to_string(), sleep.clone(), "{}")).collect();
    let batch = host.host.call_all(&spins, calls, TurnContext::default());
    tokio::select! {
        results = batch => panic!("{results:?}"),
        () = host.until_running(3) => {}
    }
    host.until_running(0).await;
    let mut records = Vec::new();
    for _ in 0..1000 {
        records.extend(host.audit.take());
        if records.len() == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let outcomes: Vec<_> = records.iter().map(|r| r.outcome).collect();
    assert_eq!(outcomes, ["cancelled"; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grants_of_a_plugin_are_recorded_at_load() {
    let host = host().await;
    let records = host.audit.take_decisions();
    assert_eq!(records.len(), 1, "the neighbour asks for nothing: {records:?}");
    let record = &records[0];
    assert_eq!((record.event, record.plugin.as_str()), (GrantEvent::Loaded, "c"));
    assert_eq!(record.digest.as_deref(), Some(&*host.host.plugin("c").unwrap().digest));
    assert_eq!(json!(record.granted.tools), json!({"keep": {"kv": ["tool"]}}));
    assert_eq!(
        json!(record.refused),
        json!({"ask": ["clock "], "keep_anywhere": ["fs-read **", "kv from-profile"], "read": ["fs-read **"]})
    );
}

const KILL: &str = "TOOLBAY_TEST_AUDIT";
const SMALL: Retention = Retention { bytes: 1 << 40, file_bytes: 64 << 10, age: None };

/// All lines of an audit, oldest first.
fn lines(path: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut take = |line: &str| {
        lines.push(line.to_owned());
        Ok(())
    };
    AuditReader::new(path).read(&mut take).unwrap();
    lines
}

fn records(path: &Path) -> Vec<Value> {
    lines(path).iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Makes calls until the process is killed. It prints the id of each call once it has the result.
async fn call_for_ever(dir: &Path, round: &str) {
    let audit = Arc::new(FileAudit::with_retention(dir.join("audit.jsonl"), SMALL).unwrap());
    let builder = Host::builder(policy("", dir)).cache_dir(cache_dir());
    let host = builder.audit(audit as _).build().unwrap();
    let echo = Path::new(guest_artifacts::API_ECHO);
    host.load_file(PluginId::new("e").unwrap(), echo).await.unwrap();
    let callers = (0..4).map(|caller| {
        let (host, round) = (host.clone(), round.to_owned());
        tokio::spawn(async move {
            for n in 0.. {
                let id = format!("{round}-{caller}-{n}");
                let view = host.view(Filter::default());
                let calls = vec![ToolCall::new(&*id, "e__echo", r#"{"a":1}"#)];
                let results = host.call_all(&view, calls, TurnContext::default()).await;
                assert!(results[0].result.is_ok());
                std::io::stdout().lock().write_all(format!("id {id}\n").as_bytes()).unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

/// The ids of the calls that returned a result before the child was killed.
fn killed(dir: &Path, round: usize) -> Vec<String> {
    let me = std::env::current_exe().unwrap();
    let mut child = Command::new(me)
        .args(["--exact", "calls::audit::every_returned_result_has_a_record_after_kill_9", "--nocapture"])
        .env(KILL, format!("{round}:{}", dir.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.by_ref().find(|line| line.starts_with("id ")).expect("the child makes calls");
    let reader = std::thread::spawn(move || lines.collect::<Vec<_>>());
    // Each round kills the child at another moment, over one or several rotations.
    std::thread::sleep(Duration::from_micros(1 + (round as u64 * 7919) % 120_000));
    child.kill().unwrap();
    child.wait().unwrap();
    let mut said = reader.join().unwrap();
    said.push(first);
    said.iter().filter_map(|line| line.strip_prefix("id ")).map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_returned_result_has_a_record_after_kill_9() {
    if let Ok(task) = std::env::var(KILL) {
        let (round, dir) = task.split_once(':').unwrap();
        call_for_ever(Path::new(dir), round).await;
        return;
    }
    let rounds = std::env::var("TOOLBAY_KILL_ROUNDS").map_or(5, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let mut seen = BTreeSet::new();
    for round in 0..rounds {
        let ids = killed(dir.path(), round);
        assert!(!ids.is_empty());
        seen.extend(ids);
        // The next process that opens the audit finds whole lines.
        drop(FileAudit::with_retention(&path, SMALL).unwrap());
        // The file is empty if the kill came right after a rotation.
        let last = std::fs::read(&path).unwrap();
        assert!(last.is_empty() || last.ends_with(b"\n"), "round {round}");
    }
    let files = FileAudit::files(&path);
    let (mut recorded, mut broken) = (BTreeSet::new(), 0);
    for line in lines(&path) {
        match serde_json::from_str::<Value>(&line) {
            Ok(record) => drop(recorded.insert(record["call_id"].as_str().unwrap_or_default().to_owned())),
            Err(_) => broken += 1,
        }
    }
    let missing: Vec<_> = seen.difference(&recorded).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // A line that the kill cut in two belongs to a call that returned no result.
    assert!(broken <= rounds, "{broken}");
    println!(
        "{rounds} kills: {} results seen, all recorded; {} records, {broken} cut, {} files",
        seen.len(),
        recorded.len(),
        files.len()
    );
}

const NO_ROOM: &str = "TOOLBAY_TEST_AUDIT_NO_ROOM";
const CALLS: usize = 100;

/// Makes calls, then prints how many ran and how many records were lost.
async fn call_without_room(dir: &Path, text: &str) {
    let audit = Arc::new(FileAudit::open(dir.join("audit.jsonl")).unwrap());
    let builder = Host::builder(policy(text, dir)).cache_dir(cache_dir());
    let host = builder.audit(Arc::clone(&audit) as _).build().unwrap();
    host.load_file(PluginId::new("e").unwrap(), Path::new(guest_artifacts::API_ECHO)).await.unwrap();
    let mut ran = 0;
    for n in 0..CALLS {
        let view = host.view(Filter::default());
        let calls = vec![ToolCall::new(n.to_string(), "e__echo", r#"{"a":1}"#)];
        match &host.call_all(&view, calls, TurnContext::default()).await[0].result {
            Ok(_) => ran += 1,
            Err(failure) => assert!(failure.to_string().contains("cannot be recorded"), "{failure}"),
        }
    }
    let said = format!("\nran {ran}\nlost {}\n", audit.records_lost());
    std::io::stdout().lock().write_all(said.as_bytes()).unwrap();
    assert!(audit.health().is_some_and(|health| health.problem.is_some()));
}

/// Runs that test in a process whose files are limited to 8 KiB. Writes beyond fail, as on a full disk.
fn without_room(dir: &Path, text: &str) -> (usize, usize) {
    let child = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; ulimit -f 16; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("calls::audit::calls_continue_on_a_full_disk_and_lost_records_are_counted")
        .env(NO_ROOM, format!("{}\n{text}", dir.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said} {}", String::from_utf8_lossy(&child.stderr));
    let number = |what: &str| said.lines().find_map(|line| line.strip_prefix(what)).unwrap().parse().unwrap();
    (number("ran "), number("lost "))
}

/// A file that may not grow accepts a part of a line, as on a full disk. Calls continue. Each record is in the file
/// or counted, also in processes that start without free space. A process with free space reports the loss.
#[tokio::test(flavor = "multi_thread")]
async fn calls_continue_on_a_full_disk_and_lost_records_are_counted() {
    if let Ok(task) = std::env::var(NO_ROOM) {
        let (dir, text) = task.split_once('\n').unwrap();
        return call_without_room(Path::new(dir), text).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let (ran, lost) = without_room(dir.path(), "");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!((ran, text.len()), (CALLS, 8 << 10), "as much as there is room for");
    let whole = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
    assert!(lost > 0 && whole + lost == CALLS, "{whole} + {lost}");
    // Another process starts and runs calls.
    assert_eq!(without_room(dir.path(), ""), (CALLS, CALLS));
    // With a required audit, the process starts and refuses calls. It loses what it only counted when it ends.
    assert_eq!(without_room(dir.path(), "[audit]\nrequired = true"), (0, LISTED_PER_CLIENT as usize));
    // With free space, the first record is the number of lost records. This needs no call.
    drop(FileAudit::open(&path).unwrap());
    let last = records(&path).pop().unwrap();
    assert_eq!((&last["kind"], &last["lost"]), (&json!("gap"), &json!(lost + 2 * CALLS)));
    drop(FileAudit::open(&path).unwrap());
    assert_eq!(records(&path).len(), whole + 1, "told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_calls_push_out_no_call_that_ran() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let small = Retention { bytes: 1 << 20, file_bytes: 16 << 10, age: None };
    let audit = Arc::new(FileAudit::with_retention(&path, small).unwrap());
    let host = Host::builder(policy("", dir.path())).cache_dir(cache_dir()).audit(audit).build().unwrap();
    host.load_file(PluginId::new("e").unwrap(), Path::new(guest_artifacts::API_ECHO)).await.unwrap();
    let view = host.view(Filter::default());
    for n in 0..100 {
        let call = |id: String, tool: String, args: &str| ToolCall::new(id, tool, args);
        let refused = (0..50).map(|m| match m % 3 {
            0 => call(format!("no-{n}-{m}"), format!("tool{n}x{m}"), "{}"),
            1 => call(format!("no-{n}-{m}"), "e__echo".to_owned(), "[]"),
            _ => call(format!("no-{n}-{m}"), "e__echo".to_owned(), "{"),
        });
        // As many clients as rounds.
        let turn = TurnContext {
            session: Session::with_name(&format!("session {n}")).into(),
            ..TurnContext::default()
        };
        host.call_all(&view, refused.collect(), turn.clone()).await;
        let calls = vec![call(format!("yes-{n}"), "e__echo".to_owned(), r#"{"a":1}"#)];
        assert!(host.call_all(&view, calls, turn).await[0].result.is_ok());
    }
    drop((view, host));
    let records = records(&path);
    let of = |kind: &str| records.iter().filter(|r| r["kind"] == kind).collect::<Vec<_>>();
    let ran: Vec<_> = of("call").into_iter().filter(|r| r["began"] == json!(true)).collect();
    let ids: BTreeSet<_> = ran.iter().map(|record| record["call_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, (0..100).map(|n| format!("yes-{n}")).collect::<BTreeSet<_>>());
    let counted: u64 = of("refused").iter().map(|record| record["count"].as_u64().unwrap()).sum();
    let listed = of("call").len() - ran.len();
    assert!(counted + listed as u64 <= 5_000 && counted > 3_500, "{counted} counted, {listed} listed");
    let bytes: u64 = FileAudit::files(&path).iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
    assert!(bytes <= 1 << 20, "{bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_can_have_effects_has_a_line_before_it_runs() {
    let count = json!({"times": 1});
    for (audit, of_pure, of_effects) in [
        ("", 0, 1),
        ("[audit]\nstart_lines = \"all\"", 1, 1),
        ("[audit]\nstart_lines = \"never\"", 0, 0),
        ("[audit]\nrequired = true", 1, 1),
    ] {
        let text = format!("{audit}\n[plugins.k.grant]\nkv = [\"plugin\"]\n");
        let host = TestHost::new(&[("k", guest_artifacts::CAP_KV)], &text).await;
        host.call("neighbour__echo", json!({})).await;
        assert_eq!(host.audit.take_starts().len(), of_pure, "{audit}");
        drop(host.audit.take());
        assert!(host.call("k__count", count.clone()).await.result.is_ok());
        let (starts, record) = (host.audit.take_starts(), host.audit.take().pop().unwrap());
        assert_eq!((starts.len(), record.began), (of_effects, true), "{audit}");
        assert_eq!(starts.first().map(|start| start.start_id), record.start_id);
        if let Some(start) = starts.first() {
            assert_eq!((&start.tool, &start.call_id), (&record.tool, &record.call_id));
            assert_eq!((start.args_sha256, &start.source), (record.args_sha256, &record.source));
        }
        // A refused call has no start line, whichever gate refuses it.
        for (tool, args) in [("k__count", "[]"), ("k__none", "{}"), ("k__must", "{")] {
            host.call_in(tool, args, TurnContext::default()).await;
            let record = host.audit.take().pop().unwrap();
            assert!(record.is_refusal() && record.start_id.is_none(), "{record:?}");
        }
        assert!(host.audit.take_starts().is_empty(), "{audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_only_waited_for_its_place_has_no_start_line() {
    let text = "[host]\nparallel_calls = 1\nqueue_timeout = \"50ms\"\n[audit]\nstart_lines = \"all\"";
    let host = TestHost::new(&[("s", guest_artifacts::HOSTILE_SLEEP)], text).await;
    let view = host.host.view(Filter::default());
    let sleep = view.definitions().find(|e| e.def.name.as_str().starts_with("s__")).unwrap();
    let calls = (0..3).map(|n| ToolCall::new(n.to_string(), sleep.def.name.to_string(), "{}")).collect();
    let turn = TurnContext { session: Session::with_name("s").into(), ..TurnContext::default() };
    let cancel = turn.cancel.clone();
    let running = host.host.call_all(&view, calls, turn);
    let ended = async {
        while host.host.calls().count() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    };
    let both = async { tokio::join!(running, ended) };
    tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    let (starts, records) = (host.audit.take_starts(), host.audit.take());
    let began: Vec<_> = records.iter().map(|record| (record.outcome, record.began)).collect();
    assert_eq!(began, [("busy", false), ("busy", false), ("cancelled", true)]);
    assert_eq!((starts.len(), Some(starts[0].start_id)), (1, records[2].start_id));
}

const EFFECTS: &str = "TOOLBAY_TEST_AUDIT_EFFECTS";
const COUNTS: &str = "[plugins.k.grant]\nkv = [\"plugin\"]\n";

async fn counting(dir: &Path) -> (Host, toolbay::View) {
    let audit = Arc::new(FileAudit::open(dir.join("audit.jsonl")).unwrap());
    let builder = Host::builder(policy(COUNTS, dir)).cache_dir(cache_dir()).state_dir(dir.join("state"));
    let host = builder.audit(audit).build().unwrap();
    host.load_file(PluginId::new("k").unwrap(), Path::new(guest_artifacts::CAP_KV)).await.unwrap();
    let view = host.view(Filter::default());
    (host, view)
}

/// Stores a value with each call until the process is killed.
async fn count_for_ever(dir: &Path) {
    let (host, view) = counting(dir).await;
    for n in 0.. {
        let calls =
            (0..4).map(|m| ToolCall::new(format!("{n}-{m}"), "k__count", r#"{"times": 1}"#)).collect();
        let results = host.call_all(&view, calls, TurnContext::default()).await;
        assert!(results.iter().all(|one| one.result.is_ok()), "{results:?}");
        std::io::stdout().lock().write_all(b"counted\n").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_nothing_was_stored_without_a_line() {
    if let Ok(dir) = std::env::var(EFFECTS) {
        return count_for_ever(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "calls::audit::after_kill_9_nothing_was_stored_without_a_line", "--nocapture"])
            .env(EFFECTS, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        lines.find(|line| line.contains("counted")).expect("the child counts");
        let reader = std::thread::spawn(move || lines.count());
        std::thread::sleep(Duration::from_micros(1 + round * 7919));
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
    }
    let path = dir.path().join("audit.jsonl");
    let (host, view) = counting(dir.path()).await;
    let before = records(&path);
    let calls = vec![ToolCall::new("last", "k__count", r#"{"times": 1}"#)];
    let results = host.call_all(&view, calls, TurnContext::default()).await;
    let stored = results[0].result.as_ref().unwrap().structured.as_ref().unwrap().to_string();
    let stored: Value = serde_json::from_str(&stored).unwrap();
    let stored = stored["sum"].as_u64().unwrap() as usize - 1;
    let ids = |kind: &str| -> BTreeSet<String> {
        let of_kind = before.iter().filter(|record| record["kind"] == kind && record["tool"] == "k__count");
        of_kind.map(|record| record["start_id"].as_str().unwrap().to_owned()).collect()
    };
    let (starts, ends) = (ids("start"), ids("call"));
    assert!(stored > 0 && stored <= starts.len(), "{stored} stored, {} lines", starts.len());
    assert!(ends.is_subset(&starts));
}
