//! The key ring of the system: the Secret Service on Linux and the BSDs, the Keychain on macOS. It can prompt its
//! user for a password, so the host waits for it with a time-out.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use keyring_core::{CredentialStore, Error};
use toolbay_policy::excerpt::one_line;
use zeroize::Zeroizing;

/// The service name of the entries.
const SERVICE: &str = "toolbay";
/// Maximum wait for an answer: a user may have to type a password.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of a reason in an error, in characters.
const MAX_REASON: usize = 300;

/// The key ring of the system. It is not asked again after a time-out.
#[derive(Debug, Default)]
pub(super) struct KeyRing {
    timed_out: bool,
}

impl KeyRing {
    /// Reads the value of an entry.
    ///
    /// # Errors
    /// When there is no value. The text contains nothing of the value.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, String> {
        self.read_with_timeout(name, ANSWER_TIMEOUT, credential_store)
    }

    /// Reads on a separate thread: the key ring client must not run inside an async runtime. A thread that hangs is
    /// abandoned, and the key ring is not asked again.
    fn read_with_timeout(
        &mut self,
        name: &str,
        timeout: Duration,
        store: impl FnOnce() -> Result<Arc<CredentialStore>, Error> + Send + 'static,
    ) -> Result<Vec<u8>, String> {
        let timeout_error = || format!("the key ring did not answer within {} seconds", timeout.as_secs());
        if self.timed_out {
            return Err(timeout_error());
        }
        let (sender, receiver) = mpsc::channel();
        let asked = name.to_owned();
        let work = move || drop(sender.send(read_value(&asked, store)));
        // The thread ends with the answer of the key ring. One that hangs stays, and no other is started.
        let started = std::thread::Builder::new().name("toolbay-key-ring".to_owned()).spawn(work);
        started.map_err(|error| format!("cannot start a thread to ask the key ring: {error}"))?;
        match receiver.recv_timeout(timeout) {
            Ok(Ok(mut value)) => Ok(std::mem::take(&mut *value)),
            Ok(Err(problem)) => Err(problem),
            Err(RecvTimeoutError::Timeout) => {
                self.timed_out = true;
                Err(timeout_error())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err("the thread that asked the key ring ended; see the log".to_owned())
            }
        }
    }
}

fn read_value(
    name: &str,
    store: impl FnOnce() -> Result<Arc<CredentialStore>, Error>,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let read = || store()?.build(SERVICE, name, None)?.get_secret();
    read().map(Zeroizing::new).map_err(|error| error_text(name, error))
}

/// Some errors carry the value in their text; their text is dropped.
fn error_text(name: &str, error: Error) -> String {
    let shown = |error: &dyn std::fmt::Display| one_line(&error.to_string(), MAX_REASON);
    match error {
        Error::NoEntry => format!("the key ring has no `{name}` of service `{SERVICE}`"),
        Error::Ambiguous(_) => format!("the key ring has more than one `{name}` of service `{SERVICE}`"),
        Error::NoStorageAccess(why) => format!("the key ring is locked or denies access: {}", shown(&why)),
        Error::NoDefaultStore => format!(
            "this build has no key ring, so `keyring:{name}` cannot be read: build with `--features keyring`, or use \
             `env:` or `file:`"
        ),
        Error::PlatformFailure(why) => format!("the key ring cannot be reached: {}", shown(&why)),
        Error::BadEncoding(value) | Error::BadDataFormat(value, _) => {
            drop(Zeroizing::new(value));
            format!("the key ring's value of `{name}` cannot be read")
        }
        other => format!("the key ring refused to read `{name}`: {}", shown(&other)),
    }
}

/// The store that the embedder chose, or the system's.
fn credential_store() -> Result<Arc<CredentialStore>, Error> {
    match keyring_core::get_default_store() {
        Some(chosen) => Ok(chosen),
        None => system(),
    }
}

#[cfg(all(feature = "keyring", target_os = "macos"))]
fn system() -> Result<Arc<CredentialStore>, Error> {
    Ok(apple_native_keyring_store::keychain::Store::new()?)
}

#[cfg(all(feature = "keyring", unix, not(target_os = "macos")))]
fn system() -> Result<Arc<CredentialStore>, Error> {
    Ok(zbus_secret_service_keyring_store::Store::new()?)
}

#[cfg(not(feature = "keyring"))]
fn system() -> Result<Arc<CredentialStore>, Error> {
    Err(Error::NoDefaultStore)
}

#[cfg(test)]
#[path = "key_ring_tests.rs"]
mod tests;
