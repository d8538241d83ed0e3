//! The commands with plain components.

use std::process::Output;

use serde_json::{Value, json};

use crate::fixture::HostFolder;

const POLICY: &str = "workspace = \"work\"
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

struct PlainComponentFixture(HostFolder);

impl PlainComponentFixture {
    fn new() -> Self {
        let folder = HostFolder::new(POLICY).with_plugin("shapes", guest_artifacts::FOREIGN_SHAPES);
        let folder = folder.with_plugin("speaker", guest_artifacts::PROGRAM_TOOL);
        std::fs::write(folder.path("plugins/speaker.plugin.toml"), BESIDE).unwrap();
        Self(folder)
    }

    fn run(&self, args: &[&str]) -> Output {
        self.0.command(args).current_dir(self.0.path("")).output().unwrap()
    }

    fn says(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

#[test]
fn plain_components_are_listed_checked_inspected_explained_and_called() {
    let desk = PlainComponentFixture::new();
    let listed: Value = serde_json::from_str(&desk.says(&["list", "--json"])).unwrap();
    let text = listed.to_string();
    for tool in ["shapes__divide", "shapes__shapes-of-record", "speaker__say"] {
        assert!(text.contains(&format!("\"{tool}\"")), "{tool}: {text}");
    }
    let checked = desk.says(&["check", "plugins/shapes.wasm", "plugins/speaker.wasm"]);
    assert!(
        checked.contains("plugins/shapes.wasm\tloads,")
            && checked.contains("plugins/speaker.wasm\tloads, 1 tool,"),
        "{checked}"
    );
    // A plain component cannot export `about`; a file beside it has the metadata.
    assert!(checked.contains("(in `shapes.plugin.toml` beside it: `name`,"), "{checked}");
    assert!(checked.contains("(in `speaker.plugin.toml` beside it: `name`,"), "{checked}");
    assert!(!checked.contains("export `about`"), "{checked}");
    let inspected = desk.says(&["inspect", "speaker"]);
    assert!(
        inspected.contains("plugin\tspeaker\nversion\t0.3.0\n") && inspected.contains("Say something."),
        "{inspected}"
    );
    let explained = desk.says(&["explain", "shapes__divide"]);
    for part in ["fs_read\t", "\t[plugins.shapes.grant] fs_read", "explain shapes__divide --limits"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    assert_eq!(desk.says(&["call", "shapes__divide", r#"{"a": 9, "b": 2}"#]), "4\n");
    let said = desk.says(&["call", "speaker__say", &json!({"words": ["--", "it"]}).to_string()]);
    assert_eq!(said.trim_end(), "-- -- it");
}

#[test]
fn check_lists_each_function_that_is_not_a_tool() {
    let desk = PlainComponentFixture::new();
    let function = |name: &str, ty: &str| {
        format!("(func (export \"{name}\") (param \"x\" {ty}) (canon lift (core func $core \"f\")))")
    };
    let dropped: String = (0..25).map(|n| function(&format!("drop{n}"), "$stream")).collect();
    let component = format!(
        "(component (core module $module (func (export \"f\") (param i32)))
            (core instance $core (instantiate $module)) (type $stream (stream u8)) {} {dropped})",
        function("double", "u32")
    );
    std::fs::write(desk.0.path("plugins/many.wasm"), wat::parse_str(component).unwrap()).unwrap();
    let checked = desk.says(&["check", "many"]);
    for n in 0..25 {
        let line = format!(
            "many\twarning\tits function `drop{n}` is not a tool: its parameter `x` is a future or a stream"
        );
        assert_eq!(checked.matches(&line).count(), 1, "{line}: {checked}");
    }
    // A start shows five of the 21 warnings. The last one counts those beyond 20 functions.
    for other in ["shapes.wasm", "speaker.wasm", "speaker.plugin.toml"] {
        std::fs::remove_file(desk.0.path("plugins").join(other)).unwrap();
    }
    let warnings = String::from_utf8(desk.run(&["list"]).stderr).unwrap();
    assert!(warnings.contains("16 more warnings about plugins"), "{warnings}");
}

#[test]
fn an_invalid_manifest_is_reported_with_its_file() {
    let desk = PlainComponentFixture::new();
    std::fs::write(desk.0.path("plugins/speaker.plugin.toml"), "version = 1\n[tools.say]\nrum = {}\n")
        .unwrap();
    let output = desk.run(&["check", "plugins/speaker.wasm"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("plugin.toml") && text.contains("`rum`"), "{text}");
    std::fs::remove_file(desk.0.path("plugins/speaker.plugin.toml")).unwrap();
    let output = desk.run(&["check", "plugins/speaker.wasm"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("it is a program: add a file"), "{text}");
}

#[test]
fn refused_and_ungrantable_capabilities_are_reported() {
    let desk = PlainComponentFixture::new();
    let needs = |needs: &str| {
        let beside = BESIDE.replace("needs = []", &format!("needs = [{needs}]"));
        std::fs::write(desk.0.path("plugins/speaker.plugin.toml"), beside).unwrap();
    };
    needs(r#"{ kind = "fs-read", target = "**", optional = true, reason = "Quotes files." }"#);
    let shown = desk.says(&["inspect", "speaker"]);
    assert!(shown.contains("\tnothing\t"), "{shown}");
    needs(r#"{ kind = "net", target = "api.example.com", optional = true, reason = "Quotes the web." }"#);
    let checked = desk.run(&["check", "speaker"]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(text.contains("\terror\t") && text.contains("https://api.example.com"), "{text}");
}
