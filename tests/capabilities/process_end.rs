//! `process`: no process of a program outlives its call.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use integration_tests::{fault, in_a_process};
use serde_json::json;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{Filter, ToolCall, TurnContext};

use super::process_fixture::{POLICY, SOON, host, none_left, python, script, sh, wait_for, with_policy};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_survives_the_end_of_the_program() {
    let host = host().await;
    for (mark, line) in [
        ("91001", "sleep 91001 & echo started"),
        ("91002", "(sleep 91002 &) ; echo started"),
        ("91003", "( ( sleep 91003 & ) & ) ; sleep 0.2; echo started"),
        ("91004", "nohup sleep 91004 >/dev/null 2>&1 & sleep 0.2; echo started"),
        ("91005", "setsid sleep 91005 >/dev/null 2>&1 & sleep 0.2; echo started"),
        ("91006", "setsid -f sleep 91006 2>/dev/null; echo started"),
        ("91007", "sleep 91007 >/dev/null 2>&1 </dev/null & exec echo started"),
        ("91008", "trap '' TERM HUP INT; sleep 91008 & echo started"),
        ("91009", "sleep 91009 & echo started; kill -9 $$"),
        ("91010", "i=0; while [ $i -lt 150 ]; do sleep 91010 & i=$((i+1)); done; echo started"),
    ] {
        let start = Instant::now();
        let said = sh(&host, line).await;
        assert_eq!(said["stdout"], "started\n", "{line}: {said}");
        assert!(start.elapsed() < SOON, "{line}: the streams were waited for");
        none_left(mark);
    }
    // A process that keeps forking and exiting, to escape the search for it.
    script(
        &host.root().join("in/relay"),
        "echo x >> both/steps; sleep 0.02; [ \"$1\" = 0 ] || { sh in/relay $(($1 - 1)) 91011 & }",
    );
    let said = sh(&host, "sh in/relay 5000 91011 & sleep 0.3; echo started").await;
    assert_eq!(said["stdout"], "started\n", "{said}");
    none_left("91011");
    let steps = || fs::read_to_string(host.root().join("both/steps")).unwrap().len();
    let before = steps();
    assert!(before > 2, "the relay ran");
    // Twenty of its steps.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(steps(), before, "and runs no more");
    // A classic daemon.
    let daemon = r#"
import os, sys, time
if os.fork(): os._exit(0)
try: os.setsid()
except PermissionError: pass
if os.fork(): os._exit(0)
open("both/daemon", "w").write("here")
os.execv("/bin/sleep", ["sleep", "91012"])
"#;
    python(&host, "python", daemon).await;
    none_left("91012");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_ends_when_its_time_is_up() {
    let host = host().await;
    for (program, mark, line, args) in [
        ("sh", "92001", "sleep 92001", json!({"timeout_ms": 400})),
        ("sh", "92002", "trap '' TERM INT HUP QUIT; sleep 92002; sleep 92002", json!({"timeout_ms": 400})),
        ("sh", "92003", "sleep 92003 & sleep 92003 | sleep 92003", json!({"timeout_ms": 400})),
        ("sh", "92004", "kill -STOP $$; sleep 92004", json!({"timeout_ms": 400})),
        ("sh", "92005", "sleep 92005", json!({"timeout_ms": 0})),
        ("quick", "92006", "sleep 92006", json!({})),
        ("quick", "92007", "sleep 92007", json!({"timeout_ms": 600_000})),
        ("sh", "92008", "sleep 92008", json!({"timeout_ms": 400, "stdin_bytes": 1_000_000})),
        (
            "sh",
            "92009",
            "i=0; while [ $i -lt 150 ]; do sleep 92009 & i=$((i+1)); done; wait",
            json!({"timeout_ms": 1500}),
        ),
    ] {
        let mut args = args;
        args["program"] = json!(program);
        args["args"] = json!(["-c", line]);
        let start = Instant::now();
        let said = host.ask("p__run", args).await;
        assert_eq!(said["error"], "timeout", "{line}: {said}");
        assert!(start.elapsed() < SOON, "{line}");
        none_left(mark);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_ends_with_its_call() {
    let brief = "[plugins.brief.grant]\nprocess = [\"sh *\"]\n[plugins.brief.limits]\ntimeout = \"1s\"";
    let host = with_policy(&format!("{POLICY}\n{brief}")).await;
    host.load("brief", guest_artifacts::CAP_PROCESS).await;
    host.load(integration_tests::NEIGHBOUR, guest_artifacts::API_ECHO).await;
    let line = |mark: &str| json!({"args": ["-c", format!("trap '' TERM; sleep {mark} & sleep {mark}")]});
    let delivered = host.provoke("brief__run", line("93001"), SOON).await;
    assert_eq!(fault(&delivered).kind, FaultKind::Deadline);
    none_left("93001");

    let calls = |mark: &str| vec![ToolCall::new("1", "p__run", line(mark).to_string())];
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let (running, view) = (host.host.clone(), host.host.view(Filter::default()));
    let calls_made = calls("93002");
    let task = tokio::spawn(async move { running.call_all(&view, calls_made, turn).await });
    wait_for("93002").await;
    let start = Instant::now();
    cancel.cancel();
    let delivered = task.await.unwrap().pop().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(fault(&delivered).kind, FaultKind::Cancelled);
    none_left("93002");

    // The caller no longer waits for the result.
    let (running, view) = (host.host.clone(), host.host.view(Filter::default()));
    let calls_made = calls("93003");
    let task = tokio::spawn(async move { running.call_all(&view, calls_made, TurnContext::default()).await });
    wait_for("93003").await;
    task.abort();
    none_left("93003");
    // Cancelled at any point of its start.
    for step in 0..20 {
        let turn = TurnContext::default();
        let cancel = turn.cancel.clone();
        let (running, view) = (host.host.clone(), host.host.view(Filter::default()));
        let calls_made = calls("93004");
        let task = tokio::spawn(async move { running.call_all(&view, calls_made, turn).await });
        tokio::time::sleep(Duration::from_millis(step * 2)).await;
        cancel.cancel();
        task.await.unwrap();
    }
    none_left("93004");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_keeps_no_handle_no_zombie_and_no_thread() {
    const NAME: &str = "capabilities::process_end::the_host_keeps_no_handle_no_zombie_and_no_thread";
    if in_a_process(NAME, ":") {
        return;
    }
    let host = host().await;
    let count = |of: &str| fs::read_dir(format!("/proc/self/{of}")).unwrap().count();
    let children = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        texts.collect::<String>()
    };
    let round = async || {
        sh(&host, "sleep 94001 & (sleep 94001 &)").await;
        sh(&host, "kill -9 $$").await;
        host.ask("p__run", json!({"args": ["-c", "sleep 94001"], "timeout_ms": 50})).await;
        host.ask("p__run", json!({"args": ["-c", "true"], "cwd": "in", "stdin_bytes": 100_000})).await;
        host.ask("p__run", json!({"program": "python", "args": ["-c", "x"]})).await;
        host.ask("p__run", json!({"args": ["-c", "x"], "cwd": "nowhere"})).await;
    };
    round().await;
    let handles = count("fd");
    for _ in 0..10 {
        round().await;
    }
    let threads = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names
            .filter(|name| name.starts_with("toolbay-pro") || name.starts_with("toolbay-con"))
            .collect::<String>()
    };
    let start = Instant::now();
    while count("fd") > handles || !children().is_empty() || !threads().is_empty() {
        let (now, children, threads) = (count("fd"), children(), threads());
        assert!(start.elapsed() < SOON, "{now} handles, before {handles}; {children}; {threads}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The sandbox of the programs does not confine the host.
    let mut text = String::new();
    fs::File::open("/proc/self/status").unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("NoNewPrivs:\t0") && text.contains("Seccomp:\t0"), "{text}");
}
