//! `secrets`: credentials by name. A guest gets a placeholder, unless the operator chose to reveal the value.
//!
//! Values are read when the host starts and at every policy reload. A missing value does not stop the host: the tools
//! that need it are unavailable and report why.

mod contract;
#[cfg(feature = "net")]
mod injection;
mod key_ring;
mod placeholder;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(feature = "net")]
pub(crate) use injection::Scrubber;
pub(crate) use placeholder::SecretPlaceholders;

use secrecy::{ExposeSecret, SecretString};
use toolbay_core::output::redact::{self, Redactor};
use toolbay_policy::capability::CapabilityKind;
use toolbay_policy::capability::secret::{self, SecretRule};
use toolbay_policy::limits::CallLimits;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::rule::GrantRule as _;
use toolbay_policy::{GrantKey, Grants, Policy};
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use crate::HasCapabilities;
use crate::bindings::host;
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};
use key_ring::KeyRing;

/// Maximum number of secrets of one policy.
const MAX_SECRETS: usize = 256;

/// Credentials of the operator, which guests name but do not see.
pub(crate) struct Secrets;

impl Capability for Secrets {
    const KEYS: &'static [GrantKey] = &[GrantKey::Secrets];

    type State = SecretPlaceholders;

    fn begin(_: &CallLimits) -> SecretPlaceholders {
        SecretPlaceholders::default()
    }

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        host::secrets::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)
    }
}

/// The secrets of a policy with their values.
#[derive(Debug)]
pub struct SecretStore {
    entries: BTreeMap<String, Result<Arc<SecretEntry>, String>>,
}

/// One secret with its value. `SecretString` zeroes the value on drop and hides it in `Debug` output.
#[derive(Debug)]
pub(crate) struct SecretEntry {
    name: String,
    rule: secret::Secret,
    value: SecretString,
}

impl SecretStore {
    /// Reads the secrets of the policy. Blocks on files and the key ring.
    pub fn new(policy: &Policy) -> Self {
        let (mut bytes, mut ring) = (0, KeyRing::default());
        let read = |(index, (name, rule)): (usize, (&str, &secret::Secret))| {
            let entry = if index < MAX_SECRETS {
                source::read(&rule.from, policy.workspace(), &mut ring)
            } else {
                Err(format!("a policy has at most {MAX_SECRETS} secrets"))
            };
            let entry = entry.and_then(|value| {
                check_value(rule, value.expose_secret())?;
                bytes += value.expose_secret().len();
                if bytes > redact::MAX_BYTES {
                    return Err(format!(
                        "the values of all secrets are more than {} bytes",
                        redact::MAX_BYTES
                    ));
                }
                Ok(Arc::new(SecretEntry { name: name.to_owned(), rule: rule.clone(), value }))
            });
            match &entry {
                Err(problem) => tracing::warn!(secret = name, "the secret has no value: {problem}"),
                Ok(entry) if entry.value.expose_secret().len() < redact::MIN_BYTES => tracing::warn!(
                    secret = name,
                    "the secret is shorter than {} bytes and is not redacted: short values occur everywhere",
                    redact::MIN_BYTES
                ),
                Ok(_) => {}
            }
            (name.to_owned(), entry)
        };
        Self { entries: policy.secrets().enumerate().map(read).collect() }
    }

    /// Reads one secret of the policy. Blocks on files and the key ring.
    ///
    /// # Errors
    /// When the secret has no value.
    pub fn read_one(policy: &Policy, name: &str) -> Result<SecretString, String> {
        let found = policy.secrets().find(|(known, _)| *known == name);
        let (_, rule) = found.ok_or_else(|| format!("there is no [secrets.{name:?}]"))?;
        let value = source::read(&rule.from, policy.workspace(), &mut KeyRing::default())?;
        check_value(rule, value.expose_secret())?;
        Ok(value)
    }

