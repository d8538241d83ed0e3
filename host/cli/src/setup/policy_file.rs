//! The policy of the command line: which file it is, and what its text says.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use toolbay::Policy;
use toolbay::policy::{PolicyCheck, PolicyFinding, Severity};
use toolbay_state::user_dirs::user_dir;

use super::args::SetupArgs;
use super::paths::current_dir;
use crate::output::findings::{FileFindings, read_policy, sentence};

/// Why there is no path for a policy.
const NO_PATH: &str = "there is no policy file: name one with --config FILE";

/// The policy file and its text.
#[derive(Debug)]
pub(crate) struct PolicyFile {
    /// The file, which may not exist; `None`: there is no path for one.
    pub(crate) file: Option<PathBuf>,
    /// The text; `None`: the file does not exist.
    pub(crate) text: Option<String>,
    base: PathBuf,
    /// The value of `$workspace` from the command line, or without a policy.
    pub(crate) workspace: Option<PathBuf>,
}

impl PolicyFile {
    /// A policy without a file.
    pub(crate) fn from_text(args: &SetupArgs, text: String) -> Result<Self> {
        let working_dir = current_dir()?;
        let workspace = workspace(args, &working_dir)?;
        let workspace = Some(workspace.unwrap_or_else(|| working_dir.clone()));
        Ok(Self { file: None, text: Some(text), base: working_dir, workspace })
    }

    /// The policy that replaces this file, which may not exist.
    pub(crate) fn for_text(args: &SetupArgs, file: &Path, text: &str) -> Result<Self> {
        let working_dir = current_dir()?;
        let workspace = workspace(args, &working_dir)?;
        let folder = working_dir.join(file).parent().unwrap_or(Path::new("/")).to_path_buf();
        // The same base as that of a file that exists.
        let base = folder.canonicalize().unwrap_or(folder);
        Ok(Self { file: Some(file.to_path_buf()), text: Some(text.to_owned()), base, workspace })
    }

    /// Finds the file and reads it.
    pub(crate) fn find(args: &SetupArgs) -> Result<Self> {
        Self::find_or_new(args, false)
    }

    /// Finds the file and reads it. With `new`, the file that the command line names may be missing.
    pub(crate) fn find_or_new(args: &SetupArgs, new: bool) -> Result<Self> {
        let working_dir = current_dir()?;
        let workspace = workspace(args, &working_dir)?;
        let given = args.config.as_ref().map(|file| working_dir.join(file));
        let found = given.clone().or_else(default_policy);
        let required = given.is_some() && !new;
        let Some(file) = found.clone().filter(|file| required || file.exists()) else {
            let workspace = Some(workspace.unwrap_or_else(|| working_dir.clone()));
            return Ok(Self { file: found, text: None, base: working_dir, workspace });
        };
        let text = read_policy(&file)?;
        Ok(Self { base: folder_of(&file)?, file: Some(file), text: Some(text), workspace })
    }

    /// A policy file that a command names.
    pub(crate) fn from_file(args: &SetupArgs, file: &Path) -> Result<Self> {
        let workspace = workspace(args, &current_dir()?)?;
        Ok(Self { base: folder_of(file)?, file: Some(file.to_path_buf()), text: None, workspace })
    }

    /// The path of the policy, which may not exist.
    pub(crate) fn locate(args: &SetupArgs) -> Result<PathBuf> {
        let path = args.config.clone().or_else(default_policy);
        path.context(NO_PATH)
    }

    /// The path of this policy, which may not exist.
    pub(crate) fn path(&self) -> Result<&Path> {
        self.file.as_deref().context(NO_PATH)
    }

    /// Finds all mistakes of a text as this file's content.
    pub(crate) fn check(&self, text: &str) -> PolicyCheck {
        Policy::check(text, &self.base, self.workspace.as_deref())
    }

    /// Parses the file. Without one, the policy grants nothing.
    pub(crate) fn policy(&self) -> Result<Policy> {
        match &self.text {
            Some(text) => self.parse(text),
            None => Ok(Policy::deny_all(self.workspace.as_deref().unwrap_or(&self.base))),
        }
    }

