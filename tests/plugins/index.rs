//! The index of plugin file digests between starts: an unchanged file is not opened, a changed file is read, and an
//! invalid index is reported once and rebuilt.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use integration_tests::{fill_cache, policy, said_in_a_process};
use sha2::{Digest, Sha256};
use toolbay::{Filter, Host, LoadReport, WatchOptions};

/// The log text about an ignored index.
const TOLD: &str = "the index of plugin files is not used";

/// The guests of most tests, which are compiled before.
const CACHED: [&str; 3] =
    [guest_artifacts::BENCH_ECHO, guest_artifacts::HOSTILE_SLEEP, guest_artifacts::HOSTILE_STATE];

/// A plugin directory with a cache.
struct IndexedDirectory {
    dir: tempfile::TempDir,
}

impl IndexedDirectory {
    /// With files that have not changed for a long time: links to components. Their code is in the cache.
    async fn new() -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(this.at("plugins")).unwrap();
        fill_cache(&this.at("cache"), &CACHED).await;
        this.link("echo", guest_artifacts::BENCH_ECHO);
        this.link("text", guest_artifacts::HOSTILE_SLEEP);
        this
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn link(&self, id: &str, to: &str) {
        symlink(to, self.at("plugins").join(id).with_extension("wasm")).unwrap();
    }

    async fn start_under(&self, text: &str) -> (Host, LoadReport) {
        let host = Host::builder(policy(text, self.dir.path())).cache_dir(self.at("cache")).build().unwrap();
        let report = host.load_dir(&self.at("plugins")).await.unwrap();
        (host, report)
    }

    /// Starts a host and returns the tools of each plugin.
    async fn start(&self) -> Vec<String> {
        let (host, report) = self.start_under("").await;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        tools(&host)
    }

    fn index(&self) -> Option<PathBuf> {
        let mut files = fs::read_dir(self.at("cache")).unwrap().map(|entry| entry.unwrap().path());
        files.find(|file| file.extension().is_some_and(|kind| kind == "index"))
    }

    /// Writes a wrong digest for the echo plugin into the index, which only this user can do.
    fn lie(&self, of: &str) {
        let file = self.index().unwrap();
        let mut bytes = fs::read(&file).unwrap();
        bytes.truncate(bytes.len() - 32);
        let [was, is] = [guest_artifacts::BENCH_ECHO, of].map(|file| Sha256::digest(fs::read(file).unwrap()));
        let at = bytes.windows(32).position(|window| window == &was[..]).unwrap();
        bytes[at..at + 32].copy_from_slice(&is);
        bytes.extend(&Sha256::digest(&bytes)[..]);
        fs::write(&file, bytes).unwrap();
    }
}

