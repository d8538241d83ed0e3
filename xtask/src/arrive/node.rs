//! The Node library: its import, calls, memory, cancellation, and programs with worker threads that end while calls run. The
//! scripts of `host/node/bench` measure, and print their figures as JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::library::{Figures, ReleaseBuild, VOLUMES, cancellation, volume};
use super::{ArriveArgs, Line};
use crate::dist::Module;
use crate::folder::{copy_files, emptied};
use crate::{foreign, node, plugins};

/// Programs that end while calls run.
const PROGRAMS: &str = "200";

/// The lines of the bars 4 to 9.
pub(super) fn lines(workspace: &Path, args: &ArriveArgs) -> Result<Vec<Line>> {
    let bench = Bench::new(workspace, args)?;
    let mut lines = import(&bench.figures("imports.mjs", &[])?)?;
    lines.extend(native_calls(&bench.figures("native.mjs", &[])?)?);
    lines.extend(plugin_calls(&bench.figures("plugin.mjs", &[])?)?);
    lines.extend(cancellation("Node", &bench.figures("interruption.mjs", &[])?)?);
    lines.extend(ends(&bench.figures("ends.mjs", &[PROGRAMS])?)?);
    for (calls, most_megabytes) in VOLUMES {
        lines.extend(volume("Node", &bench.figures("volume.mjs", &[calls])?, calls, most_megabytes)?);
    }
    Ok(lines)
}

/// The package with the module and the program of a release build.
struct Bench<'a> {
    workspace: &'a Path,
    node: PathBuf,
    folder: PathBuf,
}

impl<'a> Bench<'a> {
    fn new(workspace: &'a Path, args: &ArriveArgs) -> Result<Self> {
        let build = ReleaseBuild::find(workspace, args, Module::Node)?;
        let folder = wasm::target_dir(workspace).join("arrive/node");
        emptied(&folder)?;
        copy_files(&workspace.join("host/node/bench"), &folder)?;
        node::place_packages(workspace, &folder.join("node_modules"), &build.module, &build.program)?;
        Ok(Self { workspace, node: foreign::node(workspace)?, folder })
    }

    /// What a script prints.
    fn figures(&self, script: &str, args: &[&str]) -> Result<Figures> {
        let work = self.folder.join("work");
        emptied(&work)?;
        let mut command = Command::new(&self.node);
        command.arg("--expose-gc").arg(self.folder.join(script)).args(args).env_remove("TOOLBAY_BIN");
        command.env("TOOLBAY_BENCH_PLUGINS", plugins::folder(self.workspace));
        command
            .env("TOOLBAY_BENCH_WORK", &work)
            .env("TOOLBAY_BENCH_CACHE", self.folder.with_file_name("node-cache"));
        Figures::of(script, &mut command)
    }
}

/// Bar 4. An import does not load the native module; the first use does.
fn import(figures: &Figures) -> Result<Vec<Line>> {
    let line = |what, name| anyhow::Ok(Line::at_most(4, what, figures.number(name)?, 40.0, "ms"));
    Ok(vec![
        line("Node: import of toolbay", "import_ms")?,
        line("the first use, which loads the native module", "first_use_ms")?,
        figures.nothing(4, "what both start and open besides files of the package", "side_effects")?,
    ])
}

/// Bar 5.
fn native_calls(figures: &Figures) -> Result<Vec<Line>> {
    let at_least = |what, name| anyhow::Ok(Line::at_least(5, what, figures.number(name)?, 50_000.0, "/s"));
    let one = figures.microseconds("one")?;
    Ok(vec![
        Line::at_most(5, "Node: an async function, one call at a time", one, 60.0, "µs"),
        at_least("Node: async functions, 64 in flight", "many_per_s")?,
        at_least("the same, each call a batch of its own", "separate_per_s")?,
    ])
}

/// Bar 6.
fn plugin_calls(figures: &Figures) -> Result<Vec<Line>> {
    let at_least = |what, name| anyhow::Ok(Line::at_least(6, what, figures.number(name)?, 30_000.0, "/s"));
    Ok(vec![
        at_least("Node: text__word_count, 64 in flight", "many_per_s")?,
        at_least("the same, each call a batch of its own", "separate_per_s")?,
    ])
}

/// Bar 9.
fn ends(figures: &Figures) -> Result<Vec<Line>> {
    let begun = figures.number("begun")?;
    Ok(vec![
        figures.none(
            9,
            &format!("of {PROGRAMS} Node programs with 8 workers, ended by a signal or otherwise wrongly"),
            "wrong",
        )?,
        Line::at_most(9, "the slowest end", figures.number("slowest_s")?, 5.0, "s"),
        figures.none(9, &format!("calls without exactly one record, of {begun} that began"), "unrecorded")?,
    ])
}
