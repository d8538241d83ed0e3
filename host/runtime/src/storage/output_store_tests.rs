use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

fn text(text: impl Into<Arc<str>>) -> SavedText {
    SavedText { text: text.into(), source: "plugin:p".into(), tool: "p__t".into(), untrusted: true }
}

fn quota() -> OutputQuota {
    OutputQuota { bytes: 1 << 30, session_bytes: 64 << 20, age: Duration::from_secs(600) }
}

fn make_older(path: &Path, by: Duration) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - by).unwrap();
}

/// All files of the store.
fn files(state: &Path) -> Vec<PathBuf> {
    let folders = subfolders(&state.join("outputs"));
    folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect()
}

#[tokio::test]
async fn a_text_survives_a_restart_and_belongs_to_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileOutputStore::new(dir.path(), quota());
    let large = text("line é\n".repeat(2_400_000));
    assert!(large.text.len() > 16 << 20);
    let id = store.put("named:a", large.clone()).await.unwrap();
    let again = FileOutputStore::new(dir.path(), quota());
    assert_eq!(again.get("named:a", &id).await, Some(large), "after a restart");
    let listed = again.list("named:a").await;
    assert_eq!((listed.len(), &listed[0].id, &*listed[0].tool), (1, &id, "p__t"));
    assert_eq!(listed[0].bytes, "line é\n".repeat(2_400_000).len() as u64);
    for other in ["named:b", "named:A", "", "named:a/../a", "../../etc", "named:a\0", "fresh:a"] {
        assert_eq!(store.get(other, &id).await, None, "{other:?}");
        assert!(store.list(other).await.is_empty());
        store.put(other, text("theirs")).await.unwrap();
    }
    let root = dir.path().join("outputs");
    assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
    assert_eq!(subfolders(&root).len(), 8, "session names are not used as paths");
    for file in files(dir.path()) {
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    }
}

#[tokio::test]
async fn a_changed_or_moved_text_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileOutputStore::new(dir.path(), quota());
    let id = store.put("s", text("the truth")).await.unwrap();
    let [file] = &*files(dir.path()) else { panic!("one file") };
    let good = fs::read(file).unwrap();
    for bad in ["", "{}", "{}\nthe truth", "\u{0}"] {
        fs::write(file, bad).unwrap();
        assert_eq!(store.get("s", &id).await, None, "{bad:?}");
    }
    let trusted = String::from_utf8(good.clone()).unwrap().replace("true", "false");
    for bad in [trusted.into_bytes(), [&*good, b"!"].concat(), vec![0xff; 50]] {
        fs::write(file, bad).unwrap();
        assert_eq!(store.get("s", &id).await, None);
    }
    fs::write(file, &good).unwrap();
    assert_eq!(store.get("s", &id).await, Some(text("the truth")));
    fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(store.get("s", &id).await, None, "others can write it");
    let outside = dir.path().join("outside");
    fs::write(&outside, &good).unwrap();
    fs::remove_file(file).unwrap();
    symlink(&outside, file).unwrap();
    assert_eq!(store.get("s", &id).await, None, "a link is not followed");
    assert_eq!(store.put("s", text("the truth")).await, Ok(id.clone()));
    assert_eq!(fs::read(&outside).unwrap(), good, "a link is not written through");
    assert!(fs::symlink_metadata(file).unwrap().is_file());

    let folder = file.parent().unwrap().to_path_buf();
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(&folder, &elsewhere).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    assert_eq!(store.get("s", &id).await, None);
    assert!(matches!(store.put("s", text("x")).await, Err(SaveError::Failed(_))));
}

#[tokio::test]
async fn quotas_and_age_are_enforced() {
    let dir = tempfile::tempdir().unwrap();
    let kilobyte = |n: usize| text(format!("{n:04}").repeat(256));
    let store =
        FileOutputStore::new(dir.path(), OutputQuota { bytes: 40 << 10, session_bytes: 8 << 10, ..quota() });
    let mut last = None;
    for n in 0..100 {
        let id = store.put(&format!("s{}", n % 10), kilobyte(n)).await.unwrap();
        last = Some((format!("s{}", n % 10), id));
        let all: u64 = files(dir.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert!(all <= 40 << 10, "{n}: {all}");
    }
    let (session, id) = last.unwrap();
    assert_eq!(store.get(&session, &id).await, Some(kilobyte(99)), "the latest text stays");
    for n in 0..20 {
        store.put("one", kilobyte(n)).await.unwrap();
    }
    let one = store.list("one").await;
    assert!(one.len() <= 7 && !one.is_empty(), "{one:?}");
    assert!(matches!(store.put("one", text("x".repeat(9 << 10))).await, Err(SaveError::TooLarge { .. })));

    let short = FileOutputStore::new(dir.path(), OutputQuota { age: Duration::from_secs(60), ..quota() });
    let id = short.put("old", text("old")).await.unwrap();
    let found: Vec<_> = files(dir.path());
    for file in &found {
        make_older(file, Duration::from_secs(61));
    }
    let torn = found[0].with_file_name(".1-0.tmp");
    fs::write(&torn, "half").unwrap();
    make_older(&torn, Duration::from_secs(601));
    assert_eq!(short.get("old", &id).await, None, "the text has expired");
    assert!(short.list("old").await.is_empty());
    FileOutputStore::new(dir.path(), OutputQuota { age: Duration::from_secs(60), ..quota() })
        .put("new", text("new"))
        .await
        .unwrap();
    assert_eq!(files(dir.path()).len(), 1, "expired texts and the partial file are removed");
    assert_eq!(subfolders(&dir.path().join("outputs")).len(), 1);
}

#[tokio::test]
async fn the_number_of_texts_of_a_session_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileOutputStore::new(dir.path(), quota());
    for n in 0..MAX_TEXTS + 3 {
        store.put("s", text(n.to_string())).await.unwrap();
    }
    assert_eq!(files(dir.path()).len(), MAX_TEXTS);
}

#[tokio::test]
async fn a_store_that_cannot_be_written_reports_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state");
    fs::write(&file, "not a folder").unwrap();
    let store = FileOutputStore::new(&file, quota());
    assert!(matches!(store.put("s", text("x")).await, Err(SaveError::Failed(_))));
    let id = OutputId::from_text(&text("x"));
    assert_eq!(store.get("s", &id).await, None);
    let open = dir.path().join("open");
    fs::create_dir_all(open.join("outputs")).unwrap();
    fs::set_permissions(open.join("outputs"), fs::Permissions::from_mode(0o777)).unwrap();
    let failed = FileOutputStore::new(&open, quota()).put("s", text("x")).await.unwrap_err();
    assert!(failed.to_string().contains("can be written by others"), "{failed}");
}
