//! The operations of a document as tools.

use std::sync::Arc;

use serde_json::Value;
use toolbay_core::tool::definition_text::Redact;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::PolicyRefusal;

use crate::document::OpenApiDocument;
use crate::document_text::DocumentError;
use crate::importer::{ImportOptions, ImportTotals, ImportedOperation, OperationImporter};
use crate::name::{self, OperationIdentity};
use crate::path_items::{self, DocumentOperation, SkippedOperation};
use crate::routes::Routes;
use crate::scalar::scalar_text;
use crate::security;
use crate::selection::OperationPattern;

/// The most operations of one document that become tools or problems.
const MAX_OPERATIONS: usize = 5000;

/// What an operation, or a part of it, lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportProblem {
    /// `GET /pets/{id}`.
    pub operation: String,
    /// The name that its tool would have, without the service. `None` if the document does not say which operations are
    /// lost.
    pub tool: Option<String>,
    /// The reason.
    pub reason: PolicyRefusal,
}

/// The result of an import.
#[derive(Debug, Clone, Default)]
pub struct Import {
    /// The tools, in document order.
    pub operations: Vec<ImportedOperation>,
    /// The operations that cannot be tools.
    pub problems: Vec<ImportProblem>,
    /// What tools lack.
    pub warnings: Vec<ImportProblem>,
    /// The number of operations that the options exclude.
    pub excluded_count: usize,
    /// The lines of `include` that match no operation.
    pub unused: Vec<String>,
}

impl Import {
    /// The requests of all imported operations.
    #[must_use]
    pub fn routes(&self) -> Routes {
        Routes::from_plans(self.operations.iter().map(|one| (one.def.name.as_str(), &one.plan)))
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

    fn unmatched<'a>(&self, lines: &'a [String]) -> impl Iterator<Item = &'a String> {
        self.0.iter().zip(lines).filter(|((_, used), _)| !used).map(|(_, line)| line)
    }
}

/// The most tags of one operation.
const MAX_TAGS: usize = 16;

fn import_problem(one: OperationIdentity<'_>, tool: &str, reason: impl Into<PolicyRefusal>) -> ImportProblem {
    let operation = one_line(&format!("{} {}", one.method, one.path), 200);
    ImportProblem { operation, tool: Some(tool.to_owned()), reason: reason.into() }
}

/// The operator's choice of operations.
struct OperationSelection {
    include: SelectionList,
    exclude: SelectionList,
}

impl OperationSelection {
    fn read(options: &ImportOptions) -> Result<Self, DocumentError> {
        Ok(Self {
            include: SelectionList::read(&options.include)?,
            exclude: SelectionList::read(&options.exclude)?,
        })
    }

    fn contains(
        &mut self,
        document: &OpenApiDocument,
        one: &DocumentOperation<'_>,
        tags: &[String],
    ) -> Result<bool, DocumentError> {
        document.work.spend(self.include.0.len() + self.exclude.0.len()).map_err(DocumentError)?;
        // Both lists are evaluated, so that the match is recorded for each line.
        let (included, excluded) =
            (self.include.matches(one.identity(), tags), self.exclude.matches(one.identity(), tags));
        Ok(!excluded && (included || self.include.0.is_empty()))
    }
}

/// The operations that cannot be tools, as far as the operator chose them.
fn skipped_operations(
    document: &OpenApiDocument,
    skipped: Vec<SkippedOperation<'_>>,
    namespace: &PluginId,
    selection: &mut OperationSelection,
) -> Result<Import, DocumentError> {
    let mut import = Import::default();
    for SkippedOperation { operation, reason, found } in skipped {
        let mut tool = None;
        if let Some(found) = &found {
            let tags = operation_tags(document, found.node).map_err(DocumentError)?;
            if !selection.contains(document, found, &tags)? {
                import.excluded_count += 1;
                continue;
            }
            tool = Some(found.identity().tool_name(namespace));
        }
        import.problems.push(ImportProblem { operation, tool, reason: reason.into() });
    }
    Ok(import)
}

