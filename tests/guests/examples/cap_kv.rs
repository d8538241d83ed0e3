//! State through `toolbay:plugin/kv`. A refusal of the host is a normal result: `{"error": "denied", …}`.

use guest::host::kv::{self, KvError, Scope};
use guest::{Answer, Args, Value, json, structured, tool};

const ALL: &[(&str, &str, bool)] =
    &[("kv", "tool", true), ("kv", "plugin", true), ("kv", "session", true), ("kv", "agent", true)];

guest::tools!(
    tool("do", run).needs(ALL),
    // The same under another name, because the scope `tool` differs.
    tool("other", run).needs(ALL),
    tool("only_tool", run).needs(&[("kv", "tool", true)]),
    tool("undeclared", run),
    tool("must", run).needs(&[("kv", "plugin", false)]),
    // Adds one `times` times with `increment`.
    tool("count", count).needs(ALL),
    // Adds one `times` times with `get` and `replace`. Returns how often it lost the race.
    tool("swap", swap).needs(ALL),
    // Reads one key `times` times.
    tool("gets", gets).needs(ALL),
);

fn scope(args: &Args) -> Scope {
    match args.text("scope", "plugin") {
        "tool" => Scope::Tool,
        "session" => Scope::Session,
        "agent" => Scope::Agent,
        _ => Scope::Plugin,
    }
}

/// The text `name`, or a text of `name_bytes` bytes.
fn text(args: &Args, name: &str) -> String {
    match args.number(&format!("{name}_bytes"), 0) {
        0 => args.text(name, "").to_owned(),
        bytes => "x".repeat(bytes as usize),
    }
}

fn optional<'a>(args: &'a Args, name: &str) -> Option<&'a str> {
    args.all().get(name).and_then(Value::as_str)
}

/// One operation: `op` and its arguments.
fn run(args: &Args) -> Answer {
    let (scope, key, value) = (scope(args), text(args, "key"), text(args, "value"));
    let shown = |value: Option<Vec<u8>>| match value {
        Some(value) if value.len() > 1000 => json!({ "bytes": value.len() }),
        Some(value) => json!({ "value": String::from_utf8_lossy(&value) }),
        None => json!({ "value": null }),
    };
    said(match args.text("op", "get") {
        "set" => {
            let ttl = args.all().get("ttl").and_then(Value::as_u64).map(|ttl| ttl as u32);
            kv::set(scope, &key, value.as_bytes(), ttl).map(|()| json!({}))
        }
        "remove" => kv::remove(scope, &key).map(|()| json!({})),
        "keys" => {
            let (prefix, limit) = (text(args, "prefix"), args.number("limit", 1000) as u32);
            kv::keys(scope, &prefix, optional(args, "after"), limit).map(|keys| json!({ "keys": keys }))
        }
        "increment" => {
            let by = args.all().get("by").and_then(Value::as_i64).unwrap_or(1);
            kv::increment(scope, &key, by).map(|sum| json!({ "sum": sum }))
        }
        "replace" => {
            let expected = optional(args, "expected").map(str::as_bytes);
            kv::replace(scope, &key, expected, value.as_bytes()).map(|did| json!({ "did": did }))
        }
        _ => kv::get(scope, &key).map(shown),
    })
}

fn count(args: &Args) -> Answer {
    let mut sum = Ok(0);
    for _ in 0..args.number("times", 1) {
        sum = kv::increment(scope(args), args.text("key", "n"), 1);
        if sum.is_err() {
            break;
        }
    }
    said(sum.map(|sum| json!({ "sum": sum })))
}

fn swap(args: &Args) -> Answer {
    let (scope, key) = (scope(args), args.text("key", "n"));
    let mut lost = 0;
    for _ in 0..args.number("times", 1) {
        loop {
            let old = match kv::get(scope, key) {
                Ok(old) => old,
                Err(error) => return said(Err(error)),
            };
            let number: u64 = old.as_deref().map_or(0, |old| String::from_utf8_lossy(old).parse().unwrap());
            match kv::replace(scope, key, old.as_deref(), (number + 1).to_string().as_bytes()) {
                Ok(true) => break,
                Ok(false) => lost += 1,
                Err(error) => return said(Err(error)),
            }
        }
    }
    structured(&json!({ "lost": lost }))
}

fn gets(args: &Args) -> Answer {
    let key = args.text("key", "n");
    let mut bytes = 0;
    for _ in 0..args.number("times", 1) {
        bytes += kv::get(Scope::Plugin, key).ok().flatten().map_or(0, |value| value.len());
    }
    structured(&json!({ "bytes": bytes }))
}

fn said(result: Result<Value, KvError>) -> Answer {
    structured(&match result {
        Ok(value) => value,
        Err(KvError::Denied(message)) => json!({ "error": "denied", "message": message }),
        Err(KvError::TooLarge(size)) => json!({ "error": "too-large", "size": size }),
        Err(KvError::QuotaExceeded) => json!({ "error": "quota-exceeded" }),
        Err(KvError::NotANumber) => json!({ "error": "not-a-number" }),
        Err(KvError::Other(message)) => json!({ "error": "other", "message": message }),
    })
}
