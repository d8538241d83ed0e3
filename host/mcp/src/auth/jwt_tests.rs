use super::*;

use std::sync::atomic::{AtomicUsize, Ordering};

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

const ISSUER: &str = "https://id.example";

/// Somebody who can sign.
enum Signer {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl Signer {
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

fn oauth() -> OAuth {
    OAuth {
        issuer: ISSUER.to_owned(),
        audience: ["https://tools.example/mcp".to_owned()].into(),
        jwks: "https://id.example/keys".to_owned(),
        net_private: Vec::new(),
        scopes: ["tools".to_owned()].into(),
        profiles: [("research".to_owned(), ["tools:research".to_owned()].into())].into(),
        algorithms: [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA].into(),
        leeway: Duration::from_secs(60),
    }
}

/// An issuer with these keys, and how often they were asked for.
fn issuer(keys: Value) -> (Arc<Issuer>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let fetch = FetchKeys::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let bytes = json!({"keys": keys}).to_string().into_bytes();
        Box::pin(async move { Ok(bytes) })
    });
    (made(&oauth(), &fetch), asked)
}

fn made(oauth: &OAuth, fetch: &FetchKeys) -> Arc<Issuer> {
    let serve = Serve { public_url: Some("https://tools.example".to_owned()), ..Serve::default() };
    Issuer::following(None, oauth, &serve, fetch).unwrap()
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "https://tools.example/mcp", "sub": "alice", "exp": now() + 300, "scope": "tools x"})
}

