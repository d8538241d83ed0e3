//! What the store of one guest entry holds: an empty WASI context, the bounds, the capabilities.
//!
//! The context starts with nothing: no environment, no arguments, stdin at its end, no folders, no network. Only a
//! tool that was granted files and whose component imports WASI's file system gets preopened folders.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use toolbay_core::limits::Limits;
use wasmtime_wasi::{
    Deterministic, FsPerms, HostMonotonicClock, HostWallClock, ResourceTable, WasiCtx, WasiCtxBuilder,
    WasiCtxView, WasiView,
};

use crate::capability::Capabilities;
use crate::capability::files::Access;
use crate::limiter::Limiter;
use crate::stdio::Sink;

/// Most random bytes a guest may ask for at once.
const MAX_RANDOM: u64 = 64 << 10;

/// The state of one store.
pub(crate) struct GuestState {
    wasi: WasiCtx,
    table: ResourceTable,
    pub(crate) limiter: Limiter,
    pub(crate) capabilities: Capabilities,
    pub(crate) stdout: Sink,
    pub(crate) stderr: Sink,
    pub(crate) deadline: Instant,
}

/// How much of WASI a guest entry gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal {
    /// A call: clocks and randomness are real, granted folders are there if the component asks for folders.
    Call {
        /// Whether the component imports WASI's file system.
        folders: bool,
    },
    /// Metadata queries and reductions: time stands still and randomness is fixed, so the answer is a function of
    /// the component and its input.
    Sealed,
}

impl GuestState {
    pub(crate) fn new(seal: Seal, limits: &Limits, capabilities: Capabilities) -> wasmtime::Result<Self> {
        let (stdout, stderr) = (Sink::new(limits.stdio_bytes), Sink::new(limits.stdio_bytes));
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(stdout.clone()).stderr(stderr.clone()).max_random_size(MAX_RANDOM);
        match seal {
            Seal::Call { folders: true } => preopen(&mut wasi, &capabilities)?,
            Seal::Call { folders: false } => {}
            Seal::Sealed => freeze(&mut wasi),
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        let limiter = Limiter::new(limits);
        let deadline = Instant::now() + limits.timeout;
        Ok(Self { wasi: wasi.build(), table, limiter, capabilities, stdout, stderr, deadline })
    }
}

/// Hands out the granted folders. wasmtime-wasi takes a path, so it gets the one path that can not be swapped under
/// us: that of the handle we hold since the plugin was loaded. Only Linux has it.
fn preopen(wasi: &mut WasiCtxBuilder, capabilities: &Capabilities) -> wasmtime::Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let Some(files) = &capabilities.files else { return Ok(()) };
    for (root, access) in files.preopens() {
        let handle = format!("/proc/self/fd/{}/.", root.dir.as_fd().as_raw_fd());
        let perms = match access {
            Access::Read => FsPerms::ReadOnly,
            Access::Write => FsPerms::ReadWrite,
        };
        wasi.preopened_dir(handle, files.guest_path(root), perms)?;
    }
    Ok(())
}

fn freeze(wasi: &mut WasiCtxBuilder) {
    wasi.wall_clock(Frozen)
        .monotonic_clock(Frozen)
        .secure_random(Deterministic::new(vec![0x5a]))
        .insecure_random(Deterministic::new(vec![0x5a]))
        .insecure_random_seed(0x5a);
}

struct Frozen;

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn now(&self) -> Duration {
        // 2025-01-01: late enough for code that takes 1970 for a broken clock.
        Duration::from_secs(1_735_689_600)
    }
}

impl HostMonotonicClock for Frozen {
    fn resolution(&self) -> u64 {
        1
    }
    fn now(&self) -> u64 {
        0
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
