//! A NATS server of a test, and replicas that use it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use toolbay_shared::nats::{Connection, Credentials, Durability, SharedAddress};
use toolbay_shared::protocol::epoch::Epoch;
use toolbay_shared::publication::Publication;
use toolbay_shared::replica::{ContactObserver, Replica, ReplicaSettings};

const CONFIGURATION: &str = "nats.conf";
/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(1);

/// A server with its folder. It ends with the value.
pub(crate) struct NatsServer {
    folder: TempDir,
    process: Child,
    pub(crate) port: u16,
    /// What replicas and tests show it.
    pub(crate) credentials: Credentials,
    pub(crate) tls: bool,
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        drop((self.process.kill(), self.process.wait()));
    }
}

impl NatsServer {
    pub(crate) fn start() -> Self {
        Self::configured("")
    }

    /// A server with these lines in its configuration.
    pub(crate) fn configured(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CONFIGURATION), lines).unwrap();
        let process = spawn(folder.path(), 0);
        let mut server = Self { folder, process, port: 0, credentials: Credentials::default(), tls: false };
        server.port = server.await_port();
        server
    }

    /// What the server wrote to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The port from the file that the server writes when it listens.
    fn await_port(&self) -> u16 {
        let file = self.folder.path().join(format!("nats-server_{}.ports", self.process.id()));
        let end = Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let found = text.split("://").nth(1).and_then(|rest| rest.split(['"', '/']).next());
            match found.and_then(|address| address.rsplit_once(':')?.1.parse().ok()) {
                Some(port) => return port,
                None => assert!(Instant::now() < end, "the server does not listen: {text}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
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
        let durability = Durability { replicas: 1 };
        Publication::create(&self.connect("operator").await, durability).await.unwrap()
    }

    pub(crate) async fn replica(&self, name: &str) -> (Replica, Arc<Journal>) {
        self.replica_with(name, Arc::default()).await
    }

    pub(crate) async fn replica_with(&self, name: &str, journal: Arc<Journal>) -> (Replica, Arc<Journal>) {
        let settings = ReplicaSettings {
            name: name.to_owned(),
            stale_after: STALE_AFTER,
            queue_timeout: PATIENCE,
            durability: Durability { replicas: 1 },
        };
        let observer = Arc::clone(&journal) as _;
        self.publication().await;
        let replica = Replica::start(self.connect(name).await, settings, observer).await.unwrap();
        tokio::time::timeout(PATIENCE, replica.ready()).await.expect("fresh");
        (replica, journal)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// Kills the server and starts another one at the same port.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.folder.path(), self.port);
        self.await_port();
    }

    pub(crate) fn kill(&mut self) {
        drop((self.process.kill(), self.process.wait()));
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }
}

fn spawn(folder: &Path, port: u16) -> Child {
    let program = std::env::var_os("TOOLBAY_NATS_SERVER").expect("`cargo xtask replicas` runs these tests");
    let mut server = Command::new(program);
    server.arg("--addr").arg("127.0.0.1").arg("--port");
    server.arg(if port == 0 { "-1".to_owned() } else { port.to_string() });
    server.arg("--config").arg(folder.join(CONFIGURATION));
    server.arg("--jetstream").arg("--store_dir").arg(folder.join("store"));
    server.arg("--ports_file_dir").arg(folder).arg("--log").arg(folder.join("log"));
    server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// What the contact of a replica brought.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) disk: Mutex<Option<Epoch>>,
    pub(crate) applied: Mutex<Vec<u64>>,
    pub(crate) lost: AtomicUsize,
}

impl ContactObserver for Journal {
    fn persisted_epoch(&self) -> Option<Epoch> {
        self.disk.lock().clone()
    }

    fn apply(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), String>> {
        *self.disk.lock() = Some(epoch.clone());
        self.applied.lock().push(epoch.number);
        Box::pin(std::future::ready(Ok(())))
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
