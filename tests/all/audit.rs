//! The audit: what is recorded of a call, whatever becomes of it, and of the program.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use integration_tests::{TestHost, cache_dir, policy};
use serde_json::{Value, json};
use toolbay::core::audit::{GrantEvent, Line};
use toolbay::core::text;
use toolbay::{FileAudit, Filter, Host, PluginId, Rotation, ToolCall, TurnContext};

const POLICY: &str =
    "[plugins.c.grant]\nkv = [\"tool\"]\n[plugins.c.limits]\nfuel = 40_000_000\n[profile.p]\n";

async fn host() -> TestHost {
    let host = TestHost::new(&[], POLICY).await;
    host.load("c", guest_artifacts::CAP_CONSENT).await;
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_says_who_called_what_with_what_and_what_came_of_it() {
    let host = host().await;
    let mut turn = TurnContext::default();
    turn.identity.session_id = Some("session".to_owned());
    turn.identity.agent_id = Some("agent".to_owned());
    turn.identity.platform = Some("x".repeat(1000));
    let args = r#"{"what": "canary", "times": 2}"#;
    let profile = host.host.policy().profile("p").cloned();
    let view = host.host.view(Filter::of_profile(profile));
    host.host.call_all(&view, vec![ToolCall::new("id", "c__ask", args)], turn).await;
    let record = host.audit.take().pop().unwrap();
    assert_eq!((&*record.call_id, &*record.tool, record.outcome), ("id", "c__ask", "ok"));
    assert_eq!((record.session_id.as_deref(), record.agent_id.as_deref()), (Some("session"), Some("agent")));
    assert_eq!((record.platform.unwrap().len(), record.profile.as_deref()), (100, Some("p")));
    assert_eq!(record.source.unwrap().plugin().unwrap().as_str(), "c");
    let refused: Vec<_> = record.uses.iter().map(|one| (one.key, one.what.as_str(), one.allowed)).collect();
    assert_eq!(refused, [("secrets", "0canary", false), ("secrets", "1canary", false)]);
    assert!(record.usage.fuel > Some(0) && record.usage.args_bytes > 0 && record.duration_us > 0);
    // The digest is of the arguments, however they are written.
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
async fn what_a_guest_wants_can_neither_forge_a_line_nor_fill_the_disk() {
    let host = host().await;
    let what = "\n{\"kind\":\"call\"}\u{1b}[31m\u{2028}\u{202e}".repeat(40);
    host.call("c__ask", json!({"what": what, "times": 200})).await;
    let record = host.audit.take().pop().unwrap();
    assert_eq!((record.uses.len(), record.uses_not_kept), (64, 136), "each once, and the rest counted");
    let line = Line::Call(&record).to_json("t");
    assert!(line.len() <= 64 << 10 && line.matches('\n').count() == 1, "{} bytes", line.len());
    assert!(!line.trim_end().contains(text::is_hidden));
    let name = "\u{202e}\n".repeat(500);
    host.call(&name, json!({})).await;
    let record = host.audit.take().pop().unwrap();
    assert_eq!((record.tool.chars().count(), record.source.is_none()), (100, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_ended_a_call_is_named_and_a_caller_that_goes_away_leaves_a_record() {
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
    assert!(tokio::time::timeout(Duration::from_millis(500), batch).await.is_err(), "it is under way");
    let gone = async {
        while host.host.free_places() != host.host.policy().host().parallel_calls as usize {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
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
async fn what_a_plugin_may_reach_is_recorded_when_it_is_loaded() {
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
const SMALL: Rotation = Rotation { max_bytes: 64 << 10, files: 10_000 };

/// Makes calls until it is killed, and says the id of each once it has the result.
async fn call_for_ever(dir: &Path, round: &str) {
    let audit = Arc::new(FileAudit::with_rotation(dir.join("audit.jsonl"), SMALL).unwrap());
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

/// The ids that a child had results for when it was killed.
fn killed(dir: &Path, round: usize) -> Vec<String> {
    let me = std::env::current_exe().unwrap();
    let mut child = Command::new(me)
        .args(["--exact", "audit::whoever_saw_a_result_finds_its_record_after_kill_9", "--nocapture"])
        .env(KILL, format!("{round}:{}", dir.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.by_ref().find(|line| line.starts_with("id ")).expect("the child makes calls");
    let reader = std::thread::spawn(move || lines.collect::<Vec<_>>());
    // Each round at another moment of its work, over one rotation or several.
    std::thread::sleep(Duration::from_micros(1 + (round as u64 * 7919) % 120_000));
    child.kill().unwrap();
    child.wait().unwrap();
    let mut said = reader.join().unwrap();
    said.push(first);
    said.iter().filter_map(|line| line.strip_prefix("id ")).map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_saw_a_result_finds_its_record_after_kill_9() {
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
        // Whoever opens it next finds whole lines.
        drop(FileAudit::with_rotation(&path, SMALL).unwrap());
        // Empty, if the kill came right after a rotation.
        let last = std::fs::read(&path).unwrap();
        assert!(last.is_empty() || last.ends_with(b"\n"), "round {round}");
    }
    let files = FileAudit::files(&path);
    let text: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let (mut recorded, mut broken) = (BTreeSet::new(), 0);
    for line in text.lines().filter(|line| !line.is_empty()) {
        match serde_json::from_str::<Value>(line) {
            Ok(record) => drop(recorded.insert(record["call_id"].as_str().unwrap_or_default().to_owned())),
            Err(_) => broken += 1,
        }
    }
    let missing: Vec<_> = seen.difference(&recorded).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // A line that the kill cut in two belongs to a call whose result nobody had.
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

/// Makes calls, and says how many records were lost of them.
async fn call_without_room(dir: &Path) {
    let audit = Arc::new(FileAudit::open(dir.join("audit.jsonl")).unwrap());
    let builder = Host::builder(policy("", dir)).cache_dir(cache_dir());
    let host = builder.audit(Arc::clone(&audit) as _).build().unwrap();
    host.load_file(PluginId::new("e").unwrap(), Path::new(guest_artifacts::API_ECHO)).await.unwrap();
    for n in 0..CALLS {
        let view = host.view(Filter::default());
        let calls = vec![ToolCall::new(n.to_string(), "e__echo", r#"{"a":1}"#)];
        let results = host.call_all(&view, calls, TurnContext::default()).await;
        assert!(results[0].result.is_ok(), "{results:?}");
    }
    let said = format!("\nlost {}\n", audit.records_lost());
    std::io::stdout().lock().write_all(said.as_bytes()).unwrap();
}

/// A file that may not grow takes a part of a line, as a disk does that is full. Calls go on; each record is in the file
/// or counted, and whoever has room again goes on with a whole line.
#[tokio::test(flavor = "multi_thread")]
async fn calls_go_on_where_the_audit_has_no_room_and_no_record_is_lost_in_silence() {
    if let Ok(dir) = std::env::var(NO_ROOM) {
        return call_without_room(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    // 8 KiB: 16 blocks. What is written beyond is an error, and no signal.
    let child = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; ulimit -f 16; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("audit::calls_go_on_where_the_audit_has_no_room_and_no_record_is_lost_in_silence")
        .env(NO_ROOM, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said} {}", String::from_utf8_lossy(&child.stderr));
    let lost: usize = said.lines().find_map(|line| line.strip_prefix("lost ")).unwrap().parse().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.len(), 8 << 10, "as much as there is room for");
    let whole = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
    assert!(lost > 0 && whole + lost == CALLS, "{whole} + {lost}");
    let cut = !text.ends_with('\n');
    drop(FileAudit::open(&path).unwrap());
    let after = std::fs::read_to_string(&path).unwrap();
    assert_eq!(after.len(), text.len() + usize::from(cut), "what was cut is ended");
}
