//! What a logout does at the authorization server.

use super::*;

#[tokio::test]
async fn a_logout_withdraws_the_tokens_where_the_server_can() {
    let logged_in = async |revocation: Value, answer: (u16, &str)| {
        let peers = ScriptedPeers::sound();
        peers.set(SERVER_METADATA, &metadata_with("revocation_endpoint", revocation));
        peers.set_raw(REVOKE, answer.0, answer.1);
        login_with(&peers, "code=abc").await.unwrap();
        peers
    };
    let peers = logged_in(json!(REVOKE), (200, "")).await;
    let done = log_out(&peers).await;
    assert_eq!(
        done,
        LogoutOutcome { removed: true, revocation: TokenRevocation::Revoked(ISSUER.to_owned()) }
    );
    assert_eq!(*peers.saved.lock(), None);
    assert_eq!(
        peers.requests_to(REVOKE),
        [
            "token=canary-refresh&token_type_hint=refresh_token&client_id=c1",
            "token=canary-access&token_type_hint=access_token&client_id=c1",
        ]
    );
    assert_eq!(log_out(&peers).await.revocation, TokenRevocation::NoTokens);
    // Whatever the server says, the credentials are gone, and no message has them.
    for (endpoint, answer, part) in [
        (json!(null), (200, ""), None),
        (json!(REVOKE), (503, ""), Some("status 503")),
        (json!(REVOKE), (400, r#"{"error": "unsupported_token_type"}"#), Some("unsupported_token_type")),
        (json!("http://login.example/revoke"), (200, ""), Some("does not use https")),
    ] {
        let peers = logged_in(endpoint, answer).await;
        match (log_out(&peers).await.revocation, part) {
            (TokenRevocation::Unsupported(issuer), None) => assert_eq!(issuer, ISSUER),
            (TokenRevocation::Failed(why), Some(part)) => {
                let why = why.to_string();
                assert!(why.contains(part) && !why.contains("canary"), "{why}");
            }
            (other, _) => panic!("{part:?}: {other:?}"),
        }
        assert_eq!(*peers.saved.lock(), None);
        if answer.0 == 400 {
            let form = "token=canary-refresh&token_type_hint=refresh_token";
            let expected = [format!("{form}&client_id=c1"), format!("{form}&client_secret=&client_id=c1")];
            assert_eq!(peers.requests_to(REVOKE), expected);
        }
    }
    // Without the section nothing is sent, and credentials that nobody can read are removed, too.
    let peers = logged_in(json!(REVOKE), (200, "")).await;
    let (of, connector) = (server(""), Arc::clone(&peers) as Arc<dyn ServerConnector>);
    assert!(matches!(
        logout(&of.name, None, connector).await.unwrap().revocation,
        TokenRevocation::Failed(_)
    ));
    assert_eq!(peers.requests_to(REVOKE), [] as [&str; 0]);
    *peers.saved.lock() = Some(b"{".to_vec());
    assert!(log_out(&peers).await.removed && peers.saved.lock().is_none());
}
