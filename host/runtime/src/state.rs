//! What the store of one guest entry holds: the bounds, the capabilities, and an empty WASI context from the moment when
//! the guest asks WASI for something: most calls never do.
//!
//! The context has nothing: no environment, no arguments, stdin at its end, no folders, no network, a clock that
//! stands still, fixed randomness. Only a tool that was granted files and whose component imports WASI's file system
//! gets preopened folders.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use toolbay_core::limits::Limits;
use wasmtime_wasi::{FsPerms, ResourceTable, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::capability::files::Access;
use crate::capability::{Capabilities, environment, http, sockets};
use crate::limiter::Limiter;
use crate::stdio::Sink;

/// Most random bytes a guest may ask for at once.
const MAX_RANDOM: u64 = 64 << 10;

/// The state of one store.
pub(crate) struct GuestState {
    wasi: Option<Wasi>,
    http: WasiHttpCtx,
    table: ResourceTable,
    seal: Seal,
    stdio_bytes: u64,
    pub(crate) limiter: Limiter,
    pub(crate) capabilities: Capabilities,
    pub(crate) deadline: Instant,
}

/// What WASI knows of a guest, and what the guest said there.
struct Wasi {
    ctx: WasiCtx,
    stdout: Sink,
    stderr: Sink,
}

/// How much of WASI a guest entry gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal {
    /// A call: variables, wall clock and randomness as they were granted, a real monotonic clock, and the granted
    /// folders if the component asks for folders.
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
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        let mut state = Self {
            wasi: None,
            http: http::wasi::context(),
            table,
            seal,
            stdio_bytes: limits.stdio_bytes,
            limiter: Limiter::new(limits),
            capabilities,
            deadline: Instant::now() + limits.timeout,
        };
        // Opening folders can fail: not in the middle of the guest's question.
        if seal == (Seal::Call { folders: true }) {
            let mut builder = WasiCtxBuilder::new();
            preopen(&mut builder, &state.capabilities)?;
            state.wasi = Some(state.finish(builder));
        }
        Ok(state)
    }

    fn finish(&self, mut wasi: WasiCtxBuilder) -> Wasi {
        let (stdout, stderr) = (Sink::new(self.stdio_bytes), Sink::new(self.stdio_bytes));
        wasi.stdout(stdout.clone()).stderr(stderr.clone()).max_random_size(MAX_RANDOM);
        match self.seal {
            Seal::Call { .. } => {
                if let Some(granted) = &self.capabilities.granted {
                    granted.environment.apply(&mut wasi);
                }
            }
            Seal::Sealed => environment::seal(&mut wasi),
        }
        sockets::allow(&mut wasi, &self.capabilities);
        Wasi { ctx: wasi.build(), stdout, stderr }
    }

    /// What the guest wrote to stdout and to stderr, if it asked WASI for anything at all.
    pub(crate) fn output(&self) -> Option<[(&'static str, &Sink); 2]> {
        self.wasi.as_ref().map(|wasi| [("stdout", &wasi.stdout), ("stderr", &wasi.stderr)])
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

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = match self.wasi.take() {
            Some(wasi) => wasi,
            None => self.finish(WasiCtxBuilder::new()),
        };
        WasiCtxView { ctx: &mut self.wasi.insert(wasi).ctx, table: &mut self.table }
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.capabilities, table: &mut self.table, ctx: &mut self.http }
    }
}
