//! A component that handles HTTP: `wasi:http/incoming-handler` of WASI 0.2. The path selects its behaviour.

use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam};
use wasip2::io::streams::StreamError;

struct Service;

impl Guest for Service {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let target = request.path_with_query().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let (status, text) = match path {
            "/echo" => (200, format!("{:?} {query} {}", request.method(), read(&request))),
            "/json" => (200, format!(r#"{{"got": {}}}"#, read(&request))),
            "/host" => (200, format!("{:?} {:?}", request.scheme(), request.authority())),
            "/headers" => {
                let all = request.headers().entries();
                let line =
                    |(name, value): (String, Vec<u8>)| format!("{name}: {}", String::from_utf8_lossy(&value));
                (200, all.into_iter().map(line).collect::<Vec<_>>().join("\n"))
            }
            "/unfinished" => (200, "a part".to_owned()),
            "/flood" => (200, "x".repeat(query.trim_end_matches('=').parse().unwrap_or_default())),
            "/silent" => return,
            "/forgotten" => return std::mem::forget(out),
            "/trap" => panic!("as asked"),
            "/spin" => loop {
                std::hint::spin_loop();
            },
            _ => (404, format!("nothing is at {path}")),
        };
        let response = OutgoingResponse::new(Fields::new());
        response.set_status_code(status).expect("the status is valid");
        let body = response.body().expect("the body is taken once");
        ResponseOutparam::set(out, Ok(response));
        let stream = body.write().expect("the stream is taken once");
        for chunk in text.as_bytes().chunks(4096) {
            stream.blocking_write_and_flush(chunk).expect("the host reads the body");
        }
        if path == "/unfinished" {
            return std::mem::forget((stream, body));
        }
        drop(stream);
        OutgoingBody::finish(body, None).expect("the body is complete");
    }
}

fn read(request: &IncomingRequest) -> String {
    let body = request.consume().expect("the body is taken once");
    let stream = body.stream().expect("the stream is taken once");
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(more) => bytes.extend(more),
            Err(StreamError::Closed) => return String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

wasip2::http::proxy::export!(Service);
