//! The operations of a document as tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolbay_core::tool::ToolDef;
use toolbay_policy::capability::net::NetRule;
use toolbay_policy::name::PluginId;
use toolbay_policy::text::one_line;

use crate::budget::TEXT_STEP;
use crate::document::{DocumentError, OpenApiDocument};
use crate::importer::{ImportTotals, OperationImporter};
use crate::name::{self, OperationIdentity};
use crate::request::RequestPlan;
use crate::routes::Routes;
use crate::security::{self, Credential};
use crate::selection::OperationPattern;

/// The most operations of one document that become tools or problems.
const MAX_OPERATIONS: usize = 5000;
/// The longest path of an operation, in bytes. Longer URLs are not accepted by servers.
const MAX_PATH: usize = 8 << 10;
/// The methods that become tools.
pub(crate) const METHODS: [(&str, &str); 6] = [
    ("get", "GET"),
    ("put", "PUT"),
    ("post", "POST"),
    ("delete", "DELETE"),
    ("patch", "PATCH"),
    ("head", "HEAD"),
];

/// The operator's options for a document.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The base of all URLs, instead of the document's servers.
    pub server: Option<String>,
    /// The URL of the document, the base of relative server URLs.
    pub document_url: Option<String>,
    /// The values of server variables.
    pub variables: BTreeMap<String, String>,
    /// The operations that become tools: `tag:NAME`, `op:ID`, `GET`, `/path/*`, `GET /path/*`; all if empty.
    pub include: Vec<String>,
    /// The operations that are excluded, in the same form.
    pub exclude: Vec<String>,
    /// The names of secrets by the names of the document's security schemes.
    pub secrets: BTreeMap<String, String>,
    /// Header fields of each request, which replace those of the operation.
    pub headers: Vec<(String, String)>,
    /// Secrets of each request.
    pub credentials: Vec<Credential>,
}

/// An operation as a tool.
#[derive(Debug, Clone)]
pub struct ImportedOperation {
    /// The tool. Its capabilities are its requests and their secrets.
    pub def: ToolDef,
    /// The reason why it is unavailable: a required secret is missing.
    pub unavailable: Option<String>,
    /// The target of its requests: method and origin.
    pub net_rule: NetRule,
    /// The secrets of its requests.
    pub credentials: Vec<Credential>,
    pub(crate) plan: RequestPlan,
}

impl ImportedOperation {
    /// The prefix of all its URLs.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.plan.base
    }

    /// `GET /pets/{id}`, as in the document.
    #[must_use]
    pub fn method_and_path(&self) -> &str {
        &self.plan.method_and_path
    }

    /// The same operation, with encoded slashes allowed in path values.
    #[must_use]
    pub fn with_encoded_slashes(mut self, allowed: bool) -> Self {
        self.plan.encoded_slashes = allowed;
        self
    }

    /// Whether its requests may have effects.
    #[must_use]
    pub fn may_change_data(&self) -> bool {
        !self.def.traits.read_only
    }
}

/// An operation that cannot be a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportProblem {
    /// `GET /pets/{id}`.
    pub operation: String,
    /// The reason.
    pub reason: String,
}

/// The result of an import.
#[derive(Debug, Clone, Default)]
pub struct Import {
    /// The tools, in document order.
    pub operations: Vec<ImportedOperation>,
    /// The operations that cannot be tools.
    pub problems: Vec<ImportProblem>,
    /// The number of operations that the options exclude.
    pub excluded_count: usize,
    /// The lines of `include` that match no operation.
    pub unused: Vec<String>,
}

impl Import {
    /// The requests of all imported operations.
    #[must_use]
    pub fn routes(&self) -> Routes {
        Routes::from_plans(self.operations.iter().map(|operation| &operation.plan))
    }
}

/// The lines of one list, each with whether it matched an operation.
struct SelectionList(Vec<(OperationPattern, bool)>);

impl SelectionList {
    fn read(lines: &[String]) -> Result<Self, DocumentError> {
        let read = |line: &String| OperationPattern::parse(line).map(|pattern| (pattern, false));
        lines.iter().map(read).collect::<Result<_, _>>().map(Self).map_err(DocumentError)
    }

    fn matches(&mut self, one: OperationIdentity<'_>, tags: &[String]) -> bool {
        let mut any = false;
        for (pattern, used) in &mut self.0 {
            let fits = pattern.matches(one, tags);
            (*used, any) = (*used || fits, any || fits);
        }
        any
    }

    fn unused_includes<'a>(&self, lines: &'a [String]) -> impl Iterator<Item = &'a String> {
        self.0.iter().zip(lines).filter(|((_, used), _)| !used).map(|(_, line)| line)
    }
}

/// An operation and its location.
pub(crate) struct DocumentOperation<'a> {
    pub(crate) item: &'a Map<String, Value>,
    pub(crate) node: &'a Value,
    pub(crate) identity: OperationIdentity<'a>,
}

