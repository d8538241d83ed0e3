//! Services that an OpenAPI document describes (3.0 and 3.1), as tools.
//!
//! The document is read tolerantly: an operation that cannot be a tool is told as a problem, with the reason, and costs no
//! other one. What a tool sends is built here and sent through a port, [`Exchange`]; this crate opens no connection, reads
//! no file and never sees the value of a secret.
//!
//! ```
//! use toolbay_policy::name::PluginId;
//! use toolbay_openapi::{Document, Options, import};
//!
//! let document = Document::parse(
//!     r#"{"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"},
//!         "servers": [{"url": "https://pets.example.com/v1"}],
//!         "paths": {"/pets/{id}": {"get": {
//!             "operationId": "getPet", "summary": "Finds one pet",
//!             "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}]}}}}"#,
//! )?;
//! let imported = import(&document, &PluginId::new("pets")?, &Options::default())?;
//! assert_eq!(imported.operations[0].def.name.as_str(), "pets__getPet");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod document;
mod exchange;
mod name;
mod operation;
mod parameter;
mod request;
mod response;
mod routes;
mod schema;
mod security;
mod selection;
mod server;
mod importer;
mod style;
mod tool;
mod budget;

pub use document::{OpenApiDocument, DocumentError};
pub use exchange::{HttpExchange, ExchangeError, ServiceRequest, ServiceResponse};
pub use operation::{Import, ImportedOperation, ImportOptions, ImportProblem, import};
pub use routes::Routes;
pub use security::{Credential, Placement};
pub use tool::tool_entry;
