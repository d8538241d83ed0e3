//! What a language asks of the bridge.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use toolbay::SessionLimits;
use toolbay::core::tool::ToolTraits;
use toolbay::core::tool::content::ContentBlock;

/// A request whose answer comes as an event.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Opens a host. Its answer is the number of the host.
    Open(Box<OpenRequest>),
    /// Runs calls.
    CallAll(Box<CallAllRequest>),
    /// Loads a plugin from a file.
    LoadFile { host: u64, plugin: String, file: PathBuf },
    /// Loads a plugin from the bytes beside the request.
    LoadBytes { host: u64, plugin: String },
    /// Replaces the policy.
    ReloadPolicy { host: u64, policy: PolicySource },
    /// Closes a host.
    Close { host: u64 },
}

/// A request that is answered at once.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Query {
    /// Checks a policy. Its answer is the text of the policy.
    Policy { policy: PolicySource },
    /// Makes a session. Its answer is its number.
    Session(SessionRequest),
    /// What a session used.
    SessionUsage { session: u64 },
    /// Makes a view. Its answer is its number.
    View { host: u64, filter: Box<FilterRequest> },
    /// The tools of the default list of a view.
    Tools { view: u64 },
    /// The definitions of a view in a vendor's format.
    Definitions { vendor: String, view: u64, strict: bool },
    /// The calls in the message beside the request.
    ParseCalls { vendor: String },
    /// The messages for the results beside the request.
    ResultMessages { vendor: String },
    /// Registers native tools.
    Register { host: u64, tools: Vec<ToolRequest> },
    /// Unregisters a tool.
    Unregister { host: u64, tool: String },
    /// Unloads a plugin.
    Unload { host: u64, plugin: String },
    /// The files that are not loaded.
    Problems { host: u64 },
    /// The most recent calls.
    Calls { host: u64, query: CallsRequest },
}

