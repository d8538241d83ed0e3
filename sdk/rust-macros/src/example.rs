//! `example(args = "…", value = "…")`: a call that `toolbay test` makes, and its expected result.
//!
//! The examples are part of the tool's metadata, as JSON that the macro checks: a typo is a compile error and
//! not a failure of a test run.

use serde_json::{Map, Value};
use syn::parse::{Parse, ParseStream};
use syn::{Ident, LitStr, Result, Token};
use toolbay_sdk_syntax::contract::CODES;

/// One example in the metadata.
pub(crate) struct Example(pub(crate) Value);

impl Parse for Example {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let inner;
        syn::parenthesized!(inner in input);
        let mut example = Map::new();
        let start = inner.span();
        while !inner.is_empty() {
            let key: Ident = inner.parse()?;
            inner.parse::<Token![=]>()?;
            let text: LitStr = inner.parse()?;
            let value = match key.to_string().as_str() {
                "args" | "structured" => Value::Object(object(&text)?),
                "value" | "contains" => Value::String(text.value()),
                "error" => code(&text)?,
                _ => {
                    let message =
                        "known are `args`, and what comes of it: `value`, `contains`, `structured`, `error`";
                    return Err(syn::Error::new(key.span(), message));
                }
            };
            if example.insert(key.to_string(), value).is_some() {
                return Err(syn::Error::new(key.span(), format!("`{key}` is given twice")));
            }
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        if !example.contains_key("args") {
            return Err(syn::Error::new(
                start,
                "an example has `args`: write `example(args = \"{}\", value = \"…\")`",
            ));
        }
        if example.contains_key("error")
            && ["value", "structured"].iter().any(|key| example.contains_key(*key))
        {
            return Err(syn::Error::new(start, "an example has a result or an `error`, not both"));
        }
        Ok(Self(Value::Object(example)))
    }
}

/// A JSON object in a string.
pub(crate) fn object(text: &LitStr) -> Result<Map<String, Value>> {
    match serde_json::from_str(&text.value()) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(syn::Error::new(text.span(), "this is to be a JSON object, `{…}`")),
        Err(error) => Err(syn::Error::new(text.span(), format!("this is not JSON: {error}"))),
    }
}

fn code(text: &LitStr) -> Result<Value> {
    let code = text.value();
    if CODES.contains(&code.as_str()) {
        return Ok(Value::String(code));
    }
    Err(syn::Error::new(text.span(), format!("unknown code; known are `{}`", CODES.join("`, `"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_checked() {
        let parse = |text: &str| syn::parse_str::<Example>(text);
        let good = parse(r##"(args = r#"{"a": 1}"#, value = "x", structured = "{}")"##).unwrap();
        assert_eq!(good.0, serde_json::json!({"args": {"a": 1}, "value": "x", "structured": {}}));
        for (text, part) in [
            (r#"(value = "x")"#, "has `args`"),
            (r#"(args = "1")"#, "a JSON object"),
            (r#"(args = "{")"#, "not JSON"),
            (r#"(args = "{}", error = "wrong")"#, "`input-invalid`"),
            (r#"(args = "{}", error = "stale-write", value = "")"#, "not both"),
            (r#"(args = "{}", args = "{}")"#, "twice"),
            (r#"(args = "{}", gives = "x")"#, "known are `args`"),
        ] {
            let message = parse(text).err().unwrap().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
