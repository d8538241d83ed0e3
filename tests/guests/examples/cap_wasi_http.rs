//! HTTP through `wasi:http`, like a component that was not written for Toolbay.

use guest::host::secrets;
use guest::wasip2::http::outgoing_handler::handle;
use guest::wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, Method, OutgoingBody, OutgoingRequest,
    RequestOptions, Scheme,
};
use guest::wasip2::io::streams::StreamError;
use guest::{Answer, Args, Value, json, structured, tool};

const ALL: &[(&str, &str, bool)] = &[("net", "https://*:*", true), ("net", "http://*:*", true)];

const WITH_SECRET: &[(&str, &str, bool)] = &[ALL[0], ALL[1], ("secret", "KEY", true)];

guest::tools!(
    tool("fetch", |args| structured(&match fetch(args.all()) {
        Ok(value) => value,
        Err(error) => json!({ "error": error }),
    }))
    .needs(ALL),
    tool("fetch_secret", fetch_secret).needs(WITH_SECRET),
    // Starts `n` requests, then returns each outcome.
    tool("at_once", at_once).needs(ALL),
    // Starts requests and drops them, without end.
    tool("start_and_drop", |args| loop {
        drop(std::hint::black_box(start(args.all())));
    })
    .needs(ALL),
    // Header fields that the host refuses.
    tool("fields", fields).needs(ALL),
    tool("grow_fields", grow_fields).needs(ALL),
    // Writes empty chunks to a body, repeatedly.
    tool("empty_writes", empty_writes).needs(ALL),
    tool("undeclared", |args| structured(&match fetch(args.all()) {
        Ok(value) => value,
        Err(error) => json!({ "error": error }),
    })),
);

fn shown(error: &ErrorCode) -> String {
    format!("{error:?}")
}

fn request(args: &Value) -> Result<OutgoingRequest, String> {
    let headers = Fields::new();
    for pair in args["headers"].as_array().into_iter().flatten() {
        let (name, value) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
        headers.append(name, value.as_bytes()).map_err(|e| format!("{e:?}"))?;
    }
    let request = OutgoingRequest::new(headers);
    let method = match args["method"].as_str().unwrap_or("GET") {
        "GET" => Method::Get,
        "POST" => Method::Post,
        other => Method::Other(other.to_owned()),
    };
    request.set_method(&method).map_err(|()| "method".to_owned())?;
    let scheme = match args["scheme"].as_str().unwrap_or("http") {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_owned()),
    };
    request.set_scheme(Some(&scheme)).map_err(|()| "scheme".to_owned())?;
    request.set_authority(args["authority"].as_str()).map_err(|()| "authority".to_owned())?;
    request.set_path_with_query(args["path"].as_str()).map_err(|()| "path".to_owned())?;
    Ok(request)
}

fn start(args: &Value) -> Result<(FutureIncomingResponse, Option<OutgoingBody>), String> {
    let request = request(args)?;
    let body = request.body().ok();
    let options = RequestOptions::new();
    if let Some(ms) = args["first_byte_ms"].as_u64() {
        options.set_first_byte_timeout(Some(ms * 1_000_000)).ok();
    }
    if let Some(ms) = args["between_bytes_ms"].as_u64() {
        options.set_between_bytes_timeout(Some(ms * 1_000_000)).ok();
    }
    let response = handle(request, Some(options)).map_err(|e| shown(&e))?;
    Ok((response, body))
}

fn fetch(args: &Value) -> Result<Value, String> {
    let (response, body) = start(args)?;
    let mut written = Ok(());
    if let Some(body) = body {
        if let Some(n) = args["body_bytes"].as_u64() {
            written = write(&body, n);
        }
        if !args["unfinished"].as_bool().unwrap_or(false)
            && let Err(error) = OutgoingBody::finish(body, None)
        {
            written = written.and(Err(shown(&error)));
        }
    }
    let mut value = receive(&response)?;
    value["written"] = json!(written.err());
    Ok(value)
}

fn write(body: &OutgoingBody, n: u64) -> Result<(), String> {
    let stream = body.write().map_err(|()| "no stream".to_owned())?;
    let chunk = vec![b'x'; 4096];
    let mut left = n as usize;
    while left > 0 {
        let part = left.min(chunk.len());
        stream.blocking_write_and_flush(&chunk[..part]).map_err(|e| format!("{e:?}"))?;
        left -= part;
    }
    Ok(())
}