/// Where a policy comes from: a file, a text, a table, or nothing, which grants nothing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PolicySource {
    /// The folder of relative paths. Without it, that of the file.
    pub(crate) base: Option<PathBuf>,
    pub(crate) file: Option<PathBuf>,
    pub(crate) text: Option<String>,
    pub(crate) table: Option<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenRequest {
    pub(crate) policy: PolicySource,
    /// The program `toolbay`: the compile worker, and the guard of programs.
    pub(crate) executable: PathBuf,
    #[serde(default)]
    pub(crate) plugins: Option<PathBuf>,
    #[serde(default)]
    pub(crate) state_dir: Option<PathBuf>,
    #[serde(default)]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Whether the language has an approver.
    #[serde(default)]
    pub(crate) approver: bool,
    #[serde(default)]
    pub(crate) state_wait_ms: Option<u64>,
    #[serde(default)]
    pub(crate) source_wait_ms: Option<u64>,
    #[serde(default)]
    pub(crate) call_log: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallAllRequest {
    pub(crate) host: u64,
    pub(crate) view: u64,
    pub(crate) calls: Vec<CallRequest>,
    #[serde(default)]
    pub(crate) session: Option<u64>,
    /// Whether the language wants progress events.
    #[serde(default)]
    pub(crate) progress: bool,
    /// Whether each result comes as its call ends.
    #[serde(default)]
    pub(crate) stream: bool,
    #[serde(default)]
    pub(crate) budget_chars: Option<usize>,
    #[serde(default)]
    pub(crate) dry_run: bool,
    #[serde(default)]
    pub(crate) identity: IdentityRequest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallRequest {
    pub(crate) id: String,
    pub(crate) tool: String,
    /// JSON text, which reaches a guest as it was written.
    pub(crate) args: String,
    #[serde(default)]
    pub(crate) idempotency_key: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct IdentityRequest {
    pub(crate) session_key: Option<String>,
    pub(crate) platform: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) agent_id: Option<String>,
    pub(crate) personality_id: Option<String>,
    pub(crate) team_id: Option<String>,
    pub(crate) turn: Option<u32>,
    pub(crate) message_count: Option<u32>,
    pub(crate) traceparent: Option<String>,
    pub(crate) attributes: serde_json::Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SessionRequest {
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) max_calls: Option<u64>,
    pub(crate) max_identical_calls: Option<u64>,
    pub(crate) max_calls_per_turn: Option<u64>,
    pub(crate) max_identical_calls_per_turn: Option<u64>,
    pub(crate) max_cost_usd: Option<f64>,
}

impl SessionRequest {
    pub(crate) fn limits(&self) -> SessionLimits {
        SessionLimits {
            max_calls: self.max_calls,
            max_identical_calls: self.max_identical_calls,
            max_calls_per_turn: self.max_calls_per_turn,
            max_identical_calls_per_turn: self.max_identical_calls_per_turn,
            max_cost_usd: self.max_cost_usd,
            ..SessionLimits::default()
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FilterRequest {
    pub(crate) profile: Option<String>,
    pub(crate) allowed_tools: Option<BTreeSet<String>>,
    pub(crate) allowed_plugins: Option<BTreeSet<String>>,
    pub(crate) allowed_toolsets: Option<BTreeSet<String>>,
    pub(crate) allowed_tags: Option<BTreeSet<String>>,
    pub(crate) allowed_mcp_servers: Option<BTreeSet<String>>,
    pub(crate) allowed_mcp_tools: Option<BTreeMap<String, BTreeSet<String>>>,
    pub(crate) exclude_tools: BTreeSet<String>,
    pub(crate) exclude_tags: BTreeSet<String>,
    pub(crate) lazy: bool,
    pub(crate) toolcall_reason: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CallsRequest {
    pub(crate) limit: Option<usize>,
    pub(crate) tool: Option<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) session_id: Option<String>,
}

/// A native tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolRequest {
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    #[serde(default)]
    pub(crate) title: Option<String>,
    pub(crate) input_schema: Value,
    #[serde(default)]
    pub(crate) output_schema: Option<Value>,
    #[serde(default)]
    pub(crate) toolset: Option<String>,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    #[serde(default)]
    pub(crate) search_hint: Option<String>,
    #[serde(default)]
    pub(crate) traits: BTreeSet<String>,
    #[serde(default)]
    pub(crate) timeout_ms: Option<u64>,
    #[serde(default)]
    pub(crate) max_result_chars: Option<u32>,
    #[serde(default)]
    pub(crate) serial: Option<String>,
    #[serde(default)]
    pub(crate) cache_ms: Option<u64>,
}

impl ToolRequest {
    /// The traits by their names; an unknown name is an error.
    pub(crate) fn traits(&self) -> Result<ToolTraits, serde_json::Error> {
        let mut all = serde_json::to_value(ToolTraits::default())?;
        if let Value::Object(known) = &mut all {
            for name in &self.traits {
                match known.get_mut(name) {
                    Some(value) => *value = true.into(),
                    None => return Err(serde::de::Error::custom(format_args!("unknown trait `{name}`"))),
                }
            }
        }
        serde_json::from_value(all)
    }
}

/// A reply to an event.
#[derive(Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Reply {
    /// A native tool reports progress.
    Progress { message: String, percent: Option<f32>, audience: AudienceName },
    /// A native tool returned an output.
    Output(Box<OutputReply>),
    /// A native tool refused.
    Error { code: String, message: String, subject: Option<String>, cost_usd: Option<f64> },
    /// A native tool found no place to run.
    Busy { message: String },
    /// The task of a native tool was cancelled.
    Cancelled { message: String },
    /// A person answered.
    Approval { answer: ApprovalAnswer, comment: Option<String> },
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AudienceName {
    Internal,
    User,
    Dashboard,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApprovalAnswer {
    Yes,
    Always,
    No,
    Unanswered,
    Deferred,
}

#[derive(Deserialize)]
pub(crate) struct OutputReply {
    pub(crate) value: String,
    /// JSON text.
    #[serde(default)]
    pub(crate) structured: Option<String>,
    #[serde(default)]
    pub(crate) content: Vec<ContentBlock>,
    #[serde(default)]
    pub(crate) cost_usd: Option<f64>,
    /// JSON text.
    #[serde(default)]
    pub(crate) meta: Option<String>,
}
