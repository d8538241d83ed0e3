//! A fake host for native tests, and functions that call a tool with JSON.
//!
//! ```
//! use toolbay_sdk::prelude::*;
//! use toolbay_sdk::testing::FakeHost;
//! use toolbay_sdk::{context, files};
//!
//! /// Count the lines of a file.
//! #[tool(read_only, fs_read = "**")]
//! fn count_lines(
//!     /// The path of the file.
//!     path: String,
//! ) -> Result<String> {
//!     let count = files::read_text(&path)?.lines().count();
//!     context::progress("counted", 100.0);
//!     Ok(count.to_string())
//! }
//!
//! let fake = FakeHost::new().file("notes.txt", "one\ntwo\n");
//! assert_eq!(fake.run(|| count_lines("notes.txt".to_owned())).unwrap(), "2");
//! assert_eq!(fake.progress()[0].message, "counted");
//! ```

mod fake_files;
mod fake_http;
mod fake_kv;
mod fake_process;
mod fake_tools;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;

use crate::context::Audience;
use crate::invoke::{Invocation, Invoked};
use crate::kv::Scope;
use crate::log::Level;
use crate::process::{Command, Completed};
use crate::reduce::Reducer;
use crate::tool::{Tool, ToolPlugin, Toolset, call as call_named, definition};
use crate::types::{ToolDef, ToolResult};
use crate::{Output, ReduceContext, Result};

pub(crate) use fake_files::FakeFiles;
pub(crate) use fake_http::FakeHttp;
pub use fake_http::{Request, reply};
pub(crate) use fake_kv::FakeKv;
pub(crate) use fake_process::FakeProcess;
pub(crate) use fake_tools::FakeTools;

/// A progress event.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedProgress {
    /// The message.
    pub message: String,
    /// The progress, 0 to 100.
    pub percent: Option<f32>,
    /// The audience.
    pub audience: Audience,
}

/// A log line.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// Its level.
    pub level: Level,
    /// Its text.
    pub message: String,
    /// Its fields.
    pub fields: Vec<(String, String)>,
}

/// The configuration and the recordings of a fake host.
#[derive(Debug)]
pub(crate) struct FakeState {
    pub(crate) files: FakeFiles,
    pub(crate) kv: FakeKv,
    pub(crate) process: FakeProcess,
    pub(crate) http: FakeHttp,
    pub(crate) tools: FakeTools,
    pub(crate) secrets: BTreeMap<String, String>,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) working_dir: Option<String>,
    pub(crate) budget_chars: u32,
    pub(crate) dry_run: bool,
    /// How many more times `cancelled` returns false.
    pub(crate) polls_left: Option<u32>,
    pub(crate) progress: Vec<ReportedProgress>,
    pub(crate) log: Vec<LogLine>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<RefCell<FakeState>>>> = const { RefCell::new(None) };
}

/// Calls the fake host of this thread, if one is running.
pub(crate) fn with_fake<T>(ask: impl FnOnce(&mut FakeState) -> T) -> Option<T> {
    CURRENT.with_borrow(Clone::clone).map(|state| ask(&mut state.borrow_mut()))
}

/// A host that provides files, state, programs, requests, other tools, secrets, settings, the context and the log. It
/// denies everything else.
///
/// All calls of one fake host belong to one session, so files that were read guard later writes.
#[derive(Clone)]
pub struct FakeHost(Rc<RefCell<FakeState>>);

