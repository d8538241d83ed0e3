//! The `[[trust]]` rules of an archive, added to the policy with the files of their keys.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use toolbay_distribution::archive::ArchivedRule;
use toolbay_distribution::signature::key::PublicKey;
use toolbay_policy::trust::{MAX_TRUST_RULES, MAX_TRUSTED_KEYS, TrustScope};

use crate::command::args::SetupArgs;
use crate::command::policy_file;
use crate::command::setup::PolicyFile;
use crate::host_failure;
use crate::output;
use crate::output::error::CommandError;

/// Hex digits of a key's id in the name of its file.
const SHOWN_DIGITS: usize = 16;

/// Adds the rules whose scopes the policy does not have, and says whom it trusts now.
pub(super) fn add(args: &SetupArgs, rules: &[ArchivedRule], quiet: bool) -> Result<()> {
    let file = PolicyFile::find_or_new(args, true)?;
    let policy = file.policy()?;
    let path = file.file.as_deref().context("there is no policy file: name one with --config FILE")?;
    let folder = path.parent().unwrap_or(Path::new("."));
    if rules.len() > MAX_TRUST_RULES {
        return Err(refused(format!("it has more than {MAX_TRUST_RULES} rules")));
    }
    let mut added = Vec::new();
    for rule in rules {
        let scope = TrustScope::parse(&rule.scope).map_err(refused)?;
        if rule.keys.is_empty() || rule.keys.len() > MAX_TRUSTED_KEYS {
            return Err(refused(format!(
                "the rule for `{scope}` has no keys, or more than {MAX_TRUSTED_KEYS}"
            )));
        }
        let keys = rule.keys.iter().map(|text| PublicKey::from_pem(text).map_err(refused));
        let keys = keys.collect::<Result<Vec<PublicKey>>>()?;
        if !policy.trust_rules().any(|known| known.scope == scope) {
            added.push((scope.to_string(), keys));
        }
    }
    if added.is_empty() {
        return Ok(());
    }
    let mut tables = Vec::new();
    for (scope, keys) in added {
        let names = keys.iter().map(|key| write_key(folder, key)).collect::<Result<Vec<String>>>()?;
        if !quiet {
            let ids: Vec<String> = keys.iter().map(|key| format!("key:{}", key.id().hex())).collect();
            output::print_note(&format!("the policy trusts {} for `{scope}`", ids.join(", ")));
        }
        tables.push((scope, names));
    }
    let text = policy_file::with_trust_rules(file.text.as_deref().unwrap_or("version = 1\n"), &tables)?;
    policy_file::write(path, file.text.as_deref(), &text).map_err(host_failure)
}

fn refused(why: impl std::fmt::Display) -> anyhow::Error {
    CommandError::new("refused", format!("the rules of the archive are refused: {why}")).into()
}

/// Writes a key beside the policy, under a name of its own. Returns the name.
fn write_key(folder: &Path, key: &PublicKey) -> Result<String> {
    let id = key.id();
    let name = format!("{}.pub", id.hex().get(..SHOWN_DIGITS).unwrap_or_default());
    let path = folder.join(&name);
    match PublicKey::read(&path) {
        Ok(known) if known.id() == id => return Ok(name),
        Ok(_) => {
            let why = format!("`{}` has another key", path.display());
            return Err(CommandError::new("exists", why).with_help("move it away, and import again").into());
        }
        Err(_) => {}
    }
    let made = std::fs::create_dir_all(folder).and_then(|()| key.write_new(&path));
    made.map_err(|error| host_failure(anyhow!(error).context(format!("`{}`", path.display()))))?;
    Ok(name)
}
