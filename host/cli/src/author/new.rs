//! `toolbay new`.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use toolbay::PluginId;

use super::template::{self, Plan};
use crate::Verdict;
use crate::author::args::NewArgs;
use crate::output::{self, HEAD, NAME};

pub(crate) fn run(args: &NewArgs) -> Result<Verdict> {
    let folder = folder(&args.path)?;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    check_name(args, name).map_err(|problem| {
        anyhow!(
            "{problem}. The name is the plugin's id, and its folder's: letters from A to Z, digits, `-` and `_`, such \
             as `word-count`"
        )
    })?;
    if folder.symlink_metadata().is_ok() {
        bail!("`{}` is already there; take another name, or move it away", folder.display());
    }
    let plan = Plan { name, reducer: args.reducer };
    template::write(&folder, &args.lang.template(&plan)?).map_err(|error| refused(&folder, error))?;
    let mut out = output::out();
    writeln!(out, "made {HEAD}{name}{HEAD:#}, a plugin in {}\n", args.lang.name())?;
    writeln!(out, "  {NAME}cd {}{NAME:#}", quoted(&args.path))?;
    writeln!(out, "  {NAME}toolbay build{NAME:#}")?;
    if !args.reducer {
        writeln!(out, "  {NAME}toolbay call {name}__hello '{{\"name\": \"world\"}}'{NAME:#}")?;
    }
    Ok(Verdict::Good)
}

/// The folder to be made, by an absolute path without `.` and links above it.
fn folder(path: &Path) -> Result<PathBuf> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let parent = parent
        .canonicalize()
        .with_context(|| format!("there is no folder `{}` to make it in", parent.display()))?;
    let name = path
        .file_name()
        .with_context(|| format!("`{}` has no name: give the new plugin one", path.display()))?;
    Ok(parent.join(name))
}

fn check_name(args: &NewArgs, name: &str) -> Result<(), String> {
    PluginId::new(name).map_err(|error| error.to_string())?;
    args.lang.check_name(name)
}

fn refused(folder: &Path, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ": nothing can be written here; go to a folder of yours"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ": make room on the disk",
        _ => "",
    };
    let what = format!("`{}` cannot be made{hint}", folder.display());
    Error::from(error).context(what)
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_if_a_shell_would_split_it() {
        assert_eq!(quoted(Path::new("../a-b/c_d.e")), "../a-b/c_d.e");
        assert_eq!(quoted(Path::new("a b/ä")), "'a b/ä'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
