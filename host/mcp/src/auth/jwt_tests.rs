use super::*;

use std::sync::atomic::{AtomicUsize, Ordering};

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

const ISSUER: &str = "https://id.example";

/// A key pair that signs tokens.
enum SigningKey {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl SigningKey {
    fn ed25519() -> Self {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    fn p256() -> Self {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.as_ref(), &random);
        Self::P256(pair.unwrap())
    }

    fn jwk(&self, kid: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": text(pair.public_key().as_ref())})
            }
            Self::P256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (text(&point[1..33]), text(&point[33..]));
                json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": x, "y": y})
            }
        }
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = match self {
            Self::Ed25519(pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
            Self::P256(pair) => pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec(),
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn oauth() -> OAuthPolicy {
    OAuthPolicy {
        issuer: ISSUER.to_owned(),
        audience: ["https://tools.example/mcp".to_owned()].into(),
        jwks: "https://id.example/keys".to_owned(),
        net_private: Vec::new(),
        scopes: ["tools".to_owned()].into(),
        profiles: [("research".to_owned(), ["tools:research".to_owned()].into())].into(),
        algorithms: [SignatureAlgorithm::RS256, SignatureAlgorithm::ES256, SignatureAlgorithm::EdDSA].into(),
        leeway: Duration::from_secs(60),
    }
}

/// An issuer with these keys, and a counter of the fetches.
fn issuer(keys: Value) -> (Arc<Issuer>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let fetch = KeyFetcher::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let bytes = json!({"keys": keys}).to_string().into_bytes();
        Box::pin(async move { Ok(bytes) })
    });
    (issuer_with(&oauth(), &fetch), asked)
}

fn issuer_with(oauth: &OAuthPolicy, fetch: &KeyFetcher) -> Arc<Issuer> {
    let serve =
        ServePolicy { public_url: Some("https://tools.example".to_owned()), ..ServePolicy::default() };
    Issuer::from_policy(None, oauth, &serve, fetch).unwrap()
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "https://tools.example/mcp", "sub": "alice", "exp": now() + 300, "scope": "tools x"})
}

