//! Fixtures of the integration tests: a host with test guests, and the checks for every provocation.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed fixture is a failed test"
)]

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use toolbay::core::audit::MemoryAudit;
use toolbay::core::call::invoke::Failure;
use toolbay::core::call::{ProgressEvent, ProgressSink};
use toolbay::core::pipeline;
use toolbay::core::tool::content::{BlockBody, ToolError, ToolOutput};
use toolbay::core::tool::fault::Fault;
use toolbay::{
    CallResult, Filter, Host, HostBuilder, PathResolution, PluginId, Policy, ToolCall, TurnContext,
};

/// A host with its own workspace folder and a captured audit.
#[derive(Debug)]
pub struct TestHost {
    /// The host.
    pub host: Host,
    /// The recorded lines.
    pub audit: Arc<MemoryAudit>,
    workspace: tempfile::TempDir,
}

/// The progress of the calls.
#[derive(Debug, Default)]
pub struct RecordedProgress(pub Mutex<Vec<ProgressEvent>>);

impl ProgressSink for RecordedProgress {
    fn progress(&self, event: ProgressEvent) {
        self.0.lock().unwrap().push(event);
    }
}

/// Time for a guest that has its place to begin with what it was called for. No test fails when it takes longer.
pub const SETTLED: Duration = Duration::from_millis(50);

/// The plugin that runs beside every provoked plugin.
pub const NEIGHBOUR: &str = "neighbour";

/// Parses a policy over a workspace, with `version = 1` before it.
///
/// # Panics
/// When the policy is invalid.
#[must_use]
pub fn policy(text: &str, workspace: &Path) -> Policy {
    Policy::parse(&format!("version = 1\n{text}"), workspace, None).unwrap()
}

/// The folder of compiled guests, which test runs share.
#[must_use]
pub fn cache_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-cache")
}

/// Who resolves the paths of guests: the tests of files run once more with what macOS does.
#[must_use]
pub fn path_resolution() -> PathResolution {
    match std::env::var_os("TOOLBAY_TEST_PORTABLE_PATHS") {
        Some(_) => PathResolution::Portable,
        None => PathResolution::Kernel,
    }
}

/// A turn to compile a guest, or all `plugins`. Of the processes that need the same guest at the same time, one compiles it,
/// and the others find it in the cache.
///
/// # Panics
/// When the lock file cannot be used.
pub async fn compile_turn(path: &str) -> File {
    let name = Path::new(path).file_name().unwrap();
    let place = cache_dir().with_file_name("test-cache-turns");
    std::fs::create_dir_all(&place).unwrap();
    let lock = File::create(place.join(name)).unwrap();
    // Another load of this process may have the turn, and needs the thread to continue.
    tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap()
}

/// Fills a new cache folder with the compiled code and the metadata of guests.
///
/// # Panics
/// When a guest does not load, or the folder exists.
pub async fn fill_cache(dir: &Path, guests: &[&str]) {
    let host = TestHost::empty("");
    DirBuilder::new().mode(0o700).create(dir).unwrap();
    for guest in guests {
        host.load("guest", guest).await;
        let digest = host.host.plugin("guest").unwrap().digest;
        let entries = std::fs::read_dir(cache_dir()).unwrap().map(|entry| entry.unwrap());
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&*digest)) {
            std::fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
        }
    }
}

impl TestHost {
    /// A host without plugins under a policy.
    ///
    /// # Panics
    /// When the host cannot be created.
    #[must_use]
    pub fn empty(text: &str) -> Self {
        Self::built(text, |builder, _| builder)
    }

    /// A host without plugins under a policy, with further settings.
    ///
    /// # Panics
    /// When the host cannot be created.
    #[must_use]
    pub fn empty_with(text: &str, settings: impl FnOnce(HostBuilder) -> HostBuilder) -> Self {
        Self::built(text, |builder, _| settings(builder))
    }

