//! The `secrets` interface of the contract.

use secrecy::ExposeSecret as _;
use toolbay_policy::GrantKey;
use toolbay_policy::capability::path_rule;

use crate::Capabilities;
use crate::bindings::host::secrets::{Host, Secret, SecretError};

impl Capabilities {
    /// One error for names that are undeclared, not granted, unknown or invalid, so that a guest cannot probe which
    /// secrets exist.
    fn secret_denied(&self, name: &str) -> SecretError {
        let shown = path_rule::printable_path(name);
        self.grantee.note(GrantKey::Secrets, &shown, false);
        let plugin = &self.grantee.plugin;
        SecretError::Denied(match &self.grantee.granted {
            None => format!("plugin `{plugin}` has no secrets while the host queries its metadata"),
            Some(granted) => {
                let text = format!("the secret `{shown}` is not granted to tool `{}`", granted.tool);
                let profile = self.grantee.profile();
                let hint = || granted.advice(plugin, profile, GrantKey::Secrets, name).hint();
                self.grantee.refuse_with(&text, hint)
            }
        })
    }
}

impl Host for Capabilities {
    fn get(&mut self, name: String) -> Result<Secret, SecretError> {
        let granted = self.grantee.granted.clone();
        let granted = granted.filter(|granted| granted.grants.secrets.iter().any(|rule| rule.matches(&name)));
        let Some(granted) = granted else { return Err(self.secret_denied(&name)) };
        let Ok(entry) = granted.services.secrets.entry(&name) else {
            self.grantee.note(GrantKey::Secrets, &name, false);
            return Err(SecretError::NotFound);
        };
        self.grantee.note(GrantKey::Secrets, &name, true);
        if entry.rule.reveal {
            return Ok(Secret { text: entry.value.expose_secret().to_owned(), revealed: true });
        }
        let text = self.placeholders.issue(entry).map_err(SecretError::Other)?;
        Ok(Secret { text, revealed: false })
    }
}
