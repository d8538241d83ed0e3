//! The operations of a document. Each becomes a tool or has a line that says why not, so nothing is passed over here.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolbay_policy::excerpt::one_line;

use crate::budget::TEXT_STEP;
use crate::document::OpenApiDocument;
use crate::name::OperationIdentity;
use crate::scalar::{is_absent, scalar_text};

/// The longest path of an operation, in bytes. Longer URLs are not accepted by servers.
const MAX_PATH: usize = 8 << 10;
/// The most operations that are visited, including excluded ones, because many paths may refer to one path item.
const MAX_SCANNED: usize = 20_000;

/// The methods that become tools.
pub(crate) const METHODS: [(&str, &str); 6] = [
    ("get", "GET"),
    ("put", "PUT"),
    ("post", "POST"),
    ("delete", "DELETE"),
    ("patch", "PATCH"),
    ("head", "HEAD"),
];
/// Other methods of a path item, with the reason why they are not tools.
const OTHER_METHODS: [(&str, &str, &str); 3] = [
    ("options", "OPTIONS", "the method OPTIONS is not supported"),
    ("trace", "TRACE", "the method TRACE is not supported"),
    ("query", "QUERY", "the method QUERY is new in OpenAPI 3.2 and is not supported"),
];
/// The members of a path item that are no operations (OpenAPI 3.2, Path Item Object). Names with `x-` are extensions.
const OTHER_MEMBERS: [&str; 6] =
    ["$ref", "summary", "description", "servers", "parameters", ADDITIONAL_OPERATIONS];
/// Why an operation of a referenced path item is not read.
const BESIDE_REFERENCE: &str = "the one beside the reference of its path is read instead";
/// The most operations of [`ADDITIONAL_OPERATIONS`] of a path with a line each, and of methods that OpenAPI does not have.
const MAX_ADDITIONAL: usize = 100;
/// Methods of a path item under any name (OpenAPI 3.2).
const ADDITIONAL_OPERATIONS: &str = "additionalOperations";

/// An operation and its location.
#[derive(Debug)]
pub(crate) struct DocumentOperation<'a> {
    pub(crate) item: &'a Map<String, Value>,
    pub(crate) node: &'a Value,
    method: &'static str,
    id: Option<Cow<'a, str>>,
    /// The path as in the document, with a slash at the beginning.
    path: Arc<str>,
}

impl DocumentOperation<'_> {
    /// What its name and its selection depend on.
    pub(crate) fn identity(&self) -> OperationIdentity<'_> {
        OperationIdentity { id: self.id.as_deref(), method: self.method, path: &self.path }
    }
}

/// An operation that cannot be a tool, or a path whose operations are unknown.
#[derive(Debug)]
pub(crate) struct SkippedOperation<'a> {
    /// `TRACE /pets`, or `* /pets`.
    pub(crate) operation: String,
    pub(crate) reason: String,
    /// The operation, if it is known.
    pub(crate) found: Option<DocumentOperation<'a>>,
}

impl<'a> SkippedOperation<'a> {
    fn new(method: &str, path: &str, reason: impl Into<String>) -> Self {
        let operation = one_line(&format!("{method} {path}"), 200);
        Self { operation, reason: reason.into(), found: None }
    }

    fn with_operation(self, found: DocumentOperation<'a>) -> Self {
        Self { found: Some(found), ..self }
    }
}

/// All operations of a document in order, and those that cannot be tools.
///
/// # Errors
/// The budget of the document is used up.
pub(crate) fn operations(
    document: &OpenApiDocument,
) -> Result<(Vec<DocumentOperation<'_>>, Vec<SkippedOperation<'_>>), String> {
    let mut reader = PathReader { document, found: Vec::new(), skipped: Vec::new() };
    let paths = document.paths().filter(|(path, _)| !path.starts_with("x-"));
    let count = paths.clone().count();
    for (n, (path, node)) in paths.enumerate() {
        if reader.found.len() + reader.skipped.len() >= MAX_SCANNED {
            let more = count.saturating_sub(n + 1);
            let reason = format!(
                "the document has more than {MAX_SCANNED} operations: this path and {more} more are not read"
            );
            reader.skipped.push(SkippedOperation::new("*", path, reason));
            break;
        }
        reader.read_path(path, node)?;
    }
    for (path, key) in &document.repeated {
        let method = key.to_ascii_uppercase();
        let reason = "the document has it twice; the last one is read";
        reader.skipped.push(SkippedOperation::new(&method, &with_slash(path), reason));
    }
    Ok((reader.found, reader.skipped))
}

