//! `toolbay policy check`: typical mistakes, each with its line and column.
//!
//! `tests/policies` has a file for each mistake, and `tests/policies/expected.txt` lists the exact findings.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::fixture::compile_plugins;

/// A copy of the folder of policies, whose token file only this user can read.
struct PolicyCheckFixture(tempfile::TempDir);

impl PolicyCheckFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(cases()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.path().join("tokens.toml"), owner_only).unwrap();
        compile_plugins();
        Self(folder)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn toolbay(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolbay"));
        let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-cache");
        command.args(args).current_dir(self.0.path()).env_remove("TOOLBAY_LOG").env("HOME", self.0.path());
        command.env("TOOLBAY_PLUGINS", guest_artifacts::plugins_dir()).env("TOOLBAY_CACHE", cache);
        command.env("TOOLBAY_STATE", self.0.path().join("state")).env_remove("TOOLBAY_CONFIG");
        command.output().unwrap()
    }

    /// The findings of a policy, each as `file:line:column: severity: message; help`, and the exit code.
    fn check(&self, policy: &str) -> (Vec<String>, i32) {
        let output = self.toolbay(&["policy", "check", policy, "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{policy}: {error}: {}", text(&output.stderr)));
        let findings = report["findings"].as_array().unwrap().iter().map(|found| {
            let file = Path::new(found["file"].as_str().unwrap()).file_name().unwrap().to_str().unwrap();
            let said = |key: &str| found[key].as_str().unwrap_or_default();
            format!(
                "{file}:{}:{}: {}: {} {}",
                found["line"],
                found["column"],
                said("severity"),
                said("message"),
                said("help")
            )
        });
        (findings.collect(), output.status.code().unwrap())
    }
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The findings of each policy. A finding in another file of the policy is written `policy>file`.
fn expected() -> BTreeMap<String, Vec<(String, String)>> {
    let mut all: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for line in std::fs::read_to_string(cases().join("expected.txt")).unwrap().lines() {
        let [place, severity, part] = line.splitn(3, ": ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let file = place.split(':').next().unwrap();
        let (policy, place) = place.split_once('>').unwrap_or((file, place));
        all.entry(policy.to_owned()).or_default().push((format!("{place}: {severity}: "), part.to_owned()));
    }
    all
}

#[test]
fn every_mistake_is_found_with_its_line_and_column() {
    let (folder, expected) = (PolicyCheckFixture::new(), expected());
    assert!(expected.len() >= 40, "{}", expected.len());
    let mut wrong = Vec::new();
    for (policy, expected) in &expected {
        let (found, code) = folder.check(policy);
        let same = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, (place, part))| {
                found.starts_with(place.as_str()) && found.contains(part.as_str())
            });
        if !same || code != 2 {
            wrong.push(format!("{policy}: exit code {code}\n  expected {expected:#?}\n  found {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), expected.len(), wrong.join("\n"));
}

#[test]
fn each_policy_file_has_expected_findings() {
    let expected = expected();
    let files = std::fs::read_dir(cases()).unwrap().map(|entry| entry.unwrap().file_name());
    for file in files.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".toml")) {
        let is_case = expected.contains_key(&file) || ["good.toml", "tokens.toml"].contains(&file.as_str());
        assert!(is_case, "{file} is not in expected.txt");
    }
}

#[test]
fn a_correct_policy_has_no_findings() {
    let folder = PolicyCheckFixture::new();
    assert_eq!(folder.check("good.toml"), (vec![], 0));
    let output = folder.toolbay(&["policy", "check", "good.toml"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("no problems found\n", Some(0)));
    // The policies of the page are correct, apart from folders that do not exist here.
    folder.write("bom.toml", "\u{feff}version = 1\r\n[plugins.files.grant]\r\nfs_raed = []\r\n");
    let (found, _) = folder.check("bom.toml");
    assert!(found.len() == 1 && found[0].starts_with("bom.toml:3:1: error: "), "{found:?}");
}

#[test]
fn a_finding_has_the_form_of_a_compiler_diagnostic() {
    let folder = PolicyCheckFixture::new();
    folder.write("toolbay.toml", "version = 1\n\n[plugins.files.grnt]\n\n[plugins.fils.grant]\nkv = []\n");
    let output = folder.toolbay(&["policy", "check", "toolbay.toml"]);
    let expected = "\
error: unknown key `grnt`
 --> toolbay.toml:3:16
  |
3 | [plugins.files.grnt]
  |                ^^^^ did you mean `grant`?
warning: no plugin `fils` is installed
 --> toolbay.toml:5:10
  |
5 | [plugins.fils.grant]
  |          ^^^^ did you mean `files`?
1 error, 1 warning
";
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(2));
    // Every command prints the same at its start.
    let output = folder.toolbay(&["--config", "toolbay.toml", "list"]);
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error: unknown key `grnt`\n") && said.contains("toolbay.toml:3:16\n"),
        "{said}"
    );
    assert_eq!((output.stdout.len(), output.status.code()), (0, Some(2)));
}

#[test]
fn without_plugins_names_are_not_compared() {
    let folder = PolicyCheckFixture::new();
    folder.write("toolbay.toml", "version = 1\n[plugins.fils.grant]\nkv = [\"all\"]\n");
    let output = folder.toolbay(&["policy", "check", "toolbay.toml", "--plugins", "no-such-folder"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(out.contains("toolbay.toml:3:7") && !out.contains("fils` is installed"), "{out}");
    assert!(err.contains("names of plugins and tools were not compared"), "{err}");
}

#[test]
fn binary_files_and_lines_of_tokens_are_not_shown() {
    let folder = PolicyCheckFixture::new();
    let output = folder.toolbay(&["policy", "check", "tokens-of-no-profile.toml"]);
    let said = text(&output.stdout);
    assert!(said.contains("tokens.toml:4:13") && !said.contains("9f86d081"), "{said}");
    for unreadable in ["not-utf8.toml", "no-such-file.toml", "."] {
        let output = folder.toolbay(&["policy", "check", unreadable]);
        assert_eq!(output.status.code(), Some(2), "{unreadable}");
        assert!(text(&output.stdout).starts_with("error: the file "), "{}", text(&output.stdout));
    }
}

#[test]
fn the_schema_is_printed() {
    let output = PolicyCheckFixture::new().toolbay(&["policy", "schema"]);
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(schema["title"], "Toolbay policy");
    for key in
        ["version", "limits", "plugins", "mcp", "openapi", "programs", "secrets", "serve", "audit", "rule"]
    {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
}

#[test]
fn the_findings_of_a_file_are_bounded() {
    let folder = PolicyCheckFixture::new();
    let many: String = (0..2000).map(|n| format!("[plugins.p{n}.grnt]\n[limits{n}]\n")).collect();
    folder.write("many.toml", format!("version = 1\n{many}"));
    let (found, code) = folder.check("many.toml");
    assert_eq!((found.len(), code), (200, 2));
}