impl Default for FakeHost {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeHost {
    /// Creates a host without files and settings, and with a budget of 20,000 characters.
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(FakeState {
            files: FakeFiles::default(),
            kv: FakeKv::default(),
            process: FakeProcess::default(),
            http: FakeHttp::default(),
            tools: FakeTools::default(),
            secrets: BTreeMap::new(),
            config: BTreeMap::new(),
            attributes: BTreeMap::new(),
            working_dir: None,
            budget_chars: 20_000,
            dry_run: false,
            polls_left: None,
            progress: Vec::new(),
            log: Vec::new(),
        })))
    }

    /// Adds a file, or changes it as another process would.
    #[must_use]
    pub fn file(self, path: &str, data: impl AsRef<[u8]>) -> Self {
        self.set_file(path, data);
        self
    }

    /// Denies everything at and under a path.
    #[must_use]
    pub fn deny(self, path: &str) -> Self {
        self.0.borrow_mut().files.deny(path);
        self
    }

    /// Grants a scope of the key-value store.
    #[must_use]
    pub fn kv(self, scope: Scope) -> Self {
        self.0.borrow_mut().kv.grant(scope);
        self
    }

    /// Limits the total bytes of keys and values of the key-value store.
    #[must_use]
    pub fn kv_bytes(self, bytes: usize) -> Self {
        self.0.borrow_mut().kv.limit(bytes);
        self
    }

    /// Advances the clock for entries of the key-value store.
    pub fn pass_seconds(&self, seconds: u64) {
        self.0.borrow_mut().kv.pass(seconds);
    }

    /// Adds a program that a function implements. All others are denied.
    #[must_use]
    pub fn program(self, name: &str, answer: impl Fn(&Command) -> Completed + 'static) -> Self {
        self.0.borrow_mut().process.add(name, Box::new(answer));
        self
    }

    /// Answers requests with that method and URL. All others are denied.
    #[must_use]
    pub fn http(self, method: &str, url: &str, response: crate::http::Response) -> Self {
        self.0.borrow_mut().http.answer(method, url, response);
        self
    }

    /// Adds a callable tool that a function of its arguments implements. All others are denied.
    #[must_use]
    pub fn tool(self, name: &str, answer: impl Fn(&serde_json::Value) -> Result<Invoked> + 'static) -> Self {
        self.0.borrow_mut().tools.add(name, Box::new(answer));
        self
    }

    /// Returns the calls of other tools so far, including denied ones.
    pub fn invocations(&self) -> Vec<Invocation> {
        self.0.borrow().tools.calls()
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.0.borrow().http.requests()
    }

    /// Adds a secret; `placeholder` is what [`secrets::get`](crate::secrets::get) returns for it.
    #[must_use]
    pub fn secret(self, name: &str, placeholder: &str) -> Self {
        self.0.borrow_mut().secrets.insert(name.to_owned(), placeholder.to_owned());
        self
    }

    /// Adds a setting.
    #[must_use]
    pub fn config(self, key: &str, value: impl Serialize) -> Self {
        self.0.borrow_mut().config.insert(key.to_owned(), json_text(&value));
        self
    }

    /// Adds an attribute of the call.
    #[must_use]
    pub fn attribute(self, name: &str, value: impl Serialize) -> Self {
        self.0.borrow_mut().attributes.insert(name.to_owned(), json_text(&value));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn working_dir(self, path: &str) -> Self {
        self.0.borrow_mut().working_dir = Some(path.to_owned());
        self
    }

    /// Sets the budget of the output, in characters.
    #[must_use]
    pub fn budget_chars(self, budget_chars: u32) -> Self {
        self.0.borrow_mut().budget_chars = budget_chars;
        self
    }

    /// Makes the call a dry run.
    #[must_use]
    pub fn dry_run(self) -> Self {
        self.0.borrow_mut().dry_run = true;
        self
    }

    /// Cancels the call after this many checks.
    #[must_use]
    pub fn cancelled_after(self, polls: u32) -> Self {
        self.0.borrow_mut().polls_left = Some(polls);
        self
    }

    /// Runs code with this host.
    pub fn run<T>(&self, code: impl FnOnce() -> T) -> T {
        /// Restores the previous host, also if the code panics.
        struct RestoreHost(Option<Rc<RefCell<FakeState>>>);
        impl Drop for RestoreHost {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = RestoreHost(CURRENT.replace(Some(Rc::clone(&self.0))));
        code()
    }

    /// Changes a file between two runs, as another process would.
    pub fn set_file(&self, path: &str, data: impl AsRef<[u8]>) {
        self.0.borrow_mut().files.put(path, data.as_ref());
    }

    /// Returns the current text of a file, if it exists and is text.
    pub fn text(&self, path: &str) -> Option<String> {
        self.0.borrow().files.text(path)
    }

    /// Returns the commands so far, including denied ones.
    pub fn commands(&self) -> Vec<Command> {
        self.0.borrow().process.commands()
    }

    /// Returns the progress events so far.
    pub fn progress(&self) -> Vec<ReportedProgress> {
        self.0.borrow().progress.clone()
    }

    /// Returns the log lines so far.
    pub fn log(&self) -> Vec<LogLine> {
        self.0.borrow().log.clone()
    }
}

impl fmt::Debug for FakeHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FakeHost").field(&self.0.borrow()).finish()
    }
}

/// Calls a tool as the host does, with JSON: `call::<word_count>(json!({"text": "a b"}))`.
///
/// Constraints of the schema beyond the types (ranges, lengths, patterns) are not checked here. The host checks them.
pub fn call<T: Tool>(args: impl Serialize) -> Result<Output> {
    let internal_reads = T::SPEC.meta.is_some_and(|meta| meta.contains(r#""internal_reads":true"#));
    with_fake(|fake| fake.files.internal_reads = internal_reads);
    T::SPEC.call.call(&json_text(&args))
}

/// Calls a tool of a type with `#[tools]` by its name.
pub fn call_method<T: Toolset>(name: &str, args: impl Serialize) -> Result<Output> {
    call_named(&[T::TOOLS], name, &json_text(&args))
}

/// Returns the definition of a tool as the host sees it.
pub fn describe<T: Tool>() -> ToolDef {
    definition(&T::SPEC)
}

/// Returns the definitions of all tools of the plugin that `plugin!` generated.
pub fn plugin_tools<P: ToolPlugin>() -> Vec<ToolDef> {
    P::TOOLS.iter().copied().flatten().map(definition).collect()
}

/// Runs a reducer on the result of a call with these arguments, in turn 1.
pub fn reduce<R: Reducer>(input: &ToolResult, args: impl Serialize) -> Option<ToolResult> {
    let tool_name = R::SPEC.tool_name.to_owned();
    let ctx = ReduceContext { tool_name, args: json_text(&args), turn_count: 1, budget_chars: 20_000 };
    (R::SPEC.reduce)(input, &ctx)
}

fn json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("not JSON: {error}"))
}
