use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::engine::{AsyncSupport, Metering};

/// A cache with files of the given names, sizes and ages in days.
fn cache(limits: CacheLimits, files: &[(&str, usize, u64)]) -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    for (name, size, days) in files {
        let path = dir.path().join(name);
        fs::write(&path, vec![0; *size]).unwrap();
        let time = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
    let (path, warned) = (dir.path().to_path_buf(), Arc::new(Once::new()));
    let cache = Cache { dir: path, key: "0".repeat(16), limits, warned };
    (dir, cache)
}

fn names(cache: &Cache) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(&cache.dir)
        .unwrap()
        .map(|entry| {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            // The first digit of the digest identifies the entry.
            name.replace(&"0".repeat(16), "K").replace(&name[..1].repeat(64), &name[..1])
        })
        .collect();
    names.sort();
    names
}

fn entry(digit: &str, kind: &str) -> String {
    format!("{}-{}.{kind}", digit.repeat(64), "0".repeat(16))
}

#[test]
fn the_least_recently_used_entries_go_first_and_foreign_files_stay() {
    let files = [
        (entry("a", "json"), 10, 5),
        (entry("a", "cwasm"), 100, 90),
        (entry("b", "json"), 10, 9),
        (entry("b", "cwasm"), 100, 1),
        (entry("c", "cwasm"), 100, 3),
        ("notes.json".to_owned(), 1000, 900),
        (format!("{}-x.cwasm", "d".repeat(64)), 1000, 900),
        (".1-2-3.tmp".to_owned(), 1000, 1),
        (".1-2-4.tmp".to_owned(), 1000, 0),
    ];
    let files: Vec<(&str, usize, u64)> =
        files.iter().map(|(name, size, days)| (name.as_str(), *size, *days)).collect();
    let age = Duration::from_secs(30 * 24 * 3600);
    let (_dir, cache) = cache(CacheLimits { bytes: 320, age }, &files);
    cache.sweep();
    let entries = |cache: &Cache| names(cache).into_iter().filter(|n| n.contains("-K.")).collect::<Vec<_>>();
    assert_eq!(entries(&cache).len(), 5, "everything fits, and metadata has the time of last use");
    let all = names(&cache);
    assert!(all.contains(&"notes.json".to_owned()) && all.contains(&".1-2-4.tmp".to_owned()), "{all:?}");
    assert!(!all.contains(&".1-2-3.tmp".to_owned()), "{all:?}");
    let smaller = Cache { limits: CacheLimits { bytes: 210, age }, ..cache.clone() };
    smaller.sweep();
    assert_eq!(entries(&smaller), ["a-K.cwasm", "a-K.json", "c-K.cwasm"], "entries are removed as a whole");
    let younger = Cache { limits: CacheLimits { bytes: 1000, age: age / 7 }, ..cache.clone() };
    younger.sweep();
    assert_eq!(entries(&younger), ["c-K.cwasm"]);
    let nothing = Cache { limits: CacheLimits { bytes: 0, age }, ..cache };
    nothing.sweep();
    assert_eq!(entries(&nothing), Vec::<String>::new());
    assert_eq!(names(&nothing).len(), 3, "no other file is touched");
}

#[test]
fn a_use_updates_the_modification_time() {
    let name = entry("a", "json");
    let (_dir, cache) = cache(CacheLimits::default(), &[(&name, 1, 5)]);
    let path = cache.dir.join(&name);
    touch(&path);
    let age = fs::metadata(&path).unwrap().modified().unwrap().elapsed().unwrap_or_default();
    assert!(age < Duration::from_secs(3600), "{age:?}");
}

#[test]
fn a_storage_failure_is_logged_once() {
    let (_dir, cache) = cache(CacheLimits::default(), &[]);
    let warned = || cache.warned.is_completed();
    assert!(!warned());
    cache.clone().warn_once("it is not stored", "no space left");
    assert!(warned(), "clones share the flag");
    cache.warn_once("it is not stored", "no space left");
}

/// Code with another text of the same length in place of one.
fn with_text(code: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = code.windows(from.len()).position(|bytes| bytes == from.as_bytes()).unwrap();
    [&code[..at], to.as_bytes(), &code[at + from.len()..]].concat()
}

