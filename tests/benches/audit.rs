//! The disk space of the audit of a million refused calls, and the cost of a start line for a call.
//!
//! `cargo xtask bench audit`. The first is a bound: at most 64 MiB, with every call that ran. The
//! sides of the second alternate in short rounds.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use toolbay::core::audit::AuditSink;
use toolbay::{AuditReader, FileAudit, ToolCall, TurnContext};

use crate::figures::{keep, median, print_table, quick, rounds};
use crate::library::LibraryBench;

/// The total of refused calls, in batches of a hundred. One call runs between two batches.
const REFUSED: usize = 1_000_000;
const BATCH: usize = 100;
/// The limit for their audit, in bytes.
const MOST: u64 = 64 << 20;
const ROUNDS: usize = 30;
const CALLS: usize = 500;

pub(crate) fn run() {
    let runtime = Runtime::new().unwrap();
    flood(&runtime);
    starts(&runtime);
}

fn flood(runtime: &Runtime) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit: Arc<dyn AuditSink> = Arc::new(FileAudit::open(&path).unwrap());
    let library =
        |audit| LibraryBench::of(guest_artifacts::BENCH_ECHO, "", Path::new("/"), |b| b.audit(audit));
    let library = runtime.block_on(library(audit));
    let batches = if quick() { REFUSED / BATCH / 10 } else { REFUSED / BATCH };
    let start = Instant::now();
    for batch in 0..batches {
        let refused = (0..BATCH).map(|n| ToolCall::new(format!("no-{batch}-{n}"), format!("none{n}"), "{}"));
        // A hundred clients.
        let session = toolbay::Session::with_name(&format!("client {}", batch % 100)).into();
        let turn = TurnContext { session, ..TurnContext::default() };
        let all = refused.chain([ToolCall::new(format!("yes-{batch}"), "bench__echo", r#"{"text":"a"}"#)]);
        let results = runtime.block_on(library.host.call_all(&library.view, all.collect(), turn));
        assert_eq!(results.iter().filter(|one| one.result.is_ok()).count(), 1);
    }
    let took = start.elapsed().as_secs_f64();
    drop(library);
    let bytes: u64 = FileAudit::files(&path).iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
    let (mut ran, mut counted) = (BTreeSet::new(), 0);
    let mut take = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        match record["kind"].as_str() {
            Some("call") if record["outcome"] == "ok" => {
                ran.insert(record["call_id"].as_str().unwrap().to_owned());
            }
            Some("call") => counted += 1,
            Some("refused") => counted += record["count"].as_u64().unwrap(),
            _ => {}
        }
        Ok(())
    };
    AuditReader::new(&path).read(&mut take).unwrap();
    let refused = batches * BATCH;
    assert_eq!(ran.len(), batches, "every call that ran is in the audit");
    assert_eq!(counted, refused as u64, "every refused call is listed or counted");
    assert!(bytes <= MOST, "{bytes} bytes");
    let mib = bytes as f64 / f64::from(1 << 20);
    keep("audit_of_refused_mib", mib);
    print_table(&format!(
        "\n| calls refused | calls that ran | all of these in the audit | its files | took |\n|---|---|---|---|---|\n\
         | {refused} | {batches} | yes | {mib:.2} MiB of at most 64 | {took:.1} s |\n"
    ));
}

/// A call of a tool that may keep state and does not: the shortest possible call with a start line.
fn starts(runtime: &Runtime) {
    let dir = tempfile::tempdir().unwrap();
    let side = |lines: &str| {
        let audit: Arc<dyn AuditSink> = Arc::new(FileAudit::open(dir.path().join(lines)).unwrap());
        let policy =
            format!("[audit]\nstart_lines = \"{lines}\"\n[plugins.bench.grant]\nkv = [\"plugin\"]\n");
        let made = LibraryBench::of(guest_artifacts::CAP_KV, &policy, Path::new("/"), |b| b.audit(audit));
        runtime.block_on(made)
    };
    let (without, with) = (side("never"), side("effects"));
    let round = |library: &LibraryBench| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| drop(runtime.block_on(library.call("bench__gets", r#"{"times":0}"#))));
        start.elapsed().as_secs_f64() * 1e6 / CALLS as f64
    };
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for _ in 0..rounds(ROUNDS) {
        off.push(round(&without));
        on.push(round(&with));
    }
    let (off, on) = (median(&mut off), median(&mut on));
    keep("audit_start_line_ratio", on / off);
    print_table(&format!(
        "\n| call of a tool that may keep state | p50 µs | ratio |\n|---|---|---|\n| `start_lines = \"never\"` | {off:.1} | 1 |\n\
         | `start_lines = \"effects\"` | {on:.1} | {:.2} |\n",
        on / off
    ));
}
