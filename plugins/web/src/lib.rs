//! Reading the web and talking to it.
//!
//! The tools differ in what they may do, which is why they are several: `fetch_url` only reads, `web_search` asks the one
//! provider of the operator, `http_request` sends anything anywhere that the operator granted. What comes back was written
//! by others, and all say so.

mod address;
mod charset;
mod fetch;
mod markdown;
mod request;
mod search;

use toolbay_sdk::prelude::*;

pub use fetch::{Page, fetch_url};
pub use request::{Reply, http_request};
pub use search::{Hits, Provider, web_search};

/// What the operator may set.
#[data]
#[derive(Debug)]
pub struct Settings {
    /// Whom `web_search` asks; without it, that tool is not available.
    pub search: Option<Provider>,
}

/// Searching needs to know whom to ask.
fn available(tool: &str) -> std::result::Result<(), String> {
    if tool == "web_search" { search::available() } else { Ok(()) }
}

plugin! { tools: [fetch_url, web_search, http_request], available: available, config: Settings }
