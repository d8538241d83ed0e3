//! The key ring of the system: the Secret Service on Linux and the BSDs, the Keychain on macOS. It may ask its user for
//! a password first, so it is waited for, and not for ever.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use keyring_core::{CredentialStore, Error};
use toolbay_policy::text::one_line;
use zeroize::Zeroizing;

/// Under which service values are kept there.
const SERVICE: &str = "toolbay";
/// How long it may take to answer: somebody may have to type a password.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest reason that is repeated, in characters.
const MAX_REASON: usize = 300;

/// The key ring, as long as it answers.
#[derive(Debug, Default)]
pub(super) struct KeyRing {
    silent: bool,
}

impl KeyRing {
    /// Reads the value that is kept under a name.
    ///
    /// # Errors
    /// Why there is none. Nothing of the value is in the text.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, String> {
        self.ask(name, PATIENCE, store)
    }

    /// A thread asks: what speaks with the key ring may not run where a runtime does, and one that hangs is left there.
    /// It is asked nothing more then.
    fn ask(
        &mut self,
        name: &str,
        patience: Duration,
        store: impl FnOnce() -> Result<Arc<CredentialStore>, Error> + Send + 'static,
    ) -> Result<Vec<u8>, String> {
        let late = || format!("the key ring does not answer within {} seconds", patience.as_secs());
        if self.silent {
            return Err(late());
        }
        let (tell, told) = mpsc::channel();
        let asked = name.to_owned();
        let work = move || drop(tell.send(value(&asked, store)));
        // Ends with the answer of the key ring. A thread that hangs stays, and no other is started.
        let started = std::thread::Builder::new().name("toolbay-key-ring".to_owned()).spawn(work);
        started.map_err(|error| format!("no thread to ask the key ring in: {error}"))?;
        match told.recv_timeout(patience) {
            Ok(Ok(mut value)) => Ok(std::mem::take(&mut *value)),
            Ok(Err(problem)) => Err(problem),
            Err(RecvTimeoutError::Timeout) => {
                self.silent = true;
                Err(late())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err("the key ring could not be asked; see the log".to_owned())
            }
        }
    }
}

fn value(
    name: &str,
    store: impl FnOnce() -> Result<Arc<CredentialStore>, Error>,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let read = || store()?.build(SERVICE, name, None)?.get_secret();
    read().map(Zeroizing::new).map_err(|error| why(name, error))
}

/// Some errors carry the value, or show it: of those nothing is repeated.
fn why(name: &str, error: Error) -> String {
    let shown = |error: &dyn std::fmt::Display| one_line(&error.to_string(), MAX_REASON);
    match error {
        Error::NoEntry => format!("the key ring has no `{name}` of service `{SERVICE}`"),
        Error::Ambiguous(_) => format!("the key ring has more than one `{name}` of service `{SERVICE}`"),
        Error::NoStorageAccess(why) => format!("the key ring is locked, or lets nobody in: {}", shown(&why)),
        Error::NoDefaultStore => format!(
            "this build has no key ring, so `keyring:{name}` cannot be read: build with `--features keyring`, or use \
             `env:` or `file:`"
        ),
        Error::PlatformFailure(why) => format!("the key ring cannot be reached: {}", shown(&why)),
        Error::BadEncoding(value) | Error::BadDataFormat(value, _) => {
            drop(Zeroizing::new(value));
            format!("what the key ring has as `{name}` cannot be read")
        }
        other => format!("the key ring refuses `{name}`: {}", shown(&other)),
    }
}

/// The store that the program around this library chose, or the system's.
fn store() -> Result<Arc<CredentialStore>, Error> {
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
