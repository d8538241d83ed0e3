//! What shared state costs a call and a key-value operation, and what more servers add, with a real NATS server on this
//! machine.
//!
//! `cargo xtask bench replicas`. Targets: a call under a shared budget at most 1.15 times one without shared state, both
//! through a server and in the library; a key-value operation at most 1.3 times the same request of a bare client of NATS;
//! three servers at least 2.7 times the calls of one. For the last one, processors are simulated: each server runs at
//! most four calls at once, and each call sleeps for 20 ms, so that the two processors of this machine do not limit three
//! servers. The sides alternate in short rounds.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use toolbay::core::session::kv::{Bucket, KvStore, Quota};
use toolbay::policy::capability::kv::KvScope;
use toolbay::{PluginId, Session, ToolCall, TurnContext};
use toolbay_shared::nats::{
    AuditLimits, Connection, Credentials, Durability, EntriesLimits, OutputLimits, SharedAddress, StoragePlan,
};
use toolbay_shared::protocol::epoch::Epoch;
use toolbay_shared::publication::Publication;
use toolbay_shared::replica::{ContactObserver, Replica, ReplicaSettings};

use crate::figures::{keep, median, print_table, rounds};
use crate::library::LibraryBench;
use crate::process::built;
use crate::protocol::{HttpSite, MODERN};

const ROUNDS: usize = 30;
const CALLS: usize = 500;
const OPERATIONS: usize = 200;
/// Calls of each server in a round of the last benchmark.
const SLEEPS: usize = 40;
/// Calls that a server of the last benchmark runs at once.
const PROCESSORS: usize = 4;
const DURABILITY: Durability = Durability { replicas: 1 };
const BUDGET: &str = "[session]\nmax_calls = 1_000_000\nmax_identical_calls = 1_000_000\n";
const QUOTA: Quota = Quota { value_bytes: 1 << 20, bytes: 16 << 20, keys: 10_000 };

/// A NATS server. It ends with the value.
struct NatsProcess {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for NatsProcess {
    fn drop(&mut self) {
        drop((self.process.kill(), self.process.wait()));
    }
}

impl NatsProcess {
    fn start() -> Self {
        // `cargo xtask bench` installs it.
        let program = std::env::var_os("TOOLBAY_NATS_SERVER").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Command::new(program);
        server.args(["--addr", "127.0.0.1", "--port", "-1", "--jetstream", "--store_dir"]);
        server.arg(folder.path().join("store")).arg("--ports_file_dir").arg(folder.path());
        let process = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let file = folder.path().join(format!("nats-server_{}.ports", process.id()));
        let address = loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let ports: Option<serde_json::Value> = serde_json::from_str(&text).ok();
            if let Some(address) = ports.as_ref().and_then(|ports| ports["nats"][0].as_str()) {
                break address.to_owned();
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Self { process, address, _folder: folder }
    }

    async fn connect(&self, name: &str) -> Connection {
        let address = SharedAddress::parse(&self.address).unwrap();
        Connection::open(address, &Credentials::default(), name).await.unwrap()
    }

    async fn replica(&self, name: &str) -> Replica {
        let connection = self.connect(name).await;
        Publication::create(&connection, DURABILITY).await.unwrap();
        let settings = ReplicaSettings {
            name: name.to_owned(),
            stale_after: Duration::from_secs(2),
            queue_timeout: Duration::from_secs(30),
            approval_life: Duration::from_secs(60),
        };
        let replica = Replica::start(connection, settings, Arc::new(NoEpochs)).await.unwrap();
        replica.ready().await;
        replica
    }
}

/// Nothing is published.
#[derive(Debug)]
struct NoEpochs;

impl ContactObserver for NoEpochs {
    fn persisted_epoch(&self) -> Option<Epoch> {
        None
    }

    fn apply(&self, _: Epoch, _: CancellationToken) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn lost(&self) {}
}

/// A host on its own, or one that shares state.
struct Side {
    library: LibraryBench,
    session: Arc<Session>,
    _replica: Option<Replica>,
}

impl Side {
    async fn new(guest: &str, policy: &str, replica: Option<Replica>) -> Self {
        let library = LibraryBench::of(guest, policy, Path::new("/"), |builder| match &replica {
            Some(replica) => builder.shared_state(replica.shared_state()),
            None => builder,
        });
        let library = library.await;
        Self { library, session: Arc::new(Session::with_name("team")), _replica: replica }
    }

