//! Plugins of a registry: the time to add one against `skopeo copy` of it, to verify a hundred, and to start a server with a
//! hundred of a lock against those of a directory.
//!
//! `cargo build --release --bins` and `cargo xtask test registries`, which unpacks Debian's registry and `skopeo`, then
//! `cargo bench --bench all -- distribution`. Targets: an added plugin of 1 MB takes at most 1.5 times the copy, plus its
//! compilation; a hundred are verified within 300 ms; a lock of a hundred delays the start of a server by at most 5 %.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use toolbay::PluginId;
use toolbay::distribution::lock::{self, LockedPlugin, Signer};
use toolbay::distribution::pack::{ComponentArtifact, ComponentFacts};
use toolbay::distribution::signature::{self, key::PrivateKey};
use toolbay::distribution::store::BlobStore;

use crate::figures::{keep, median, rounds};
use crate::process::{RunningProgram, built};
use crate::scale::ServedPlugins;

/// The number of plugins in a lock.
const PLUGINS: usize = 100;

pub(crate) fn run() {
    let Some(toolbay) = built("toolbay") else { return };
    let dir = tempfile::tempdir().unwrap();
    verify(&toolbay, dir.path());
    serve(&toolbay, dir.path());
    if let Some(registry) = DebianRegistry::start(dir.path()) {
        add(&toolbay, &registry, dir.path());
    }
}

/// An operator with a policy, a lock and a store of their own.
struct Operator {
    folder: PathBuf,
}

impl Operator {
    fn new(dir: &Path, name: &str, policy: &str) -> Self {
        let folder = dir.join(name);
        std::fs::create_dir_all(folder.join("plugins")).unwrap();
        std::fs::write(folder.join("toolbay.toml"), format!("version = 1\n{policy}")).unwrap();
        Self { folder }
    }

    /// Locks signed plugins of a registry that is never asked.
    fn lock(&self, components: impl Iterator<Item = (PluginId, Vec<u8>)>) {
        let key = PrivateKey::generate().unwrap();
        key.public().write_new(&self.folder.join("acme.pub")).unwrap();
        let store = BlobStore::new(self.folder.join(".local/share/toolbay/store"));
        let locked = components.map(|(id, bytes)| {
            let size = bytes.len() as u64;
            let artifact = ComponentArtifact::new(bytes.into(), &ComponentFacts::default());
            artifact.blobs.iter().for_each(|(_, blob)| _ = store.put(blob).unwrap());
            let bundle = signature::sign(&key, &artifact.digest).unwrap();
            let plugin = LockedPlugin {
                source: format!("oci://registry.example/acme/{id}"),
                tag: Some("1.0.0".to_owned()),
                manifest: store.put(&artifact.manifest).unwrap(),
                layer: artifact.blobs[1].0,
                size,
                signer: Signer::Key(key.public().id()),
                bundle: Some(store.put(&bundle).unwrap()),
                signed_at: None,
            };
            (id, plugin)
        });
        let locked: Vec<_> = locked.collect();
        let file = self.folder.join(lock::FILE_NAME);
        lock::update(&file, Duration::from_secs(5), |plugins| {
            plugins.extend(locked);
            Ok::<_, lock::LockError>(())
        })
        .unwrap();
    }