/// A path with the slash that some documents leave out.
fn with_slash(path: &str) -> Cow<'_, str> {
    if path.starts_with('/') { Cow::Borrowed(path) } else { Cow::Owned(format!("/{path}")) }
}

/// Whether a path begins with a scheme (RFC 3986, section 3.1) and an authority.
fn is_url(path: &str) -> bool {
    let of_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    path.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(of_scheme)
    })
}

struct PathReader<'a> {
    document: &'a OpenApiDocument,
    found: Vec<DocumentOperation<'a>>,
    skipped: Vec<SkippedOperation<'a>>,
}

impl<'a> PathReader<'a> {
    fn read_path(&mut self, path: &'a str, node: &'a Value) -> Result<(), String> {
        self.document.work.spend(1 + path.len() / TEXT_STEP)?;
        // It has no operations.
        if is_absent(node) {
            return Ok(());
        }
        let problem = match path {
            _ if path.len() > MAX_PATH => Some(format!("its path has more than {MAX_PATH} bytes")),
            _ if is_url(path) => Some("its path is a URL".to_owned()),
            _ => None,
        };
        let Some(item) = node.as_object() else {
            let reason = problem.unwrap_or_else(|| "a value that is not an object".to_owned());
            self.skipped.push(SkippedOperation::new("*", path, reason));
            return Ok(());
        };
        let path: Arc<str> = if is_url(path) { path.into() } else { with_slash(path).into() };
        let (found, skipped) = (self.found.len(), self.skipped.len());
        self.read_operations(&path, node, item)?;
        if let Some(reason) = problem {
            self.skip_all(found, skipped, &reason);
        }
        Ok(())
    }

    /// Skips the operations that were read after this many.
    fn skip_all(&mut self, found: usize, skipped: usize, reason: &str) {
        for one in self.skipped.iter_mut().skip(skipped) {
            reason.clone_into(&mut one.reason);
        }
        for operation in self.found.split_off(found) {
            let line = SkippedOperation::new(operation.method, &operation.path, reason);
            self.skipped.push(line.with_operation(operation));
        }
    }

    fn read_operations(
        &mut self,
        path: &Arc<str>,
        node: &'a Value,
        item: &'a Map<String, Value>,
    ) -> Result<(), String> {
        let own: Vec<&str> = self.read_item(path, item, &[])?;
        if item.contains_key("$ref") {
            match self.document.resolve(node) {
                // The members beside the reference take precedence.
                Ok(target) => drop(self.read_item(path, target, &own)?),
                Err(reason) => self.skipped.push(SkippedOperation::new("*", path, reason)),
            }
        }
        Ok(())
    }

