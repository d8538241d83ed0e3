//! Who may connect: nkeys, permissions, TLS.

use std::time::Duration;

use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair as TlsKey};
use serde_json::json;
use tempfile::TempDir;
use toolbay_core::call::idempotency::{CallEnd, CallKey, KeyState};
use toolbay_core::call::shared::{SharedState, TaskMessage, TaskRecord};
use toolbay_core::session::kv::{Bucket, KvStore as _, Quota};
use toolbay_core::session::output_store::{OutputQuota, OutputStore as _, SavedText};
use toolbay_core::tool::canonical;
use toolbay_policy::capability::kv::KvScope;
use toolbay_shared::audit::AuditTail;
use toolbay_shared::bundle::Bundle;
use toolbay_shared::nats::{Connection, Credentials, Permissions, Role};
use toolbay_shared::publication::Publication;
use toolbay_shared::replica::{Replica, ReplicaSettings};

use crate::server::{DURABILITY, Journal, NatsServer, STALE_AFTER, plugin, storage_plan, until};

const LIFE: Duration = Duration::from_secs(60);

/// A user of NATS with an nkey, whose seed is in a file.
fn user(folder: &TempDir, name: &str, role: Role) -> (String, Credentials) {
    let pair = KeyPair::new_user();
    let seed = folder.path().join(name);
    std::fs::write(&seed, pair.seed().unwrap()).unwrap();
    let permissions = Permissions::new("toolbay", role, &[plugin()]);
    let block = format!("{{ nkey: {}, {permissions} }}", pair.public_key());
    (block, Credentials { nkey: Some(seed), ..Credentials::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_permissions_are_enough_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (operator, as_operator) = user(&folder, "operator", Role::Operator);
    let (replica, as_replica) = user(&folder, "replica", Role::Replica);
    let mut server = NatsServer::configured(&format!("authorization {{ users: [{operator}, {replica}] }}"));
    server.credentials = as_operator;
    let publication = server.publication().await;
    let first = publication.publish(None, &Bundle::default(), 0).await.unwrap().epoch;
    let component = publication.put_component(b"component").await.unwrap();
    let plan = storage_plan(9, 1 << 20, LIFE);
    server.create_storage(&plan).await;

    server.credentials = as_replica;
    let connection = server.connect("r").await;
    let settings = ReplicaSettings {
        name: "r".to_owned(),
        stale_after: STALE_AFTER,
        queue_timeout: STALE_AFTER,
        approval_life: STALE_AFTER,
    };
    let read = Publication::open(&connection).await.unwrap();
    assert_eq!(read.current().await.unwrap().unwrap().epoch, first);
    assert_eq!(read.component(&component, 100).await.unwrap(), b"component");
    let journal = std::sync::Arc::<Journal>::default();
    let own =
        Replica::start(connection.clone(), settings, std::sync::Arc::clone(&journal) as _).await.unwrap();
    until("the replica is in contact", || own.status().refusing.is_none()).await;
    until("the epoch is applied", || *journal.applied.lock() == [1]).await;
    let budget = toolbay_core::session::ledger::Budget { calls: Some(5), cost_usd: None };
    own.shared_state().ledger.take_call("team", budget).await.unwrap();
    let cancel = tokio_util::sync::CancellationToken::new();
    own.shared_state().leases.acquire("queue", &cancel).await.unwrap().release();
    assert_eq!(connection.check(&plan, DURABILITY).await.unwrap(), Vec::<String>::new());
    use_storage(&own).await;
    use_calls(&own.shared_state()).await;
    assert!(!server.log().contains("Publish Violation"), "{}", server.log());
    // Nothing comes back from a subject that is not allowed.
    let taken = read.publish(None, &Bundle::default(), 0).await;
    assert!(taken.is_err(), "a replica published {taken:?}");
    assert!(server.log().contains("Publish Violation"), "{}", server.log());

    let stranger = Connection::open(server.address(), &Credentials::default(), "s").await.unwrap_err();
    assert!(stranger.to_string().contains("--shared nats://"), "{stranger}");
}

/// Uses the storage of plugins, saved outputs and the audit.
async fn use_storage(replica: &Replica) {
    let (kv, quota) = (replica.kv_store(), Quota { value_bytes: 100, bytes: 1 << 20, keys: 9 });
    let bucket = Bucket::new(plugin(), KvScope::Plugin, "").unwrap();
    kv.set(&bucket, "k", b"1".to_vec(), None, quota).await.unwrap();
    assert_eq!(kv.increment(&bucket, "k", 1, quota).await.unwrap(), 2);
    assert_eq!(kv.keys(&bucket, "", None, 9).await.unwrap(), ["k"]);
    kv.remove(&bucket, "k").await.unwrap();
    let quota = OutputQuota { bytes: 1 << 20, session_bytes: 1 << 20, age: LIFE };
    let outputs = replica.output_store(quota).await.unwrap();
    let text = SavedText { text: "t".into(), source: "p".into(), tool: "p__t".into(), untrusted: false };
    let id = outputs.put("session", text.clone()).await.unwrap();
    assert_eq!(outputs.get("session", &id).await, Some(text));
    let audit = replica.audit_stream().await.unwrap();
    assert_eq!(audit.last().await.unwrap(), None);
    let lines = ["first".to_owned(), "second".to_owned()];
    let appended = audit.append(AuditTail::default(), &lines).await;
    assert_eq!(appended.count, 2);
    let last = audit.last().await.unwrap().unwrap();
    assert_eq!((last.tail, &*last.line, last.tail.number), (appended.tail, "second", 2));
}

/// Uses idempotency keys, approvals and tasks.
async fn use_calls(shared: &SharedState) {
    let (key, digest) = (CallKey { session: "s".into(), key: "k".into() }, canonical::sha256(&json!(1)));
    let KeyState::Claimed(claim) = shared.calls.claim(&key, digest, false).await.unwrap() else { panic!() };
    shared.calls.settle(key.clone(), claim, CallEnd::NotBegun).await;
    assert!(matches!(shared.calls.claim(&key, digest, false).await.unwrap(), KeyState::Claimed(_)));
    shared.approvals.add("team", digest).await;
    assert!(shared.approvals.contains("team", digest).await);
    let state = "x".repeat(1 << 18);
    let record = TaskRecord {
        id: "t".to_owned(),
        owner: "team".into(),
        state: state.clone(),
        has_ended: false,
        life: LIFE,
    };
    shared.tasks.put(record).await.unwrap();
    let task = shared.tasks.get("team", "t").await.unwrap().unwrap();
    assert!(task.state == state);
    shared.tasks.send(&task, TaskMessage { cancel: true, ..TaskMessage::default() }).await.unwrap();
    assert!(shared.tasks.receive().await.1.cancel);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_encrypted_and_its_server_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (authority_key, server_key) = (TlsKey::generate().unwrap(), TlsKey::generate().unwrap());
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = leaf.signed_by(&server_key, &issuer).unwrap();
    std::fs::write(at("ca.pem"), root.pem()).unwrap();
    std::fs::write(at("server.pem"), certificate.pem()).unwrap();
    std::fs::write(at("server.key"), server_key.serialize_pem()).unwrap();
    let mut server = NatsServer::configured(&format!(
        "tls {{ cert_file: '{}', key_file: '{}' }}",
        at("server.pem").display(),
        at("server.key").display()
    ));
    server.tls = true;
    let unknown = Connection::open(server.address(), &Credentials::default(), "r").await.unwrap_err();
    assert!(unknown.to_string().contains("certificate"), "{unknown}");
    server.credentials.authorities = Some(at("ca.pem"));
    let (replica, _) = server.replica("r").await;
    assert!(replica.status().refusing.is_none());
}
