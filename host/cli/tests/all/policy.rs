//! `toolbay policy check`: typical mistakes, each with its line and column.
//!
//! `tests/policies` has a file for each mistake, and `tests/policies/expected.txt` lists the exact findings.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::fixture::{compile_plugins, toolbay};

/// Files of tokens beside the policies.
const TOKEN_FILES: [&str; 3] = ["tokens.toml", "tokens-wrong.toml", "tokens-of-operators.toml"];

/// A copy of the folder of policies, whose files of tokens only this user can read.
struct PolicyCheckFixture(tempfile::TempDir);

impl PolicyCheckFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(cases()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        for tokens in TOKEN_FILES {
            let owner_only = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(folder.path().join(tokens), owner_only).unwrap();
        }
        compile_plugins();
        Self(folder)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn toolbay(&self, args: &[&str]) -> Output {
        let mut command = toolbay(self.0.path());
        command.args(args).current_dir(self.0.path()).env("HOME", self.0.path());
        command.env("TOOLBAY_PLUGINS", guest_artifacts::plugins_dir());
        command.env("TOOLBAY_STATE", self.0.path().join("state"));
        // The variables of secrets that are no mistake.
        command.envs(["API_KEY", "GITHUB_TOKEN", "T"].map(|name| (name, "0123456789")));
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
    let mut wrong = Vec::new();
    for (policy, expected) in &expected {
        let (found, code) = folder.check(policy);
        let same = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, (place, part))| {
                found.starts_with(place.as_str()) && found.contains(part.as_str())
            });
        // A warning alone refuses nothing.
        let has_error = expected.iter().any(|(place, _)| place.ends_with(": error: "));
        if !same || code != if has_error { 2 } else { 0 } {
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
        let is_case =
            expected.contains_key(&file) || file == "good.toml" || TOKEN_FILES.contains(&file.as_str());
        assert!(is_case, "{file} is not in expected.txt");
    }
}

#[test]
fn a_correct_policy_has_no_findings() {
    let folder = PolicyCheckFixture::new();
    assert_eq!(folder.check("good.toml"), (vec![], 0));
    let output = folder.toolbay(&["policy", "check", "good.toml", "--strict"]);
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

#[test]
fn a_warning_fails_only_if_it_is_asked_to() {
    let folder = PolicyCheckFixture::new();
    for (args, code) in [
        (&["policy", "check", "plugin-unknown.toml"][..], 0),
        (&["policy", "check", "plugin-unknown.toml", "--strict"], 2),
    ] {
        let output = folder.toolbay(args);
        assert!(text(&output.stdout).contains("warning: no plugin `fils` is installed"), "{output:?}");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
}

/// One component that does not load, one server that was never asked and one document that is missing hide nothing.
#[test]
fn what_cannot_be_read_hides_no_mistake() {
    let folder = PolicyCheckFixture::new();
    let plugins = folder.0.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::copy(guest_artifacts::PLUGIN_FILES, plugins.join("files.wasm")).unwrap();
    std::fs::write(plugins.join("broken.wasm"), "junk").unwrap();
    let policy = "version = 1\n[mcp.gh]\ncommand = [\"/bin/sh\"]\n[openapi.pets]\ndocument = \"none.json\"\n\
                  [[rule]]\ntag = \"netwrok\"\naction = \"ask\"\n[[rule]]\ntool = \"files__raed\"\naction = \"ask\"\n\
                  [[rule]]\ntool = \"broken__x\"\naction = \"ask\"\n[profile.a]\ntoolsets = [\"none\"]\n";
    folder.write("all.toml", policy);
    let output = folder.toolbay(&["policy", "check", "all.toml", "--plugins", "plugins", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines: Vec<u64> =
        report["findings"].as_array().unwrap().iter().map(|found| found["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [5, 7, 10, 16], "{report}");
    let unknown = report["not_compared"].as_str().unwrap();
    assert!(unknown.contains("plugin:broken") && unknown.contains("broken.wasm"), "{unknown}");
}

#[test]
fn a_token_for_the_endpoint_without_a_profile_is_correct() {
    let folder = PolicyCheckFixture::new();
    let tokens = std::fs::read_to_string(cases().join("tokens.toml")).unwrap().replace("raeder", "*");
    folder.write("tokens.toml", tokens);
    assert_eq!(folder.check("tokens-of-no-profile.toml"), (vec![], 0));
}
