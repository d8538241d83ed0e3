use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::Duration;

use serde_json::Value;
use toolbay_core::audit::refusals::LISTED_PER_CLIENT;
use toolbay_policy::consent::Authority;

use super::writer::CHECK_FILE_EVERY;
use super::*;

fn decision(plugin: &str, event: GrantEvent) -> GrantRecord {
    GrantRecord {
        event,
        plugin: plugin.to_owned(),
        version: None,
        digest: None,
        origin: None,
        granted: Authority::default(),
        refused: BTreeMap::new(),
        held: vec![],
        by: None,
    }
}

fn granted(plugin: &str) -> GrantRecord {
    decision(plugin, GrantEvent::Granted)
}

fn request(n: usize) -> RequestRecord {
    RequestRecord {
        token: None,
        client: "192.0.2.1".to_owned(),
        reason: "token_unknown",
        status: 401,
        method: "POST".to_owned(),
        path: format!("/mcp/{n}"),
        host: None,
    }
}

/// All lines of an audit.
fn lines(path: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut take = |line: &str| {
        lines.push(line.to_owned());
        Ok(())
    };
    AuditReader::new(path).read(&mut take).unwrap();
    lines
}

/// The plugins of the records of all files, and the number of invalid lines.
fn all(path: &Path) -> (Vec<String>, usize) {
    let lines = lines(path);
    let parsed = lines.iter().map(|line| serde_json::from_str::<Value>(line));
    let (good, bad): (Vec<_>, Vec<_>) = parsed.partition(Result::is_ok);
    let plugins = good.into_iter().filter_map(|v| Some(v.unwrap()["plugin"].as_str()?.to_owned()));
    (plugins.collect(), bad.len())
}

fn retention(bytes: u64, file_bytes: u64) -> Retention {
    Retention { bytes, file_bytes, age: None }
}

#[test]
fn several_writers_rotate_one_audit_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            // Each writer opens the file itself, as a separate process would.
            scope.spawn(move || {
                let audit = FileAudit::with_retention(path, retention(1 << 30, 2000)).unwrap();
                for n in 0..200 {
                    audit.record_grant(granted(&format!("{writer}-{n}")));
                    // Other writers continue while one packs full files.
                    if n % 50 == 0 {
                        drop(archive::maintain(path, retention(1 << 30, 2000)));
                    }
                }
                assert_eq!(audit.records_lost(), 0);
            });
        }
    });
    let unpacked = || {
        let files = FileAudit::files(&path);
        files.iter().filter(|file| file.extension().is_none_or(|e| e != "gz")).count()
    };
    // A process that another test starts has a copy of every open file, and its lock, until it runs its program.
    for _ in 0..100 {
        archive::maintain(&path, retention(1 << 30, 2000)).unwrap();
        if unpacked() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let (found, bad) = all(&path);
    let expect: BTreeSet<String> = (0..4).flat_map(|w| (0..200).map(move |n| format!("{w}-{n}"))).collect();
    assert_eq!((found.len(), bad), (800, 0));
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expect);
    let files = FileAudit::files(&path);
    assert!(files.len() > 10, "{files:?}");
    assert_eq!(unpacked(), 1, "all files except the current one are packed: {files:?}");
    let modes: BTreeSet<u32> = files.iter().map(|file| fs::metadata(file).unwrap().mode() & 0o777).collect();
    assert_eq!(modes, [0o600].into());
}

#[test]
fn refusals_are_removed_before_calls_and_the_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let line = |plugin: usize| {
        AuditEvent::Grant(&granted(&plugin.to_string())).to_json("2026-01-01T00:00:00.000001Z")
    };
    let refusal = AuditEvent::Request(&request(0)).to_json("2026-01-01T00:00:00.000002Z").repeat(2000);
    for number in 1..=9 {
        fs::write(beside_number(&path, number), line(number) + &refusal).unwrap();
    }
    fs::write(&path, line(10)).unwrap();
    archive::maintain(&path, retention(1 << 20, 0)).unwrap();
    let count = |suffix: &str| {
        let files = FileAudit::files(&path);
        files.iter().filter(|file| file.to_string_lossy().ends_with(suffix)).count()
    };
    assert_eq!((count(".refused.gz"), count(".gz")), (9, 18));
    assert_eq!(lines(&path).len(), 9 * 2001 + 1);
    let of = |suffix: &str| fs::metadata(beside_number(&path, 1).with_extension(suffix)).unwrap().len();
    let (ran, refused) = (of("00000001.gz"), of("00000001.refused.gz"));
    // The quota is too small for one file: the oldest refusals are removed.
    assert!(!archive::maintain(&path, retention(ran * 9 + refused * 8 + refused / 2, 0)).unwrap());
    assert_eq!((count(".refused.gz"), count("1.refused.gz")), (8, 0));
    // Room for the calls only.
    assert!(!archive::maintain(&path, retention(ran * 9 + refused / 2, 0)).unwrap());
    let ten: Vec<String> = (1..=10).map(|n| n.to_string()).collect();
    assert_eq!((count(".refused.gz"), all(&path).0), (0, ten.clone()));
    // Then the oldest calls are removed, but never the current file.
    assert!(archive::maintain(&path, retention(ran * 4 + ran / 2, 0)).unwrap());
    assert_eq!(all(&path).0, ten[5..]);
    assert!(archive::maintain(&path, retention(0, 0)).unwrap());
    assert_eq!(all(&path).0, ten[9..]);
}

