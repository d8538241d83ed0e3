//! A policy that is reloaded while the host runs, and consents from another process.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_tests::{another_build, outcome, policy};
use toolbay::core::audit::MemoryAudit;
use toolbay::core::registry::event::HostEvent;
use toolbay::policy::consent::{Authority, Consent, ConsentChange, ConsentStore};
use toolbay::{
    ChangeKind, FileConsents, Filter, LoadError, LoadEvent, PluginId, Policy, ToolCall, TurnContext,
    WatchOptions, WatchedFile,
};

use super::directory_watch::{WatchedHost, echo, put, quick};

const KEEP: &str = "[plugins.p.grant]\nkv = [\"tool\"]\n";
const MORE: &str = "[plugins.p.grant]\nkv = [\"tool\"]\nfs_read = [\"$workspace\"]\n";

fn consenting(mark: u8) -> Vec<u8> {
    another_build(guest_artifacts::CAP_CONSENT, mark)
}

fn id(text: &str) -> PluginId {
    PluginId::new(text).unwrap()
}

/// A host that watches its policy file.
struct PolicyFixture {
    living: WatchedHost,
    file: PathBuf,
    compiled: Arc<AtomicUsize>,
    audit: Arc<MemoryAudit>,
}

impl PolicyFixture {
    async fn new(text: &str) -> Self {
        let place = tempfile::tempdir().unwrap().keep();
        let file = place.join("toolbay.toml");
        put(&file, format!("version = 1\n{text}").as_bytes());
        let read = {
            let file = file.clone();
            move || {
                let text = fs::read_to_string(&file).map_err(|e| e.to_string())?;
                Policy::parse(&text, file.parent().unwrap(), None).map_err(|e| e.to_string())
            }
        };
        let first = read().unwrap();
        let options = WatchOptions { files: vec![WatchedFile::policy(&file, read)], ..quick() };
        let (compiled, audit) = (Arc::new(AtomicUsize::new(0)), Arc::<MemoryAudit>::default());
        let (count, sink) = (Arc::clone(&compiled), Arc::clone(&audit));
        let living = WatchedHost::with("", options, |_, dir| {
            toolbay::Host::builder(first)
                .state_dir(dir.join("state"))
                .cache_dir(integration_tests::cache_dir())
                .audit(sink)
                .on_load(Arc::new(move |event| {
                    if let LoadEvent::Compiling { .. } = event {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }))
        });
        Self { living: living.await, file, compiled, audit }
    }

    fn write(&self, text: &str) {
        put(&self.file, format!("version = 1\n{text}").as_bytes());
    }

    async fn reloaded(&mut self) -> Vec<&'static str> {
        let event = self.living.until(|event| matches!(event, HostEvent::PolicyReloaded { .. })).await;
        let HostEvent::PolicyReloaded { restart } = event else { unreachable!() };
        restart
    }

    async fn refused(&mut self) -> String {
        let event = self.living.until(|event| matches!(event, HostEvent::PolicyRefused { .. })).await;
        let HostEvent::PolicyRefused { problem } = event else { unreachable!() };
        problem
    }
}

