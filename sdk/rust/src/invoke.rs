//! Other tools, called in the middle of a call.
//!
//! A tool that declares `invoke` and was granted it calls what its caller may call, as far as the grant goes. Each call
//! passes the gates that it would pass if a model made it, and may be refused by them.
//!
//! ```
//! use toolbay_sdk::invoke::{self, Invocation, Invoked};
//! use toolbay_sdk::prelude::*;
//! use toolbay_sdk::testing::Fake;
//!
//! /// How long two files are together.
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
//! let fake = Fake::new().tool("files__read_file", |_| Ok(Invoked::text("four")));
//! assert_eq!(fake.run(|| both("a".into(), "b".into())).unwrap(), "8");
//! assert_eq!(fake.invocations()[1].args, r#"{"path":"b"}"#);
//! ```
//!
//! | the host says | the tool's error | subject |
//! |---|---|---|
//! | not granted | `not-available` | `denied` |
//! | calls lie too deep in one another | `not-available` | `depth` |
//! | too many calls | `not-available` | `limit` |
//! | what a model would be told of the call that failed | its own | its own; a fault has its kind: `deadline`, `trap`, … |

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::from_record;
use crate::host::tool_invoke as host;
use crate::{Error, Result};

pub use crate::bindings::imports::toolbay::plugin::tool_invoke::{Callable, Invocation, Invoked};

/// Lists the tools that may be called, in the order of their names.
pub fn tools() -> Vec<Callable> {
    host::tools()
}

/// Calls a tool.
pub fn call(tool: &str, args: impl Serialize) -> Result<Invoked> {
    let mut answers = call_all([Invocation::new(tool, args)])?;
    answers.pop().unwrap_or_else(|| Err(Error::failed("the host gave no answer")))
}

/// Makes calls side by side, and returns what became of each, in their order. An error of the whole says that none was
/// made.
pub fn call_all(calls: impl IntoIterator<Item = Invocation>) -> Result<Vec<Result<Invoked>>> {
    let calls: Vec<Invocation> = calls.into_iter().collect();
    let answers = host::invoke(&calls).map_err(from_record)?;
    Ok(answers.into_iter().map(|answer| answer.map_err(from_record)).collect())
}

impl Invocation {
    /// Makes a call of a tool with arguments that become a JSON object.
    pub fn new(tool: impl Into<String>, args: impl Serialize) -> Self {
        // What is no JSON the host refuses, with a text that says so.
        let args = serde_json::to_string(&args).unwrap_or_else(|error| format!("not JSON: {error}"));
        Self { name: tool.into(), args }
    }
}

impl Invoked {
    /// Makes an answer of text alone, for tests.
    pub fn text(value: impl Into<String>) -> Self {
        Self { value: value.into(), structured: None, truncated: false }
    }

    /// Reads the structured result, or the text if there is none, as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_str(self.structured.as_deref().unwrap_or(&self.value))?)
    }
}
