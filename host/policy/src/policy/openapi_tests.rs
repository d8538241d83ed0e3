use std::path::Path;
use std::time::Duration;

use super::section::{MAX_HEADERS, MAX_SERVICES};
use super::*;
use crate::capability::{Capability, CapabilityKind};
use crate::limits::Limit;
use crate::policy::{Advice, GrantKey};
use crate::rule::GrantRule as _;

const PIN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn read(text: &str) -> Result<Policy, String> {
    Policy::parse(&format!("version = 1\n{text}"), Path::new("/base"), None).map_err(|e| e.to_string())
}

fn policy(text: &str) -> Policy {
    read(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn tool(name: &str) -> ToolName {
    ToolName::new(name).unwrap()
}

const FULL: &str = r#"
    toolcall_reason = true
    [limits]
    timeout = "9s"
    [secrets.KEY]
    from = "env:KEY"
    origins = ["https://api.example.com"]
    query = ["api_key"]
    [profile.reader]
    net = ["GET https://*.example.com"]
    secrets = []
    [openapi.pets]
    document = "docs/pets.yaml"
    server = "https://api.example.com/v1/"
    variables = { region = "eu" }
    include = ["tag:pet"]
    exclude = ["DELETE"]
    secrets = { api_key = "KEY" }
    headers = { X-Team = "blue", X-Auth = { secret = "KEY", prefix = "Token " } }
    approve = "writes"
    reduce = "none"
    net = ["GET https://files.example.com"]
    net_private = ["10.0.0.0/8"]
    limits = { timeout = "5s", http_bytes = "1MiB" }
    serial = true
    results = { truncate = "head-tail" }
    toolcall_reason = false
    [openapi.pets.tools.addPet]
    permission = "ask"
    approve = false
    cache = "1m"
    reduce = "log"
    serial = false
    limits = { timeout = "2s" }
    results = { strip_blobs = true }
    toolcall_reason = true
"#;

#[test]
fn every_key_of_a_section_is_applied() {
    let policy = policy(FULL);
    let pets = policy.openapi_service("pets").unwrap();
    assert_eq!(pets.document, DocumentLocation::File("/base/docs/pets.yaml".into()));
    assert_eq!(pets.server.as_deref(), Some("https://api.example.com/v1"));
    assert_eq!(pets.refresh, DEFAULT_REFRESH);
    assert_eq!((pets.include.len(), pets.exclude.len(), pets.variables.len()), (1, 1, 1));
    let header = ServiceHeader::Secret { secret: "KEY".to_owned(), prefix: "Token ".to_owned() };
    assert_eq!(pets.headers["x-auth"], header);
    let (add, list) = (tool("addPet"), tool("listPets"));
    assert_eq!((pets.needs_approval(&add, true), pets.needs_approval(&list, true)), (false, true));
    assert!(!pets.needs_approval(&list, false));
    assert_eq!((pets.reducer(&add), pets.reducer(&list)), (Some("log"), None));
    assert_eq!((pets.serial_queue(&add), pets.serial_queue(&list).as_deref()), (None, Some("openapi:pets")));
    assert_eq!((pets.cache(&add), pets.cache(&list)), (Some(Duration::from_secs(60)), None));
    assert_eq!((pets.asks_reason(&add), pets.asks_reason(&list)), (Some(true), Some(false)));
    let results = pets.results(&add);
    assert_eq!((results.untrusted, results.strip_blobs), (Some(true), Some(true)), "always marked");
    assert!(results.truncate.is_some());
    let (own, all) = (policy.openapi_limits(pets, Some(&add)), policy.openapi_limits(pets, None));
    assert_eq!(
        (own.timeout, all.timeout, all.http_bytes),
        (Duration::from_secs(2), Duration::from_secs(5), 1 << 20)
    );
    assert_eq!(
        all.hit(Limit::HttpBytes, &pets.name).setting.to_string(),
        "[openapi.pets.limits] http_bytes = …"
    );
    assert_eq!(
        own.hit(Limit::Timeout, &pets.name).setting.to_string(),
        "[openapi.pets.tools.addPet.limits] timeout = …"
    );
    let rows = policy.openapi_limit_rows(pets, &add);
    let timeout = rows.iter().find(|row| row.key == "timeout").unwrap();
    assert_eq!(timeout.set, "[openapi.pets.tools.addPet.limits] timeout");
    assert!(!rows.iter().any(|row| row.key == "fuel"));
    assert_eq!(policy.permissions().section_rules.len(), 1);
    let secret = policy.secrets().next().unwrap().1;
    assert_eq!(secret.query, ["api_key"]);
}

#[test]
fn a_profile_narrows_the_grants_of_a_service() {
    let policy = policy(FULL);
    let pets = policy.openapi_service("pets").unwrap();
    let rule = |text: &str| NetRule::parse(text, Path::new("/")).unwrap();
    let wish = |kind: &str, target: &str| Capability {
        kind: CapabilityKind::parse(kind),
        target: target.to_owned(),
        optional: false,
        reason: None,
    };
    let reached = [rule("GET https://api.example.com"), rule("POST https://api.example.com")];
    let of =
        |wishes: &[Capability], profile| policy.openapi_grant(pets, &tool("x"), wishes, &reached, profile);
    let (get, post) =
        (wish("net", "GET https://api.example.com/pets"), wish("net", "POST https://api.example.com/pets"));
    assert_eq!(of(std::slice::from_ref(&post), None).unavailable(), None);
    assert_eq!(of(&[get], Some("reader")).unavailable(), None);
    let why = of(&[post], Some("reader")).unavailable().unwrap().for_operator();
    assert!(why.contains("[profile.reader]"), "{why}");
    let key = wish("secret", "KEY");
    assert_eq!(of(std::slice::from_ref(&key), None).secrets.len(), 1);
    assert!(of(&[key], Some("reader")).unavailable().is_some());
    let elsewhere = wish("net", "GET https://other.example.com");
    assert!(of(&[elsewhere], None).unavailable().is_some());
    let hint = |key, wish| policy.advise_openapi(pets, None, key, wish).hint().to_string();
    let lines = "[openapi.pets]\nnet = [\"GET https://files.example.com\", \"GET https://cdn.example.com\"]";
    assert!(hint(GrantKey::Net, "GET https://cdn.example.com").ends_with(lines));
    let lines = "[openapi.pets]\nnet_private = [\"10.0.0.0/8\", \"127.0.0.1/32\"]";
    assert!(hint(GrantKey::NetPrivate, "127.0.0.1/32").ends_with(lines));
    assert_eq!(
        policy.advise_openapi(pets, None, GrantKey::NetPrivate, "10.1.0.0/16"),
        Advice::AlreadyGranted
    );
}

#[test]
fn a_fetched_document_does_not_set_the_server() {
    for (lines, part) in [
        ("document = \"https://a.example/doc.json\"", Some("`server = \"https://…\"`")),
        ("document = \"http://a.example/doc.json\"\nserver = \"https://a.example\"", Some("over `http`")),
        ("document = \"http://localhost:8000/doc.json\"", Some("`server = ")),
        ("document = \"ftp://a.example/doc.json\"", Some("`https`")),
        ("document = \"https://u:p@a.example/doc.json\"", Some("must not contain a user name")),
        ("document = \"\"", Some("empty")),
        ("document = \"https://a.example/doc.json\"\nserver = \"https://b.example\"", None),
        ("document = \"http://127.0.0.1:8000/doc.json\"\nserver = \"http://127.0.0.1:8000\"", None),
        (&format!("document = \"http://a.example/doc.json\"\nsha256 = \"{PIN}\""), None),
    ] {
        let read = read(&format!("[openapi.a]\n{lines}"));
        match part {
            Some(part) => assert!(read.as_ref().is_err_and(|e| e.contains(part)), "{lines}: {read:?}"),
            None => assert!(read.is_ok(), "{lines}: {read:?}"),
        }
    }
}

#[test]
fn an_invalid_section_is_refused_with_its_location() {
    let long = "x".repeat(MAX_NAME + 1);
    for (lines, part) in [
        ("[openapi.a]", "document"),
        ("[openapi.1a]\ndocument = \"a\"", "begin with a letter"),
        ("[openapi.mcp]\ndocument = \"a\"", "is reserved"),
        (&format!("[openapi.{long}]\ndocument = \"a\""), "at most 24"),
        ("[openapi.a__b]\ndocument = \"a\"", "__"),
        ("[openapi.a]\ndocument = \"a\"\nserver = \"/v1\"", "`server`"),
        ("[openapi.a]\ndocument = \"a\"\nserver = \"https://a.example?x=1\"", "a query"),
        ("[openapi.a]\ndocument = \"a\"\nsha256 = \"abc\"", "64 hex"),
        ("[openapi.a]\ndocument = \"a\"\nnope = 1", "nope"),
        ("[openapi.a]\ndocument = \"a\"\nlimits = { fuel = 5 }", "limits plugin code"),
        ("[openapi.a]\ndocument = \"a\"\nlimits = { timeout = \"0s\" }", "timeout"),
        ("[openapi.a]\ndocument = \"a\"\nresults = { untrusted = false }", "untrusted"),
        ("[openapi.a]\ndocument = \"a\"\napprove = \"reads\"", "writes"),
        ("[openapi.a]\ndocument = \"a\"\nsecrets = { key = \"NOPE\" }", "[secrets.\"NOPE\"]"),
        ("[openapi.a]\ndocument = \"a\"\nheaders = { Host = \"b\" }", "`host`"),
        ("[openapi.a]\ndocument = \"a\"\nheaders = { Cookie = \"b\" }", "cookies are parameters"),
        (
            "[openapi.a]\ndocument = \"a\"\nheaders = { x = \"a\\nb\" }",
            "characters that a header cannot carry",
        ),
        ("[openapi.a]\ndocument = \"a\"\nheaders = { x = { secret = \"NOPE\" } }", "[secrets.\"NOPE\"]"),
        ("[openapi.a]\ndocument = \"a\"\nheaders = { x = { secret = \"A\", nope = 1 } }", "prefix"),
        ("[openapi.a]\ndocument = \"a\"\nnet = [\"api.example.com\"]", "`net`"),
        ("[openapi.a]\ndocument = \"a\"\nnet_private = [\"everything\"]", "`net_private`"),
        ("[openapi.a]\ndocument = \"a\"\n[openapi.a.tools.b]\npermission = \"allow\"", "permission"),
        ("[openapi.a]\ndocument = \"a\"\n[openapi.a.tools.b]\nlimits = { concurrency = 1 }", "whole plugin"),
        ("[openapi.a]\ndocument = \"a\"\n[plugins.a]", "[openapi.a] and [plugins.a] have the same name"),
    ] {
        let error = read(lines).map(|_| ()).unwrap_err();
        assert!(error.contains(part), "{lines}: {error}");
    }
    let many: String = (0..=MAX_SERVICES).map(|n| format!("[openapi.a{n}]\ndocument = \"a\"\n")).collect();
    assert!(read(&many).unwrap_err().contains("at most 100 sections"));
    let many: String = (0..=MAX_HEADERS).map(|n| format!("x{n} = \"a\"\n")).collect();
    let error = read(&format!("[openapi.a]\ndocument = \"a\"\n[openapi.a.headers]\n{many}")).unwrap_err();
    assert!(error.contains("more than 32 lines"), "{error}");
}
