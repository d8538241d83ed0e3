//! A key ring that has a value, has none, is locked, breaks, hangs, is not there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::time::Instant;

use keyring_core::Entry;
use keyring_core::mock::{Cred, Store};
use secrecy::ExposeSecret as _;
use toolbay_policy::Policy;
use toolbay_policy::capability::secret::SecretSource;

use super::super::{Vault, source};
use super::*;

const CANARY: &str = "canary-of-the-key-ring";
const SOON: Duration = Duration::from_secs(20);

fn entry(store: &Arc<Store>, name: &str) -> Entry {
    use keyring_core::api::CredentialStoreApi as _;
    store.build(SERVICE, name, None).unwrap()
}

/// Asks a mock store that was prepared so.
fn asked(prepare: impl FnOnce(&Entry)) -> Result<Vec<u8>, String> {
    let store = Store::new().unwrap();
    prepare(&entry(&store, "token"));
    KeyRing::default().ask("token", SOON, move || Ok(store))
}

fn failing(error: Error) -> String {
    let said = asked(|entry| {
        entry.set_secret(CANARY.as_bytes()).unwrap();
        entry.as_any().downcast_ref::<Cred>().unwrap().set_error(error);
    });
    said.unwrap_err()
}

fn platform(text: &str) -> Box<dyn std::error::Error + Send + Sync> {
    Box::new(std::io::Error::other(text.to_owned()))
}

#[test]
fn a_value_of_the_key_ring_is_found() {
    assert_eq!(asked(|entry| entry.set_secret(CANARY.as_bytes()).unwrap()).unwrap(), CANARY.as_bytes());
    assert_eq!(asked(|entry| entry.set_secret(b"\xff\x00").unwrap()).unwrap(), b"\xff\x00");
}

#[test]
fn a_key_ring_without_the_entry_says_so() {
    let said = asked(|_| {}).unwrap_err();
    assert!(said.contains("has no `token` of service `toolbay`"), "{said}");
    // What is kept for another service, or under another name, is not it.
    let said = asked(|_| {
        let store = Store::new().unwrap();
        entry(&store, "other").set_secret(CANARY.as_bytes()).unwrap();
    });
    assert!(said.is_err());
}

#[test]
fn a_key_ring_that_is_locked_or_broken_says_so_and_not_the_value() {
    let two = || {
        let store = Store::new().unwrap();
        let one = entry(&store, "token");
        one.set_secret(CANARY.as_bytes()).unwrap();
        vec![one]
    };
    for (error, part) in [
        (
            Error::NoStorageAccess(platform("dismissed\n\u{1b}[31m")),
            "is locked, or lets nobody in: dismissed",
        ),
        (Error::PlatformFailure(platform("no bus")), "cannot be reached: no bus"),
        (Error::NoDefaultStore, "`keyring:token` cannot be read: build with `--features keyring`"),
        (Error::BadEncoding(CANARY.into()), "cannot be read"),
        (Error::BadDataFormat(CANARY.into(), platform(CANARY)), "cannot be read"),
        (Error::Ambiguous(two()), "more than one `token`"),
        (Error::TooLong("user".to_owned(), 3), "refuses `token`"),
    ] {
        let said = failing(error);
        assert!(said.contains(part), "{said}");
        assert!(!said.contains(CANARY) && !said.contains('\u{1b}') && !said.contains('\n'), "{said}");
    }
    let said = failing(Error::PlatformFailure(platform(&"long ".repeat(1000))));
    assert!(said.chars().count() < 2 * MAX_REASON, "{said}");
}

#[test]
fn a_key_ring_that_hangs_is_waited_for_once() {
    let mut ring = KeyRing::default();
    let (hold, held) = mpsc::channel::<()>();
    let start = Instant::now();
    let hang = move || {
        let _ = held.recv();
        Err(Error::NoDefaultStore)
    };
    let said = ring.ask("token", Duration::from_millis(50), hang).unwrap_err();
    assert!(said.contains("does not answer"), "{said}");
    let said = ring.ask("other", SOON, || panic!("it is asked again")).unwrap_err();
    assert!(said.contains("does not answer"), "{said}");
    assert!(start.elapsed() < SOON);
    drop(hold);
}

/// The whole way: from a line of a policy to the vault. One test, since the chosen store is the process's.
#[test]
fn a_secret_from_the_key_ring_is_kept_as_every_other() {
    let text = |name: &str| format!("version = 1\n[secrets.T]\nfrom = \"keyring:{name}\"\nreveal = true");
    let policy = |name: &str| Policy::parse(&text(name), Path::new("/"), None).unwrap();
    // What this machine has: where there is no session bus, or no feature, no key ring.
    let vault = Vault::new(&policy("toolbay-test-is-not-there"));
    let problem = vault.held("T").unwrap_err();
    assert!(problem.contains("has no value: ") && problem.contains("key ring"), "{problem}");
    let store = Store::new().unwrap();
    entry(&store, "token").set_secret(CANARY.as_bytes()).unwrap();
    entry(&store, "binary").set_secret(b"\xff\xfe").unwrap();
    entry(&store, "huge").set_secret(&[b'x'; 20_000]).unwrap();
    keyring_core::set_default_store(store);
    let vault = Vault::new(&policy("token"));
    assert_eq!(vault.value("T"), Ok(CANARY));
    assert!(!format!("{vault:?}").contains(CANARY), "{vault:?}");
    let redactor = super::super::redactor(&[Arc::new(vault)]).unwrap();
    assert!(!redactor.text(&format!("say {CANARY}")).contains(CANARY));
    for (name, part) in [("binary", "not UTF-8"), ("huge", "20000 bytes"), ("none", "has no `none`")] {
        let problem = Vault::new(&policy(name)).held("T").unwrap_err();
        assert!(problem.contains(part), "{problem}");
    }
    let read =
        source::read(&SecretSource::Keyring("token".to_owned()), Path::new("/"), &mut KeyRing::default());
    assert_eq!(read.unwrap().expose_secret(), CANARY);
    keyring_core::unset_default_store();
}