    /// A host without plugins under a policy, with further settings that may depend on the workspace.
    ///
    /// # Panics
    /// When the host cannot be created.
    #[must_use]
    pub fn built(text: &str, settings: impl FnOnce(HostBuilder, &Path) -> HostBuilder) -> Self {
        let workspace = tempfile::tempdir().unwrap();
        let root = workspace.path().canonicalize().unwrap();
        let audit = Arc::new(MemoryAudit::default());
        let builder = Host::builder(policy(text, &root)).cache_dir(cache_dir());
        let builder = builder.path_resolution(path_resolution());
        let host = settings(builder.audit(Arc::clone(&audit) as _), &root).build().unwrap();
        Self { host, audit, workspace }
    }

    /// A host with guests under the given ids, and the neighbour.
    ///
    /// # Panics
    /// When a guest does not load.
    pub async fn new(guests: &[(&str, &str)], text: &str) -> Self {
        let this = Self::empty(text);
        for (id, path) in guests.iter().chain(&[(NEIGHBOUR, guest_artifacts::API_ECHO)]) {
            this.load(id, path).await;
        }
        this
    }

    /// Loads another guest.
    ///
    /// # Panics
    /// When it does not load.
    pub async fn load(&self, id: &str, path: &str) {
        let _turn = compile_turn(path).await;
        let loaded = self.host.load_file(PluginId::new(id).unwrap(), Path::new(path)).await;
        loaded.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// The workspace.
    ///
    /// # Panics
    /// When it no longer exists.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.workspace.path().canonicalize().unwrap()
    }

    /// Calls one tool.
    pub async fn call(&self, tool: &str, args: Value) -> CallResult {
        self.call_in(tool, &args.to_string(), TurnContext::default()).await
    }

    /// Calls one tool in a turn, with the arguments as text.
    ///
    /// # Panics
    /// When there is no result.
    pub async fn call_in(&self, tool: &str, args: &str, turn: TurnContext) -> CallResult {
        let view = self.host.view(Filter::default());
        self.host.call_all(&view, vec![ToolCall::new("1", tool, args)], turn).await.pop().unwrap()
    }

