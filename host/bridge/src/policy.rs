//! Policies from files, texts and tables.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use toolbay::Policy;

use crate::error::{BridgeError, ErrorKind};
use crate::request::PolicySource;

/// A policy with the text that it was read from.
pub(crate) struct ReadPolicy {
    pub(crate) policy: Policy,
    pub(crate) text: Option<String>,
}

/// Reads a policy. Blocks on its file.
pub(crate) fn read(source: &PolicySource) -> Result<ReadPolicy, BridgeError> {
    let PolicySource { base, file, text, table } = source;
    let base = match (base, file) {
        (Some(base), _) => base.clone(),
        (None, Some(file)) => folder_of(file)?,
        (None, None) => return Err(BridgeError::argument("a policy without a file needs `base`")),
    };
    if !base.is_absolute() {
        return Err(BridgeError::argument(format!("`base` is not an absolute path: `{}`", base.display())));
    }
    let text = match (text, table, file) {
        (Some(text), _, _) => Cow::Borrowed(&**text),
        (None, Some(table), _) => Cow::Owned(toml::to_string(table).map_err(|error| {
            BridgeError::new(ErrorKind::Policy, format!("the policy cannot be written as TOML: {error}"))
        })?),
        (None, None, Some(file)) => {
            Cow::Owned(std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?)
        }
        (None, None, None) => return Ok(ReadPolicy { policy: Policy::deny_all(&base), text: None }),
    };
    // The lines of a table are not the program's.
    let shown = table.is_none().then_some(&*text);
    match Policy::parse(&text, &base, None) {
        Ok(policy) => Ok(ReadPolicy { policy, text: Some(text.into_owned()) }),
        Err(error) => Err(BridgeError::from_policy(&error, file.as_deref(), shown)),
    }
}

/// The folder of a policy file. Links lead to the folder that relative paths of the file mean.
fn folder_of(file: &Path) -> Result<PathBuf, BridgeError> {
    let file = file.canonicalize().map_err(|error| unreadable(file, &error))?;
    Ok(file.parent().unwrap_or(Path::new("/")).to_path_buf())
}

fn unreadable(file: &Path, error: &std::io::Error) -> BridgeError {
    let file = file.display();
    BridgeError {
        file: Some(file.to_string()),
        ..BridgeError::new(ErrorKind::Policy, format!("the policy `{file}` cannot be read: {error}"))
    }
}
