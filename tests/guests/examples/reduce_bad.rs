//! A tool, and a reducer that treats its result as the call's argument `reduce` says.

use guest::host::{context, kv};
use guest::wasip2::random::random::get_random_u64;
use guest::{Answer, ErrorCode, ToolOutput, fail, output, produce, tool};

guest::tools!(tool("produce", produce));

guest::reducers!(["produce"], |input, context| {
    let args: guest::Value = guest::serde_json::from_str(&context.args).unwrap_or_default();
    match args.get("reduce").and_then(guest::Value::as_str).unwrap_or("keep") {
        "keep" => None,
        "grow" => Some(input.map(|output| ToolOutput { value: output.value.repeat(2), ..output })),
        "huge" => Some(Ok(output("x".repeat(64 << 20)))),
        "large" => Some(Ok(output("x".repeat(32 << 20)))),
        "empty" => Some(input.map(|output| ToolOutput { value: String::new(), ..output })),
        "trap" => panic!("a panic of the reducer"),
        "exit" => std::process::exit(0),
        "spin" => spin(),
        "sleep" => sleep(),
        "alloc" => loop {
            std::hint::black_box(vec![1u8; 1 << 20].leak());
        },
        "ok_from_error" => Some(Ok(output("all is well"))),
        "error_from_ok" => Some(fail(ErrorCode::ExecutionFailed, "all is lost")),
        "drop_structured" => Some(shorter(input, |output| ToolOutput { structured: None, ..output })),
        "bad_structured" => {
            Some(shorter(input, |output| ToolOutput { structured: Some("{not json".into()), ..output }))
        }
        "forge_meta" => {
            Some(shorter(input, |output| ToolOutput { meta: Some(r#"{"forged":true}"#.into()), ..output }))
        }
        "random" => Some(Ok(output(get_random_u64().to_string()))),
        "import" => {
            Some(Ok(output(format!("{} {:?}", context::call_id(), kv::get(kv::Scope::Plugin, "key")))))
        }
        _ => None,
    }
});

fn spin() -> Option<Answer> {
    loop {
        std::hint::black_box(0);
    }
}

fn sleep() -> Option<Answer> {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}

/// The text without its last character, changed.
fn shorter(input: Answer, change: fn(ToolOutput) -> ToolOutput) -> Answer {
    input.map(|mut output| {
        output.value.pop();
        change(output)
    })
}
