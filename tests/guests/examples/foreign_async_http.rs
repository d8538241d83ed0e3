//! A component that sends a request through `wasi:http` 0.3, and reads the answer as a stream.

wit_bindgen::generate!({
    path: "wit/http.wit",
    inline: r#"
        package stranger:fetcher;

        world fetcher {
            import wasi:http/client@0.3.0;
            export fetch: async func(authority: string, path: string, body: option<string>) -> result<string, string>;
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