    async fn call(&self, tool: &str, args: &str) {
        let turn = TurnContext { session: Arc::clone(&self.session), ..TurnContext::default() };
        let calls = vec![ToolCall::new("1", tool, args)];
        let mut results = self.library.host.call_all(&self.library.view, calls, turn).await;
        results.swap_remove(0).result.unwrap();
    }
}

pub(crate) fn run() {
    let runtime = Runtime::new().unwrap();
    let nats = NatsProcess::start();
    calls_through_servers(&nats);
    calls(&runtime, &nats);
    operations(&runtime, &nats);
    servers(&runtime, &nats);
}

/// The time of one call with a budget through `toolbay serve`, without `--shared` and with it.
fn calls_through_servers(nats: &NatsProcess) {
    let Some(toolbay) = built("toolbay") else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("plugins")).unwrap();
    std::fs::copy(guest_artifacts::BENCH_ECHO, at("plugins/bench.wasm")).unwrap();
    let limits = "[serve.limits]\nrequests_per_second = 1_000_000\n";
    std::fs::write(at("toolbay.toml"), format!("version = 1\n{limits}{BUDGET}")).unwrap();
    let shared = format!("{}/served", nats.address);
    let command = |args: &[&str], state: &str| {
        let mut command = Command::new(&toolbay);
        command.args(args).arg("--state-dir").arg(at(state)).arg("--cache-dir").arg(at("cache"));
        command
    };
    let with_files = |mut command: Command| {
        command.arg("--plugins").arg(at("plugins")).arg("--config").arg(at("toolbay.toml"));
        command
    };
    let published = with_files(command(&["shared", "publish", "--shared", &shared], "alone")).status();
    assert!(published.unwrap().success());
    let serve = ["serve", "--http", "127.0.0.1:0"];
    let replica = [&serve[..], &["--shared", &shared, "--replica", "r"]].concat();
    let mut sites = [
        HttpSite::open(with_files(command(&serve, "alone")), "bench__echo"),
        HttpSite::open(command(&replica, "shared"), "bench__echo"),
    ];
    let mut lines = [sites[0].line(MODERN), sites[1].line(MODERN)];
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=rounds(ROUNDS) {
        for ((site, line), times) in sites.iter_mut().zip(&mut lines).zip(&mut times) {
            let sum: f64 = (0..CALLS).map(|_| line.call(&mut site.wording, MODERN)).sum();
            if round > 0 {
                times.push(sum / CALLS as f64);
            }
        }
    }
    let [alone, shared] = times.map(|mut times| median(&mut times));
    keep("replica_call_ratio", shared / alone);
    print_table(&format!(
        "\n| a call of `bench__echo` with a budget over HTTP | time | ratio |\n|---|---|---|\n\
         | `toolbay serve` | {alone:.1} µs | |\n| `toolbay serve --shared` | {shared:.1} µs | {:.2} |\n",
        shared / alone
    ));
}

/// The time of one call with a budget in the library, without shared state and with it.
fn calls(runtime: &Runtime, nats: &NatsProcess) {
    let guest = guest_artifacts::BENCH_ECHO;
    let sides = runtime.block_on(async {
        [Side::new(guest, BUDGET, None).await, Side::new(guest, BUDGET, Some(nats.replica("a").await)).await]
    });
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=rounds(ROUNDS) {
        for (side, times) in sides.iter().zip(&mut times) {
            let start = Instant::now();
            runtime.block_on(async {
                for _ in 0..CALLS {
                    side.call("bench__echo", r#"{"text":"a"}"#).await;
                }
            });
            if round > 0 {
                times.push(start.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
            }
        }
    }
    let [alone, shared] = times.map(|mut times| median(&mut times));
    keep("shared_call_ratio", shared / alone);
    print_table(&format!(
        "\n| a call of `bench__echo` with a budget in the library | time | ratio |\n|---|---|---|\n| on its own | {alone:.2} µs | |\n\
         | with shared state | {shared:.2} µs | {:.2} |\n",
        shared / alone
    ));
}

/// The time of a key-value operation, beside the same request of a bare client.
fn operations(runtime: &Runtime, nats: &NatsProcess) {
    let plugin = PluginId::new("bench").unwrap();
    let bucket = Bucket::new(plugin.clone(), KvScope::Plugin, "").unwrap();
    let value = vec![b'v'; 100];
    let (store, bare) = runtime.block_on(async {
        let plan = StoragePlan {
            entries: [(plugin, EntriesLimits { keys: QUOTA.keys, bytes: QUOTA.bytes })].into(),
            outputs: OutputLimits { bytes: 1 << 20, age: Duration::from_secs(3600) },
            audit: AuditLimits { bytes: 1 << 20, age: None },
        };
        nats.connect("operator").await.create_storage(&plan, DURABILITY).await.unwrap();
        let client = async_nats::connect(&nats.address).await.unwrap();
        let context = jetstream::new(client);
        let bare = context.get_key_value("toolbay_kv_bench").await.unwrap();
        (nats.replica("b").await.kv_store(), bare)
    });
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=rounds(ROUNDS) {
        let mut add = |at: usize, start: Instant| {
            if round > 0 {
                times[at].push(start.elapsed().as_secs_f64() * 1e6 / OPERATIONS as f64);
            }
        };
        runtime.block_on(async {
            let start = Instant::now();
            for _ in 0..OPERATIONS {
                bare.put("bare", value.clone().into()).await.unwrap();
            }
            add(0, start);
            let start = Instant::now();
            for _ in 0..OPERATIONS {
                store.set(&bucket, "key", value.clone(), None, QUOTA).await.unwrap();
            }
            add(1, start);
            let start = Instant::now();
            for _ in 0..OPERATIONS {
                assert!(bare.get("bare").await.unwrap().is_some());
            }
            add(2, start);
            let start = Instant::now();
            for _ in 0..OPERATIONS {
                assert!(store.get(&bucket, "key").await.unwrap().is_some());
            }
            add(3, start);
        });
    }
    let [bare_set, set, bare_get, get] = times.map(|mut times| median(&mut times));
    keep("shared_set_ratio", set / bare_set);
    keep("shared_get_ratio", get / bare_get);
    print_table(&format!(
        "\n| key-value operation | bare NATS | the store | ratio |\n|---|---|---|---|\n\
         | set | {bare_set:.1} µs | {set:.1} µs | {:.2} |\n| get | {bare_get:.1} µs | {get:.1} µs | {:.2} |\n",
        set / bare_set,
        get / bare_get
    ));
}

/// The calls of a second that one server and three servers run under one budget.
fn servers(runtime: &Runtime, nats: &NatsProcess) {
    let policy = format!("{BUDGET}[limits]\nconcurrency = {PROCESSORS}\n");
    let servers: Vec<Arc<Side>> = runtime.block_on(async {
        let mut servers = Vec::new();
        for name in ["c", "d", "e"] {
            let replica = nats.replica(name).await;
            let side = Side::new(guest_artifacts::HOSTILE_SLEEP, &policy, Some(replica)).await;
            servers.push(Arc::new(side));
        }
        servers
    });
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..=rounds(ROUNDS / 3) {
        for (count, rates) in [1, 3].into_iter().zip(&mut rates) {
            let start = Instant::now();
            runtime.block_on(async {
                let mut clients = Vec::new();
                for server in &servers[..count] {
                    // More clients than processors, so that each one always has a call.
                    for _ in 0..PROCESSORS * 2 {
                        let server = Arc::clone(server);
                        clients.push(tokio::spawn(async move {
                            for _ in 0..SLEEPS / PROCESSORS {
                                server.call("bench__sleep", r#"{"ms": 20}"#).await;
                            }
                        }));
                    }
                }
                for client in clients {
                    client.await.unwrap();
                }
            });
            rates.push((count * SLEEPS * 2) as f64 / start.elapsed().as_secs_f64());
        }
    }
    let [one, three] = rates.map(|mut rates| median(&mut rates));
    keep("three_servers_ratio", three / one);
    print_table(&format!(
        "\n| servers | calls of 20 ms in a second | ratio |\n|---|---|---|\n| 1 | {one:.0} | |\n| 3 | {three:.0} | {:.2} |\n",
        three / one
    ));
}
