//! `attachments`: which files of a turn a tool can read and create, and every attempt to reach others.

use std::collections::BTreeSet;
use std::sync::Arc;

use integration_tests::{TestHost, fault, output, structured};
use serde_json::{Value, json};
use toolbay::core::call::invoke::BoxFuture;
use toolbay::core::session::attachment::{
    Attachment, AttachmentError, Attachments, MemoryAttachments, check_name,
};
use toolbay::core::tool::content::BlockBody;
use toolbay::core::tool::fault::FaultKind;
use toolbay::policy::capability::attachment::{AttachmentAccess, AttachmentRule};
use toolbay::policy::rule::GrantRule;
use toolbay::{CallResult, TurnContext};

const ALL: &str = "[plugins.a.grant]\nattachments = [\"read\", \"create\"]\n";

async fn host(policy: &str) -> TestHost {
    TestHost::new(&[("a", guest_artifacts::CAP_ATTACHMENTS)], policy).await
}

/// A turn with a text, an image and a binary file.
fn files() -> Arc<MemoryAttachments> {
    let files = MemoryAttachments::new();
    files.add("notes.txt", "text/plain; charset=utf-8", *b"hello");
    files.add("photo.png", "image/png", *b"\x89PNG");
    files.add("../../etc/passwd", "no type", *b"canary");
    Arc::new(files)
}

async fn call(host: &TestHost, files: &Arc<MemoryAttachments>, tool: &str, args: Value) -> CallResult {
    let turn = TurnContext { attachments: Some(Arc::clone(files) as _), ..TurnContext::default() };
    host.call_in(tool, &args.to_string(), turn).await
}

async fn ask(host: &TestHost, files: &Arc<MemoryAttachments>, tool: &str, args: Value) -> Value {
    structured(&call(host, files, tool, args).await)
}

