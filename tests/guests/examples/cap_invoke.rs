//! Calls of other tools through `toolbay:plugin/tool-invoke`. A refusal of the host is a normal result.

use guest::host::tool_invoke::{self, Callable, Invocation, Invoked};
use guest::{Answer, Args, ToolError, Value, json, structured, tool};

const ALL: &[(&str, &str, bool)] = &[("invoke", "*", true)];

guest::tools!(
    tool("list", list).needs(ALL),
    // Makes the calls in `calls` (`[[name, args], …]`) concurrently.
    tool("invoke", invoke).needs(ALL),
    // Makes the same call `times` times in sequence. Returns the number of results and the first refusal.
    tool("again", again).needs(ALL),
    // Makes the same call `times` times concurrently.
    tool("many", many).needs(ALL),
    // One call whose arguments are invalid JSON, or `bytes` long.
    tool("raw", raw).needs(ALL),
    // Requires its grant.
    tool("needs", list).needs(&[("invoke", "neighbour__*", false)]),
    tool("undeclared", invoke),
);

fn list(_: &Args) -> Answer {
    let tools = tool_invoke::tools();
    let schemas = tools.iter().all(|tool: &Callable| tool.input_schema.starts_with('{'));
    structured(
        &json!({ "names": tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(), "schemas": schemas }),
    )
}

fn calls(args: &Args) -> Vec<Invocation> {
    let calls = args.all().get("calls").and_then(Value::as_array).cloned().unwrap_or_default();
    let call = |call: Value| Invocation {
        name: call[0].as_str().unwrap_or_default().to_owned(),
        args: call[1].to_string(),
    };
    calls.into_iter().map(call).collect()
}

fn invoke(args: &Args) -> Answer {
    match tool_invoke::invoke(&calls(args)) {
        Ok(answers) => structured(&json!({ "answers": answers.into_iter().map(shown).collect::<Vec<_>>() })),
        Err(error) => structured(&json!({ "error": refused(error) })),
    }
}

fn one(args: &Args) -> Invocation {
    Invocation {
        name: args.text("tool", "neighbour__echo").to_owned(),
        args: args.all().get("args").unwrap_or(&json!({})).to_string(),
    }
}

fn again(args: &Args) -> Answer {
    let (call, mut answered, mut first) = ([one(args)], 0, Value::Null);
    for _ in 0..args.number("times", 1) {
        match tool_invoke::invoke(&call) {
            Ok(answers) => answered += answers.len(),
            Err(error) if first.is_null() => first = refused(error),
            Err(_) => {}
        }
    }
    structured(&json!({ "answered": answered, "refused": first }))
}

fn many(args: &Args) -> Answer {
    let calls: Vec<Invocation> = (0..args.number("times", 1)).map(|_| one(args)).collect();
    match tool_invoke::invoke(&calls) {
        Ok(answers) => {
            let (good, bad): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
            let first = bad.into_iter().next().map_or(Value::Null, shown);
            structured(&json!({ "good": good.len(), "first": first }))
        }
        Err(error) => structured(&json!({ "error": refused(error) })),
    }
}

fn raw(args: &Args) -> Answer {
    let text = match args.number("bytes", 0) {
        0 => args.text("text", "{").to_owned(),
        bytes => format!("{{\"text\":\"{}\"}}", "x".repeat(bytes as usize)),
    };
    match tool_invoke::invoke(&[Invocation {
        name: args.text("tool", "neighbour__echo").to_owned(),
        args: text,
    }]) {
        Ok(answers) => structured(&json!({ "answers": answers.into_iter().map(shown).collect::<Vec<_>>() })),
        Err(error) => structured(&json!({ "error": refused(error) })),
    }
}

fn shown(answer: Result<Invoked, ToolError>) -> Value {
    match answer {
        Ok(invoked) if invoked.value.len() > 2000 => {
            json!({ "bytes": invoked.value.len(), "truncated": invoked.truncated })
        }
        Ok(invoked) => json!({
            "value": invoked.value,
            "structured": invoked.structured.map(|text| guest::serde_json::from_str::<Value>(&text).unwrap_or_default()),
        }),
        Err(error) => json!({ "error": refused(error) }),
    }
}

fn refused(error: ToolError) -> Value {
    json!({ "code": format!("{:?}", error.code), "message": error.message, "subject": error.subject })
}
