//! Reading the web and talking to it.
//!
//! The two tools differ in what they may do, which is why they are two: `fetch_url` only reads, `http_request` sends
//! anything anywhere that the operator granted. What comes back was written by others, and both say so.

mod address;
mod charset;
mod fetch;
mod markdown;
mod request;

use toolbay_sdk::prelude::*;

pub use fetch::{Page, fetch_url};
pub use request::{Reply, http_request};

plugin! { tools: [fetch_url, http_request] }
