//! Key rings that have a value, have none, are locked, fail, hang or are absent.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::time::Instant;

use keyring_core::Entry;
use keyring_core::mock::{Cred, Store};
use secrecy::ExposeSecret as _;
use toolbay_policy::Policy;
use toolbay_policy::capability::secret::SecretSource;

use super::super::{SecretStore, source};
use super::*;

const CANARY: &str = "canary-of-the-key-ring";
const SOON: Duration = Duration::from_secs(20);

fn entry(store: &Arc<Store>, name: &str) -> Entry {
    use keyring_core::api::CredentialStoreApi as _;
    store.build(SERVICE, name, None).unwrap()
}

/// Reads from a mock store after `prepare`.
fn read_prepared(prepare: impl FnOnce(&Entry)) -> Result<Vec<u8>, String> {
    let store = Store::new().unwrap();
    prepare(&entry(&store, "token"));
    KeyRing::default().read_with_timeout("token", SOON, move || Ok(store))
}

fn read_failing(error: Error) -> String {
    let said = read_prepared(|entry| {
        entry.set_secret(CANARY.as_bytes()).unwrap();
        entry.as_any().downcast_ref::<Cred>().unwrap().set_error(error);
    });
    said.unwrap_err()
}

fn platform(text: &str) -> Box<dyn std::error::Error + Send + Sync> {
    Box::new(std::io::Error::other(text.to_owned()))
}

#[test]
fn a_key_ring_value_is_read() {
    assert_eq!(
        read_prepared(|entry| entry.set_secret(CANARY.as_bytes()).unwrap()).unwrap(),
        CANARY.as_bytes()
    );
    assert_eq!(read_prepared(|entry| entry.set_secret(b"\xff\x00").unwrap()).unwrap(), b"\xff\x00");
}

#[test]
fn a_missing_key_ring_entry_is_reported() {
    let said = read_prepared(|_| {}).unwrap_err();
    assert!(said.contains("has no `token` of service `toolbay`"), "{said}");
    // An entry under another name does not count.
    let said = read_prepared(|_| {
        let store = Store::new().unwrap();
        entry(&store, "other").set_secret(CANARY.as_bytes()).unwrap();
    });
    assert!(said.is_err());
}

#[test]
fn a_key_ring_error_is_reported_without_the_value() {
    let two = || {
        let store = Store::new().unwrap();
        let one = entry(&store, "token");
        one.set_secret(CANARY.as_bytes()).unwrap();
        vec![one]
    };
    for (error, part) in [
        (Error::NoStorageAccess(platform("dismissed\n\u{1b}[31m")), "is locked or denies access: dismissed"),
        (Error::PlatformFailure(platform("no bus")), "cannot be reached: no bus"),
        (Error::NoDefaultStore, "`keyring:token` cannot be read: build with `--features keyring`"),
        (Error::BadEncoding(CANARY.into()), "cannot be read"),
        (Error::BadDataFormat(CANARY.into(), platform(CANARY)), "cannot be read"),
        (Error::Ambiguous(two()), "more than one `token`"),
        (Error::TooLong("user".to_owned(), 3), "refused to read `token`"),
    ] {
        let said = read_failing(error);
        assert!(said.contains(part), "{said}");
        assert!(!said.contains(CANARY) && !said.contains('\u{1b}') && !said.contains('\n'), "{said}");
    }
    let said = read_failing(Error::PlatformFailure(platform(&"long ".repeat(1000))));
    assert!(said.chars().count() < 2 * MAX_REASON, "{said}");
}

#[test]
fn a_hanging_key_ring_is_waited_for_once() {
    let mut ring = KeyRing::default();
    let (hold, held) = mpsc::channel::<()>();
    let start = Instant::now();
    let hang = move || {
        let _ = held.recv();
        Err(Error::NoDefaultStore)
    };
    let said = ring.read_with_timeout("token", Duration::from_millis(50), hang).unwrap_err();
    assert!(said.contains("did not answer"), "{said}");
    let said = ring.read_with_timeout("other", SOON, || panic!("the key ring is asked again")).unwrap_err();
    assert!(said.contains("did not answer"), "{said}");
    assert!(start.elapsed() < SOON);
    drop(hold);
}

/// From a policy line to the secret store. One test, because the default credential store is global to the process.
#[test]
fn a_key_ring_secret_is_stored_like_any_other() {
    let text = |name: &str| format!("version = 1\n[secrets.T]\nfrom = \"keyring:{name}\"\nreveal = true");
    let policy = |name: &str| Policy::parse(&text(name), Path::new("/"), None).unwrap();
    // The result on this machine: without a session bus or the feature, the key ring is absent.
    let secrets = SecretStore::new(&policy("toolbay-test-is-not-there"));
    let problem = secrets.entry("T").unwrap_err();
    assert!(problem.contains("has no value: ") && problem.contains("key ring"), "{problem}");
    let store = Store::new().unwrap();
    entry(&store, "token").set_secret(CANARY.as_bytes()).unwrap();
    entry(&store, "binary").set_secret(b"\xff\xfe").unwrap();
    entry(&store, "huge").set_secret(&[b'x'; 20_000]).unwrap();
    keyring_core::set_default_store(store);
    let secrets = SecretStore::new(&policy("token"));
    assert_eq!(secrets.value("T"), Ok(CANARY));
    assert!(!format!("{secrets:?}").contains(CANARY), "{secrets:?}");
    let redactor = super::super::redactor(&[Arc::new(secrets)]).unwrap();
    assert!(!redactor.redact_text(&format!("say {CANARY}")).contains(CANARY));
    for (name, part) in [("binary", "not UTF-8"), ("huge", "20000 bytes"), ("none", "has no `none`")] {
        let problem = SecretStore::new(&policy(name)).entry("T").unwrap_err();
        assert!(problem.contains(part), "{problem}");
    }
    let read =
        source::read(&SecretSource::Keyring("token".to_owned()), Path::new("/"), &mut KeyRing::default());
    assert_eq!(read.unwrap().expose_secret(), CANARY);
    keyring_core::unset_default_store();
}
