//! `secrets`: credentials by name. What a guest gets is a stand-in, unless the operator chose to reveal the value.
//!
//! Values are read when the host is made and when its policy is read again. A value that is not there is no failure of the host: the tools that
//! need it are not available, and say why.

mod exchange;
mod key_ring;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use exchange::{Scrubber, Tokens};

use secrecy::{ExposeSecret, SecretString};
use toolbay_core::output::redact::{self, Redactor};
use toolbay_policy::capability::CapabilityKind;
use toolbay_policy::capability::net::Target;
use toolbay_policy::capability::secret::{self, SecretRule, Spot};
use toolbay_policy::refusal::Refusal;
use toolbay_policy::rule::Rule as _;
use toolbay_policy::{Grants, Key, Policy};
use url::Url;

use super::Capabilities;
use crate::engine::bindings::host::secrets::{Host, Secret, SecretError};
use key_ring::KeyRing;

/// Most secrets of one policy.
const MAX_SECRETS: usize = 256;

/// The values of the secrets.
#[derive(Debug)]
pub(crate) struct Vault {
    held: BTreeMap<String, Result<Arc<Held>, String>>,
}

/// One secret with its value. `SecretString` is wiped when it is dropped, and shows nothing when it is printed.
#[derive(Debug)]
pub(crate) struct Held {
    name: String,
    rule: secret::Secret,
    value: SecretString,
}

impl Vault {
    /// Reads what the policy names. Blocks on files and the key ring.
    pub(crate) fn new(policy: &Policy) -> Self {
        let (mut bytes, mut ring) = (0, KeyRing::default());
        let read = |(index, (name, rule)): (usize, (&str, &secret::Secret))| {
            let held = if index < MAX_SECRETS {
                source::read(&rule.from, policy.workspace(), &mut ring)
            } else {
                Err(format!("a policy has at most {MAX_SECRETS} secrets"))
            };
            let held = held.and_then(|value| {
                check(rule, value.expose_secret())?;
                bytes += value.expose_secret().len();
                if bytes > redact::MAX_BYTES {
                    return Err(format!(
                        "the values of all secrets are more than {} bytes",
                        redact::MAX_BYTES
                    ));
                }
                Ok(Arc::new(Held { name: name.to_owned(), rule: rule.clone(), value }))
            });
            match &held {
                Err(problem) => tracing::warn!(secret = name, "the secret has no value: {problem}"),
                Ok(held) if held.value.expose_secret().len() < redact::MIN_BYTES => tracing::warn!(
                    secret = name,
                    "a value of fewer than {} bytes is not taken out of results: it would be found in everything",
                    redact::MIN_BYTES
                ),
                Ok(_) => {}
            }
            (name.to_owned(), held)
        };
        Self { held: policy.secrets().enumerate().map(read).collect() }
    }

    /// A secret with its value, for what the operator himself sends it to.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn held(&self, name: &str) -> Result<&Arc<Held>, String> {
        match self.held.get(name) {
            Some(Ok(held)) => Ok(held),
            Some(Err(problem)) => Err(format!("the secret `{name}` has no value: {problem}")),
            None => Err(format!("there is no [secrets.{name:?}]")),
        }
    }

    /// What the policy says of a secret that has a value.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn rule(&self, name: &str) -> Result<&secret::Secret, String> {
        self.held(name).map(|held| &held.rule)
    }

    /// The value of a secret, for what the operator himself sends it to: a server of the policy.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn value(&self, name: &str) -> Result<&str, String> {
        self.held(name).map(|held| held.value.expose_secret())
    }

    /// Why a granted secret cannot be had, for each declaration of which that is true: whether the tool can do
    /// without, and the reason.
    pub(crate) fn missing(&self, grants: &Grants, policy: &Policy) -> Vec<(bool, Refusal)> {
        let of_secrets = grants
            .decisions
            .iter()
            .filter(|decision| decision.capability.kind == CapabilityKind::Secret && decision.hint.is_none());
        let missing = of_secrets.filter_map(|decision| {
            let rules: Vec<SecretRule> = decision
                .granted
                .iter()
                .filter_map(|text| SecretRule::parse(text, policy.workspace()).ok())
                .collect();
            let meant = |name: &str| rules.iter().any(|rule| rule.matches(name));
            if self.held.iter().any(|(name, held)| held.is_ok() && meant(name)) {
                return None;
            }
            let wish = &decision.capability.target;
            let why = self
                .held
                .iter()
                .find_map(|(name, held)| Some((name, held.as_ref().err()?)).filter(|_| meant(name)));
            let why = match why {
                Some((name, problem)) => Refusal::new(
                    format!("the secret `{name}` has no value"),
                    format!("Its source: {problem}. See `from` in [secrets.{name:?}]."),
                ),
                None => Refusal::new(
                    format!("there is no secret `{wish}` in the policy"),
                    format!("Write [secrets.{wish:?}] with `from`."),
                ),
            };
            Some((decision.capability.optional, why))
        });
        missing.collect()
    }
}

