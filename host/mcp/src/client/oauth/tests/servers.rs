//! Authorization servers as people run them: how they register clients, what they publish, and what they get wrong.

use super::*;

#[tokio::test]
async fn a_client_with_a_secret_authenticates_as_it_was_registered_and_always_names_itself() {
    // As the MCP Python SDK and FastMCP offer them. "none" is what a public client asks for.
    for (registered, form_secret, headers) in
        [("client_secret_post", true, 0), ("client_secret_basic", false, 2), ("none", false, 0)]
    {
        let peers = ScriptedPeers::sound();
        let offered = json!(["client_secret_post", "client_secret_basic"]);
        peers.set(SERVER_METADATA, &metadata_with("token_endpoint_auth_methods_supported", offered));
        peers.set(
            REGISTER,
            &json!({
                "client_id": "c 1", "client_secret": "canary:secret", "client_secret_expires_at": "0",
                "token_endpoint_auth_method": registered,
            }),
        );
        peers.set(TOKEN, &issued("old", "r1", 0));
        login_with(&peers, "code=abc").await.unwrap();
        let asked = peers.requests_to(REGISTER).remove(0);
        assert!(asked.contains("\"token_endpoint_auth_method\":\"client_secret_post\""), "{asked}");
        peers.set(TOKEN, &issued("new", "r2", 3600));
        assert_eq!(authenticator(&peers, "", None).token().await.unwrap().expose(), "new", "{registered}");
        for form in peers.requests_to(TOKEN) {
            assert!(form.contains("client_id=c+1"), "{registered}: {form}");
            assert_eq!(form.contains("client_secret=canary%3Asecret"), form_secret, "{registered}: {form}");
        }
        let basic = peers.authorizations.lock().clone();
        assert_eq!(basic, vec!["Basic YysxOmNhbmFyeSUzQXNlY3JldA=="; headers], "{registered}");
    }
}

#[tokio::test]
async fn a_client_of_the_policy_sends_its_secret_in_the_way_that_its_server_accepts() {
    use ClientSecretPlacement::{Form, Header};
    let section = |more: &str| {
        let origin = "[secrets.T]\nfrom = \"env:T\"\norigins = [\"https://login.example\"]";
        let client = "client_id = \"pre\"\nclient_secret = \"T\"";
        format!("[mcp.s.oauth]\nissuer = \"{ISSUER}\"\n{client}\n{more}\n{origin}")
    };
    let (both, basic) =
        (json!(["client_secret_post", "client_secret_basic"]), json!(["client_secret_basic"]));
    let (use_post, use_basic) = (
        "token_endpoint_auth_method = \"client_secret_post\"",
        "token_endpoint_auth_method = \"client_secret_basic\"",
    );
    // The key, what the server lists and wants, and what is sent until it works.
    for (key, listed, wants, requests) in [
        ("", &both, Header, Ok(1)),
        ("", &both, Form, Ok(2)),
        ("", &json!(null), Form, Ok(2)),
        ("", &basic, Form, Err((1, "`client_secret_basic`"))),
        (use_post, &both, Form, Ok(1)),
        (use_post, &basic, Form, Ok(1)),
        (use_basic, &both, Form, Err((1, "`client_secret_basic`"))),
    ] {
        let peers = ScriptedPeers::sound();
        peers.set(SERVER_METADATA, &metadata_with("token_endpoint_auth_methods_supported", listed.clone()));
        *peers.wants_secret_in.lock() = Some(wants);
        peers.set(TOKEN, &issued("old", "r1", 0));
        let done = login_to(&server(&section(key)), &peers, &User::new("code=abc")).await;
        let sent = peers.requests_to(TOKEN).len();
        match requests {
            Ok(expected) => {
                done.unwrap();
                assert_eq!(sent, expected, "{key} {listed}");
                // A renewal sends the secret where it was accepted.
                peers.set(TOKEN, &issued("new", "r2", 3600));
                let renewing = authenticator(&peers, &section(key), None);
                assert_eq!(renewing.token().await.unwrap().expose(), "new", "{key} {listed}");
                assert_eq!(peers.requests_to(TOKEN).len(), sent + 1);
            }
            Err((expected, part)) => {
                let why = done.unwrap_err();
                assert!(why.contains(part) && sent == expected, "{key} {listed}: {why}");
            }
        }
    }
}

