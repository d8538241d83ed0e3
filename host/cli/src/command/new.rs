//! `toolbay new`.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use serde_json::json;
use toolbay::PluginId;

use crate::args::NewArgs;
use crate::author::template::{self, TemplateFile, TemplatePlan};
use crate::output::{self, CommandStatus, HEADING, NAME};
use crate::setup::SetupArgs;
use crate::setup::named_path::{check_is_new, folder_of, path_failure};

pub(crate) fn run(setup: &SetupArgs, args: &NewArgs) -> Result<CommandStatus> {
    let folder = folder(&args.path)?;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    check_name(args, name).map_err(|problem| {
        anyhow!(
            "{problem}; a name is the plugin's id and its folder: letters from A to Z, digits, `-` and `_`, such as \
             `word-count`"
        )
    })?;
    check_is_new(&folder, "choose another name, or move it away")?;
    let plan = TemplatePlan { name, reducer: args.reducer };
    let files = args.lang.template(&plan)?;
    template::write(&folder, &files).map_err(|error| write_error(&folder, error))?;
    let next = next_steps(args, name, &files);
    if setup.printer.is_json() {
        return Ok(output::print_json(&json!({
            "plugin": name,
            "language": args.lang.name(),
            "folder": folder,
            "next": next,
        }))?);
    }
    let mut out = output::stdout();
    writeln!(out, "created {HEADING}{name}{HEADING:#}, a plugin in {}; next:\n", args.lang.name())?;
    for step in next {
        writeln!(out, "  {NAME}{step}{NAME:#}")?;
    }
    Ok(CommandStatus::Success)
}

/// The commands that lead from the new project to its first call.
fn next_steps(args: &NewArgs, name: &str, files: &[TemplateFile]) -> Vec<String> {
    let readme = files.iter().find(|file| file.path == "README.md").map_or("", |file| &*file.text);
    let mut steps = vec![format!("cd {}", quote_for_shell(&args.path))];
    steps.extend(setup_steps(readme).map(ToOwned::to_owned));
    steps.push("toolbay build".to_owned());
    if !args.reducer {
        steps.push(format!("toolbay call {name}__hello '{{\"name\": \"world\"}}'"));
    }
    steps
}

/// The commands that a README marks with `# once`: they install what the build needs.
fn setup_steps(readme: &str) -> impl Iterator<Item = &str> {
    let marked = readme.lines().filter_map(|line| line.strip_prefix("$ ")?.strip_suffix("# once"));
    marked.map(str::trim_end)
}

/// The absolute path of the new folder, without `.` and without links above it.
fn folder(path: &Path) -> Result<PathBuf> {
    let parent = folder_of(path);
    let found = parent.canonicalize().with_context(|| format!("there is no folder `{}`", parent.display()));
    let parent = found.map_err(path_failure)?;
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
    path_failure(Error::from(error).context(what))
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
    use crate::args::PluginLanguage;

    #[test]
    fn each_language_names_the_commands_before_its_build() {
        for (lang, expected) in [
            (PluginLanguage::Rust, ""),
            (PluginLanguage::Js, "npm install"),
            (PluginLanguage::Ts, "npm install"),
            (PluginLanguage::Python, "venv"),
            (PluginLanguage::C, "venv"),
        ] {
            let files = lang.template(&TemplatePlan { name: "notes", reducer: false }).unwrap();
            let args = NewArgs { path: PathBuf::from("notes"), lang, reducer: false };
            let steps = next_steps(&args, "notes", &files);
            let (build, before) = (steps.len() - 2, steps[1..steps.len() - 2].join("\n"));
            assert_eq!(
                (steps[0].as_str(), steps[build].as_str()),
                ("cd notes", "toolbay build"),
                "{steps:?}"
            );
            assert_eq!(expected.is_empty(), before.is_empty(), "{steps:?}");
            assert!(before.contains(expected) && !before.contains('#'), "{steps:?}");
        }
    }

    #[test]
    fn a_path_is_quoted_if_a_shell_would_split_it() {
        assert_eq!(quote_for_shell(Path::new("../a-b/c_d.e")), "../a-b/c_d.e");
        assert_eq!(quote_for_shell(Path::new("a b/ä")), "'a b/ä'");
        assert_eq!(quote_for_shell(Path::new("it's")), r"'it'\''s'");
    }
}
