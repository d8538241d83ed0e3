//! Fetches one URL repeatedly, without a JSON library.

use guest::host::http_client::{HttpRequest, fetch};
use guest::{Answer, raw_tool, text};

guest::tools!(raw_tool("fetch", run).needs(&[("net", "http://*:*", false)]));

/// The arguments are `{"url":"…","n":…}`, in this order and without white space.
fn run(args: String) -> Answer {
    let (_, rest) = args.split_once("\"url\":\"").unwrap();
    let (url, rest) = rest.split_once("\",\"n\":").unwrap();
    let n: u32 = rest.trim_end_matches('}').parse().unwrap();
    let mut bytes = 0;
    for _ in 0..n {
        let request = HttpRequest {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: None,
            timeout_ms: None,
            max_response_bytes: None,
        };
        bytes += fetch(&request).unwrap().body.len();
    }
    text(bytes.to_string())
}