    fn command(&self, toolbay: &Path, cache: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(toolbay);
        command.env("HOME", &self.folder).env_remove("XDG_DATA_HOME").current_dir(&self.folder);
        command.arg("--config").arg(self.folder.join("toolbay.toml"));
        command.arg("--plugins").arg(self.folder.join("plugins")).arg("--cache-dir").arg(cache);
        command.arg("--state-dir").arg(self.folder.join("state")).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Milliseconds of a command that succeeds.
fn run_ms(mut command: Command) -> f64 {
    let start = Instant::now();
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
    start.elapsed().as_secs_f64() * 1e3
}

/// A component with a section that makes it different from the others.
fn numbered(bytes: &[u8], n: usize) -> Vec<u8> {
    [bytes, &[0, 4, 1, b'n', (n / 10) as u8, (n % 10) as u8]].concat()
}

fn plugin_id(n: usize) -> PluginId {
    PluginId::new(&format!("p{n:05}")).unwrap()
}

fn verify(toolbay: &Path, dir: &Path) {
    let trust = "[[trust]]\nscope = \"registry.example/\"\nkeys = [\"acme.pub\"]\n";
    let operator = Operator::new(dir, "verified", trust);
    let bytes = std::fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    operator.lock((0..PLUGINS).map(|n| (plugin_id(n), numbered(&bytes, n))));
    let cache = dir.join("cache");
    let mut times: Vec<f64> = (0..rounds(10))
        .map(|_| run_ms(operator.command(toolbay, &cache, &["verify", "--offline"])))
        .collect();
    let (time, megabytes) = (median(&mut times), bytes.len() * PLUGINS / 1_000_000);
    println!("\n| `toolbay verify --offline`, {PLUGINS} signed plugins of {megabytes} MB | |\n|---|---|");
    println!("| whole process | {time:.0} ms |");
    keep("verify_100_ms", time);
}

fn serve(toolbay: &Path, dir: &Path) {
    let directory = Operator::new(dir, "directory", "");
    let locked = Operator::new(dir, "locked", "");
    let bytes = std::fs::read(guest_artifacts::BENCH_ECHO).unwrap();
    let components = || (0..PLUGINS).map(|n| (plugin_id(n), numbered(&bytes, n)));
    for (id, bytes) in components() {
        std::fs::write(directory.folder.join(format!("plugins/{id}.wasm")), bytes).unwrap();
    }
    locked.lock(components());
    let cache = dir.join("cache");
    let start = |operator: &Operator| {
        let mut command = operator.command(toolbay, &cache, &["serve"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let start = Instant::now();
        ServedPlugins(RunningProgram(command.spawn().unwrap())).tools();
        start.elapsed().as_secs_f64() * 1e3
    };
    // Both have an index once their files are old enough for it.
    [&directory, &locked].into_iter().for_each(|operator| _ = start(operator));
    std::thread::sleep(Duration::from_secs(4));
    [&directory, &locked].into_iter().for_each(|operator| _ = start(operator));
    let (mut one, mut other): (Vec<f64>, Vec<f64>) =
        (0..rounds(15)).map(|_| (start(&directory), start(&locked))).unzip();
    let (one, other) = (median(&mut one), median(&mut other));
    println!("\n| `toolbay serve`, {PLUGINS} plugins, until `tools/list` is answered | |\n|---|---|");
    println!("| of a directory | {one:.1} ms |\n| of a lock | {other:.1} ms, ratio {:.2} |", other / one);
    keep("serve_lock_ratio", other / one);
}

/// Debian's registry, without TLS, and `skopeo`.
struct DebianRegistry {
    _process: RunningProgram,
    address: String,
    skopeo: PathBuf,
    libraries: String,
}

impl DebianRegistry {
    /// Starts it; `None` if it is not unpacked.
    fn start(dir: &Path) -> Option<Self> {
        let debian = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debian");
        let (program, skopeo) =
            (debian.join("docker-registry/usr/bin/docker-registry"), debian.join("skopeo/usr/bin/skopeo"));
        if !program.exists() || !skopeo.exists() {
            println!("\nno registry: `cargo xtask test registries` unpacks it");
            return None;
        }
        let libraries = ["libgpgme11", "libassuan0"].iter().flat_map(|name| {
            let entries = std::fs::read_dir(debian.join(name).join("usr/lib")).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path().canonicalize().unwrap().display().to_string())
        });
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = dir.join("registry.yml");
        let settings = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: \"{}\"}}}}\nhttp: {{addr: \"127.0.0.1:{port}\"}}\n",
            dir.join("registry").display()
        );
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(program);
        command.arg("serve").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = RunningProgram(command.spawn().unwrap());
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(30), "the registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        let libraries = libraries.collect::<Vec<_>>().join(":");
        Some(Self { _process: process, address: format!("127.0.0.1:{port}"), skopeo, libraries })
    }

    /// Milliseconds of a copy into a folder.
    fn copy(&self, to: &Path) -> f64 {
        let mut copy = Command::new(&self.skopeo);
        copy.env("LD_LIBRARY_PATH", &self.libraries).args([
            "--insecure-policy",
            "copy",
            "--src-tls-verify=false",
        ]);
        copy.arg(format!("docker://{}/acme/text:1.0.0", self.address)).arg(format!("dir:{}", to.display()));
        run_ms({
            copy.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            copy
        })
    }
}

fn add(toolbay: &Path, registry: &DebianRegistry, dir: &Path) {
    let policy = format!("[registry.\"{}\"]\nplain_http = true\n", registry.address);
    let reference = format!("{}/acme/text:1.0.0", registry.address);
    let (cache, empty) = (dir.join("cache"), dir.join("empty-cache"));
    let author = Operator::new(dir, "author", &policy);
    run_ms(author.command(toolbay, &cache, &["push", &reference, guest_artifacts::PLUGIN_TEXT]));
    let added = |name: String, cache: &Path| {
        // A new operator: nothing of the plugin is in the store.
        let operator = Operator::new(dir, &name, &policy);
        run_ms(operator.command(toolbay, cache, &["add", &reference, "--unsigned"]))
    };
    added("first".to_owned(), &cache);
    let (mut adds, mut copies, mut compiled) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds(10) {
        copies.push(registry.copy(&dir.join(format!("copy{round}"))));
        adds.push(added(format!("operator{round}"), &cache));
        drop(std::fs::remove_dir_all(&empty));
        compiled.push(added(format!("compiling{round}"), &empty));
    }
    let [add, copy, compiled] = [&mut adds, &mut copies, &mut compiled].map(|times| median(times));
    println!("\n| a plugin of 1 MB from a local registry | |\n|---|---|");
    println!("| `skopeo copy` | {copy:.0} ms |\n| `toolbay add` | {add:.0} ms, ratio {:.2} |", add / copy);
    println!("| `toolbay add` with its compilation | {compiled:.0} ms |");
    keep("add_to_skopeo_ratio", add / copy);
}
