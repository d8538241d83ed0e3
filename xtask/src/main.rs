//! The project's own tasks: `cargo xtask` lists them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod bench;
mod book;
mod check;
mod clients;
mod conformance;
mod counts;
mod demo;
mod deny;
mod foreign;
mod hostile;
mod languages;
mod parity;
mod peers;
mod plugins;
mod test;
mod tidy;
mod tutorials;
mod wit_reference;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use xtask::wasm;

const HELP: &str = "\
The tasks of this project.

    cargo xtask TASK

TASK is one of
    test [--keep-going]  all that must pass before a change is taken; stops at the first failure
    check [--since REV]  formats, lints and tests what changed: the loop while you edit
    tidy                 what the compiler does not check: import cycles, crates without I/O, file sizes
    deny                 licences, bans and duplicate versions of the dependencies, by `deny.toml`
    plugins              builds the first-party plugins into the folder `plugins` of the target directory
    languages            plugins in JavaScript, Python and C: builds them, and runs the contract suite against all
    tutorials [PAGE…]    types what the tutorial pages show, exactly as printed, in an empty home
    guests [FOLDER]      builds test guests and plugins into FOLDER, for `TOOLBAY_GUESTS`
    fuzz [--seconds N] [--seed N] [TARGET | FILE]
                         feeds what reads bytes of others with bytes that are nearly right, 60 s a target
    clients              lists and calls tools with the clients of others, over stdio and HTTP
    conformance          runs the official conformance suite of MCP against a fixture server
    bench [--quick] [--plots] [--json FILE] [--against FILE] [NAME…]
                         measures; quick: the headline figures, in less than five minutes; plots: draws the
                         curves into `docs/performance`; against: the ratios of an earlier run beside, if
                         both were on a quiet machine
    counts [--write]     counts the instructions and allocations of a call, and compares them with those that are kept
    peers [--quick] [NAME…]
                         installs what people use instead, measures it beside this project, and writes the
                         tables into `docs/explanation/performance.md`; quick or by name: the tables are printed only
    wit-reference        writes `docs/reference/wit.md` out of the contract
    conformance client   runs the client scenarios of the MCP conformance suite against the bridge
    book                 builds `docs` into `target/book` and checks every link
    demo                 builds the host and the plugins, and shows what they do
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    let workspace = wasm::workspace()?;
    match args {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["test"] => test::run(&workspace, false),
        ["test", "--keep-going"] => test::run(&workspace, true),
        ["check"] => check::run(&workspace, "HEAD"),
        ["check", "--since", revision] => check::run(&workspace, revision),
        ["tidy"] => tidy::run(&workspace),
        ["deny"] => deny::run(&workspace),
        ["plugins"] => plugins::run(&workspace),
        ["guests"] => plugins::guests(&workspace, &wasm::target_dir(&workspace).join("wasm")),
        ["guests", folder] => {
            plugins::guests(&workspace, &std::env::current_dir()?.join(PathBuf::from(folder)))
        }
        ["fuzz", rest @ ..] => {
            // Not by its package: alone it would be built with other features than everything else, and for minutes.
            let run = ["run", "--quiet", "--bin", "fuzzer", "--"];
            test::cargo(&workspace, &[&run[..], rest].concat())
        }
        ["counts"] => counts::run(&workspace, false),
        ["counts", "--write"] => counts::run(&workspace, true),
        ["languages"] => languages::run(&workspace),
        ["tutorials", pages @ ..] => tutorials::run(&workspace, pages),
        ["clients"] => clients::run(&workspace),
        ["conformance"] => conformance::run(&workspace),
        ["wit-reference"] => wit_reference::run(&workspace),
        ["conformance", "client"] => conformance::run_client(&workspace),
        ["bench", rest @ ..] => bench::run(&workspace, rest),
        ["peers", rest @ ..] => peers::run(&workspace, rest),
        ["book"] => book::run(&workspace),
        ["demo"] => demo::run(&workspace),
        _ => bail!("no task `{}`\n\n{HELP}", args.join(" ")),
    }
}
