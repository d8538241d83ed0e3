//! Secret placeholders. A guest gets a random placeholder for each secret of a call; `injection` replaces it in requests.
//!
//! A placeholder has 128 random bits and belongs to one secret in one call. It is worthless outside the call.

use std::sync::Arc;

use parking_lot::Mutex;

use super::SecretEntry;

/// The prefix of each placeholder.
pub(super) const PREFIX: &str = "tbs_";
/// Random bytes of a placeholder, written as hex digits.
pub(super) const RANDOM_BYTES: usize = 16;

/// The placeholders of one call. A clone travels with each request and sees placeholders issued later, so responses
/// on connections opened earlier are searched for them, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecretPlaceholders(pub(super) Arc<Mutex<Vec<SecretPlaceholder>>>);

#[derive(Debug, Clone)]
pub(super) struct SecretPlaceholder {
    pub(super) text: Arc<str>,
    pub(super) entry: Arc<SecretEntry>,
}

impl SecretPlaceholders {
    /// Returns the placeholder for a secret, the same one for the whole call.
    ///
    /// # Errors
    /// When the system returns no random bytes.
    pub(crate) fn issue(&self, entry: &Arc<SecretEntry>) -> Result<String, String> {
        if let Some(placeholder) =
            self.issued().iter().find(|placeholder| Arc::ptr_eq(&placeholder.entry, entry))
        {
            return Ok(placeholder.text.as_ref().to_owned());
        }
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random)
            .map_err(|error| format!("the system returned no random bytes: {error}"))?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{PREFIX}{digits}");
        let placeholder = SecretPlaceholder { text: text.as_str().into(), entry: Arc::clone(entry) };
        self.0.lock().push(placeholder);
        Ok(text)
    }

    pub(super) fn issued(&self) -> Vec<SecretPlaceholder> {
        self.0.lock().clone()
    }
}
