//! A server over HTTP reloads its policy and follows the files that the new policy names.

use std::sync::{Arc, Mutex};

use serde_json::json;
use toolbay::policy::serve::ServePolicy;

use super::auth::{OAUTH, write};
use super::fixture::{FakeAuthorizationServer, HttpFixture, keys};

/// The reports of the server about its files.
type FileReports = Arc<Mutex<Vec<Result<(), String>>>>;

/// Lets the server follow its files.
fn followed(desk: &HttpFixture) -> FileReports {
    let told = FileReports::default();
    let (http, heard) = (desk.http.clone(), Arc::clone(&told));
    tokio::spawn(async move { http.follow_files(|result| heard.lock().unwrap().push(result)).await });
    told
}

async fn status(desk: &HttpFixture, token: &str) -> u16 {
    desk.modern("tools/list", json!({})).bearer(token).send().await.status
}

#[tokio::test]
async fn a_reload_follows_new_files_and_retries_failures() {
    let desk = HttpFixture::new("").await;
    let told = followed(&desk);
    let file = desk.host.root().join("later.toml");
    let asks = ServePolicy { tokens: Some(file.clone()), ..ServePolicy::default() };
    // The file is missing, so nothing changes until it exists.
    assert!(desk.http.reload(asks).unwrap_err().contains("later.toml"));
    assert_eq!(status(&desk, "none").await, 200);
    write(&file, &[("a", "token-a", "")]);
    desk.until("it is read", |_| told.lock().unwrap().last() == Some(&Ok(()))).await;
    assert_eq!((status(&desk, "none").await, status(&desk, "token-a").await), (401, 200));

    // It is read again when it changes, also if only its mode changes.
    write(&file, &[("b", "token-b", "")]);
    desk.until("it is read again", |_| told.lock().unwrap().len() == 2).await;
    assert_eq!((status(&desk, "token-a").await, status(&desk, "token-b").await), (401, 200));
    std::fs::write(&file, "nonsense").unwrap();
    desk.until("it is no file of tokens", |_| told.lock().unwrap().len() == 3).await;
    assert_eq!(status(&desk, "token-b").await, 200);
    std::fs::remove_file(&file).unwrap();
    desk.until("it is gone", |_| told.lock().unwrap().len() == 4).await;
    assert_eq!(status(&desk, "token-b").await, 200);
    write(&file, &[("b", "token-b", "")]);
    desk.until("it is back", |_| told.lock().unwrap().len() == 5).await;
    let told = told.lock().unwrap();
    let good: Vec<bool> = told.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, true, false, false, true], "{told:?}");
}

#[tokio::test]
async fn tokens_can_be_revoked_while_the_policy_is_broken() {
    let desk = HttpFixture::new("").await;
    let told = followed(&desk);
    let (old, new) = (desk.host.root().join("old.toml"), desk.host.root().join("new.toml"));
    write(&old, &[("a", "token-a", ""), ("b", "token-b", "")]);
    desk.http.reload(ServePolicy { tokens: Some(old.clone()), ..ServePolicy::default() }).unwrap();
    assert!(desk.http.reload(ServePolicy { tokens: Some(new), ..ServePolicy::default() }).is_err());
    write(&old, &[("b", "token-b", "")]);
    desk.until("it is looked at", |_| !told.lock().unwrap().is_empty()).await;
    assert_eq!((status(&desk, "token-a").await, status(&desk, "token-b").await), (401, 200));
}

#[tokio::test]
async fn keys_in_a_file_are_read_again_when_it_changes() {
    let (one, other) = (FakeAuthorizationServer::new(), FakeAuthorizationServer::new());
    let desk = HttpFixture::fetching(OAUTH, keys(|| json!({}))).await;
    let told = followed(&desk);
    let file = desk.host.root().join("keys.json");
    std::fs::write(&file, one.jwks().to_string()).unwrap();
    let mut serve = desk.host.host.policy().serve().clone();
    serve.oauth.as_mut().unwrap().jwks = file.to_string_lossy().into_owned();
    desk.http.reload(serve).unwrap();
    let token = |issuer: &FakeAuthorizationServer| issuer.token("alice", "tools tools:all", 300);
    assert_eq!((status(&desk, &token(&one)).await, status(&desk, &token(&other)).await), (200, 401));
    std::fs::write(&file, other.jwks().to_string()).unwrap();
    desk.until("it is read again", |_| told.lock().unwrap().len() == 1).await;
    assert_eq!((status(&desk, &token(&one)).await, status(&desk, &token(&other)).await), (401, 200));
}
