//! The script of the npm package that starts the program: what it passes on, and what it says if there is no program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal};

use super::bare_machine::BareMachine;
use super::stdio_server::StdioServer;

/// Makes Node one that is older than `process.execve`.
const OLDER_NODE: &str = "delete process.execve\n";

/// Checks the script of the packages in a folder.
pub(super) fn check(machine: &BareMachine, prefix: &Path) -> Result<()> {
    let older = prefix.join("older.cjs");
    std::fs::write(&older, OLDER_NODE)?;
    let script = || machine.command(prefix.join("node_modules/.bin/toolbay"));
    let on_older_node = || {
        let mut command = script();
        command.env("NODE_OPTIONS", format!("--require={}", older.display()));
        command
    };
    check_status(machine, &mut script())?;
    check_status(machine, &mut on_older_node())?;
    check_end(machine, &mut script(), Launch::Replaced)?;
    check_end(machine, &mut on_older_node(), Launch::Child)?;
    check_missing(machine, prefix)
}

/// How the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launch {
    /// In the process of the script.
    Replaced,
    /// In a child of the script.
    Child,
}

/// Output and exit status are those of the program.
fn check_status(machine: &BareMachine, command: &mut Command) -> Result<()> {
    command.args(["inspect", "no-plugin", "--plugins"]).arg(machine.work());
    let output = command.arg("--state-dir").arg(machine.work().join("state")).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1),
        "the program ended with 1, and the script with {}: {said}",
        output.status
    );
    ensure!(said.contains("`no-plugin`") && output.stdout.is_empty(), "the script prints {said}");
    Ok(())
}

/// A signal ends the program, not only the script.
fn check_end(machine: &BareMachine, command: &mut Command, launch: Launch) -> Result<()> {
    let empty = machine.work().join("no-plugins");
    std::fs::create_dir_all(&empty)?;
    let state = machine.work().join("state");
    let mut server = StdioServer::start(command.arg("serve").arg(&empty).arg("--state-dir").arg(state))?;
    server.tools()?;
    let runs = std::fs::read_link(format!("/proc/{}/exe", server.id()))?;
    let is_replaced = runs.file_name().is_some_and(|name| name == "toolbay");
    ensure!(is_replaced == (launch == Launch::Replaced), "the process runs `{}`", runs.display());
    let id = i32::try_from(server.id())?;
    // Nothing can pass SIGKILL on.
    let signal = if launch == Launch::Replaced { Signal::KILL } else { Signal::TERM };
    rustix::process::kill_process(Pid::from_raw(id).context("no process")?, signal)?;
    let status = server.wait()?;
    let expected = if launch == Launch::Replaced { !status.success() } else { status.success() };
    ensure!(expected, "{launch:?}: it ended with {status}");
    Ok(())
}

/// Without the package of the platform, the script names it and what to do. `TOOLBAY_BIN` takes its place.
fn check_missing(machine: &BareMachine, prefix: &Path) -> Result<()> {
    let scope = prefix.join("node_modules/@toolbay");
    let hidden = prefix.join("hidden");
    std::fs::rename(&scope, &hidden)?;
    let script = || machine.command(prefix.join("node_modules/.bin/toolbay"));
    let output = script().arg("--version").output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success(), "the script succeeds without a program");
    for part in ["@toolbay/linux-", "npm/cli/issues/4828", "npm install", "TOOLBAY_BIN"] {
        ensure!(said.contains(part), "the script does not say `{part}`: {said}");
    }
    let mut programs =
        std::fs::read_dir(&hidden)?.filter_map(|entry| Some(entry.ok()?.path().join("bin/toolbay")));
    let program = programs.find(|program| program.exists()).context("no program was installed")?;
    let output = script().arg("--version").env("TOOLBAY_BIN", &program).output()?;
    ensure!(output.status.success(), "`TOOLBAY_BIN`: {}", String::from_utf8_lossy(&output.stderr));
    let output = script().env("TOOLBAY_BIN", "/no/such/program").output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && said.contains("/no/such/program"), "a wrong `TOOLBAY_BIN`: {said}");
    Ok(std::fs::rename(&hidden, &scope)?)
}
