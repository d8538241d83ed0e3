//! The project's own tasks: `cargo xtask help` lists them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod agents;
mod arrive;
mod bench;
mod book;
mod browser;
mod cargo;
mod check;
mod clients;
mod conformance;
mod counts;
mod demo;
mod dist;
mod documents;
mod downloads;
mod features;
mod folder;
mod foreign;
mod languages;
mod macos;
mod metrics;
mod node;
mod packages;
mod peers;
mod plugins;
mod programs;
mod python;
mod registries;
mod rustdoc;
mod servers;
mod steps;
mod suites;
mod tests;
mod tidy;
mod tools;
mod tutorials;
mod vendors;
mod zig;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The tasks of this project.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Builds the program and four plugins, and runs them on a sample workspace.
    Demo,
    /// Formats, lints and tests what changed, with the unit tests of all packages that depend on it. The loop while you edit.
    Check {
        /// The commit to compare with.
        #[arg(long, default_value = "HEAD")]
        since: String,
    },
    /// Runs everything that must pass before a change lands.
    Test {
        /// Starts no more steps after the first failure.
        #[arg(long)]
        fail_fast: bool,
        /// Runs only these steps, and those that they need. `list` shows all.
        steps: Vec<String>,
    },
    /// Runs what must pass before a release.
    ReleaseTest {
        /// Runs only these steps, and those that they need. `list` shows all.
        steps: Vec<String>,
    },
    /// Runs one step in this process, which is ended when its stdin is closed.
    #[command(hide = true)]
    Step { name: String },
    /// Checks that no file names a path of this machine.
    Tidy,
    /// Builds the first-party plugins into `target/plugins`.
    Plugins,
    /// Builds test guests and plugins into a folder, for `TOOLBAY_GUESTS`.
    Guests {
        #[arg(default_value = "target/wasm")]
        folder: PathBuf,
    },
    /// Installs the servers that tests run into `target/servers`.
    Servers,
    /// Imports forty public OpenAPI documents, and counts the operations that become tools. Downloads 900 MB.
    #[command(hide = true)]
    Documents {
        /// Prints each operation that does not become a tool.
        #[arg(long)]
        lines: bool,
    },
    /// Feeds parsers of untrusted bytes with nearly valid input.
    Fuzz {
        /// `[--seconds N] [--seed N] [TARGET | FILE]`; 60 seconds a target.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Uses the page of operators in Chromium, and replaces the screenshots of the documentation.
    Screenshots,
    /// Counts the instructions and allocations of a call, and compares them with `tests/data/counts.json`.
    Counts {
        /// Records the counts.
        #[arg(long)]
        write: bool,
    },
    /// Builds `docs` into `target/book`.
    Book,
    /// Builds the files of a release into `target/dist/release`.
    Dist {
        /// Where the publisher puts the files: `install.sh` and the formula of Homebrew download from there.
        #[arg(long, default_value = dist::EXAMPLE_URL)]
        url: String,
        #[command(subcommand)]
        check: Option<DistTask>,
    },
    /// Measures what a new user waits for, and prints each figure beside its limit.
    Arrive(arrive::ArriveArgs),
    /// Makes the packages of the published crates.
    Packages {
        /// Builds each from its package alone.
        #[arg(long)]
        verify: bool,
    },
    /// Measures, and reports ratios.
    Bench(bench::BenchArgs),
    /// Installs comparable programs, measures them beside this project, and writes the tables into the documentation.
    Peers {
        /// Only prints the tables.
        #[arg(long)]
        quick: bool,
        /// Measures only these, and prints the tables.
        names: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum DistTask {
    /// Uses the files: installs the packages, and runs those for musl and for aarch64, the latter in an emulator.
    Check {
        /// Builds them as they are shipped, which takes one to two hours.
        #[arg(long)]
        release: bool,
    },
}

fn main() -> ExitCode {
    if let Some(run) = rustdoc::in_place() {
        return match run {
            Ok(status) if status.success() => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => failure(&error),
        };
    }
    match run(Args::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

fn run(task: Task) -> Result<()> {
    let workspace = &wasm::workspace()?;
    match task {
        Task::Demo => demo::run(workspace),
        Task::Check { since } => check::run(workspace, &since),
        Task::Test { steps, fail_fast } => run_suite(workspace, suites::TEST, &steps, fail_fast),
        Task::ReleaseTest { steps } => run_suite(workspace, suites::RELEASE_TEST, &steps, false),
        Task::Step { name } => steps::run_here(workspace, &[suites::TEST, suites::RELEASE_TEST], &name),
        Task::Tidy => tidy::run(workspace),
        Task::Plugins => plugins::run(workspace),
        Task::Guests { folder } => plugins::guests(workspace, &std::env::current_dir()?.join(folder)),
        Task::Servers => servers::install(workspace),
        Task::Documents { lines } => documents::run(workspace, lines),
        Task::Fuzz { args } => tests::fuzz(workspace, &args),
        Task::Screenshots => {
            cargo::build_host(workspace)?;
            plugins::run(workspace)?;
            browser::run(workspace, true)
        }
        Task::Counts { write } => counts::run(workspace, write),
        Task::Book => book::run(workspace),
        Task::Dist { url, check: None } => dist::run(workspace, &url),
        Task::Dist { check: Some(DistTask::Check { release }), .. } => {
            dist::check(workspace, if release { dist::Profile::Release } else { dist::Profile::Test })
        }
        Task::Arrive(args) => arrive::run(workspace, &args),
        Task::Packages { verify: false } => packages::run(workspace, packages::Check::Files),
        Task::Packages { verify: true } => packages::run(workspace, packages::Check::Build),
        Task::Bench(args) => bench::run(workspace, &args),
        Task::Peers { quick, names } => peers::run(workspace, quick, &names),
    }
}

/// Runs a suite, or lists its steps.
fn run_suite(
    workspace: &Path,
    suite: &'static [steps::Step],
    names: &[String],
    fail_fast: bool,
) -> Result<()> {
    if names == ["list"] {
        suite.iter().for_each(|step| println!("{}", step.name));
        return Ok(());
    }
    steps::run(workspace, suite, names, fail_fast)
}