/// Code with the digest that its metadata names, in files that only this user can write: wasmtime decides.
#[test]
fn only_code_of_this_version_and_kind_from_files_of_this_user_is_mapped() {
    let kind = |metering| EngineKind { metering, async_support: AsyncSupport::Off };
    let (fuel, time) = (kind(Metering::Fuel), kind(Metering::Time));
    let component = wat::parse_str("(component (core module (func (export \"f\"))))").unwrap();
    let compile =
        |kind| Engine::for_compiling(kind).unwrap().wasmtime.precompile_component(&component).unwrap();
    let (engine, ours, digest) =
        (Engine::for_compiling(fuel).unwrap(), compile(fuel), Digest::of(&component));
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&dir.path().join("cache"), fuel, CacheLimits::default()).unwrap();
    let is_mapped = || {
        let hit = cache.get::<String>(&digest);
        hit.and_then(|hit| cache.code(&engine, &digest, &hit)).is_some()
    };
    // Another release of wasmtime 48, whose number wasmtime alone would accept.
    let version = code_version();
    let other = format!("{}x", &version[..version.len() - 1]);
    for (name, code, is_usable) in [
        ("other version", with_text(&ours, &version, &other), false),
        ("other settings", compile(time), false),
        ("no code", b"\x7fELF".to_vec(), false),
        ("ours", ours.clone(), true),
    ] {
        cache.put(&digest, &code, &"described").unwrap();
        assert_eq!(is_mapped(), is_usable, "{name}");
    }
    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        // Another program of this user is linked with another C library.
        cache
            .put(&digest, &with_text(&ours, "-unknown-linux-gnu", "-alpine-linux-musl"), &"described")
            .unwrap();
        assert!(is_mapped());
    }
    let [code, metadata] = ["cwasm", "json"].map(|kind| cache.file(&digest, kind));
    fs::write(&code, &ours[..ours.len() / 2]).unwrap();
    assert!(!is_mapped(), "truncated");
    for file in [&code, &metadata] {
        for owner_is_other in [false, true] {
            cache.put(&digest, &ours, &"described").unwrap();
            assert!(is_mapped(), "replaced");
            if !owner_is_other {
                fs::set_permissions(file, fs::Permissions::from_mode(0o620)).unwrap();
            } else if std::os::unix::fs::chown(file, Some(65_534), None).is_err() {
                // Only root can give a file away.
                continue;
            }
            assert!(!is_mapped(), "{}, of another user: {owner_is_other}", file.display());
        }
    }
}

#[test]
fn an_entry_is_named_after_the_metering_and_not_the_asynchronous_kind() {
    let kind = |metering, async_support| EngineKind { metering, async_support };
    let key = engine_key(kind(Metering::Fuel, AsyncSupport::Off));
    assert!(is_cache_file(&format!("{}-{key}", "0".repeat(64)), "cwasm"), "{key}");
    assert_eq!(key, engine_key(kind(Metering::Fuel, AsyncSupport::On)));
    assert_ne!(key, engine_key(kind(Metering::Time, AsyncSupport::Off)));
}

#[test]
fn a_folder_from_which_no_code_can_be_mapped_is_no_cache() {
    let folder = Path::new("/scratch");
    check_executable(folder, Mount::Executable).unwrap();
    let error = check_executable(folder, Mount::NoExec).unwrap_err();
    assert!(["`/scratch`", "`noexec`", "`TOOLBAY_CACHE`"].iter().all(|part| error.contains(part)), "{error}");
    // Containers often mount this one so.
    let shared_memory = Path::new("/dev/shm");
    if Mount::of(shared_memory) == Mount::NoExec
        && let Ok(dir) = tempfile::tempdir_in(shared_memory)
    {
        let kind = EngineKind { metering: Metering::Fuel, async_support: AsyncSupport::Off };
        let error = Cache::open(&dir.path().join("cache"), kind, CacheLimits::default()).unwrap_err();
        assert!(error.contains("`noexec`"), "{error}");
    }
}