fn beside_number(path: &Path, number: usize) -> PathBuf {
    file::with_suffix(path, &format!(".{number:08}"))
}

#[test]
fn expired_files_are_removed_even_if_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let day = Duration::from_secs(86_400);
    for (number, days) in [(1, 40), (2, 10)] {
        fs::write(
            beside_number(&path, number),
            AuditEvent::Grant(&granted(&number.to_string())).to_json("t"),
        )
        .unwrap();
        let written = std::time::SystemTime::now() - day * days;
        fs::File::options()
            .write(true)
            .open(beside_number(&path, number))
            .unwrap()
            .set_modified(written)
            .unwrap();
    }
    // An old first line closes the file, so that it does not stay forever when little happens.
    fs::write(&path, AuditEvent::Grant(&granted("3")).to_json("2026-01-01T00:00:00.000001Z")).unwrap();
    let month = Retention { age: Some(day * 30), ..Retention::default() };
    let audit = FileAudit::with_retention(&path, month).unwrap();
    audit.record_grant(granted("4"));
    drop(audit);
    archive::maintain(&path, month).unwrap();
    assert_eq!(all(&path).0, ["2", "3", "4"]);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
}

#[test]
fn files_of_older_versions_are_read_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let line = |plugin: &str| AuditEvent::Grant(&granted(plugin)).to_json("t");
    for (number, plugin) in [(5, "a"), (4, "b"), (2, "c")] {
        fs::write(file::with_suffix(&path, &format!(".{number}")), line(plugin)).unwrap();
    }
    fs::write(dir.path().join("audit.jsonl.x"), "no file of it").unwrap();
    assert_eq!(all(&path).0, ["a", "b", "c"], "also without a current file");
    let audit = FileAudit::with_retention(&path, retention(1 << 20, 1)).unwrap();
    for plugin in ["d", "e", "f"] {
        audit.record_grant(granted(plugin));
    }
    assert_eq!(all(&path).0, ["a", "b", "c", "d", "e", "f"]);
    archive::maintain(&path, retention(0, 1)).unwrap();
    assert_eq!(all(&path).0, ["f"]);
}

#[test]
fn a_flood_of_refused_requests_is_a_few_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = FileAudit::open(&path).unwrap();
    (0..10_000).for_each(|n| audit.record_request(request(n)));
    audit.record_grant(granted("a"));
    drop(audit);
    let lines: Vec<Value> = lines(&path).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (listed, rest) = lines.split_at(LISTED_PER_CLIENT as usize);
    assert!(listed.iter().all(|line| line["kind"] == "request" && line["status"] == 401), "{listed:?}");
    let counts = rest.iter().filter(|line| line["kind"] == "refused").inspect(|line| {
        let values = ["what", "client", "reason"].map(|key| line[key].as_str().unwrap().to_owned());
        assert_eq!(values, ["request", "192.0.2.1", "token_unknown"]);
    });
    let counted: u64 = counts.map(|line| line["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, 10_000 - u64::from(LISTED_PER_CLIENT));
    assert_eq!(all(&path).0, ["a"]);
}

#[test]
fn a_plugin_is_recorded_when_it_changes_and_not_at_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let loaded = |version: &str| GrantRecord {
        version: Some(version.to_owned()),
        ..decision("p", GrantEvent::Loaded)
    };
    let start = |version: &str| FileAudit::open(&path).unwrap().record_grant(loaded(version));
    ["1", "1", "1", "2", "2", "1"].into_iter().for_each(start);
    let versions = |path: &Path| -> Vec<String> {
        let lines = lines(path);
        lines
            .iter()
            .map(|l| serde_json::from_str::<Value>(l).unwrap()["version"].as_str().unwrap_or("-").into())
            .collect()
    };
    assert_eq!(versions(&path), ["1", "2", "1"]);
    // A removed record is written again, whether a user or the quota removed it.
    fs::remove_file(&path).unwrap();
    start("1");
    assert_eq!(versions(&path), ["1"]);
    let audit = FileAudit::with_retention(&path, retention(0, 1)).unwrap();
    audit.record_grant(granted("other"));
    drop(audit);
    start("1");
    assert_eq!(versions(&path).last().unwrap(), "1");
    assert_eq!(all(&path).0.last().unwrap(), "p");
    // Each other decision gets its own line.
    let audit = FileAudit::open(&path).unwrap();
    (0..3).for_each(|_| audit.record_grant(granted("q")));
    drop(audit);
    assert_eq!(all(&path).0.iter().filter(|plugin| *plugin == "q").count(), 3);
}

