//! `toolbay new`.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use toolbay::PluginId;

use super::template::{self, TemplatePlan};
use crate::CommandStatus;
use crate::author::args::NewArgs;
use crate::output::{self, HEADING, NAME};

pub(crate) fn run(args: &NewArgs) -> Result<CommandStatus> {
    let folder = folder(&args.path)?;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    check_name(args, name).map_err(|problem| {
        anyhow!(
            "{problem}; a name is the plugin's id and its folder: letters from A to Z, digits, `-` and `_`, such as \
             `word-count`"
        )
    })?;
    if folder.symlink_metadata().is_ok() {
        bail!("`{}` already exists; choose another name, or move it away", folder.display());
    }
    let plan = TemplatePlan { name, reducer: args.reducer };
    template::write(&folder, &args.lang.template(&plan)?).map_err(|error| write_error(&folder, error))?;
    let mut out = output::stdout();
    writeln!(out, "created {HEADING}{name}{HEADING:#}, a plugin in {}; next:\n", args.lang.name())?;
    writeln!(out, "  {NAME}cd {}{NAME:#}", quote_for_shell(&args.path))?;
    writeln!(out, "  {NAME}toolbay build{NAME:#}")?;
    if !args.reducer {
        writeln!(out, "  {NAME}toolbay call {name}__hello '{{\"name\": \"world\"}}'{NAME:#}")?;
    }
    Ok(CommandStatus::Success)
}

/// The absolute path of the new folder, without `.` and without links above it.
fn folder(path: &Path) -> Result<PathBuf> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let parent =
        parent.canonicalize().with_context(|| format!("there is no folder `{}`", parent.display()))?;
    let name =
        path.file_name().with_context(|| format!("`{}` has no name; name the new plugin", path.display()))?;
    Ok(parent.join(name))
}

fn check_name(args: &NewArgs, name: &str) -> Result<(), String> {
    PluginId::new(name).map_err(|error| error.to_string())?;
    args.lang.check_name(name)
}

fn write_error(folder: &Path, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ": the folder is not writable; change to one that is"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ": the disk is full",
        _ => "",
    };
    let what = format!("`{}` cannot be created{hint}", folder.display());
    Error::from(error).context(what)
}

/// A path quoted for a shell.
fn quote_for_shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_if_a_shell_would_split_it() {
        assert_eq!(quote_for_shell(Path::new("../a-b/c_d.e")), "../a-b/c_d.e");
        assert_eq!(quote_for_shell(Path::new("a b/ä")), "'a b/ä'");
        assert_eq!(quote_for_shell(Path::new("it's")), r"'it'\''s'");
    }
}
