//! A host with the component under test, and calls of its tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use toolbay::{Filter, Host, PluginId, ToolCall, TurnContext};

use crate::called::TestCallResult;
use crate::cassette::Cassette;
use crate::fail;

/// A host with one plugin, a temporary workspace and temporary state.
///
/// ```no_run
/// use serde_json::json;
/// use toolbay_testing::TestHost;
///
/// let host = TestHost::of_file("text", "plugins/text.wasm").limit("timeout", "2s").start();
/// let result = host.call("word_count", json!({"text": "to be or not to be"}));
/// assert_eq!(result.structured()["words"], 6);
/// ```
#[derive(Debug)]
pub struct TestHost {
    pub(crate) host: Host,
    pub(crate) id: PluginId,
    pub(crate) runtime: Runtime,
    pub(crate) cassette: Option<Arc<Cassette>>,
    pub(crate) workspace: PathBuf,
    pub(crate) _folder: TempDir,
}

impl TestHost {
    /// Calls a tool of the plugin by its short name, in a new session.
    ///
    /// # Panics
    /// When the tool sent a request that is not in the HTTP record.
    #[track_caller]
    pub fn call(&self, tool: &str, args: Value) -> TestCallResult {
        self.call_in(tool, args, TurnContext::default())
    }

    /// Calls a tool in a turn: with an identity, a session, a budget, or as a dry run.
    ///
    /// # Panics
    /// Like [`TestHost::call`].
    #[track_caller]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments are written in place, as `json!` gives them"
    )]
    pub fn call_in(&self, tool: &str, args: Value, turn: TurnContext) -> TestCallResult {
        let call = ToolCall::new("1", format!("{}__{tool}", self.id), args.to_string());
        let view = self.host.view(Filter::default());
        let delivered = self.runtime.block_on(self.host.call_all(&view, vec![call], turn)).pop();
        if let Some(problem) = self.cassette.as_ref().and_then(|cassette| cassette.problem()) {
            fail(&problem);
        }
        match delivered {
            Some(delivered) => TestCallResult::new(delivered, &self.workspace),
            None => fail("the host gave no result"),
        }
    }

    /// The folder that the policy calls `$workspace`.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }
}
