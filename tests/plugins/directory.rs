//! A plugin directory with foreign files, and the cache of compiled code.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_tests::{cache_dir, outcome, policy, value};
use toolbay::{Filter, Host, LoadEvent, LoadReport, ToolCall, TurnContext};

fn problem(report: &LoadReport, file: &str) -> String {
    let found = report.problems.iter().find(|p| p.file.file_name().is_some_and(|n| n == file));
    found.unwrap_or_else(|| panic!("no problem with {file}: {:#?}", report.problems)).error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_is_reported_and_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let good = fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    fs::write(at("a-empty.wasm"), b"").unwrap();
    fs::write(at("b-text.wasm"), "hello\n").unwrap();
    fs::write(at("c-truncated.wasm"), &good[..good.len() / 2]).unwrap();
    fs::write(at("d-header.wasm"), &good[..6]).unwrap();
    fs::write(at("e-core.wasm"), wat::parse_str("(module)").unwrap()).unwrap();
    fs::write(at("f-world.wasm"), wat::parse_str("(component)").unwrap()).unwrap();
    let other = "(component (instance $i) (export \"toolbay:plugin/tools@0.2.0\" (instance $i)))";
    fs::write(at("g-version.wasm"), wat::parse_str(other).unwrap()).unwrap();
    fs::create_dir(at("h-folder.wasm")).unwrap();
    symlink("nowhere", at("i-dangling.wasm")).unwrap();
    fs::write(at("j__name.wasm"), &good).unwrap();
    fs::write(at("k name.wasm"), &good).unwrap();
    fs::write(at("l-memory64.wasm"), wat::parse_str("(component (core module (memory i64 1)))").unwrap())
        .unwrap();
    let import = "(component (import \"acme:secret/door@1.0.0\" (instance (export \"open\" (func)))) (instance $i) (export \"toolbay:plugin/tools@0.1.0\" (instance $i)))";
    fs::write(at("m-import.wasm"), wat::parse_str(import).unwrap()).unwrap();
    let wrong = "(component (instance $i) (export \"toolbay:plugin/tools@0.1.0\" (instance $i)))";
    fs::write(at("n-hollow.wasm"), wat::parse_str(wrong).unwrap()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(at("o-fifo.wasm")).status().unwrap().success());
    fs::File::create(at("p-large.wasm")).unwrap().set_len(toolbay::MAX_COMPONENT_BYTES + 1).unwrap();
    fs::write(at("q-twin.wasm"), &good).unwrap();
    fs::write(at("r-pinned.wasm"), &good).unwrap();
    fs::write(at("zz.wasm"), &good).unwrap();
    fs::write(at("readme.txt"), "not a plugin").unwrap();
    symlink(guest_artifacts::PLUGIN_HASH, at("hash.wasm")).unwrap();

    let text = format!(
        "[plugins.zz]\nfile = \"q-twin.wasm\"\n[plugins.r-pinned]\nsha256 = \"{}\"\n[plugins.ghost]\nfile = \"ghost.wasm\"",
        "0".repeat(64)
    );
    let host = Host::builder(policy(&text, dir.path())).cache_dir(cache_dir()).build().unwrap();
    let report = host.load_dir(dir.path()).await.unwrap();
    for (file, part) in [
        ("a-empty.wasm", "is empty"),
        ("b-text.wasm", "is not WebAssembly"),
        ("c-truncated.wasm", "not a valid component"),
        ("d-header.wasm", "truncated"),
        ("e-core.wasm", "core module"),
        ("f-world.wasm", "exports neither"),
        ("g-version.wasm", "speaks version 0.2.0 of the contract, this host speaks 0.1.0"),
        ("h-folder.wasm", "is a folder"),
        ("i-dangling.wasm", "No such file"),
        ("j__name.wasm", "contains `__`"),
        ("k name.wasm", "outside A-Z"),
        ("l-memory64.wasm", "memory64"),
        ("m-import.wasm", "acme:secret/door"),
        ("n-hollow.wasm", "`toolbay:plugin/tools@0.1.0` does not match the contract"),
        ("o-fifo.wasm", "is a FIFO"),
        ("p-large.wasm", "but the limit is"),
        ("r-pinned.wasm", "the policy pins"),
        ("zz.wasm", "already taken"),
        ("ghost.wasm", "not in the plugin directory"),
    ] {
        let error = problem(&report, file);
        assert!(error.contains(part), "{file}: {error}");
        assert!(!error.contains('\n'), "{file}: {error}");
    }
    assert_eq!(report.loaded.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["hash", "zz"]);
    assert_eq!(report.problems.len(), 19, "{:#?}", report.problems);
    let view = host.view(Filter::default());
    let calls = vec![ToolCall::new("1", "zz__word_count", r#"{"text":"a b"}"#)];
    assert_eq!(outcome(&host.call_all(&view, calls, TurnContext::default()).await[0]), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_file_is_reported() {
    // Root can read everything, so the test uses a path that leads through a file.
    let dir = tempfile::tempdir().unwrap();
    symlink("plain/inside.wasm", dir.path().join("x.wasm")).unwrap();
    fs::write(dir.path().join("plain"), "").unwrap();
    fs::write(dir.path().join("locked.wasm"), fs::read(guest_artifacts::PLUGIN_TEXT).unwrap()).unwrap();
    fs::set_permissions(dir.path().join("locked.wasm"), fs::Permissions::from_mode(0o000)).unwrap();
    let host = Host::builder(policy("", dir.path())).build().unwrap();
    let report = host.load_dir(dir.path()).await.unwrap();
    assert!(problem(&report, "x.wasm").contains("cannot be read"));
    if fs::read(dir.path().join("locked.wasm")).is_err() {
        assert!(problem(&report, "locked.wasm").contains("Permission denied"));
    }
    assert!(
        host.load_dir(Path::new("/no/such/directory"))
            .await
            .unwrap_err()
            .to_string()
            .contains("/no/such/directory")
    );
}

struct CachedDirectory {
    dir: tempfile::TempDir,
}

impl CachedDirectory {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("plugins")).unwrap();
        fs::copy(guest_artifacts::BENCH_ECHO, dir.path().join("plugins/echo.wasm")).unwrap();
        Self { dir }
    }

    fn cache(&self) -> std::path::PathBuf {
        self.dir.path().join("cache")
    }

    /// Starts a host, calls the plugin, and returns how often something was compiled.
    async fn start(&self) -> usize {
        let compiled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&compiled);
        let builder = Host::builder(policy("", self.dir.path())).cache_dir(self.cache());
        // The end of each compilation is reported, too.
        let listener = move |event: LoadEvent<'_>| {
            if let LoadEvent::Compiled { plugin, elapsed } = event {
                assert!(plugin.as_str() == "echo" && !elapsed.is_zero(), "{plugin} {elapsed:?}");
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        let host = builder.on_load(Arc::new(listener)).build().unwrap();
        let report = host.load_dir(&self.dir.path().join("plugins")).await.unwrap();
        assert_eq!(report.loaded.len(), 1, "{report:?}");
        let view = host.view(Filter::default());
        let results = host
            .call_all(&view, vec![ToolCall::new("1", "echo__echo", r#"{"a":1}"#)], TurnContext::default())
            .await;
        assert_eq!(value(&results[0]), r#"{"a":1}"#);
        compiled.load(Ordering::Relaxed)
    }

    fn files(&self, extension: &str) -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(self.cache()).unwrap().map(|e| e.unwrap().path());
        entries.filter(|p| p.extension().is_some_and(|e| e == extension)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_is_compiled_once() {
    let cached = CachedDirectory::new();
    assert_eq!((cached.start().await, cached.start().await), (1, 0));
    let mode = fs::metadata(cached.cache()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(
        (cached.files("cwasm").len(), cached.files("json").len(), cached.files("tmp").len()),
        (1, 1, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_was_tampered_with_is_not_used() {
    let cached = CachedDirectory::new();
    cached.start().await;
    let code = cached.files("cwasm").remove(0);
    let original = fs::read(&code).unwrap();
    // Other bytes of the same length, truncated, empty, and another file's code: the host notices each and compiles again.
    let mut flipped = original.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for bytes in [flipped, original[..100].to_vec(), Vec::new()] {
        fs::remove_file(&code).unwrap();
        fs::write(&code, bytes).unwrap();
        cached.start().await;
        assert_eq!(fs::read(&code).unwrap().len(), original.len(), "it was replaced");
    }
    let metadata = cached.files("json").remove(0);
    fs::write(&metadata, "{").unwrap();
    assert_eq!(cached.start().await, 1);
    fs::set_permissions(&code, fs::Permissions::from_mode(0o666)).unwrap();
    cached.start().await;
    assert_eq!(
        fs::metadata(&code).unwrap().permissions().mode() & 0o022,
        0,
        "a file that others may write is replaced"
    );
    fs::remove_file(&code).unwrap();
    assert_eq!(cached.start().await, 1, "the code is compiled on demand, and the event is sent");
    assert_eq!(cached.files("cwasm").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_folder_that_others_can_write_is_not_used() {
    let cached = CachedDirectory::new();
    fs::create_dir(cached.cache()).unwrap();
    fs::set_permissions(cached.cache(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!((cached.start().await, cached.start().await), (1, 1));
    assert_eq!(fs::read_dir(cached.cache()).unwrap().count(), 0);
    fs::remove_dir(cached.cache()).unwrap();
    fs::write(cached.cache(), "a file").unwrap();
    assert_eq!(cached.start().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_replaced_while_it_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::builder(policy("", dir.path())).cache_dir(cache_dir()).build().unwrap();
    let id = toolbay::PluginId::new("p").unwrap();
    host.load_file(id.clone(), guest_artifacts::HOSTILE_SLEEP.as_ref()).await.unwrap();
    let view = host.view(Filter::default());
    let running = {
        let (host, view) = (host.clone(), view.clone());
        tokio::spawn(async move {
            host.call_all(
                &view,
                vec![ToolCall::new("1", "p__sleep", r#"{"ms":300}"#)],
                TurnContext::default(),
            )
            .await
        })
    };
    while host.available_call_permits() == host.policy().host().parallel_calls as usize {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    host.load_file(id.clone(), guest_artifacts::API_ECHO.as_ref()).await.unwrap();
    let new = host.view(Filter::default());
    assert!(new.find("p__echo").is_ok() && new.find("p__sleep").is_err());
    assert_eq!(outcome(&running.await.unwrap()[0]), "ok", "the call in flight ends on the old code");
    assert!(host.load_bytes(id.clone(), b"junk".to_vec()).await.is_err());
    assert!(host.view(Filter::default()).find("p__echo").is_ok(), "a broken replacement keeps the old one");
    assert!(host.unload(&id) && !host.unload(&id));
    assert!(host.view(Filter::default()).definitions().all(|entry| entry.def.source.plugin().is_none()));
}
