//! The project's own tasks: `cargo xtask` lists them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod bench;
mod book;
mod browser;
mod check;
mod clients;
mod conformance;
mod counts;
mod demo;
mod deny;
mod dist;
mod foreign;
mod hostile;
mod languages;
mod metrics;
mod packages;
mod parity;
mod peers;
mod plugins;
mod registries;
mod replicas;
mod search;
mod sentences;
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
    test [--keep-going]  runs everything that must pass before a change lands; stops at the first failure
    check [--since REV]  formats, lints and tests what changed: the loop while you edit
    tidy                 checks what the compiler does not: import cycles, dependencies of crates, file sizes, banned words
    deny                 checks licences, bans and duplicate versions of the dependencies against `deny.toml`
    plugins              builds the first-party plugins into `target/plugins`
    languages            builds plugins in JavaScript, TypeScript, Python and C, and runs the contract suite against all
    tutorials [PAGE…]    types the commands of the tutorial pages in an empty home and compares the output
    guests [FOLDER]      builds test guests and plugins into FOLDER, for `TOOLBAY_GUESTS`
    fuzz [--seconds N] [--seed N] [TARGET | FILE]
                         feeds parsers of untrusted bytes with nearly valid input, 60 s a target
    search               searches the tools of public OpenAPI documents, and compares the hits with `pairs.json`
    clients              lists and calls tools with third-party MCP clients, over stdio and HTTP
    registries           publishes and installs plugins with a real registry and the clients of others
    replicas             runs replicas that share their state in a NATS server
    metrics              lets Prometheus scrape a server, and checks the metrics, alerts and dashboard
    browser [--write]    uses the page of operators in Chromium and checks its accessibility; `--write` replaces the
                         screenshots of the documentation
    packages [--verify]  makes the packages of the published crates; `--verify` builds each from its package alone
    dist                 builds the files of a release into `target/dist/release`
    dist check [--release]
                         builds them quickly or as they are shipped, installs the Debian package in an empty root, and
                         runs the program for aarch64 in an emulator
    conformance          runs the official conformance suite of MCP against a fixture server
    bench [--quick] [--plots] [--json FILE] [--against FILE] [NAME…]
                         measures. `--quick` gives the headline figures in less than five minutes, `--plots` draws
                         the curves into `docs/explanation/performance`, `--against` shows the ratios of an
                         earlier run beside, if the machine was quiet in both
    counts [--write]     counts the instructions and allocations of a call and compares them with `counts.json`
    peers [--quick] [NAME…]
                         installs comparable programs, measures them beside this project, and writes the tables
                         into `docs/explanation/performance.md`; with `--quick` or names it only prints them
    sentences SEED       draws fifty sentences at random from comments, messages and docs, for a review
    wit-reference        writes `docs/reference/wit.md` from the contract
    conformance client   runs the client scenarios of the MCP conformance suite against the bridge
    book                 builds `docs` into `target/book` and checks every link
    demo                 builds the host and the plugins and runs them on a sample workspace
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
            // Without `--package`: alone it would be built with different features, which takes minutes.
            let run = ["run", "--quiet", "--bin", "fuzzer", "--"];
            test::cargo(&workspace, &[&run[..], rest].concat())
        }
        ["counts"] => counts::run(&workspace, false),
        ["counts", "--write"] => counts::run(&workspace, true),
        ["languages"] => languages::run(&workspace),
        ["tutorials", pages @ ..] => tutorials::run(&workspace, pages),
        ["search"] => search::run(&workspace),
        ["clients"] => clients::run(&workspace),
        ["metrics"] => metrics::run(&workspace),
        ["replicas"] => replicas::run(&workspace),
        ["browser"] => browser::run(&workspace, false),
        ["browser", "--write"] => browser::run(&workspace, true),
        ["dist"] => dist::run(&workspace),
        ["dist", "check"] => dist::check(&workspace, dist::Profile::Test),
        ["dist", "check", "--release"] => dist::check(&workspace, dist::Profile::Release),
        ["packages"] => packages::run(&workspace, packages::Check::Files),
        ["packages", "--verify"] => packages::run(&workspace, packages::Check::Build),
        ["registries"] => registries::run(&workspace),
        ["conformance"] => conformance::run(&workspace),
        ["wit-reference"] => wit_reference::run(&workspace),
        ["conformance", "client"] => conformance::run_client(&workspace),
        ["bench", rest @ ..] => bench::run(&workspace, rest),
        ["peers", rest @ ..] => peers::run(&workspace, rest),
        ["sentences", seed] => sentences::run(&workspace, seed),
        ["book"] => book::run(&workspace),
        ["demo"] => demo::run(&workspace),
        _ => bail!("no task `{}`\n\n{HELP}", args.join(" ")),
    }
}
