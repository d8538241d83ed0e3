//! HTTP of the fake host: responses by method and URL.

use std::collections::BTreeMap;

use crate::bindings::imports::toolbay::plugin::http_client::HttpError;
use crate::http::Response;

pub use crate::bindings::imports::toolbay::plugin::http_client::HttpRequest as Request;

/// The prepared responses and the received requests.
#[derive(Debug, Default)]
pub(crate) struct FakeHttp {
    answers: BTreeMap<(String, String), Response>,
    requests: Vec<Request>,
}

impl FakeHttp {
    pub(crate) fn answer(&mut self, method: &str, url: &str, mut response: Response) {
        if response.url.is_empty() {
            url.clone_into(&mut response.url);
        }
        self.answers.insert((method.to_owned(), url.to_owned()), response);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.clone()
    }

    pub(crate) fn fetch(&mut self, request: &Request) -> Result<Response, HttpError> {
        self.requests.push(request.clone());
        let mut response = match self.answers.get(&(request.method.clone(), request.url.clone())) {
            Some(response) => response.clone(),
            None => {
                let message = format!("the fake host has no answer to {} {}", request.method, request.url);
                return Err(HttpError::Denied(message));
            }
        };
        let most = request.max_response_bytes.and_then(|most| usize::try_from(most).ok());
        if let Some(most) = most.filter(|most| *most < response.body.len()) {
            response.body.truncate(most);
            response.truncated = true;
        }
        Ok(response)
    }
}

/// Creates a response. Its URL is that of the request, unless you set another.
pub fn reply(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Response {
    let headers = match content_type {
        "" => Vec::new(),
        content_type => vec![("content-type".to_owned(), content_type.to_owned())],
    };
    Response { status, url: String::new(), headers, body: body.as_ref().to_vec(), truncated: false }
}
