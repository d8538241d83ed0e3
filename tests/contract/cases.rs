//! Cases from files: a call under a policy, and its expected result.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use integration_tests::TestHost;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay::core::call::{Identity, ProgressEvent, ProgressSink};
use toolbay::core::session::Session;
use toolbay::{Filter, ToolCall, TurnContext};

use crate::ID;
use crate::outcome;

/// A file: a policy and cases that run in order in one host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaseFile {
    #[serde(skip)]
    pub(crate) name: String,
    /// The policy without its version.
    #[serde(default)]
    pub(crate) policy: String,
    /// Files of the workspace.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
    #[serde(rename = "case")]
    cases: Vec<ContractCase>,
}

/// One call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContractCase {
    name: String,
    tool: String,
    #[serde(default = "no_arguments")]
    args: String,
    #[serde(default)]
    turn: Option<u32>,
    /// Cancels the call at its first progress report.
    #[serde(default)]
    cancel: bool,
    /// The expected `outcome`, and the expected `value`, `structured`, `subject`, `progress`, … if named.
    expect: toml::Table,
}

fn no_arguments() -> String {
    "{}".to_owned()
}

/// All files of a folder except the file for Python's plugin.
pub(crate) fn suites(folder: &Path) -> Result<Vec<CaseFile>> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.retain(|file| !file.ends_with("pyproject.toml"));
    files.sort();
    let read = |file: &Path| -> Result<CaseFile> {
        let text = std::fs::read_to_string(file)?;
        let mut suite: CaseFile = toml::from_str(&text)?;
        suite.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(suite)
    };
    files.iter().map(|file| read(file).with_context(|| format!("`{}`", file.display()))).collect()
}

/// Records the progress, and cancels the call if the case requires it.
#[derive(Debug)]
struct ProgressRecorder {
    events: Mutex<Vec<Value>>,
    cancel: Option<CancellationToken>,
}

impl ProgressSink for ProgressRecorder {
    fn progress(&self, event: ProgressEvent) {
        let percent = event.percent.map(|percent| percent.round());
        self.events.lock().unwrap().push(json!([event.message, percent]));
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

impl CaseFile {
    /// The definitions, and the result of each case.
    pub(crate) async fn run(&self, host: &TestHost) -> Vec<Value> {
        let mut seen = vec![definitions(host)];
        for case in &self.cases {
            seen.push(case.run(host).await);
        }
        seen
    }

    /// The deviation of each case, if any.
    pub(crate) fn compare(&self, seen: &[Value], rust: &[Value]) -> Vec<(Option<String>, &str)> {
        let definitions = (differs(&seen[0], &rust[0]), "definitions");
        let cases = self.cases.iter().enumerate().map(|(index, case)| {
            let (seen, rust) = (&seen[index + 1], &rust[index + 1]);
            // How far a cancelled call came is not deterministic.
            let same = || if case.cancel { None } else { differs(seen, rust) };
            (case.unmet(seen).or_else(same), case.name.as_str())
        });
        std::iter::once(definitions).chain(cases).collect()
    }
}

impl ContractCase {
    async fn run(&self, host: &TestHost) -> Value {
        let mut turn = TurnContext::default();
        turn.identity = Identity {
            turn: self.turn,
            attributes: [("memory-scope".to_owned(), json!("mine"))].into_iter().collect(),
            ..Identity::default()
        };
        turn.session = Arc::new(Session::default().with_id("the session"));
        let cancel = self.cancel.then(|| turn.cancel.clone());
        let reported = Arc::new(ProgressRecorder { events: Mutex::default(), cancel });
        turn.progress = Some(Arc::clone(&reported) as _);
        let call = ToolCall::new("1", format!("{ID}__{}", self.tool), &self.args);
        let view = host.host.view(Filter::default());
        let delivered = host.host.call_all(&view, vec![call], turn).await.pop().unwrap();
        let events = reported.events.lock().unwrap().clone();
        outcome::of(&delivered, events)
    }

    /// The expected members that the result lacks.
    fn unmet(&self, seen: &Value) -> Option<String> {
        self.expect.iter().find_map(|(key, wanted)| {
            let wanted = serde_json::to_value(wanted).unwrap();
            if let (false, Some(one_of)) = (seen[key].is_array(), wanted.as_array()) {
                return (!one_of.contains(&seen[key]))
                    .then(|| format!("`{key}` is {}, expected one of {wanted}", seen[key]));
            }
            // A text that ends with a star is a prefix.
            let (found, holds) = match (&seen[key], wanted.as_str().and_then(|text| text.strip_suffix('*'))) {
                (Value::String(found), Some(start)) => (&seen[key], found.starts_with(start)),
                (found, _) => (found, *found == wanted),
            };
            (!holds).then(|| format!("`{key}` is {found}, expected {wanted}; all: {seen}"))
        })
    }
}

fn differs(seen: &Value, rust: &Value) -> Option<String> {
    if seen == rust {
        return None;
    }
    let parts = |value: &Value| match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        other => vec![(String::new(), other.clone())],
    };
    let (seen, rust) = (parts(seen), parts(rust));
    let only = |own: &[(String, Value)], other: &[(String, Value)]| {
        let own =
            own.iter().filter(|part| !other.contains(part)).map(|(key, value)| format!("{key} {value}"));
        own.collect::<Vec<_>>().join(", ")
    };
    Some(format!("{}\n    in Rust: {}", only(&seen, &rust), only(&rust, &seen)))
}

/// The tools by name, available or not, without their source.
fn definitions(host: &TestHost) -> Value {
    let view = host.host.view(Filter::default());
    let own =
        view.catalog().tools().filter(|entry| entry.def.source.plugin().is_some_and(|id| id.as_str() == ID));
    own.map(|entry| (entry.def.name.as_str().to_owned(), outcome::definition(&entry.def)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
