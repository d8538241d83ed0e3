//! Turns services with an OpenAPI document (3.0 and 3.1, and 3.2 as far as it equals 3.1) into tools.
//!
//! The parser is tolerant: an operation that cannot be a tool becomes a problem with a reason, and other operations
//! are unaffected. This crate builds requests and sends them through a port, [`HttpExchange`]. It opens no
//! connection, reads no file and never sees the value of a secret.
//!
//! ```
//! use toolbay_core::tool::definition_text::no_redaction;
//! use toolbay_policy::name::PluginId;
//! use toolbay_openapi::{ImportOptions, OpenApiDocument, import};
//!
//! let document = OpenApiDocument::parse(
//!     r#"{"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"},
//!         "servers": [{"url": "https://pets.example.com/v1"}],
//!         "paths": {"/pets/{id}": {"get": {
//!             "operationId": "getPet", "summary": "Finds one pet",
//!             "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}]}}}}"#,
//! )?;
//! let imported = import(&document, &PluginId::new("pets")?, &ImportOptions::default(), &no_redaction)?;
//! assert_eq!(imported.operations[0].def.name.as_str(), "pets__getPet");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod budget;
mod charset;
mod document;
mod document_notes;
mod document_repair;
mod document_text;
mod examples;
mod exchange;
mod html_text;
mod importer;
mod name;
mod operation;
mod parameter;
mod path_items;
mod path_template;
mod request;
mod response;
mod response_headers;
mod routes;
mod scalar;
mod schema;
mod security;
mod selection;
mod server;
mod style;
mod tool;

pub use document::OpenApiDocument;
pub use document_text::{DocumentError, decode_utf_16};
pub use exchange::{ExchangeError, HttpExchange};
pub use importer::{ImportOptions, ImportedOperation};
pub use operation::{Import, ImportProblem, UnmatchedOptions, import, unmatched_options};
pub use routes::Routes;
pub use tool::tool_entry;
