//! Three servers behind HAProxy or nginx, with the configurations of the documentation and a cluster of three NATS servers.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fixture::wait_until;
use crate::replicas::cluster::{Client, Replica, SharedFixture};
use crate::replicas::process::{NatsProcess, installed_server};
use crate::replicas::proxy::Proxy;

/// HAProxy or nginx. It ends with the value.
struct Balancer {
    process: Child,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        drop((self.process.kill(), self.process.wait()));
    }
}

impl Balancer {
    fn haproxy(servers: &[Replica; 3]) -> Self {
        let text = include_str!("../../../../../docs/deploy/haproxy.cfg");
        Self::start(servers, text, |folder, text| {
            let file = folder.join("haproxy.cfg");
            std::fs::write(&file, text).unwrap();
            let mut command = Command::new(installed_server("haproxy"));
            command.arg("-db").arg("-f").arg(file);
            command
        })
    }

    fn nginx(servers: &[Replica; 3]) -> Self {
        let text = include_str!("../../../../../docs/deploy/nginx.conf");
        Self::start(servers, text, |folder, text| {
            let bodies: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|kind| format!("{kind}_temp_path {};\n", folder.join(kind).display()))
                .concat();
            let whole = format!(
                "daemon off;\nmaster_process off;\npid {};\nevents {{}}\nhttp {{ access_log off;\n{bodies}{text}}}\n",
                folder.join("pid").display()
            );
            let file = folder.join("nginx.conf");
            std::fs::write(&file, whole).unwrap();
            let mut command = Command::new(installed_server("nginx"));
            command.arg("-c").arg(file).arg("-p").arg(folder).arg("-e").arg(folder.join("log"));
            command
        })
    }

    /// Starts a balancer with the documented configuration of three servers.
    fn start(servers: &[Replica; 3], documented: &str, command: impl FnOnce(&Path, &str) -> Command) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut text = documented.to_owned();
        for (at, server) in servers.iter().enumerate() {
            let documented = format!("127.0.0.1:808{}", at + 1);
            assert!(text.contains(&documented), "{documented}");
            text = text.replace(&documented, &server.client.0.to_string());
        }
        text = text.replace("127.0.0.1:8080", &address.to_string());
        let folder = tempfile::tempdir().unwrap();
        let mut command = command(folder.path(), &text);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let balancer = Self { process: command.spawn().unwrap(), client: Client(address), _folder: folder };
        wait_until("it balances", || balancer.client.is_ready());
        balancer
    }
}

/// Three servers with their own NATS cluster and a balancer.
struct Deployment {
    balancer: Balancer,
    servers: [Replica; 3],
    shared: SharedFixture,
    others: [NatsProcess; 2],
}

impl Deployment {
    fn start(policy: &str) -> Self {
        let [nats, second, third] = NatsProcess::start_cluster();
        let limits = "[serve.limits]\ndrain_delay = \"2s\"\n";
        let policy = format!("[shared]\nreplicas = 3\nstale_after = \"15s\"\n{limits}{policy}");
        let shared = SharedFixture::with_nats(nats, &[second.port, third.port], &policy);
        let servers = ["a", "b", "c"].map(|name| shared.server(name));
        Self { balancer: Balancer::haproxy(&servers), servers, shared, others: [second, third] }
    }
}

/// What a client saw while it called again and again.
#[derive(Debug, Default)]
struct Seen {
    good: usize,
    /// Failures with the time since the start.
    bad: Vec<(Duration, String)>,
    /// The longest time without a success.
    longest_gap: Duration,
}

/// Sets a flag when it is dropped, so that a failed assertion ends the threads that wait for it. Their scope would wait for
/// them forever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The successful calls that each client makes at least. On a loaded machine, it continues after the event until then.
const MIN_GOOD: usize = 50;

/// The time between two calls of a client: short where a call must meet an event, and longer where the event takes seconds.
const SHORT_PAUSE: Duration = Duration::from_millis(5);
const LONG_PAUSE: Duration = Duration::from_millis(50);

/// Calls echo by four clients, with pauses between their calls, while `event` happens.
fn under_load(client: Client, between: Duration, event: impl FnOnce()) -> Vec<Seen> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| call_until(client, between, &is_over))).collect();
        event();
        drop(end);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

fn call_until(client: Client, between: Duration, is_over: &AtomicBool) -> Seen {
    let (start, mut seen, mut last) = (Instant::now(), Seen::default(), Instant::now());
    let has_enough = |seen: &Seen| seen.good > MIN_GOOD || start.elapsed() > Duration::from_secs(60);
    while !(is_over.load(Ordering::Relaxed) && has_enough(&seen)) {
        match client.try_call("e__echo", &json!({"a": 1})) {
            Ok((_, false)) => {
                seen.good += 1;
                seen.longest_gap = seen.longest_gap.max(last.elapsed());
                last = Instant::now();
            }
            Ok((text, true)) | Err(text) => seen.bad.push((start.elapsed(), text)),
        }
        std::thread::sleep(between);
    }
    seen
}

fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[test]
fn a_killed_server_costs_each_client_at_most_one_request_and_a_drained_one_none() {
    let mut deployment = Deployment::start("");
    let client = deployment.balancer.client;
    let [first, second, _] = &mut deployment.servers;
    let drained = under_load(client, SHORT_PAUSE, || {
        pause(500);
        second.process.signal("TERM");
        assert_eq!(second.process.exit_code(), 0);
        pause(500);
    });
    for seen in &drained {
        assert!(seen.good > MIN_GOOD && seen.bad.is_empty(), "{seen:?}");
    }
    let killed = under_load(client, SHORT_PAUSE, || {
        pause(500);
        first.process.child.kill().unwrap();
        pause(2000);
    });
    for seen in &killed {
        assert!(seen.good > MIN_GOOD && seen.bad.len() <= 2, "{seen:?}");
        assert!(seen.longest_gap < Duration::from_secs(1), "{seen:?}");
    }
}