impl Held {
    /// Whether the value can stand in a cookie (RFC 6265, section 4.1.1).
    pub(crate) fn fits_cookie(&self) -> bool {
        let fits = |b: u8| (0x21..0x7f).contains(&b) && !b"\",;\\".contains(&b);
        self.value.expose_secret().bytes().all(fits)
    }

    /// Puts the value into the query of a request of the host's own, if the operator wants it in addresses.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn put_into_query(
        &self,
        target: &Target,
        parameter: &str,
        url: &mut Url,
    ) -> Result<(), Refusal> {
        if let Some(why) = self.rule.refusal(&self.name, target, Spot::Query(parameter)) {
            return Err(why);
        }
        url.query_pairs_mut().append_pair(parameter, self.value.expose_secret());
        Ok(())
    }
}

/// What takes the values of several vaults out of everything that leaves the host.
///
/// # Errors
/// When no search can be made of the values.
pub(crate) fn redactor(vaults: &[Arc<Vault>]) -> Result<Redactor, String> {
    let held = vaults.iter().flat_map(|vault| vault.held.values()).filter_map(|held| held.as_ref().ok());
    // A value that did not change is searched for once.
    let values: BTreeSet<(&str, &str)> =
        held.map(|held| (held.name.as_str(), held.value.expose_secret())).collect();
    Redactor::new(values)
}

/// What goes into a header must be one line (RFC 9110, section 5.5), or every request with it would fail.
fn check(rule: &secret::Secret, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err("it is empty".to_owned());
    }
    if !rule.reveal && value.contains(|c: char| c.is_control()) {
        return Err("it has a line break or a control character, which no header can carry".to_owned());
    }
    Ok(())
}

impl Capabilities {
    /// One text for names that were not declared, not granted, not known or are none, so that a guest does not learn
    /// which secrets there are.
    fn no_secret(&self, name: &str) -> SecretError {
        let shown = toolbay_policy::capability::reach::shown(name);
        self.who.note(Key::Secrets, &shown, false);
        let plugin = &self.who.plugin;
        SecretError::Denied(match &self.who.granted {
            None => format!("no secret can be had while plugin `{plugin}` is asked what it is"),
            Some(granted) => {
                let text = format!("the secret `{shown}` is not granted to tool `{}`", granted.tool);
                self.who.refuse_with(&text, || granted.advice(plugin, Key::Secrets, name).hint())
            }
        })
    }
}

impl Host for Capabilities {
    fn get(&mut self, name: String) -> Result<Secret, SecretError> {
        let granted = self.who.granted.clone();
        let granted = granted.filter(|granted| granted.grants.secrets.iter().any(|rule| rule.matches(&name)));
        let Some(granted) = granted else { return Err(self.no_secret(&name)) };
        let Ok(held) = granted.services.secrets.held(&name) else {
            self.who.note(Key::Secrets, &name, false);
            return Err(SecretError::NotFound);
        };
        self.who.note(Key::Secrets, &name, true);
        if held.rule.reveal {
            return Ok(Secret { text: held.value.expose_secret().to_owned(), revealed: true });
        }
        let text = self.tokens.issue(held).map_err(SecretError::Other)?;
        Ok(Secret { text, revealed: false })
    }
}
