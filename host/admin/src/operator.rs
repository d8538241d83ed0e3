//! Who sends a request.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use toolbay_policy::excerpt::one_line;

use crate::session::SessionKey;
use crate::tokens::{MAX_NAME, Role};

/// The header in which the command line names its user.
pub(crate) const OPERATOR_HEADER: &str = "toolbay-operator";

/// The person or program that sends a request.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    /// The name in the audit.
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    /// The session of a browser.
    pub(crate) session: Option<SessionKey>,
}

/// Names the user of the control socket, who may do everything.
pub(crate) async fn identify(mut request: Request, next: Next) -> Response {
    let name = request.headers().get(OPERATOR_HEADER).map(|name| String::from_utf8_lossy(name.as_bytes()));
    let name = name.map_or_else(|| "unnamed".to_owned(), |name| one_line(&name, MAX_NAME));
    let operator = Operator { name: name.into(), role: Role::Operate, session: None };
    request.extensions_mut().insert(operator);
    next.run(request).await
}
