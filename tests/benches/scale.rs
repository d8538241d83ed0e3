//! Many plugins: the time to list ten thousand, the cost of a server of a hundred until it answers and while it is idle,
//! and the effect of one more plugin on a call of another.
//!
//! `cargo build --release --bin toolbay`, then `cargo bench --bench all -- scale`. Targets: 10,000 plugins listed from the
//! cache within 300 ms and 150 MB; 100 plugins served with 50 ms of CPU time and 60 MB; the 10,001st changes a call's
//! time by less than 2 %. Most of the ten thousand are links to a hundred files. A long run also uses ten thousand
//! copies.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::figures::{keep, median, quick, rounds};
use crate::process::{RunningProgram, built, cpu_ms, status_kib};

/// The number of different components. All other files are names for one of them.
const DISTINCT: usize = 100;

pub(crate) fn run() {
    let Some(toolbay) = built("toolbay") else { return };
    let dir = tempfile::tempdir().unwrap();
    let few = plugins(dir.path(), "few", DISTINCT);
    let many = plugins(dir.path(), "many", 10_000);
    let cache = dir.path().join("cache");
    list(&toolbay, &few, &cache);
    let (time, peak) = listed(&toolbay, &many, &cache);
    println!("\n| `toolbay list`, 10 000 plugins, 100 of them different, from the cache | |\n|---|---|");
    println!("| whole process | {time:.0} ms |\n| most resident | {peak:.0} MB |");
    keep("list_10000_ms", time);
    keep("list_10000_rss_mb", peak);
    if !quick() {
        std::fs::remove_dir_all(&many).unwrap();
        let copies = plugins_by(dir.path(), "copies", 10_000, |from, to| std::fs::copy(from, to).map(drop));
        let (time, peak) = listed(&toolbay, &copies, &cache);
        println!("| the same with a file for each | {time:.0} ms, {peak:.0} MB |");
        std::fs::remove_dir_all(&copies).unwrap();
    }
    serve(&toolbay, &few, &cache);
}

/// Milliseconds and MB of a listing, once the files are old enough for the index, and the index exists.
fn listed(toolbay: &Path, plugins: &Path, cache: &Path) -> (f64, f64) {
    std::thread::sleep(Duration::from_secs(4));
    list(toolbay, plugins, cache);
    let (mut times, mut peaks): (Vec<f64>, Vec<f64>) =
        (0..rounds(9)).map(|_| list(toolbay, plugins, cache)).unzip();
    (median(&mut times), median(&mut peaks))
}

/// `count` plugins of a hundred different components: the echo, each with another custom section.
pub(crate) fn plugins(dir: &Path, name: &str, count: usize) -> PathBuf {
    plugins_by(dir, name, count, |from, to| std::fs::hard_link(from, to))
}

/// The same, where `double` creates another file of the same component.
fn plugins_by(
    dir: &Path,
    name: &str,
    count: usize,
    double: impl Fn(&Path, &Path) -> std::io::Result<()>,
) -> PathBuf {
    let folder = dir.join(name);
    std::fs::create_dir(&folder).unwrap();
    let bytes = std::fs::read(guest_artifacts::BENCH_ECHO).unwrap();
    for n in 0..count {
        let file = folder.join(format!("p{n:05}.wasm"));
        if n < DISTINCT.min(count) {
            let mut copy = bytes.clone();
            copy.extend([0, 4, 1, b'n', (n / 10) as u8, (n % 10) as u8]);
            std::fs::write(file, copy).unwrap();
        } else {
            double(&folder.join(format!("p{:05}.wasm", n % DISTINCT)), &file).unwrap();
        }
    }
    folder
}

fn command(toolbay: &Path, verb: &str, plugins: &Path, cache: &Path) -> Command {
    let mut command = Command::new(toolbay);
    command.arg(verb).arg("--plugins").arg(plugins).arg("--cache-dir").arg(cache);
    command
}

/// Milliseconds from start to end, and the peak in MB.
fn list(toolbay: &Path, plugins: &Path, cache: &Path) -> (f64, f64) {
    let start = Instant::now();
    let out = Stdio::from(tempfile::tempfile().unwrap());
    let mut child = command(toolbay, "list", plugins, cache).stdout(out).spawn().unwrap();
    let mut peak = 0;
    let status = loop {
        peak = status_kib(child.id(), "VmHWM").unwrap_or(peak).max(peak);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_micros(500));
    };
    assert!(status.success());
    (start.elapsed().as_secs_f64() * 1e3, peak as f64 / 1024.0)
}

/// A server of a hundred plugins: until it has listed its tools, and afterwards.
fn serve(toolbay: &Path, plugins: &Path, cache: &Path) {
    let (mut spent, mut waited, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds(9) {
        let start = Instant::now();
        let mut server = ServedPlugins(RunningProgram(
            command(toolbay, "serve", plugins, cache)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        ));
        server.tools();
        waited.push(start.elapsed().as_secs_f64() * 1e3);
        let id = server.0.0.id();
        spent.push(cpu_ms(id));
        std::thread::sleep(Duration::from_millis(300));
        resident.push(status_kib(id, "VmRSS").unwrap() as f64 / 1024.0);
    }
    let [spent, waited, resident] = [spent, waited, resident].map(|mut of| median(&mut of));
    println!("\n| `toolbay serve`, 100 plugins, from the cache | |\n|---|---|");
    println!("| computed until `tools/list` is answered | {spent:.0} ms |\n| waited | {waited:.0} ms |");
    println!("| resident afterwards | {resident:.0} MB |");
    keep("serve_100_warm_cpu_ms", spent);
    keep("idle_100_rss_mb", resident);
}

/// A server over stdin and stdout.
pub(crate) struct ServedPlugins(pub(crate) RunningProgram);

impl ServedPlugins {
    /// Waits for the list of its tools.
    pub(crate) fn tools(&mut self) {
        let child: &mut Child = &mut self.0.0;
        let input = child.stdin.as_mut().unwrap();
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        input.write_all(format!("{hello}\n{initialized}\n{list}\n").as_bytes()).unwrap();
        let mut output = BufReader::new(child.stdout.as_mut().unwrap());
        let answer = loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "it ended");
            if line.contains("\"tools\":[") {
                break line;
            }
        };
        assert!(answer.contains("p00000__echo"), "{}", answer.chars().take(300).collect::<String>());
    }
}
