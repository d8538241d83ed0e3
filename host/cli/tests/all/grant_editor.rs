//! `toolbay grant` with `edit`: the lines that will be added, in the operator's editor.

use std::process::Command;

use crate::fixture::HostFolder;
use crate::pty;

const POLICY: &str = "workspace = \"work\" # mine\n";

/// A folder with the plugin `files` and an editor that replaces the text with the next of `texts` each time.
struct EditorFixture {
    folder: HostFolder,
    editor: String,
}

impl EditorFixture {
    fn new(texts: &[&str]) -> Self {
        let folder = HostFolder::new(POLICY).with_plugin("files", guest_artifacts::PLUGIN_FILES);
        for (number, text) in texts.iter().enumerate() {
            std::fs::write(folder.path(&format!("edit-{number}")), text).unwrap();
        }
        let script = "cd \"$HOME\"; number=$(ls seen-* 2>/dev/null | wc -l)\n\
                      stat -c '%a %n' \"$2\" >> modes; cp \"$2\" \"seen-$number\"; cat \"edit-$number\" > \"$2\"";
        let program = folder.write_program("editor", script);
        Self { editor: format!("{} --wait", program.display()), folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.folder.command(args);
        command.env_remove("VISUAL").env("EDITOR", &self.editor).env("NO_COLOR", "1");
        command.env("TMPDIR", self.folder.path(""));
        command
    }

    fn grant(&self, answers: &[&str]) -> (i32, String) {
        pty::run(self.command(&["grant", "files"]), 100, answers)
    }

    fn policy(&self) -> String {
        self.folder.read("toolbay.toml")
    }

    fn is_unchanged(&self) -> bool {
        self.policy() == format!("version = 1\n{POLICY}") && !self.folder.path("state/consents.json").exists()
    }
}

#[test]
fn edited_lines_are_shown_again_and_written_after_yes() {
    let fixture = EditorFixture::new(&["# less\n[plugins.files.grant]\nfs_read = [\"$workspace/notes\"]\n"]);
    let (code, shown) = fixture.grant(&["edit\n", "y\n"]);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(shown.matches("asks for:").count(), 1, "{shown}");
    let (before, after) = shown.split_once("[y/N/edit] edit").unwrap();
    assert!(before.contains("fs_write = [\"$workspace\"]"), "{before}");
    assert!(after.contains("fs_read = [\"$workspace/notes\"]") && !after.contains("fs_write"), "{after}");
    let seen = fixture.folder.read("seen-0");
    assert_eq!(seen, "[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n");
    let policy = fixture.policy();
    let added = "\n[plugins.files.grant]\nfs_read = [\"$workspace/notes\"]\n";
    assert_eq!(policy, format!("version = 1\n{POLICY}{added}"));
    // The file was readable by this user only, and is gone.
    let modes = fixture.folder.read("modes");
    let (mode, file) = modes.trim().split_once(' ').unwrap();
    assert!(mode == "600" && !std::path::Path::new(file).exists(), "{modes}");
}

#[test]
fn a_broken_edit_is_a_diagnostic_and_opens_again() {
    let broken = "[plugins.files.grant]\nfs_read = [\"notes\"]\n";
    let typo = "[plugins.files.grnt]\nfs_read = [\"$workspace\"]\n";
    let fixture =
        EditorFixture::new(&[broken, typo, "[plugins.files", "[plugins.files.grant]\nfs_read = []\n"]);
    let (code, shown) = fixture.grant(&["edit\n", "edit\n", "e\n", "n\n"]);
    assert_eq!(code, 1, "{shown}");
    for part in [
        "--> edited lines:2:",
        "fs_read = [\"notes\"]",
        "--> edited lines:1:16",
        "did you mean `grant`?",
        "^",
    ] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    assert!(shown.contains("nothing was changed") && fixture.is_unchanged(), "{shown}");
    assert_eq!((fixture.folder.read("seen-1"), fixture.folder.read("seen-2")), (broken.into(), typo.into()));
}

#[test]
fn an_edit_cannot_add_lines_for_anything_else() {
    for (text, part) in [
        ("[plugins.other.grant]\nnet = [\"https://a.example\"]\n", "`other` is not a grant of `files`"),
        ("[limits]\nfuel = 5\n", "`limits` is not a grant of `files`"),
        ("[plugins.files]\nconfig = { a = 1 }\n", "`config` is not a grant of `files`"),
        ("[plugins.files.tools.read_file]\npriority = 5\n", "error: "),
        ("[plugins.files.grant]\nreduce = [\"*\"]\n", "error: "),
    ] {
        let fixture = EditorFixture::new(&[text]);
        let (code, shown) = fixture.grant(&["edit\n", "n\n"]);
        assert!(code == 1 && shown.contains(part) && shown.contains("--> edited lines:"), "{text}: {shown}");
        assert!(fixture.is_unchanged(), "{text}");
    }
}

#[test]
fn without_yes_an_edit_changes_nothing() {
    let lines = "[plugins.files.grant]\nfs_read = [\"$workspace\"]\n";
    for (answers, editor) in [
        (["edit\n", "\n"], None),
        (["edit\n", "n\n"], Some("false")),
        (["e\n", "no\n"], Some("no-such-editor")),
    ] {
        let mut fixture = EditorFixture::new(&[lines]);
        if let Some(editor) = editor {
            fixture.editor = editor.to_owned();
        }
        let (code, shown) = fixture.grant(&answers);
        assert!(code == 1 && fixture.is_unchanged(), "{editor:?}: {shown}");
        assert_eq!(editor.is_some(), shown.contains("error: the editor"), "{shown}");
    }
}

#[test]
fn nothing_is_left_to_grant_after_all_lines_are_removed() {
    let fixture = EditorFixture::new(&["# none\n"]);
    let (code, shown) = fixture.grant(&["edit\n"]);
    assert!(code == 0 && shown.contains("there is nothing to grant"), "{shown}");
    assert!(fixture.is_unchanged(), "{shown}");
}
