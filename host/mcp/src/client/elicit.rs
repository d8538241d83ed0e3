//! A server's questions to a person. Nobody answers them unless the embedder says who does.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::outside::Outside;
use toolbay_core::tool::wording;
use toolbay_policy::text::visible;

use super::bounds::{MAX_DESCRIPTION, MAX_QUESTION};
use crate::protocol::bounded;
use crate::protocol::message;

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Elicitation {
    /// The server's name in the policy.
    pub server: String,
    /// What it says. Its words: data, cut, and fit for a terminal.
    pub message: String,
    /// The form that it wants filled in, a JSON schema of flat properties.
    pub schema: Value,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Elicited {
    /// The form, filled in. What has a default and is missing gets it.
    Accept(Map<String, Value>),
    /// The person said no.
    Decline,
    /// The person said nothing.
    Cancel,
}

/// Somebody who answers servers' questions.
pub trait Elicit: Send + Sync + fmt::Debug {
    /// Asks. Dropping the future takes the question back.
    fn elicit<'a>(&'a self, question: &'a Elicitation) -> BoxFuture<'a, Elicited>;
}

/// The parameters of `elicitation/create`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    mode: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(borrow)]
    requested_schema: Option<&'a RawValue>,
}

/// Asks a question and returns the result of `elicitation/create`. One that wants a person to open an address is declined:
/// nobody here opens one. So is one whose form is too large, or has what a person should not be shown.
pub(super) async fn answer(
    of: Option<&dyn Elicit>,
    outside: &dyn Outside,
    server: &str,
    params: Option<&RawValue>,
) -> Value {
    let decline = json!({"action": "decline"});
    let Some(of) = of else { return decline };
    let Some(question) = params.and_then(|params| read(outside, server, params)) else { return decline };
    match of.elicit(&question).await {
        Elicited::Accept(mut form) => {
            let fields = question.schema.get("properties").and_then(Value::as_object);
            for (name, field) in fields.into_iter().flatten() {
                if let (false, Some(default)) = (form.contains_key(name), field.get("default")) {
                    form.insert(name.clone(), default.clone());
                }
            }
            json!({"action": "accept", "content": form})
        }
        Elicited::Decline => decline,
        Elicited::Cancel => json!({"action": "cancel"}),
    }
}

/// A question that may be asked.
fn read(outside: &dyn Outside, server: &str, params: &RawValue) -> Option<Elicitation> {
    bounded::small(params, MAX_QUESTION).ok()?;
    let Params { mode, message, requested_schema } = message::object(params).ok()?;
    if mode.is_some_and(|mode| mode != "form") {
        return None;
    }
    let mut schema = bounded::tree(requested_schema?, MAX_QUESTION).ok()?;
    wording::schema(&mut schema, &|text| outside.redacted(text)).ok()?;
    let message = outside.redacted(&message);
    let message = visible(&message).chars().take(MAX_DESCRIPTION).collect();
    Some(Elicitation { server: server.to_owned(), message, schema })
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::inbox::tests::Nowhere;

    #[derive(Debug)]
    struct Yes;

    impl Elicit for Yes {
        fn elicit<'a>(&'a self, _: &'a Elicitation) -> BoxFuture<'a, Elicited> {
            Box::pin(async { Elicited::Accept(Map::from_iter([("b".to_owned(), json!(false))])) })
        }
    }

    #[tokio::test]
    async fn defaults_are_filled_in_and_addresses_are_not_opened() {
        let ask = async |of: Option<&dyn Elicit>, params: Value| {
            let raw = serde_json::value::to_raw_value(&params).unwrap();
            answer(of, &Nowhere, "s", Some(&raw)).await
        };
        let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {
            "a": {"type": "integer", "default": 3}, "b": {"type": "boolean", "default": true}, "c": {}}}});
        let expect = json!({"action": "accept", "content": {"a": 3, "b": false}});
        assert_eq!(ask(Some(&Yes), form.clone()).await, expect);
        let decline = json!({"action": "decline"});
        assert_eq!(ask(None, form).await, decline);
        assert_eq!(
            ask(Some(&Yes), json!({"mode": "url", "url": "https://a", "message": "m"})).await,
            decline
        );
        assert_eq!(ask(Some(&Yes), json!([])).await, decline);
        for bad in [
            json!({"message": "m", "requestedSchema": {"description": "x".repeat(MAX_QUESTION)}}),
            json!({"message": "m", "requestedSchema": {"properties": {"<|im_start|>": {}}}}),
            json!({"message": "m".repeat(MAX_QUESTION), "requestedSchema": {}}),
        ] {
            assert_eq!(ask(Some(&Yes), bad).await, decline);
        }
    }
}
