//! The Python library: its import, calls beside other libraries, memory, cancellation, and programs that end while calls run.
//! The scripts of `host/python/bench` measure, and print their figures as JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::library::{Figures, ReleaseBuild, VOLUMES, cancellation, volume};
use super::{ArriveArgs, Line};
use crate::dist::Module;
use crate::folder::{copy_files, emptied};
use crate::foreign::python_with;
use crate::{plugins, python};

/// Programs that end while calls run.
const PROGRAMS: &str = "1000";

/// The lines of the bars 4 to 9.
pub(super) fn lines(workspace: &Path, args: &ArriveArgs) -> Result<Vec<Line>> {
    let bench = Bench::new(workspace, args)?;
    let mut lines = import(&bench.figures("imports.py", &[])?)?;
    lines.extend(native_calls(&bench.figures("native.py", &[])?)?);
    lines.extend(plugin_calls(&bench.figures("plugin.py", &[])?)?);
    lines.extend(interruption(&bench.figures("interruption.py", &[])?)?);
    lines.extend(ends(&bench.figures("ends.py", &[PROGRAMS])?)?);
    for (calls, most_megabytes) in VOLUMES {
        lines.extend(volume("Python", &bench.figures("volume.py", &[calls])?, calls, most_megabytes)?);
    }
    Ok(lines)
}

/// The package with the module of a release build, and a Python that has the libraries to compare with.
struct Bench<'a> {
    workspace: &'a Path,
    python: PathBuf,
    program: PathBuf,
    folder: PathBuf,
}

impl<'a> Bench<'a> {
    fn new(workspace: &'a Path, args: &ArriveArgs) -> Result<Self> {
        let target = wasm::target_dir(workspace);
        let ReleaseBuild { program, module } = ReleaseBuild::find(workspace, args, Module::Python)?;
        let folder = target.join("arrive/python");
        python::package(workspace, &module, &folder)?;
        let scripts = workspace.join("host/python/bench");
        copy_files(&scripts, &folder)?;
        let python = python_with(&target.join("venv-python-bench"), &scripts)?;
        Ok(Self { workspace, python, program, folder })
    }

    /// What a script prints.
    fn figures(&self, script: &str, args: &[&str]) -> Result<Figures> {
        let work = self.folder.join("work");
        emptied(&work)?;
        let mut command = Command::new(&self.python);
        command.arg(self.folder.join(script)).args(args).env("PYTHONPATH", &self.folder);
        command.env_remove("PYTHONDONTWRITEBYTECODE").env("TOOLBAY_BIN", &self.program);
        command.env("TOOLBAY_BENCH_PLUGINS", plugins::folder(self.workspace));
        command
            .env("TOOLBAY_BENCH_WORK", &work)
            .env("TOOLBAY_BENCH_CACHE", self.folder.with_file_name("python-cache"));
        Figures::of(script, &mut command)
    }
}

/// Bar 4.
fn import(figures: &Figures) -> Result<Vec<Line>> {
    Ok(vec![
        Line::at_most(
            4,
            "import toolbay, processor time beyond Python",
            figures.number("import_ms")?,
            60.0,
            "ms",
        ),
        figures.nothing(4, "what the import starts and opens besides Python's files", "side_effects")?,
    ])
}

/// Bar 5.
fn native_calls(figures: &Figures) -> Result<Vec<Line>> {
    let (one, registry_one) = (figures.microseconds("one")?, figures.microseconds("registry_one")?);
    let (many, registry_many) = (figures.number("many_per_s")?, figures.number("registry_many_per_s")?);
    let apart = figures.number("apart_per_s")?;
    Ok(vec![
        Line::at_most(5, "Python: a coroutine function, one call at a time", one, 133.0, "µs"),
        Line::at_most(5, "the same, with ToolRegistry 0.19 as the limit", one, registry_one, "µs"),
        Line::at_least(5, "Python: coroutine functions, 64 calls in a batch", many, 16_750.0, "/s"),
        Line::at_least(5, "the same, with ToolRegistry 0.19 as the limit", many, registry_many, "/s"),
        Line::at_least(5, "Python: coroutine functions, 64 batches at a time", apart, 16_750.0, "/s"),
    ])
}

/// Bar 6.
fn plugin_calls(figures: &Figures) -> Result<Vec<Line>> {
    let (one, through_mcp) = (figures.microseconds("one")?, figures.microseconds("mcp_one")?);
    let (many, apart) = (figures.number("many_per_s")?, figures.number("apart_per_s")?);
    Ok(vec![
        Line::at_most(
            6,
            "Python: text__word_count, a quarter of mcp over stdio as the limit",
            one,
            through_mcp / 4.0,
            "µs",
        ),
        Line::at_least(6, "Python: text__word_count, 64 calls in a batch", many, 20_000.0, "/s"),
        Line::at_least(6, "Python: text__word_count, 64 batches at a time", apart, 20_000.0, "/s"),
    ])
}

/// Bar 8.
fn interruption(figures: &Figures) -> Result<Vec<Line>> {
    let line = |what, name| anyhow::Ok(Line::at_most(8, what, figures.number(name)?, 200.0, "ms"));
    let mut lines = Vec::from(cancellation("Python", figures)?);
    lines.push(line("Python: Ctrl-C during call_all_sync, a coroutine waits", "wait_ms")?);
    lines.push(line("Python: Ctrl-C during call_all_sync, a plugin spins", "spin_ms")?);
    Ok(lines)
}

/// Bar 9.
fn ends(figures: &Figures) -> Result<Vec<Line>> {
    let begun = figures.number("begun")?;
    Ok(vec![
        figures.none(
            9,
            &format!("of {PROGRAMS} Python programs, ended by a signal or otherwise wrongly"),
            "wrong",
        )?,
        Line::at_most(9, "the slowest end", figures.number("slowest_s")?, 5.0, "s"),
        figures.none(9, &format!("calls without a record, of {begun} that began"), "unrecorded")?,
    ])
}
