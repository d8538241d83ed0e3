//! Saved outputs that servers share.

use std::time::Duration;

use toolbay_core::session::output_store::{OutputId, OutputQuota, OutputStore, SaveError, SavedText};
use toolbay_shared::storage::NatsOutputStore;

use crate::server::{NatsServer, storage_plan};

const AGE: Duration = Duration::from_secs(3);

fn text(text: &str) -> SavedText {
    SavedText { text: text.into(), source: "p".into(), tool: "p__t".into(), untrusted: true }
}

async fn store(server: &NatsServer, name: &str, quota: OutputQuota) -> NatsOutputStore {
    server.create_storage(&storage_plan(1, quota.bytes, quota.age)).await;
    server.replica(name).await.0.output_store(quota).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_read_on_every_server_by_its_session_only() {
    let server = NatsServer::start();
    let quota = OutputQuota { bytes: 8 << 20, session_bytes: 4 << 20, age: AGE };
    let (one, two) = (store(&server, "a", quota).await, store(&server, "b", quota).await);
    // More than one message of NATS.
    let large = text(&"ü".repeat(1 << 20));
    let id = one.put("me \0*", large.clone()).await.unwrap();
    assert_eq!(id, OutputId::from_text(&large));
    assert_eq!(two.get("me \0*", &id).await, Some(large));
    assert_eq!(two.get("you", &id).await, None);
    let small = two.put("me \0*", text("small")).await.unwrap();
    let listed = one.list("me \0*").await;
    assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [&id, &small]);
    assert_eq!((&*listed[1].tool, listed[1].bytes), ("p__t", 5));
    tokio::time::sleep(AGE + Duration::from_millis(100)).await;
    assert_eq!(one.get("me \0*", &small).await, None, "it expired");
    assert!(two.list("me \0*").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_texts_of_a_session_make_room() {
    let server = NatsServer::start();
    let quota = OutputQuota { bytes: 8 << 20, session_bytes: 3000, age: Duration::from_secs(3600) };
    let store = store(&server, "a", quota).await;
    let [first, second] = [text(&"a".repeat(900)), text(&"b".repeat(900))];
    let (first, second) = (store.put("s", first).await.unwrap(), store.put("s", second).await.unwrap());
    let third = store.put("s", text(&"c".repeat(900))).await.unwrap();
    assert_eq!(store.get("s", &first).await, None);
    assert!(store.get("s", &second).await.is_some() && store.get("s", &third).await.is_some());
    let refused = store.put("s", text(&"d".repeat(3000))).await.unwrap_err();
    assert!(matches!(refused, SaveError::TooLarge { .. }), "{refused}");
}
