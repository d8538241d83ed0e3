//! Reads the documents of services for the checks of a policy, without requests: a document of a server is read from
//! its copy, however old it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use toolbay_core::tool::definition_text::no_redaction;
use toolbay_core::tool::tags::possible_tags;
use toolbay_openapi::{Import, ImportedOperation, OpenApiDocument, import, unmatched_options};
use toolbay_policy::permission::SourceLabel;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::{
    DocumentLocation, KnownNames, KnownService, KnownTool, NamedTool, OpenApiService, Policy, PolicyFinding,
};

use super::copies::DocumentCopies;
use super::document::read_file;
use super::document_text::DocumentText;
use super::plan::{absent_tools, import_options, misplaced_secret, rename};
use super::{MAX_PARALLEL_PLANS, OpenApiServices, PLAN_TIME};

/// The contents of one service's document.
#[derive(Debug)]
struct ServiceContents {
    service: KnownService,
    /// The tools by qualified name, as the policy names them and as the document does. Tags are those of the document.
    tools: BTreeMap<String, KnownTool>,
    /// The names by which callers call the tools, each with the document's.
    names: Vec<(String, String)>,
}

/// Why a service could not be read.
#[derive(Debug)]
enum UnreadService {
    /// Its document is not here.
    Absent(String),
    /// Its document is here, but the service cannot be loaded.
    Broken(String),
}

impl OpenApiServices {
    /// Adds the services of a policy, or the reason why one cannot be read, and returns the findings about the names of
    /// their tools.
    pub(crate) async fn add_known(
        &self,
        policy: &Arc<Policy>,
        known: &mut KnownNames,
        reasons: &mut BTreeMap<String, String>,
    ) -> Vec<PolicyFinding> {
        let mut findings = Vec::new();
        for (name, read) in read_services(policy, self.copies.as_ref()).await {
            match read {
                Ok(contents) => {
                    findings.extend(policy.long_name_findings(contents.names.iter().map(|(tool, own)| {
                        NamedTool {
                            name: tool,
                            own_name: own,
                            source: SourceLabel { kind: "openapi", name: &name },
                        }
                    })));
                    known.services.insert(name, contents.service);
                    for (name, mut tool) in contents.tools {
                        tool.tags.extend(possible_tags("openapi", &[]).map(str::to_owned));
                        known.add_tool(name, tool);
                    }
                }
                Err(UnreadService::Absent(why)) => drop(reasons.insert(format!("openapi:{name}"), why)),
                Err(UnreadService::Broken(why)) => {
                    reasons.insert(format!("openapi:{name}"), why.clone());
                    known.broken_services.insert(name, why);
                }
            }
        }
        findings
    }
}

/// Reads the documents of all services of a policy, or says why one cannot be read.
async fn read_services(
    policy: &Arc<Policy>,
    copies: Option<&DocumentCopies>,
) -> BTreeMap<String, Result<ServiceContents, UnreadService>> {
    let read = |section: &Arc<OpenApiService>| {
        let (section, copies, policy) = (Arc::clone(section), copies.cloned(), Arc::clone(policy));
        async move {
            let name = section.name.to_string();
            // Ends with the deadline of the import.
            let read = tokio::task::spawn_blocking(move || {
                let text = read_text(&section, copies.as_ref())?;
                read_service(&policy, &section, &text).map_err(UnreadService::Broken)
            });
            (name, read.await.unwrap_or_else(|error| Err(UnreadService::Absent(error.to_string()))))
        }
    };
    let all: Vec<_> = policy.openapi_services().map(read).collect();
    futures_util::stream::iter(all).buffer_unordered(MAX_PARALLEL_PLANS).collect().await
}

fn read_text(
    section: &OpenApiService,
    copies: Option<&DocumentCopies>,
) -> Result<DocumentText, UnreadService> {
    match &section.document {
        DocumentLocation::File(path) => {
            let text = read_file(path).and_then(|bytes| DocumentText::new(bytes, None));
            // A missing file is reported with its path.
            text.map_err(if path.is_file() { UnreadService::Broken } else { UnreadService::Absent })
        }
        DocumentLocation::Url(url) => {
            let copy = copies.and_then(|copies| copies.copy_of(url).read());
            let absent = || UnreadService::Absent("its document was not fetched yet".to_owned());
            copy.map(|(_, text)| text).ok_or_else(absent)
        }
    }
}

fn read_service(
    policy: &Policy,
    section: &OpenApiService,
    text: &DocumentText,
) -> Result<ServiceContents, String> {
    let document = OpenApiDocument::parse(&text.text).map_err(|error| error.to_string())?;
    let document = document.with_deadline(Instant::now() + PLAN_TIME);
    let mut options = import_options(section);
    let unmatched = unmatched_options(&document, &options).map_err(|error| error.to_string())?;
    let by_key = [
        ("include", unmatched.include),
        ("exclude", unmatched.exclude),
        ("secrets", unmatched.secrets),
        ("variables", unmatched.variables),
    ];
    let unmatched: Vec<(&'static str, String)> =
        by_key.into_iter().flat_map(|(key, all)| all.into_iter().map(move |entry| (key, entry))).collect();
    // An import refuses lines of `exclude` that match nothing.
    options.exclude.retain(|line| !unmatched.contains(&("exclude", line.clone())));
    let mut imported =
        import(&document, &section.name, &options, &no_redaction).map_err(|error| error.to_string())?;
    rename(section, &absent_tools(section, &imported), &mut imported)?;
    let sha256 = Some(text.digest.to_string());
    let excluded_count = Some(imported.excluded_count);
    let unusable = unusable_operations(policy, &imported);
    let service = KnownService { sha256, unmatched, excluded_count, unusable, ..KnownService::default() };
    Ok(ServiceContents { service, tools: BTreeMap::new(), names: Vec::new() }
        .with_operations(section, imported))
}

/// The operations that are not tools, and the tools that the policy makes unavailable.
fn unusable_operations(policy: &Policy, imported: &Import) -> Vec<(String, String)> {
    let skipped = imported.problems.iter().map(|one| (one.operation.clone(), one.reason.for_operator()));
    let refused = imported.operations.iter().filter_map(|one| {
        let broken = one.unavailable.clone().map(PolicyRefusal::from);
        let why = broken.or_else(|| misplaced_secret(policy, one))?;
        Some((one.method_and_path().to_owned(), why.for_operator()))
    });
    skipped.chain(refused).collect()
}

impl ServiceContents {
    /// Adds the tools of a document.
    fn with_operations(mut self, section: &OpenApiService, imported: Import) -> Self {
        imported.operations.into_iter().for_each(|operation| self.add(section, operation));
        self
    }

    fn add(&mut self, section: &OpenApiService, operation: ImportedOperation) {
        let tool = known_tool(section, &operation);
        let (own, full) = (operation.def.own_name().to_owned(), operation.def.full_name().to_string());
        let name = operation.def.name.as_str().to_owned();
        self.tools.insert(name.clone(), tool.clone());
        self.tools.insert(full, tool);
        self.names.push((name, own.clone()));
        self.service.tools.insert(own);
        self.service.reached.push(operation.net_rule);
    }
}

fn known_tool(section: &OpenApiService, operation: &ImportedOperation) -> KnownTool {
    KnownTool {
        kind: "openapi",
        source: section.name.to_string(),
        tags: operation.def.keywords.tags.iter().cloned().collect(),
        arguments: Some(operation.def.input_schema.value().clone()),
    }
}
