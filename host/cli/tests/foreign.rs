//! The command with components that know nothing of Toolbay.

#![allow(clippy::unwrap_used, reason = "a failed fixture is a failed test")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

const POLICY: &str = "version = 1
workspace = \"work\"
[plugins.shapes.grant]
fs_read = [\"$workspace\"]
[plugins.shapes.tools.divide]
limits = { timeout = \"2s\" }
";

const BESIDE: &str = "version = 1
name = \"speaker\"
release = \"0.3.0\"
[tools.say]
description = \"Say something.\"
args.words = { type = \"array\", items = { type = \"string\" } }
run.args = [\"print\", \"--\", \"{words}\"]
needs = []
";

struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        let at = |name: &str| desk.0.path().join(name);
        for folder in ["work", "plugins"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        std::fs::write(at("toolbay.toml"), POLICY).unwrap();
        std::fs::copy(guest_artifacts::FOREIGN_SHAPES, at("plugins/shapes.wasm")).unwrap();
        std::fs::copy(guest_artifacts::PROGRAM_TOOL, at("plugins/speaker.wasm")).unwrap();
        std::fs::write(at("plugins/speaker.plugin.toml"), BESIDE).unwrap();
        desk
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolbay"));
        let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-cache");
        command.args(args).current_dir(self.0.path()).env_remove("TOOLBAY_LOG");
        command
            .env("TOOLBAY_PLUGINS", "plugins")
            .env("TOOLBAY_CONFIG", "toolbay.toml")
            .env("TOOLBAY_CACHE", cache);
        command
            .env("TOOLBAY_STATE", self.0.path().join("state"))
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap()
    }

    fn says(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

#[test]
fn it_is_listed_checked_inspected_explained_and_called_as_any_other() {
    let desk = Desk::new();
    let listed: Value = serde_json::from_str(&desk.says(&["list", "--json"])).unwrap();
    let text = listed.to_string();
    for tool in ["shapes__divide", "shapes__shapes-of-record", "speaker__say"] {
        assert!(text.contains(&format!("\"{tool}\"")), "{tool}: {text}");
    }
    let checked = desk.says(&["check", "plugins/shapes.wasm", "plugins/speaker.wasm"]);
    assert!(
        checked.contains("plugins/shapes.wasm: loads,")
            && checked.contains("plugins/speaker.wasm: loads, 1 tools"),
        "{checked}"
    );
    // Neither exports `about`, nor can; both have a file beside them, or may.
    assert!(checked.contains("(in `shapes.plugin.toml` beside it: `name`,"), "{checked}");
    assert!(checked.contains("(in `speaker.plugin.toml` beside it: `name`,"), "{checked}");
    assert!(!checked.contains("export `about`"), "{checked}");
    let inspected = desk.says(&["inspect", "speaker"]);
    assert!(inspected.contains("speaker 0.3.0") && inspected.contains("Say something."), "{inspected}");
    let explained = desk.says(&["explain", "shapes__divide"]);
    for part in [
        "fs-read",
        "it imports `wasi:filesystem/",
        "written [plugins.shapes.grant] fs_read",
        "[plugins.shapes.tools.divide.limits]",
    ] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    assert_eq!(desk.says(&["call", "shapes__divide", r#"{"a": 9, "b": 2}"#]), "4\n");
    let said = desk.says(&["call", "speaker__say", &json!({"words": ["--", "it"]}).to_string()]);
    assert_eq!(said.trim_end(), "-- -- it");
}

#[test]
fn what_can_not_be_is_said_with_the_name_of_the_file() {
    let desk = Desk::new();
    std::fs::write(desk.0.path().join("plugins/speaker.plugin.toml"), "version = 1\n[tools.say]\nrum = {}\n")
        .unwrap();
    let output = desk.run(&["check", "plugins/speaker.wasm"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("plugin.toml") && text.contains("`rum`"), "{text}");
    std::fs::remove_file(desk.0.path().join("plugins/speaker.plugin.toml")).unwrap();
    let output = desk.run(&["check", "plugins/speaker.wasm"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("it is a program: write beside it a file"), "{text}");
}

#[test]
fn what_is_refused_or_can_never_be_granted_is_said_to_be_so() {
    let desk = Desk::new();
    let needs = |needs: &str| {
        let beside = BESIDE.replace("needs = []", &format!("needs = [{needs}]"));
        std::fs::write(desk.0.path().join("plugins/speaker.plugin.toml"), beside).unwrap();
    };
    needs(r#"{ kind = "fs-read", target = "**", optional = true, reason = "Quotes files." }"#);
    let shown = desk.says(&["inspect", "speaker"]);
    assert!(shown.contains("nothing granted: it works without what it asks for"), "{shown}");
    needs(r#"{ kind = "net", target = "api.example.com", optional = true, reason = "Quotes the web." }"#);
    let checked = desk.run(&["check", "speaker"]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(text.contains("error: ") && text.contains("https://api.example.com"), "{text}");
}
