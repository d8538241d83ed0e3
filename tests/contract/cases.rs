//! Cases from files: a call under a policy, and its expected result.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use integration_tests::TestHost;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use toolbay::core::call::{Identity, ProgressEvent, ProgressSink};
use toolbay::core::session::Session;
use toolbay::core::session::attachment::MemoryAttachments;
use toolbay::{Filter, ToolCall, TurnContext};

use crate::ID;
use crate::{guest_log, outcome};

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
    /// Texts that come with each turn, by name.
    #[serde(default)]
    attachments: BTreeMap<String, String>,
    #[serde(rename = "case")]
    cases: Vec<ContractCase>,
}

/// One call, or a look at what the plugin declares.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContractCase {
    name: String,
    /// The called tool.
    #[serde(default)]
    tool: String,
    /// A JSON pointer into the declarations, in place of a call. The result is named `is`.
    #[serde(default)]
    inspect: String,
    #[serde(default = "no_arguments")]
    args: String,
    #[serde(default)]
    turn: Option<u32>,
    /// Cancels the call at its first progress report.
    #[serde(default)]
    cancel: bool,
    /// Calls once more. `repeats` is whether both values are the same, and takes the place of the value.
    #[serde(default)]
    twice: bool,
    /// The expected `outcome`, and the expected `value`, `structured`, `subject`, `progress`, `log`, … if named. `json` holds more of them as
    /// JSON, which has null.
    expect: toml::Table,
}

fn no_arguments() -> String {
    "{}".to_owned()
}

/// The deviation of a case, if any.
pub(crate) struct Comparison<'a> {
    pub(crate) name: &'a str,
    /// The called tool or the inspected pointer; for the declarations as a whole, nothing.
    pub(crate) subject: &'a str,
    pub(crate) problem: Option<String>,
}

/// All files with cases.
pub(crate) fn suites(folder: &Path) -> Result<Vec<CaseFile>> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.retain(|file| !file.ends_with("table.toml"));
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
        let audience = format!("{:?}", event.audience).to_lowercase();
        self.events.lock().unwrap().push(json!([event.message, percent, audience]));
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

impl CaseFile {
    /// The declarations, and the result of each case.
    pub(crate) async fn run(&self, host: &TestHost) -> Vec<Value> {
        let mut seen = vec![declarations(host)];
        for case in &self.cases {
            seen.push(match case.tool.as_str() {
                "" => json!({"is": seen[0].pointer(&case.inspect)}),
                _ => case.run(host, || self.attachments()).await,
            });
        }
        seen
    }

    fn attachments(&self) -> MemoryAttachments {
        let attachments = MemoryAttachments::new();
        for (name, text) in &self.attachments {
            attachments.add(name, "text/plain", text.as_bytes());
        }
        attachments
    }

    /// The deviation of each case, if any.
    pub(crate) fn compare(&self, seen: &[Value], rust: &[Value]) -> Vec<Comparison<'_>> {
        let declarations =
            Comparison { name: "declarations", subject: "", problem: differs(&seen[0], &rust[0]) };
        let cases = self.cases.iter().enumerate().map(|(index, case)| {
            let (seen, rust) = (&seen[index + 1], &rust[index + 1]);
            // How far a cancelled call came is not deterministic.
            let same = || if case.cancel { None } else { differs(seen, rust) };
            let subject = if case.tool.is_empty() { &case.inspect } else { &case.tool };
            Comparison { name: &case.name, subject, problem: case.unmet(seen).or_else(same) }
        });
        std::iter::once(declarations).chain(cases).collect()
    }
}

impl ContractCase {
    async fn run(&self, host: &TestHost, attachments: impl Fn() -> MemoryAttachments) -> Value {
        let first = self.run_once(host, attachments()).await;
        if !self.twice {
            return first;
        }
        let mut second = self.run_once(host, attachments()).await;
        second["repeats"] = json!(first["value"] == second["value"]);
        second["value"] = Value::Null;
        second
    }

    async fn run_once(&self, host: &TestHost, attachments: MemoryAttachments) -> Value {
        let mut turn = TurnContext::default();
        turn.identity = Identity {
            turn: self.turn,
            attributes: [("memory-scope".to_owned(), json!("mine"))].into_iter().collect(),
            ..Identity::default()
        };
        turn.session = Arc::new(Session::default().with_id("the session"));
        turn.attachments = Some(Arc::new(attachments));
        let cancel = self.cancel.then(|| turn.cancel.clone());
        let reported = Arc::new(ProgressRecorder { events: Mutex::default(), cancel });
        turn.progress = Some(Arc::clone(&reported) as _);
        let call = ToolCall::new("1", format!("{ID}__{}", self.tool), &self.args);
        let view = host.host.view(Filter::default());
        guest_log::take();
        let delivered = host.host.call_all(&view, vec![call], turn).await.pop().unwrap();
        let events = reported.events.lock().unwrap().clone();
        let mut seen = outcome::of(&delivered, events);
        // Engines write stack traces, which differ.
        if self.expect.contains_key("log") {
            seen["log"] = json!(guest_log::take());
        }
        seen
    }

    /// The expected members that the result lacks.
    fn unmet(&self, seen: &Value) -> Option<String> {
        let mut expected: Map<String, Value> = toml::Table::try_into(self.expect.clone()).unwrap();
        if let Some(Value::String(more)) = expected.remove("json") {
            expected.extend(serde_json::from_str::<Map<_, _>>(&more).unwrap());
        }
        expected.iter().find_map(|(key, wanted)| {
            if let (false, Some(one_of)) = (seen[key].is_array(), wanted.as_array()) {
                return (!one_of.contains(&seen[key]))
                    .then(|| format!("`{key}` is {}, expected one of {wanted}", seen[key]));
            }
            // A text that ends with a star is a prefix.
            let (found, holds) = match (&seen[key], wanted.as_str().and_then(|text| text.strip_suffix('*'))) {
                (Value::String(found), Some(start)) => (&seen[key], found.starts_with(start)),
                (found, _) => (found, found == wanted),
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

/// What the plugin declares: its tools by name, available or not, without their source; the schema of its settings; its
/// prompts, resources and icons.
fn declarations(host: &TestHost) -> Value {
    let plugin = host.host.plugin(ID).unwrap();
    json!({
        "tools": tools(host),
        "config_schema": plugin.about.unwrap().config_schema,
        "prompts_and_resources": plugin.prompts_and_resources,
    })
}

fn tools(host: &TestHost) -> Value {
    let view = host.host.view(Filter::default());
    let own =
        view.catalog().tools().filter(|entry| entry.def.source.plugin().is_some_and(|id| id.as_str() == ID));
    let prefix = format!("{ID}__");
    own.map(|entry| (entry.def.name.as_str().replacen(&prefix, "", 1), outcome::definition(&entry.def)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
