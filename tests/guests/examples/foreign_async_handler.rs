//! A component that handles HTTP: `wasi:http/handler` of WASI 0.3. The path selects its behaviour.

wit_bindgen::generate!({
    inline: r#"
        package stranger:service;

        world service {
            export wasi:http/handler@0.3.0;
        }

        package wasi:http@0.3.0 {
            interface types {
                type duration = u64;
                variant method { get, head, post, put, delete, connect, options, trace, patch, other(string) }
                variant scheme { HTTP, HTTPS, other(string) }
                record DNS-error-payload { rcode: option<string>, info-code: option<u16> }
                record TLS-alert-received-payload { alert-id: option<u8>, alert-message: option<string> }
                record field-size-payload { field-name: option<string>, field-size: option<u32> }
                variant error-code {
                    DNS-timeout, DNS-error(DNS-error-payload), destination-not-found, destination-unavailable,
                    destination-IP-prohibited, destination-IP-unroutable, connection-refused,
                    connection-terminated, connection-timeout, connection-read-timeout, connection-write-timeout,
                    connection-limit-reached, TLS-protocol-error, TLS-certificate-error,
                    TLS-alert-received(TLS-alert-received-payload), HTTP-request-denied,
                    HTTP-request-length-required, HTTP-request-body-size(option<u64>),
                    HTTP-request-method-invalid, HTTP-request-URI-invalid, HTTP-request-URI-too-long,
                    HTTP-request-header-section-size(option<u32>),
                    HTTP-request-header-size(option<field-size-payload>),
                    HTTP-request-trailer-section-size(option<u32>), HTTP-request-trailer-size(field-size-payload),
                    HTTP-response-incomplete, HTTP-response-header-section-size(option<u32>),
                    HTTP-response-header-size(field-size-payload), HTTP-response-body-size(option<u64>),
                    HTTP-response-trailer-section-size(option<u32>), HTTP-response-trailer-size(field-size-payload),
                    HTTP-response-transfer-coding(option<string>), HTTP-response-content-coding(option<string>),
                    HTTP-response-timeout, HTTP-upgrade-failed, HTTP-protocol-error, loop-detected,
                    configuration-error, internal-error(option<string>),
                }
                resource fields {
                    constructor();
                    copy-all: func() -> list<tuple<string, list<u8>>>;
                }
                type headers = fields;
                type trailers = fields;
                resource request {
                    get-method: func() -> method;
                    get-path-with-query: func() -> option<string>;
                    get-scheme: func() -> option<scheme>;
                    get-authority: func() -> option<string>;
                    get-headers: func() -> headers;
                    consume-body: static func(this: request, res: future<result<_, error-code>>) -> tuple<stream<u8>, future<result<option<trailers>, error-code>>>;
                }
                resource response {
                    new: static func(headers: headers, contents: option<stream<u8>>, trailers: future<result<option<trailers>, error-code>>) -> tuple<response, future<result<_, error-code>>>;
                    set-status-code: func(status-code: u16) -> result;
                }
            }
            interface handler {
                use types.{request, response, error-code};
                handle: async func(request: request) -> result<response, error-code>;
            }
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
