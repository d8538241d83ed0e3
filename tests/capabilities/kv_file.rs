//! The file of the key-value store: several processes, `kill -9`, broken files, a full disk.
//!
//! `TOOLBAY_KILL_ROUNDS` sets how many rounds the `kill -9` test plays; 5 without it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use integration_tests::{TestHost, in_a_process};
use redb::{Builder, ConcurrencyMode, Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::json;
use toolbay::core::session::kv::{Bucket, KvError, KvStore, Quota};
use toolbay::policy::capability::kv::KvScope;
use toolbay::{PluginId, RedbStore};

const QUOTA: Quota = Quota { value_bytes: 1 << 20, bytes: 64 << 20, keys: 1_000_000 };
const ALL: &str = "[plugins.k.grant]\nkv = [\"plugin\", \"tool\"]\n";
/// The variable with the folder of the store, for a process that a test starts.
const DIR: &str = "TOOLBAY_TEST_KV";

fn plugin() -> PluginId {
    PluginId::new("k").unwrap()
}

fn bucket() -> Bucket {
    Bucket::new(plugin(), KvScope::Plugin, "").unwrap()
}

async fn text(store: &RedbStore, key: &str) -> Option<String> {
    store.get(&bucket(), key).await.unwrap().map(|value| String::from_utf8(value).unwrap())
}

fn shared(path: &Path, mode: ConcurrencyMode) -> Database {
    Builder::new().set_concurrency_mode(mode).create(path).unwrap()
}

/// Starts one of the programs below with the folder of the store.
fn start(program: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("capabilities::kv_file::{program}"), "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The store of a program; `None` in a normal test run.
fn store_of_child() -> Option<RedbStore> {
    std::env::var_os(DIR).map(|dir| RedbStore::in_dir(Path::new(&dir)))
}

#[tokio::test(flavor = "multi_thread")]
async fn state_outlives_the_host_and_is_this_users_alone() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("deep/state");
    let host = || TestHost::empty_with(ALL, |builder| builder.state_dir(&state));
    let first = host();
    assert!(!state.exists(), "nothing is made before it is needed");
    first.load("k", guest_artifacts::CAP_KV).await;
    assert_eq!(first.ask("k__do", json!({"op": "set", "key": "a", "value": "1"})).await, json!({}));
    let second = host();
    second.load("k", guest_artifacts::CAP_KV).await;
    assert_eq!(second.ask("k__do", json!({"key": "a"})).await["value"], "1", "two hosts share it");
    assert_eq!(second.ask("k__do", json!({"op": "increment", "key": "a"})).await["sum"], 2);
    assert_eq!(first.ask("k__do", json!({"key": "a"})).await["value"], "2", "and see each other at once");
    drop((first, second));
    let third = host();
    third.load("k", guest_artifacts::CAP_KV).await;
    assert_eq!(third.ask("k__do", json!({"key": "a"})).await["value"], "2");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&state), mode(&state.join("kv.redb")), mode(&state.join("kv.wanted"))),
        (0o700, 0o600, 0o600)
    );
    let memory = TestHost::empty(ALL);
    memory.load("k", guest_artifacts::CAP_KV).await;
    assert_eq!(memory.ask("k__do", json!({"key": "a"})).await["value"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_of_two_processes_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let running = [start("program_increments", dir.path()), start("program_increments", dir.path())];
    let here = RedbStore::in_dir(dir.path());
    for _ in 0..20 {
        here.increment(&bucket(), "n", 1, QUOTA).await.unwrap();
    }
    for child in running {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }
    assert_eq!(text(&here, "n").await.as_deref(), Some("1020"));
}

/// Increments 500 times.
#[tokio::test]
async fn program_increments() {
    let Some(store) = store_of_child() else { return };
    for _ in 0..500 {
        store.increment(&bucket(), "n", 1, QUOTA).await.unwrap();
    }
}

/// Writes numbered entries, changes and removes some, and prints each acknowledged entry.
#[tokio::test(flavor = "multi_thread")]
async fn program_writes() {
    let Some(store) = store_of_child() else { return };
    let store = Arc::new(store);
    let name = std::process::id();
    let tasks = (0..4).map(|task| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0.. {
                let key = format!("{name}-{task}-{n:06}");
                let value = format!("{n}").repeat(n % 300 + 1);
                let ttl = (n % 7 == 0).then(|| Duration::from_secs(86_400));
                store.set(&bucket(), &key, value.into_bytes(), ttl, QUOTA).await.unwrap();
                println!("set {key} {n}");
                if n % 3 == 2 {
                    let key = format!("{name}-{task}-{:06}", n - 1);
                    println!("removing {key}");
                    store.remove(&bucket(), &key).await.unwrap();
                    println!("removed {key}");
                }
                store.increment(&bucket(), "sum", 1, QUOTA).await.unwrap();
                println!("sum");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kill_9() {
    let rounds = std::env::var("TOOLBAY_KILL_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let dir = tempfile::tempdir().unwrap();
    let (mut sum, mut acknowledged) = (0, 0);
    for round in 0..rounds {
        // In every other round, two processes write concurrently and are killed one after the other.
        let mut running: Vec<_> = (0..=round % 2).map(|_| start("program_writes", dir.path())).collect();
        let said = running.iter_mut().map(|child| {
            let out = BufReader::new(child.stdout.take().unwrap());
            std::thread::spawn(move || out.lines().map_while(Result::ok).collect::<Vec<_>>())
        });
        let said: Vec<_> = said.collect();
        for (n, child) in running.iter_mut().enumerate() {
            // A moment that differs from round to round, from the first write on.
            let random =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
            std::thread::sleep(Duration::from_millis(
                u64::from(random / 1000) % 400 + 100 * u64::from(n == 0),
            ));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let said: Vec<String> = said.into_iter().flat_map(|lines| lines.join().unwrap()).collect();
        let store = RedbStore::in_dir(dir.path());
        let count = check_acknowledged(&store, &said).await;
        acknowledged += count;
        sum += said.iter().filter(|line| *line == "sum").count() as i64;
        let kept: i64 = text(&store, "sum").await.map_or(0, |sum| sum.parse().unwrap());
        // A write in flight at the kill may be stored or not: at most one for each task.
        assert!((sum..=sum + 8).contains(&kept), "round {round}: {kept} of {sum}");
        sum = kept;
        check_usage(&store, dir.path()).await;
    }
    println!("{rounds} rounds, {acknowledged} acknowledged entries checked");
}

/// Checks the entries of one round and returns their number.
async fn check_acknowledged(store: &RedbStore, said: &[String]) -> usize {
    let mut count = 0;
    let gone = |word: &str, key: &str| said.iter().any(|line| *line == format!("{word} {key}"));
    for line in said {
        let words: Vec<&str> = line.split(' ').collect();
        let ["set", key, n] = words[..] else { continue };
        let n: usize = n.parse().unwrap();
        let found = text(store, key).await;
        count += 1;
        if gone("removed", key) {
            assert_eq!(found, None, "{key} was removed");
        } else if !gone("removing", key) {
            assert_eq!(found, Some(format!("{n}").repeat(n % 300 + 1)), "{key} was acknowledged");
        }
    }
    count
}

/// Checks that the stored counts match the entries.
async fn check_usage(store: &RedbStore, dir: &Path) {
    let counted = store.usage().await.unwrap();
    let noted = noted(&dir.join("kv.redb"), "k");
    let found = counted.first().map_or((0, 0), |one| (one.keys, one.bytes));
    assert_eq!(found, noted, "counted, and noted in the file");
}

const USAGE: TableDefinition<&str, (u64, u64)> = TableDefinition::new("usage");

fn noted(path: &Path, plugin: &str) -> (u64, u64) {
    let file = shared(path, ConcurrencyMode::MultiWriter);
    let read = file.begin_read().unwrap();
    let Ok(usage) = read.open_table(USAGE) else { return (0, 0) };
    usage.get(plugin).unwrap().map_or((0, 0), |used| used.value())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_count_is_repaired_before_use() {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota { keys: 3, bytes: 1000, ..QUOTA };
    for wrong in [(0, 0), (1, 2), (3, 3000), (100, 7), (u64::MAX, u64::MAX / 2)] {
        let store = RedbStore::in_dir(dir.path());
        store.clear(&plugin()).await.unwrap();
        store.set(&bucket(), "a", b"1".to_vec(), None, quota).await.unwrap();
        store.set(&bucket(), "b", b"12".to_vec(), None, quota).await.unwrap();
        drop(store);
        let path = dir.path().join("kv.redb");
        assert_eq!(noted(&path, "k"), (2, 5));
        let file = shared(&path, ConcurrencyMode::MultiWriter);
        let write = file.begin_write().unwrap();
        write.open_table(USAGE).unwrap().insert("k", wrong).unwrap();
        write.commit().unwrap();
        drop(file);
        let store = RedbStore::in_dir(dir.path());
        if wrong.1 <= 64 << 20 {
            // A write that changes nothing still repairs the count.
            let lost = store.replace(&bucket(), "a", Some(b"no".to_vec()), b"1".to_vec(), quota).await;
            assert_eq!((lost, noted(&path, "k")), (Ok(false), (2, 5)), "{wrong:?}");
            assert_eq!(store.set(&bucket(), "c", b"1".to_vec(), None, quota).await, Ok(()), "{wrong:?}");
            assert_eq!(
                store.set(&bucket(), "d", b"1".to_vec(), None, quota).await,
                Err(KvError::QuotaExceeded),
                "{wrong:?}"
            );
            assert_eq!(noted(&path, "k"), (3, 7));
        }
        assert_eq!(store.usage().await.unwrap()[0].bytes, if wrong.1 <= 64 << 20 { 7 } else { 5 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_store_is_waited_for_and_then_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv.redb");
    let in_use = |error: KvError| assert!(error.to_string().contains("in use by another process"), "{error}");
    let set = async |store: &RedbStore| store.set(&bucket(), "a", b"1".to_vec(), None, QUOTA).await;
    // The whole file is locked, which no host does.
    let holder = shared(&path, ConcurrencyMode::ExclusiveWriter);
    let wait = Duration::from_millis(200);
    let store = RedbStore::in_dir_with_wait(dir.path(), wait);
    // For what succeeds, so that a loaded machine has the time.
    let patient = Arc::new(RedbStore::in_dir_with_wait(dir.path(), Duration::from_secs(60)));
    let start = Instant::now();
    in_use(set(&store).await.unwrap_err());
    in_use(store.get(&bucket(), "a").await.unwrap_err());
    assert!(start.elapsed() >= 2 * wait && start.elapsed() < Duration::from_secs(30));
    let waiting = tokio::spawn({
        let store = Arc::clone(&patient);
        async move { store.set(&bucket(), "a", b"1".to_vec(), None, QUOTA).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    drop(holder);
    assert_eq!(waiting.await.unwrap(), Ok(()), "a waiting command continues when the store is free");
    // A host writes and does not finish.
    let holder = shared(&path, ConcurrencyMode::MultiWriter);
    let writing = holder.begin_write().unwrap();
    let start = Instant::now();
    assert_eq!(text(&patient, "a").await.as_deref(), Some("1"), "a get waits for no writer");
    assert_eq!(patient.keys(&bucket(), "", None, 10).await.unwrap(), ["a"]);
    in_use(set(&store).await.unwrap_err());
    assert_eq!(text(&patient, "a").await.as_deref(), Some("1"), "nor for one that did not end in time");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    let fresh = RedbStore::in_dir_with_wait(dir.path(), wait);
    in_use(fresh.get(&bucket(), "a").await.unwrap_err());
    let gone = tokio::time::timeout(Duration::from_millis(20), set(&store)).await;
    assert!(gone.is_err(), "who gives up is not kept");
    writing.abort().unwrap();
    assert_eq!(set(&patient).await, Ok(()));
    let start = Instant::now();
    while fresh.get(&bucket(), "a").await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "what was refused once is never read");
    }
    // Another process waits for the write lock without progress.
    let turn = std::fs::File::open(dir.path().join("kv.wanted")).unwrap();
    turn.lock().unwrap();
    in_use(set(&store).await.unwrap_err());
    drop(turn);
    assert_eq!(set(&patient).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_does_not_block_others_forever() {
    let dir = tempfile::tempdir().unwrap();
    let store = RedbStore::in_dir_with_wait(dir.path(), Duration::from_secs(1));
    store.set(&bucket(), "a", b"1".to_vec(), None, QUOTA).await.unwrap();
    let mut child = start("program_writes", dir.path());
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    said.find(|line| line.as_ref().unwrap().starts_with("set")).unwrap().unwrap();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    let start = Instant::now();
    let wrote = store.set(&bucket(), "a", b"2".to_vec(), None, QUOTA).await;
    // The process was stopped with or without the write lock.
    if let Err(error) = wrote {
        assert!(error.to_string().contains("in use by another process"), "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    signal("-CONT");
    child.kill().unwrap();
    child.wait().unwrap();
    store.set(&bucket(), "a", b"3".to_vec(), None, QUOTA).await.unwrap();
    assert_eq!(text(&store, "a").await.as_deref(), Some("3"));
}

/// A folder with a used store, and the file of the store.
async fn used() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let store = RedbStore::in_dir(dir.path());
    for n in 0..50 {
        store.set(&bucket(), &format!("k{n}"), vec![b'v'; n * 100], None, QUOTA).await.unwrap();
    }
    let path = dir.path().join("kv.redb");
    (dir, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_a_store_is_an_error_and_is_kept() {
    let (good, path) = used().await;
    let whole = std::fs::read(&path).unwrap();
    drop(good);
    let mut other_format = whole.clone();
    other_format[0] ^= 0xff;
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("text", b"not a store".to_vec()),
        ("zeros", vec![0; 100_000]),
        ("another database", [b"SQLite format 3\0".to_vec(), vec![1; 8192]].concat()),
        ("magic", other_format),
        ("head only", whole[..320].to_vec()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv.redb");
        std::fs::write(&path, &bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let store = RedbStore::in_dir(dir.path());
        for _ in 0..2 {
            let get = store.get(&bucket(), "a").await;
            assert!(matches!(get, Err(KvError::Other(_))), "{name}: {get:?}");
            let set = store.set(&bucket(), "a", b"1".to_vec(), None, QUOTA).await.unwrap_err().to_string();
            assert!(!set.contains(dir.path().to_str().unwrap()), "a plugin learns no path: {set}");
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}: the file is not touched");
        // The operator moves the file away, and the same process continues.
        std::fs::rename(&path, dir.path().join("aside")).unwrap();
        assert_eq!(store.set(&bucket(), "a", b"1".to_vec(), None, QUOTA).await, Ok(()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_never_ends_the_process_and_is_never_removed() {
    let (_good, path) = used().await;
    let whole = std::fs::read(&path).unwrap();
    for n in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv.redb");
        let mut bytes = whole.clone();
        if n % 3 == 0 {
            bytes.truncate(bytes.len() * (n + 1) / 25);
        } else {
            let at = bytes.len() * n / 24;
            let end = (at + 64).min(bytes.len());
            bytes[at..end].fill(0xa5);
        }
        std::fs::write(&path, &bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let store = RedbStore::in_dir(dir.path());
        // Readable entries are returned, unreadable ones are errors. Nothing panics or hangs.
        for key in ["k1", "k40", "none"] {
            store.get(&bucket(), key).await.ok();
        }
        store.keys(&bucket(), "", None, 100).await.ok();
        store.set(&bucket(), "new", b"1".to_vec(), None, QUOTA).await.ok();
        store.usage().await.ok();
        assert!(path.exists() && std::fs::metadata(&path).unwrap().len() > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_store_in_use_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = RedbStore::in_dir(dir.path());
    let mut child = start("program_writes", dir.path());
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Vec::new();
    while acknowledged.len() < 20 {
        acknowledged.push(said.next().unwrap().unwrap());
    }
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("kv.redb");
    let entries = store.backup(&copy).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let restored = RedbStore::in_dir(copies.path());
    let (listed, more) = restored.entries(&plugin(), 100_000).await.unwrap();
    assert!(!more && entries == listed.len() as u64 && entries > 0, "{entries} of {}", listed.len());
    // Entries that were set before the copy began, unless the writer has removed them since.
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    let removed = |line: &str| {
        let key = line.split(' ').nth(1).unwrap_or_default();
        acknowledged.iter().chain(&rest).any(|other| *other == format!("removing {key}"))
    };
    let there: Vec<String> = acknowledged.iter().filter(|line| !removed(line)).cloned().collect();
    assert!(check_acknowledged(&restored, &there).await > 0, "{there:?}");
    check_usage(&restored, copies.path()).await;
    let error = store.backup(&copy).await.unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_no_partial_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    let left = dir.path().join(format!(".{}-0.tmp", gone.id()));
    gone.wait().unwrap();
    // The files that a process leaves behind if it is killed while it creates the store.
    std::fs::File::create(&left).unwrap().set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    let store = RedbStore::in_dir(dir.path());
    store.set(&bucket(), "a", b"1".to_vec(), None, QUOTA).await.unwrap();
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["kv.redb", "kv.wanted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_another_version_is_an_error_and_is_kept() {
    let (dir, path) = used().await;
    let meta: TableDefinition<&str, u64> = TableDefinition::new("meta");
    let file = shared(&path, ConcurrencyMode::MultiWriter);
    let write = file.begin_write().unwrap();
    write.open_table(meta).unwrap().insert("format", 2).unwrap();
    write.commit().unwrap();
    let store = RedbStore::in_dir(dir.path());
    assert!(store.get(&bucket(), "k1").await.is_err());
    assert!(store.set(&bucket(), "k1", b"1".to_vec(), None, QUOTA).await.is_err());
    let entries: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");
    let read = file.begin_read().unwrap();
    assert_eq!(read.open_table(entries).unwrap().iter().unwrap().count(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_others_could_have_planted_are_not_opened() {
    let attempt =
        async |dir: &Path| RedbStore::in_dir(dir).set(&bucket(), "a", b"1".to_vec(), None, QUOTA).await;
    let mode =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for file in ["kv.redb", "kv.wanted"] {
        let make = || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(file);
            (dir, path)
        };
        let (dir, path) = make();
        std::fs::create_dir(&path).unwrap();
        assert!(attempt(dir.path()).await.is_err(), "{file} is a folder");
        let (dir, path) = make();
        let target = dir.path().join("target");
        std::fs::write(&target, "").unwrap();
        symlink(&target, &path).unwrap();
        assert!(attempt(dir.path()).await.is_err(), "{file} is a link");
        assert_eq!(std::fs::metadata(&target).unwrap().size(), 0);
        let (dir, path) = make();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(attempt(dir.path()).await.is_err(), "{file} is a FIFO");
        let (dir, path) = make();
        std::fs::write(&path, "").unwrap();
        mode(&path, 0o666);
        assert!(attempt(dir.path()).await.is_err(), "{file} can be written by others");
    }
    let dir = tempfile::tempdir().unwrap();
    mode(dir.path(), 0o777);
    assert!(attempt(dir.path()).await.is_err(), "the folder can be written by others");
    mode(dir.path(), 0o700);
    assert_eq!(attempt(dir.path()).await, Ok(()));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(attempt(&file).await.is_err(), "the folder is a file");
    assert!(attempt(&file.join("below")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_after_the_file_was_removed_are_kept() {
    let (dir, path) = used().await;
    let store = RedbStore::in_dir(dir.path());
    assert!(text(&store, "k1").await.is_some());
    std::fs::remove_file(&path).unwrap();
    store.set(&bucket(), "new", b"1".to_vec(), None, QUOTA).await.unwrap();
    drop(store);
    let store = RedbStore::in_dir(dir.path());
    assert_eq!(text(&store, "new").await.as_deref(), Some("1"));
    assert_eq!(text(&store, "k1").await, None);
}

#[test]
fn a_full_disk_is_an_error_and_the_store_stays_usable() {
    // The unit is 512 or 1024 bytes, depending on the shell. With the signal ignored, a write beyond the limit fails.
    let limits = "trap '' XFSZ; ulimit -f 16384";
    if in_a_process("capabilities::kv_file::a_full_disk_is_an_error_and_the_store_stays_usable", limits) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let store = RedbStore::in_dir(dir.path());
        let mut kept = 0;
        let failed = loop {
            match store.set(&bucket(), &format!("k{kept}"), vec![b'v'; 100_000], None, QUOTA).await {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
            assert!(kept < 1000, "the limit holds");
        };
        assert!(matches!(failed, KvError::Other(_)), "{failed:?}");
        assert!(kept > 2);
        for n in 0..kept {
            let value = store.get(&bucket(), &format!("k{n}")).await.unwrap().unwrap();
            assert_eq!(value.len(), 100_000, "what was acknowledged is there");
        }
        assert_eq!(store.get(&bucket(), &format!("k{kept}")).await, Ok(None));
        for n in 0..kept - 1 {
            store.remove(&bucket(), &format!("k{n}")).await.unwrap();
        }
        store.set(&bucket(), "small", b"1".to_vec(), None, QUOTA).await.unwrap();
        store.set(&bucket(), "large", vec![b'v'; 100_000], None, QUOTA).await.unwrap();
        check_usage(&store, dir.path()).await;
    });
}
