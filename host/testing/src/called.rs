//! The result of a call.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolbay::CallResult;
use toolbay::core::call::invoke::Failure;
use toolbay::core::pipeline;
use toolbay::core::tool::content::{Blob, BlockBody, ContentBlock, ResourceBody, ToolError, ToolOutput};
use toolbay::core::tool::fault::Fault;
use toolbay::policy::limits::Usage;

use crate::fail;
use crate::golden::{GoldenFile, sha256};

/// The result of a call. Each accessor panics if the call ended differently, and prints how it ended.
#[derive(Debug)]
pub struct TestCallResult {
    delivered: CallResult,
    workspace: PathBuf,
}

impl TestCallResult {
    pub(crate) fn new(delivered: CallResult, workspace: &Path) -> Self {
        Self { delivered, workspace: workspace.to_path_buf() }
    }

    /// The text that the model reads, without the untrusted mark.
    ///
    /// # Panics
    /// When the call failed.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> &str {
        let text = &self.output().value;
        self.delivered.shaping.mark.as_ref().map_or(text, |mark| mark.strip_mark(text))
    }

    /// The structured result.
    ///
    /// # Panics
    /// When the call failed or has no structured result.
    #[must_use]
    #[track_caller]
    pub fn structured(&self) -> Value {
        let Some(raw) = &self.output().structured else {
            fail(&format!(
                "{} gave no structured result, only the text {:?}",
                self.delivered.tool,
                self.text()
            ));
        };
        read(raw.get())
    }

    /// Images, audio, links and other content blocks.
    ///
    /// # Panics
    /// When the call failed.
    #[must_use]
    #[track_caller]
    pub fn content(&self) -> &[ContentBlock] {
        &self.output().content
    }

    /// The complete output.
    ///
    /// # Panics
    /// When the call failed.
    #[must_use]
    #[track_caller]
    pub fn output(&self) -> &ToolOutput {
        match &self.delivered.result {
            Ok(output) => output,
            Err(_) => self.otherwise("result"),
        }
    }

    /// The error with which the tool or the host refused the call.
    ///
    /// # Panics
    /// When the call succeeded or ended with a fault.
    #[must_use]
    #[track_caller]
    pub fn error(&self) -> &ToolError {
        match &self.delivered.result {
            Err(Failure::Refused(error)) => error,
            _ => self.otherwise("error"),
        }
    }

    /// The fault that ended the call: a trap or a limit.
    ///
    /// # Panics
    /// When the call ended differently.
    #[must_use]
    #[track_caller]
    pub fn fault(&self) -> &Fault {
        match &self.delivered.result {
            Err(Failure::Fault(fault)) => fault,
            _ => self.otherwise("fault"),
        }
    }

    /// `ok`, the code of an error, the kind of a fault, or `host_failed`.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        pipeline::outcome(&self.delivered.result)
    }

    /// The usage of the call: fuel, memory, time.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.delivered.usage
    }

    /// The complete result as the host delivered it.
    #[must_use]
    pub fn delivered(&self) -> &CallResult {
        &self.delivered
    }

    /// Compares the result with `tests/golden/NAME.json` of the crate under test. With `TOOLBAY_UPDATE_GOLDEN=1`, writes the file.
    ///
    /// # Panics
    /// When they differ, with a diff, or when the file is missing.
    #[track_caller]
    pub fn golden(&self, name: &str) {
        self.golden_with(name, |golden| golden);
    }

    /// Like [`TestCallResult::golden`], after removing values that differ in each run.
    ///
    /// # Panics
    /// Like [`TestCallResult::golden`].
    #[track_caller]
    pub fn golden_with(&self, name: &str, settings: impl FnOnce(GoldenFile) -> GoldenFile) {
        let golden =
            GoldenFile::new(self.golden_value()).replace(&self.workspace.display().to_string(), "$workspace");
        if let Err(problem) = settings(golden).compare(&crate::crate_folder(), name) {
            fail(&problem);
        }
    }

    /// The outcome in the form of a golden file.
    fn golden_value(&self) -> Value {
        match &self.delivered.result {
            Ok(output) => {
                let members = [
                    ("text", Some(Value::from(self.text()))),
                    ("structured", output.structured.as_ref().map(|raw| read(raw.get()))),
                    ("meta", output.meta.as_ref().map(|raw| read(raw.get()))),
                    (
                        "content",
                        Some(output.content.iter().map(shown).collect::<Vec<_>>())
                            .filter(|all| !all.is_empty())
                            .map(Value::Array),
                    ),
                ];
                members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
            }
            Err(Failure::Refused(error)) => json!({
                "error": {"code": error.code.as_str(), "message": error.message, "subject": error.subject},
            }),
            Err(Failure::Fault(fault)) => {
                json!({"fault": {"kind": fault.kind.as_str(), "message": fault.message}})
            }
            Err(Failure::Host(message)) => json!({"host_failed": message}),
        }
    }

    #[track_caller]
    fn otherwise(&self, wanted: &str) -> ! {
        let tool = &self.delivered.tool;
        match &self.delivered.result {
            Ok(output) => fail(&format!("{tool} gave no {wanted}, but the result {:?}", output.value)),
            Err(failure) => {
                let hints: Vec<String> = self.delivered.hints.lines.iter().map(ToString::to_string).collect();
                let hints = hints.join("\n");
                fail(&format!("{tool} gave no {wanted}, but {}: {failure}\n{hints}", self.outcome()))
            }
        }
    }
}

/// A content block in the form of a golden file: bytes by their digest.
fn shown(block: &ContentBlock) -> Value {
    let bytes = |kind: &str, blob: &Blob| json!({"kind": kind, "mime_type": blob.mime_type, "bytes": blob.data.len(), "sha256": sha256(&blob.data)});
    match &block.body {
        BlockBody::Text(text) => json!({"kind": "text", "text": text}),
        BlockBody::Image(blob) => bytes("image", blob),
        BlockBody::Audio(blob) => bytes("audio", blob),
        BlockBody::Link(link) => json!({"kind": "link", "uri": link.uri, "name": link.name}),
        BlockBody::Embedded(resource) => match &resource.body {
            ResourceBody::Text(text) => json!({"kind": "resource", "uri": resource.uri, "text": text}),
            ResourceBody::Blob(data) => {
                json!({"kind": "resource", "uri": resource.uri, "bytes": data.len(), "sha256": sha256(data)})
            }
        },
    }
}

/// The host only lets JSON through.
fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
