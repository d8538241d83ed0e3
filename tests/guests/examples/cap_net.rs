//! HTTP through `toolbay:plugin/http-client`. A refusal of the host is a normal result: `{"error": "denied", …}`.

use guest::host::http_client::{HttpError, HttpRequest, fetch};
use guest::host::secrets;
use guest::{Answer, Args, Value, json, structured, tool};

const ALL: &[(&str, &str, bool)] = &[("net", "https://*:*", true), ("net", "http://*:*", true)];

const WITH_SECRET: &[(&str, &str, bool)] = &[ALL[0], ALL[1], ("secret", "KEY", true)];

guest::tools!(
    tool("fetch", |args| structured(&once(args.all()))).needs(ALL),
    // Sends each request of the list `all` in order.
    tool("fetch_all", |args| {
        let all = args.all()["all"].as_array().cloned().unwrap_or_default();
        structured(&json!({ "all": all.iter().map(once).collect::<Vec<_>>() }))
    })
    .needs(ALL),
    // Sends the same request `n` times. Returns the last response and the number of successes.
    tool("repeat", repeat).needs(ALL),
    // Like `fetch`, with the secret `KEY` in place of `{KEY}`.
    tool("fetch_secret", |args| {
        let key = secrets::get("KEY").map(|secret| secret.text).unwrap_or_default();
        structured(&once(&args.all().to_string().replace("{KEY}", &key).parse().unwrap()))
    })
    .needs(WITH_SECRET),
    tool("undeclared", |args| structured(&once(args.all()))),
    tool("must", |args| structured(&once(args.all()))).needs(&[(
        "net",
        "GET https://api.example.com",
        false
    )]),
);

fn repeat(args: &Args) -> Answer {
    let mut good = 0;
    let mut last = Value::Null;
    for _ in 0..args.number("n", 1) {
        last = once(args.all());
        good += u64::from(last.get("error").is_none());
    }
    structured(&json!({ "good": good, "last": last }))
}

fn once(args: &Value) -> Value {
    let text = |key: &str| args[key].as_str();
    let headers = args["headers"].as_array().into_iter().flatten();
    let body = args["body_bytes"].as_u64().map(|n| vec![b'x'; n as usize]);
    let request = HttpRequest {
        method: text("method").unwrap_or("GET").to_owned(),
        url: text("url").unwrap_or_default().to_owned(),
        headers: headers
            .map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().unwrap().to_owned()))
            .collect(),
        body: text("body").map(|body| body.as_bytes().to_vec()).or(body),
        timeout_ms: args["timeout_ms"].as_u64().map(|n| n as u32),
        max_response_bytes: args["max"].as_u64(),
    };
    match fetch(&request) {
        Ok(response) => json!({
            "status": response.status,
            "url": response.url,
            "headers": response.headers,
            "len": response.body.len(),
            "body": String::from_utf8_lossy(&response.body[..response.body.len().min(4000)]),
            "truncated": response.truncated,
        }),
        Err(HttpError::Denied(message)) => json!({ "error": "denied", "message": message }),
        Err(HttpError::InvalidRequest(message)) => json!({ "error": "invalid-request", "message": message }),
        Err(HttpError::Timeout) => json!({ "error": "timeout" }),
        Err(HttpError::Cancelled) => json!({ "error": "cancelled" }),
        Err(HttpError::Transport(message)) => json!({ "error": "transport", "message": message }),
    }
}
