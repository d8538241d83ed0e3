//! A NATS server of a test, and replicas that use it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use toolbay_policy::name::PluginId;
use toolbay_shared::nats::{
    AuditLimits, Connection, Credentials, Durability, EntriesLimits, OutputLimits, SharedAddress, StoragePlan,
};
use toolbay_shared::protocol::epoch::Epoch;
use toolbay_shared::publication::Publication;
use toolbay_shared::replica::{ContactObserver, Replica, ReplicaSettings};

use crate::process::NatsProcess;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(1);
pub(crate) const DURABILITY: Durability = Durability { replicas: 1 };
/// The durability of [`NatsServer::cluster`].
pub(crate) const CLUSTER: Durability = Durability { replicas: 3 };

/// The plugin with entries.
pub(crate) fn plugin() -> PluginId {
    PluginId::new("notes").unwrap()
}

/// A plan for [`plugin`], whose parts have this size.
pub(crate) fn storage_plan(keys: u64, bytes: u64, age: Duration) -> StoragePlan {
    StoragePlan {
        entries: [(plugin(), EntriesLimits { keys, bytes })].into(),
        outputs: OutputLimits { bytes, age },
        audit: AuditLimits { bytes, age: None },
    }
}

/// A server with what replicas and tests show it.
pub(crate) struct NatsServer {
    process: NatsProcess,
    pub(crate) credentials: Credentials,
    pub(crate) tls: bool,
}

impl Deref for NatsServer {
    type Target = NatsProcess;

    fn deref(&self) -> &NatsProcess {
        &self.process
    }
}

impl DerefMut for NatsServer {
    fn deref_mut(&mut self) -> &mut NatsProcess {
        &mut self.process
    }
}

impl NatsServer {
    pub(crate) fn start() -> Self {
        Self::configured("")
    }

    /// A server with these lines in its configuration.
    pub(crate) fn configured(lines: &str) -> Self {
        Self { process: NatsProcess::start(lines), credentials: Credentials::default(), tls: false }
    }

    /// Three servers that keep the same streams.
    pub(crate) fn cluster() -> [Self; 3] {
        let server = |process| Self { process, credentials: Credentials::default(), tls: false };
        NatsProcess::start_cluster().map(server)
    }

    pub(crate) fn address(&self) -> SharedAddress {
        let scheme = if self.tls { "tls" } else { "nats" };
        SharedAddress::parse(&format!("{scheme}://127.0.0.1:{}", self.port)).unwrap()
    }

    pub(crate) async fn connect(&self, name: &str) -> Connection {
        Connection::open(self.address(), &self.credentials, name).await.unwrap()
    }

    /// Creates the buckets, unless they exist.
    pub(crate) async fn publication(&self) -> Publication {
        self.publication_on(DURABILITY).await
    }

    /// Creates the buckets, unless they exist. A cluster takes a moment to elect its leader.
    pub(crate) async fn publication_on(&self, durability: Durability) -> Publication {
        let end = Instant::now() + PATIENCE;
        loop {
            let created = match Connection::open(self.address(), &self.credentials, "operator").await {
                Ok(connection) => Publication::create(&connection, durability).await,
                Err(error) => Err(error),
            };
            match created {
                Ok(publication) => return publication,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        }
    }

    /// Creates the streams of a plan.
    pub(crate) async fn create_storage(&self, plan: &StoragePlan) {
        self.create_storage_on(plan, DURABILITY).await;
    }

    /// Creates the streams of a plan.
    pub(crate) async fn create_storage_on(&self, plan: &StoragePlan, durability: Durability) {
        self.connect("operator").await.create_storage(plan, durability).await.unwrap();
    }

    pub(crate) async fn replica(&self, name: &str) -> (Replica, Arc<Journal>) {
        self.replica_with(name, Arc::default()).await
    }

    pub(crate) async fn replica_with(&self, name: &str, journal: Arc<Journal>) -> (Replica, Arc<Journal>) {
        let settings = ReplicaSettings {
            name: name.to_owned(),
            stale_after: STALE_AFTER,
            queue_timeout: PATIENCE,
            approval_life: Duration::from_secs(60),
        };
        let observer = Arc::clone(&journal) as _;
        self.publication().await;
        let replica = Replica::start(self.connect(name).await, settings, observer).await.unwrap();
        tokio::time::timeout(PATIENCE, replica.ready()).await.expect("fresh");
        (replica, journal)
    }
}

/// What the contact of a replica brought.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) disk: Mutex<Option<Epoch>>,
    pub(crate) applied: Mutex<Vec<u64>>,
    /// The epochs whose application has begun.
    pub(crate) begun: Mutex<Vec<u64>>,
    /// The epoch whose application does not end before there is a newer one.
    pub(crate) hangs_at: AtomicU64,
    /// The epoch whose application fails once.
    pub(crate) fails_at: AtomicU64,
    pub(crate) lost: AtomicUsize,
}

impl ContactObserver for Journal {
    fn persisted_epoch(&self) -> Option<Epoch> {
        self.disk.lock().clone()
    }

    fn apply(&self, epoch: Epoch, superseded: CancellationToken) -> BoxFuture<'_, Result<(), String>> {
        self.begun.lock().push(epoch.number);
        Box::pin(async move {
            if self.hangs_at.load(Ordering::Relaxed) == epoch.number {
                superseded.cancelled().await;
                return Err("a newer epoch replaced it".to_owned());
            }
            if self.fails_at.swap(0, Ordering::Relaxed) == epoch.number {
                return Err("the transfer stopped".to_owned());
            }
            *self.disk.lock() = Some(epoch.clone());
            self.applied.lock().push(epoch.number);
            Ok(())
        })
    }

    fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
