//! Calls of other tools during a call.
//!
//! A tool that declares `invoke` and has the grant calls the tools that both the grant and its caller's view allow. Each
//! call passes the same gates as a call of a model, and the gates may refuse it.
//!
//! ```
//! use toolbay_sdk::invoke::{self, Invocation, Invoked};
//! use toolbay_sdk::prelude::*;
//! use toolbay_sdk::testing::FakeHost;
//!
//! /// Returns the total length of two files.
//! #[tool(read_only, invoke = "files__read_file")]
//! fn both(first: String, second: String) -> Result<String> {
//!     let calls = [first, second].map(|path| Invocation::new("files__read_file", json!({"path": path})));
//!     let mut length = 0;
//!     for read in invoke::call_all(calls)? {
//!         length += read?.value.len();
//!     }
//!     Ok(length.to_string())
//! }
//!
//! let fake = FakeHost::new().tool("files__read_file", |_| Ok(Invoked::text("four")));
//! assert_eq!(fake.run(|| both("a".into(), "b".into())).unwrap(), "8");
//! assert_eq!(fake.invocations()[1].args, r#"{"path":"b"}"#);
//! ```
//!
//! | error of the host | error of the tool | subject |
//! |---|---|---|
//! | not granted | `not-available` | `denied` |
//! | nested calls too deep | `not-available` | `depth` |
//! | too many calls | `not-available` | `limit` |
//! | error of the nested call | the same error | the same; for a fault its kind: `deadline`, `trap`, … |

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::from_record;
use crate::host::tool_invoke as host;
use crate::{Error, Result};

pub use crate::bindings::imports::toolbay::plugin::tool_invoke::{Callable, Invocation, Invoked};

/// Lists the callable tools by name.
pub fn tools() -> Vec<Callable> {
    host::tools()
}

/// Calls a tool.
pub fn call(tool: &str, args: impl Serialize) -> Result<Invoked> {
    let mut answers = call_all([Invocation::new(tool, args)])?;
    answers.pop().unwrap_or_else(|| Err(Error::failed("the host gave no answer")))
}

/// Makes calls concurrently and returns their results in order. An error of the batch means that no call was
/// made.
pub fn call_all(calls: impl IntoIterator<Item = Invocation>) -> Result<Vec<Result<Invoked>>> {
    let calls: Vec<Invocation> = calls.into_iter().collect();
    let answers = host::invoke(&calls).map_err(from_record)?;
    Ok(answers.into_iter().map(|answer| answer.map_err(from_record)).collect())
}

impl Invocation {
    /// Creates a call of a tool with arguments that become a JSON object.
    pub fn new(tool: impl Into<String>, args: impl Serialize) -> Self {
        // The host refuses invalid JSON with a message.
        let args = serde_json::to_string(&args).unwrap_or_else(|error| format!("not JSON: {error}"));
        Self { name: tool.into(), args }
    }
}

impl Invoked {
    /// Creates a text-only result, for tests.
    pub fn text(value: impl Into<String>) -> Self {
        Self { value: value.into(), structured: None, truncated: false }
    }

    /// Parses the structured result, or the text if there is none, as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_str(self.structured.as_deref().unwrap_or(&self.value))?)
    }
}
