//! The examples that tools carry in their metadata, called on the real component.
//!
//! ```json
//! {"examples": [{"args": {"name": "world"}, "value": "Hello, world!"}]}
//! ```
//!
//! What comes of a call is compared with what the example says of it: `value` (the whole text), `contains` (a part of
//! it), `structured`, or `error` (the code); without any it has to succeed. Each call has a session of its own. The
//! policy is the one that is named with `--config`; without one the plugin gets all that its tools declare, and its
//! workspace is a copy of `tests/workspace`, made anew for each call.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use toolbay::{Filter, Host, Policy, Session, ToolCall, TurnContext};
use toolbay_core::call::invoke::Failure;
use toolbay_core::pipeline::{self, CallResult};
use toolbay_core::registry::Entry;
use toolbay_policy::text::visible;

use super::project::{Component, Project};
use crate::command::approval;
use crate::command::args::SetupArgs;
use crate::command::setup::{self, Purpose};
use crate::command::{self as cmd, declared};
use crate::output::{self, GOOD, WRONG};
use crate::{Verdict, host_failed};

/// Where the files lie that examples work on, below the project.
const WORKSPACE: &str = "tests/workspace";

/// What metadata may say; other keys are others' business.
#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    examples: Vec<Example>,
}

/// A call, and what comes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    args: Value,
    value: Option<String>,
    contains: Option<String>,
    structured: Option<Value>,
    error: Option<String>,
}

/// Calls all examples, and tells of each on stdout.
pub(super) async fn run(setup: &SetupArgs, project: &Project, component: &Component) -> Result<Verdict> {
    let folder = Folder::new(&project.folder.join(WORKSPACE)).map_err(host_failed)?;
    let mut setup = setup.clone();
    if setup.config.is_none() {
        setup.workspace = Some(folder.path.clone());
    }
    let Some(host) = load(&setup, component).await? else { return Ok(Verdict::Bad) };
    let tools = cmd::tools(&host, &component.id);
    let (mut passed, mut failed) = (0, 0);
    let mut out = output::out();
    for entry in &tools {
        let name = &entry.def.name;
        let examples = match examples_of(entry) {
            Ok(examples) => examples,
            Err(problem) => {
                failed += 1;
                writeln!(out, "examples of {name} ... {WRONG}FAILED{WRONG:#}\n    {}", visible(&problem))?;
                continue;
            }
        };
        for (number, example) in (1..).zip(&examples) {
            folder.fill().map_err(host_failed)?;
            let problem = call(&host, entry, example).await;
            match problem {
                None => {
                    passed += 1;
                    writeln!(out, "example {number} of {name} ... {GOOD}ok{GOOD:#}")?;
                }
                Some(problem) => {
                    failed += 1;
                    writeln!(out, "example {number} of {name} ... {WRONG}FAILED{WRONG:#}")?;
                    for line in visible(&problem).lines() {
                        writeln!(out, "    {line}")?;
                    }
                }
            }
        }
    }
    writeln!(out, "\nexamples: {passed} passed, {failed} failed")?;
    if passed + failed == 0 {
        output::note("no tool has an example; see `example(…)` of `#[tool]`");
    }
    Ok(if failed == 0 { Verdict::Good } else { Verdict::Bad })
}

/// A host with the component, and with what it declares granted unless a policy was named.
async fn load(setup: &SetupArgs, component: &Component) -> Result<Option<Host>> {
    let file = setup::PolicyFile::find(setup)?;
    if setup.config.is_some() {
        return loaded(setup, file.policy()?, component).await;
    }
    let nothing = Policy::deny_all(setup.workspace.as_deref().unwrap_or(Path::new("/")));
    let Some(asked) = loaded(setup, nothing, component).await? else { return Ok(None) };
    let id = &component.id;
    let policy = declared(setup, &asked, id)?;
    loaded(setup, policy, component).await
}