    /// Why the value of a secret cannot be used, for the check of a policy; `None` if it can. Blocks like
    /// [`Self::read_one`].
    pub fn problem(policy: &Policy, name: &str) -> Option<String> {
        match Self::read_one(policy, name) {
            Err(problem) => Some(format!("the secret has no value here: {problem}")),
            Ok(value) if value.expose_secret().len() < redact::MIN_BYTES => Some(format!(
                "the value is shorter than {} bytes and is not redacted: short values occur everywhere",
                redact::MIN_BYTES
            )),
            Ok(_) => None,
        }
    }

    /// Returns a secret with its value, for requests that the operator configured.
    ///
    /// # Errors
    /// When the secret has no value.
    pub(crate) fn entry(&self, name: &str) -> Result<&Arc<SecretEntry>, String> {
        match self.entries.get(name) {
            Some(Ok(entry)) => Ok(entry),
            Some(Err(problem)) => Err(format!("the secret `{name}` has no value: {problem}")),
            None => Err(format!("there is no [secrets.{name:?}]")),
        }
    }

    /// Returns the policy's rule of a secret with a value.
    ///
    /// # Errors
    /// When the secret has no value.
    pub fn rule(&self, name: &str) -> Result<&secret::Secret, String> {
        self.entry(name).map(|entry| &entry.rule)
    }

    /// Returns the value of a secret, for an MCP server of the policy.
    ///
    /// # Errors
    /// When the secret has no value.
    pub fn value(&self, name: &str) -> Result<&str, String> {
        self.entry(name).map(|entry| entry.value.expose_secret())
    }

    /// Returns the declared secrets that are granted but have no value: whether each is optional, and the reason.
    pub fn missing_secrets(&self, grants: &Grants, policy: &Policy) -> Vec<(bool, PolicyRefusal)> {
        let of_secrets = grants.decisions.iter().filter(|decision| {
            decision.capability.kind == CapabilityKind::Secret && decision.advice.is_none()
        });
        let missing = of_secrets.filter_map(|decision| {
            let rules: Vec<SecretRule> = decision
                .granted
                .iter()
                .filter_map(|text| SecretRule::parse(text, policy.workspace()).ok())
                .collect();
            let matches = |name: &str| rules.iter().any(|rule| rule.matches(name));
            if self.entries.iter().any(|(name, entry)| entry.is_ok() && matches(name)) {
                return None;
            }
            let target = &decision.capability.target;
            let why = self
                .entries
                .iter()
                .find_map(|(name, entry)| Some((name, entry.as_ref().err()?)).filter(|_| matches(name)));
            let why = match why {
                Some((name, problem)) => PolicyRefusal::new(
                    format!("the secret `{name}` has no value"),
                    format!("Its source failed: {problem}. See `from` in [secrets.{name:?}]."),
                ),
                None => PolicyRefusal::new(
                    format!("there is no secret `{target}` in the policy"),
                    format!("Write [secrets.{target:?}] with `from`."),
                ),
            };
            Some((decision.capability.optional, why))
        });
        missing.collect()
    }
}

/// Builds the redactor for the values of several stores.
///
/// # Errors
/// When no search automaton can be built over the values.
pub(crate) fn redactor(stores: &[Arc<SecretStore>]) -> Result<Redactor, String> {
    let entries =
        stores.iter().flat_map(|store| store.entries.values()).filter_map(|entry| entry.as_ref().ok());
    // An unchanged value occurs in several stores; it is searched for once.
    let values: BTreeSet<(&str, &str)> =
        entries.map(|entry| (entry.name.as_str(), entry.value.expose_secret())).collect();
    Redactor::new(values)
}

/// A header value must be a single line (RFC 9110, section 5.5), or every request with it would fail.
fn check_value(rule: &secret::Secret, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err("it is empty".to_owned());
    }
    if !rule.reveal && value.contains(|c: char| c.is_control()) {
        return Err(
            "the value contains a line break or control character, which a header cannot carry".to_owned()
        );
    }
    Ok(())
}
