//! The contract suite: one plugin in five languages, and cases with the same result in each.
//!
//! `cargo xtask test languages` builds the plugins and runs this program with their folder. Each `.toml` file here has a policy
//! and cases under it, except `table.toml`: it says which features the cases show. Each case must give its expected result,
//! and all languages must give the same definitions, results, error texts and progress as Rust. Afterwards the program
//! measures calls, each in a fresh instance.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test, which clippy does not see"
)]

mod cases;
mod guest_log;
mod measure;
mod outcome;
mod samples;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use integration_tests::TestHost;

use cases::CaseFile;

/// The id of the plugin in every language, so that texts with the id are equal.
const ID: &str = "contract";

/// A built plugin.
struct BuiltPlugin {
    name: &'static str,
    component: PathBuf,
    /// The limit for a call, as a multiple of the time in Rust.
    goal: f64,
    /// The component with the same functions that was compiled before.
    base: Option<PathBuf>,
}

impl BuiltPlugin {
    /// A host without plugins that compiles this one.
    fn host(&self, policy: &str) -> TestHost {
        TestHost::empty_with(policy, |builder| match &self.base {
            Some(base) => builder.compile_base(base),
            None => builder,
        })
    }
}

/// The interpreter of development builds in Python, which is in all plugins in Python.
fn interpreter(folder: &Path) -> PathBuf {
    folder.join("greets-python/python/interpreter.wasm")
}

fn languages(folder: &Path) -> Vec<BuiltPlugin> {
    let language = |name, goal, component: PathBuf| BuiltPlugin { name, component, goal, base: None };
    let built = |file: &str| folder.join(file).with_extension("wasm");
    vec![
        language("Rust", 1.0, PathBuf::from(guest_artifacts::API_CONTRACT)),
        language("C", 1.0, built("contract_c")),
        language("JavaScript", 6.0, built("contract_js")),
        language("TypeScript", 6.0, built("contract_ts")),
        BuiltPlugin { base: Some(interpreter(folder)), ..language("Python", 60.0, built("contract_python")) },
    ]
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder =
        std::env::args_os().nth(1).map(PathBuf::from).context("name the folder with the components")?;
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("contract");
    let suites = cases::suites(&cases)?;
    let mut table = table::Table::read(&cases)?;
    guest_log::start();
    let languages = languages(&folder);
    load_all(&languages).await?;
    for suite in &suites {
        let mut expected = None;
        for language in &languages {
            let host = host(suite, language).await?;
            let seen = suite.run(&host).await;
            let rust = expected.get_or_insert_with(|| seen.clone());
            for comparison in suite.compare(&seen, rust) {
                table.count(language.name, &comparison)?;
                if let Some(problem) = comparison.problem {
                    println!("{}, {}: {}: {problem}", language.name, suite.name, comparison.name);
                }
            }
        }
    }
    samples::run(&folder).await?;
    measure::run(&languages).await?;
    table.print();
    table.check(languages.len())
}

/// Loads each plugin once, which compiles it, and prints how long that took.
async fn load_all(languages: &[BuiltPlugin]) -> Result<()> {
    for language in languages {
        let file = &language.component;
        let bytes = std::fs::metadata(file).with_context(|| format!("`{}`", file.display()))?.len();
        let start = Instant::now();
        language.host("").load(ID, &file.to_string_lossy()).await;
        println!(
            "{:<12}{:>8} KiB, loaded in {:.2} s",
            language.name,
            bytes / 1024,
            start.elapsed().as_secs_f32()
        );
    }
    Ok(())
}

async fn host(suite: &CaseFile, language: &BuiltPlugin) -> Result<TestHost> {
    let host = language.host(&suite.policy);
    for (path, text) in &suite.files {
        let path = host.root().join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)?;
    }
    host.load(ID, &language.component.to_string_lossy()).await;
    if host.host.plugin(ID).is_none() {
        bail!("{} was not loaded", language.name);
    }
    Ok(host)
}
