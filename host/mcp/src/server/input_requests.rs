//! The requests for input in the protocol: their types, and the shape of an answer.

#![expect(deprecated, reason = "clients still sample and list roots")]

use rmcp::model::{
    CreateMessageRequest, CreateMessageRequestParams, ElicitRequest, ElicitRequestParams, InputRequest,
    ListRootsRequest,
};
use serde_json::Value;
use toolbay_core::call::dialog::{DialogRequest, DialogRequestKind};

/// Most open input requests of one call.
pub(super) const MAX_OPEN_REQUESTS: usize = 16;

/// Converts a dialog request to the protocol type.
pub(super) fn to_input_request(ask: &DialogRequest) -> Result<InputRequest, String> {
    let read =
        |error: serde_json::Error| format!("the input request `{}` is not valid MCP: {error}", ask.key);
    let params = ask.params.clone();
    Ok(match ask.kind {
        DialogRequestKind::Elicit => InputRequest::Elicitation(ElicitRequest::new(
            serde_json::from_value::<ElicitRequestParams>(params).map_err(read)?,
        )),
        DialogRequestKind::Sample => InputRequest::CreateMessage(CreateMessageRequest::new(
            serde_json::from_value::<CreateMessageRequestParams>(params).map_err(read)?,
        )),
        DialogRequestKind::Roots => InputRequest::ListRoots(ListRootsRequest::default()),
    })
}

/// Whether an answer has the shape of this kind.
pub(super) fn is_valid_answer(kind: DialogRequestKind, answer: &Value) -> bool {
    match kind {
        DialogRequestKind::Elicit => {
            matches!(answer.get("action").and_then(Value::as_str), Some("accept" | "decline" | "cancel"))
                && answer.get("content").is_none_or(|content| content.is_object() || content.is_null())
        }
        DialogRequestKind::Sample => answer.get("role").is_some() && answer.get("content").is_some(),
        DialogRequestKind::Roots => answer.get("roots").is_some_and(Value::is_array),
    }
}