    /// The text to add lines to.
    pub(crate) fn text_or_new(&self) -> String {
        let new = || {
            let workspace = self.workspace.as_deref().unwrap_or(&self.base);
            // `$workspace` keeps its current meaning.
            let workspace = toml_edit::Value::from(workspace.display().to_string());
            format!("version = 1\nworkspace = {workspace}\n")
        };
        self.text.clone().unwrap_or_else(new)
    }

    /// Parses a text that a command would write. A new mistake comes from the command line, so it has no line of the file. If
    /// the file is invalid already, its own mistakes are reported.
    pub(crate) fn parse_edit(&self, text: &str) -> Result<Policy> {
        Policy::parse(text, &self.base, self.workspace.as_deref()).map_err(|error| {
            if let Err(of_file) = self.policy() {
                return of_file;
            }
            anyhow!(error.findings().iter().map(sentence).collect::<Vec<_>>().join("\n"))
        })
    }

    /// Parses a text as this file's content.
    pub(crate) fn parse(&self, text: &str) -> anyhow::Result<Policy> {
        let file = self.file.as_deref().unwrap_or(Path::new("the policy"));
        Policy::parse(text, &self.base, self.workspace.as_deref())
            .map_err(|error| FileFindings::from_error(file, text, &error).into())
    }
}

pub(crate) fn policy(args: &SetupArgs) -> Result<Policy> {
    Ok(PolicyFile::find(args)?.policy()?.with_epoch(args.epoch))
}

/// A policy that grants nothing, with the ids that an invalid policy gives plugin files, as far as it can be read.
pub(crate) fn plugin_names(args: &SetupArgs) -> Result<Policy> {
    let file = PolicyFile::find(args).ok();
    match file.and_then(|file| file.check(file.text.as_deref()?).policy) {
        Some(policy) => Ok(policy.names_only()),
        None => Ok(Policy::deny_all(&current_dir()?)),
    }
}

/// The folder that relative paths of a policy start from.
fn folder_of(file: &Path) -> Result<PathBuf> {
    let found = file.canonicalize().with_context(|| format!("policy `{}`", file.display()));
    Ok(found?.parent().unwrap_or(Path::new("/")).to_path_buf())
}

/// The mistakes of the files with credentials that a policy names and that exist. Their lines are not shown.
pub(crate) fn credential_findings(policy: &Policy) -> impl Iterator<Item = FileFindings> {
    let serve = policy.serve();
    let of_clients = serve.tokens.as_ref().map(|file| (file, toolbay_mcp::check_tokens(file, policy)));
    let key = serve.request_state_key.as_ref().map(|file| {
        let error = |problem| PolicyFinding::new(Severity::Error, "", 0..0, problem);
        (file, toolbay_mcp::read_request_state_key(file).err().map(error).into_iter().collect())
    });
    let of_operators =
        policy.admin().map(|admin| (&admin.tokens, toolbay_admin::check_tokens(&admin.tokens)));
    let all = of_clients.into_iter().chain(key).chain(of_operators);
    let existing = all.filter(|(file, _): &(&PathBuf, Vec<PolicyFinding>)| file.exists());
    let found = existing.map(|(file, findings)| FileFindings { file: file.clone(), text: None, findings });
    found.collect::<Vec<_>>().into_iter()
}

/// The workspace of the command line.
fn workspace(args: &SetupArgs, working_dir: &Path) -> Result<Option<PathBuf>> {
    let Some(dir) = &args.workspace else { return Ok(None) };
    let found =
        working_dir.join(dir).canonicalize().with_context(|| format!("--workspace `{}`", dir.display()));
    found.map(Some)
}

/// The default policy file.
pub(crate) fn default_policy() -> Option<PathBuf> {
    Some(user_dir("XDG_CONFIG_HOME", ".config")?.join("toolbay.toml"))
}