fn receive(response: &FutureIncomingResponse) -> Result<Value, String> {
    response.subscribe().block();
    let response = response.get().unwrap().unwrap().map_err(|e| shown(&e))?;
    let headers: Vec<_> = response
        .headers()
        .entries()
        .into_iter()
        .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
        .collect();
    let body = response.consume().unwrap();
    let stream = body.stream().unwrap();
    let (mut len, mut text, mut broken) = (0, Vec::new(), None);
    loop {
        match stream.blocking_read(65536) {
            Ok(part) => {
                len += part.len();
                text.extend(part.into_iter().take(4000_usize.saturating_sub(text.len())));
            }
            Err(StreamError::Closed) => break,
            Err(error) => {
                broken = Some(format!("{error:?}"));
                break;
            }
        }
    }
    drop(stream);
    drop(IncomingBody::finish(body));
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(json!({ "status": response.status(), "headers": headers, "len": len, "body": text, "broken": broken }))
}

/// Opens the streams that `early` names, fetches with the secret `KEY` in place of `{KEY}`, then reads the streams.
fn fetch_secret(args: &Args) -> Answer {
    let open = |args: &Value| {
        let (response, body) = start(args)?;
        drop(body.map(|body| OutgoingBody::finish(body, None)));
        response.subscribe().block();
        Ok::<_, String>(response)
    };
    let failed = |error: String| json!({ "error": error });
    let early = args.all().get("early").map(open);
    let key = secrets::get("KEY").map(|secret| secret.text).unwrap_or_default();
    let said = fetch(&args.all().to_string().replace("{KEY}", &key).parse().unwrap()).unwrap_or_else(failed);
    let early = early.map(|early| early.and_then(|response| receive(&response)).unwrap_or_else(failed));
    structured(&json!({ "said": said, "early": early }))
}

fn at_once(args: &Args) -> Answer {
    let started: Vec<_> = (0..args.number("n", 1)).map(|_| start(args.all())).collect();
    let all: Vec<Value> = started
        .into_iter()
        .map(|one| {
            let (response, body) = one?;
            drop(body.map(|body| OutgoingBody::finish(body, None)));
            response.subscribe().block();
            response.get().unwrap().unwrap().map_err(|e| shown(&e))
        })
        // All stay open until the last one exists.
        .collect::<Vec<Result<_, String>>>()
        .into_iter()
        .map(|one| {
            one.map_or_else(|e| json!({ "error": e }), |response| json!({ "status": response.status() }))
        })
        .collect();
    structured(&json!({ "all": all }))
}

fn fields(args: &Args) -> Answer {
    let fields = Fields::new();
    let all = args.all()["all"].as_array().cloned().unwrap_or_default();
    let said: Vec<_> = all
        .iter()
        .map(|pair| {
            let (name, value) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
            fields.append(name, value.as_bytes()).map_err(|e| format!("{e:?}")).err()
        })
        .collect();
    structured(&json!({ "said": said }))
}

/// Adds `n` fields of `size` bytes to each of `maps` maps.
fn grow_fields(args: &Args) -> Answer {
    let value = vec![b'x'; args.number("size", 1000) as usize];
    let mut maps = Vec::new();
    let mut added = 0_u64;
    for _ in 0..args.number("maps", 1) {
        let fields = Fields::new();
        for n in 0..args.number("n", 100_000) {
            if fields.append(&format!("x-{n}"), &value).is_ok() {
                added += 1;
            }
        }
        maps.push(fields);
    }
    structured(&json!({ "added": added }))
}

fn empty_writes(args: &Args) -> Answer {
    let (response, body) = start(args.all()).unwrap();
    let body = body.unwrap();
    let stream = body.write().unwrap();
    for _ in 0..args.number("n", 1_000_000) {
        if matches!(stream.check_write(), Ok(0)) {
            stream.subscribe().block();
        }
        if stream.write(&[]).is_err() {
            break;
        }
    }
    drop(stream);
    drop(OutgoingBody::finish(body, None));
    structured(&receive(&response).unwrap_or_else(|e| json!({ "error": e })))
}
