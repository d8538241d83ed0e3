//! The plugin `script`: programs that call tools, in the real host.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use integration_tests::{TestHost, fault, outcome, refusal, structured, value};
use serde_json::{Value, json};
use toolbay::TurnContext;
use toolbay::core::tool::content::ErrorCode;
use toolbay::core::tool::fault::FaultKind;

use crate::sandbox::compile_bombs::soon;

const GRANTED: &str = "[plugins.script.grant]\ninvoke = [\"*\"]\n";

async fn host(policy: &str) -> TestHost {
    TestHost::new(&[("script", guest_artifacts::PLUGIN_SCRIPT)], policy).await
}

async fn result(host: &TestHost, code: &str) -> Value {
    host.ask("script__run", json!({ "code": code })).await["result"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_takes_the_place_of_many_calls() {
    let host = host(GRANTED).await;
    let code = "
        const texts = [];
        for (let n = 1; n <= 10; n++) texts.push(await tools.neighbour__echo({ n }));
        const sums = await Promise.all(texts.map(t => tools.neighbour__structured(JSON.parse(t.text))));
        console.log('made', sums.length);
        let failed;
        try { await tools.neighbour__error({ code: 'stale-write', message: 'no' }) } catch (e) { failed = [e.code, e.message] }
        return { total: sums.reduce((a, b) => a + b.data.n, 0), failed };
    ";
    let delivered = host.call("script__run", json!({ "code": code })).await;
    assert_eq!(value(&delivered), "made 10\n{\"total\":55,\"failed\":[\"stale_write\",\"no\"]}");
    let told = structured(&delivered);
    assert_eq!((&told["calls"], &told["console"]), (&json!(21), &json!(["made 10"])));
    let lines = host.audit.take();
    let inner = lines.iter().filter(|line| line.outer.as_deref() == Some("1")).count();
    assert_eq!((lines.len(), inner), (22, 21));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_sees_only_callable_tools() {
    let host = host("[plugins.script.grant]\ninvoke = [\"neighbour__e*\"]\n").await;
    assert_eq!(
        result(&host, "return tools.list().map(t => t.name)").await,
        json!(["neighbour__echo", "neighbour__error"])
    );
    assert_eq!(
        result(&host, "return tools.describe('neighbour__error').input_schema.required").await,
        json!(["code"])
    );
    let said = result(&host, "try { await tools.neighbour__long() } catch (e) { return e.message }").await;
    assert!(
        said.as_str()
            .unwrap()
            .ends_with("`toolbay explain script__run` tells the operator what would allow it"),
        "{said}"
    );
    let globals = "return ['require', 'process', 'fetch', 'WebAssembly', 'setTimeout', 'Deno', 'print'].filter(n => n in globalThis)";
    assert_eq!(result(&host, globals).await, json!([]));
    // Without a grant the tool is not offered.
    let none = self::host("").await;
    let refused = none.call("script__run", json!({"code": "return 1"})).await;
    assert!(integration_tests::hints(&refused).contains("invoke = [\"*\"]"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_where_they_are() {
    let host = host(GRANTED).await;
    let fails = async |code: &str| {
        let delivered = host.call("script__run", json!({ "code": code })).await;
        refusal(&delivered).clone()
    };
    let thrown = fails("const a = 1;\n\nthrow new Error('oops ' + a)").await;
    assert_eq!(
        (thrown.code, thrown.subject.as_deref()),
        (ErrorCode::ExecutionFailed, Some("line 3")),
        "{thrown:?}"
    );
    let uncaught = fails("await 1;\nawait tools.neighbour__error({code: 'execution-failed'})").await;
    assert_eq!(uncaught.subject.as_deref(), Some("line 2"), "{uncaught:?}");
    assert!(uncaught.message.contains("neighbour__error: as asked"), "{uncaught:?}");
    let syntax = fails("return )").await;
    assert_eq!(
        (syntax.code, syntax.subject.as_deref()),
        (ErrorCode::InputInvalid, Some("/code")),
        "{syntax:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_bounded() {
    let host = host(&format!(
        "{GRANTED}[plugins.brief]\ngrant = {{ invoke = [\"*\"] }}\nlimits = {{ fuel = 1_000_000_000 }}\n"
    ))
    .await;
    host.load("brief", guest_artifacts::PLUGIN_SCRIPT).await;
    let spun = host.provoke("brief__run", json!({"code": "for (;;);"}), Duration::from_secs(60)).await;
    assert!(matches!(fault(&spun).kind, FaultKind::OutOfFuel | FaultKind::Deadline), "{spun:?}");
    let grown = "const all = []; for (;;) all.push('x'.repeat(1 << 20) + all.length);";
    let grown = host.provoke("script__run", json!({ "code": grown }), Duration::from_secs(60)).await;
    assert!(matches!(outcome(&grown), "out_of_memory" | "out_of_fuel" | "execution_failed"), "{grown:?}");
    let deep = host.call("script__run", json!({"code": "const f = () => f() + 1; return f()"})).await;
    assert!(matches!(outcome(&deep), "execution_failed" | "trap"), "{deep:?}");
    let nested = format!("return {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    let nested = host.provoke("script__run", json!({ "code": nested }), Duration::from_secs(60)).await;
    assert!(matches!(outcome(&nested), "input_invalid" | "trap" | "execution_failed" | "ok"), "{nested:?}");
    let loud = host
        .ask("script__run", json!({"code": "for (let i = 0; i < 10000; i++) console.log('x'.repeat(50))"}))
        .await;
    assert!(loud["console"].as_array().unwrap().len() < 500);
    let many = host
        .ask(
            "script__run",
            json!({"code": "
        let made = 0;
        try { for (;;) { await tools.neighbour__echo({}); made++ } } catch (e) { return [made, e.subject] }
    "}),
        )
        .await;
    assert_eq!(many["result"], json!([100, "limit"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_scripts_end_even_with_one_parallel_call() {
    let host = Arc::new(host(&format!("[host]\nparallel_calls = 1\n{GRANTED}")).await);
    let inner = "return (await tools.neighbour__echo({})).text + input.n";
    let outer = format!(
        "const all = await Promise.all([1, 2].map(n => tools.script__run({{code: {inner:?}, input: {{n}}}}))); return all.map(a => a.data.result)"
    );
    assert_eq!(result(&host, &outer).await, json!(["{}1", "{}2"]));
    let deeper = format!("return await tools.script__run({{code: {outer:?}}})");
    let delivered = host.call("script__run", json!({ "code": deeper })).await;
    assert!(refusal(&delivered).message.contains("2 deep"), "{delivered:?}");
    soon("the place is still taken", || host.host.available_call_permits() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_script_cancels_its_calls() {
    let host = host(&format!("{GRANTED}[limits]\nfuel = 1_000_000_000_000\n")).await;
    host.load("sleep", guest_artifacts::HOSTILE_SLEEP).await;
    assert_eq!(result(&host, "return 1").await, 1);
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let (places, start) = (host.host.available_call_permits(), Instant::now());
    let canceller = async {
        host.until_begun("sleep__sleep").await;
        cancel.cancel();
    };
    let call = host.call_in("script__run", r#"{"code": "await tools.sleep__sleep({})"}"#, turn);
    let (ended, ()) = tokio::join!(call, canceller);
    assert_eq!(outcome(&ended), "cancelled");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    soon("a place is still taken", || host.host.available_call_permits() == places).await;
}

/// A script pays off if its start is cheap compared to the calls that it saves.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_starts_soon() {
    let host = host(GRANTED).await;
    assert_eq!(result(&host, "return 1").await, 1);
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        assert_eq!(result(&host, "return 1").await, 1);
        times.push(start.elapsed());
    }
    times.sort();
    println!("a program of nothing: {:?} (half of 20)", times[10]);
    let bytes = std::fs::metadata(Path::new(guest_artifacts::PLUGIN_SCRIPT)).unwrap().len();
    assert!(times[10] < Duration::from_millis(500), "{:?}", times[10]);
    assert!(bytes < 6 << 20, "{bytes}");
}