fn tools(host: &Host) -> Vec<String> {
    let view = host.view(Filter::default());
    let names = view.definitions().map(|entry| entry.def.name.to_string());
    names.filter(|name| name.starts_with("echo__")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_file_is_not_opened() {
    let plugins = IndexedDirectory::new().await;
    assert_eq!(
        (plugins.start().await, plugins.start().await),
        (vec!["echo__echo".into()], vec!["echo__echo".into()])
    );
    // The host does not open the file, so it does not notice. It runs the code that the index names.
    plugins.lie(guest_artifacts::HOSTILE_SLEEP);
    let (host, _) = plugins.start_under("").await;
    assert!(tools(&host).contains(&"echo__naps".to_owned()), "{:?}", tools(&host));
    assert!(host.plugins().iter().all(|plugin| plugin.from_cache));
    let file = fs::read(guest_artifacts::HOSTILE_SLEEP).unwrap();
    let (echo, text) = (host.plugin("echo").unwrap(), host.plugin("text").unwrap());
    assert_eq!((&echo.digest, &*text.digest), (&text.digest, &*hex(&file)));
    // A full read ignores the index and repairs it.
    let report = host.rescan().await;
    assert_eq!((report.changes.len(), tools(&host)), (1, vec!["echo__echo".to_owned()]));
    assert_eq!(plugins.start().await, ["echo__echo"]);
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_missing_from_the_index_is_read() {
    let plugins = IndexedDirectory::new().await;
    plugins.start().await;
    plugins.lie(guest_artifacts::HOSTILE_SPIN);
    assert_eq!(plugins.start().await, ["echo__echo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_file_is_hashed_at_each_start() {
    let plugins = IndexedDirectory::new().await;
    plugins.start().await;
    plugins.lie(guest_artifacts::HOSTILE_SLEEP);
    let pin = |file: &str| format!("[plugins.echo]\nsha256 = \"{}\"", hex(&fs::read(file).unwrap()));
    let (host, report) = plugins.start_under(&pin(guest_artifacts::HOSTILE_SLEEP)).await;
    assert!(host.plugin("echo").is_none());
    assert!(report.problems[0].error.to_string().contains("the policy pins"), "{:?}", report.problems);
    let (host, report) = plugins.start_under(&pin(guest_artifacts::BENCH_ECHO)).await;
    assert!(report.problems.is_empty() && tools(&host) == ["echo__echo"], "{:?}", report.problems);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_file_is_read() {
    let plugins = IndexedDirectory::new().await;
    plugins.start().await;
    let echo = plugins.at("plugins/echo.wasm");
    fs::remove_file(&echo).unwrap();
    plugins.link("echo", guest_artifacts::HOSTILE_STATE);
    assert_eq!(plugins.start().await, ["echo__count"]);
    // Renamed, and under the name of another file.
    fs::rename(plugins.at("plugins/text.wasm"), &echo).unwrap();
    assert!(plugins.start().await.contains(&"echo__naps".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_added_beside_a_component_is_found() {
    let plugins = IndexedDirectory::new().await;
    plugins.link("shapes", guest_artifacts::FOREIGN_SHAPES);
    plugins.start().await;
    let (host, _) = plugins.start_under("").await;
    let alone = host.plugin("shapes").unwrap().digest;
    for name in ["shapes.plugin.toml", "other.plugin.toml"] {
        fs::write(plugins.at("plugins").join(name), "[plugin]\nname = \"shapes\"\n").unwrap();
    }
    let (host, report) = plugins.start_under("").await;
    let changed = host.plugin("shapes").is_none_or(|shapes| shapes.digest != alone);
    assert!(changed, "{:?}", report.problems);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recent_timestamp_is_not_trusted() {
    let plugins = IndexedDirectory::new().await;
    let (file, echo) = (plugins.at("plugins/young.wasm"), fs::read(guest_artifacts::BENCH_ECHO).unwrap());
    let version = |n: u8| [&echo[..], &[0, 4, 1, b'n', 0, n]].concat();
    fs::write(&file, version(0)).unwrap();
    let written = Instant::now();
    plugins.start().await;
    let quick = written.elapsed() < Duration::from_secs(3);
    let has = |name: &str| {
        let index = fs::read(plugins.index().unwrap()).unwrap();
        index.windows(name.len()).any(|window| window == name.as_bytes())
    };
    assert!(has("text.wasm") && !(quick && has("young.wasm")), "it could change once more in the same tick");
    // A timestamp is trusted once it is three seconds old.
    tokio::time::sleep(Duration::from_millis(3200).saturating_sub(written.elapsed())).await;
    plugins.start().await;
    assert!(has("young.wasm"));
    // Changed in place with the same size and a restored modification time.
    let before = fs::metadata(&file).unwrap();
    fs::write(&file, version(1)).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(before.modified().unwrap()).unwrap();
    let after = fs::metadata(&file).unwrap();
    assert_eq!((before.len(), before.modified().unwrap()), (after.len(), after.modified().unwrap()));
    let (host, _) = plugins.start_under("").await;
    assert_eq!(*host.plugin("young").unwrap().digest, hex(&version(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_directory_is_taken_from_the_index_and_watched() {
    let plugins = IndexedDirectory::new().await;
    plugins.start().await;
    plugins.lie(guest_artifacts::HOSTILE_SLEEP);
    let host = Host::builder(policy("", plugins.dir.path())).cache_dir(plugins.at("cache")).build().unwrap();
    let options = WatchOptions { poll: Duration::from_millis(100), ..WatchOptions::default() };
    let watch = host.watch(&plugins.at("plugins"), options).await;
    let until = |is: fn(&[String]) -> bool| {
        let host = host.clone();
        let wait = async move {
            while !is(&tools(&host)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait)
    };
    until(|tools| tools.contains(&"echo__naps".to_owned())).await.expect("it is loaded");
    fs::remove_file(plugins.at("plugins/echo.wasm")).unwrap();
    plugins.link("echo", guest_artifacts::HOSTILE_STATE);
    until(|tools| tools == ["echo__count"]).await.expect("it is replaced");
    fs::remove_file(plugins.at("plugins/echo.wasm")).unwrap();
    until(<[String]>::is_empty).await.expect("it is taken out");
    drop(watch);
}

/// A manipulation of an index.
type Tampering = fn(&Path, &[u8]);

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_index_is_reported_once_and_rebuilt() {
    let name = "plugins::index::an_invalid_index_is_reported_once_and_rebuilt";
    let harms: [(&str, Tampering); 7] = [
        ("it is damaged", |file, sound| {
            let mut flipped = sound.to_vec();
            flipped[sound.len() / 2] ^= 1;
            fs::write(file, flipped).unwrap();
        }),
        ("it is damaged", |file, sound| fs::write(file, &sound[..sound.len() - 1]).unwrap()),
        ("it is truncated", |file, _| fs::write(file, "").unwrap()),
        ("it is not an index", |file, _| fs::write(file, vec![7; 1000]).unwrap()),
        ("its format is unknown", |file, sound| {
            let mut older = sound[..sound.len() - 32].to_vec();
            older[8] = 0;
            older.extend(&Sha256::digest(&older)[..]);
            fs::write(file, older).unwrap();
        }),
        ("it belongs to another directory", |file, sound| {
            let mut foreign = sound[..sound.len() - 32].to_vec();
            let at = foreign.windows(8).position(|window| window == b"/plugins").unwrap();
            foreign[at + 1] = b'q';
            foreign.extend(&Sha256::digest(&foreign)[..]);
            fs::write(file, foreign).unwrap();
        }),
        ("can be written by others", |file, _| {
            fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
        }),
    ];
    let Some((_, stderr)) = said_in_a_process(name, "true") else {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        let plugins = IndexedDirectory::new().await;
        plugins.start().await;
        let file = plugins.index().unwrap();
        let sound = fs::read(&file).unwrap();
        for (_, harm) in harms {
            harm(&file, &sound);
            assert_eq!(plugins.start().await, ["echo__echo"]);
            assert!(fs::read(&file).unwrap() == sound, "it is made anew");
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(plugins.start().await, ["echo__echo"]);
        }
        return;
    };
    for (problem, _) in harms {
        let expected = harms.iter().filter(|(other, _)| *other == problem).count();
        assert_eq!(stderr.matches(problem).count(), expected, "{problem}: {stderr}");
    }
    assert_eq!(stderr.matches(TOLD).count(), harms.len() - 1, "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unwritable_cache_is_reported_once() {
    let name = "plugins::index::an_unwritable_cache_is_reported_once";
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let Some((_, stderr)) = said_in_a_process(name, "true") else {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        let plugins = IndexedDirectory::new().await;
        // The folder is ours, and nobody may write to it, not even root.
        let builder = Host::builder(policy("", plugins.dir.path())).cache_dir("/proc/self/fdinfo");
        let host = builder.build().unwrap();
        host.load_dir(&plugins.at("plugins")).await.unwrap();
        host.rescan().await;
        assert_eq!(tools(&host), ["echo__echo"]);
        return;
    };
    assert_eq!(stderr.matches("could not be cached").count(), 1, "{stderr}");
}
