//! Renewals: rotated refresh tokens, cancelled calls, and processes that share a state directory.

use super::*;

#[tokio::test]
async fn a_renewal_outlives_the_call_that_needed_it() {
    let peers = ScriptedPeers::sound();
    peers.set(TOKEN, &issued("old", "r1", 0));
    login_with(&peers, "code=abc").await.unwrap();
    let gate = TokenGate::closed();
    *peers.gate.lock() = Some(Arc::clone(&gate));
    peers.set(TOKEN, &issued("new", "r2", 3600));
    let renewing = Arc::new(authenticator(&peers, "", None));
    let call = tokio::spawn({
        let renewing = Arc::clone(&renewing);
        async move { renewing.token().await }
    });
    gate.arrived.acquire().await.unwrap().forget();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    gate.answers.add_permits(1);
    renewing.finish_renewals().await;
    let late = renewing.store.renew(&SecretText::new("new".to_owned())).await.unwrap_err();
    assert!(OAuthError::from(late).to_string().contains("the host is ending"));
    // Another process finds the rotated token, and so does the next call.
    *peers.gate.lock() = None;
    peers.set_raw(TOKEN, 400, r#"{"error": "invalid_grant"}"#);
    for after in [&*renewing, &authenticator(&peers, "", None)] {
        assert_eq!(after.token().await.unwrap().expose(), "new");
        assert_eq!(after.store.current().unwrap().tokens.refresh.unwrap().expose(), "r2");
    }
}

#[tokio::test]
async fn processes_with_one_state_directory_renew_once() {
    let peers = ScriptedPeers::sound();
    peers.set(TOKEN, &issued("old", "r1", 0));
    login_with(&peers, "code=abc").await.unwrap();
    let before = peers.requests_to(TOKEN).len();
    let gate = TokenGate::closed();
    *peers.gate.lock() = Some(Arc::clone(&gate));
    peers.set(TOKEN, &issued("new", "r2", 3600));
    let processes: Vec<_> = (0..4).map(|_| Arc::new(authenticator(&peers, "", None))).collect();
    // Two calls in each.
    let calls: Vec<_> = processes.iter().chain(&processes).cloned().collect();
    let calls = calls.into_iter().map(|one| tokio::spawn(async move { one.token().await.unwrap() }));
    let calls: Vec<_> = calls.collect();
    gate.arrived.acquire().await.unwrap().forget();
    gate.answers.add_permits(100);
    for call in calls {
        assert_eq!(call.await.unwrap().expose(), "new");
    }
    assert_eq!(peers.requests_to(TOKEN).len() - before, 1);
}

#[tokio::test]
async fn a_rotated_token_that_cannot_be_saved_is_not_lost_to_its_process() {
    let peers = ScriptedPeers::sound();
    peers.set(TOKEN, &issued("old", "r1", 0));
    login_with(&peers, "code=abc").await.unwrap();
    *peers.full.lock() = Some("the disk is full".to_owned());
    peers.set(TOKEN, &issued("new", "r2", 0));
    let renewing = authenticator(&peers, "", None);
    assert_eq!(renewing.token().await.unwrap().expose(), "new");
    // The next renewal sends the rotated one, although the file has the older.
    *peers.full.lock() = None;
    peers.set(TOKEN, &issued("newer", "r3", 3600));
    assert_eq!(renewing.token().await.unwrap().expose(), "newer");
    assert!(peers.requests_to(TOKEN).pop().unwrap().contains("refresh_token=r2"));
    assert_eq!(authenticator(&peers, "", None).token().await.unwrap().expose(), "newer", "it is saved now");
    // A login that cannot be saved fails.
    *peers.full.lock() = Some("the disk is full".to_owned());
    assert!(login_with(&peers, "code=abc").await.unwrap_err().contains("the disk is full"));
}

#[tokio::test]
async fn a_client_that_the_server_forgot_is_registered_again() {
    let peers = ScriptedPeers::sound();
    let registered = || peers.requests_to(REGISTER).len();
    peers.set(TOKEN, &issued("old", "r1", 0));
    login_with(&peers, "code=abc").await.unwrap();
    // A server that forgot it tells the browser only, so each login has a client of its own.
    login_with(&peers, "code=abc").await.unwrap();
    assert_eq!(registered(), 2);
    let user = User::new("code=abc");
    let asking = authenticator(&peers, "", Some(&user));
    let respond = async |next: &str| {
        peers.set_raw(TOKEN, 401, r#"{"error": "invalid_client"}"#);
        let used = asking.token().await;
        peers.set(TOKEN, &issued(next, "r2", 0));
        asking.respond(&Challenge::default(), used.as_ref()).await.unwrap();
    };
    // Told by the token endpoint, the host asks the user and registers again.
    respond("new").await;
    assert_eq!((registered(), user.urls.lock().len()), (3, 1));
    let used = asking.token().await.unwrap();
    peers.set_raw(TOKEN, 401, r#"{"error": "invalid_client"}"#);
    assert!(asking.store.renew(&used).await.is_err());
    let client = asking.store.current().unwrap().client;
    assert_eq!(client.expires_at, Some(0), "the next authorization registers another one");
}

#[tokio::test]
async fn an_expired_token_is_renewed_and_the_old_refresh_token_stays() {
    let peers = ScriptedPeers::sound();
    let token = "https://login.example/token";
    peers.set(
        token,
        &json!({
            "access_token": "old", "token_type": "bearer", "expires_in": 0, "refresh_token": "r1",
        }),
    );
    login_with(&peers, "code=abc").await.unwrap();
    peers.set(token, &json!({"access_token": "new", "token_type": "bearer", "expires_in": 3600}));
    let renewing = authenticator(&peers, "", None);
    assert_eq!(renewing.token().await.unwrap().expose(), "new");
    assert_eq!(renewing.store.current().unwrap().tokens.refresh.unwrap().expose(), "r1");
    let form = peers.requests_to(token).pop().unwrap();
    assert!(form.contains("grant_type=refresh_token&refresh_token=r1&resource="), "{form}");
    // A rejected refresh token ends in a login, and the request names the command.
    peers.set_raw(token, 400, "{\"error\": \"invalid_grant\"}");
    let used = renewing.token().await;
    let why = renewing.respond(&Challenge::default(), used.as_ref()).await.unwrap_err().to_string();
    assert!(why.contains("toolbay mcp login s"), "{why}");
    // A token that another process has saved is used without a request.
    peers.set(token, &json!({"access_token": "third", "token_type": "bearer"}));
    login_with(&peers, "code=abc").await.unwrap();
    let before = peers.requests_to(token).len();
    renewing.respond(&Challenge::default(), used.as_ref()).await.unwrap();
    assert_eq!((renewing.token().await.unwrap().expose(), peers.requests_to(token).len()), ("third", before));
}

#[tokio::test]
async fn a_refresh_token_that_is_refused_is_sent_once_and_the_reason_is_told() {
    let page = format!("<html>{}</html>", "x".repeat(1000));
    for (status, body, part) in [
        (403, page.as_str(), "status 403"),
        (404, "", "status 404"),
        (400, r#"{"error": "invalid_grant", "error_description": "too\nlate"}"#, "invalid_grant: too\\nlate"),
        (401, r#"{"error": "invalid_client"}"#, "invalid_client"),
        (200, r#"{"error": "bad_refresh_token"}"#, "bad_refresh_token"),
    ] {
        let peers = ScriptedPeers::sound();
        peers.set(TOKEN, &issued("old", "r1", 0));
        login_with(&peers, "code=abc").await.unwrap();
        let before = peers.requests_to(TOKEN).len();
        peers.set_raw(TOKEN, status, body);
        let renewing = authenticator(&peers, "", None);
        for _ in 0..3 {
            // As a call does: renewed before it, and after the server's 401.
            let used = renewing.token().await;
            let why = renewing.respond(&Challenge::default(), used.as_ref()).await.unwrap_err().to_string();
            assert!(why.contains(part) && why.contains("toolbay mcp login s"), "{status} {body}: {why}");
            assert!(why.len() < 500, "{why}");
        }
        assert_eq!(peers.requests_to(TOKEN).len() - before, 1, "{status} {body}");
        // Another refresh token, of a login in another process, is sent.
        peers.set(TOKEN, &issued("other", "r2", 0));
        login_with(&peers, "code=abc").await.unwrap();
        peers.set(TOKEN, &issued("new", "r3", 3600));
        let used = SecretText::new("other".to_owned());
        renewing.respond(&Challenge::default(), Some(&used)).await.unwrap();
        assert_eq!(renewing.token().await.unwrap().expose(), "new", "{status} {body}");
    }
}

#[tokio::test]
async fn an_authorization_server_that_is_down_costs_no_login() {
    let (peers, user) = (ScriptedPeers::sound(), User::new("code=abc"));
    peers.set(TOKEN, &issued("old", "r1", 3600));
    login_with(&peers, "code=abc").await.unwrap();
    let asking = authenticator(&peers, "", Some(&user));
    let used = asking.token().await;
    for (status, body) in [
        (503, ""),
        (502, "<html>"),
        (400, r#"{"error": "temporarily_unavailable"}"#),
        (429, r#"{"error": "slow_down"}"#),
        (200, r#"{"access_token": ""}"#),
    ] {
        peers.set_raw(TOKEN, status, body);
        let why = asking.respond(&Challenge::default(), used.as_ref()).await.unwrap_err().to_string();
        assert!(why.contains("could not be renewed"), "{status} {body}: {why}");
    }
    assert_eq!(user.urls.lock().len(), 0, "nobody is asked");
    peers.set(TOKEN, &issued("new", "r2", 3600));
    asking.respond(&Challenge::default(), used.as_ref()).await.unwrap();
    assert_eq!(asking.token().await.unwrap().expose(), "new");
}
