//! What the store of one guest entry holds: the bounds, the capabilities, and an empty WASI context from the moment when
//! the guest asks WASI for something: most calls never do.
//!
//! The context has nothing: no environment, no arguments, stdin at its end, no folders, no network, a clock that
//! stands still, fixed randomness. Only a tool that was granted files and whose component imports WASI's file system
//! gets preopened folders.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use toolbay_core::tool::manifest::CommandLine;
use toolbay_policy::limits::Limits;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, ResourceTable, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::capability::files::Access;
use crate::capability::{Capabilities, environment, http, sockets};
use crate::engine::limiter::Limiter;
use crate::engine::stdio::Sink;

/// Most random bytes a guest may ask for at once.
const MAX_RANDOM: u64 = 64 << 10;

/// The state of one store.
pub(crate) struct GuestState {
    /// In a box: most have none, and a state is moved several times before it is where it stays.
    wasi: Option<Box<Wasi>>,
    http: WasiHttpCtx,
    table: ResourceTable,
    sealed: bool,
    stdio_bytes: u64,
    pub(crate) limiter: Limiter,
    pub(crate) capabilities: Capabilities,
    /// What a program prints, if that is the answer; its stdout is then not logged.
    answer: Option<Sink>,
    answer_bytes: u64,
    pub(crate) began: Instant,
    pub(crate) deadline: Instant,
}

/// What WASI knows of a guest, and what the guest said there.
struct Wasi {
    ctx: WasiCtx,
    stdout: Sink,
    stderr: Sink,
}

/// More came out of a guest than its answer may have.
#[derive(Debug, thiserror::Error)]
#[error("the answer is longer than `host_call_bytes`")]
pub(crate) struct TooMuch;

/// How much of WASI a guest entry gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal<'a> {
    /// A call: variables, wall clock and randomness as they were granted, a real monotonic clock, and the granted
    /// folders if the component asks for folders.
    Call {
        /// Whether the component imports WASI's file system.
        folders: bool,
        /// What a program is started with; `None`: a function is called.
        program: Option<&'a CommandLine>,
    },
    /// Metadata queries and reductions: time stands still and randomness is fixed, so the answer is a function of
    /// the component and its input.
    Sealed,
}

impl GuestState {
    pub(crate) fn new(seal: Seal<'_>, limits: &Limits, capabilities: Capabilities) -> wasmtime::Result<Self> {
        let began = capabilities.times.map_or_else(Instant::now, |times| times.began);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        let mut state = Self {
            wasi: None,
            http: http::wasi::context(),
            table,
            sealed: matches!(seal, Seal::Sealed),
            stdio_bytes: limits.stdio_bytes,
            limiter: Limiter::new(limits),
            capabilities,
            answer: None,
            answer_bytes: limits.host_call_bytes,
            began,
            deadline: began + limits.timeout,
        };
        if let Seal::Call { folders, program } = seal
            && (folders || program.is_some())
        {
            let mut begun = state.begin();
            if let Some(line) = program {
                let sink = Sink::new(limits.host_call_bytes);
                begun.builder.stdout(sink.clone());
                start(&mut begun.builder, line, &state.capabilities);
                state.answer = Some(sink);
            }
            // Opening folders can fail: not in the middle of the guest's question.
            if folders {
                // `wasi_files` runs every operation on a thread that may block.
                begun.builder.allow_blocking_current_thread(true);
                preopen(&mut begun.builder, &state.capabilities)?;
            }
            state.wasi = Some(Box::new(begun.end()));
        }
        Ok(state)
    }

    /// The same in the store of an instance that was used before. All of it is of the call that begins; only the memory that
    /// the guest has is counted on.
    pub(crate) fn following(mut self, before: &mut Self) -> Self {
        self.limiter.follow(&mut before.limiter);
        self
    }

    /// Whether an instance can be used again: nothing of the host is open in it, whose next state would not know it, and it
    /// has room.
    pub(crate) fn can_rest(&self) -> bool {
        self.table.is_empty() && self.limiter.has_room()
    }

    /// What every guest has of WASI.
    fn begin(&self) -> Begun {
        let (stdout, stderr) = (Sink::new(self.stdio_bytes), Sink::new(self.stdio_bytes));
        let mut builder = WasiCtxBuilder::new();
        builder.stdout(stdout.clone()).stderr(stderr.clone()).max_random_size(MAX_RANDOM);
        if self.sealed {
            environment::seal(&mut builder);
        } else if let Some(granted) = &self.capabilities.who.granted {
            granted.environment.apply(&mut builder, &self.capabilities);
        }
        sockets::allow(&mut builder, &self.capabilities);
        Begun { builder, stdout, stderr }
    }

    /// What the guest wrote to stdout and to stderr, if it asked WASI for anything at all.
    pub(crate) fn output(&self) -> Option<[(&'static str, &Sink); 2]> {
        self.wasi.as_ref().map(|wasi| [("stdout", &wasi.stdout), ("stderr", &wasi.stderr)])
    }

    /// What a program has printed, and how many bytes of it were too many.
    pub(crate) fn answer(&self) -> (String, u64) {
        self.answer.as_ref().map(Sink::read).unwrap_or_default()
    }

    /// Most bytes that an answer may have.
    pub(crate) fn answer_bytes(&self) -> usize {
        usize::try_from(self.answer_bytes).unwrap_or(usize::MAX)
    }
}

/// A context that is being built.
struct Begun {
    builder: WasiCtxBuilder,
    stdout: Sink,
    stderr: Sink,
}

impl Begun {
    fn end(mut self) -> Wasi {
        Wasi { ctx: self.builder.build(), stdout: self.stdout, stderr: self.stderr }
    }
}

/// Sets up what a program is started with. A variable that the operator grants is not what the author says it is.
fn start(wasi: &mut WasiCtxBuilder, line: &CommandLine, capabilities: &Capabilities) {
    let name = capabilities.who.granted.as_ref().map_or("program", |granted| granted.tool.as_str());
    wasi.arg(name).args(&line.args).stdin(MemoryInputPipe::new(line.stdin.clone()));
    let is_granted =
        |name: &str| capabilities.who.granted.as_ref().is_some_and(|granted| granted.environment.has(name));
    for (name, value) in line.env.iter().filter(|(name, _)| !is_granted(name)) {
        wasi.env(name, value);
    }
}

/// Hands out the granted folders. wasmtime-wasi takes a path, so it gets the one path that cannot be swapped under
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
            None => Box::new(self.begin().end()),
        };
        WasiCtxView { ctx: &mut self.wasi.insert(wasi).ctx, table: &mut self.table }
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.capabilities, table: &mut self.table, ctx: &mut self.http }
    }
}