    /// Waits until exactly this number of guests runs.
    ///
    /// # Panics
    /// When they do not start within a minute.
    pub async fn until_running(&self, guests: usize) {
        let (start, most) = (Instant::now(), self.host.policy().host().parallel_calls as usize);
        while most - self.host.available_call_permits() != guests {
            assert!(start.elapsed() < Duration::from_secs(60), "{guests} guests do not run");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until a call of this tool runs, and does not wait for a place.
    ///
    /// # Panics
    /// When none begins within a minute.
    pub async fn until_begun(&self, tool: &str) {
        let (start, running) = (Instant::now(), self.host.pipeline().running());
        while !running.list().iter().any(|call| call.began && call.tool == tool) {
            assert!(start.elapsed() < Duration::from_secs(60), "no call of {tool} begins");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Calls one tool and returns its `structured` result.
    ///
    /// # Panics
    /// When the call fails or returns no structured result.
    pub async fn ask(&self, tool: &str, args: Value) -> Value {
        let delivered = self.call(tool, args).await;
        structured(&delivered)
    }

    /// Provokes a plugin and checks that the call ends within `within`, that calls of a neighbour before and after it are
    /// answered, and that no permit stays taken.
    ///
    /// # Panics
    /// When one of these does not hold.
    pub async fn provoke(&self, tool: &str, args: Value, within: Duration) -> CallResult {
        let places = self.host.available_call_permits();
        let before = {
            let (host, view) = (self.host.clone(), self.host.view(Filter::default()));
            let call = ToolCall::new("before", format!("{NEIGHBOUR}__long"), r#"{"n": 50000}"#);
            tokio::spawn(async move { host.call_all(&view, vec![call], TurnContext::default()).await })
        };
        let start = Instant::now();
        let delivered = self.call(tool, args).await;
        assert!(start.elapsed() < within, "{tool} took {:?}", start.elapsed());
        assert_eq!(value(&before.await.unwrap().pop().unwrap()).len(), 50_000);
        let after = self.call(&format!("{NEIGHBOUR}__echo"), serde_json::json!({"a": 1})).await;
        assert_eq!(value(&after), r#"{"a":1}"#);
        assert_eq!(self.host.available_call_permits(), places, "a place is still taken after {tool}");
        delivered
    }
}

/// The texts of a result that a model reads.
#[must_use]
pub fn model_reads(delivered: &CallResult) -> String {
    match &delivered.result {
        Ok(output) => {
            let blocks = output.content.iter().filter_map(|block| match &block.body {
                BlockBody::Text(text) => Some(text.as_str()),
                _ => None,
            });
            std::iter::once(output.value.as_str()).chain(blocks).collect::<Vec<_>>().join("\n")
        }
        Err(failure) => failure.to_string(),
    }
}

/// The hints for the operator about the refusals of a call.
pub fn hints(delivered: &CallResult) -> String {
    delivered.hints.lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The text of a successful result.
///
/// # Panics
/// When the call failed.
#[must_use]
pub fn value(delivered: &CallResult) -> &str {
    &output(delivered).value
}

/// The text of a successful result without its untrusted mark.
///
/// # Panics
/// When the call failed.
#[must_use]
pub fn words(delivered: &CallResult) -> &str {
    let text = value(delivered);
    delivered.shaping.mark.as_ref().map_or(text, |mark| mark.strip_mark(text))
}

/// A successful result.
///
/// # Panics
/// When the call failed.
#[must_use]
pub fn output(delivered: &CallResult) -> &ToolOutput {
    match &delivered.result {
        Ok(output) => output,
        Err(failure) => panic!("{} failed: {failure}", delivered.tool),
    }
}

/// The `structured` result of a successful call.
///
/// # Panics
/// When the call failed or returned no structured result.
#[must_use]
pub fn structured(delivered: &CallResult) -> Value {
    let raw = output(delivered).structured.as_ref().expect("something structured");
    serde_json::from_str(raw.get()).unwrap()
}

/// The fault that ended a call.
///
/// # Panics
/// When it ended otherwise.
#[must_use]
pub fn fault(delivered: &CallResult) -> &Fault {
    match &delivered.result {
        Err(Failure::Fault(fault)) => fault,
        other => panic!("{}: expected a fault, got {other:?}", delivered.tool),
    }
}

/// The error with which a tool or a gate refused a call.
///
/// # Panics
/// When the call ended otherwise.
#[must_use]
pub fn refusal(delivered: &CallResult) -> &ToolError {
    match &delivered.result {
        Err(Failure::Refused(error)) => error,
        other => panic!("{}: expected a refusal, got {other:?}", delivered.tool),
    }
}

/// `ok`, an error code, a fault, or `host_failed`.
#[must_use]
pub fn outcome(delivered: &CallResult) -> &'static str {
    pipeline::outcome(&delivered.result)
}

/// A component with the same behaviour and another digest.
///
/// # Panics
/// When the component cannot be read.
#[must_use]
pub fn another_build(component: &str, mark: u8) -> Vec<u8> {
    let mut bytes = std::fs::read(component).unwrap();
    // A custom section (id 0) of three bytes: the length of its name, the name, and a byte of data.
    bytes.extend([0, 3, 1, b'm', mark]);
    bytes
}

/// Runs the test `name` (with its module) again in a new process, after the shell commands `limits`, and fails if that
/// process fails. Returns `false` in the new process, where the test continues.
///
/// # Panics
/// When the test fails there, or is not found.
#[must_use]
pub fn in_a_process(name: &str, limits: &str) -> bool {
    said_in_a_process(name, limits).is_some()
}

/// Like [`in_a_process`]: `None` in the new process, and in the parent its output on stdout and stderr.
///
/// # Panics
/// Like [`in_a_process`].
#[must_use]
pub fn said_in_a_process(name: &str, limits: &str) -> Option<(String, String)> {
    const CHILD: &str = "TOOLBAY_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let me = std::env::current_exe().unwrap();
    let run = std::process::Command::new("sh")
        .args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")])
        .arg(me)
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&run.stdout), text(&run.stderr));
    assert!(run.status.success() && stdout.contains("1 passed"), "{stderr:.3000}{stdout:.3000}");
    Some((stdout, stderr))
}
