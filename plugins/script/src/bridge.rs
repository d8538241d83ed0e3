//! The host functions of a program: two functions from text to text.

use boa_engine::{Context, JsNativeError, JsResult, JsString, JsValue, NativeFunction};
use toolbay_sdk::invoke::{self, Invocation, Invoked};
use toolbay_sdk::serde_json::{self, Value, json};
use toolbay_sdk::types::ErrorCode;
use toolbay_sdk::{Error, Result};

/// Makes calls: `[[name, args], …]` as JSON. Returns the result of each call, or the error of the batch, as JSON.
pub(crate) fn invoke() -> NativeFunction {
    NativeFunction::from_fn_ptr(|_, args, context| {
        let calls = text(args, context)?;
        Ok(JsString::from(made(&calls)).into())
    })
}

/// The callable tools, as JSON.
pub(crate) fn tools() -> NativeFunction {
    NativeFunction::from_fn_ptr(|_, _, _| Ok(JsString::from(listed().to_string()).into()))
}

fn text(args: &[JsValue], context: &mut Context) -> JsResult<String> {
    let Some(text) = args.first() else { return Err(JsNativeError::typ().with_message("no text").into()) };
    Ok(text.to_string(context)?.to_std_string_lossy())
}

fn made(calls: &str) -> String {
    let calls: Vec<(String, String)> = match serde_json::from_str(calls) {
        Ok(calls) => calls,
        Err(error) => return failed(&error.into()),
    };
    let calls = calls.into_iter().map(|(name, args)| Invocation { name, args });
    match invoke::call_all(calls) {
        Ok(answers) => {
            let answers: Vec<String> = answers.iter().map(answer).collect();
            format!("{{\"answers\":[{}]}}", answers.join(","))
        }
        Err(error) => failed(&error),
    }
}

/// Kept as text and not parsed: the host has validated it as JSON, and its members keep their order.
fn answer(answer: &Result<Invoked>) -> String {
    let Invoked { value, structured, truncated } = match answer {
        Ok(invoked) => invoked,
        Err(error) => return failed(error),
    };
    let data = structured.as_ref().map(|data| format!(",\"data\":{data}")).unwrap_or_default();
    format!("{{\"value\":{{\"text\":{},\"truncated\":{truncated}{data}}}}}", json!(value))
}

fn failed(error: &Error) -> String {
    json!({ "error": error_json(error) }).to_string()
}

fn error_json(error: &Error) -> Value {
    let code = match error.code() {
        ErrorCode::InputInvalid => "input_invalid",
        ErrorCode::NotAvailable => "not_available",
        ErrorCode::ExecutionFailed => "execution_failed",
        ErrorCode::StaleWrite => "stale_write",
    };
    json!({ "code": code, "message": error.message(), "subject": error.subject() })
}

fn listed() -> Value {
    let schema = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let all = invoke::tools().into_iter().map(|tool| {
        json!({
            "name": tool.name, "description": tool.description, "input_schema": schema(&tool.input_schema),
            "output_schema": tool.output_schema.as_deref().map(schema),
        })
    });
    all.collect()
}