#[test]
fn a_session_stays_on_its_server_and_starts_again_when_that_one_dies() {
    let mut deployment = Deployment::start("");
    let client = deployment.balancer.client;
    let session = client.initialize();
    for _ in 0..20 {
        assert_eq!(client.status_in(&session, "tools/list"), 200);
    }
    let mut alive = 3;
    // The balancer knows which one it is; here they die one after the other.
    for server in &mut deployment.servers[..2] {
        server.process.child.kill().unwrap();
        server.process.child.wait().unwrap();
        alive -= 1;
        let mut status = 503;
        wait_until("an answer that is not of the balancer", || {
            status = client.status_in(&session, "tools/list");
            status < 500
        });
        if status == 404 {
            break;
        }
    }
    assert!(alive >= 1);
    let next = client.initialize();
    assert_eq!(client.status_in(&next, "tools/list"), 200);
}

/// How many calls a server has begun.
fn calls_begun(server: &Replica) -> usize {
    server.audit().iter().filter(|line| line["kind"] == "start").count()
}

#[test]
fn a_drain_answers_the_calls_of_sessions_and_their_clients_start_again() {
    let mut deployment = Deployment::start("[audit]\nstart_lines = \"all\"\n");
    let client = deployment.balancer.client;
    // Each server has some of them.
    let sessions: Vec<String> = (0..6).map(|_| client.initialize()).collect();
    let is_over = AtomicBool::new(false);
    let statuses = std::thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        let call = |session| move || client.call_in(session, "s__sleep", &json!({"ms": 4000}));
        let calls: Vec<_> = sessions.iter().map(|session| scope.spawn(call(session))).collect();
        let list = || {
            let mut statuses = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                statuses.extend(sessions.iter().map(|session| client.status_in(session, "tools/list")));
            }
            statuses
        };
        let listing = scope.spawn(list);
        // They outlive `drain_delay`.
        wait_until("all calls run", || {
            deployment.servers.iter().map(calls_begun).sum::<usize>() == sessions.len()
        });
        let [_, drained, _] = &mut deployment.servers;
        drained.process.signal("TERM");
        assert_eq!(drained.process.exit_code(), 0);
        for call in calls {
            let (text, is_error) = call.join().unwrap();
            assert!(!is_error, "{text}");
        }
        drop(end);
        listing.join().unwrap()
    });
    // 404: the session is lost. The specification lets a client initialize then.
    assert!(statuses.iter().all(|status| [200, 404].contains(status)), "{statuses:?}");
    let lost = sessions.iter().filter(|session| client.status_in(session, "tools/list") == 404).count();
    assert!((1..=4).contains(&lost), "{lost} of 6 sessions are lost");
    let next = client.initialize();
    assert_eq!(client.status_in(&next, "tools/list"), 200);
}

#[test]
fn calls_continue_while_each_server_of_nats_dies_in_turn() {
    let mut deployment = Deployment::start("[session]\nmax_calls = 1_000_000\n");
    let client = deployment.balancer.client;
    let Deployment { shared, others: [second, third], .. } = &mut deployment;
    for nats in [&mut shared.nats, second, third] {
        // One of them leads the streams.
        let seen = under_load(client, LONG_PAUSE, || {
            pause(300);
            nats.kill();
            pause(10_000);
        });
        for seen in &seen {
            assert!(seen.good > MIN_GOOD, "{seen:?}");
            assert!(seen.longest_gap < Duration::from_secs(10), "{seen:?}");
        }
        nats.restart();
        pause(3000);
    }
}

/// nginx sends a client to one server by its address. A server that was cut off answered 200 with an error, so nginx kept it.
#[test]
fn nginx_leaves_a_server_that_is_cut_off() {
    let shared = SharedFixture::new("");
    // Any of them may be the server of this client.
    let ways = ["a", "b", "c"].map(|name| (name, Proxy::start(shared.nats.port)));
    let at = |proxy: &Proxy| format!("nats://127.0.0.1:{}", proxy.port);
    let servers = ways.each_ref().map(|(name, proxy)| shared.server_at(name, &at(proxy)));
    let balancer = Balancer::nginx(&servers);
    let client = balancer.client;
    assert!(client.echoes());
    let has_called = |server: &Replica| server.audit().iter().any(|line| line["kind"] == "call");
    let mut chosen = None;
    wait_until("a server has run it", || {
        chosen = servers.iter().position(has_called);
        chosen.is_some()
    });
    let chosen = chosen.unwrap();
    ways[chosen].1.cut(true);
    wait_until("it is cut off", || servers[chosen].get("/readyz").0 == 503);
    wait_until("another one answers", || client.echoes());
    let good = (0..30).filter(|_| client.echoes()).count();
    assert!(good >= 28, "{good} of 30 calls");
}

#[test]
fn nginx_finds_another_server_too() {
    let mut deployment = Deployment::start("");
    let balancer = Balancer::nginx(&deployment.servers);
    let session = balancer.client.initialize();
    assert!((0..20).all(|_| balancer.client.status_in(&session, "tools/list") == 200));
    let [first, second, _] = &mut deployment.servers;
    let seen = under_load(balancer.client, SHORT_PAUSE, || {
        pause(300);
        first.process.signal("TERM");
        assert_eq!(first.process.exit_code(), 0);
        second.process.child.kill().unwrap();
        pause(1500);
    });
    for seen in &seen {
        assert!(seen.good > MIN_GOOD && seen.bad.len() <= 2, "{seen:?}");
        assert!(seen.longest_gap < Duration::from_secs(1), "{seen:?}");
    }
}
