//! Tools that read web pages and send HTTP requests.
//!
//! The tools are separate because they need different grants: `fetch_url` only reads, `web_search` queries the operator's
//! provider, `http_request` sends anything to any granted host. All results are untrusted, and the tools declare
//! that.

mod address;
mod charset;
mod fetch;
mod markdown;
mod request;
mod search;

use toolbay_sdk::prelude::*;

pub use fetch::{FetchedPage, fetch_url};
pub use request::{FetchReply, http_request};
pub use search::{Provider, WebHits, web_search};

/// The operator's settings.
#[data]
#[derive(Debug)]
pub struct WebSettings {
    /// The provider of `web_search`. Without it, the tool is unavailable.
    pub search: Option<Provider>,
}

/// `web_search` needs a provider.
fn available(tool: &str) -> std::result::Result<(), String> {
    if tool == "web_search" { search::available() } else { Ok(()) }
}

plugin! { tools: [fetch_url, web_search, http_request], available: available, config: WebSettings }
