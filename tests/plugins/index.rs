//! What plugin files were hashed to, kept between starts: a file that is what it was is not opened, one that is not is, and
//! an index that is not what it should be is told once and made anew.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use integration_tests::{policy, said_in_a_process};
use sha2::{Digest, Sha256};
use toolbay::{Filter, Host, LoadReport, WatchOptions};

/// What the log says of an index that is not used.
const TOLD: &str = "the index of plugin files is not used";

/// A plugin directory with a cache.
struct Indexed {
    dir: tempfile::TempDir,
}

impl Indexed {
    /// With files that have been as they are for long: links to components.
    fn new() -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(this.at("plugins")).unwrap();
        this.link("echo", guest_artifacts::BENCH_ECHO);
        this.link("text", guest_artifacts::PLUGIN_TEXT);
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

    /// Starts a host and tells the tools of each plugin.
    async fn start(&self) -> Vec<String> {
        let (host, report) = self.start_under("").await;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        tools(&host)
    }

    fn index(&self) -> Option<PathBuf> {
        let mut files = fs::read_dir(self.at("cache")).unwrap().map(|entry| entry.unwrap().path());
        files.find(|file| file.extension().is_some_and(|kind| kind == "index"))
    }

    /// Says in the index that the echo holds what another file does, as only this user can.
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
async fn a_file_that_is_what_it_was_is_not_opened() {
    let plugins = Indexed::new();
    assert_eq!(
        (plugins.start().await, plugins.start().await),
        (vec!["echo__echo".into()], vec!["echo__echo".into()])
    );
    // Nobody looks into the file, so nobody sees that this is not true; what runs is what it says, from the cache.
    plugins.lie(guest_artifacts::PLUGIN_TEXT);
    let (host, _) = plugins.start_under("").await;
    assert!(tools(&host).contains(&"echo__word_count".to_owned()), "{:?}", tools(&host));
    assert!(host.plugins().iter().all(|plugin| plugin.from_cache));
    let file = fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    let (echo, text) = (host.plugin("echo").unwrap(), host.plugin("text").unwrap());
    assert_eq!((&echo.digest, &*text.digest), (&text.digest, &*hex(&file)));
    // Who wants all to be read gets it, and the index is true again.
    let report = host.rescan().await;
    assert_eq!((report.changes.len(), tools(&host)), (1, vec!["echo__echo".to_owned()]));
    assert_eq!(plugins.start().await, ["echo__echo"]);
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cache_does_not_know_is_read() {
    let plugins = Indexed::new();
    plugins.start().await;
    plugins.lie(guest_artifacts::PLUGIN_HASH);
    assert_eq!(plugins.start().await, ["echo__echo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_file_is_hashed_at_each_start() {
    let plugins = Indexed::new();
    plugins.start().await;
    plugins.lie(guest_artifacts::PLUGIN_TEXT);
    let pin = |file: &str| format!("[plugins.echo]\nsha256 = \"{}\"", hex(&fs::read(file).unwrap()));
    let (host, report) = plugins.start_under(&pin(guest_artifacts::PLUGIN_TEXT)).await;
    assert!(host.plugin("echo").is_none());
    assert!(report.problems[0].error.to_string().contains("the policy pins"), "{:?}", report.problems);
    let (host, report) = plugins.start_under(&pin(guest_artifacts::BENCH_ECHO)).await;
    assert!(report.problems.is_empty() && tools(&host) == ["echo__echo"], "{:?}", report.problems);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_another_one_is_read() {
    let plugins = Indexed::new();
    plugins.start().await;
    let echo = plugins.at("plugins/echo.wasm");
    fs::remove_file(&echo).unwrap();
    plugins.link("echo", guest_artifacts::HOSTILE_STATE);
    assert_eq!(plugins.start().await, ["echo__count"]);
    // By another name, and the name of another.
    fs::rename(plugins.at("plugins/text.wasm"), &echo).unwrap();
    assert!(plugins.start().await.contains(&"echo__word_count".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_comes_to_stand_beside_a_component_is_seen() {
    let plugins = Indexed::new();
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
async fn a_young_file_is_not_believed_and_an_old_one_not_when_it_was_written() {
    let plugins = Indexed::new();
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
    while written.elapsed() < Duration::from_secs(4) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    plugins.start().await;
    assert!(has("young.wasm"));
    // In place, of the same size, and the time of writing put back.
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
    let plugins = Indexed::new();
    plugins.start().await;
    plugins.lie(guest_artifacts::PLUGIN_TEXT);
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
    until(|tools| tools.contains(&"echo__word_count".to_owned())).await.expect("it is loaded");
    fs::remove_file(plugins.at("plugins/echo.wasm")).unwrap();
    plugins.link("echo", guest_artifacts::HOSTILE_STATE);
    until(|tools| tools == ["echo__count"]).await.expect("it is replaced");
    fs::remove_file(plugins.at("plugins/echo.wasm")).unwrap();
    until(<[String]>::is_empty).await.expect("it is taken out");
    drop(watch);
}

/// Something that is done to an index.
type Harm = fn(&Path, &[u8]);

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_not_sound_is_told_once_and_made_anew() {
    let name = "plugins::index::an_index_that_is_not_sound_is_told_once_and_made_anew";
    let harms: [(&str, Harm); 7] = [
        ("it is damaged", |file, sound| {
            let mut flipped = sound.to_vec();
            flipped[sound.len() / 2] ^= 1;
            fs::write(file, flipped).unwrap();
        }),
        ("it is damaged", |file, sound| fs::write(file, &sound[..sound.len() - 1]).unwrap()),
        ("it is cut off", |file, _| fs::write(file, "").unwrap()),
        ("it is no index", |file, _| fs::write(file, vec![7; 1000]).unwrap()),
        ("it is of another format", |file, sound| {
            let mut older = sound[..sound.len() - 32].to_vec();
            older[8] = 0;
            older.extend(&Sha256::digest(&older)[..]);
            fs::write(file, older).unwrap();
        }),
        ("it is of another directory", |file, sound| {
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
        let plugins = Indexed::new();
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
async fn a_cache_that_can_not_be_written_is_told_once() {
    let name = "plugins::index::a_cache_that_can_not_be_written_is_told_once";
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let Some((_, stderr)) = said_in_a_process(name, "true") else {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        let plugins = Indexed::new();
        // It is ours, nobody else may write there, and neither can we, not even root.
        let builder = Host::builder(policy("", plugins.dir.path())).cache_dir("/proc/self/fdinfo");
        let host = builder.build().unwrap();
        host.load_dir(&plugins.at("plugins")).await.unwrap();
        host.rescan().await;
        assert_eq!(tools(&host), ["echo__echo"]);
        return;
    };
    assert_eq!(stderr.matches("not stored").count(), 1, "{stderr}");
}
