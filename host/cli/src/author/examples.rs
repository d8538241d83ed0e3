//! The examples that tools carry in their metadata, called on the real component.
//!
//! ```json
//! {"examples": [{"args": {"name": "world"}, "value": "Hello, world!"}]}
//! ```
//!
//! The result of a call is compared with the example's `value` (the whole text), `contains` (a part of it),
//! `structured` or `error` (the code). Without any of them the call must succeed. Each call has its own session. The
//! policy is that of `--config`. Without one, the plugin is granted all that its tools declare, and its workspace is a
//! fresh copy of `tests/workspace` for each call.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbay::{Filter, Host, Policy, Session, ToolCall, TurnContext};
use toolbay_core::call::invoke::Failure;
use toolbay_core::pipeline::{self, CallResult};
use toolbay_core::registry::ToolEntry;
use toolbay_policy::hidden_chars::escape_hidden;

use super::project::{BuiltComponent, Project};
use crate::grants::policy_for_declared;
use crate::output::{self, CommandError, CommandStatus, FAILURE, Printer, SUCCESS, host_failure};
use crate::setup::{self, SetupArgs, approval};

/// The folder of the project with the files for the examples.
const WORKSPACE: &str = "tests/workspace";

/// The examples in a tool's metadata. Other keys are ignored.
#[derive(Default, Deserialize)]
struct ExampleMetadata {
    #[serde(default)]
    examples: Vec<Example>,
}

/// A call and its expected result.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    args: Value,
    value: Option<String>,
    contains: Option<String>,
    structured: Option<Value>,
    error: Option<String>,
}

/// The result of one example, or of examples that cannot be read.
#[derive(Debug, Serialize)]
struct ExampleResult {
    tool: String,
    /// The place of the example, from 1; `None`: the examples are malformed.
    number: Option<usize>,
    /// How the result differs; `None`: the example passed.
    problem: Option<String>,
}

/// Calls all examples and reports each on stdout.
pub(crate) async fn run(
    setup: &SetupArgs,
    project: &Project,
    component: &BuiltComponent,
) -> Result<CommandStatus> {
    let folder = ExampleWorkspace::new(&project.folder.join(WORKSPACE)).map_err(host_failure)?;
    let mut setup = setup.clone();
    if setup.config.is_none() {
        setup.workspace = Some(folder.path());
    }
    let host = load(&setup, component).await?;
    let mut results = Vec::new();
    for entry in &setup::tools(&host, &component.id) {
        let tool = entry.def.name.as_str().to_owned();
        let examples = match examples_of(entry) {
            Ok(examples) => examples,
            Err(problem) => {
                results
                    .push(ExampleResult { tool, number: None, problem: Some(problem) }.print(setup.printer)?);
                continue;
            }
        };
        for (number, example) in (1..).zip(&examples) {
            folder.fill().map_err(host_failure)?;
            let problem = call(&host, entry, example).await;
            results.push(
                ExampleResult { tool: tool.clone(), number: Some(number), problem }.print(setup.printer)?,
            );
        }
    }
    let failed = results.iter().filter(|result| result.problem.is_some()).count();
    let passed = results.len() - failed;
    if setup.printer.is_json() {
        output::print_json(&json!({
            "plugin": component.id.as_str(),
            "examples": results,
            "passed": passed,
            "failed": failed,
        }))?;
    } else {
        let gap = if results.is_empty() || !output::stdout_is_terminal() { "" } else { "\n" };
        writeln!(output::stdout(), "{gap}examples: {passed} passed, {failed} failed")?;
    }
    if results.is_empty() {
        setup.printer.note("no tool has an example; see `example(…)` of `#[tool]`");
    }
    Ok(CommandStatus::from_success(failed == 0))
}

impl ExampleResult {
    /// Prints the result when it is known, unless all are printed as JSON at the end.
    fn print(self, printer: Printer) -> io::Result<Self> {
        if printer.is_json() {
            return Ok(self);
        }
        let mut out = output::stdout();
        let Self { tool, number, problem } = &self;
        let name = number.map_or_else(|| format!("examples of {tool}"), |n| format!("example {n} of {tool}"));
        let Some(problem) = problem else {
            writeln!(out, "{name} ... {SUCCESS}ok{SUCCESS:#}")?;
            return Ok(self);
        };
        writeln!(out, "{name} ... {FAILURE}FAILED{FAILURE:#}")?;
        for line in escape_hidden(problem).lines() {
            writeln!(out, "    {line}")?;
        }
        Ok(self)
    }
}

/// A host with the component. Without `--config` it is granted what it declares.
async fn load(setup: &SetupArgs, component: &BuiltComponent) -> Result<Host> {
    let file = setup::PolicyFile::find(setup)?;
    if setup.config.is_some() {
        return load_component(setup, file.policy()?, component).await;
    }
    let nothing = Policy::deny_all(setup.workspace.as_deref().unwrap_or(Path::new("/")));
    let asked = load_component(setup, nothing, component).await?;
    let id = &component.id;
    let policy = policy_for_declared(setup, &asked, id)?;
    load_component(setup, policy, component).await
}

async fn load_component(setup: &SetupArgs, policy: Policy, component: &BuiltComponent) -> Result<Host> {
    let host = component.host(setup, policy)?;
    match host.load_file(component.id.clone(), &component.file).await {
        Ok(_) => Ok(host),
        Err(error) => {
            Err(CommandError::new("invalid_component", format!("{}: {error}", component.id)).into())
        }
    }
}

fn examples_of(entry: &ToolEntry) -> Result<Vec<Example>, String> {
    let Some(meta) = &entry.def.meta else { return Ok(Vec::new()) };
    let read: Result<ExampleMetadata, _> = serde_json::from_str(meta.get());
    read.map(|meta| meta.examples).map_err(|error| format!("the examples are malformed: {error}"))
}

/// Makes the call. Returns how its result differs from the example.
async fn call(host: &Host, entry: &ToolEntry, example: &Example) -> Option<String> {
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
            let message = failure.to_string();
            let part = example.contains.as_ref().filter(|part| !message.contains(part.as_str()));
            return match (same, part) {
                (false, _) => Some(format!("the error is {outcome}, not {code}: {message}")),
                (true, Some(part)) => Some(format!("the error does not contain {part:?}:\n{message}")),
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

/// A temporary workspace for the calls, deleted on drop.
struct ExampleWorkspace {
    dir: TempDir,
    from: PathBuf,
}

impl ExampleWorkspace {
    fn new(from: &Path) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir().context("the workspace of the examples")?;
        let folder = Self { dir, from: from.to_path_buf() };
        folder.fill()?;
        Ok(folder)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    /// Fills the workspace with the files of the project's folder.
    fn fill(&self) -> anyhow::Result<()> {
        let path = self.path();
        let fill = || {
            if path.exists() {
                fs::remove_dir_all(&path)?;
            }
            fs::create_dir(&path)?;
            if self.from.is_dir() { copy(&self.from, &path) } else { Ok(()) }
        };
        fill().with_context(|| format!("the workspace of the examples, `{}`", path.display()))
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
