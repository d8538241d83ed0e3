//! The `[[trust]]` rules of an archive, added to the policy with the files of their keys and roots.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use toml_edit::{Array, Table, value};
use toolbay::Policy;
use toolbay_distribution::archive::{ArchivedIdentity, ArchivedRule};
use toolbay_distribution::digest::BlobDigest;
use toolbay_distribution::signature::key::PublicKey;
use toolbay_distribution::signature::keyless::TrustRoot;
use toolbay_policy::excerpt::one_line;

use crate::output::CommandError;
use crate::policy_edit;
use crate::setup::named_path::path_failure;
use crate::setup::{PolicyFile, SetupArgs};

/// Longest text of an archive in a message, in characters.
const MAX_SHOWN: usize = 300;
/// Hex digits of a digest in the name of a file.
const SHOWN_DIGITS: usize = 16;

/// A rule that the policy does not have, and the files that it names.
struct NewRule {
    table: Table,
    files: Vec<(PathBuf, String)>,
    /// Whom it trusts.
    signers: Vec<String>,
}

/// Adds the rules whose scopes the policy does not have, and says whom it trusts now. Nothing is written unless the policy
/// with all of them is a good one.
pub(super) fn add(args: &SetupArgs, rules: &[ArchivedRule]) -> Result<()> {
    let file = PolicyFile::find_or_new(args, true)?;
    let policy = file.policy()?;
    let folder = file.path()?.parent().unwrap_or(Path::new("."));
    let added = rules.iter().filter(|rule| is_new(&policy, rule)).map(|rule| NewRule::new(folder, rule));
    let added = added.collect::<Result<Vec<NewRule>>>()?;
    if added.is_empty() {
        return Ok(());
    }
    let tables = added.iter().map(|rule| rule.table.clone());
    let text = policy_edit::with_trust_rules(file.text.as_deref().unwrap_or("version = 1\n"), tables)?;
    let parsed = Policy::parse(&text, folder, None);
    parsed.map_err(|error| refused(format!("with them, the policy would be wrong: {error}")))?;
    for (path, content) in added.iter().flat_map(|rule| &rule.files) {
        write_new(path, content)?;
    }
    policy_edit::write(&file, &text)?;
    for rule in added.iter().filter(|_| !args.printer.is_json()) {
        let scope = rule.table.get("scope").and_then(toml_edit::Item::as_str).unwrap_or_default();
        args.printer.note(&format!("the policy trusts {} for `{scope}`", rule.signers.join(", ")));
    }
    Ok(())
}

/// Says whom `--trust` would add to the policy.
pub(super) fn show_new(args: &SetupArgs, rules: &[ArchivedRule]) -> Result<()> {
    let policy = PolicyFile::find_or_new(args, true)?.policy()?;
    for rule in rules.iter().filter(|rule| is_new(&policy, rule)) {
        let new = NewRule::new(Path::new(""), rule)?;
        let (signers, scope) = (new.signers.join(", "), one_line(&rule.scope, MAX_SHOWN));
        args.printer.note(&format!("`--trust` would let the policy trust {signers} for `{scope}`"));
    }
    Ok(())
}

fn is_new(policy: &Policy, rule: &ArchivedRule) -> bool {
    !policy.trust_rules().any(|known| known.scope.to_string() == rule.scope)
}

fn refused(why: impl std::fmt::Display) -> anyhow::Error {
    CommandError::new("refused", format!("the rules of the archive are refused: {why}")).into()
}

impl NewRule {
    fn new(folder: &Path, rule: &ArchivedRule) -> Result<Self> {
        let mut new = Self { table: Table::new(), files: Vec::new(), signers: Vec::new() };
        new.table.insert("scope", value(rule.scope.as_str()));
        let mut names = Array::new();
        for text in &rule.keys {
            let key = PublicKey::from_pem(text).map_err(refused)?;
            new.signers.push(format!("key:{}", key.id().hex()));
            names.push(new.add_file(folder, &key.id().hex(), "pub", key.to_pem()));
        }
        if !names.is_empty() {
            new.table.insert("keys", value(names));
        }
        if let Some(ArchivedIdentity { identity, issuer, root, min_age }) = &rule.keyless {
            TrustRoot::parse(Path::new("root"), root.clone()).map_err(refused)?;
            let name = new.add_file(folder, &BlobDigest::of(root.as_bytes()).hex(), "json", root.clone());
            let texts = [("identity", identity), ("issuer", issuer), ("root", &name)];
            for (key, text) in texts.into_iter().chain(min_age.as_ref().map(|age| ("min_age", age))) {
                new.table.insert(key, value(text.as_str()));
            }
            new.signers.push(one_line(&format!("keyless:{issuer}|{identity}"), MAX_SHOWN));
        }
        Ok(new)
    }

    /// Adds a file beside the policy under the name of its content. Returns the name.
    fn add_file(&mut self, folder: &Path, hex: &str, extension: &str, content: String) -> String {
        let name = format!("{}.{extension}", hex.get(..SHOWN_DIGITS).unwrap_or_default());
        self.files.push((folder.join(&name), content));
        name
    }
}

/// Writes a file that does not exist, or has this content already.
fn write_new(path: &Path, content: &str) -> Result<()> {
    use std::io::Write as _;
    if std::fs::read_to_string(path).is_ok_and(|known| known == content) {
        return Ok(());
    }
    if path.symlink_metadata().is_ok() {
        let why = format!("`{}` has other content", path.display());
        return Err(CommandError::new("exists", why).with_help("move it away, and import again").into());
    }
    let write = || {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        std::fs::File::create_new(path)?.write_all(content.as_bytes())
    };
    write().map_err(|error| path_failure(anyhow!(error).context(format!("`{}`", path.display()))))
}