fn ids(listed: &Value) -> Vec<&str> {
    listed["all"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_operations_succeed() {
    let (host, files) = (host(ALL).await, files());
    let all = ask(&host, &files, "a__all", json!({})).await;
    assert_eq!(ids(&all), ["a1", "a2", "a3"]);
    assert_eq!(all["all"][1], json!({"id": "a2", "name": "photo.png", "media": "image/png", "size": 4}));
    assert_eq!(ask(&host, &files, "a__read", json!({"id": "a1"})).await, json!({"text": "hello"}));
    let made = ask(
        &host,
        &files,
        "a__create",
        json!({"name": "new ü.csv", "media": "Text/CSV;header=present", "text": "1,2"}),
    )
    .await;
    assert_eq!(made, json!({"id": "a4", "name": "new ü.csv", "media": "text/csv", "size": 3}));
    let created = files.created();
    assert_eq!((created.len(), created[0].0.name.as_str(), &*created[0].1), (1, "new ü.csv", &b"1,2"[..]));
    assert_eq!(
        ask(&host, &files, "a__read", json!({"id": "a4"})).await,
        json!({"text": "1,2"}),
        "in the same turn"
    );
    let delivered = call(&host, &files, "a__link", json!({"text": "linked"})).await;
    let BlockBody::Link(link) = &output(&delivered).content[0].body else { panic!("{delivered:?}") };
    assert_eq!(link.uri, "attachment:a5", "links stay as they are");
}

#[tokio::test(flavor = "multi_thread")]
async fn attachments_of_a_tool_are_redacted() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().canonicalize().unwrap().join("token");
    std::fs::write(&file, "canary-5c1f-77aa").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let secret = format!("[secrets.T]\nfrom = \"file:{}\"\nreveal = true\n", file.display());
    let (host, files) = (host(&format!("{secret}{ALL}")).await, files());
    let args = json!({"name": "canary-5c1f-77aa.txt", "media": "text/plain", "text": "a canary-5c1f-77aa b"});
    ask(&host, &files, "a__create", args).await;
    let created = files.created();
    assert_eq!((created[0].0.name.as_str(), &*created[0].1), ("[secret T].txt", &b"a [secret T] b"[..]));
    assert_eq!(created[0].0.size, created[0].1.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_attachments_are_denied_and_not_listed() {
    for (grant, seen, read, created) in [
        ("", vec![], [false, false, false], [false, false]),
        ("\"create\"", vec![], [false, false, false], [true, true]),
        ("\"read\"", vec!["a1", "a2", "a3"], [true, true, true], [false, false]),
        ("\"read text/*\"", vec!["a1"], [true, false, false], [false, false]),
        ("\"read image/png\", \"create text/plain\"", vec!["a2"], [false, true, false], [true, false]),
        ("\"read application/octet-stream\"", vec!["a3"], [false, false, true], [false, false]),
        ("\"create image/*\"", vec![], [false, false, false], [false, true]),
    ] {
        let host = host(&format!("[plugins.a.grant]\nattachments = [{grant}]")).await;
        let files = files();
        assert_eq!(ids(&ask(&host, &files, "a__all", json!({})).await), seen, "{grant}");
        for (id, granted) in ["a1", "a2", "a3"].into_iter().zip(read) {
            let said = ask(&host, &files, "a__read", json!({"id": id})).await;
            assert_eq!(said["error"] == "denied", !granted, "{grant} {id}: {said}");
            assert!(!said.to_string().contains("[plugins"), "{said}");
            assert!(granted || !said.to_string().contains("canary"));
        }
        for (media, granted) in ["text/plain", "image/png"].into_iter().zip(created) {
            let said = ask(&host, &files, "a__create", json!({"media": media, "text": "x"})).await;
            assert_eq!(said["error"] == "denied", !granted, "{grant} {media}: {said}");
            let line = format!("create {media}");
            assert!(granted || said["message"].as_str().unwrap().contains(&line), "{said}");
        }
        assert_eq!(files.created().len(), created.into_iter().filter(|made| *made).count(), "{grant}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_gets_only_what_it_declares() {
    let (host, files) = (host(ALL).await, files());
    assert_eq!(ask(&host, &files, "a__images", json!({"id": "a2"})).await["text"], "\u{fffd}PNG");
    assert_eq!(ask(&host, &files, "a__images", json!({"id": "a1"})).await["error"], "denied");
    assert_eq!(ids(&ask(&host, &files, "a__undeclared_all", json!({})).await), Vec::<&str>::new());
    assert_eq!(ask(&host, &files, "a__undeclared_read", json!({"id": "a1"})).await["error"], "denied");
    assert_eq!(ask(&host, &files, "a__undeclared_create", json!({"text": "x"})).await["error"], "denied");
    let junk = json!({"text": "x", "media": "no type"});
    assert_eq!(ask(&host, &files, "a__undeclared_create", junk).await["error"], "denied");
    assert!(files.created().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_looked_up_and_never_a_path() {
    let (host, files) = (host(ALL).await, files());
    std::fs::write(host.root().join("secret"), "canary").unwrap();
    let path = host.root().join("secret").display().to_string();
    let long = "a".repeat(1_000_000);
    for id in [
        "",
        "a0",
        "a5",
        "A1",
        "a1 ",
        " a1",
        "a1\0",
        "a01",
        "notes.txt",
        "attachment:a1",
        "file:///etc/passwd",
        "/etc/passwd",
        "../../etc/passwd",
        "../a1",
        "./a1",
        "a1/../a2",
        "*",
        "%61%31",
        "-1",
        &path,
        &long,
    ] {
        let said = ask(&host, &files, "a__read", json!({"id": id})).await;
        assert_eq!(said, json!({"error": "not-found"}), "{id:.100}");
    }
    let blank = host.ask("a__read", json!({"id": "a1"})).await;
    assert_eq!(blank["error"], "not-found", "a turn without attachments");
    assert_eq!(host.ask("a__all", json!({})).await, json!({"all": []}));
    let made = host.ask("a__create", json!({"text": "x"})).await;
    assert_eq!(made["error"], "other", "{made}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_turns_share_nothing() {
    let (host, one, two) = (host(ALL).await, files(), Arc::new(MemoryAttachments::new()));
    ask(&host, &one, "a__create", json!({"text": "canary"})).await;
    assert_eq!(ids(&ask(&host, &two, "a__all", json!({})).await), Vec::<&str>::new());
    for id in ["a1", "a2", "a3", "a4"] {
        assert_eq!(ask(&host, &two, "a__read", json!({"id": id})).await["error"], "not-found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_media_types_are_checked() {
    let (host, files) = (host(ALL).await, files());
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "/etc/passwd",
        "../x",
        "a\\b",
        "C:\\x",
        "a\0",
        "a\nb",
        "\u{1b}[31m",
        "\u{202e}gpj.exe",
        "\u{200b}",
        "\u{feff}a",
        "a\u{2028}b",
    ] {
        let said = ask(&host, &files, "a__create", json!({"name": name, "text": "x"})).await;
        assert_eq!(said["error"], "other", "{name:?}: {said}");
        assert!(!said.to_string().contains('\u{1b}'));
    }
    let said = ask(&host, &files, "a__create", json!({"name_bytes": 256, "text": "x"})).await;
    assert_eq!(said["error"], "other");
    for media in [
        "",
        "*",
        "*/*",
        "image/*",
        "text",
        "/",
        "text/",
        "/plain",
        "text/pl ain",
        "a/b/c",
        "text/plain\n",
        "té/xt",
    ] {
        let said = ask(&host, &files, "a__create", json!({"media": media, "text": "x"})).await;
        let newline = media.ends_with('\n');
        assert_eq!(said["error"] == "other", !newline, "{media:?}: {said}");
        assert!(!newline || said["media"] == "text/plain", "white space around it is not kept: {said}");
    }
    assert_eq!(files.created().len(), 1);
    assert_eq!(ask(&host, &files, "a__create", json!({"name_bytes": 255, "text": ""})).await["size"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_quota_is_reached_at_its_number_and_is_the_calls() {
    let limits = "[plugins.a.limits]\nattachments = 3\nattachment_bytes = 1000\n";
    let (host, files) = (host(&format!("{limits}{ALL}")).await, files());
    let flood = ask(&host, &files, "a__flood", json!({"times": 5, "text": ""})).await;
    assert_eq!((&flood["made"], &flood["end"]["error"]), (&json!(3), &json!("other")), "{flood}");
    let message = flood["end"]["message"].as_str().unwrap();
    assert!(message.contains("the limit `attachments` is 3; the operator can raise it"), "{message}");
    let flood = ask(&host, &files, "a__flood", json!({"times": 5, "bytes": 400})).await;
    assert_eq!(flood["made"], 2, "another call has its own: {flood}");
    assert!(flood["end"]["message"].as_str().unwrap().contains("attachment_bytes"), "{flood}");
    let large = ask(&host, &files, "a__create", json!({"bytes": 1001})).await;
    assert_eq!(large, json!({"error": "too-large", "size": 1001}));
    assert_eq!(ask(&host, &files, "a__create", json!({"bytes": 1000})).await["size"], 1000);
    assert_eq!(files.created().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_attachments_are_not_copied() {
    let limits = "[plugins.a.limits]\nhost_call_bytes = \"1MiB\"\n";
    let (host, files) = (host(&format!("{limits}{ALL}")).await, files());
    files.add("fits", "text/plain", vec![b'x'; 1 << 20]);
    files.add("large", "text/plain", vec![b'x'; (1 << 20) + 1]);
    assert_eq!(ask(&host, &files, "a__read", json!({"id": "a4"})).await, json!({"bytes": 1 << 20}));
    assert_eq!(
        ask(&host, &files, "a__read", json!({"id": "a5"})).await,
        json!({"error": "too-large", "size": (1 << 20) + 1})
    );
    let huge = call(&host, &files, "a__create", json!({"bytes": 2 << 20})).await;
    assert_eq!(fault(&huge).kind, FaultKind::OutputTooLarge);
    assert!(files.created().is_empty());
}

/// The store of an embedder that reports a small file, returns a large one, and accepts none.
#[derive(Debug)]
struct FaultyAttachments;

impl Attachments for FaultyAttachments {
    fn list(&self) -> BoxFuture<'_, Vec<Attachment>> {
        let about = |id: &str| Attachment {
            id: id.to_owned(),
            name: "small\u{1b}[31m".to_owned(),
            media_type: "text/plain".to_owned(),
            size: 1,
        };
        Box::pin(async move { vec![about("x"), about("gone")] })
    }
    fn read<'a>(&'a self, id: &'a str, _: u64) -> BoxFuture<'a, Result<Vec<u8>, AttachmentError>> {
        Box::pin(async move {
            if id == "gone" {
                Err(AttachmentError::Other("the file is gone".to_owned()))
            } else {
                Ok(vec![0; 17 << 20])
            }
        })
    }
    fn create<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: Vec<u8>,
    ) -> BoxFuture<'a, Result<Attachment, AttachmentError>> {
        Box::pin(async { Err(AttachmentError::Other("the disk is full".to_owned())) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_store_of_an_embedder_is_contained() {
    let host = host(ALL).await;
    let ask = |tool: &'static str, args: Value| {
        let turn = TurnContext { attachments: Some(Arc::new(FaultyAttachments)), ..TurnContext::default() };
        let host = &host;
        async move { structured(&host.call_in(tool, &args.to_string(), turn).await) }
    };
    assert_eq!(ask("a__read", json!({"id": "x"})).await["error"], "too-large");
    assert_eq!(ask("a__read", json!({"id": "gone"})).await["message"], "the file is gone");
    assert_eq!(ask("a__create", json!({"text": "x"})).await["message"], "the disk is full");
}

#[tokio::test(flavor = "multi_thread")]
async fn attachments_open_no_files() {
    let policy = "[plugins.a.grant]\nattachments = [\"read\", \"create\"]\n[plugins.f.grant]\nfs_read = []\n";
    let host = host(policy).await;
    host.load("f", guest_artifacts::CAP_FILES).await;
    std::fs::write(host.root().join("notes.txt"), "hello").unwrap();
    let files = files();
    let said = ask(&host, &files, "f__read", json!({"path": "notes.txt"})).await;
    assert_eq!(said["error"], "denied", "{said}");
}

#[test]
fn the_tables_of_the_page_match_behaviour() {
    let page = include_str!("../../docs/reference/capabilities/attachments.md");
    let cells = |line: &str| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>()
    };
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).map(cells).collect();
    let parse = |text: &str| AttachmentRule::parse(text, std::path::Path::new("/"));
    let mut answers = BTreeSet::new();
    for row in &rows {
        let found = match row.last().unwrap().as_str() {
            "granted" | "denied" => {
                if parse(&row[0]).unwrap().matches(AttachmentAccess::Read, &row[1]) {
                    "granted"
                } else {
                    "denied"
                }
            }
            "a rule" | "refused" if is_rule_row(page, &row[0]) => {
                if parse(&row[0]).is_ok() {
                    "a rule"
                } else {
                    "refused"
                }
            }
            "taken" | "refused" => {
                if check_name(&row[0]).is_ok() {
                    "taken"
                } else {
                    "refused"
                }
            }
            _ => continue,
        };
        answers.insert(found);
        assert_eq!(found, row.last().unwrap(), "{row:?}");
    }
    assert_eq!(answers, BTreeSet::from(["granted", "denied", "a rule", "refused", "taken"]));
}

/// Whether a row belongs to the table of rules and not to the table of names.
fn is_rule_row(page: &str, cell: &str) -> bool {
    let (_, table) = page.split_once("| written in a policy |").unwrap();
    table.split_once("## Operations").unwrap().0.contains(&format!("| `{cell}` |"))
}
