//! Processes of the NATS server, alone or as a cluster. `cargo xtask servers` installs its program, and those of the
//! balancers.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
const CONFIGURATION: &str = "nats.conf";
/// More than all streams may hold. Without it, NATS refuses them if the disk has less room than they may ever take.
const ROOM: &str = "jetstream { max_file_store: 1TB }";

/// A server with its folder. It ends with the value.
pub(crate) struct NatsProcess {
    folder: TempDir,
    process: Child,
    pub(crate) port: u16,
}

impl Drop for NatsProcess {
    fn drop(&mut self) {
        drop((self.process.kill(), self.process.wait()));
    }
}

impl NatsProcess {
    /// A server with these lines in its configuration.
    pub(crate) fn start(lines: &str) -> Self {
        let mut server = Self::spawn(lines);
        server.port = server.await_port();
        server
    }

    /// Three servers that keep the same streams.
    pub(crate) fn start_cluster() -> [Self; 3] {
        let ports: [u16; 3] = std::array::from_fn(|_| free_port());
        let routes = ports.map(|port| format!("nats://127.0.0.1:{port}")).join(", ");
        let mut servers = [0, 1, 2].map(|at| {
            Self::spawn(&format!(
                "server_name: n{at}\ncluster {{ name: c, listen: '127.0.0.1:{}', routes: [{routes}] }}",
                ports[at]
            ))
        });
        for server in &mut servers {
            server.port = server.await_port();
        }
        servers
    }

    fn spawn(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CONFIGURATION), format!("{ROOM}\n{lines}")).unwrap();
        let process = spawn(folder.path(), 0);
        Self { folder, process, port: 0 }
    }

    /// The port from the file that the server writes when it listens.
    fn await_port(&self) -> u16 {
        let file = self.folder.path().join(format!("nats-server_{}.ports", self.process.id()));
        let end = Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let found = serde_json::from_str::<serde_json::Value>(&text).ok();
            let address = found.as_ref().and_then(|ports| ports["nats"][0].as_str());
            match address.and_then(|address| address.rsplit_once(':')?.1.parse().ok()) {
                Some(port) => return port,
                None => assert!(Instant::now() < end, "the server does not listen: {text} {}", self.log()),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the server wrote to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Sends a signal. Returns from `STOP` when the last thread has stopped: until then, the server still answers.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(id, signal).unwrap();
        if signal == Signal::STOP {
            waitpid(Some(id), WaitOptions::UNTRACED).unwrap();
        }
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

    /// The folder of the streams.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }
}

/// The program of a server.
pub(crate) fn installed_server(name: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let target = workspace.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let program = target.join("servers").join(name);
    assert!(program.is_file(), "`{}` is missing: install it with `cargo xtask servers`", program.display());
    program
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(folder: &Path, port: u16) -> Child {
    let mut server = Command::new(installed_server("nats-server"));
    server.arg("--addr").arg("127.0.0.1").arg("--port");
    server.arg(if port == 0 { "-1".to_owned() } else { port.to_string() });
    server.arg("--config").arg(folder.join(CONFIGURATION));
    server.arg("--jetstream").arg("--store_dir").arg(folder.join("store"));
    server.arg("--ports_file_dir").arg(folder).arg("--log").arg(folder.join("log"));
    server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
