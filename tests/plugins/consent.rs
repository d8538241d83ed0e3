//! Consent: new bytes under an old id get only what the operator agreed to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_tests::{another_build, cache_dir, outcome, policy};
use serde_json::{Value, json};
use toolbay::core::audit::{GrantEvent, MemoryAudit};
use toolbay::policy::consent::{Authority, Consent, ConsentChange, ConsentStore};
use toolbay::{FileConsents, Filter, Host, LoadWarning, PluginId, ToolCall, TurnContext};

const KEEP: &str = "[plugins.p.grant]\nkv = [\"tool\"]\n";
const MORE: &str = "[plugins.p.grant]\nkv = [\"tool\"]\nfs_read = [\"$workspace\"]\n";

/// A state folder that several hosts use one after the other.
struct StateFolder {
    dir: tempfile::TempDir,
    audit: Arc<MemoryAudit>,
}

/// Ignores undeclared imports: the versions differ only in their declarations.
fn about_consent(warning: &LoadWarning) -> bool {
    !warning.message.contains("none of its tools declares")
}

impl StateFolder {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), audit: Arc::default() }
    }

    fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    fn file(&self) -> std::path::PathBuf {
        self.state().join("consents.json")
    }

    fn stored(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.file()).unwrap()).unwrap()
    }

    fn host(&self, text: &str) -> Host {
        let builder = Host::builder(policy(text, self.dir.path())).cache_dir(cache_dir());
        builder.state_dir(self.state()).audit(Arc::clone(&self.audit) as _).build().unwrap()
    }

    /// Starts a host with a policy and loads bytes as `p`, from a file: what is loaded from memory is always compiled.
    async fn start(&self, text: &str, bytes: Vec<u8>) -> (Host, Vec<LoadWarning>) {
        let host = self.host(text);
        let file = self.dir.path().join("p.wasm");
        fs::write(&file, bytes).unwrap();
        let mut warnings = host.load_file(id("p"), &file).await.unwrap();
        warnings.retain(about_consent);
        (host, warnings)
    }

    fn events(&self) -> Vec<GrantEvent> {
        self.audit.take_decisions().into_iter().map(|record| record.event).collect()
    }
}

fn id(text: &str) -> PluginId {
    PluginId::new(text).unwrap()
}

fn build(mark: u8) -> Vec<u8> {
    another_build(guest_artifacts::CAP_CONSENT, mark)
}

