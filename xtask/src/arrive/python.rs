//! The Python library: its import, calls beside other libraries, memory, cancellation, and programs that end while calls run.
//! The scripts of `host/python/bench` measure, and print their figures as JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{ArriveArgs, Line};
use crate::folder::emptied;
use crate::foreign::python_with;
use crate::programs::printed;
use crate::{plugins, python};

/// The native module, beside the program of the same build.
const MODULE: &str = "libtoolbay_python.so";
/// The type of an ELF section that release builds lack: they are stripped.
const SYMBOL_TABLE: usize = 2;
/// Calls of the short and of the long measurement of memory.
const FEW_CALLS: &str = "10000";
const MANY_CALLS: &str = "1000000";
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
    for (calls, most) in [(FEW_CALLS, 16.0), (MANY_CALLS, 32.0)] {
        lines.extend(volume(&bench.figures("volume.py", &[calls])?, calls, most)?);
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
        let program = args.program.clone().unwrap_or_else(|| target.join("release/toolbay"));
        let module = program.with_file_name(MODULE);
        for file in [&program, &module] {
            check_release(file)?;
        }
        let folder = target.join("arrive/python");
        python::package(workspace, &module, &folder)?;
        let scripts = workspace.join("host/python/bench");
        for entry in fs::read_dir(&scripts).with_context(|| format!("cannot read `{}`", scripts.display()))? {
            let entry = entry?;
            if entry.path().is_file() {
                fs::copy(entry.path(), folder.join(entry.file_name()))?;
            }
        }
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
        let text = printed(&mut command)?;
        println!("    {script}: {}", text.trim());
        Ok(Figures(serde_json::from_str(&text).with_context(|| format!("`{script}` does not print JSON"))?))
    }
}

/// A debug build says nothing about what a user waits for.
fn check_release(file: &Path) -> Result<()> {
    let content = fs::read(file).with_context(|| {
        let build = "cargo build --release --package toolbay-cli --package toolbay-python";
        format!("cannot read `{}`; `{build}` makes it", file.display())
    })?;
    ensure!(has_symbols(&content) == Some(false), "`{}` has symbols: it is no release build", file.display());
    Ok(())
}

/// Whether an ELF file has a symbol table. `None` if the file is cut off.
fn has_symbols(elf: &[u8]) -> Option<bool> {
    let number = |at: usize, length: usize| {
        let bytes = elf.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |number: usize, byte| (number << 8) | usize::from(*byte)))
    };
    // `e_shoff`, `e_shentsize` and `e_shnum` of the header, then `sh_type` of each section.
    let (table, size, count) = (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?);
    let kinds = (0..count).map(|section| number(table.checked_add(section * size + 4)?, 4));
    Some(kinds.collect::<Option<Vec<_>>>()?.contains(&SYMBOL_TABLE))
}

/// The figures of a script, by name.
struct Figures(Value);

impl Figures {
    fn number(&self, name: &str) -> Result<f64> {
        self.0.get(name).and_then(Value::as_f64).with_context(|| format!("no figure `{name}`"))
    }

    /// The microseconds of a call, from the calls per second.
    fn microseconds(&self, name: &str) -> Result<f64> {
        Ok(1e6 / self.number(&format!("{name}_per_s"))?)
    }

    /// Something that must not happen.
    fn none(&self, bar: u32, what: &str, name: &str) -> Result<Line> {
        let count = self.number(name)?;
        Ok(Line::fact(bar, what, &format!("{count}"), "0", count == 0.0))
    }
}

/// Bar 4.
fn import(figures: &Figures) -> Result<Vec<Line>> {
    let Some(Value::Array(effects)) = figures.0.get("side_effects") else { bail!("no side effects") };
    let shown =
        if effects.is_empty() { "nothing".to_owned() } else { Value::from(effects.clone()).to_string() };
    Ok(vec![
        Line::at_most(
            4,
            "import toolbay, processor time beyond Python",
            figures.number("import_ms")?,
            60.0,
            "ms",
        ),
        Line::fact(
            4,
            "what the import starts and opens besides Python's files",
            &shown,
            "nothing",
            effects.is_empty(),
        ),
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

/// Bar 7.
fn volume(figures: &Figures, calls: &str, most_megabytes: f64) -> Result<Vec<Line>> {
    let grown = figures.number("grown_mb")?;
    Ok(vec![
        figures.none(7, &format!("Python: lost or doubled of {calls} calls with 64 in flight"), "wrong")?,
        Line::at_most(7, "their memory, after the first 1000", grown, most_megabytes, "MB"),
    ])
}

/// Bar 8.
fn interruption(figures: &Figures) -> Result<Vec<Line>> {
    let line = |what, name, most| anyhow::Ok(Line::at_most(8, what, figures.number(name)?, most, "ms"));
    Ok(vec![
        line("Python: 64 spinning calls are cancelled, until control returns", "returned_ms", 5.0)?,
        line("the same, until the audit has all", "recorded_ms", 100.0)?,
        line("Python: Ctrl-C during call_all_sync, a coroutine waits", "wait_ms", 200.0)?,
        line("Python: Ctrl-C during call_all_sync, a plugin spins", "spin_ms", 200.0)?,
    ])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_symbols_is_refused() {
        let tests = check_release(&std::env::current_exe().unwrap()).unwrap_err().to_string();
        assert!(tests.contains("no release build"), "{tests}");
        // A header without sections.
        assert_eq!(has_symbols(&[0; 64]), Some(false));
        assert_eq!(has_symbols(&[0; 10]), None);
        let missing = check_release(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(missing.contains("cargo build --release"), "{missing}");
    }
}
