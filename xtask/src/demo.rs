//! `demo`: runs the built host and plugins on a small workspace. Every step is checked: an unexpected exit code or
//! output fails the demo.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cargo;
use crate::folder::emptied;

const POLICY: &str = r#"# What the demo's operator allows. What is not granted here is denied.
version = 1
workspace = "workspace"

[plugins.files.grant]
fs_read = ["$workspace"]
fs_write = ["$workspace/out"]

[plugins.reducers.grant]
reduce = ["files__read_file"]

[plugins.hash.grant]
fs_read = ["$workspace"]

[plugins.hash.tools.hash_file.limits]
fuel = 20_000_000
"#;

/// The plugins that the steps use, and their folder below the target folder.
const PLUGINS: [&str; 4] = ["files", "hash", "reducers", "text"];
const PLUGINS_FOLDER: &str = "demo-plugins";

/// Tool calls of one turn, for `batch`.
const BATCH: &str = r#"[
  {"tool": "text__word_count", "args": {"text": "to be or not to be"}},
  {"tool": "hash__hash_text", "args": {"text": "to be or not to be"}},
  {"tool": "text__no_such_tool", "args": {}},
  {"tool": "files__read_file", "args": {"path": "plan.md"}}
]
"#;

/// One command and its expected outcome.
struct DemoStep {
    title: &'static str,
    args: &'static [&'static str],
    /// The exit code. 1 means that a tool refused or was stopped.
    exit: i32,
    /// Texts that its output must contain.
    expect: &'static [&'static str],
}

const STEPS: &[DemoStep] = &[
    DemoStep {
        title: "List the tools",
        args: &["list"],
        exit: 0,
        expect: &["text__word_count", "files__read_file", "hash__hash_file"],
    },
    DemoStep {
        title: "Call a tool that only computes",
        args: &["call", "text__word_count", r#"{"text":"a b a"}"#],
        exit: 0,
        expect: &["3"],
    },
    DemoStep {
        title: "Read a file of the workspace",
        args: &["call", "files__read_file", r#"{"path":"plan.md"}"#],
        exit: 0,
        expect: &["Write the report"],
    },
    DemoStep {
        title: "Write a file where the policy grants it",
        args: &["call", "files__write_file", r#"{"path":"out/report.txt","content":"Done.\n"}"#],
        exit: 0,
        expect: &["out/report.txt"],
    },
    DemoStep {
        title: "Pass arguments that the schema refuses: no guest runs",
        args: &["call", "text__word_count", r#"{"txt":"a b a"}"#],
        exit: 1,
        expect: &["txt"],
    },
    DemoStep {
        title: "Read a file outside of the workspace: denied",
        args: &["call", "files__read_file", r#"{"path":"../outside.txt"}"#],
        exit: 1,
        expect: &["grant"],
    },
    DemoStep {
        title: "Write where only reading is granted: denied",
        args: &["call", "files__write_file", r#"{"path":"plan.md","content":"Do nothing.\n"}"#],
        exit: 1,
        expect: &["grant"],
    },
    DemoStep {
        title: "Do a little work within the fuel limit",
        args: &["call", "hash__hash_file", r#"{"path":"plan.md"}"#],
        exit: 0,
        expect: &["22d48eeb5cd250d88aabbe19e37b6abcc9de8cff2a9039fee25649f2f73ecf76"],
    },
    DemoStep {
        title: "Run out of fuel: the error names the setting that raises the limit",
        args: &["call", "hash__hash_file", r#"{"path":"large.bin"}"#],
        exit: 1,
        expect: &["fuel"],
    },
    DemoStep {
        title: "Run a batch of four calls with one failure",
        args: &["batch", "batch.json"],
        exit: 1,
        expect: &["6", "no_such_tool", "Write the report"],
    },
];

/// Builds everything and runs the steps.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    build(workspace)?;
    let folder = wasm::target_dir(workspace).join("demo");
    lay_out(&folder)?;
    for step in STEPS {
        show(workspace, &folder, step)?;
    }
    let plan = fs::read_to_string(folder.join("workspace/plan.md"))?;
    if !plan.contains("Write the report") {
        bail!("the demo's `plan.md` was overwritten without a grant");
    }
    if !folder.join("workspace/out/report.txt").is_file() {
        bail!("the demo's `out/report.txt` was not written");
    }
    println!("\n{} steps, all as expected", STEPS.len());
    Ok(())
}

/// Builds the program, and beside it the plugins, whose dependencies are others.
fn build(workspace: &Path) -> Result<()> {
    wasm::ensure_target()?;
    let target = wasm::target_dir(workspace);
    std::thread::scope(|scope| {
        let plugins = scope.spawn(|| {
            let built = wasm::plugins_named(workspace, &PLUGINS)?;
            wasm::place(&built, &target.join(PLUGINS_FOLDER))
        });
        let host = cargo::build_host(workspace);
        let plugins = plugins.join().map_err(|_panic| anyhow::anyhow!("building the plugins panicked"))?;
        host.and(plugins)
    })
}

fn lay_out(folder: &Path) -> Result<()> {
    emptied(folder)?;
    fs::create_dir_all(folder.join("workspace/out"))?;
    let large = vec![b'x'; 8 << 20];
    let files: [(&str, &[u8]); 5] = [
        ("toolbay.toml", POLICY.as_bytes()),
        ("batch.json", BATCH.as_bytes()),
        ("outside.txt", b"Nobody granted this.\n"),
        ("workspace/plan.md", b"# Plan\n\n- Read the notes\n- Write the report\n"),
        ("workspace/large.bin", &large),
    ];
    for (name, content) in files {
        fs::write(folder.join(name), content).with_context(|| format!("cannot write the demo's `{name}`"))?;
    }
    Ok(())
}

fn show(workspace: &Path, folder: &Path, step: &DemoStep) -> Result<()> {
    println!("\n# {}", step.title);
    println!("$ toolbay {}", step.args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" "));
    let output = Command::new(cargo::host(workspace))
        .args(step.args)
        .args(["--plugins", "../demo-plugins", "--config", "toolbay.toml", "--cache-dir", "../cache"])
        .args(["--state-dir", "../state"])
        .current_dir(folder)
        .output()
        .context("cannot run the built `toolbay`")?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{out}{err}");
    if output.status.code() != Some(step.exit) {
        bail!("`{}` ended with {} instead of {}", step.title, output.status, step.exit);
    }
    for expected in step.expect {
        if !out.contains(expected) && !err.contains(expected) {
            bail!("`{}` did not print `{expected}`", step.title);
        }
    }
    Ok(())
}

fn quoted(arg: &str) -> String {
    if arg.contains(['{', ' ', '"']) { format!("'{arg}'") } else { arg.to_owned() }
}
