//! HTTP through the host's policy, one buffered exchange at a time.
//!
//! `http::get(url).header("accept", "application/json").send()?.ok()?.json()?`

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::imports::toolbay::plugin::http_client::HttpRequest;
use crate::host::http_client as host;
use crate::{Error, Result, host_errors};

pub use crate::bindings::imports::toolbay::plugin::http_client::HttpResponse as Response;

/// A request under construction.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request(HttpRequest);

/// Starts a `GET` request.
pub fn get(url: impl Into<String>) -> Request {
    request("GET", url)
}

/// Starts a `POST` request.
pub fn post(url: impl Into<String>) -> Request {
    request("POST", url)
}

/// Starts a request with any method.
pub fn request(method: &str, url: impl Into<String>) -> Request {
    Request(HttpRequest {
        method: method.to_owned(),
        url: url.into(),
        headers: Vec::new(),
        body: None,
        timeout_ms: None,
        max_response_bytes: None,
    })
}

impl Request {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.0.body = Some(body.into());
        self
    }

    /// Sets a JSON body and its content type.
    pub fn json(self, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(body)?;
        Ok(self.header("content-type", "application/json").body(body))
    }

    /// Sets the timeout of the exchange.
    pub fn timeout_ms(mut self, timeout_ms: u32) -> Self {
        self.0.timeout_ms = Some(timeout_ms);
        self
    }

    /// Sets the size limit of the response's body.
    pub fn max_response_bytes(mut self, max_response_bytes: u64) -> Self {
        self.0.max_response_bytes = Some(max_response_bytes);
        self
    }

    /// Sends the request. A response of any status is `Ok`; see [`Response::ok`].
    pub fn send(self) -> Result<Response> {
        host::fetch(&self.0).map_err(|error| host_errors::http_client(&self.0.url, error))
    }
}

impl Response {
    /// Returns the response if its status is 2xx, otherwise an error with the status.
    pub fn ok(self) -> Result<Self> {
        match self.status {
            200..300 => Ok(self),
            status => {
                Err(Error::failed(format!("`{}` answered with status {status}", self.url))
                    .at(status.to_string()))
            }
        }
    }

    /// Returns the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Returns the body as text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Parses the body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}
