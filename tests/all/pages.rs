//! The Rust that pages show, as they show it: a test of the documentation compares.

use std::time::Duration;

use integration_tests::TestHost;

#[tokio::test]
async fn a_bridge_in_the_library() {
    let host = TestHost::empty("").host.clone();
    #[rustfmt::skip]
    let bridge = {
        let bridge = toolbay_mcp::Bridge::new(host.registry().clone(), host.outside());
        bridge.apply(&host.policy());                        // again whenever the policy changes
        bridge.settled(Duration::from_secs(30)).await;       // or do not wait: events tell what comes
        bridge
    };
    assert!(bridge.status().is_empty(), "no server is named");
}

#[rustfmt::skip]
#[test]
fn guests_are_constants() -> anyhow::Result<()> {
    let echo = std::fs::read(guest_artifacts::API_ECHO)?;     // tests/guests/examples/api_echo.rs
    let text = std::fs::read(guest_artifacts::PLUGIN_TEXT)?;  // plugins/text
    let plugins = guest_artifacts::plugins_dir();             // a folder with the first-party plugins only
    for (name, path) in guest_artifacts::ALL_GUESTS { assert!(path.contains(name)); }
    assert!(echo.starts_with(b"\0asm") && text.starts_with(b"\0asm") && std::path::Path::new(plugins).join("text.wasm").exists());
    Ok(())
}

#[tokio::test]
async fn the_guest_that_the_development_page_adds_is_a_plugin() {
    let host = TestHost::new(&[("shout", guest_artifacts::API_SHOUT)], "").await;
    let delivered = host.call("shout__shout", serde_json::json!({"text": "grün"})).await;
    assert_eq!(integration_tests::value(&delivered), "GRÜN");
}