#[test]
fn a_truncated_line_is_ended_and_a_removed_file_is_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    fs::write(&path, "{\"kind\":\"ca").unwrap();
    let audit = FileAudit::open(&path).unwrap();
    audit.record_grant(granted("a"));
    assert_eq!(all(&path), (vec!["a".to_owned()], 1));
    fs::remove_file(&path).unwrap();
    std::thread::sleep(CHECK_FILE_EVERY);
    audit.record_grant(granted("b"));
    assert_eq!(all(&path), (vec!["b".to_owned()], 0));
    fs::remove_dir_all(dir.path()).unwrap();
    std::thread::sleep(CHECK_FILE_EVERY);
    audit.record_grant(granted("c"));
    assert_eq!(audit.records_lost(), 1);
    let problem = Some("entity not found".to_owned());
    assert_eq!(audit.health(), Some(AuditHealth { lost: 1, problem }));
}

#[test]
#[cfg(target_os = "linux")]
fn unwritable_records_are_counted_and_reported() {
    let audit = FileAudit::open("/dev/full").unwrap();
    assert_eq!(audit.health(), None);
    (0..5).for_each(|n| audit.record_grant(granted(&n.to_string())));
    assert_eq!(audit.records_lost(), 5);
    assert_eq!(audit.health().unwrap().problem.as_deref(), Some("no storage space"));
    assert!(!Path::new("/dev/full.gap").exists() && !Path::new("/dev/full.lock").exists());
}

#[test]
fn no_symlink_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = (dir.path().join("audit.jsonl"), dir.path().join("target"));
    fs::write(&target, "mine\n").unwrap();
    for name in ["", ".lock", ".gap", ".loaded", ".00000001", ".00000001.gz", ".00000001.refused.gz", ".1"] {
        let link = file::with_suffix(&path, name);
        symlink(&target, &link).unwrap();
        let error = FileAudit::open(&path).unwrap_err().to_string();
        assert!(error.contains("symbolic link") && error.contains("remove the link"), "{error}");
        fs::remove_file(&link).unwrap();
    }
    // Nor is a link that appears while the audit is open.
    let audit = FileAudit::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&target, &path).unwrap();
    std::thread::sleep(CHECK_FILE_EVERY);
    audit.record_grant(granted("a"));
    assert_eq!(audit.records_lost(), 1);
    assert_eq!(fs::read_to_string(&target).unwrap(), "mine\n");
    assert!(AuditReader::new(&path).read(&mut |_| Ok(())).unwrap_err().to_string().contains("symbolic link"));
    // A parent folder may be a link.
    symlink(dir.path(), dir.path().join("folder")).unwrap();
    fs::remove_file(&path).unwrap();
    FileAudit::open(dir.path().join("folder/audit.jsonl")).unwrap();
}

#[test]
fn a_path_that_cannot_be_an_audit_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert!(FileAudit::open(dir.path()).is_err(), "a folder");
    assert!(FileAudit::open(dir.path().join("no/such/folder")).is_err());
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(FileAudit::open(fifo).is_err(), "a FIFO without a reader");
}

#[test]
fn lines_are_read_once_in_order_over_rotation_and_packing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let at = |number: usize| beside_number(&path, number);
    let append = |text: &str| {
        let file = fs::OpenOptions::new().append(true).create(true).open(&path);
        std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
    };
    let mut reader = AuditReader::new(&path);
    let read = |reader: &mut AuditReader| {
        let mut found = Vec::new();
        let mut take = |line: &str| {
            found.push(line.to_owned());
            Ok(())
        };
        reader.read(&mut take).unwrap();
        found
    };
    assert_eq!(read(&mut reader), [""; 0]);
    fs::write(at(1), "1\n").unwrap();
    fs::write(at(2), "2\n\n3").unwrap();
    append("4\n5");
    assert_eq!(read(&mut reader), ["1", "2", "3", "4"]);
    assert!(reader.has_partial_line());
    append("5\n6\n");
    assert_eq!(read(&mut reader), ["55", "6"]);
    append("7\n");
    fs::rename(&path, at(3)).unwrap();
    fs::write(at(4), "8\n").unwrap();
    append("9\n");
    archive::maintain(&path, Retention::default()).unwrap();
    assert_eq!(read(&mut reader), ["7", "8", "9"]);
    assert_eq!(read(&mut reader), [""; 0]);
    // The file is removed or renamed by hand.
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&mut reader), [""; 0]);
    append("10\n");
    assert_eq!(read(&mut reader), ["10"]);
    // The damaged part is reported as one broken line.
    let mut bytes = fs::read(file::with_suffix(&at(4), ".gz")).unwrap();
    bytes.truncate(12);
    fs::write(file::with_suffix(&at(4), ".gz"), bytes).unwrap();
    let damaged = "(the rest of this file is damaged)";
    assert_eq!(lines(&path), ["1", "2", "3", "4", "55", "6", "7", damaged, "10"]);
}