    /// Reads the operations of a path item, apart from the methods in `except`. Returns their methods.
    fn read_item(
        &mut self,
        path: &Arc<str>,
        item: &'a Map<String, Value>,
        except: &[&str],
    ) -> Result<Vec<&'static str>, String> {
        self.document.work.spend(item.len())?;
        let (mut methods, mut read) = (Vec::new(), Vec::new());
        let hidden = |method: &str| except.contains(&method);
        for (key, method) in METHODS {
            let Some((name, node)) = member(item, key) else { continue };
            read.push(name);
            let operation = self.operation(item, node, method, path)?;
            if hidden(method) {
                let skipped = SkippedOperation::new(method, path, BESIDE_REFERENCE);
                self.skipped.push(skipped.with_operation(operation));
                continue;
            }
            methods.push(method);
            if node.is_object() {
                self.found.push(operation);
            } else {
                let skipped = SkippedOperation::new(method, path, "its description is not an object");
                self.skipped.push(skipped.with_operation(operation));
            }
        }
        for (key, method, reason) in OTHER_METHODS {
            let Some((name, node)) = member(item, key) else { continue };
            read.push(name);
            methods.push(method);
            let operation = self.operation(item, node, method, path)?;
            self.skipped.push(SkippedOperation::new(method, path, reason).with_operation(operation));
        }
        self.read_unknown(path, item, &read)?;
        self.read_additional(path, item)?;
        Ok(methods)
    }

    /// Names the operations of methods that OpenAPI does not have, and those of a method that is there twice. `read` are
    /// the members that were read.
    fn read_unknown(
        &mut self,
        path: &Arc<str>,
        item: &'a Map<String, Value>,
        read: &[&str],
    ) -> Result<(), String> {
        let is_known =
            |name: &str| name.starts_with("x-") || OTHER_MEMBERS.contains(&name) || read.contains(&name);
        let unknown: Vec<(&'a String, &'a Value)> =
            item.iter().filter(|(key, node)| node.is_object() && !is_known(key)).collect();
        for (key, node) in unknown.iter().take(MAX_ADDITIONAL) {
            self.document.work.spend(1 + key.len() / TEXT_STEP)?;
            let is_twice = read.iter().any(|name| name.eq_ignore_ascii_case(key));
            let reason = if is_twice {
                "its path has this method twice; the other one is read"
            } else {
                "OpenAPI has no such method"
            };
            let operation = self.operation(item, node, "", path)?;
            let skipped = SkippedOperation::new(&key.to_ascii_uppercase(), path, reason);
            self.skipped.push(skipped.with_operation(operation));
        }
        if let Some(more) = unknown.len().checked_sub(MAX_ADDITIONAL).filter(|more| *more > 0) {
            let reason = format!("it has {more} more methods that OpenAPI does not have");
            self.skipped.push(SkippedOperation::new("*", path, reason));
        }
        Ok(())
    }

    fn read_additional(&mut self, path: &Arc<str>, item: &'a Map<String, Value>) -> Result<(), String> {
        let Some(additional) = item.get(ADDITIONAL_OPERATIONS).and_then(Value::as_object) else {
            return Ok(());
        };
        for (method, node) in additional.iter().take(MAX_ADDITIONAL) {
            self.document.work.spend(1 + method.len() / TEXT_STEP)?;
            let reason = format!("`{ADDITIONAL_OPERATIONS}` is new in OpenAPI 3.2 and is not supported");
            let operation = self.operation(item, node, "", path)?;
            self.skipped.push(SkippedOperation::new(method, path, reason).with_operation(operation));
        }
        if let Some(more) = additional.len().checked_sub(MAX_ADDITIONAL).filter(|more| *more > 0) {
            let reason = format!("`{ADDITIONAL_OPERATIONS}` has {more} more");
            self.skipped.push(SkippedOperation::new("*", path, reason));
        }
        Ok(())
    }

    fn operation(
        &self,
        item: &'a Map<String, Value>,
        node: &'a Value,
        method: &'static str,
        path: &Arc<str>,
    ) -> Result<DocumentOperation<'a>, String> {
        let id = node.get("operationId").and_then(scalar_text);
        // The text becomes a name, and is compared with the operator's lists.
        self.document.work.spend(1 + id.as_deref().map_or(0, str::len) / TEXT_STEP)?;
        Ok(DocumentOperation { item, node, method, id, path: Arc::clone(path) })
    }
}

/// A member of a path item. Some authors write methods in capitals.
fn member<'a>(item: &'a Map<String, Value>, key: &str) -> Option<(&'a str, &'a Value)> {
    let other = || item.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
    item.get_key_value(key).or_else(other).map(|(name, value)| (name.as_str(), value))
}
