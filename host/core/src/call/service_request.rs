//! Requests to a service that an OpenAPI document describes: what the tools of the service build, and the host's HTTP client
//! sends. Neither knows the other.

use std::fmt;

use url::Url;

/// A request of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRequest {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// The complete URL, without additions of the credentials.
    pub url: String,
    /// Header fields by name. Values have no control characters.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Vec<u8>>,
    /// Secrets by name, each with its location in the request.
    pub credentials: Vec<Credential>,
}

/// A secret of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The name in the policy.
    pub secret: String,
    /// The location of its value.
    pub placement: Placement,
}

/// The location of a secret's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// A header field, with a prefix of the value.
    Header {
        /// The name of the field.
        name: String,
        /// `Bearer ` or empty.
        prefix: String,
    },
    /// `Authorization: Basic`, from a value `user:password`.
    Basic,
    /// A query parameter.
    Query(String),
    /// A cookie.
    Cookie(String),
}

/// A response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceResponse {
    /// The status code.
    pub status: u16,
    /// Header fields with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The decoded body.
    pub body: Vec<u8>,
    /// Whether the body was truncated.
    pub truncated: bool,
}

impl ServiceResponse {
    /// The first field with this lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// The routes of the included operations of a service.
pub trait ServiceRoutes: Send + Sync + fmt::Debug {
    /// Whether a request belongs to an included operation.
    fn includes(&self, method: &str, url: &Url) -> bool;
}