#[tokio::test]
async fn a_token_says_who_it_is_and_what_is_open_to_them() {
    let (ed, p256) = (Signer::ed25519(), Signer::p256());
    let (issuer, asked) = issuer(json!([ed.jwk("a"), p256.jwk("b")]));
    for (signer, header) in [
        (&ed, json!({"alg": "EdDSA", "kid": "a", "typ": "JWT"})),
        (&ed, json!({"alg": "EdDSA"})),
        (&p256, json!({"alg": "ES256", "kid": "b", "typ": "at+jwt"})),
    ] {
        let caller = issuer.principal(&signer.sign(&header, &claims()), None).await.unwrap();
        assert_eq!(&*caller.name, "oauth:alice");
        assert!(caller.may(Some("research")).is_err() && caller.may(None).is_err());
    }
    let mut both = claims();
    both["scope"] = json!("tools tools:research");
    both["aud"] = json!(["other", "https://tools.example/mcp"]);
    both["nbf"] = json!(now() + 30);
    let caller = issuer.principal(&ed.sign(&json!({"alg": "EdDSA", "kid": "a"}), &both), None).await.unwrap();
    assert!(caller.may(Some("research")).is_ok());
    assert!(caller.may(Some("unheard-of")).is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_token_that_is_not_exactly_right_is_refused() {
    let (ed, p256, stranger) = (Signer::ed25519(), Signer::p256(), Signer::ed25519());
    let (issuer, _) = issuer(json!([ed.jwk("a"), p256.jwk("b")]));
    let header = json!({"alg": "EdDSA", "kid": "a"});
    let good = ed.sign(&header, &claims());
    assert!(issuer.principal(&good, None).await.is_ok());

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
        assert!(issuer.principal(&token, None).await.is_err(), "{token}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_do_not_make_it_ask_all_the_time_and_new_ones_are_found() {
    let (old, new) = (Signer::ed25519(), Signer::ed25519());
    let keys = Arc::new(std::sync::Mutex::new(json!([old.jwk("old")])));
    let asked = Arc::new(AtomicUsize::new(0));
    let (served, counted) = (Arc::clone(&keys), Arc::clone(&asked));
    let fetch = FetchKeys::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let bytes = json!({"keys": *served.lock().unwrap()}).to_string().into_bytes();
        Box::pin(async move { Ok(bytes) })
    });
    let issuer = made(&oauth(), &fetch);
    let token = |signer: &Signer, kid: &str| signer.sign(&json!({"alg": "EdDSA", "kid": kid}), &claims());
    assert!(issuer.principal(&token(&old, "old"), None).await.is_ok());
    for n in 0..100 {
        assert!(issuer.principal(&token(&new, &n.to_string()), None).await.is_err());
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1, "not twice within seconds");

    *keys.lock().unwrap() = json!([new.jwk("new")]);
    tokio::time::advance(Duration::from_secs(11)).await;
    let validity =
        issuer.principal(&token(&old, "old"), None).await.unwrap().validity(CancellationToken::new());
    assert!(issuer.principal(&token(&new, "new"), None).await.is_ok());
    assert!(issuer.principal(&token(&old, "old"), None).await.is_err(), "its key was taken back");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(validity.is_revoked(), "and so was what stood on it");
}

#[tokio::test(start_paused = true)]
async fn one_reading_serves_all_who_wait_and_none_who_leaves_begins_another() {
    let ed = Signer::ed25519();
    let (jwk, asked) = (ed.jwk("a"), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    let fetch = FetchKeys::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let keys = json!({"keys": [jwk]}).to_string().into_bytes();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(keys)
        })
    });
    let issuer = made(&oauth(), &fetch);
    let token = ed.sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims());
    // Each gives up after a second; the reading goes on, and there is no second one.
    for _ in 0..4 {
        let asking = issuer.principal(&token, None);
        assert!(tokio::time::timeout(Duration::from_secs(1), asking).await.is_err());
    }
    let waiting = (0..50).map(|_| issuer.principal(&token, None));
    let found = futures_util::future::join_all(waiting).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_panics_is_one_that_failed() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let fetch = FetchKeys::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { panic!("as it was told to") })
    });
    let issuer = made(&oauth(), &fetch);
    let token = Signer::ed25519().sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims());
    for _ in 0..3 {
        assert_eq!(issuer.principal(&token, None).await.unwrap_err(), Problem::Keys, "nobody waits for ever");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_token_opens_the_endpoint_that_it_is_for() {
    let ed = Signer::ed25519();
    let keys = json!({"keys": [ed.jwk("a")]}).to_string().into_bytes();
    let fetch = FetchKeys::new(move |_| {
        let keys = keys.clone();
        Box::pin(async move { Ok(keys) })
    });
    let mut oauth = oauth();
    oauth.audience = ["https://tools.example".to_owned(), "https://tools.example/mcp".to_owned()].into();
    let issuer = made(&oauth, &fetch);
    let (none, research, other) = (None, Some("research"), Some("other"));
    for (audience, opens) in [
        ("https://tools.example/mcp", vec![none]),
        ("https://tools.example/mcp/", vec![none]),
        ("https://tools.example/mcp/research", vec![research]),
        ("https://tools.example/mcp/other", vec![other]),
        // Of no endpoint, and in the policy: the server as a whole.
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
            let found = issuer.principal(&token, profile).await.is_ok();
            assert_eq!(found, opens.contains(&profile), "{audience:?} at {profile:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_down_is_asked_ever_more_seldom_and_its_old_keys_count_for_a_day() {
    let ed = Signer::ed25519();
    let (jwk, asked) = (ed.jwk("a"), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    let fetch = FetchKeys::new(move |_| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        let keys = json!({"keys": [jwk]}).to_string().into_bytes();
        Box::pin(async move { if first { Ok(keys) } else { Err("down".to_owned()) } })
    });
    let mut oauth = oauth();
    oauth.leeway = Duration::ZERO;
    let issuer = made(&oauth, &fetch);
    let token = ed.sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims());
    let minutes = |n: u64| tokio::time::advance(Duration::from_secs(n * 60));
    assert!(issuer.principal(&token, None).await.is_ok());
    minutes(61).await;
    for _ in 0..60 {
        assert!(issuer.principal(&token, None).await.is_ok(), "what was known still counts");
        minutes(1).await;
    }
    let tries = asked.load(Ordering::SeqCst);
    assert!((5..30).contains(&tries), "{tries}");
    minutes(23 * 60).await;
    let problem = issuer.principal(&token, None).await.unwrap_err();
    assert_eq!(problem, Problem::Keys, "a day without the issuer is too long");
}

#[test]
fn an_rsa_signature_of_another_program_is_verified() {
    const N: &str = "zPEKLFnNxM1997DGymAWs7qitNjraS78mjbvjdMQ4BN-W9WHkiWMEaEb2pdddP11sO8YS8lHMRtn2xioXIX6pz3abSZ9-8ki1NpcO1d9GVE2qKZi2aZhjh0jpgGPDIMwXXGIFXBLYTKcfUxZaeuzOoOvh7oc2SYfGNIEkSdcd03DGPXUIbDgQmBA_AOsWMei_yoD5xCjmp0Ype6TKamX21xdFcvg25IbfWn7S9ifPkuL7KJi2tGC8rbXMuVAN4gBukrMyTs1oWa1dc6oiHE6Q-WF0qNUHko2mRVYFrJBJtc1BaXlbI7kfcXvRIsDS4KYyoJvb0XAW-yUNdgfP4I8qw";
    const SIGNATURE: &str = "iG736_QuvgLSQnPRc6BzjVduLb9ELTJazCPyIUWs86hgI8rEOhDvcK-gVNEKPhZRVMau1Qk6xBbfllETRqCRLEHpkUEVnPWlx7Ii6GuavPza1nNCkDbmxUokO9ek7K-wH9Q0xQr8LJ6GrtTHnkZpgUVwlxGniD8we3MGpUnr9PYrQsMVGtDPqT3Lku7nDWr4Dr-NQYFnF1zAS-kP4qhdoQ1LzSFUvwy3qhQ5xSyguU_jPLslCEa6ZDMufjc9lfcUGY2hL8jX_wbHX-efhOzfv_IKvppMPl9mOMou-tw3CDjFVjmfI0wbCtxZt4hzfpMA3K6gU3o81O7_qAddgzS4Dg";
    let signature = URL_SAFE_NO_PAD.decode(SIGNATURE).unwrap();
    // Some write the number with a zero in front.
    let padded = URL_SAFE_NO_PAD.encode([vec![0], URL_SAFE_NO_PAD.decode(N).unwrap()].concat());
    for n in [N, &padded] {
        let keys = super::super::keys::parse(
            json!({"keys": [{"kty": "RSA", "n": n, "e": "AQAB"}]}).to_string().as_bytes(),
            &CancellationToken::new(),
        );
        let key = keys.unwrap().remove(0);
        assert!(key.verifies(b"header.claims", &signature));
        assert!(!key.verifies(b"header.claimz", &signature));
        assert!(!key.verifies(b"header.claims", &signature[1..]));
    }
}

#[test]
fn keys_that_are_for_something_else_are_left_out() {
    let ed = Signer::ed25519().jwk("a");
    let with = |key: &str, value: Value| {
        let mut jwk = ed.clone();
        jwk[key] = value;
        jwk
    };
    let parse = |bytes: &[u8]| super::super::keys::parse(bytes, &CancellationToken::new());
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
    assert!(read(others).is_err(), "none is left");
    assert_eq!(read(json!([shared, ed])).unwrap().len(), 1);
    assert!(read(json!(vec![ed.clone(); 101])).is_err());
    assert!(parse(b"[]").is_err());
    assert!(parse(&vec![b' '; (256 << 10) + 1]).is_err());
}
