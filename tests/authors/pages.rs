//! Compares the Rust code on pages of the documentation with the compiled examples.

use std::path::{Path, PathBuf};
use std::time::Duration;

use integration_tests::TestHost;

#[tokio::test]
async fn a_bridge_in_the_library() {
    let host = TestHost::empty("").host.clone();
    #[rustfmt::skip]
    let bridge = {
        let bridge = host.mcp_bridge();
        bridge.apply(&host.policy());                        // again whenever the policy changes
        bridge.wait_settled(Duration::from_secs(30)).await;       // or do not wait: events tell what comes
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
    assert!(echo.starts_with(b"\0asm") && text.starts_with(b"\0asm") && Path::new(plugins).join("text.wasm").exists());
    Ok(())
}

#[tokio::test]
async fn the_guest_that_the_development_page_adds_is_a_plugin() {
    let host = TestHost::new(&[("shout", guest_artifacts::API_SHOUT)], "").await;
    let delivered = host.call("shout__shout", serde_json::json!({"text": "grün"})).await;
    assert_eq!(integration_tests::value(&delivered), "GRÜN");
}

/// All pages below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect()
}

/// Every policy of the book that grants programs to the first-party plugin `git` makes its tools callable.
#[tokio::test]
async fn every_grant_for_git_in_the_book_fits_its_tools() {
    let mut grants = 0;
    for path in pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let policies = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for policy in policies.filter(|policy| policy.contains("[plugins.git.grant]\nprocess")) {
            let policy = policy.replace("version = 1\n", "");
            let host = TestHost::new(&[("git", guest_artifacts::PLUGIN_GIT)], &policy).await;
            let view = host.host.view(toolbay::Filter::default());
            for tool in ["git__status", "git__log", "git__diff"] {
                let found = view.find(tool);
                assert!(found.is_ok(), "{}: {:?}\n{policy}", path.display(), found.err());
            }
            grants += 1;
        }
    }
    assert!(grants > 0, "no page grants programs to `git`");
}
