//! The built component in the host, with recorded pages.

use serde_json::json;
use toolbay_testing::{TestHost, TestHostBuilder};

fn web() -> TestHostBuilder {
    TestHost::of_file("web", guest_artifacts::PLUGIN_WEB)
}

#[test]
fn a_recorded_page_is_read_as_markdown() {
    let host = web().allow_net("https://docs.example.com").recorded_http("tests/http/page.json").start();
    // Through a redirect, which the record has, too.
    let page = host.call("fetch_url", json!({"url": "https://docs.example.com/start"}));
    assert!(page.text().starts_with("# Getting started"), "{}", page.text());
    page.golden("page");
    let gone = host.call("fetch_url", json!({"url": "https://docs.example.com/gone"}));
    assert_eq!(gone.error().subject.as_deref(), Some("404"));
}

#[test]
fn the_policy_is_asked_before_the_record() {
    let host =
        web().allow_net("https://docs.example.com/guide").recorded_http("tests/http/page.json").start();
    // Recorded but not granted; nor is the target of the redirect, if only its start is granted.
    for url in ["https://docs.example.com/start", "http://docs.example.com/guide"] {
        let refused = host.call("fetch_url", json!({"url": url}));
        assert_eq!(refused.error().subject.as_deref(), Some("denied"), "{url}");
    }
}

#[test]
fn a_search_sends_the_secret_and_the_record_does_not_know_it() {
    let host = web()
        .allow_net("https://search.example.com")
        .secret("web/api", "canary-0123456789", "https://search.example.com")
        .config(
            "search",
            json!({"url": "https://search.example.com/find?q={query}", "secret": "api", "header": "authorization"}),
        )
        .recorded_http("tests/http/search.json")
        .start();
    host.call("web_search", json!({"query": "small dogs"})).golden("search");
}

#[test]
#[should_panic(expected = "has no response (left) to `GET https://docs.example.com/other`")]
fn a_request_that_is_not_in_the_record_ends_the_test() {
    let host = web().allow_net("https://docs.example.com").recorded_http("tests/http/page.json").start();
    drop(host.call("fetch_url", json!({"url": "https://docs.example.com/other"})));
}
