//! The commands for plugin authors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::fixture::toolbay;

/// A working folder whose name has a space and non-ASCII letters.
struct AuthorFixture {
    dir: PathBuf,
    /// The projects of earlier tests.
    before: Option<PathBuf>,
    _guard: FolderGuard,
}

/// What keeps a folder for one test.
enum FolderGuard {
    Temporary { _dir: tempfile::TempDir },
    Locked { _lock: fs::File },
}

/// The target folder of the workspace.
fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")
}

impl AuthorFixture {
    /// A new folder, for tests that compile nothing.
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("größe 1 ").tempdir().unwrap();
        Self { dir: dir.path().to_owned(), before: None, _guard: FolderGuard::Temporary { _dir: dir } }
    }

    /// The same folder for each test, one after the other. Flags of the compiler name the folder of a project, so that
    /// cargo compiles the dependencies again in another one.
    fn for_builds() -> Self {
        let place = target().join("test-author-projects");
        fs::create_dir_all(&place).unwrap();
        let place = place.canonicalize().unwrap();
        let lock = fs::File::create(place.join("lock")).unwrap();
        lock.lock().unwrap();
        let (dir, before) = (place.join("größe 1"), place.join("before"));
        for folder in [&dir, &before] {
            fs::create_dir_all(folder).unwrap();
        }
        for entry in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap()) {
            let kept = before.join(entry.file_name());
            drop(fs::remove_dir_all(&kept).or_else(|_| fs::remove_file(&kept)));
            fs::rename(entry.path(), kept).unwrap();
        }
        Self { dir, before: Some(before), _guard: FolderGuard::Locked { _lock: lock } }
    }

    /// Creates a project. Equal files of the SDK keep the times of an earlier one, so that cargo compiles the SDK once.
    fn create(&self, project: &str, more: &[&str]) -> String {
        let created = self.good(&[&["new", project], more].concat());
        if let Some(before) = &self.before {
            keep_times(&self.path(project).join("vendor"), &before.join(project).join("vendor"));
        }
        created
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = toolbay(&self.dir);
        let target = target();
        command
            .args(args)
            .current_dir(&self.dir)
            .env("TOOLBAY_PLUGINS", self.path("plugins"))
            .env("TOOLBAY_CONFIG", self.path("toolbay.toml"))
            .env("TOOLBAY_CACHE", target.join("test-cache"))
            .env("TOOLBAY_STATE", self.path("state"))
            // All tests share the compiled dependencies.
            .env("CARGO_TARGET_DIR", target.join("test-author"))
            .env("CARGO_NET_OFFLINE", "true")
            .stdin(Stdio::null());
        fs::write(self.path("toolbay.toml"), "version = 1\n").unwrap();
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn good(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that succeeds, and returns its output on both streams.
    fn said(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
        said(&output)
    }

    /// The local paths inside a built component: those of the author, of cargo and of the project.
    fn places_in(&self, id: &str) -> Vec<String> {
        let component = fs::read(self.path("plugins").join(id).with_extension("wasm")).unwrap();
        let home = std::env::home_dir().unwrap();
        let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
        let places = [home.join(""), cargo, self.dir.canonicalize().unwrap()];
        let stands = |place: &&PathBuf| {
            let place = place.as_os_str().as_encoded_bytes();
            component.windows(place.len()).any(|part| part == place)
        };
        places.iter().filter(stands).map(|place| place.display().to_string()).collect()
    }

    /// Runs a command that fails, and returns its output.
    fn bad(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        said(&output)
    }

    /// The files in the folder, apart from those that every command creates.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> =
            names.filter(|name| !["toolbay.toml", "state"].contains(&name.as_str())).collect();
        names.sort();
        names
    }
}

