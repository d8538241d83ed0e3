//! What the measurements of the libraries for Python and Node share: a release build, the figures that scripts print, and the
//! bars that both have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{ArriveArgs, Line};
use crate::dist::Module;
use crate::programs::printed;

/// The numbers of calls of the short and of the long measurement of memory, and the most megabytes by which it grows.
pub(super) const VOLUMES: [(&str, f64); 2] = [("10000", 16.0), ("1000000", 32.0)];
/// The type of an ELF section that release builds lack: they are stripped.
const SYMBOL_TABLE: usize = 2;

/// The program of a release build, and the native module that the same build put beside it.
pub(super) struct ReleaseBuild {
    pub(super) program: PathBuf,
    pub(super) module: PathBuf,
}

impl ReleaseBuild {
    /// The build that the command line names, or the one in `target/release`.
    pub(super) fn find(workspace: &Path, args: &ArriveArgs, module: Module) -> Result<Self> {
        let own = || wasm::target_dir(workspace).join("release/toolbay");
        let program = args.program.clone().unwrap_or_else(own);
        let module = program.with_file_name(module.library());
        for file in [&program, &module] {
            check_release(file)?;
        }
        Ok(Self { program, module })
    }
}

/// Checks that a file of a build is there and stripped. A debug build says nothing about what a user waits for.
pub(super) fn check_release(file: &Path) -> Result<()> {
    let content = fs::read(file).with_context(|| {
        let build =
            "cargo build --release --package toolbay-cli --package toolbay-python --package toolbay-node";
        format!("cannot read `{}`; `{build}` makes the program, with the modules beside it", file.display())
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
pub(super) struct Figures(Value);

impl Figures {
    /// What a script prints.
    pub(super) fn of(script: &str, command: &mut Command) -> Result<Self> {
        let text = printed(command)?;
        println!("    {script}: {}", text.trim());
        Ok(Self(serde_json::from_str(&text).with_context(|| format!("`{script}` does not print JSON"))?))
    }

    /// A figure.
    pub(super) fn number(&self, name: &str) -> Result<f64> {
        self.0.get(name).and_then(Value::as_f64).with_context(|| format!("no figure `{name}`"))
    }

    /// The microseconds of a call, from the calls per second.
    pub(super) fn microseconds(&self, name: &str) -> Result<f64> {
        Ok(1e6 / self.number(&format!("{name}_per_s"))?)
    }

    /// A list that must be empty.
    pub(super) fn nothing(&self, bar: u32, what: &str, name: &str) -> Result<Line> {
        let list = self.0.get(name).and_then(Value::as_array).with_context(|| format!("no list `{name}`"))?;
        let shown =
            if list.is_empty() { "nothing".to_owned() } else { Value::from(list.clone()).to_string() };
        Ok(Line::fact(bar, what, &shown, "nothing", list.is_empty()))
    }

    /// Something that must not happen.
    pub(super) fn none(&self, bar: u32, what: &str, name: &str) -> Result<Line> {
        let count = self.number(name)?;
        Ok(Line::fact(bar, what, &format!("{count}"), "0", count == 0.0))
    }
}

/// Bar 7, for a measurement of [`VOLUMES`].
pub(super) fn volume(
    language: &str,
    figures: &Figures,
    calls: &str,
    most_megabytes: f64,
) -> Result<[Line; 2]> {
    let grown = figures.number("grown_mb")?;
    Ok([
        figures.none(
            7,
            &format!("{language}: lost or doubled of {calls} calls with 64 in flight"),
            "wrong",
        )?,
        Line::at_most(7, "their memory, after the first 1000", grown, most_megabytes, "MB"),
    ])
}

/// Bar 8, without what is said of signals.
pub(super) fn cancellation(language: &str, figures: &Figures) -> Result<[Line; 2]> {
    let what = format!("{language}: 64 spinning calls are cancelled, until control returns");
    Ok([
        Line::at_most(8, &what, figures.number("returned_ms")?, 5.0, "ms"),
        Line::at_most(8, "the same, until the audit has all", figures.number("recorded_ms")?, 100.0, "ms"),
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