/// Imports the operations of a document. `namespace` is the operator's name of the service and the prefix of tool
/// names. `redact` removes the values of secrets from schemas.
///
/// # Errors
/// A line of the options is invalid, a line of `exclude` matches nothing, the document has too many operations,
/// or the import takes too long. Mistakes of single operations are reported as problems.
pub fn import(
    document: &OpenApiDocument,
    namespace: &PluginId,
    options: &ImportOptions,
    redact: Redact<'_>,
) -> Result<Import, DocumentError> {
    let mut selection = OperationSelection::read(options)?;
    let (all, skipped) = path_items::operations(document).map_err(DocumentError)?;
    let reserved: Arc<[_]> = security::reserved_fields(document).map_err(DocumentError)?.into();
    let named: Vec<OperationIdentity<'_>> = all.iter().map(DocumentOperation::identity).collect();
    let names = name::tool_names(namespace, &named);
    let mut import = skipped_operations(document, skipped, namespace, &mut selection)?;
    let of_text = document.notes.iter().map(|note| ImportProblem {
        operation: note.place.clone(),
        tool: None,
        reason: note.text.clone().into(),
    });
    import.warnings.extend(of_text);
    let (mut gathered, mut chosen) = (ImportTotals::default(), 0);
    for (one, tool) in all.iter().zip(&names) {
        let tags = operation_tags(document, one.node).map_err(DocumentError)?;
        if !selection.contains(document, one, &tags)? {
            import.excluded_count += 1;
            continue;
        }
        chosen += 1;
        if chosen > MAX_OPERATIONS {
            let text = format!("it has more than {MAX_OPERATIONS} operations: choose some with `include`");
            return Err(DocumentError(text));
        }
        let site = OperationImporter { document, options, operation: one, reserved: &reserved, redact };
        match site.import(namespace, tool, &tags, &mut gathered) {
            Ok((operation, warnings)) => {
                import.operations.push(operation);
                import
                    .warnings
                    .extend(warnings.into_iter().map(|text| import_problem(one.identity(), tool, text)));
            }
            Err(reason) => import.problems.push(import_problem(one.identity(), tool, reason)),
        }
        // An exhausted budget affects all further operations.
        document.work.spend(0).map_err(DocumentError)?;
    }
    let of_servers = gathered.server_note.map(|text| ImportProblem {
        operation: "/servers".to_owned(),
        tool: None,
        reason: text.into(),
    });
    import.warnings.extend(of_servers);
    // A line of `exclude` that matches nothing is most likely a typo, so it is an error.
    if let Some(line) = selection.exclude.unmatched(&options.exclude).next() {
        let shown = one_line(line, 100);
        return Err(DocumentError(format!(
            "`exclude` has `{shown}`, which no operation of the document fits"
        )));
    }
    import.unused = selection.include.unmatched(&options.include).cloned().collect();
    Ok(import)
}

/// What options name and a document lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnmatchedOptions {
    /// Lines of `include` that match no operation.
    pub include: Vec<String>,
    /// Lines of `exclude` that match no operation.
    pub exclude: Vec<String>,
    /// Names of security schemes.
    pub secrets: Vec<String>,
    /// Names of variables of the document's servers. Empty if the options have a server.
    pub variables: Vec<String>,
}

/// Finds what the options name and the document lacks.
///
/// # Errors
/// A line of the options is invalid, or the search takes too long.
pub fn unmatched_options(
    document: &OpenApiDocument,
    options: &ImportOptions,
) -> Result<UnmatchedOptions, DocumentError> {
    let mut selection = OperationSelection::read(options)?;
    let (all, skipped) = path_items::operations(document).map_err(DocumentError)?;
    for one in all.iter().chain(skipped.iter().filter_map(|skipped| skipped.found.as_ref())) {
        let tags = operation_tags(document, one.node).map_err(DocumentError)?;
        selection.contains(document, one, &tags)?;
    }
    let schemes = document.root().pointer("/components/securitySchemes");
    let lacks_scheme = |name: &&String| schemes.and_then(|all| all.get(name.as_str())).is_none();
    let servers = document.root().get("servers").into_iter();
    let servers = servers
        .chain(all.iter().flat_map(|one| [one.item.get("servers"), one.node.get("servers")]).flatten());
    let servers: Vec<&Value> = servers.filter_map(Value::as_array).flatten().collect();
    document.work.spend(servers.len().saturating_mul(options.variables.len())).map_err(DocumentError)?;
    let lacks_variable = |name: &&String| {
        options.server.is_none()
            && !servers
                .iter()
                .any(|one| one.get("variables").is_some_and(|all| all.get(name.as_str()).is_some()))
    };
    Ok(UnmatchedOptions {
        include: selection.include.unmatched(&options.include).cloned().collect(),
        exclude: selection.exclude.unmatched(&options.exclude).cloned().collect(),
        secrets: options.secrets.keys().filter(lacks_scheme).cloned().collect(),
        variables: options.variables.keys().filter(lacks_variable).cloned().collect(),
    })
}

fn operation_tags(document: &OpenApiDocument, operation: &Value) -> Result<Vec<String>, String> {
    let mut tags = Vec::new();
    for tag in operation.get("tags").and_then(Value::as_array).into_iter().flatten() {
        document.work.spend(1)?;
        if tags.len() == MAX_TAGS {
            break;
        }
        tags.extend(scalar_text(tag).map(|tag| one_line(&tag, 64)));
    }
    Ok(tags)
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
