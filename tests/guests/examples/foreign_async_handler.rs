//! A component that handles HTTP: `wasi:http/handler` of WASI 0.3. The path selects its behaviour.

wit_bindgen::generate!({
    path: "wit/http.wit",
    inline: r#"
        package stranger:service;

        world service {
            export wasi:http/handler@0.3.0;
        }
    "#,
    generate_all,
});

use exports::wasi::http::handler::Guest;
use wasi::http::types::{ErrorCode, Fields, Request, Response};

struct Service;

impl Guest for Service {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let target = request.get_path_with_query().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let (status, text) = match path {
            "/echo" => (200, format!("{:?} {query} {}", request.get_method(), read(request).await)),
            "/json" => (200, format!(r#"{{"got": {}}}"#, read(request).await)),
            "/host" => (200, format!("{:?} {:?}", request.get_scheme(), request.get_authority())),
            "/headers" => {
                let all = request.get_headers().copy_all();
                let line =
                    |(name, value): (String, Vec<u8>)| format!("{name}: {}", String::from_utf8_lossy(&value));
                (200, all.into_iter().map(line).collect::<Vec<_>>().join("\n"))
            }
            "/flood" => (200, "x".repeat(query.trim_end_matches('=').parse().unwrap_or_default())),
            "/silent" => return Err(ErrorCode::InternalError(Some("no response".to_owned()))),
            "/unfinished" => return Ok(respond(200, None)),
            "/trap" => panic!("as asked"),
            "/spin" => loop {
                std::hint::spin_loop();
            },
            _ => (404, format!("nothing is at {path}")),
        };
        Ok(respond(status, Some(text)))
    }
}

/// A response. Without a text, its body never ends.
fn respond(status: u16, text: Option<String>) -> Response {
    let (mut writer, contents) = wit_stream::new();
    let (trailers, no_trailers) = wit_future::new(|| Ok(None));
    drop(trailers);
    let (response, _sent) = Response::new(Fields::new(), Some(contents), no_trailers);
    response.set_status_code(status).expect("the status is valid");
    match text {
        // The host reads the body after it has the response.
        Some(text) => wit_bindgen::spawn_local(async move {
            writer.write_all(text.into_bytes()).await;
        }),
        None => std::mem::forget(writer),
    }
    response
}

async fn read(request: Request) -> String {
    let (done, is_done) = wit_future::new(|| Ok(()));
    let (text, _) = Request::consume_body(request, is_done);
    let text = text.collect().await;
    drop(done);
    String::from_utf8_lossy(&text).into_owned()
}

export!(Service);
