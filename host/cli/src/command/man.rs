//! `toolbay man`: a man page for each command.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::args::Args;
use crate::output::{CommandStatus, count_noun};
use crate::setup::SetupArgs;
use crate::setup::named_path::path_failure;

pub(crate) fn run(args: &SetupArgs, dir: &Path) -> Result<CommandStatus> {
    let pages = write(dir).with_context(|| format!("the man pages in `{}`", dir.display()));
    let pages = count_noun(pages.map_err(path_failure)?, "man page", "man pages");
    args.printer.note(&format!("wrote {pages} to `{}`", dir.display()));
    Ok(CommandStatus::Success)
}

/// Returns the number of pages.
fn write(dir: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Args::command_with_examples(), dir)?;
    Ok(std::fs::read_dir(dir)?.count())
}