/// Gives the files of a folder the times of equal files of another one.
fn keep_times(folder: &Path, before: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let earlier = before.join(file.file_name().unwrap());
        if file.is_dir() {
            keep_times(&file, &earlier);
        } else if fs::read(&earlier).is_ok_and(|earlier| earlier == fs::read(&file).unwrap()) {
            let time = fs::metadata(&earlier).unwrap().modified().unwrap();
            fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
        }
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_new_plugin_is_built_called_changed_and_called_again() {
    let author = AuthorFixture::for_builds();
    let made = author.create("hello-there", &[]);
    assert!(made.contains("toolbay build"), "{made}");
    let built = author.good(&["build", "hello-there"]);
    assert!(built.starts_with("hello-there: ") && built.contains("B, "), "{built}");
    let call = || author.good(&["call", "hello-there__hello", r#"{"name": "world", "marks": 2}"#]);
    assert_eq!(call(), "Hello, world!!\n");

    let source = author.path("hello-there/src/lib.rs");
    let text = fs::read_to_string(&source).unwrap();
    fs::write(&source, text.replace("Hello, {name}", "Bye, {name}")).unwrap();
    author.good(&["build", "hello-there"]);
    assert_eq!(call(), "Bye, world!!\n");
    assert_eq!(author.places_in("hello-there"), Vec::<String>::new());

    fs::write(&source, "fn broken(").unwrap();
    let problem = author.bad(1, &["build", "hello-there"]);
    assert!(problem.contains("src/lib.rs:1") && problem.contains("the build failed"), "{problem}");
    assert_eq!(call(), "Bye, world!!\n", "what was built before stays");
}

#[test]
fn a_component_that_does_not_load_replaces_nothing() {
    let author = AuthorFixture::for_builds();
    author.create("hello-there", &[]);
    author.good(&["build", "hello-there"]);
    let placed = author.path("plugins/hello-there.wasm");
    let working = fs::read(&placed).unwrap();
    let source = author.path("hello-there/src/lib.rs");
    // The source compiles and exports nothing.
    fs::write(&source, "//! Nothing.\n").unwrap();
    let problem = author.bad(1, &["build", "hello-there"]);
    assert!(problem.contains("error: the component does not load and is not installed: "), "{problem}");
    assert_eq!(fs::read(&placed).unwrap(), working);
    assert_eq!(
        author.good(&["call", "hello-there__hello", r#"{"name": "you", "marks": 1}"#]),
        "Hello, you!\n"
    );
}

#[test]
fn a_new_plugin_passes_its_tests() {
    let author = AuthorFixture::for_builds();
    author.create("hello-there", &[]);
    let said = author.said(&["test", "hello-there"]);
    assert!(said.contains("test tests::greets ... ok"), "{said}");
    assert!(said.contains("example 1 of hello-there__hello ... ok"), "{said}");
    assert!(said.contains("examples: 1 passed, 0 failed"), "{said}");

    let source = author.path("hello-there/src/lib.rs");
    let text = fs::read_to_string(&source).unwrap();
    fs::write(&source, text.replace("Hello, world!!\"),", "Hullo\"),")).unwrap();
    let said = author.bad(1, &["test", "hello-there", "--examples"]);
    assert!(said.contains("FAILED") && said.contains("the result is\n    Hello, world!!"), "{said}");
    assert!(!author.path("plugins").exists(), "nothing is placed");
}

#[test]
fn a_new_reducer_is_built() {
    let author = AuthorFixture::for_builds();
    author.create("hello-there", &["--reducer"]);
    let said = author.said(&["test", "hello-there"]);
    assert!(said.contains("test tests::the_middle_is_left_out ... ok"), "{said}");
    author.good(&["build", "hello-there", "--no-install"]);
    assert!(!author.path("plugins").exists());
}

#[test]
fn a_failed_new_leaves_no_files_and_says_why() {
    let author = AuthorFixture::new();
    fs::create_dir(author.path("there")).unwrap();
    let locked = author.path("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    let before = author.left();
    assert!(author.bad(1, &["new", "there"]).contains("already exists"));
    let cases: [(&[&str], &str); 6] = [
        (&["new", "größe"], "letters from A to Z"),
        (&["new", "two words"], "letters from A to Z"),
        (&["new", "a__b"], "contains `__`"),
        (&["new", "9lives"], "starts with a letter"),
        (&["new", "fn"], "Rust reserves the word"),
        (&["new", ".."], "has no name"),
    ];
    for (args, part) in cases {
        let said = author.bad(2, args);
        assert!(said.contains(part), "{args:?}: {said}");
    }
    assert!(author.bad(2, &["new", "notes", "--lang", "cobol"]).contains("rust"));
    assert!(author.bad(1, &["new", "nowhere/notes"]).contains("there is no folder `nowhere`"));
    // Permissions do not stop root.
    if fs::write(locked.join("probe"), "").is_err() {
        assert!(author.bad(1, &["new", "locked/notes"]).contains("the folder is not writable"));
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(author.left(), before);
}

#[test]
fn a_missing_toolchain_says_how_to_get_it() {
    let author = AuthorFixture::new();
    author.good(&["new", "notes"]);
    let empty = author.path("empty");
    fs::create_dir(&empty).unwrap();
    let without = |programs: &[(&str, &str)]| {
        for (name, script) in programs {
            let file = empty.join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = author.command(&["build", "notes"]);
        command.env("PATH", &empty).env("CARGO_HOME", author.path("none")).env_remove("RUSTC");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    assert!(without(&[]).contains("install Rust with rustup"));
    let manifest = author.path("notes/Cargo.toml").canonicalize().unwrap();
    let metadata = serde_json::json!({"packages": [{
        "name": "notes", "manifest_path": manifest, "targets": [{"crate_types": ["cdylib"]}],
    }]});
    let cargo = format!("cat <<'END'\n{metadata}\nEND");
    fs::copy("/bin/cat", empty.join("cat")).unwrap();
    assert!(without(&[("cargo", &cargo)]).contains("no `rustc` on `PATH`"));
    let no_target = without(&[("rustc", "echo /nowhere")]);
    assert!(no_target.contains("there is no rustup to add it"), "{no_target}");
    let no_network = without(&[("rustup", "exit 1")]);
    assert!(no_network.contains("`rustup target add wasm32-wasip2`"), "{no_network}");
    assert!(!author.path("plugins").exists());
}

#[test]
fn the_plugins_of_a_cargo_workspace_are_compiled_with_the_same_flags() {
    let author = AuthorFixture::new();
    let (bin, root) = (author.path("bin"), author.dir.canonicalize().unwrap());
    fs::create_dir(&bin).unwrap();
    let write = |name: &str, script: &str| {
        let file = bin.join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let package = |name: &str| {
        let manifest = root.join(name).join("Cargo.toml");
        serde_json::json!({"name": name, "manifest_path": manifest, "targets": [{"crate_types": ["cdylib"]}]})
    };
    let packages = ["one", "two"].map(package);
    let metadata = serde_json::json!({"packages": packages, "workspace_root": &root});
    // In place of cargo, which says what the workspace has, and writes down how it was called.
    let compiled = root.join("compiled");
    write(
        "cargo",
        &format!(
            "if [ \"$1\" = metadata ]; then cat <<'END'\n{metadata}\nEND\nelse echo \"$*\" >> '{}'; fi",
            compiled.display()
        ),
    );
    write("rustc", "echo /");
    for name in ["one", "two"] {
        author.good(&["new", name]);
        let mut command = author.command(&["build", name]);
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("CARGO_HOME", root.join("none"));
        ["RUSTC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"].iter().for_each(|name| {
            command.env_remove(name);
        });
        // This cargo makes no component.
        assert_eq!(command.output().unwrap().status.code(), Some(3));
    }
    let lines = fs::read_to_string(&compiled).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1], "{lines:?}");
    assert!(lines[0].contains(&format!("--remap-path-prefix={}=.", root.display())), "{lines:?}");
}

#[test]
fn a_build_does_not_replace_the_plugin_of_another_project() {
    let author = AuthorFixture::for_builds();
    author.create("hello-there", &[]);
    fs::create_dir(author.path("plugins")).unwrap();
    let placed = author.path("plugins/hello-there.wasm");
    fs::write(&placed, "another").unwrap();
    let said = author.bad(2, &["build", "hello-there"]);
    assert!(said.contains("is another plugin") && said.contains("--replace"), "{said}");
    assert_eq!(fs::read(&placed).unwrap(), b"another");
    author.good(&["build", "hello-there", "--replace"]);
    author.good(&["build", "hello-there"]);
    assert!(fs::read(&placed).unwrap().starts_with(b"\0asm"));
    fs::create_dir(author.path("nothing")).unwrap();
    let said = author.bad(2, &["build", "nothing"]);
    assert!(said.contains("toolbay new NAME"), "{said}");
}
