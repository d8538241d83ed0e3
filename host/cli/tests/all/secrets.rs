//! Secrets stay out of stdout, the log and the audit, whatever a plugin tries.

use std::path::Path;
use std::process::Stdio;

use crate::fixture::toolbay;

const CANARY: &str = "canary-7f31-of-the-environment";

#[test]
fn no_value_is_in_the_output_the_log_or_the_audit() {
    let dir = tempfile::tempdir().unwrap();
    let plugins = dir.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::copy(guest_artifacts::CAP_SECRETS, plugins.join("s.wasm")).unwrap();
    let policy = "version = 1\n[secrets.shown]\nfrom = \"env:TB_CANARY\"\nreveal = true\n\
                  [plugins.s.grant]\nsecrets = [\"shown\"]\n";
    std::fs::write(dir.path().join("toolbay.toml"), policy).unwrap();
    let audit = dir.path().join("audit.jsonl");
    for (tool, args) in [
        ("s__leak", "{}"),
        ("s__leak_blocks", "{}"),
        ("s__panic", "{}"),
        ("s__panic", r#"{"exit": true}"#),
        ("s__fail", "{}"),
        ("s__shape", "{}"),
    ] {
        let run = toolbay(dir.path())
            .args(["call", tool, args, "--log", "trace,cranelift=off,wasmtime=off,regalloc2=off", "--audit"])
            .arg(&audit)
            .env("TOOLBAY_PLUGINS", &plugins)
            .env("TOOLBAY_CONFIG", dir.path().join("toolbay.toml"))
            .env("TOOLBAY_STATE", dir.path().join("state"))
            .env("TB_CANARY", CANARY)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
        // The start of the value, of its hexadecimal digits, and of its base64 form in each alignment.
        for form in ["canary-7", "63616e6172", "Y2FuYXJ5LTd", "NhbmFyeS03", "jYW5hcnktN"] {
            assert!(!said.to_lowercase().contains(&form.to_lowercase()), "{tool} {args} has {form}: {said}");
        }
        assert!(said.contains("[secret shown]") || tool == "s__shape", "{tool} {args}: {said}");
    }
    let audit = std::fs::read_to_string(audit).unwrap();
    assert!(audit.lines().count() >= 6 && !audit.contains("canary"), "{audit}");
}

#[test]
fn a_component_that_imports_what_it_does_not_declare_fails_the_check() {
    let run = |guest: &str| {
        let mut command = toolbay(Path::new("/nonexistent"));
        command.args(["check", guest]).env("HOME", "/nonexistent");
        let run = command.stdin(Stdio::null()).output().unwrap();
        (run.status.success(), String::from_utf8_lossy(&run.stdout).into_owned())
    };
    let (good, said) = run(guest_artifacts::CAP_KV);
    assert!(good && !said.contains("error\t"), "{said}");
    let (good, said) = run(guest_artifacts::HOSTILE_UNDECLARED);
    assert!(!good && said.contains("error\tit imports `toolbay:plugin/secrets@0.1.0`"), "{said}");
    assert!(said.contains("`wasi:clocks/wall-clock@") && said.contains("stands still"), "{said}");
    assert!(said.contains("`wasi:random/random@") && said.contains("do not make keys"), "{said}");
}
