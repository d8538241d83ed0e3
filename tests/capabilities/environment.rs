//! Environment, clock and randomness: what a tool sees without a grant, and what each grant changes.

use std::time::{Duration, SystemTime};

use integration_tests::{TestHost, hints, in_a_process, model_reads, refusal, structured};
use serde_json::{Value, json};

const FROZEN_MS: u64 = 1_735_689_600_000;
const CANARY: &str = "canary-of-the-environment";

async fn host(policy: &str) -> TestHost {
    TestHost::new(&[("e", guest_artifacts::CAP_ENVIRONMENT)], policy).await
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// The values that differ between two calls if randomness is granted.
fn chance(said: &Value) -> [Value; 4] {
    ["random", "bytes", "seed", "hash"].map(|key| said[key].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_grants_time_stands_and_chance_repeats() {
    let host = host("").await;
    let said = host.ask("e__nothing", json!({})).await;
    assert_eq!((&said["vars"], &said["args"]), (&json!([]), &json!(0)), "{said}");
    assert_eq!(said["unix_ms"], FROZEN_MS);
    assert!(said["ticks"].as_u64().unwrap() >= 20 && said["elapsed_ms"].as_u64().unwrap() >= 20, "{said}");
    assert!(said["unlucky"].as_u64().unwrap() < 10_000, "{said}");
    let again = host.ask("e__nothing", json!({"other": "arguments"})).await;
    assert_eq!(chance(&said), chance(&again));
    let bytes: Vec<u64> = said["bytes"].as_array().unwrap().iter().map(|b| b.as_u64().unwrap()).collect();
    assert!(bytes.iter().any(|byte| *byte != bytes[0]), "no constant: {bytes:?}");
    let may = host.ask("e__may", json!({})).await;
    assert_eq!((&may["unix_ms"], chance(&may)), (&json!(FROZEN_MS), chance(&said)), "asked for, not granted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_with_an_ungranted_required_capability_is_unavailable() {
    let host = host("").await;
    for (tool, line) in
        [("e__time", "clock = true"), ("e__chance", "random = true"), ("e__vars", "env = [\"TB_HOST\", ")]
    {
        let refused = host.call(tool, json!({})).await;
        assert!(refusal(&refused).message.contains("not granted"), "{tool}: {refused:?}");
        let hints = hints(&refused);
        assert!(hints.contains("[plugins.e.grant]") && hints.contains(line), "{tool}: {hints}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_grant_changes_one_interface_for_plugins_that_declare_it() {
    let host =
        host("[plugins.e.grant]\nclock = true\nrandom = true\n[plugins.e.tools.may]\nrandom = false").await;
    let fixed = chance(&host.ask("e__nothing", json!({})).await);
    let time = host.ask("e__time", json!({})).await;
    let off = now_ms().abs_diff(time["unix_ms"].as_u64().unwrap());
    assert!(off < Duration::from_secs(60).as_millis() as u64, "{off} ms");
    assert_eq!(chance(&time), fixed, "it did not ask for chance");
    let drawn = host.ask("e__chance", json!({})).await;
    assert_eq!(drawn["unix_ms"], FROZEN_MS, "it did not ask for the time");
    let again = host.ask("e__chance", json!({})).await;
    for ((drawn, again), fixed) in chance(&drawn).iter().zip(&chance(&again)).zip(&fixed) {
        assert!(drawn != again && drawn != fixed, "{drawn} {again}");
    }
    assert_eq!(host.ask("e__nothing", json!({})).await["unix_ms"], FROZEN_MS, "not declared, not had");
    let may = host.ask("e__may", json!({})).await;
    assert!(may["unix_ms"].as_u64().unwrap() > FROZEN_MS, "{may}");
    assert_eq!(chance(&may), fixed, "the tool's own section narrows");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_without_a_grant_are_noted_whether_declared_or_not() {
    let host = host("[plugins.e.grant]\nrandom = true\n[plugins.e.tools.may]\nrandom = false").await;
    let part = "the bytes are the same in each call";
    for (tool, noted) in [
        ("e__nothing", Some("the tool does not declare it")),
        ("e__may", Some("not permitted")),
        ("e__chance", None),
    ] {
        let drawn = host.call(tool, json!({})).await;
        let said = model_reads(&drawn);
        assert_eq!(said.contains(part), noted.is_some(), "{tool}: {said}");
        assert!(noted.is_none_or(|why| said.contains(&format!("{part}: {why}"))), "{tool}: {said}");
        assert_eq!(hints(&drawn).contains("random"), noted.is_some(), "{tool}: {drawn:?}");
    }
    // One that draws nothing is not noted.
    let text = TestHost::new(&[("text", guest_artifacts::PLUGIN_TEXT)], "").await;
    let said = model_reads(&text.call("text__word_count", json!({"text": "a b"})).await);
    assert!(said.contains('2') && !said.contains(part), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_variables_that_are_declared_and_granted_are_seen() {
    let limits = format!("export TB_HOST='of the host' TB_OTHER={CANARY} TB_FIXED={CANARY}");
    if in_a_process(
        "capabilities::environment::only_variables_that_are_declared_and_granted_are_seen",
        &limits,
    ) {
        return;
    }
    let granted = "env = [\"TB_HOST\", \"TB_FIXED=fixed = 1\", \"TB_UNSET\", \"TB_OTHER\"]";
    let host = host(&format!("[plugins.e.grant]\n{granted}")).await;
    for (tool, vars) in [
        ("e__vars", json!([["TB_HOST", "of the host"], ["TB_FIXED", "fixed = 1"]])),
        ("e__var_of_its_own", json!([["TB_HOST", "mine"]])),
        ("e__may", json!([["TB_HOST", "of the host"]])),
        ("e__nothing", json!([])),
    ] {
        let said = structured(&host.call(tool, json!({})).await);
        assert_eq!(said["vars"], vars, "{tool}");
        assert!(!said.to_string().contains(CANARY), "{tool}: {said}");
        assert_eq!(said["args"], 0);
    }
}

/// The rows of the table of a page that begins with this head.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/capabilities").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text
        .split_once(head)
        .unwrap()
        .1
        .trim_start()
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
    rows.map(cells).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_the_page_is_true() {
    if in_a_process("capabilities::environment::the_table_of_the_page_is_true", "export TB_A=1; unset TB_C") {
        return;
    }
    let rows = table("environment.md", "| declared | granted | the host has | the guest sees |\n");
    assert!(!rows.is_empty());
    for row in rows {
        let [declared, granted, has, sees] = row.as_slice() else { panic!("{row:?}") };
        assert!(has == "TB_A=1" || has.is_empty() && !declared.contains("TB_A"), "{row:?}");
        let tool = match declared.as_str() {
            "TB_A" => "e__declares_a",
            "TB_A=3" => "e__declares_a3",
            "TB_C" => "e__declares_c",
            "" => "e__nothing",
            other => panic!("no tool declares {other}"),
        };
        let host = host(&format!("[plugins.e.grant]\nenv = [{granted:?}]")).await;
        let said = host.ask(tool, json!({})).await;
        let expected = match sees.split_once('=') {
            Some((name, value)) => json!([[name, value]]),
            None => json!([]),
        };
        assert_eq!(said["vars"], expected, "{row:?}");
    }
}
