//! The cost of a granted file read, as a ratio to the same read with cap-std alone, in one run.
//!
//! `cargo bench --bench all -- files` prints the table of `docs/reference/capabilities/files.md`. The sides alternate in
//! short rounds. One call of the guest reads many times, so that the call itself does not count. The row of the guest
//! includes the transfer of 64 KiB to the guest; the other rows do not.

use std::io::Read;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use wasmtime::component::{ComponentType, Lower};

use crate::figures::{median, timed};
use crate::floor::BareStore;
use crate::library::LibraryBench;

const SIZES: [usize; 3] = [64, 64 << 10, 512 << 10];
const READS: u32 = 500;
const ROUNDS: usize = 41;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    // Beside the build, because the folder for temporary files may be in memory.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let workspace = tempfile::tempdir_in(target).unwrap();
    let root = workspace.path().canonicalize().unwrap();
    let dir = Dir::open_ambient_dir(&root, ambient_authority()).unwrap();
    let guest = library(&runtime, &root);
    let bare = PreparedFiles::new(dir.try_clone().unwrap());
    println!("| read of | side | µs, median | to cap-std | to cap-std in a guest |\n|---|---|---|---|---|");
    for size in SIZES {
        let name = format!("{size}.bin");
        std::fs::write(root.join(&name), vec![7; size]).unwrap();
        let mut rows = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            rows[0].push(timed(|| (0..READS).for_each(|_| plain(&dir, &name, size))));
            rows[1].push(timed(|| {
                (0..READS).for_each(|_| runtime.block_on(async { off_thread(&dir, &name, size).await }));
            }));
            rows[2].push(timed(|| runtime.block_on(bare.read(&name, READS, size))));
            rows[3].push(timed(|| runtime.block_on(read(&guest, &name, READS, size))));
        }
        let [floor, pool, handed, guest] = rows.map(|mut times| median(&mut times) / f64::from(READS));
        for (side, time) in [
            ("cap-std", floor),
            ("cap-std in a blocking task", pool),
            ("cap-std, handed to a guest by bare wasmtime", handed),
            ("guest, `files.read`", guest),
        ] {
            println!("| {size} bytes | {side} | {time:.1} | {:.2} | {:.2} |", time / floor, time / handed);
        }
    }
}

/// The same guest over bare wasmtime: cap-std behind the import, without grants, quota, record or guard.
struct PreparedFiles(BareStore);

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the contract has them all")]
enum FileOperation {
    #[component(name = "file")]
    File,
    #[component(name = "directory")]
    Directory,
    #[component(name = "symlink")]
    Symlink,
    #[component(name = "other")]
    Other,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct StatCall {
    kind: FileOperation,
    size: u64,
    #[component(name = "modified-ms")]
    modified_ms: u64,
    version: String,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct FileData {
    data: Vec<u8>,
    stat: StatCall,
}

#[derive(ComponentType, Lower)]
#[component(variant)]
#[expect(dead_code, reason = "the contract has them all")]
enum RefusedCall {
    #[component(name = "denied")]
    Denied(String),
    #[component(name = "not-found")]
    NotFound,
    #[component(name = "stale")]
    Stale,
    #[component(name = "too-large")]
    TooLarge(u64),
    #[component(name = "other")]
    Other(String),
}

impl PreparedFiles {
    fn new(dir: Dir) -> Self {
        let read = move |path: &str| {
            let mut data = Vec::new();
            dir.open(path).unwrap().read_to_end(&mut data).unwrap();
            let size = data.len() as u64;
            FileData {
                data,
                stat: StatCall { kind: FileOperation::File, size, modified_ms: 0, version: String::new() },
            }
        };
        Self(BareStore::over(guest_artifacts::BENCH_FILES, |linker| {
            let mut files = linker.instance("toolbay:plugin/files@0.1.0").unwrap();
            let read = move |_: wasmtime::StoreContextMut<'_, _>,
                             (path, _, _): (String, u64, Option<u64>)| {
                Ok((Ok::<FileData, RefusedCall>(read(&path)),))
            };
            files.func_wrap("read", read).unwrap();
        }))
    }

    async fn read(&self, path: &str, n: u32, size: usize) {
        let args = format!(r#"{{"path": "{path}", "n": {n}}}"#);
        assert_eq!(self.0.tool("read", &args, true).await, (n as usize * size).to_string());
    }
}

fn plain(dir: &Dir, name: &str, size: usize) {
    let mut data = Vec::with_capacity(size);
    dir.open(name).unwrap().read_to_end(&mut data).unwrap();
    assert_eq!(std::hint::black_box(data).len(), size);
}

async fn off_thread(dir: &Dir, name: &str, size: usize) {
    let (dir, name) = (dir.try_clone().unwrap(), name.to_owned());
    tokio::task::spawn_blocking(move || plain(&dir, &name, size)).await.unwrap();
}

/// The guest in a host that lets it read the workspace.
fn library(runtime: &tokio::runtime::Runtime, root: &Path) -> LibraryBench {
    let policy = "[plugins.bench.grant]\nfs_read = [\"$workspace\", \"!**/.env\"]";
    runtime.block_on(LibraryBench::of(guest_artifacts::BENCH_FILES, policy, root, |builder| builder))
}

async fn read(library: &LibraryBench, path: &str, n: u32, size: usize) {
    let args = format!(r#"{{"path": "{path}", "n": {n}}}"#);
    assert_eq!(library.call("bench__read", &args).await, (n as usize * size).to_string());
}
