//! Cases out of files: what is called under which policy, and what must come of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use integration_tests::TestHost;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay::core::call::{Identity, Progress, ProgressSink};
use toolbay::core::session::Session;
use toolbay::{Filter, ToolCall, TurnContext};

use crate::ID;
use crate::outcome;

/// A file: a policy and cases under it, run one after the other in one host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Suite {
    #[serde(skip)]
    pub(crate) name: String,
    /// What the policy has beside its version.
    #[serde(default)]
    pub(crate) policy: String,
    /// Files of the workspace.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
    #[serde(rename = "case")]
    cases: Vec<Case>,
}

/// One call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    tool: String,
    #[serde(default = "no_arguments")]
    args: String,
    #[serde(default)]
    turn: Option<u32>,
    /// Gives the call up when it first reports progress.
    #[serde(default)]
    cancel: bool,
    /// What the result must hold: `outcome`, and of `value`, `structured`, `subject`, `progress`, … those that are named.
    expect: toml::Table,
}

fn no_arguments() -> String {
    "{}".to_owned()
}

/// All files of a folder but that of Python's plugin.
pub(crate) fn suites(folder: &Path) -> Result<Vec<Suite>> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.retain(|file| !file.ends_with("pyproject.toml"));
    files.sort();
    let read = |file: &Path| -> Result<Suite> {
        let text = std::fs::read_to_string(file)?;
        let mut suite: Suite = toml::from_str(&text)?;
        suite.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(suite)
    };
    files.iter().map(|file| read(file).with_context(|| format!("`{}`", file.display()))).collect()
}

/// Keeps what is reported, and gives the call up if that is wanted.
#[derive(Debug)]
struct Reported {
    events: Mutex<Vec<Value>>,
    cancel: Option<CancellationToken>,
}

impl ProgressSink for Reported {
    fn progress(&self, event: Progress) {
        let percent = event.percent.map(|percent| percent.round());
        self.events.lock().unwrap().push(json!([event.message, percent]));
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

impl Suite {
    /// What the definitions are and what each case gave.
    pub(crate) async fn run(&self, host: &TestHost) -> Vec<Value> {
        let mut seen = vec![definitions(host)];
        for case in &self.cases {
            seen.push(case.run(host).await);
        }
        seen
    }

    /// What is wrong with each, if anything.
    pub(crate) fn compare(&self, seen: &[Value], rust: &[Value]) -> Vec<(Option<String>, &str)> {
        let definitions = (differs(&seen[0], &rust[0]), "definitions");
        let cases = self.cases.iter().enumerate().map(|(index, case)| {
            let (seen, rust) = (&seen[index + 1], &rust[index + 1]);
            // How far it came until it was given up is chance.
            let same = || if case.cancel { None } else { differs(seen, rust) };
            (case.unmet(seen).or_else(same), case.name.as_str())
        });
        std::iter::once(definitions).chain(cases).collect()
    }
}

impl Case {
    async fn run(&self, host: &TestHost) -> Value {
        let mut turn = TurnContext::default();
        turn.identity = Identity {
            session_id: Some("the session".to_owned()),
            turn: self.turn,
            attributes: [("memory-scope".to_owned(), json!("mine"))].into_iter().collect(),
            ..Identity::default()
        };
        turn.session = Arc::new(Session::default());
        let cancel = self.cancel.then(|| turn.cancel.clone());
        let reported = Arc::new(Reported { events: Mutex::default(), cancel });
        turn.progress = Some(Arc::clone(&reported) as _);
        let call = ToolCall::new("1", format!("{ID}__{}", self.tool), &self.args);
        let view = host.host.view(Filter::default());
        let delivered = host.host.call_all(&view, vec![call], turn).await.pop().unwrap();
        let events = reported.events.lock().unwrap().clone();
        outcome::of(&delivered, events)
    }

    /// What is expected and not so.
    fn unmet(&self, seen: &Value) -> Option<String> {
        self.expect.iter().find_map(|(key, wanted)| {
            let wanted = serde_json::to_value(wanted).unwrap();
            if let (false, Some(one_of)) = (seen[key].is_array(), wanted.as_array()) {
                return (!one_of.contains(&seen[key]))
                    .then(|| format!("`{key}` is {}, expected one of {wanted}", seen[key]));
            }
            // Of a text with a star at its end, the beginning.
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

/// The tools by their names, available or not, without what differs by nature: where they come from.
fn definitions(host: &TestHost) -> Value {
    let view = host.host.view(Filter::default());
    let own =
        view.catalog().tools().filter(|entry| entry.def.source.plugin().is_some_and(|id| id.as_str() == ID));
    own.map(|entry| (entry.def.name.as_str().to_owned(), outcome::definition(&entry.def)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
