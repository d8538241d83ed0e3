//! What came of a call.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolbay::CallResult;
use toolbay::core::call::fault::Fault;
use toolbay::core::call::invoke::Failure;
use toolbay::core::pipeline;
use toolbay::core::tool::content::{Blob, BlockBody, ContentBlock, ResourceBody, ToolError, ToolOutput};
use toolbay::policy::limits::Usage;

use crate::fail;
use crate::golden::{Golden, sha256};

/// What came of a call. Each function panics if something else did, and says what.
#[derive(Debug)]
pub struct Called {
    delivered: CallResult,
    workspace: PathBuf,
}

impl Called {
    pub(crate) fn new(delivered: CallResult, workspace: &Path) -> Self {
        Self { delivered, workspace: workspace.to_path_buf() }
    }

    /// The text that the model reads, without the mark around what others wrote.
    ///
    /// # Panics
    /// When the call failed.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> &str {
        let text = &self.output().value;
        self.delivered.shaping.mark.as_ref().map_or(text, |mark| mark.inside(text))
    }

    /// The result for programs.
    ///
    /// # Panics
    /// When the call failed, or gave none.
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

    /// Pictures, sounds, links and the like.
    ///
    /// # Panics
    /// When the call failed.
    #[must_use]
    #[track_caller]
    pub fn content(&self) -> &[ContentBlock] {
        &self.output().content
    }

    /// The whole output.
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

    /// The error with which the tool, or the host before it, said no.
    ///
    /// # Panics
    /// When the call went well, or the tool misbehaved.
    #[must_use]
    #[track_caller]
    pub fn error(&self) -> &ToolError {
        match &self.delivered.result {
            Err(Failure::Refused(error)) => error,
            _ => self.otherwise("error"),
        }
    }

    /// The fault that ended the tool: a trap, or a limit that it ran into.
    ///
    /// # Panics
    /// When the call ended otherwise.
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

    /// What the call used: fuel, memory, time.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.delivered.usage
    }

    /// All that the host delivered.
    #[must_use]
    pub fn delivered(&self) -> &CallResult {
        &self.delivered
    }

    /// Compares with `tests/golden/NAME.json` of the crate under test; with `TOOLBAY_UPDATE_GOLDEN=1`, writes it.
    ///
    /// # Panics
    /// When they differ, with the lines that do, or the file is not there.
    #[track_caller]
    pub fn golden(&self, name: &str) {
        self.golden_with(name, |golden| golden);
    }

    /// The same, with what differs each time taken out first.
    ///
    /// # Panics
    /// As [`Called::golden`].
    #[track_caller]
    pub fn golden_with(&self, name: &str, settings: impl FnOnce(Golden) -> Golden) {
        let golden =
            Golden::new(self.golden_value()).replace(&self.workspace.display().to_string(), "$workspace");
        if let Err(problem) = settings(golden).compare(&crate::crate_folder(), name) {
            fail(&problem);
        }
    }

    /// The outcome as a golden file has it.
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
                let hints = self.delivered.hints.lines.join("\n");
                fail(&format!("{tool} gave no {wanted}, but {}: {failure}\n{hints}", self.outcome()))
            }
        }
    }
}

/// A block as a golden file has it: bytes by their digest.
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

/// What the host let through is JSON.
fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