#[tokio::test]
async fn a_server_without_metadata_is_logged_in_to_at_the_issuer_of_the_policy() {
    let issuer = format!("[mcp.s.oauth]\nissuer = \"{ISSUER}\"");
    for (status, body) in [
        (404, "not here".to_owned()),
        (500, String::new()),
        (200, "<!doctype html>".to_owned()),
        (200, json!({"resource": SERVER}).to_string()),
    ] {
        let peers = ScriptedPeers::sound();
        for place in [RESOURCE_METADATA, "https://mcp.example/.well-known/oauth-protected-resource"] {
            peers.set_raw(place, status, &body);
        }
        peers.set(SERVER_METADATA, &metadata_with("scopes_supported", json!(["notes", "files"])));
        let user = User::new("code=abc");
        login_to(&server(&issuer), &peers, &user).await.unwrap();
        let url = user.urls.lock()[0].clone();
        assert_eq!(parameter(&url, "resource").as_deref(), Some(SERVER), "{status} {body}");
        // The challenge of these peers names the scope.
        assert_eq!(parameter(&url, "scope").as_deref(), Some("read"));
        assert_eq!(authenticator(&peers, &issuer, None).token().await.unwrap().expose(), "canary-access");
        // Without the key, nobody vouches for an authorization server.
        let why = login_with(&peers, "code=abc").await.unwrap_err();
        assert!(!why.contains("canary"), "{why}");
    }
    // If nobody names scopes, those of the issuer are requested: it is the operator's.
    let (peers, user) = (ScriptedPeers::sound(), User::new("code=abc"));
    *peers.challenge.lock() = Some("Bearer");
    peers.set(SERVER_METADATA, &metadata_with("scopes_supported", json!(["notes", "files"])));
    login_to(&server(&issuer), &peers, &user).await.unwrap();
    assert_eq!(parameter(&user.urls.lock()[0], "scope"), None, "a server with metadata could name some");
    peers.answers.lock().remove(RESOURCE_METADATA);
    login_to(&server(&issuer), &peers, &user).await.unwrap();
    assert_eq!(parameter(&user.urls.lock()[1], "scope").as_deref(), Some("files notes"));
    let peers = ScriptedPeers::sound();
    peers.answers.lock().remove(RESOURCE_METADATA);
    let why = login_with(&peers, "code=abc").await.unwrap_err();
    assert!(why.contains("[mcp.s.oauth] issuer = "), "{why}");
    // A server that speaks for another resource, or names other authorization servers, is not overruled.
    for (document, part) in [
        (json!({"resource": "https://evil.example/", "authorization_servers": [ISSUER]}), "another resource"),
        (
            json!({"resource": SERVER, "authorization_servers": ["https://evil.example"]}),
            "the `issuer` of the policy",
        ),
    ] {
        peers.set(RESOURCE_METADATA, &document);
        let why = login_to(&server(&issuer), &peers, &User::new("code=abc")).await.unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}

#[tokio::test]
async fn an_authorization_server_that_cannot_be_used_costs_only_itself() {
    let gone = "https://gone.example";
    let of_another = "https://odd.example/.well-known/oauth-authorization-server";
    for (named, fits) in [
        (json!([gone, ISSUER]), true),
        (json!(["file:///etc/passwd", "https://odd.example", ISSUER]), true),
        (json!([gone, gone, gone, ISSUER]), false),
    ] {
        let peers = ScriptedPeers::sound();
        peers.set(RESOURCE_METADATA, &json!({"resource": SERVER, "authorization_servers": named}));
        peers.set(of_another, &metadata());
        let done = login_with(&peers, "code=abc").await;
        assert_eq!(done.is_ok(), fits, "{named}: {done:?}");
    }
    // Each is named, if none can be used. The issuer of the policy is the only one.
    let peers = ScriptedPeers::sound();
    let named = json!([gone, "http://plain.example", ISSUER]);
    peers.set(RESOURCE_METADATA, &json!({"resource": SERVER, "authorization_servers": named}));
    peers.set(SERVER_METADATA, &metadata_with("response_types_supported", json!(["token"])));
    let why = login_with(&peers, "code=abc").await.unwrap_err();
    for part in ["gone.example", "plain.example", "response type"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    peers.set(SERVER_METADATA, &metadata());
    let pinned = server(&format!("[mcp.s.oauth]\nissuer = \"{gone}\""));
    assert!(login_to(&pinned, &peers, &User::new("code=abc")).await.is_err());
}

#[tokio::test]
async fn pkce_may_be_assumed_of_the_issuer_of_the_policy_only() {
    let text = format!("version = 1\n[mcp.s]\nurl = \"{SERVER}\"\n[mcp.s.oauth]\nassume_pkce = true");
    let why = Policy::parse(&text, "/srv".as_ref(), None).unwrap_err().to_string();
    assert!(why.contains("`assume_pkce` needs `issuer`"), "{why}");
    let section = format!("[mcp.s.oauth]\nissuer = \"{ISSUER}\"\nassume_pkce = true");
    for (methods, fits) in
        [(json!(null), true), (json!(["S256"]), true), (json!(["plain"]), false), (json!([]), false)]
    {
        let (peers, user) = (ScriptedPeers::sound(), User::new("code=abc"));
        peers.set(SERVER_METADATA, &metadata_with("code_challenge_methods_supported", methods.clone()));
        let done = login_to(&server(&section), &peers, &user).await;
        assert_eq!(done.is_ok(), fits, "{methods}: {done:?}");
        let challenged = |url: &Url| parameter(url, "code_challenge_method").as_deref() == Some("S256");
        assert!(user.urls.lock().iter().all(challenged), "the challenge is always sent");
    }
}

#[tokio::test]
async fn an_odd_member_of_a_document_costs_only_itself() {
    let peers = ScriptedPeers::sound();
    let mut document = metadata();
    for (member, value) in [
        ("scopes_supported", json!(null)),
        ("response_types_supported", json!("code")),
        ("code_challenge_methods_supported", json!("S256")),
        ("token_endpoint_auth_methods_supported", json!(null)),
        ("authorization_response_iss_parameter_supported", json!("false")),
        ("client_id_metadata_document_supported", json!(null)),
        ("revocation_endpoint", json!("")),
    ] {
        document[member] = value;
    }
    // A page at the first place, and a byte order mark before the document of the second.
    peers.set_raw(SERVER_METADATA, 200, "<html>");
    let second = "https://login.example/.well-known/openid-configuration/t";
    peers.set_raw(second, 200, &format!("\u{feff}{document}"));
    peers.set(
        RESOURCE_METADATA,
        &json!({"resource": SERVER, "authorization_servers": ISSUER, "scopes_supported": {}}),
    );
    peers.set(REGISTER, &json!({"client_id": "c1", "client_secret": null, "client_secret_expires_at": null}));
    peers.set_raw(
        TOKEN,
        201,
        &json!({"access_token": "a", "token_type": null, "refresh_token": ""}).to_string(),
    );
    let done = login_with(&peers, "code=abc").await.unwrap();
    assert!(!done.renewable);
    // An error with status 200 is one.
    peers.set(TOKEN, &json!({"error": "bad_verification_code", "error_description": "too late"}));
    let why = login_with(&peers, "code=abc").await.unwrap_err();
    assert!(why.contains("bad_verification_code: too late"), "{why}");
}

#[tokio::test]
async fn no_message_repeats_what_an_authorization_server_was_sent() {
    let peers = ScriptedPeers::sound();
    let offered = json!(["client_secret_post"]);
    let mut document = metadata_with("token_endpoint_auth_methods_supported", offered);
    document["revocation_endpoint"] = json!(REVOKE);
    peers.set(SERVER_METADATA, &document);
    peers.set(REGISTER, &json!({"client_id": "c1", "client_secret": "canary-secret"}));
    let quote =
        |text: &str| json!({"error": text, "error_description": format!("`{text}` is unknown")}).to_string();
    peers.set_raw(TOKEN, 400, &quote("canary-code canary-secret"));
    let why = login_with(&peers, "code=canary-code").await.unwrap_err();
    assert!(why.contains("[secret] [secret]") && !why.contains("canary"), "{why}");
    peers.set(TOKEN, &issued("canary-access", "canary-refresh", 0));
    login_with(&peers, "code=abc").await.unwrap();
    peers.set_raw(TOKEN, 400, &quote("canary-refresh canary-secret"));
    let renewing = authenticator(&peers, "", None);
    let used = renewing.token().await.unwrap();
    let why = OAuthError::from(renewing.store.renew(&used).await.unwrap_err()).to_string();
    assert!(why.contains("[secret]") && !why.contains("canary"), "{why}");
    peers.set_raw(REVOKE, 400, &quote("canary-refresh canary-access"));
    let TokenRevocation::Failed(why) = log_out(&peers).await.revocation else { panic!("it failed") };
    assert!(why.to_string().contains("[secret]") && !why.to_string().contains("canary"), "{why}");
}
