//! Hostile servers over stdio: each has a defined end and a bound, and affects no other server.

use std::sync::Arc;
use std::time::Instant;

use integration_tests::{RecordedProgress, fault, hints, refusal, value, words};
use serde_json::json;
use toolbay::TurnContext;
use toolbay::core::tool::fault::FaultKind;
use toolbay_mcp::client::ServerState;

use super::bridge_stdio::{BridgeFixture, SOON, good, section};

/// A hostile server and a good one, which still answers.
async fn beside(mode: &str, more: &str) -> BridgeFixture {
    let text = [section("s", mode, more), section("t", "good", "")].concat();
    let bridged = BridgeFixture::new(&text).await;
    neighbour(&bridged).await;
    bridged
}

async fn neighbour(bridged: &BridgeFixture) {
    let said = bridged.host.call("mcp__t__echo", json!({"text": "here"})).await;
    assert_eq!(words(&said), "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_tool_costs_itself_and_not_the_list() {
    let bridged = BridgeFixture::new(&section("s", "bad-tools", "")).await;
    let tools = bridged.tools();
    for name in [
        "good",
        "no-schema",
        "hidden",
        "last",
        "list",
        "array",
        "text",
        "remote",
        "deep",
        "bad-output",
        "header",
    ] {
        assert!(tools.contains(&format!("mcp__s__{name}")), "{name}: {tools:?}");
    }
    assert!(tools.iter().any(|tool| tool.starts_with("mcp__s__dots_and_slashes_and_blanks_")), "{tools:?}");
    assert!(tools.iter().any(|tool| tool.starts_with("mcp__s__xxxx")), "{tools:?}");
    assert!(tools.iter().all(|tool| tool.len() <= 64));
    let problems = bridged.status().problems.join("\n");
    for part in [
        "`header`: imported without its header marks",
        "`bad-output`: imported without its output schema: 1 keyword: /type (",
        "`good` is listed twice",
        "cannot be parsed",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
    assert!(!problems.contains('\u{1b}'));
    let catalog = bridged.host.host.registry().snapshot();
    for (name, schema, pointer, part) in [
        ("array", "input", "/type", "arguments are an object"),
        ("text", "input", "", "the schema is not an object"),
        ("remote", "input", "/properties/a/$ref", "it leaves the schema"),
    ] {
        let def = &catalog.get(&format!("mcp__s__{name}")).unwrap().def;
        let [(of, lost)] = def.dropped_keywords().collect::<Vec<_>>()[..] else { panic!("{name}") };
        assert_eq!((of, lost.listed()[0].pointer.as_str()), (schema, pointer), "{name}");
        assert!(lost.listed()[0].reason.contains(part), "{lost}");
    }
    assert_eq!(catalog.get("mcp__s__bad-output").unwrap().def.output_schema, None);
    let deep = &catalog.get("mcp__s__deep").unwrap().def.input_schema;
    let cut = &deep.dropped().unwrap().listed()[0];
    assert!(
        cut.pointer.starts_with("/properties/a/properties/a/") && cut.reason.contains("nested too deeply")
    );
    let description = &catalog.get("mcp__s__inject").unwrap().def.description;
    assert!(!description.contains("<|im_start|>") && !description.contains('\u{200b}'), "{description:.100}");
    assert!(!description.contains("</untrusted>") && description.chars().count() <= 8_001);
    let hidden = &catalog.get("mcp__s__hidden").unwrap().def;
    assert!(hidden.traits.read_only && hidden.title.as_deref() == Some("a\\u{202e}b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_and_endless_lists_are_cut() {
    let many = BridgeFixture::new(&section("s", "many", "")).await;
    assert_eq!(many.tools().len(), 5_000);
    assert!(many.status().problems[0].contains("more than 5000 tools"), "{:?}", many.status().problems);
    let pages = BridgeFixture::new(&section("s", "pages", "")).await;
    assert_eq!((pages.tools().len(), pages.status().problems.len()), (50, 0));
    let cursor = BridgeFixture::new(&section("s", "cursor", "")).await;
    assert_eq!(cursor.tools().len(), 2);
    assert!(
        cursor.status().problems[0].contains("repeated or oversized cursor"),
        "{:?}",
        cursor.status().problems
    );
    let endless = BridgeFixture::new(&section("s", "endless", "")).await;
    assert_eq!(endless.tools().len(), 500);
    assert!(endless.status().problems[0].contains("500 pages"), "{:?}", endless.status().problems);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sends_too_much_is_stopped_or_ignored() {
    let noise = beside("noise", "start_timeout = \"20s\"").await;
    assert!(noise.status().reason.unwrap().contains("more than 1000 invalid messages on stdout"));
    let garbage = beside("garbage", "").await;
    assert_eq!(garbage.status().state, ServerState::Ready, "a banner is forgiven");
    assert_eq!(words(&garbage.host.call("mcp__s__echo", json!({"text": "x"})).await), "x");
    let shout = beside("shout", "").await;
    assert_eq!(
        words(&shout.host.call("mcp__s__echo", json!({"text": "x"})).await),
        "x",
        "stderr is read and forgotten"
    );
    let flood = beside("flood", "").await;
    flood
        .until("it is ended", |flood| {
            flood.status().reason.is_some_and(|why| why.contains("unsolicited messages"))
        })
        .await;
    neighbour(&flood).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_line_stops_the_server_and_is_discarded() {
    let bridged = beside("good", "").await;
    let before = memory();
    let said = bridged.host.call("mcp__s__long", json!({})).await;
    assert_eq!(fault(&said).kind, FaultKind::Trap);
    assert!(fault(&said).message.contains("a line of more than 24MiB"), "{said:?}");
    assert!(memory() < before + (300 << 20), "{before} {}", memory());
    neighbour(&bridged).await;
    assert_eq!(
        words(&bridged.host.call("mcp__s__echo", json!({"text": "again"})).await),
        "again",
        "it is begun anew"
    );
    assert_eq!(bridged.status().connects, 2);
}

/// The resident memory of this process in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_during_a_call_is_reported_and_restarted() {
    let bridged = beside("good", "").await;
    let said = bridged.host.call("mcp__s__die", json!({})).await;
    assert_eq!(fault(&said).kind, FaultKind::Trap);
    let message = &fault(&said).message;
    assert!(message.contains("disconnected during the call") && message.contains("Weltschmerz"), "{message}");
    assert_eq!(words(&bridged.host.call("mcp__s__echo", json!({"text": "again"})).await), "again");
    neighbour(&bridged).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_begin_is_tried_less_and_less() {
    let bridged = beside("exit", "").await;
    let why = bridged.status().reason.unwrap();
    assert!(why.contains("no license"), "{why}");
    assert_eq!(bridged.tools().iter().filter(|tool| tool.starts_with("mcp__s__")).count(), 0);
    bridged.until("it is tried again", |bridged| bridged.status().state == ServerState::Connecting).await;
    let wrong = beside("wrong-version", "").await;
    assert!(wrong.status().reason.unwrap().contains("`1999-01-01`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_an_older_revision_are_understood_whatever_they_make_of_the_newer() {
    for mode in ["crash-on-discover", "deaf"] {
        let bridged = BridgeFixture::new(&section("s", mode, "")).await;
        assert_eq!(bridged.status().state, ServerState::Ready, "{mode}: {:?}", bridged.status());
        assert_eq!(words(&bridged.host.call("mcp__s__echo", json!({"text": "x"})).await), "x");
    }
    let strict = BridgeFixture::new(&section("s", "good", "protocol = \"modern\"")).await;
    assert!(strict.status().reason.unwrap().contains("does not support revision 2026-07-28"));
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_with_unknown_ids_are_ignored() {
    let bridged = good().await;
    assert_eq!(words(&bridged.host.call("mcp__s__twice", json!({})).await), "once");
    assert_eq!(words(&bridged.host.call("mcp__s__echo", json!({"text": "x"})).await), "x");
    let liar = BridgeFixture::new(&section("s", "liar", "")).await;
    let said = liar.host.call("mcp__s__structured", json!({})).await;
    let [mark] = said.content() else { panic!("{said:?}") };
    assert!(format!("{mark:?}").contains("does not match its schema"), "{said:?}");
}

/// The section of a server of `tests/mcp-servers/odd.py` in a mode.
fn odd(mode: &str) -> String {
    section("s", mode, "").replace("server.py", "odd.py")
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_ids_and_byte_order_marks_are_understood() {
    for mode in ["string", "float", "bom"] {
        let bridged = BridgeFixture::new(&odd(mode)).await;
        assert_eq!(bridged.status().state, ServerState::Ready, "{mode}: {:?}", bridged.status());
        assert_eq!(bridged.tools(), ["mcp__s__echo"], "{mode}");
        assert_eq!(words(&bridged.host.call("mcp__s__echo", json!({})).await), "ok", "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_be_understood_fails_soon_with_the_reason() {
    for (mode, part) in [
        ("zero", "it answered with id 0, which matches no request"),
        ("lsp", "`Content-Length`"),
        ("pretty", "spans several lines"),
        ("utf16", "UTF-16"),
    ] {
        let start = Instant::now();
        let bridged = BridgeFixture::new(&odd(mode)).await;
        let reason = bridged.status().reason.unwrap_or_default();
        assert!(reason.contains(part), "{mode}: {reason}");
        // It has 60 s to start.
        assert!(start.elapsed() < SOON / 2, "{mode}: {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_read_ends_the_call_with_the_reason() {
    for (mode, part) in [
        ("escape", "not JSON"),
        ("undefined", "expected value at `undefined}"),
        ("latin1", "caf\u{fffd}"),
        ("nan", "numbers such as NaN"),
        ("tab", "raw control characters"),
    ] {
        let bridged = BridgeFixture::new(&odd(mode)).await;
        let said = bridged.host.call("mcp__s__echo", json!({})).await;
        assert_eq!(fault(&said).kind, FaultKind::BadOutput, "{mode}: {said:?}");
        assert!(fault(&said).message.contains(part), "{mode}: {said:?}");
        assert_eq!(bridged.status().connects, 1, "the connection stays");
    }
}

/// A thousand events at once: the order holds, and the last one arrives before the result.
#[tokio::test(flavor = "multi_thread")]
async fn progress_in_a_burst_is_merged_and_keeps_its_last_message() {
    let bridged = BridgeFixture::new(&odd("burst")).await;
    for _ in 0..20 {
        let seen = Arc::new(RecordedProgress::default());
        let turn = TurnContext { progress: Some(Arc::clone(&seen) as _), ..TurnContext::default() };
        assert_eq!(words(&bridged.host.call_in("mcp__s__echo", "{}", turn).await), "ok");
        let seen = seen.0.lock().unwrap().clone();
        let last = seen.last().unwrap();
        assert_eq!((last.message.as_str(), last.percent), ("step 1000", Some(100.0)));
        assert!(seen.is_sorted_by(|one, next| one.percent < next.percent), "{seen:?}");
        assert!(seen.len() < 500, "merged: {}", seen.len());
    }
}

/// The kernel tells only the server, so the hint is made of what the server says.
#[tokio::test(flavor = "multi_thread")]
async fn a_denied_path_has_a_hint_with_its_policy_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let file = folder.join("open");
    std::fs::write(&file, "open").unwrap();
    let bridged = good().await;
    let reach = json!({"path": file.to_str().unwrap()});
    if bridged.status().confinement != Some("landlock+seccomp") {
        return;
    }
    let said = bridged.host.call("mcp__s__reach", reach.clone()).await;
    assert!(hints(&said).contains(&format!("[mcp.s] fs_read = [{file:?}]")), "{said:?}");
    assert!(!refusal(&said).message.contains("fs_read"), "models do not read it: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_never_rests_is_read_now_and_then() {
    let bridged = BridgeFixture::new(&section("s", "changing", "")).await;
    bridged.until("the last one", |bridged| bridged.tools() == ["mcp__s__tool_1001"]).await;
    let before = bridged.host.host.registry().snapshot().revision();
    assert!(before < 20, "a thousand changes were {before} of the registry");
    assert_eq!(words(&bridged.host.call("mcp__s__tool_1001", json!({})).await), "tool_1001");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_server_is_restarted() {
    let bridged = BridgeFixture::new(&section("s", "good", "[mcp.s.tool.hang]\ntimeout = \"200ms\"")).await;
    for _ in 0..3 {
        assert_eq!(fault(&bridged.host.call("mcp__s__hang", json!({})).await).kind, FaultKind::Deadline);
    }
    bridged.until("it begins anew", |bridged| bridged.status().connects >= 2).await;
    let start = Instant::now();
    let said = bridged.host.call("mcp__s__echo", json!({"text": "x"})).await;
    assert!(value(&said).contains('x') && start.elapsed() < SOON);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_reported() {
    let bridged = BridgeFixture::new("[mcp.s]\ncommand = [\"/nowhere/server\"]").await;
    assert!(bridged.status().reason.unwrap().contains("/nowhere/server"));
    let said = bridged.host.call("mcp__s__x", json!({})).await;
    assert!(refusal(&said).message.contains("Unknown tool"), "{said:?}");
}
