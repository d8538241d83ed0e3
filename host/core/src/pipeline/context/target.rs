//! The target of a call.

use std::sync::Arc;

use crate::call::CallContext;
use crate::registry::view::{FoundTool, ToolDenial};
use crate::tool::ToolSource;

/// The target of a call: a tool of the view, or an unknown name.
pub(crate) struct CallTarget<'b> {
    /// The tool, if the caller may know that it exists. It is looked up once, so all stages see the same tool.
    pub(crate) found: Option<FoundTool<'b>>,
    /// The source of the tool, even if the caller must not know that the tool exists.
    pub(crate) source: Option<&'b Arc<ToolSource>>,
    /// The gate that refuses the tool.
    pub(crate) denial: Option<ToolDenial>,
    pub(crate) ctx: Arc<CallContext>,
}

impl CallTarget<'_> {
    /// Whether the tool exists and the caller must not learn that.
    pub(crate) fn is_hidden(&self) -> bool {
        self.denial.as_ref().is_some_and(ToolDenial::hides_tool)
    }
}