async fn loaded(setup: &SetupArgs, policy: Policy, component: &Component) -> Result<Option<Host>> {
    let host = setup::host_for(setup, policy, Purpose::Look)?;
    match host.load_file(component.id.clone(), &component.file).await {
        Ok(_) => Ok(Some(host)),
        Err(error) => {
            output::complain(&format!("{}: {error}", component.id));
            Ok(None)
        }
    }
}

fn examples_of(entry: &Entry) -> Result<Vec<Example>, String> {
    let Some(meta) = &entry.def.meta else { return Ok(Vec::new()) };
    let read: Result<Metadata, _> = serde_json::from_str(meta.get());
    read.map(|meta| meta.examples).map_err(|error| format!("they are not as they should be: {error}"))
}

/// Makes the call; returns how what came of it differs.
async fn call(host: &Host, entry: &Entry, example: &Example) -> Option<String> {
    let mut session = Session::default();
    if let Some(approver) = approval::approver(true, false) {
        session = session.with_approver(approver);
    }
    let turn = TurnContext { session: Arc::new(session), ..TurnContext::default() };
    let call = ToolCall::new("1", entry.def.name.as_str(), example.args.to_string());
    let results = host.call_all(&host.view(Filter::default()), vec![call], turn).await;
    let Some(delivered) = results.into_iter().next() else {
        return Some("the call gave no result".to_owned());
    };
    difference(&delivered, example)
}

fn difference(delivered: &CallResult, example: &Example) -> Option<String> {
    let outcome = pipeline::outcome(&delivered.result);
    let output = match (&delivered.result, &example.error) {
        (Err(failure), Some(code)) => {
            let same = outcome.to_lowercase().replace('_', "-") == *code;
            let said = failure.to_string();
            let part = example.contains.as_ref().filter(|part| !said.contains(part.as_str()));
            return match (same, part) {
                (false, _) => Some(format!("the error is {outcome}, not {code}: {said}")),
                (true, Some(part)) => Some(format!("the error does not contain {part:?}:\n{said}")),
                (true, None) => None,
            };
        }
        (Err(Failure::Host(message)), None) => return Some(format!("the host failed: {message}")),
        (Err(failure), None) => return Some(format!("{failure} ({outcome})")),
        (Ok(output), Some(code)) => {
            return Some(format!("no error {code}, but the result\n{}", output.value));
        }
        (Ok(output), None) => output,
    };
    let mut text = String::new();
    if let Some(value) = example.value.as_ref().filter(|value| **value != output.value) {
        // Writing to a `String` does not fail.
        write!(text, "the result is\n{}\nnot\n{value}", output.value).ok();
    } else if let Some(part) = example.contains.as_ref().filter(|part| !output.value.contains(part.as_str()))
    {
        write!(text, "the result does not contain {part:?}:\n{}", output.value).ok();
    } else if let Some(wanted) = &example.structured {
        let found = output.structured.as_deref().map_or("nothing", |found| found.get());
        if serde_json::from_str::<Value>(found).ok().as_ref() != Some(wanted) {
            write!(text, "the structured result is\n{found}\nnot\n{wanted}").ok();
        }
    }
    (!text.is_empty()).then_some(text)
}

/// A workspace for calls, gone when this is dropped.
struct Folder {
    path: PathBuf,
    from: PathBuf,
}

impl Folder {
    fn new(from: &Path) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("toolbay-test-{}", std::process::id()));
        let folder = Self { path, from: from.to_path_buf() };
        folder.fill()?;
        Ok(folder)
    }

    /// Makes it what the project's folder is now.
    fn fill(&self) -> anyhow::Result<()> {
        let fill = || {
            if self.path.exists() {
                fs::remove_dir_all(&self.path)?;
            }
            fs::create_dir(&self.path)?;
            if self.from.is_dir() { copy(&self.from, &self.path) } else { Ok(()) }
        };
        fill().with_context(|| format!("the workspace of the examples, `{}`", self.path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).ok();
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
