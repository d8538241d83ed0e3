//! The result of a tool: [`Output`], built by hand or from plain values through [`IntoOutput`].

use serde::Serialize;

use crate::Error;
use crate::schema::{Schema, output_schema};
use crate::types::{
    Blob, BlockAnnotations, BlockBody, ContentBlock, EmbeddedResource, ResourceBody, ResourceLink,
};

pub use crate::types::ToolOutput as Output;

impl Output {
    /// Creates an output with the text that the model reads.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: value.into(), structured: None, content: Vec::new(), cost_usd: None, meta: None }
    }

    /// Adds the structured result for programs. A value that is not a JSON object is wrapped as `{"result": …}`.
    pub fn structured(mut self, data: &impl Serialize) -> Result<Self, Error> {
        self.structured = Some(object_text(&serde_json::to_string(data)?));
        Ok(self)
    }

    /// Adds a block of rich output.
    #[must_use]
    pub fn block(mut self, body: BlockBody) -> Self {
        self.content.push(ContentBlock { body, annotations: None });
        self
    }

    /// Adds a block of text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(BlockBody::Text(text.into()))
    }

    /// Adds an image.
    #[must_use]
    pub fn image(self, bytes: Vec<u8>, mime_type: impl Into<String>) -> Self {
        self.block(BlockBody::Image(Blob { data: bytes, mime_type: mime_type.into() }))
    }

    /// Adds audio.
    #[must_use]
    pub fn audio(self, bytes: Vec<u8>, mime_type: impl Into<String>) -> Self {
        self.block(BlockBody::Audio(Blob { data: bytes, mime_type: mime_type.into() }))
    }

    /// Adds a resource with its content, a text or bytes.
    #[must_use]
    pub fn embedded(
        self,
        uri: impl Into<String>,
        body: impl Into<ResourceBody>,
        mime_type: Option<&str>,
    ) -> Self {
        let mime_type = mime_type.map(str::to_owned);
        self.block(BlockBody::Embedded(EmbeddedResource { uri: uri.into(), mime_type, body: body.into() }))
    }

    /// Annotates the last block. Without one, this is an error.
    pub fn annotate(mut self, annotations: BlockAnnotations) -> Result<Self, Error> {
        let last = self.content.last_mut().ok_or_else(|| Error::failed("there is no block to annotate"))?;
        last.annotations = Some(annotations);
        Ok(self)
    }

    /// Adds a link to a resource. [`Output::block`] takes one with a title, a description, a type and a size.
    #[must_use]
    pub fn link(self, uri: impl Into<String>, name: impl Into<String>) -> Self {
        self.block(BlockBody::Link(ResourceLink {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
        }))
    }

    /// Sets the cost of the call, in US dollars.
    #[must_use]
    pub fn cost_usd(mut self, cost: f64) -> Self {
        self.cost_usd = Some(cost);
        self
    }

    /// Adds metadata for the host. The model never sees it.
    pub fn meta(mut self, meta: &impl Serialize) -> Result<Self, Error> {
        self.meta = Some(object_text(&serde_json::to_string(meta)?));
        Ok(self)
    }
}

impl From<String> for ResourceBody {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for ResourceBody {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<u8>> for ResourceBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Blob(bytes)
    }
}

/// A result as JSON: the model reads its text, programs its structure, and its type gives the output schema.
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

/// A type that a tool may return.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    note = "return a `String`, `Json<T>` of a type with `#[data]`, `Rendered<T>`, `Output`, or a `Result` of one of them"
)]
pub trait IntoOutput {
    /// Converts the value to the output of the tool, or to its error.
    fn into_output(self) -> Result<Output, Error>;

    /// Returns the JSON Schema of the structured result, if there is one.
    fn output_schema() -> Option<String> {
        None
    }
}

impl IntoOutput for Output {
    fn into_output(self) -> Result<Output, Error> {
        Ok(self)
    }
}

impl IntoOutput for String {
    fn into_output(self) -> Result<Output, Error> {
        Ok(Output::new(self))
    }
}

impl IntoOutput for &'static str {
    fn into_output(self) -> Result<Output, Error> {
        Ok(Output::new(self))
    }
}

impl IntoOutput for () {
    fn into_output(self) -> Result<Output, Error> {
        Ok(Output::new(""))
    }
}

impl<T: Serialize + Schema> IntoOutput for Json<T> {
    fn into_output(self) -> Result<Output, Error> {
        let value = serde_json::to_string(&self.0)?;
        let structured = Some(object_text(&value));
        Ok(Output { structured, ..Output::new(value) })
    }

    fn output_schema() -> Option<String> {
        Some(output_schema::<T>())
    }
}

impl<T: Serialize + Schema> IntoOutput for Rendered<T> {
    fn into_output(self) -> Result<Output, Error> {
        Output::new(self.text).structured(&self.data)
    }

    fn output_schema() -> Option<String> {
        Some(output_schema::<T>())
    }
}

impl<T: IntoOutput, E: Into<Error>> IntoOutput for Result<T, E> {
    fn into_output(self) -> Result<Output, Error> {
        self.map_err(Into::into)?.into_output()
    }

    fn output_schema() -> Option<String> {
        T::output_schema()
    }
}

/// Returns a JSON object. A text that is not an object is wrapped under `result`.
fn object_text(json: &str) -> String {
    if json.starts_with('{') { json.to_owned() } else { format!("{{\"result\":{json}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_text_and_structure() {
        let output = Json(vec![1, 2]).into_output().unwrap();
        assert_eq!(output.value, "[1,2]");
        assert_eq!(output.structured.as_deref(), Some(r#"{"result":[1,2]}"#));
    }

    #[test]
    fn an_object_is_not_wrapped() {
        let output = Output::new("x").structured(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(output.structured.as_deref(), Some(r#"{"a":1}"#));
    }

    #[test]
    fn any_error_type_will_do() {
        let result: Result<String, std::num::ParseIntError> = "x".parse::<u8>().map(|_| String::new());
        assert_eq!(result.into_output().unwrap_err().message(), "invalid digit found in string");
    }
}
