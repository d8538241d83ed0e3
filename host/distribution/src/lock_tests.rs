use super::*;

fn plugin(name: &str) -> (PluginId, LockedPlugin) {
    let plugin = LockedPlugin {
        source: format!("oci://registry.example/acme/{name}"),
        tag: Some("1.4.2".to_owned()),
        manifest: BlobDigest::of(name.as_bytes()),
        layer: BlobDigest::of(b"layer"),
        size: 174_991,
        signer: Signer::None,
        bundle: None,
        signed_at: None,
    };
    (PluginId::new(name).unwrap(), plugin)
}

fn add(path: &Path, name: &str) -> Result<(), LockError> {
    let (id, locked) = plugin(name);
    update(path, Duration::from_secs(30), |plugins| {
        plugins.insert(id, locked);
        Ok(())
    })
}

#[test]
fn a_lock_is_read_back_and_its_tables_are_sorted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    assert_eq!(read(&path), Ok(LockedPlugins::new()));
    add(&path, "b").unwrap();
    add(&path, "a").unwrap();
    assert_eq!(read(&path), Ok(LockedPlugins::from([plugin("a"), plugin("b")])));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.find("id = \"a\"") < text.find("id = \"b\""), "{text}");
    // An edit that fails changes nothing, and leaves nothing.
    let failed = update(&path, Duration::ZERO, |plugins| {
        plugins.clear();
        let kind = LockErrorKind::Unusable;
        Err::<(), _>(LockError { kind, path: path.clone(), line: None, message: "no".to_owned() })
    });
    assert_eq!(failed.unwrap_err().message, "no");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_signed_plugin_has_its_key_and_its_signature() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let (id, mut signed) = plugin("a");
    (signed.signer, signed.bundle) = (Signer::Key(BlobDigest::of(b"key")), Some(BlobDigest::of(b"bundle")));
    let entry = (id, signed);
    update(&path, Duration::ZERO, |plugins| {
        plugins.extend([entry.clone()]);
        Ok::<_, LockError>(())
    })
    .unwrap();
    assert_eq!(read(&path), Ok(LockedPlugins::from([entry])));
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to) in [("bundle = ", "# bundle = "), ("signer = \"key:", "signer = \"none\" # ")] {
        std::fs::write(&path, text.replace(from, to)).unwrap();
        assert!(read(&path).unwrap_err().message.contains("do not match"), "{to}");
    }
}

#[test]
fn concurrent_writers_all_reach_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let path = &path;
            scope.spawn(move || add(path, &format!("p{number}")).unwrap());
        }
    });
    assert_eq!(read(&path).unwrap().len(), 16);
}

#[test]
fn a_held_lock_is_waited_for_and_then_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let held = lock_folder(dir.path(), Duration::ZERO).unwrap();
    let error = update(&path, Duration::ZERO, |_| Ok::<_, LockError>(())).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    drop(held);
    add(&path, "a").unwrap();
}

#[test]
fn a_lock_that_is_not_understood_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    add(&path, "a").unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    let table = good.split_once("[[plugin]]").unwrap().1;
    for (text, line, part) in [
        (good.replace("[[plugin]]", "<<<<<<< ours\n[[plugin]]"), 4, "merge conflict"),
        (good.replace("version = 1", "version = 2"), 2, "reads version 1"),
        (good.replace("version = 1", "version = 1\nextra = 1"), 3, "extra"),
        (good.replace("size =", "sizes ="), 10, "sizes"),
        (good.replace("\"none\"", "\"key:1\""), 11, "key:1"),
        (good.replacen("sha256:", "sha512:", 1), 8, "is not a digest"),
        (good.replace("oci://registry.example", "oci://registry"), 4, "not a registry"),
        (format!("{good}\n[[plugin]]{table}"), 13, "twice"),
        (good.replace("id = \"a\"", "id = \"../a\""), 4, "plugin id"),
        (good.replace("tag = ", "tag "), 7, ""),
    ] {
        std::fs::write(&path, &text).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.message.contains(part), "{error}\n{text}");
        assert_eq!(error.line, Some(line), "{error}\n{text}");
        assert_eq!(add(&path, "b").unwrap_err(), error, "nothing is written");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn what_a_killed_writer_left_is_removed_and_an_equal_lock_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    add(&path, "a").unwrap();
    let text = std::fs::read_to_string(&path).unwrap() + "# a comment\n";
    std::fs::write(&path, &text).unwrap();
    std::fs::write(dir.path().join(".toolbay.lock.x1"), "version").unwrap();
    add(&path, "a").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(read(&path).unwrap_err().message.contains("not a regular file"));
}
