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

/// Most operations of one document that become tools, or would.
const MAX_OPERATIONS: usize = 5000;
/// Longest path of an operation, in bytes: more than a URL may have makes no request.
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

/// What the operator says of a document.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The base of all URLs, instead of what the document says.
    pub server: Option<String>,
    /// Where the document comes from; a relative server is meant against it.
    pub document_url: Option<String>,
    /// Values of the server's variables.
    pub variables: BTreeMap<String, String>,
    /// Which operations become tools: `tag:NAME`, `op:ID`, `GET`, `/path/*`, `GET /path/*`; none: all.
    pub include: Vec<String>,
    /// Which do not, written the same.
    pub exclude: Vec<String>,
    /// Names of secrets by the names of the document's security schemes.
    pub secrets: BTreeMap<String, String>,
    /// Header fields that are sent with each request, in place of what the operation would send.
    pub headers: Vec<(String, String)>,
    /// Secrets that are sent with each request.
    pub credentials: Vec<Credential>,
}

/// One operation as a tool.
#[derive(Debug, Clone)]
pub struct ImportedOperation {
    /// The tool. Its capabilities are its requests, and the secrets in them.
    pub def: ToolDef,
    /// Why it cannot be called: a secret that it demands is not named.
    pub unavailable: Option<String>,
    /// Where its requests go: method and origin.
    pub net_rule: NetRule,
    /// The secrets that go into its requests.
    pub credentials: Vec<Credential>,
    pub(crate) plan: RequestPlan,
}

impl ImportedOperation {
    /// What all its URLs begin with.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.plan.base
    }

    /// `GET /pets/{id}`, as the document has it.
    #[must_use]
    pub fn method_and_path(&self) -> &str {
        &self.plan.method_and_path
    }

    /// The same operation, whose values in the path may have slashes in them, which are encoded.
    #[must_use]
    pub fn with_encoded_slashes(mut self, allowed: bool) -> Self {
        self.plan.encoded_slashes = allowed;
        self
    }

    /// Whether its requests may change something.
    #[must_use]
    pub fn may_change_data(&self) -> bool {
        !self.def.traits.read_only
    }
}

/// An operation that is no tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportProblem {
    /// `GET /pets/{id}`.
    pub operation: String,
    /// Why.
    pub reason: String,
}

/// What a document came to.
#[derive(Debug, Clone, Default)]
pub struct Import {
    /// The tools, in the order of the document.
    pub operations: Vec<ImportedOperation>,
    /// What is no tool.
    pub problems: Vec<ImportProblem>,
    /// Operations that the options leave out.
    pub excluded_count: usize,
    /// Lines of `include` that no operation fits.
    pub unused: Vec<String>,
}

impl Import {
    /// The requests of all its operations.
    #[must_use]
    pub fn routes(&self) -> Routes {
        Routes::from_plans(self.operations.iter().map(|operation| &operation.plan))
    }
}

/// The lines of one list, each with whether an operation fits it.
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

/// An operation where it is found.
pub(crate) struct DocumentOperation<'a> {
    pub(crate) item: &'a Map<String, Value>,
    pub(crate) node: &'a Value,
    pub(crate) identity: OperationIdentity<'a>,
}

/// Most tags of one operation.
const MAX_TAGS: usize = 16;
/// Most operations that are looked at, those included that are left out: one item may be meant by many paths.
const MAX_SCANNED: usize = 20_000;

/// All operations of a document in their order, and the paths that lead to none.
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
                    // It is named, and compared with the lines of the operator's lists.
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

/// Makes tools of the operations of a document. `namespace` is what the operator calls it, and stands before the names.
///
/// # Errors
/// When a line of the options says nothing, a line of `exclude` leaves nothing out, the document has too many operations,
/// or it takes too long. What is wrong with one operation is among the problems.
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
        // Both are asked, so that a line is known to fit.
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
        // What is over is over for all that follow.
        document.work.spend(0).map_err(DocumentError)?;
    }
    // Who excludes something wants it gone: that nothing is, is most likely a slip of the pen.
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
