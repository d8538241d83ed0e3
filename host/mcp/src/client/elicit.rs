//! Elicitations: requests of a server for input from the user. They are declined unless the embedder sets an
//! [`ElicitationHandler`].

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::tool::definition_text;
use toolbay_policy::hidden_chars::escape_hidden;

use super::bounds::{MAX_DESCRIPTION, MAX_ELICITATION_BYTES};
use crate::protocol::bounded;
use crate::protocol::message;

/// A request of a server for input from the user.
#[derive(Debug, Clone, PartialEq)]
pub struct Elicitation {
    /// The server's name in the policy.
    pub server: String,
    /// The server's message. It is untrusted data: truncated, and safe to print on a terminal.
    pub message: String,
    /// The form to fill in, as a JSON schema of flat properties.
    pub schema: Value,
}

/// The outcome of an elicitation.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationOutcome {
    /// The completed form. Missing fields get their defaults.
    Accept(Map<String, Value>),
    /// The user declined.
    Decline,
    /// The user dismissed the form without a decision.
    Cancel,
}

/// Answers elicitations of servers.
pub trait ElicitationHandler: Send + Sync + fmt::Debug {
    /// Shows an elicitation to the user. Dropping the future withdraws it.
    fn elicit<'a>(&'a self, question: &'a Elicitation) -> BoxFuture<'a, ElicitationOutcome>;
}

/// The parameters of `elicitation/create`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ElicitParams<'a> {
    mode: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(borrow)]
    requested_schema: Option<&'a RawValue>,
}

/// Runs an elicitation and returns the result of `elicitation/create`. URL mode is declined, since this client opens no
/// URLs. Forms that are too large or contain unsafe text are declined, too.
pub(super) async fn run_elicitation(
    of: Option<&dyn ElicitationHandler>,
    connector: &dyn ServerConnector,
    server: &str,
    params: Option<&RawValue>,
) -> Value {
    let decline = json!({"action": "decline"});
    let Some(of) = of else { return decline };
    let Some(question) = params.and_then(|params| parse_elicitation(connector, server, params)) else {
        return decline;
    };
    match of.elicit(&question).await {
        ElicitationOutcome::Accept(mut form) => {
            let fields = question.schema.get("properties").and_then(Value::as_object);
            for (name, field) in fields.into_iter().flatten() {
                if let (false, Some(default)) = (form.contains_key(name), field.get("default")) {
                    form.insert(name.clone(), default.clone());
                }
            }
            json!({"action": "accept", "content": form})
        }
        ElicitationOutcome::Decline => decline,
        ElicitationOutcome::Cancel => json!({"action": "cancel"}),
    }
}

/// Parses an elicitation. `None` if it must be declined.
fn parse_elicitation(
    connector: &dyn ServerConnector,
    server: &str,
    params: &RawValue,
) -> Option<Elicitation> {
    bounded::check_size(params, MAX_ELICITATION_BYTES).ok()?;
    let ElicitParams { mode, message, requested_schema } = message::parse_object(params).ok()?;
    if mode.is_some_and(|mode| mode != "form") {
        return None;
    }
    let mut schema = bounded::parse_bounded(requested_schema?, MAX_ELICITATION_BYTES).ok()?;
    let mut lost_name = false;
    definition_text::sanitize_schema(&mut schema, &|text| connector.redact(text), &mut |part| {
        lost_name |= part.is_name;
    });
    // The server would get a form without the field that it asked for.
    if lost_name {
        return None;
    }
    let message = connector.redact(&message);
    let message = escape_hidden(&message).chars().take(MAX_DESCRIPTION).collect();
    Some(Elicitation { server: server.to_owned(), message, schema })
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::inbox::tests::NullConnector;

    #[derive(Debug)]
    struct AcceptingHandler;

    impl ElicitationHandler for AcceptingHandler {
        fn elicit<'a>(&'a self, _: &'a Elicitation) -> BoxFuture<'a, ElicitationOutcome> {
            Box::pin(async { ElicitationOutcome::Accept(Map::from_iter([("b".to_owned(), json!(false))])) })
        }
    }

    #[tokio::test]
    async fn defaults_are_filled_in_and_url_elicitations_are_declined() {
        let ask = async |of: Option<&dyn ElicitationHandler>, params: Value| {
            let raw = serde_json::value::to_raw_value(&params).unwrap();
            run_elicitation(of, &NullConnector, "s", Some(&raw)).await
        };
        let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {
            "a": {"type": "integer", "default": 3}, "b": {"type": "boolean", "default": true}, "c": {}}}});
        let expect = json!({"action": "accept", "content": {"a": 3, "b": false}});
        assert_eq!(ask(Some(&AcceptingHandler), form.clone()).await, expect);
        let decline = json!({"action": "decline"});
        assert_eq!(ask(None, form).await, decline);
        assert_eq!(
            ask(Some(&AcceptingHandler), json!({"mode": "url", "url": "https://a", "message": "m"})).await,
            decline
        );
        assert_eq!(ask(Some(&AcceptingHandler), json!([])).await, decline);
        for bad in [
            json!({"message": "m", "requestedSchema": {"description": "x".repeat(MAX_ELICITATION_BYTES)}}),
            json!({"message": "m", "requestedSchema": {"properties": {"<|im_start|>": {}}}}),
            json!({"message": "m".repeat(MAX_ELICITATION_BYTES), "requestedSchema": {}}),
        ] {
            assert_eq!(ask(Some(&AcceptingHandler), bad).await, decline);
        }
    }
}
