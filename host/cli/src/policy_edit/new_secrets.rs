//! Secrets that a command names by reference: a secret of the policy, or a source that gets a section there.
//!
//! | written | becomes |
//! |---|---|
//! | `NAME` | the secret of this name, which the policy must have |
//! | `env:VARIABLE`, `file:/path`, `keyring:ENTRY` | a new section `[secrets."KIND/OWNER/WHAT"]` with this source |
//!
//! The value itself is never an argument: other users can read the arguments of a process.

use anyhow::{Result, anyhow};
use toml_edit::{Array, DocumentMut, Item, Table, value};
use toolbay_policy::excerpt::one_line;

use crate::policy_edit;

/// The prefixes of secret sources.
const SOURCES: [&str; 3] = ["env:", "file:", "keyring:"];

/// Who may get the value of a new secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SecretReceiver {
    /// A program gets the value itself.
    Program,
    /// The server of this origin: scheme, host and port.
    Origin(String),
}

impl SecretReceiver {
    /// The server of a URL.
    pub(crate) fn of_url(url: &str) -> Result<Self> {
        let bad = || anyhow!("`{}` is not the URL of a server: write `https://…`", one_line(url, 100));
        let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
        let authority =
            rest.split(['/', '?', '#']).next().filter(|authority| !authority.is_empty()).ok_or_else(bad)?;
        Ok(Self::Origin(format!("{scheme}://{authority}")))
    }
}

/// The sections of secrets to write with a server or a service.
#[derive(Debug, Clone)]
pub(crate) struct NewSecrets {
    /// `mcp/NAME`, the start of their names.
    owner: String,
    receiver: SecretReceiver,
    sections: Vec<(String, Table)>,
}

impl NewSecrets {
    /// No sections yet. `kind` and `name` are those of the section that uses the secrets.
    pub(crate) fn new(kind: &str, name: &str, receiver: SecretReceiver) -> Self {
        Self { owner: format!("{kind}/{name}"), receiver, sections: Vec::new() }
    }

    /// The name of a secret in the policy. A source gets a new section, for this header alone if one is named.
    pub(crate) fn reference(&mut self, what: &str, of: &str, header: Option<&str>) -> String {
        if !is_source(of) {
            return of.to_owned();
        }
        let name = format!("{}/{what}", self.owner);
        let mut section = Table::new();
        section.insert("from", value(of));
        match &self.receiver {
            SecretReceiver::Origin(origin) => section.insert("origins", value(Array::from_iter([origin]))),
            SecretReceiver::Program => section.insert("reveal", value(true)),
        };
        if let Some(header) = header {
            section.insert("headers", value(Array::from_iter([header])));
        }
        self.sections.push((name.clone(), section));
        name
    }

    /// Writes the sections into a policy, in place of those of the same names.
    pub(crate) fn write(self, document: &mut DocumentMut) -> Result<()> {
        if self.sections.is_empty() {
            return Ok(());
        }
        let secrets = policy_edit::sections(document, "secrets")?;
        for (name, section) in self.sections {
            secrets.remove(&name);
            secrets.insert(&name, Item::Table(section));
        }
        Ok(())
    }
}

/// Whether a text names the source of a secret instead of a secret of the policy.
pub(crate) fn is_source(text: &str) -> bool {
    SOURCES.iter().any(|source| text.starts_with(source))
}

/// Removes the secrets that were written with a section. Returns the headers of their sections.
pub(crate) fn remove(document: &mut DocumentMut, kind: &str, name: &str) -> Vec<String> {
    let own = format!("{kind}/{name}/");
    let Some(secrets) = document.get_mut("secrets").and_then(Item::as_table_like_mut) else {
        return Vec::new();
    };
    let keys: Vec<String> =
        secrets.iter().map(|(key, _)| key.to_owned()).filter(|key| key.starts_with(&own)).collect();
    keys.iter().for_each(|key| drop(secrets.remove(key)));
    keys.iter().map(|key| format!("[secrets.{key:?}]")).collect()
}
