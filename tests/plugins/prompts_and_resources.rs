//! Prompts, resources and icons of a plugin.

use std::collections::BTreeMap;
use std::path::Path;

use integration_tests::TestHost;
use toolbay::core::tool::prompts_and_resources::SECTION;
use toolbay::{Filter, HostBuilder, PluginId};

fn id() -> PluginId {
    PluginId::new("shelf").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_finds_metadata_embedded_by_the_sdk() {
    let cache = tempfile::tempdir().unwrap();
    let host = TestHost::empty_with("", |builder| builder.cache_dir(cache.path().join("cache")));
    for is_cached in [false, true] {
        host.host.load_file(id(), Path::new(guest_artifacts::API_EVERYTHING)).await.unwrap();
        let plugin = host.host.plugin("shelf").unwrap();
        assert_eq!(plugin.from_cache, is_cached);
        let document = plugin.prompts_and_resources.unwrap();
        assert_eq!(document.prompts.len(), 6);
        let view = host.host.view(Filter::default());
        let offers = view.prompts_and_resources();
        let [offers] = offers.as_slice() else { panic!("{offers:?}") };
        assert!(offers.prompts.contains_key("shelf__test_simple_prompt"), "{:?}", offers.prompts.keys());
        let (uri, guide) = offers.resource_at("guide/start.md").unwrap();
        assert_eq!(uri, "toolbay://plugin/shelf/guide/start.md");
        assert_eq!(guide.mime_type.as_deref(), Some("text/markdown"), "by the file's name");
        assert!(guide.text.as_deref().unwrap().starts_with("# Guide"));
        let (_, picture) = offers.resource_at("static-binary").unwrap();
        assert_eq!((picture.size(), picture.mime_type.as_deref()), (69, Some("image/png")));
        assert!(offers.icons("test_image_content")[0].src.starts_with("data:image/png;base64,"));
        assert!(offers.icons("test_simple_text").is_empty());
        let prompt = &offers.prompts["shelf__test_prompt_with_arguments"];
        let given =
            BTreeMap::from([("arg1".to_owned(), "a".to_owned()), ("arg2".to_owned(), "b".to_owned())]);
        assert!(format!("{:?}", prompt.fill(&given).unwrap()).contains("arg1='a', arg2='b'"));
    }
    assert!(host.host.unload(&id()));
    assert!(host.host.view(Filter::default()).prompts_and_resources().is_empty());
}

/// A component with an additional section.
fn with_section(text: &[u8]) -> Vec<u8> {
    let mut bytes = std::fs::read(guest_artifacts::API_ECHO).unwrap();
    let length = |mut n: usize| {
        let mut out = vec![];
        loop {
            let byte = u8::try_from(n & 0x7f).unwrap();
            n >>= 7;
            out.push(if n > 0 { byte | 0x80 } else { byte });
            if n == 0 {
                return out;
            }
        }
    };
    let mut body = length(SECTION.len());
    body.extend(SECTION.as_bytes());
    body.extend(text);
    bytes.push(0);
    bytes.extend(length(body.len()));
    bytes.extend(body);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_section_can_be_added_to_any_component_and_must_be_right() {
    let host = TestHost::empty_with("", HostBuilder::no_cache);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shelf.wasm");
    let good = r#"{"version": 1, "resources": [{"path": "a", "name": "A", "text": "hello"}]}"#;
    std::fs::write(&file, with_section(good.as_bytes())).unwrap();
    host.host.load_file(id(), &file).await.unwrap();
    assert_eq!(host.host.view(Filter::default()).prompts_and_resources().len(), 1);
    for (bad, part) in [
        (&br#"{"version": 2}"#[..], "version 2"),
        (b"\xff", "not UTF-8"),
        (b"{", "not valid JSON"),
        (br#"{"version": 1, "tools": []}"#, "unknown field"),
        (br#"{"version": 1, "icons": {"none": []}}"#, "icons for `none`, but no tool of this name"),
        (br#"{"version": 1, "resources": [{"path": "../a", "name": "A", "text": ""}]}"#, "its path"),
    ] {
        std::fs::write(&file, with_section(bad)).unwrap();
        let error = host.host.load_file(id(), &file).await.unwrap_err().to_string();
        assert!(error.contains(SECTION) && error.contains(part), "{part}: {error}");
    }
    assert_eq!(host.host.view(Filter::default()).prompts_and_resources().len(), 1, "what was there stays");
}
