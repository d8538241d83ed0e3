//! Native tools from Rust functions: the code that `#[tool]` and `#[tools]` generate calls this module.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use schemars::generate::{Contract, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toolbay_core::call::CallContext;
use toolbay_core::registry::ToolEntry;
use toolbay_core::registry::native::{DefinitionError, NativeTool};
use toolbay_core::tool::content::{ErrorCode, ToolError, ToolOutput, ToolResult};
use toolbay_core::tool::schema::to_portable_form;

/// A result as JSON: the model reads the text, programs read the structure, and the type gives the output schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Json<T>(pub T);

/// A result with a text for the model and data for programs. The type of the data gives the output schema.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rendered<T> {
    /// The text for the model.
    pub text: String,
    /// The data for programs.
    pub data: T,
}

/// A type that a native tool may return. The error of a `Result` is a [`ToolError`], or any type that implements
/// [`Display`](std::fmt::Display), which becomes `execution_failed`.
#[diagnostic::on_unimplemented(
    message = "a native tool cannot return `{Self}`",
    note = "return a `String`, `Json<T>` or `Rendered<T>` of a type with `#[data]`, `ToolOutput`, or a `Result` of one of them"
)]
pub trait IntoToolResult {
    /// Converts the value to the output of the tool, or to its error.
    ///
    /// # Errors
    /// The value is an error, or cannot be written as JSON.
    fn into_tool_result(self) -> ToolResult;

    /// The JSON Schema of the structured result, if there is one.
    #[must_use]
    fn output_schema() -> Option<Value> {
        None
    }
}

impl IntoToolResult for ToolOutput {
    fn into_tool_result(self) -> ToolResult {
        Ok(self)
    }
}

impl IntoToolResult for String {
    fn into_tool_result(self) -> ToolResult {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolResult for &'static str {
    fn into_tool_result(self) -> ToolResult {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolResult for () {
    fn into_tool_result(self) -> ToolResult {
        Ok(ToolOutput::default())
    }
}

impl<T: Serialize + JsonSchema> IntoToolResult for Json<T> {
    fn into_tool_result(self) -> ToolResult {
        let text = serde_json::to_string(&self.0).map_err(tool_error)?;
        Rendered { text, data: self.0 }.into_tool_result()
    }

    fn output_schema() -> Option<Value> {
        output_schema::<T>()
    }
}

impl<T: Serialize + JsonSchema> IntoToolResult for Rendered<T> {
    fn into_tool_result(self) -> ToolResult {
        ToolOutput::text(self.text).with_structured(&self.data).map_err(tool_error)
    }

    fn output_schema() -> Option<Value> {
        output_schema::<T>()
    }
}

impl<T: IntoToolResult, E: fmt::Display + 'static> IntoToolResult for Result<T, E> {
    fn into_tool_result(self) -> ToolResult {
        self.map_err(tool_error)?.into_tool_result()
    }

    fn output_schema() -> Option<Value> {
        T::output_schema()
    }
}

/// Returns a [`ToolError`] unchanged, and any other error as its text. For `anyhow`, the text includes the causes.
fn tool_error<E: fmt::Display + 'static>(error: E) -> ToolError {
    match (&error as &dyn Any).downcast_ref::<ToolError>() {
        Some(error) => error.clone(),
        None => ToolError::new(ErrorCode::ExecutionFailed, format!("{error:#}")),
    }
}

/// Creates a tool from a function that takes its arguments as `A`.
#[doc(hidden)]
pub fn define<A, O, F, R>(tool: NativeTool, run: F) -> Result<ToolEntry, DefinitionError>
where
    A: DeserializeOwned + JsonSchema,
    O: IntoToolResult,
    F: Fn(A, Arc<CallContext>) -> R + Send + Sync + 'static,
    R: Future<Output = O> + Send + 'static,
{
    let tool = tool.input_schema(schema::<A>(Contract::Deserialize));
    let tool = match O::output_schema() {
        Some(schema) => tool.output_schema(schema),
        None => tool,
    };
    tool.run(move |args, context| {
        let running = A::deserialize(&*args).map(|args| run(args, context));
        async move {
            match running {
                Ok(running) => running.await.into_tool_result(),
                // The schema of a type can allow more than the type, such as `1.0` for a whole number.
                Err(error) => {
                    Err(ToolError::new(ErrorCode::InputInvalid, format!("invalid arguments: {error}")))
                }
            }
        }
    })
}

/// The schema of a type without the details of Rust, because each byte of it is part of every prompt.
fn schema<T: JsonSchema>(contract: Contract) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
        settings.contract = contract;
    });
    let settings = settings.with_transform(RecursiveTransform(remove_rust_names));
    to_portable_form(settings.into_generator().into_root_schema_for::<T>().to_value())
}

/// Removes the names of types and the formats of Rust's numbers.
fn remove_rust_names(schema: &mut Schema) {
    schema.remove("title");
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    if ["int", "uint", "float", "double"].iter().any(|number| format.starts_with(number)) {
        schema.remove("format");
    }
}

/// The schema of `T` as structured output: an object is unchanged, anything else is wrapped under `result`. A type that
/// may be either has no schema.
fn output_schema<T: JsonSchema>() -> Option<Value> {
    let mut schema = schema::<T>(Contract::Serialize);
    if schema.get("type")?.as_str()? == "object" {
        return Some(schema);
    }
    let definitions = schema.as_object_mut()?.remove("$defs");
    let mut wrapped = json!({"type": "object", "properties": {"result": schema}, "required": ["result"]});
    if let Some(definitions) = definitions {
        wrapped.as_object_mut()?.insert("$defs".to_owned(), definitions);
    }
    Some(wrapped)
}