impl Drop for PolicyFixture {
    fn drop(&mut self) {
        fs::remove_dir_all(self.file.parent().unwrap()).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_change_applies_to_the_next_call_without_compiling() {
    let mut it = PolicyFixture::new("").await;
    it.living.put("p.wasm", &consenting(1));
    it.living.until_added("p").await;
    let compiled = it.compiled.load(Ordering::Relaxed);
    assert_eq!(it.living.call("p__keep", "{}").await.0, "not_available");
    it.write(KEEP);
    assert_eq!(it.reloaded().await, Vec::<&str>::new());
    assert_eq!(it.living.call("p__keep", "{}").await.0, "ok");
    it.write("");
    it.reloaded().await;
    let (outcome, text) = it.living.call("p__keep", "{}").await;
    assert!(outcome == "not_available" && text.contains("kv"), "{text}");
    it.write("[plugins.p.limits]\nargs_bytes = 64\n");
    it.reloaded().await;
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(100));
    let (outcome, text) = it.living.call("p__plain", &long).await;
    assert!(outcome == "input_invalid" && text.contains("args_bytes"), "{text}");
    // The same policy in other words changes nothing.
    it.write("\n# a comment\n[plugins.p.limits]\nargs_bytes = 0x40\n");
    it.living.put("z.wasm", &echo(1));
    let event = it.living.until(|_| true).await;
    assert!(matches!(&event, HostEvent::Registered { source, .. } if source == "plugin:z"), "{event:?}");
    it.write("[host]\nparallel_calls = 3\nbreaker_faults = 7\n");
    assert_eq!(it.reloaded().await, ["parallel_calls"], "the breaker needs no restart");
    assert_eq!(it.living.host.available_call_permits(), 64);
    it.write("");
    assert_eq!(it.reloaded().await, Vec::<&str>::new(), "it is as at the start again");
    let echos = usize::from(it.compiled.load(Ordering::Relaxed) > compiled);
    assert_eq!(it.compiled.load(Ordering::Relaxed), compiled + echos, "only the new plugin may have been");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_policy_is_refused_entirely() {
    let mut it = PolicyFixture::new(KEEP).await;
    it.living.put("p.wasm", &consenting(1));
    it.living.until_added("p").await;
    for (text, part) in [
        ("[plugins.p.grant]\nkv = [\"tool\"\n", "line 3"),
        ("[plugins.p.grant]\nkv = [\"everything\"]\n", "kv"),
        ("[plugins.p.grants]\n", "grants"),
    ] {
        it.write(text);
        let problem = it.refused().await;
        assert!(problem.contains(part), "{text}: {problem}");
        assert_eq!(it.living.call("p__keep", "{}").await.0, "ok", "the one before holds");
    }
    fs::remove_file(&it.file).unwrap();
    let problem = it.refused().await;
    assert!(problem.contains("is gone"), "{problem}");
    assert_eq!(it.living.call("p__keep", "{}").await.0, "ok");
    it.write("");
    it.reloaded().await;
    assert_eq!(it.living.call("p__keep", "{}").await.0, "not_available");
    // Swapped symlinks, as in mounted configuration.
    let place = it.file.parent().unwrap().to_path_buf();
    let version = |name: &str, text: &str| {
        fs::create_dir(place.join(name)).unwrap();
        fs::write(place.join(name).join("toolbay.toml"), format!("version = 1\n{text}")).unwrap();
    };
    version("one", "[limits]\nargs_bytes = 9\n");
    version("two", KEEP);
    symlink("one", place.join("now")).unwrap();
    fs::remove_file(&it.file).unwrap();
    symlink("now/toolbay.toml", &it.file).unwrap();
    it.reloaded().await;
    symlink("two", place.join("next")).unwrap();
    fs::rename(place.join("next"), place.join("now")).unwrap();
    it.reloaded().await;
    assert_eq!(it.living.call("p__keep", "{}").await.0, "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_and_a_section_hold_at_once() {
    let mut it = PolicyFixture::new("").await;
    it.living.put("p.wasm", &consenting(1));
    it.living.until_added("p").await;
    let digest = it.living.digest("p").unwrap();
    it.write(&format!("[plugins.p]\nsha256 = \"{}\"\n", "0".repeat(64)));
    it.living.until_removed("p").await;
    let problems = it.living.host.problems();
    assert!(
        matches!(&*problems[0].error, LoadError::DigestMismatch { .. }) && !problems[0].kept,
        "{problems:?}"
    );
    it.write(&format!("[plugins.p]\nsha256 = \"{digest}\"\n"));
    it.living.until_added("p").await;
    it.living.put("p.wasm", &consenting(2));
    let told = it.living.until(|event| matches!(event, HostEvent::NotLoaded { .. })).await;
    assert!(matches!(told, HostEvent::NotLoaded { kept: true, .. }), "the pinned version stays: {told:?}");
    assert_eq!(it.living.digest("p"), Some(digest));
    // Without the pin, the present file is loaded.
    it.write("");
    it.living.until_replaced("p").await;
    if it.living.host.problems().iter().any(|problem| problem.kept) {
        it.living.until_replaced("p").await;
    }
    it.write("[plugins.p.tools.misspelt]\nkv = []\n");
    it.living.until_removed("p").await;
    it.write("[plugins.q]\nfile = \"p.wasm\"\n");
    it.living.until_added("q").await;
    assert!(it.living.host.plugin("p").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_follows_the_current_policy() {
    let profile = |tools: &str| format!("{KEEP}[profile.few]\ntools = [{tools}]\n");
    let mut it = PolicyFixture::new(&profile("\"p__plain\"")).await;
    it.living.put("p.wasm", &consenting(1));
    it.living.until_added("p").await;
    // Created once, as a server does at its start.
    let filter = Arc::new(Filter::for_profile(it.living.host.policy().profile("few").cloned()));
    let seen = |it: &PolicyFixture| -> Vec<String> {
        let view = it.living.host.view(Arc::clone(&filter));
        view.definitions().map(|entry| entry.def.name.to_string()).collect()
    };
    assert_eq!(seen(&it), ["p__plain"]);
    it.write(&profile("\"p__keep\""));
    it.reloaded().await;
    assert_eq!(seen(&it), ["p__keep"]);
    it.write(KEEP);
    it.reloaded().await;
    assert_eq!(seen(&it), Vec::<String>::new(), "a profile that is gone sees nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_wants_more_is_held_while_the_old_one_runs() {
    let mut it = PolicyFixture::new(KEEP).await;
    it.living.put("p.wasm", &consenting(1));
    it.living.until_added("p").await;
    let first = it.living.digest("p").unwrap();
    // The operator writes a line for the present version. Then a version arrives that the line was not written for.
    it.write(MORE);
    it.reloaded().await;
    assert_eq!(it.living.call("p__read", "{}").await.0, "ok");
    let state = it.living.dir.path().join("state");
    let consents = FileConsents::new(&state);
    let granted = |more: bool| {
        let mut known = consents.get(&id("p")).unwrap().unwrap();
        if !more {
            known.granted.remove(&["fs_read".to_owned()]);
        }
        known
    };
    // As if consent had been given before the line was written.
    let fewer = granted(false);
    consents.update(&id("p"), &mut |_| ConsentChange::Replace(fewer.clone())).unwrap();
    it.living.put("p.wasm", &consenting(2));
    let told = it.living.until(|event| matches!(event, HostEvent::ConsentRequired { .. })).await;
    let HostEvent::ConsentRequired { plugin, reason, kept } = &told else { unreachable!() };
    assert!(plugin == "p" && *kept && reason.contains("+ read: fs_read $workspace"), "{told:?}");
    assert_eq!(it.living.digest("p"), Some(first.clone()), "the old version stays");
    assert_eq!(it.living.call("p__plain", "{}").await.0, "ok");
    assert!(matches!(&*it.living.host.problems()[0].error, LoadError::ConsentRequired(_)));
    let records = it.audit.take_decisions();
    assert_eq!(records.iter().filter(|record| !record.held.is_empty()).count(), 1, "told once: {records:?}");
    // Another process gives consent.
    let agreed = Consent {
        digest: it.living.host.problems().len().to_string(),
        version: None,
        granted: Authority::default(),
        at: String::new(),
        by: "a test".to_owned(),
    };
    let digest = {
        let other = toolbay::Host::builder(policy("", it.living.dir.path())).build().unwrap();
        other.load_bytes(id("p"), consenting(2)).await.unwrap();
        other.plugin("p").unwrap().digest.to_string()
    };
    let agreed = Consent { digest: digest.clone(), ..agreed };
    FileConsents::new(&state).update(&id("p"), &mut |_| ConsentChange::Replace(agreed.clone())).unwrap();
    it.living.until_replaced("p").await;
    assert_eq!(it.living.digest("p"), Some(digest));
    assert_eq!(it.living.call("p__read", "{}").await.0, "ok");
    assert!(it.living.host.problems().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_changes_is_hidden_under_both_policies() {
    let mut it = PolicyFixture::new("").await;
    let secret = it.file.with_file_name("secret");
    let text = format!(
        "[secrets.token]\nfrom = \"file:{}\"\nreveal = true\n[plugins.p.grant]\nsecrets = [\"token\"]\n",
        secret.display()
    );
    let set = |value: &str| {
        put(&secret, value.as_bytes());
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    };
    set("first-value-4711");
    it.write(&text);
    it.reloaded().await;
    it.living.put("p.wasm", &echo(1));
    it.living.until_added("p").await;
    let old = it.living.host.view(Filter::default());
    set("second-value-0815");
    it.living.watch.reload();
    it.reloaded().await;
    let args = r#"{"a":"first-value-4711 second-value-0815"}"#;
    for view in [old, it.living.host.view(Filter::default())] {
        let calls = vec![ToolCall::new("1", "p__echo", args)];
        let delivered = it.living.host.call_all(&view, calls, TurnContext::default()).await.pop().unwrap();
        assert_eq!(outcome(&delivered), "ok");
        let text = delivered.result.unwrap().value;
        assert_eq!(text, r#"{"a":"[secret token] [secret token]"}"#);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_swaps_a_policy_by_a_call() {
    let mut living = WatchedHost::new("").await;
    living.put("p.wasm", &consenting(1));
    living.until_added("p").await;
    let here: &Path = living.dir.path();
    let report =
        living.host.reload_policy(policy(&format!("{KEEP}[host]\nprocesses = 1\n"), here)).await.unwrap();
    assert_eq!(report.restart, ["processes"]);
    assert_eq!(report.changes.len(), 1);
    assert_eq!(report.changes[0].kind, ChangeKind::Regranted);
    assert_eq!(living.call("p__keep", "{}").await.0, "ok");
    // A file that the embedder watches.
    let heard = Arc::new(AtomicUsize::new(0));
    let (count, extra) = (Arc::clone(&heard), here.join("extra"));
    let file = WatchedFile::file(&extra, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let watch = living.host.watch(&here.join("plugins"), WatchOptions { files: vec![file], ..quick() }).await;
    fs::write(&extra, "x").unwrap();
    let wait = async {
        while heard.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(super::directory_watch::HANGS, wait).await.unwrap();
    drop(watch);
}