/// The most tags of one operation.
const MAX_TAGS: usize = 16;
/// The most operations that are visited, including excluded ones, because many paths may refer to one path item.
const MAX_SCANNED: usize = 20_000;

/// All operations of a document in order, and the paths that lead nowhere.
fn all_operations(
    document: &OpenApiDocument,
) -> Result<(Vec<DocumentOperation<'_>>, Vec<ImportProblem>), String> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for (path, node) in document.paths().filter(|(path, _)| path.starts_with('/')) {
        document.work.spend(1 + path.len() / TEXT_STEP)?;
        if path.len() > MAX_PATH {
            problems.push(import_problem("*", path, format!("its path has more than {MAX_PATH} bytes")));
            continue;
        }
        if found.len() + problems.len() >= MAX_SCANNED {
            problems.push(import_problem(
                "*",
                path,
                format!("the document has more than {MAX_SCANNED} operations"),
            ));
            break;
        }
        match document.resolve(node) {
            Ok(item) => {
                for (key, method) in METHODS {
                    let Some(operation) = item.get(key).filter(|operation| operation.is_object()) else {
                        continue;
                    };
                    let id = operation.get("operationId").and_then(Value::as_str);
                    // The text becomes a name, and is compared with the operator's lists.
                    document.work.spend(1 + id.map_or(0, str::len) / TEXT_STEP)?;
                    found.push(DocumentOperation {
                        item,
                        node: operation,
                        identity: OperationIdentity { id, method, path },
                    });
                }
            }
            Err(reason) => problems.push(import_problem("*", path, reason)),
        }
    }
    Ok((found, problems))
}

fn import_problem(method: &str, path: &str, reason: String) -> ImportProblem {
    ImportProblem { operation: one_line(&format!("{method} {path}"), 200), reason }
}

/// Imports the operations of a document. `namespace` is the operator's name of the service and the prefix of tool
/// names.
///
/// # Errors
/// A line of the options is invalid, a line of `exclude` matches nothing, the document has too many operations,
/// or the import takes too long. Mistakes of single operations are reported as problems.
pub fn import(
    document: &OpenApiDocument,
    namespace: &PluginId,
    options: &ImportOptions,
) -> Result<Import, DocumentError> {
    let (mut include, mut exclude) =
        (SelectionList::read(&options.include)?, SelectionList::read(&options.exclude)?);
    let (all, problems) = all_operations(document).map_err(DocumentError)?;
    let reserved: Arc<[_]> = security::reserved_fields(document).map_err(DocumentError)?.into();
    let named: Vec<OperationIdentity<'_>> = all.iter().map(|one| one.identity).collect();
    let names = name::tool_names(namespace, &named);
    let mut came = Import { problems, ..Import::default() };
    let mut gathered = ImportTotals::default();
    let lines = options.include.len() + options.exclude.len();
    for (one, tool) in all.iter().zip(&names) {
        let tags = operation_tags(document, one.node).map_err(DocumentError)?;
        document.work.spend(lines).map_err(DocumentError)?;
        // Both lists are evaluated, so that the match is recorded for each line.
        let (included, excluded) =
            (include.matches(one.identity, &tags), exclude.matches(one.identity, &tags));
        if excluded || !(included || options.include.is_empty()) {
            came.excluded_count += 1;
            continue;
        }
        if came.operations.len() + came.problems.len() >= MAX_OPERATIONS {
            let text = format!("it has more than {MAX_OPERATIONS} operations: choose some with `include`");
            return Err(DocumentError(text));
        }
        let site = OperationImporter { document, options, operation: one, reserved: &reserved };
        match site.import(namespace, tool, &tags, &mut gathered) {
            Ok(operation) => came.operations.push(operation),
            Err(reason) => came.problems.push(import_problem(one.identity.method, one.identity.path, reason)),
        }
        // An exhausted budget affects all further operations.
        document.work.spend(0).map_err(DocumentError)?;
    }
    // A line of `exclude` that matches nothing is most likely a typo, so it is an error.
    if let Some(line) = exclude.unused_includes(&options.exclude).next() {
        let shown = one_line(line, 100);
        return Err(DocumentError(format!(
            "`exclude` has `{shown}`, which no operation of the document fits"
        )));
    }
    came.unused = include.unused_includes(&options.include).cloned().collect();
    Ok(came)
}

fn operation_tags(document: &OpenApiDocument, operation: &Value) -> Result<Vec<String>, String> {
    let mut tags = Vec::new();
    for tag in operation.get("tags").and_then(Value::as_array).into_iter().flatten() {
        document.work.spend(1)?;
        if tags.len() == MAX_TAGS {
            break;
        }
        tags.extend(tag.as_str().map(|tag| one_line(tag, 64)));
    }
    Ok(tags)
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
