//! The items that most plugins need.

pub use crate::serde_json::json;
pub use crate::{Error, IntoOutput, Json, Output, ReduceContext, Rendered, Result, ToolResult};
pub use crate::{data, plugin, reducer, tool, tools};