async fn call(host: &Host, tool: &str) -> (&'static str, String) {
    let view = host.view(Filter::default());
    let mut results =
        host.call_all(&view, vec![ToolCall::new("1", tool, "{}")], TurnContext::default()).await;
    let delivered = results.pop().unwrap();
    let text = delivered.result.as_ref().map_or_else(ToString::to_string, |output| output.value.clone());
    (outcome(&delivered), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_that_wants_more_is_held_until_the_operator_agrees() {
    use GrantEvent::{Followed, Loaded, Recorded};
    let operator = StateFolder::new();
    let (host, warnings) = operator.start(KEEP, build(1)).await;
    assert!(warnings.is_empty() && call(&host, "p__plain").await.0 == "ok");
    assert_eq!(operator.events(), [Recorded, Loaded]);
    assert_eq!(fs::metadata(operator.file()).unwrap().permissions().mode() & 0o777, 0o600);
    let first = operator.stored();
    assert_eq!(first["plugins"]["p"]["granted"]["tools"], json!({"keep": {"kv": ["tool"]}}));

    operator.start(KEEP, build(1)).await;
    assert_eq!(
        (operator.events(), operator.stored()),
        (vec![Loaded], first.clone()),
        "nothing new, nothing written"
    );

    operator.start(KEEP, build(2)).await;
    assert_eq!(operator.events(), [Followed, Loaded], "other bytes that get the same");
    assert_ne!(operator.stored()["plugins"]["p"]["digest"], first["plugins"]["p"]["digest"]);

    // The operator writes a line for the present version. Then a version arrives that the line was not written for.
    let before = operator.stored();
    let (host, warnings) = operator.start(MORE, build(3)).await;
    assert_eq!((operator.stored(), warnings.len()), (before, 1));
    let held = operator.audit.take_decisions();
    assert_eq!((held.len(), held[0].event), (1, Loaded));
    assert_eq!(held[0].held, ["keep_anywhere: fs_read $workspace", "read: fs_read $workspace"]);
    for tool in ["p__plain", "p__keep", "p__read", "p__ask"] {
        let (outcome, text) = call(&host, tool).await;
        assert_eq!(outcome, "not_available", "{tool}");
        assert!(text.contains("is held until the operator agrees") && !text.contains("fs_read"), "{text}");
    }
    assert!(host.view(Filter::default()).definitions().all(|tool| tool.def.source.plugin().is_none()));
    assert_eq!(host.explain("p__plain", None).unwrap().unavailable, Some(warnings[0].message.clone()));

    let agreed = Consent {
        digest: host.plugin("p").unwrap().digest.to_string(),
        version: None,
        granted: Authority::default(),
        at: String::new(),
        by: "a test".to_owned(),
    };
    FileConsents::new(operator.state())
        .update(&id("p"), &mut |_| ConsentChange::Replace(agreed.clone()))
        .unwrap();
    let (host, warnings) = operator.start(MORE, build(3)).await;
    assert!(warnings.is_empty() && call(&host, "p__read").await.0 == "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_without_declarations_does_not_bypass_consent() {
    // The lines exist. The first version does not ask for them, the second one does.
    let operator = StateFolder::new();
    let host = operator.host(KEEP);
    let quiet = fs::read(guest_artifacts::API_ECHO).unwrap();
    host.load_bytes(id("p"), quiet).await.unwrap();
    assert_eq!(operator.stored()["plugins"]["p"]["granted"]["tools"], json!({}));
    let (host, warnings) = operator.start(KEEP, build(1)).await;
    assert!(warnings[0].message.contains("+ keep: kv tool"), "{warnings:?}");
    assert_eq!(call(&host, "p__plain").await.0, "not_available");
    // Without a line nothing needs consent, and nothing is recorded.
    let other = StateFolder::new();
    let (host, warnings) = other.start("", build(1)).await;
    assert!(warnings.is_empty() && !other.file().exists() && call(&host, "p__plain").await.0 == "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_reducer_changes_nothing() {
    let operator = StateFolder::new();
    let reduces = "[plugins.r.grant]\nreduce = [\"p__long\"]\n";
    let host = operator.host(reduces);
    host.load_bytes(id("r"), another_build(guest_artifacts::REDUCE_GOOD, 1)).await.unwrap();
    assert_eq!(operator.stored()["plugins"]["r"]["granted"]["reduce"], json!(["p__long"]));
    let more = "[plugins.r.grant]\nreduce = [\"p__long\", \"p__echo\"]\n";
    let host = operator.host(more);
    let warnings = host.load_bytes(id("r"), another_build(guest_artifacts::REDUCE_GOOD, 2)).await.unwrap();
    assert!(warnings.iter().any(|w| w.message.contains("+ reduce p__echo")), "{warnings:?}");
    assert_eq!(host.registry().snapshot().reducers().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_is_a_consent() {
    let operator = StateFolder::new();
    let (host, _) = operator.start(KEEP, build(1)).await;
    let digest = |bytes: Vec<u8>| async {
        let host = Host::builder(policy("", Path::new("/"))).build().unwrap();
        host.load_bytes(id("p"), bytes).await.unwrap();
        host.plugin("p").unwrap().digest
    };
    drop(host);
    let pin = format!("[plugins.p]\nsha256 = \"{}\"\n{MORE}", digest(build(2)).await);
    let (host, warnings) = operator.start(&pin, build(2)).await;
    assert!(warnings.is_empty() && call(&host, "p__read").await.0 == "ok");
    // The same holds if nothing can be recorded.
    fs::write(operator.file(), "junk").unwrap();
    let (host, warnings) = operator.start(&pin, build(2)).await;
    assert!(warnings.is_empty() && call(&host, "p__read").await.0 == "ok");
    assert_eq!(fs::read_to_string(operator.file()).unwrap(), "junk");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_consent_record_holds_every_plugin_and_is_kept() {
    let good = {
        let operator = StateFolder::new();
        operator.start(KEEP, build(1)).await;
        fs::read_to_string(operator.file()).unwrap()
    };
    for (text, part) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "is damaged"),
        ("null", "is damaged"),
        (&good[..good.len() / 2], "EOF"),
        (
            &good.replace("\"version\": 1", "\"version\": 2"),
            "was written by a newer version of Toolbay (format 2",
        ),
        (&good.replace("\"version\": 1", "\"version\": \"1\""), "is damaged"),
        (&good.replace("\"granted\"", "\"grants\""), "grants"),
        (&good.replace("\"digest\"", "\"digest\": \"\", \"digest\""), "duplicate"),
        (&format!("{good}x"), "trailing"),
        (&good.replace("\"plugins\"", "\"more\": 1, \"plugins\""), "more"),
    ] {
        let operator = StateFolder::new();
        fs::create_dir(operator.state()).unwrap();
        fs::set_permissions(operator.state(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(operator.file(), text).unwrap();
        let (host, warnings) = operator.start(KEEP, build(1)).await;
        assert_eq!(warnings.len(), 1, "{text}");
        let message = &warnings[0].message;
        assert!(message.contains(part) && message.contains("consents.json"), "{text}: {message}");
        assert!(!message.contains("its new capabilities"), "the plugin is not to blame: {message}");
        assert_eq!(call(&host, "p__keep").await.0, "not_available");
        assert_eq!(fs::read_to_string(operator.file()).unwrap(), text);
        // Ungranted capabilities need no consent.
        let quiet = host.load_file(id("quiet"), &operator.dir.path().join("p.wasm")).await.unwrap();
        assert!(!quiet.iter().any(about_consent) && call(&host, "quiet__plain").await.0 == "ok");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consent_record_that_others_can_write_is_not_trusted() {
    for (path, mode) in [("", 0o777), ("consents.json", 0o666)] {
        let operator = StateFolder::new();
        operator.start(KEEP, build(1)).await;
        fs::set_permissions(operator.state().join(path), fs::Permissions::from_mode(mode)).unwrap();
        let (_, warnings) = operator.start(KEEP, build(1)).await;
        assert!(warnings[0].message.contains("can be written by others"), "{warnings:?}");
    }
    let operator = StateFolder::new();
    operator.start(KEEP, build(1)).await;
    let elsewhere = operator.dir.path().join("elsewhere.json");
    fs::rename(operator.file(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, operator.file()).unwrap();
    let (_, warnings) = operator.start(KEEP, build(1)).await;
    assert!(warnings[0].message.contains("cannot be read"), "{warnings:?}");
    // The folder cannot be created, so nothing can be recorded and nothing is granted.
    let operator = StateFolder::new();
    fs::write(operator.state(), "a file").unwrap();
    let (host, warnings) = operator.start(KEEP, build(1)).await;
    assert_eq!((warnings.len(), call(&host, "p__keep").await.0), (1, "not_available"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_state_folder_nothing_is_held_and_reading_writes_nothing() {
    let host = Host::builder(policy(KEEP, Path::new("/"))).cache_dir(cache_dir()).build().unwrap();
    for mark in [1, 2] {
        assert!(!host.load_bytes(id("p"), build(mark)).await.unwrap().iter().any(about_consent));
    }
    let operator = StateFolder::new();
    let store = Arc::new(FileConsents::new(operator.state()).read_only());
    let look =
        || Host::builder(policy(MORE, Path::new("/"))).consents(Arc::clone(&store) as _).build().unwrap();
    assert!(!look().load_bytes(id("p"), build(1)).await.unwrap().iter().any(about_consent));
    assert!(!operator.state().exists());
    operator.start(KEEP, build(1)).await;
    let before = fs::read_to_string(operator.file()).unwrap();
    let held = look().load_bytes(id("p"), build(2)).await.unwrap();
    assert_eq!(held.iter().filter(|w| about_consent(w)).count(), 1, "held for who looks too");
    assert_eq!(fs::read_to_string(operator.file()).unwrap(), before);
    let names: Vec<_> = fs::read_dir(operator.state()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.len() == 2, "only the record and its lock: {names:?}");
}

/// Consents whose updates are counted.
#[derive(Debug)]
struct CountedConsents {
    file: FileConsents,
    updates: AtomicUsize,
}

impl ConsentStore for CountedConsents {
    fn update_all(
        &self,
        plugins: &[&PluginId],
        decide: &mut dyn FnMut(usize, Option<&Consent>) -> ConsentChange,
    ) -> Result<bool, String> {
        self.updates.fetch_add(1, Ordering::Relaxed);
        self.file.update_all(plugins, decide)
    }
}

/// Each update reads the whole file and may write it, so one for each plugin made a start quadratic.
#[tokio::test(flavor = "multi_thread")]
async fn the_consents_of_many_plugins_are_read_and_written_together() {
    const PLUGINS: usize = 40;
    let operator = StateFolder::new();
    let plugins = operator.dir.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    let mut text = String::new();
    for n in 0..PLUGINS {
        fs::copy(guest_artifacts::CAP_CONSENT, plugins.join(format!("p{n}.wasm"))).unwrap();
        text += &format!("[plugins.p{n}.grant]\nkv = [\"tool\"]\n");
    }
    let counted = || {
        let file = FileConsents::new(operator.state());
        Arc::new(CountedConsents { file, updates: AtomicUsize::new(0) })
    };
    let host = |store: &Arc<CountedConsents>| {
        let builder = Host::builder(policy(&text, operator.dir.path())).cache_dir(cache_dir());
        builder.consents(Arc::clone(store) as _).build().unwrap()
    };
    // The plugins of a first start are registered as they are compiled: in batches, which do not depend on their number.
    host(&counted()).load_dir(&plugins).await.unwrap();
    assert_eq!(operator.stored()["plugins"].as_object().unwrap().len(), PLUGINS);
    let before = operator.stored();
    let again = counted();
    let host = host(&again);
    assert_eq!(host.load_dir(&plugins).await.unwrap().loaded.len(), PLUGINS);
    let of_start = again.updates.swap(0, Ordering::Relaxed);
    assert!((1..=2).contains(&of_start), "{of_start} updates for a start with {PLUGINS} plugins");
    let edited = policy(&format!("{text}[limits]\ntimeout = \"7s\"\n"), operator.dir.path());
    host.reload_policy(edited).await.unwrap();
    let of_edit = again.updates.load(Ordering::Relaxed);
    assert!((1..=2).contains(&of_edit), "{of_edit} updates for an edit with {PLUGINS} plugins");
    assert_eq!(operator.stored(), before, "nothing new, nothing written");
}

/// The old version was gone after a restart, although the operator had agreed to it and to no other.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_version_of_a_held_plugin_serves_after_a_restart_too() {
    let operator = StateFolder::new();
    let plugins = operator.dir.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    let file = plugins.join("p.wasm");
    let put = |bytes: Vec<u8>| {
        let beside = operator.dir.path().join("new.wasm");
        fs::write(&beside, bytes).unwrap();
        fs::rename(beside, &file).unwrap();
    };
    put(fs::read(guest_artifacts::API_ECHO).unwrap());
    let host = operator.host(KEEP);
    host.load_dir(&plugins).await.unwrap();
    let agreed = host.plugin("p").unwrap().digest;
    put(build(7));
    for _ in 0..2 {
        // A restart.
        let host = operator.host(KEEP);
        let report = host.load_dir(&plugins).await.unwrap();
        let waits = &report.problems[0];
        assert!(waits.kept && waits.error.to_string().contains("+ keep: kv tool"), "{report:?}");
        assert_eq!(host.plugin("p").unwrap().digest, agreed);
        assert_eq!(host.plugin("p").unwrap().held, None);
        let (outcome, text) = call(&host, "p__echo").await;
        assert_eq!((outcome, &*text), ("ok", "{}"));
        // The command line reads the same records, and changes none.
        let store = Arc::new(FileConsents::new(operator.state()).read_only());
        let looks = Host::builder(policy(KEEP, operator.dir.path())).cache_dir(cache_dir());
        let looks = looks.consents(store).build().unwrap();
        looks.load_dir(&plugins).await.unwrap();
        assert_eq!(looks.plugin("p").unwrap().digest, agreed);
        // Lines that are added now may be meant for the one that waits: they do not let it in by themselves.
        let host = operator.host(MORE);
        host.load_dir(&plugins).await.unwrap();
        assert_ne!(call(&host, "p__read").await.0, "ok");
    }
    let digest = {
        let other = Host::builder(policy("", Path::new("/"))).cache_dir(cache_dir()).build().unwrap();
        other.load_file(id("p"), &file).await.unwrap();
        other.plugin("p").unwrap().digest.to_string()
    };
    let granted = Authority::default();
    let consent = Consent { digest, version: None, granted, at: String::new(), by: "a test".to_owned() };
    FileConsents::new(operator.state())
        .update(&id("p"), &mut |_| ConsentChange::Replace(consent.clone()))
        .unwrap();
    let host = operator.host(KEEP);
    assert!(host.load_dir(&plugins).await.unwrap().problems.is_empty());
    assert_eq!(call(&host, "p__plain").await.0, "ok");
}

#[test]
fn writers_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let store = FileConsents::new(&state);
            scope.spawn(move || {
                for n in 0..10 {
                    let consent = Consent {
                        digest: format!("{writer}-{n}"),
                        version: None,
                        granted: Authority::default(),
                        at: String::new(),
                        by: String::new(),
                    };
                    let own = id(&format!("w{writer}-{n}"));
                    store.update(&own, &mut |_| ConsentChange::Replace(consent.clone())).unwrap();
                    // Concurrent hosts share one record, and each sees the earlier ones.
                    let mut add = |known: Option<&Consent>| {
                        let count = known.map_or(0, |c| c.digest.parse::<u32>().unwrap());
                        ConsentChange::Replace(Consent { digest: (count + 1).to_string(), ..consent.clone() })
                    };
                    store.update(&id("all"), &mut add).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(state.join("consents.json")).unwrap();
    let stored: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["plugins"].as_object().unwrap().len(), 81);
    assert_eq!(stored["plugins"]["all"]["digest"], "80");
}