#[tokio::test]
async fn a_token_names_its_principal_and_its_profiles() {
    let (ed, p256) = (SigningKey::ed25519(), SigningKey::p256());
    let (issuer, asked) = issuer(json!([ed.jwk("a"), p256.jwk("b")]));
    for (signer, header) in [
        (&ed, json!({"alg": "EdDSA", "kid": "a", "typ": "JWT"})),
        (&ed, json!({"alg": "EdDSA"})),
        (&p256, json!({"alg": "ES256", "kid": "b", "typ": "at+jwt"})),
    ] {
        let caller = issuer.verify_token(&signer.sign(&header, &claims()), None).await.unwrap();
        assert_eq!(&*caller.name, "oauth:alice");
        assert!(caller.check_profile(Some("research")).is_err() && caller.check_profile(None).is_err());
    }
    let mut both = claims();
    both["scope"] = json!("tools tools:research");
    both["aud"] = json!(["other", "https://tools.example/mcp"]);
    both["nbf"] = json!(now() + 30);
    let caller =
        issuer.verify_token(&ed.sign(&json!({"alg": "EdDSA", "kid": "a"}), &both), None).await.unwrap();
    assert!(caller.check_profile(Some("research")).is_ok());
    assert!(caller.check_profile(Some("unheard-of")).is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_token_with_any_wrong_field_is_refused() {
    let (ed, p256, stranger) = (SigningKey::ed25519(), SigningKey::p256(), SigningKey::ed25519());
    let (issuer, _) = issuer(json!([ed.jwk("a"), p256.jwk("b")]));
    let header = json!({"alg": "EdDSA", "kid": "a"});
    let good = ed.sign(&header, &claims());
    assert!(issuer.verify_token(&good, None).await.is_ok());

    let with = |key: &str, value: Value| {
        let mut claims = claims();
        claims[key] = value;
        ed.sign(&header, &claims)
    };
    let headed = |header: Value| ed.sign(&header, &claims());
    let parts: Vec<&str> = good.split('.').collect();
    let forged = URL_SAFE_NO_PAD.encode(claims().to_string().replace("alice", "admin"));
    let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
    let tokens = [
        stranger.sign(&header, &claims()),
        format!("{}.{forged}.{}", parts[0], parts[2]),
        format!("{none}.{}.", parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{good}.x"),
        format!("{good}="),
        String::new(),
        "..".to_owned(),
        headed(json!({"alg": "none"})),
        headed(json!({"alg": "HS256", "kid": "a"})),
        headed(json!({"alg": "ES256", "kid": "a"})),
        headed(json!({"alg": "EdDSA", "kid": "b"})),
        headed(json!({"alg": "EdDSA", "kid": "unknown"})),
        headed(json!({"alg": "EdDSA", "kid": "a", "crit": ["x"]})),
        headed(json!({"alg": "EdDSA", "kid": "a", "typ": "id_token+jwt"})),
        headed(json!({"alg": "EdDSA", "kid": "k".repeat(MAX_ID + 1)})),
        with("iss", json!("https://id.example.evil")),
        with("aud", json!("https://other.example")),
        with("aud", json!([])),
        with("exp", json!(now() - 61)),
        with("exp", json!("9999999999")),
        with("exp", Value::Null),
        with("exp", json!(-1)),
        with("exp", json!(1e300)),
        with("nbf", json!(now() + 120)),
        with("sub", json!("")),
        with("sub", json!("s".repeat(MAX_ID + 1))),
        with("sub", Value::Null),
    ];
    for token in tokens {
        assert!(issuer.verify_token(&token, None).await.is_err(), "{token}");
    }
}

#[tokio::test]
async fn a_token_as_long_as_a_header_takes_little_time() {
    let key = SigningKey::ed25519();
    let (issuer, _) = issuer(json!([key.jwk("a")]));
    let mut long = claims();
    let scopes: Vec<String> = (0..7_000).map(|n| format!("tools:{n}")).collect();
    long["scope"] = format!("tools {}", scopes.join(" ")).into();
    let token = key.sign(&json!({"alg": "EdDSA", "kid": "a"}), &long);
    assert!(token.len() > 64 << 10, "{}", token.len());
    let begun = canary::processor_time();
    issuer.verify_token(&token, None).await.unwrap();
    let took = canary::processor_time().saturating_sub(begun);
    assert!(took <= canary::MAX_DELAY, "{took:?}");
}

#[tokio::test]
async fn a_refused_token_says_what_is_wrong_and_whose_it_is() {
    let (ed, stranger) = (SigningKey::ed25519(), SigningKey::ed25519());
    let (issuer, _) = issuer(json!([ed.jwk("a")]));
    let header = json!({"alg": "EdDSA", "kid": "a"});
    let with = |key: &str, value: Value| {
        let mut claims = claims();
        claims[key] = value;
        ed.sign(&header, &claims)
    };
    let alice = Some("oauth:alice");
    for (token, problem, principal) in [
        ("guess".to_owned(), TokenProblem::Unknown, None),
        ("a.b.c".to_owned(), TokenProblem::Malformed, None),
        (stranger.sign(&header, &claims()), TokenProblem::Signature, None),
        (ed.sign(&json!({"alg": "EdDSA", "kid": "b"}), &claims()), TokenProblem::UnknownKey, None),
        (with("iss", json!("https://other.example")), TokenProblem::Issuer, alice),
        (with("aud", json!("https://other.example")), TokenProblem::Audience, alice),
        (with("exp", json!(now() - 61)), TokenProblem::Expired, alice),
        (with("nbf", json!(now() + 120)), TokenProblem::NotYetValid, alice),
    ] {
        let refused = issuer.verify_token(&token, None).await.unwrap_err();
        assert_eq!(refused, AuthError::Unauthenticated { problem, token: principal.map(Arc::from) });
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_cause_few_fetches_and_new_keys_are_found() {
    let (old, new) = (SigningKey::ed25519(), SigningKey::ed25519());
    let keys = Arc::new(std::sync::Mutex::new(json!([old.jwk("old")])));
    let asked = Arc::new(AtomicUsize::new(0));
    let (served, counted) = (Arc::clone(&keys), Arc::clone(&asked));
    let fetch = KeyFetcher::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let bytes = json!({"keys": *served.lock().unwrap()}).to_string().into_bytes();
        Box::pin(async move { Ok(bytes) })
    });
    let issuer = issuer_with(&oauth(), &fetch);
    let token = |signer: &SigningKey, kid: &str| signer.sign(&json!({"alg": "EdDSA", "kid": kid}), &claims());
    assert!(issuer.verify_token(&token(&old, "old"), None).await.is_ok());
    for n in 0..100 {
        assert!(issuer.verify_token(&token(&new, &n.to_string()), None).await.is_err());
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1, "no second fetch within seconds");

    *keys.lock().unwrap() = json!([new.jwk("new")]);
    tokio::time::advance(Duration::from_secs(11)).await;
    let validity =
        issuer.verify_token(&token(&old, "old"), None).await.unwrap().validity(CancellationToken::new());
    assert!(issuer.verify_token(&token(&new, "new"), None).await.is_ok());
    assert!(issuer.verify_token(&token(&old, "old"), None).await.is_err(), "its key was withdrawn");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(validity.is_revoked(), "and its token was revoked");
}

#[tokio::test(start_paused = true)]
async fn one_refresh_serves_all_waiting_requests() {
    let ed = SigningKey::ed25519();
    let (jwk, asked) = (ed.jwk("a"), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    let fetch = KeyFetcher::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let keys = json!({"keys": [jwk]}).to_string().into_bytes();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(keys)
        })
    });
    let issuer = issuer_with(&oauth(), &fetch);
    let token = ed.sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims());
    // Each request gives up after a second. The refresh continues, and no second one starts.
    for _ in 0..4 {
        let asking = issuer.verify_token(&token, None);
        assert!(tokio::time::timeout(Duration::from_secs(1), asking).await.is_err());
    }
    let waiting = (0..50).map(|_| issuer.verify_token(&token, None));
    let found = futures_util::future::join_all(waiting).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_panics_is_a_failed_refresh() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let fetch = KeyFetcher::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { panic!("the fetch panics") })
    });
    let issuer = issuer_with(&oauth(), &fetch);
    let token = SigningKey::ed25519().sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims());
    for _ in 0..3 {
        assert_eq!(
            issuer.verify_token(&token, None).await.unwrap_err(),
            AuthError::KeysUnavailable,
            "no request waits forever"
        );
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_token_is_valid_for_the_endpoint_of_its_audience() {
    let ed = SigningKey::ed25519();
    let keys = json!({"keys": [ed.jwk("a")]}).to_string().into_bytes();
    let fetch = KeyFetcher::new(move |_| {
        let keys = keys.clone();
        Box::pin(async move { Ok(keys) })
    });
    let mut oauth = oauth();
    oauth.audience = ["https://tools.example".to_owned(), "https://tools.example/mcp".to_owned()].into();
    let issuer = issuer_with(&oauth, &fetch);
    let (none, research, other) = (None, Some("research"), Some("other"));
    for (audience, opens) in [
        ("https://tools.example/mcp", vec![none]),
        ("https://tools.example/mcp/", vec![none]),
        ("https://tools.example/mcp/research", vec![research]),
        ("https://tools.example/mcp/other", vec![other]),
        // An audience in the policy that is not the URL of an endpoint stands for the whole server.
        ("https://tools.example", vec![none, research, other]),
        ("https://tools.example/mcp/research/more", vec![]),
        ("https://tools.example/mcpx", vec![]),
        ("https://tools.example.evil/mcp", vec![]),
        ("https://other.example/mcp/research", vec![]),
        ("/mcp", vec![]),
        ("", vec![]),
    ] {
        let mut claims = claims();
        claims["aud"] = json!(audience);
        let token = ed.sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims);
        for profile in [none, research, other] {
            let found = issuer.verify_token(&token, profile).await.is_ok();
            assert_eq!(found, opens.contains(&profile), "{audience:?} at {profile:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_issuer_is_retried_with_backoff_and_its_keys_expire_after_a_day() {
    let ed = SigningKey::ed25519();
    let (jwk, asked) = (ed.jwk("a"), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    let fetch = KeyFetcher::new(move |_| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        let keys = json!({"keys": [jwk]}).to_string().into_bytes();
        Box::pin(async move { if first { Ok(keys) } else { Err("down".to_owned()) } })
    });
    let mut oauth = oauth();
    oauth.leeway = Duration::ZERO;
    let issuer = issuer_with(&oauth, &fetch);
    let token = ed.sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims());
    let minutes = |n: u64| tokio::time::advance(Duration::from_secs(n * 60));
    assert!(issuer.verify_token(&token, None).await.is_ok());
    minutes(61).await;
    for _ in 0..60 {
        assert!(issuer.verify_token(&token, None).await.is_ok(), "the old keys are still trusted");
        minutes(1).await;
    }
    let tries = asked.load(Ordering::SeqCst);
    assert!((5..30).contains(&tries), "{tries}");
    minutes(23 * 60).await;
    let problem = issuer.verify_token(&token, None).await.unwrap_err();
    assert_eq!(problem, AuthError::KeysUnavailable, "a day without the issuer is too long");
}

#[test]
fn an_rsa_signature_made_elsewhere_is_verified() {
    const N: &str = "zPEKLFnNxM1997DGymAWs7qitNjraS78mjbvjdMQ4BN-W9WHkiWMEaEb2pdddP11sO8YS8lHMRtn2xioXIX6pz3abSZ9-8ki1NpcO1d9GVE2qKZi2aZhjh0jpgGPDIMwXXGIFXBLYTKcfUxZaeuzOoOvh7oc2SYfGNIEkSdcd03DGPXUIbDgQmBA_AOsWMei_yoD5xCjmp0Ype6TKamX21xdFcvg25IbfWn7S9ifPkuL7KJi2tGC8rbXMuVAN4gBukrMyTs1oWa1dc6oiHE6Q-WF0qNUHko2mRVYFrJBJtc1BaXlbI7kfcXvRIsDS4KYyoJvb0XAW-yUNdgfP4I8qw";
    const SIGNATURE: &str = "iG736_QuvgLSQnPRc6BzjVduLb9ELTJazCPyIUWs86hgI8rEOhDvcK-gVNEKPhZRVMau1Qk6xBbfllETRqCRLEHpkUEVnPWlx7Ii6GuavPza1nNCkDbmxUokO9ek7K-wH9Q0xQr8LJ6GrtTHnkZpgUVwlxGniD8we3MGpUnr9PYrQsMVGtDPqT3Lku7nDWr4Dr-NQYFnF1zAS-kP4qhdoQ1LzSFUvwy3qhQ5xSyguU_jPLslCEa6ZDMufjc9lfcUGY2hL8jX_wbHX-efhOzfv_IKvppMPl9mOMou-tw3CDjFVjmfI0wbCtxZt4hzfpMA3K6gU3o81O7_qAddgzS4Dg";
    let signature = URL_SAFE_NO_PAD.decode(SIGNATURE).unwrap();
    // Some issuers pad the modulus with a leading zero.
    let padded = URL_SAFE_NO_PAD.encode([vec![0], URL_SAFE_NO_PAD.decode(N).unwrap()].concat());
    for n in [N, &padded] {
        let keys = super::super::keys::parse_key_set(
            json!({"keys": [{"kty": "RSA", "n": n, "e": "AQAB"}]}).to_string().as_bytes(),
            &CancellationToken::new(),
        );
        let key = keys.unwrap().remove(0);
        assert!(key.verify(b"header.claims", &signature));
        assert!(!key.verify(b"header.claimz", &signature));
        assert!(!key.verify(b"header.claims", &signature[1..]));
    }
}

#[test]
fn keys_for_other_uses_are_left_out() {
    let ed = SigningKey::ed25519().jwk("a");
    let with = |key: &str, value: Value| {
        let mut jwk = ed.clone();
        jwk[key] = value;
        jwk
    };
    let parse = |bytes: &[u8]| super::super::keys::parse_key_set(bytes, &CancellationToken::new());
    let read = |keys: Value| parse(json!({"keys": keys}).to_string().as_bytes());
    let shared = json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"});
    let others = json!([
        shared,
        with("use", json!("enc")),
        with("key_ops", json!(["sign"])),
        with("alg", json!("ES256")),
        with("crv", json!("X25519")),
        with("x", json!("?")),
        7
    ]);
    assert!(read(others).is_err(), "no key is left");
    assert_eq!(read(json!([shared, ed])).unwrap().len(), 1);
    assert!(read(json!(vec![ed.clone(); 101])).is_err());
    assert!(parse(b"[]").is_err());
    assert!(parse(&vec![b' '; (256 << 10) + 1]).is_err());
}
