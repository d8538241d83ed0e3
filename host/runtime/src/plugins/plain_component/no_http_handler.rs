//! The place of HTTP handlers in a build without the feature `net`. A component that is one imports `wasi:http`, and is not
//! loaded.

use serde_json::Value;
use toolbay_capabilities::bindings::types::ToolResult;
use toolbay_capabilities::state::GuestState;
use toolbay_core::tool::manifest::RequestTemplate;
use wasmtime::Store;
use wasmtime::component::InstancePre;

/// A handler, which does not exist.
pub(super) enum HttpHandler {}

impl HttpHandler {
    pub(super) fn new(_pre: &InstancePre<GuestState>) -> Option<Self> {
        None
    }

    pub(super) async fn call(
        &self,
        _store: &mut Store<GuestState>,
        _template: &RequestTemplate,
        _args: &Value,
    ) -> wasmtime::Result<ToolResult> {
        match *self {}
    }
}
