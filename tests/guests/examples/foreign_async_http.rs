//! A component that sends a request through `wasi:http` 0.3, and reads the answer as a stream.

wit_bindgen::generate!({
    inline: r#"
        package stranger:fetcher;

        world fetcher {
            import wasi:http/client@0.3.0;
            export fetch: async func(authority: string, path: string, body: option<string>) -> result<string, string>;
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
                }
                type headers = fields;
                type trailers = fields;
                resource request-options {
                    constructor();
                }
                resource request {
                    new: static func(headers: headers, contents: option<stream<u8>>, trailers: future<result<option<trailers>, error-code>>, options: option<request-options>) -> tuple<request, future<result<_, error-code>>>;
                    set-method: func(method: method) -> result;
                    set-path-with-query: func(path-with-query: option<string>) -> result;
                    set-scheme: func(scheme: option<scheme>) -> result;
                    set-authority: func(authority: option<string>) -> result;
                }
                resource response {
                    get-status-code: func() -> u16;
                    consume-body: static func(this: response, res: future<result<_, error-code>>) -> tuple<stream<u8>, future<result<option<trailers>, error-code>>>;
                }
            }
            interface client {
                use types.{request, response, error-code};
                send: async func(request: request) -> result<response, error-code>;
            }
        }
    "#,
    generate_all,
});

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use wasi::http::client::send;
use wasi::http::types::{Fields, Method, Request, Response, Scheme};

struct Fetcher;

/// Runs two futures at the same time.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            second = Some(value);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    first.zip(second).expect("both are ready")
}

impl Guest for Fetcher {
    async fn fetch(authority: String, path: String, body: Option<String>) -> Result<String, String> {
        let method = if body.is_some() { Method::Post } else { Method::Get };
        let (writer, contents) = match body {
            Some(_) => {
                let (writer, reader) = wit_stream::new();
                (Some(writer), Some(reader))
            }
            None => (None, None),
        };
        let (trailers, no_trailers) = wit_future::new(|| Ok(None));
        let (request, sent) = Request::new(Fields::new(), contents, no_trailers, None);
        request.set_method(&method).expect("the method is known");
        request.set_scheme(Some(&Scheme::Http)).expect("the scheme is known");
        request.set_authority(Some(&authority)).map_err(|()| "no authority".to_owned())?;
        request.set_path_with_query(Some(&path)).map_err(|()| "no path".to_owned())?;
        drop(trailers);
        // The host reads the body while it sends the request.
        let write = async move {
            if let (Some(mut writer), Some(body)) = (writer, body) {
                writer.write_all(body.into_bytes()).await;
            }
        };
        let (response, ()) = both(send(request), write).await;
        let response = response.map_err(|error| format!("{error:?}"))?;
        let status = response.get_status_code();
        let (done, is_done) = wit_future::new(|| Ok(()));
        let (text, _) = Response::consume_body(response, is_done);
        let text = text.collect().await;
        drop((done, sent));
        Ok(format!("{status}: {}", String::from_utf8_lossy(&text)))
    }
}

export!(Fetcher);
