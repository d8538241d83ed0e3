//! New plugins in languages other than Rust, without a toolchain. `cargo xtask test languages` builds them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::fixture::toolbay;

/// A folder whose name has a space and non-ASCII letters, with a folder of programs.
struct LanguageFixture(tempfile::TempDir);

impl LanguageFixture {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("größe 1 ").tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds a program to the otherwise empty path.
    fn program(&self, name: &str, script: &str) {
        let file = self.path("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, code: i32, args: &[&str]) -> String {
        let output = toolbay(self.0.path())
            .args(args)
            .current_dir(self.0.path())
            .env("PATH", self.path("bin"))
            .env("HOME", self.0.path())
            .env("TOOLBAY_PLUGINS", self.path("plugins"))
            .output()
            .unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        said
    }
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn a_new_plugin_has_all_files_for_its_build() {
    let author = LanguageFixture::new();
    for (lang, files) in [
        (
            "js",
            &[
                "package.json",
                "plugin.js",
                "vendor/toolbay-sdk/build.mjs",
                "vendor/toolbay-sdk/wit/tools.wit",
            ][..],
        ),
        ("ts", &["package.json", "plugin.ts", "plugin.test.ts", "tsconfig.json"]),
        (
            "python",
            &[
                "pyproject.toml",
                "plugin.py",
                "vendor/toolbay_sdk/build.py",
                "vendor/toolbay_sdk/wit/tools.wit",
            ],
        ),
        (
            "c",
            &[
                "plugin.c",
                "vendor/toolbay/build.py",
                "vendor/toolbay/include/toolbay.h",
                "vendor/toolbay/wit/tools.wit",
            ],
        ),
    ] {
        let name = format!("hello-{lang}");
        let said = author.run(0, &["new", &name, "--lang", lang]);
        assert!(said.contains("toolbay build") && said.contains(&format!("{name}__hello")), "{said}");
        for file in files {
            assert!(author.path(&name).join(file).is_file(), "{lang}: no {file}");
        }
        let readme = text(&author.path(&name).join("README.md"));
        assert!(readme.contains(&name) && !readme.contains("{{"), "{readme}");
        let reducer = format!("shorter-{lang}");
        author.run(0, &["new", &reducer, "--lang", lang, "--reducer"]);
        let sources =
            ["plugin.js", "plugin.ts", "plugin.py", "plugin.c"].map(|file| author.path(&reducer).join(file));
        let source = sources.iter().find(|file| file.is_file()).unwrap();
        assert!(text(source).contains("shell__terminal"));
    }
}

#[test]
fn a_missing_toolchain_says_how_to_get_it() {
    let author = LanguageFixture::new();
    for lang in ["js", "ts", "python", "c"] {
        author.run(0, &["new", lang, "--lang", lang]);
    }
    assert!(author.run(2, &["build", "js"]).contains("install Node.js"));
    assert!(author.run(2, &["build", "python"]).contains("install Python"));
    assert!(author.run(2, &["build", "c"]).contains("install Python"));
    author.program("node", "exit 0");
    for lang in ["js", "ts"] {
        assert!(author.run(2, &["build", lang]).contains("run `npm install` in"));
    }
    // The SDK's script has already printed its error.
    author.program("python3", "echo componentize-py is missing >&2; exit 1");
    let said = author.run(1, &["build", "python"]);
    assert!(said.contains("componentize-py is missing") && said.contains("the build failed"), "{said}");
}

#[test]
fn a_project_with_the_sdk_under_its_former_name_learns_the_new_one() {
    let author = LanguageFixture::new();
    author.run(0, &["new", "notes", "--lang", "python"]);
    fs::rename(author.path("notes/vendor/toolbay_sdk"), author.path("notes/vendor/toolbay")).unwrap();
    for command in ["build", "test"] {
        let said = author.run(2, &[command, "notes"]);
        assert!(said.contains("import `toolbay_sdk`"), "{said}");
    }
    // The SDK for C has the same folder.
    fs::rename(author.path("notes/vendor/toolbay"), author.path("notes/vendor/toolbay_sdk")).unwrap();
    author.run(0, &["new", "greets", "--lang", "c"]);
    fs::rename(author.path("greets/vendor/toolbay"), author.path("notes/vendor/toolbay")).unwrap();
    assert!(author.run(2, &["build", "notes"]).contains("install Python"));
}

#[test]
fn prompts_and_resources_beside_a_plugin_are_embedded() {
    let author = LanguageFixture::new();
    author.run(0, &["new", "notes", "--lang", "c"]);
    // In place of the compiler: `python3 vendor/toolbay/build.py plugin.c -o FILE`.
    author
        .program("python3", &format!("/bin/mkdir -p target; /bin/cp '{}' \"$4\"", guest_artifacts::API_ECHO));
    let document = author.path("notes/offers.json");
    let resource =
        r#"{"version": 1, "resources": [{"path": "guide", "name": "Guide", "file": "README.md"}]}"#;
    fs::write(&document, resource).unwrap();
    author.run(0, &["build", "notes", "--no-install"]);
    let shown = author.run(0, &["inspect", "notes/target/notes.wasm", "--json"]);
    let size = fs::metadata(author.path("notes/README.md")).unwrap().len();
    assert!(shown.contains(&format!("\"bytes\": {size}")) && shown.contains("text/markdown"), "{shown}");
    fs::write(&document, "{").unwrap();
    assert!(author.run(2, &["build", "notes", "--no-install"]).contains("`offers.json`: EOF"));
}

#[test]
fn an_invalid_manifest_is_reported() {
    let author = LanguageFixture::new();
    author.run(0, &["new", "notes", "--lang", "js"]);
    author.program("node", "exit 0");
    let manifest = author.path("notes/package.json");
    for (broken, expected) in
        [("{", "is not JSON"), ("{}", "has no name"), (r#"{"name": "@a/b"}"#, "is not a plugin id")]
    {
        fs::write(&manifest, broken).unwrap();
        assert!(author.run(2, &["build", "notes"]).contains(expected), "{broken}");
    }
    assert!(author.run(2, &["new", "Notes", "--lang", "js"]).contains("no capital letters"));
}
