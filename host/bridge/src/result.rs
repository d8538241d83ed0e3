//! Results of calls as documents, and back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolbay::core::output::untrusted::UntrustedMark;
use toolbay::core::pipeline::memory::MemoryReservation;
use toolbay::core::pipeline::{PolicyHints, Shaping};
use toolbay::core::tool::content::{ContentBlock, ErrorDetails};
use toolbay::policy::hint::Hint;
use toolbay::policy::limits::Usage;
use toolbay::{CallResult, ErrorCode, Failure, Fault, FaultKind, ToolError, ToolOutput};

/// The result of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResultDocument {
    call_id: String,
    tool: String,
    through: Option<String>,
    output: Option<OutputDocument>,
    failure: Option<FailureDocument>,
    cost_usd: Option<f64>,
    duration_us: u64,
    cached_ms: Option<u64>,
    source: Option<String>,
    call_sha256: Option<String>,
    cut_from_chars: Option<usize>,
    saved: Vec<String>,
    untrusted: bool,
    mismatch: bool,
    usage: Usage,
    hints: Vec<Hint>,
    hints_for_model: bool,
}

/// An output. `structured` and `meta` are JSON text.
#[derive(Debug, Serialize, Deserialize)]
struct OutputDocument {
    value: String,
    structured: Option<String>,
    content: Vec<ContentBlock>,
    meta: Option<String>,
}

/// A failure.
#[derive(Debug, Serialize, Deserialize)]
struct FailureDocument {
    kind: FailureKind,
    code: String,
    message: String,
    subject: Option<String>,
    limit: Option<String>,
    retry_after_ms: Option<u64>,
    structured: Option<String>,
    content: Vec<ContentBlock>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailureKind {
    Refused,
    Fault,
    Host,
}

impl ResultDocument {
    /// The document of a result, and the memory that the result holds.
    pub(crate) fn new(result: CallResult) -> (Self, Option<MemoryReservation>) {
        let cost_usd = result.cost_usd();
        let (output, failure) = match result.result {
            Ok(output) => (Some(output.into()), None),
            Err(failure) => (None, Some(failure.into())),
        };
        let Shaping { cut_from_chars, saved, mark, mismatch } = result.shaping;
        let document = Self {
            call_id: result.call_id.to_string(),
            tool: result.tool,
            through: result.through,
            output,
            failure,
            cost_usd,
            duration_us: result.duration_us,
            cached_ms: result.cached.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            source: result.source.map(|source| source.label()),
            call_sha256: result.call_sha256.as_ref().map(ToString::to_string),
            cut_from_chars,
            saved: saved.iter().map(|saved| saved.id.to_string()).collect(),
            untrusted: mark.is_some(),
            mismatch,
            usage: result.usage,
            hints: result.hints.lines,
            hints_for_model: result.hints.for_model,
        };
        (document, result.memory)
    }

    /// The result that vendor formats are written from.
    pub(crate) fn into_result(self) -> Result<CallResult, serde_json::Error> {
        let mark = match (&self.source, self.untrusted) {
            (Some(source), true) => Some(UntrustedMark::new(source, &self.tool)),
            _ => None,
        };
        let result = match (self.output, self.failure) {
            (Some(output), _) => Ok(output.into_output(self.cost_usd)?),
            (None, Some(failure)) => Err(failure.into_failure()?),
            (None, None) => return Err(serde::de::Error::custom("a result without output and failure")),
        };
        Ok(CallResult {
            call_id: Arc::from(self.call_id),
            tool: self.tool,
            through: self.through,
            result,
            shaping: Shaping { mark, ..Shaping::default() },
            usage: self.usage,
            duration_us: self.duration_us,
            source: None,
            call_sha256: None,
            cached: None,
            memory: None,
            hints: PolicyHints { lines: self.hints, for_model: self.hints_for_model },
        })
    }
}

fn raw_text(raw: Option<Box<RawValue>>) -> Option<String> {
    raw.map(|raw| String::from(Box::<str>::from(raw)))
}

pub(crate) fn raw_value(text: Option<String>) -> Result<Option<Box<RawValue>>, serde_json::Error> {
    text.map(RawValue::from_string).transpose()
}

impl From<ToolOutput> for OutputDocument {
    fn from(output: ToolOutput) -> Self {
        let ToolOutput { value, structured, content, meta, .. } = output;
        Self { value, structured: raw_text(structured), content, meta: raw_text(meta) }
    }
}

impl OutputDocument {
    fn into_output(self, cost_usd: Option<f64>) -> Result<ToolOutput, serde_json::Error> {
        let (structured, meta) = (raw_value(self.structured)?, raw_value(self.meta)?);
        Ok(ToolOutput { value: self.value, structured, content: self.content, cost_usd, meta })
    }
}

impl From<Failure> for FailureDocument {
    fn from(failure: Failure) -> Self {
        let new = |kind, code: &str, message| Self {
            kind,
            code: code.to_owned(),
            message,
            subject: None,
            limit: None,
            retry_after_ms: None,
            structured: None,
            content: Vec::new(),
        };
        match failure {
            Failure::Refused(ToolError { code, message, subject, details, .. }) => {
                let ErrorDetails { structured, content } = details.map(|one| *one).unwrap_or_default();
                let structured = raw_text(structured);
                Self { subject, structured, content, ..new(FailureKind::Refused, code.as_str(), message) }
            }
            Failure::Fault(Fault { kind, message, limit, retry_after_ms }) => {
                let limit = limit.map(|limit| limit.name.to_owned());
                Self { limit, retry_after_ms, ..new(FailureKind::Fault, kind.as_str(), message) }
            }
            Failure::Host(message) => new(FailureKind::Host, "host_failed", message),
        }
    }
}

impl FailureDocument {
    fn into_failure(self) -> Result<Failure, serde_json::Error> {
        Ok(match self.kind {
            FailureKind::Refused => {
                let structured = raw_value(self.structured)?;
                let error = ToolError::new(error_code(&self.code), self.message);
                error.with_details(ErrorDetails { structured, content: self.content }).into()
            }
            // Formats of vendors show the message only.
            FailureKind::Fault => Fault::new(FaultKind::Trap, self.message).into(),
            FailureKind::Host => Failure::Host(self.message),
        })
    }
}

/// The code with this name. Any other name is a failed execution.
pub(crate) fn error_code(name: &str) -> ErrorCode {
    let codes = [ErrorCode::InputInvalid, ErrorCode::NotAvailable, ErrorCode::StaleWrite];
    codes.into_iter().find(|code| code.as_str() == name).unwrap_or(ErrorCode::ExecutionFailed)
}
