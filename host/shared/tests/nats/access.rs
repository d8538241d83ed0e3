//! Who may connect: nkeys, permissions, TLS.

use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair as TlsKey};
use tempfile::TempDir;
use toolbay_policy::name::PluginId;
use toolbay_shared::bundle::Bundle;
use toolbay_shared::nats::{Connection, Credentials, Durability, Permissions, Role};
use toolbay_shared::publication::Publication;
use toolbay_shared::replica::{Replica, ReplicaSettings};

use crate::server::{Journal, NatsServer, STALE_AFTER, until};

fn plugin() -> PluginId {
    PluginId::new("notes").unwrap()
}

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
    let first = publication.publish(None, &Bundle::default()).await.unwrap();
    let component = publication.put_component(b"component").await.unwrap();

    server.credentials = as_replica;
    let connection = server.connect("r").await;
    let settings = ReplicaSettings {
        name: "r".to_owned(),
        stale_after: STALE_AFTER,
        queue_timeout: STALE_AFTER,
        approval_life: STALE_AFTER,
        durability: Durability { replicas: 1 },
    };
    let read = Publication::open(&connection).await.unwrap();
    assert_eq!(read.current().await.unwrap().unwrap().epoch, first);
    assert_eq!(read.component(&component, 100).await.unwrap(), b"component");
    let journal = std::sync::Arc::<Journal>::default();
    let own =
        Replica::start(connection.clone(), settings, std::sync::Arc::clone(&journal) as _).await.unwrap();
    until("the replica is in contact", || own.status().refusing.is_none()).await;
    until("the epoch is applied", || *journal.applied.lock() == [1]).await;
    let budget = toolbay_core::call::shared::Budget { calls: Some(5), cost_usd: None };
    own.shared_state().ledger.take_call("team", budget).await.unwrap();
    let cancel = tokio_util::sync::CancellationToken::new();
    own.shared_state().leases.acquire("queue", &cancel).await.unwrap().release();
    assert!(!server.log().contains("Publish Violation"), "{}", server.log());
    // Nothing comes back from a subject that is not allowed.
    let taken = read.publish(None, &Bundle::default()).await;
    assert!(taken.is_err(), "a replica published {taken:?}");
    assert!(server.log().contains("Publish Violation"), "{}", server.log());

    let stranger = Connection::open(server.address(), &Credentials::default(), "s").await.unwrap_err();
    assert!(stranger.to_string().contains("--shared nats://"), "{stranger}");
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
