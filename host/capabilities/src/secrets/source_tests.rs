//! Files that are unsuitable as secrets, and links to them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use secrecy::ExposeSecret as _;

use super::*;

struct SecretFolders {
    dir: tempfile::TempDir,
}

impl SecretFolders {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("space/sub")).unwrap();
        fs::create_dir_all(dir.path().join("keys")).unwrap();
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, content: &[u8], mode: u32) {
        fs::write(self.path(path), content).unwrap();
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let read = read(&SecretSource::File(self.path(path)), &self.path("space"), &mut KeyRing::default());
        read.map(|value| value.expose_secret().to_owned())
    }
}

#[test]
fn one_trailing_line_break_is_removed() {
    let folders = SecretFolders::new();
    for (content, value) in [
        (&b"abc"[..], "abc"),
        (b"abc\n", "abc"),
        (b"abc\r\n", "abc"),
        (b"abc\n\n", "abc\n"),
        (b" abc ", " abc "),
        (b"", ""),
    ] {
        folders.write("keys/a", content, 0o600);
        assert_eq!(folders.read("keys/a").as_deref(), Ok(value), "{content:?}");
    }
    folders.write("keys/a", &[b'x'; MAX_VALUE_BYTES], 0o400);
    assert_eq!(folders.read("keys/a").unwrap().len(), MAX_VALUE_BYTES);
    folders.write("space/own", b"in the workspace", 0o600);
    assert_eq!(folders.read("space/own").as_deref(), Ok("in the workspace"));
}

#[test]
fn an_unsuitable_file_is_refused_with_the_reason() {
    let folders = SecretFolders::new();
    for mode in [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o660, 0o777] {
        folders.write("keys/a", b"value-value", mode);
        let problem = folders.read("keys/a").unwrap_err();
        assert!(problem.contains("chmod 600") && !problem.contains("value-value"), "{mode:o}: {problem}");
    }
    folders.write("keys/huge", &[b'x'; MAX_VALUE_BYTES + 1], 0o600);
    folders.write("keys/binary", b"\xff\xfe value", 0o600);
    let fifo =
        std::process::Command::new("mkfifo").args(["-m", "600"]).arg(folders.path("keys/fifo")).status();
    assert!(fifo.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(folders.path("keys/socket")).unwrap();
    for (path, why) in [
        ("keys/huge", "at most"),
        ("keys/binary", "UTF-8"),
        ("keys/fifo", "not a regular file"),
        ("keys/socket", "cannot be opened"),
        ("keys", "not a regular file"),
        ("keys/none", "cannot be opened"),
        ("keys/huge/below", "cannot be opened"),
    ] {
        let problem = folders.read(path).unwrap_err();
        assert!(problem.contains(why), "{path}: {problem}");
    }
    let mut ring = KeyRing::default();
    let device = read(&SecretSource::File("/dev/zero".into()), &folders.path("space"), &mut ring).map(|_| ());
    assert!(device.unwrap_err().contains("not a regular file"));
}

#[test]
fn a_link_is_followed_unless_it_is_in_the_workspace() {
    let folders = SecretFolders::new();
    folders.write("keys/a", b"the-value", 0o600);
    symlink("a", folders.path("keys/link")).unwrap();
    symlink(folders.path("keys"), folders.path("elsewhere")).unwrap();
    symlink("loop", folders.path("keys/loop")).unwrap();
    for path in ["keys/link", "elsewhere/a", "elsewhere/../keys/link", "space/../keys/a"] {
        assert_eq!(folders.read(path).as_deref(), Ok("the-value"), "{path}");
    }
    assert!(folders.read("keys/loop").unwrap_err().contains("too many symbolic links"));
    symlink("../keys/a", folders.path("space/planted")).unwrap();
    symlink(folders.path("keys"), folders.path("space/sub/folder")).unwrap();
    symlink("space/planted", folders.path("into")).unwrap();
    symlink("space/sub", folders.path("sub")).unwrap();
    for path in [
        "space/planted",
        "space/sub/folder/a",
        "into",
        "sub/folder/a",
        "keys/../space/planted",
        "space/sub/../planted",
    ] {
        let problem = folders.read(path).unwrap_err();
        assert!(problem.contains("in the workspace"), "{path}: {problem}");
    }
    // A link that was added after the links were resolved is an error.
    assert!(open_without_links(&folders.path("elsewhere/a")).is_err());
    assert!(open_without_links(&folders.path("keys/link")).is_err());
}

#[test]
fn the_environment_is_read_by_name() {
    let (workspace, mut ring) = (Path::new("/nowhere"), KeyRing::default());
    let unset = read(&SecretSource::Env("TOOLBAY_TEST_IS_NOT_SET".to_owned()), workspace, &mut ring);
    assert!(unset.map(drop).unwrap_err().contains("`TOOLBAY_TEST_IS_NOT_SET` is not set"));
    assert!(read(&SecretSource::Env("PATH".to_owned()), workspace, &mut ring).is_ok());
}
