//! The state in the store of one guest entry: limits, capabilities, and a WASI context. The context is created when the
//! guest first calls WASI, which most calls never do.
//!
//! The default context is empty: no environment, no arguments, empty stdin, no folders, no network, a frozen clock and
//! fixed randomness. A tool that was granted files finds its folders when it asks WASI for them.

use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

use toolbay_core::call::CallContext;
use toolbay_core::tool::manifest::CommandLine;
use toolbay_sandbox::engines::{Engines, LinkedEngine};
use toolbay_sandbox::guest_data::GuestData;
use toolbay_sandbox::resource_limiter::GuestResourceLimiter;
use toolbay_sandbox::stdio::OutputSink;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{ResourceTable, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::Capabilities;

/// Maximum number of random bytes per request.
const MAX_RANDOM: u64 = 64 << 10;

/// The engines whose guests reach the capabilities.
pub type GuestEngines = Engines<GuestState>;
/// An engine with the capabilities linked.
pub type GuestEngine = LinkedEngine<GuestState>;

/// The state of one store.
pub struct GuestState {
    /// Boxed: most calls have no context, and the state is moved several times.
    wasi: Option<Box<WasiContext>>,
    #[cfg(feature = "net")]
    pub(crate) http: wasmtime_wasi_http::WasiHttpCtx,
    pub(crate) table: ResourceTable,
    stdio_bytes: u64,
    /// The limiter of the store.
    pub limiter: GuestResourceLimiter,
    /// The grants of the entry, and its state of each capability.
    pub capabilities: Capabilities,
    /// The stdout of a program whose output is the result. It is not logged.
    program_output: Option<OutputSink>,
    max_program_output: u64,
    began: Instant,
    deadline: Instant,
}

/// A WASI context with the guest's output.
struct WasiContext {
    ctx: WasiCtx,
    stdout: OutputSink,
    stderr: OutputSink,
}

impl fmt::Debug for GuestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestState").finish_non_exhaustive()
    }
}

/// The capabilities of a store, for the linker.
pub(crate) fn capabilities_of(state: &mut GuestState) -> &mut Capabilities {
    &mut state.capabilities
}

impl GuestState {
    /// Creates the data of an entry. Its WASI context has what the capabilities were granted, and no folders.
    pub fn new(capabilities: Capabilities) -> Self {
        let limits = &capabilities.grantee.limits;
        let began = capabilities.times.map_or_else(Instant::now, |times| times.began);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        Self {
            wasi: None,
            #[cfg(feature = "net")]
            http: crate::http::wasi::context(),
            table,
            stdio_bytes: limits.stdio_bytes,
            limiter: GuestResourceLimiter::new(limits),
            program_output: None,
            max_program_output: limits.host_call_bytes,
            began,
            deadline: began + limits.timeout,
            capabilities,
        }
    }

    /// Creates the WASI context of a program, with its command line.
    pub fn prepare_program(&mut self, line: &CommandLine) {
        let mut context = self.wasi_builder();
        let sink = OutputSink::new(self.max_program_output);
        context.builder.stdout(sink.clone());
        set_command_line(&mut context.builder, line, &self.capabilities);
        self.program_output = Some(sink);
        self.wasi = Some(Box::new(context.build()));
    }

    /// Takes over the memory usage of the previous call in the same store. Everything else belongs to the new call.
    pub fn with_memory_of(mut self, before: &mut Self) -> Self {
        self.limiter.inherit_usage(&mut before.limiter);
        self
    }

    /// Whether another call can use the instance: no host handle is open, because the next state would not know it, and
    /// memory is left.
    pub fn is_reusable(&self) -> bool {
        self.table.is_empty() && self.limiter.has_room()
    }

    /// A builder with the settings that every guest gets.
    fn wasi_builder(&self) -> WasiContextBuilder {
        let (stdout, stderr) = (OutputSink::new(self.stdio_bytes), OutputSink::new(self.stdio_bytes));
        let mut builder = WasiCtxBuilder::new();
        builder.stdout(stdout.clone()).stderr(stderr.clone()).max_random_size(MAX_RANDOM);
        self.capabilities.configure(&mut builder);
        WasiContextBuilder { builder, stdout, stderr }
    }

    /// The grants of the entry, and the table with its handles.
    pub(crate) fn parts(&mut self) -> (&mut Capabilities, &mut ResourceTable) {
        (&mut self.capabilities, &mut self.table)
    }

    /// The stdout of a program, and the number of bytes past the limit.
    pub fn program_output(&self) -> (String, u64) {
        self.program_output.as_ref().map(OutputSink::read).unwrap_or_default()
    }

    /// Maximum size of a program's output, in bytes.
    pub fn max_program_output(&self) -> usize {
        usize::try_from(self.max_program_output).unwrap_or(usize::MAX)
    }
}

/// A WASI context under construction.
struct WasiContextBuilder {
    builder: WasiCtxBuilder,
    stdout: OutputSink,
    stderr: OutputSink,
}

impl WasiContextBuilder {
    fn build(mut self) -> WasiContext {
        WasiContext { ctx: self.builder.build(), stdout: self.stdout, stderr: self.stderr }
    }
}

/// Sets the arguments, stdin and environment of a program. Variables that the operator granted override those of the
/// author.
fn set_command_line(wasi: &mut WasiCtxBuilder, line: &CommandLine, capabilities: &Capabilities) {
    let name = capabilities.grantee.granted.as_ref().map_or("program", |granted| granted.tool.as_str());
    wasi.arg(name).args(&line.args).stdin(MemoryInputPipe::new(line.stdin.clone()));
    let is_granted = |name: &str| {
        capabilities.grantee.granted.as_ref().is_some_and(|granted| granted.environment.has(name))
    };
    for (name, value) in line.env.iter().filter(|(name, _)| !is_granted(name)) {
        wasi.env(name, value);
    }
}

impl GuestData for GuestState {
    fn limiter(&self) -> &GuestResourceLimiter {
        &self.limiter
    }

    fn limiter_mut(&mut self) -> &mut GuestResourceLimiter {
        &mut self.limiter
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn call(&self) -> Option<&CallContext> {
        self.capabilities.grantee.ctx.as_deref()
    }

    fn stdio_sinks(&self) -> Option<[(&'static str, &OutputSink); 2]> {
        self.wasi.as_ref().map(|wasi| [("stdout", &wasi.stdout), ("stderr", &wasi.stderr)])
    }

    fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.capabilities.redacted(text)
    }

    fn end(&self) {
        self.capabilities.end();
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = match self.wasi.take() {
            Some(wasi) => wasi,
            None => Box::new(self.wasi_builder().build()),
        };
        WasiCtxView { ctx: &mut self.wasi.insert(wasi).ctx, table: &mut self.table }
    }
}
