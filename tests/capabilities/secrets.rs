//! `secrets`: which plugin gets which secret, and that no value leaves the host.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use integration_tests::{RecordedProgress, TestHost, outcome, output, policy, refusal, value};
use serde_json::{Value, json};
use toolbay::core::audit::MemoryAudit;
use toolbay::{CallResult, Host, PluginId, TurnContext};

/// Contains the characters that JSON, URLs and HTML escape.
const CANARY: &str = "canary/value+with \"quotes\" & 100%\\ä";
const HIDDEN: &str = "hidden-canary-0123456789";

struct SecretsFixture {
    host: Host,
    audit: Arc<MemoryAudit>,
    progress: Arc<RecordedProgress>,
    _dir: tempfile::TempDir,
}

fn secret_file(path: &Path, value: &str) {
    fs::write(path, value).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

impl SecretsFixture {
    /// A host with three secrets: `shown` is given to the guest, `hidden` cannot be bound yet, `gone` has no value.
    async fn new(grant: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        secret_file(&root.join("shown"), &format!("{CANARY}\n"));
        secret_file(&root.join("hidden"), HIDDEN);
        secret_file(&root.join("key"), "value-of-the-group");
        let section = |name: &str, file: &str| {
            format!("[secrets.{name:?}]\nfrom = \"file:{}\"\nreveal = true\n", root.join(file).display())
        };
        let text = [
            section("shown", "shown"),
            section("hidden", "hidden"),
            section("group/key", "key"),
            section("gone", "nothing"),
            section("not/granted", "hidden"),
            format!("[plugins.s.grant]\nsecrets = {grant}\n"),
        ];
        let work = root.join("work");
        fs::create_dir(&work).unwrap();
        let audit = Arc::new(MemoryAudit::default());
        let builder = Host::builder(policy(&text.concat(), &work)).cache_dir(integration_tests::cache_dir());
        let host = builder.audit(Arc::clone(&audit) as _).build().unwrap();
        let guest = Path::new(guest_artifacts::CAP_SECRETS);
        host.load_file(PluginId::new("s").unwrap(), guest).await.unwrap();
        Self { host, audit, progress: Arc::default(), _dir: dir }
    }

    async fn call(&self, tool: &str, args: Value) -> CallResult {
        let view = self.host.view(toolbay::Filter::default());
        let turn = TurnContext { progress: Some(Arc::clone(&self.progress) as _), ..TurnContext::default() };
        let call = toolbay::ToolCall::new("1", format!("s__{tool}"), args.to_string());
        self.host.call_all(&view, vec![call], turn).await.pop().unwrap()
    }

    async fn ask(&self, tool: &str, names: &[&str]) -> Vec<Value> {
        let delivered = self.call(tool, json!({ "names": names })).await;
        integration_tests::structured(&delivered)["answers"].as_array().unwrap().clone()
    }
}

/// The value as the guest prints it, without marks.
fn plain(answer: &Value) -> String {
    answer["text"].as_str().unwrap_or_default().replace('|', "")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_reaches_only_plugins_that_declare_it_and_are_granted_it() {
    let host = SecretsFixture::new(r#"["shown", "group/*", "gone"]"#).await;
    let answers = host.ask("ask", &["shown", "group/key", "shown"]).await;
    let said: Vec<_> = answers.iter().map(|answer| (plain(answer), answer["revealed"] == true)).collect();
    let shown = (CANARY.to_owned(), true);
    assert_eq!(said, [shown.clone(), ("value-of-the-group".to_owned(), true), shown]);
    // Undeclared, ungranted, unknown and invalid names get the same text. It repeats only the requested name.
    let names = [
        "hidden",
        "gone",
        "not/granted",
        "unknown",
        "group",
        "group/",
        "group/*",
        "group/../shown",
        "group//key",
        "group/./key",
        "*",
        "",
        "shown ",
        "SHOWN",
        "shown\0",
        "file:/etc/passwd",
        "shown\n[plugins.s.grant]",
    ];
    let answers = host.ask("ask", &names).await;
    for (name, answer) in names.iter().zip(&answers) {
        assert_eq!(answer["error"], "denied", "{name:?}: {answer}");
        let why = answer["why"].as_str().unwrap();
        let shown = toolbay::policy::capability::path_rule::printable_path(name);
        assert_eq!(
            why,
            format!(
                "the secret `{shown}` is not granted to tool `ask`: not permitted; `toolbay explain s__ask` tells \
                 the operator what would allow it"
            )
        );
    }
    let long = "x".repeat(100_000);
    let answer = host.ask("ask", &[&long]).await;
    assert!(answer[0]["why"].as_str().unwrap().len() < 1000);
    let undeclared = host.ask("ask_undeclared", &["shown", "hidden", "unknown"]).await;
    assert!(undeclared.iter().all(|answer| answer["error"] == "denied"), "{undeclared:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_value_makes_only_the_tool_unavailable() {
    let host = SecretsFixture::new(r#"["shown", "hidden", "gone"]"#).await;
    let missing = host.call("ask_missing", json!({})).await;
    let message = &refusal(&missing).message;
    assert!(message.contains("`gone` has no value"), "{message}");
    assert!(integration_tests::hints(&missing).contains("cannot be opened"), "{missing:?}");
    assert_eq!(host.ask("ask_missing_optional", &["gone"]).await, [json!({"error": "not-found"})]);
    assert_eq!(plain(&host.ask("ask_required", &["hidden"]).await[0]), HIDDEN);
    let none = SecretsFixture::new("[]").await;
    let refused = none.call("ask_required", json!({})).await;
    assert!(integration_tests::hints(&refused).contains("secrets = [\"hidden\"]"), "{refused:?}");
}

/// Every form of the canary that the guest makes, and half of it.
fn forms() -> Vec<String> {
    let hex: String = CANARY.bytes().map(|b| format!("{b:02x}")).collect();
    let half = |text: &str| text.chars().take(text.chars().count() / 2).collect::<String>();
    let percent: String = CANARY.bytes().map(|b| format!("%{b:02X}")).collect();
    let base64 = "Y2FuYXJ5L3ZhbHVlK3dpdGggInF1b3Rlcy";
    let all = [CANARY.to_owned(), hex.clone(), hex.to_uppercase(), percent, base64.to_owned()];
    all.iter()
        .map(|form| half(form))
        .chain(["canary".to_owned(), "NhbmFyeS92YWx1ZSt3aXRo".to_owned()])
        .collect()
}

#[track_caller]
fn check_clean(what: &str, text: &str) {
    for form in forms() {
        assert!(!text.contains(&form), "{what} has {form}: {text}");
    }
    assert!(text.contains("[secret shown]"), "{what} said nothing: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_leaves_in_a_result_progress_or_record() {
    let host = SecretsFixture::new(r#"["shown", "hidden", "group/*"]"#).await;
    let delivered = host.call("leak", json!({})).await;
    let out = output(&delivered);
    check_clean("the text", value(&delivered));
    assert!(value(&delivered).starts_with("reduced: "), "the reducer saw it clean: {}", value(&delivered));
    let structured = out.structured.as_ref().unwrap().get();
    check_clean("structured", structured);
    serde_json::from_str::<Value>(structured).unwrap();
    check_clean("metadata", out.meta.as_ref().unwrap().get());
    check_clean("progress", &format!("{:?}", host.progress.0.lock().unwrap()));
    let records = serde_json::to_string(&host.audit.take()).unwrap();
    assert!(!records.contains("canary"), "{records}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_leaves_in_blocks() {
    let host = SecretsFixture::new(r#"["shown"]"#).await;
    let delivered = host.call("leak_blocks", json!({})).await;
    assert_eq!(output(&delivered).content.len(), 5);
    for block in &output(&delivered).content {
        let text = format!("{block:?}");
        let redacted = format!("{:?}", b"[secret shown]");
        assert!(text.contains("[secret shown]") || text.contains(&redacted[1..redacted.len() - 1]), "{text}");
        for form in forms() {
            let bytes = format!("{:?}", form.as_bytes());
            assert!(!text.contains(&form) && !text.contains(bytes.trim_matches(['[', ']'])), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_leaves_in_an_error_or_in_last_words() {
    let host = SecretsFixture::new(r#"["shown"]"#).await;
    for (tool, args, ends) in [
        ("panic", json!({}), "trap"),
        ("panic", json!({"exit": true}), "trap"),
        ("fail", json!({}), "not_available"),
        ("fail", json!({"plain": true}), "execution_failed"),
        ("shape", json!({}), "ok"),
    ] {
        let delivered = host.call(tool, args.clone()).await;
        assert_eq!(outcome(&delivered), ends, "{delivered:?}");
        let text = format!("{:?}", delivered.result);
        for form in forms() {
            assert!(!text.contains(&form), "{tool} {args}: {text}");
        }
        assert!(tool == "shape" || text.contains("[secret shown]"), "{tool} {args}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_a_secret_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir(root.join("work")).unwrap();
    secret_file(&root.join("good"), "good-value-good");
    fs::write(root.join("open"), "open-value-open").unwrap();
    fs::set_permissions(root.join("open"), fs::Permissions::from_mode(0o644)).unwrap();
    symlink(root.join("good"), root.join("work/planted")).unwrap();
    secret_file(&root.join("huge"), &"x".repeat(1 << 20));
    secret_file(&root.join("empty"), "\n");
    assert!(
        std::process::Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(root.join("fifo"))
            .status()
            .unwrap()
            .success()
    );
    for (file, why) in [
        ("open", "chmod 600"),
        ("work/planted", "a symbolic link in the workspace"),
        ("huge", "at most"),
        ("empty", "it is empty"),
        ("fifo", "not a regular file"),
        ("none", "cannot be opened"),
    ] {
        let path = root.join(file);
        let text = format!(
            "[secrets.gone]\nfrom = \"file:{}\"\nreveal = true\n[plugins.s.grant]\nsecrets = [\"gone\"]",
            path.display()
        );
        let host = Host::builder(policy(&text, &root.join("work"))).cache_dir(integration_tests::cache_dir());
        let host = host.build().unwrap();
        host.load_file(PluginId::new("s").unwrap(), Path::new(guest_artifacts::CAP_SECRETS)).await.unwrap();
        let view = host.view(toolbay::Filter::default());
        let call = toolbay::ToolCall::new("1", "s__ask_missing", "{}");
        let said = host.call_all(&view, vec![call], TurnContext::default()).await.pop().unwrap();
        let message = &refusal(&said).message;
        assert!(message.contains("`gone`"), "{file}: {message}");
        let hints = integration_tests::hints(&said);
        assert!(hints.contains(why), "{file}: {hints}");
        assert!(!message.contains("-value-") && !hints.contains("-value-"), "{message} {hints}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_secrets_changes_nothing() {
    let host = TestHost::new(&[("s", guest_artifacts::CAP_SECRETS)], "").await;
    let said = host.ask("s__ask", json!({"names": ["shown"]})).await;
    assert_eq!(said["answers"][0]["error"], "denied");
}
