//! Turns a document and its section of the policy into registry entries.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use toolbay_capabilities::service_grants::ServiceGrants;
use toolbay_capabilities::{GrantsByProfile, ResolvedGrants, Services};
use toolbay_core::call::service_request::{Credential, Placement};
use toolbay_core::registry::{Bundle, CallSettings, ToolAvailability, ToolEntry};
use toolbay_core::tool::SourceName;
use toolbay_core::tool::definition_text::{self, Redact};
use toolbay_core::tool::tags::Effects;
use toolbay_openapi::{
    HttpExchange, Import, ImportOptions, ImportProblem, ImportedOperation, OpenApiDocument, Routes, import,
};
use toolbay_policy::capability::net::{NetRule, NetTarget};
use toolbay_policy::capability::secret::{DEFAULT_HEADER, SecretPosition};
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::limits::CallLimits;
use toolbay_policy::name::{QualifiedName, ToolName};
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::rule::GrantRule as _;
use toolbay_policy::{Grants, OpenApiService, Policy, ServiceHeader};
use url::Url;

use super::exchange::ServiceExchange;
use crate::plugins::reducers;

/// Maximum length of a title, in characters.
const MAX_TITLE: usize = 100;
/// Maximum length of a tool's description, in characters. The importer already cuts descriptions to less.
const MAX_DESCRIPTION: usize = 4_000;

/// The tools of a section, ready to be registered.
#[derive(Debug)]
pub(super) struct ToolPlan {
    pub(super) bundle: Bundle,
    pub(super) title: Option<String>,
    /// The operations by tool name, such as `GET /pets/{id}`.
    pub(super) operations: BTreeMap<String, String>,
    pub(super) problems: Vec<ImportProblem>,
    /// Parts of operations that their tools lack.
    pub(super) warnings: Vec<ImportProblem>,
    pub(super) left_out: usize,
    pub(super) unused: Vec<String>,
    /// Tools for which the policy has a section, and which the document does not have.
    pub(super) unknown_tools: Vec<ToolName>,
}

/// Creates the tools of a section until a deadline. The time grows with the document, so call this on a blocking
/// thread.
///
/// # Errors
/// The document or its section is invalid.
pub(super) fn plan_tools(
    section: &Arc<OpenApiService>,
    services: &Arc<Services>,
    text: &str,
    until: Instant,
) -> Result<ToolPlan, String> {
    let document = OpenApiDocument::parse(text).map_err(|e| e.to_string())?.with_deadline(until);
    let redact = definition_text::redact_fn(|text| services.redactor.redact_text(text));
    let imported = import(&document, &section.name, &import_options(section), &redact);
    let mut imported = imported.map_err(|e| e.to_string())?;
    let unknown_tools = unknown_tools(section, &imported)?;
    rename(section, &unknown_tools, &mut imported)?;
    sanitize(&mut imported, &redact);
    let (problems, unused) = (std::mem::take(&mut imported.problems), std::mem::take(&mut imported.unused));
    let warnings = std::mem::take(&mut imported.warnings);
    let operations = imported.operations.iter();
    let operations =
        operations.map(|one| (one.def.name.as_str().to_owned(), one.method_and_path().to_owned())).collect();
    let title = document.title().map(|title| definition_text::sanitize_label(&title, MAX_TITLE, &redact));
    let left_out = imported.excluded_count;
    Ok(ToolPlan {
        bundle: tool_bundle(section, services, imported)?,
        title,
        operations,
        problems,
        warnings,
        left_out,
        unused,
        unknown_tools,
    })
}

/// Cleans up the texts of a document, whose author is not the operator. The schemas are clean.
fn sanitize(imported: &mut Import, redact: Redact<'_>) {
    for operation in &mut imported.operations {
        let def = &mut operation.def;
        def.description = definition_text::sanitize_text(&def.description, MAX_DESCRIPTION, redact);
        def.title = def.title.take().map(|title| definition_text::sanitize_label(&title, MAX_TITLE, redact));
        def.keywords.tags = def
            .keywords
            .tags
            .iter()
            .map(|tag| definition_text::sanitize_label(tag, MAX_TITLE, redact))
            .collect();
    }
}

pub(super) fn import_options(section: &OpenApiService) -> ImportOptions {
    let (mut headers, mut credentials) = (Vec::new(), Vec::new());
    for (name, header) in &section.headers {
        match header {
            ServiceHeader::Plain(text) => headers.push((name.clone(), text.clone())),
            ServiceHeader::Secret { secret, prefix } => credentials.push(Credential {
                secret: secret.clone(),
                placement: Placement::Header { name: name.clone(), prefix: prefix.clone() },
            }),
        }
    }
    ImportOptions {
        server: section.server.clone(),
        document_url: section.document.url().map(Url::to_string),
        variables: section.variables.clone(),
        include: section.include.clone(),
        exclude: section.exclude.clone(),
        secrets: section.secrets.clone(),
        headers,
        credentials,
    }
}

/// The tools that the policy has a section for, and that do not exist.
///
/// # Errors
/// Fails if such a section is stricter than the service. Most likely the name is misspelt, and the tool that the
/// section means must not run without it.
fn unknown_tools(section: &OpenApiService, imported: &Import) -> Result<Vec<ToolName>, String> {
    let unknown = absent_tools(section, imported);
    let is_stricter = |name: &&ToolName| section.tools.get(*name).is_some_and(|own| own.is_stricter());
    match unknown.iter().find(is_stricter) {
        Some(name) => Err(unknown_tool_warning(section, name)),
        None => Ok(unknown),
    }
}

/// The tools that the policy has a section for, and that the document does not have.
pub(super) fn absent_tools(section: &OpenApiService, imported: &Import) -> Vec<ToolName> {
    let known: HashSet<&str> = imported.operations.iter().map(|one| one.def.bare()).collect();
    section.tools.keys().filter(|name| !known.contains(name.as_str())).cloned().collect()
}

/// The warning about a section for a tool that does not exist.
pub(super) fn unknown_tool_warning(section: &OpenApiService, tool: &ToolName) -> String {
    format!(
        "it has no tool `{tool}`, for which the policy has a section ([openapi.{}.tools.{tool}])",
        section.name
    )
}

/// Gives tools the operator's names. An operation whose own name is one of them is left out.
pub(super) fn rename(
    section: &OpenApiService,
    unknown: &[ToolName],
    imported: &mut Import,
) -> Result<(), String> {
    let given: BTreeMap<String, &ToolName> = section
        .tools
        .iter()
        .filter(|(tool, _)| !unknown.contains(tool))
        .filter_map(|(tool, own)| Some((own.name.as_ref()?.as_str().to_ascii_lowercase(), tool)))
        .collect();
    for mut operation in std::mem::take(&mut imported.operations) {
        let own = ToolName::new(operation.def.bare()).map_err(|e| e.to_string())?;
        match (section.tool_name(&own), given.get(&own.as_str().to_ascii_lowercase())) {
            (Some(name), _) => {
                let name = QualifiedName::join(&section.name, name).map_err(|e| e.to_string())?;
                let full = std::mem::replace(&mut operation.def.name, name);
                // A search still finds it by the words of its own name.
                operation.def.keywords.search_hint.get_or_insert_with(|| own.as_str().to_owned());
                operation.def.source_name = Some(Box::new(SourceName { own: own.as_str().to_owned(), full }));
                imported.operations.push(operation);
            }
            (None, Some(other)) => imported.problems.push(ImportProblem {
                operation: operation.method_and_path().to_owned(),
                tool: None,
                reason: PolicyRefusal::new(
                    "its name is the one that the policy gives to another tool",
                    format!("Choose another `name` in [openapi.{}.tools.{other}]", section.name),
                ),
            }),
            (None, None) => imported.operations.push(operation),
        }
    }
    Ok(())
}

fn tool_bundle(
    section: &Arc<OpenApiService>,
    services: &Arc<Services>,
    imported: Import,
) -> Result<Bundle, String> {
    let policy = &services.policy;
    let routes = Arc::new(imported.routes());
    let reached = reached_origins(&imported);
    // A section for a tool that does not exist may have the name of another.
    let own_names = imported.operations.iter().filter_map(|one| ToolName::new(one.def.own_name()).ok());
    let names: Vec<ToolName> = own_names.filter(|name| section.tools.contains_key(name)).collect();
    let tool_limits = names.iter().map(|name| {
        let shown = section.tool_name(name).unwrap_or(name);
        let qualified = format!("{}{}{shown}", section.name, toolbay_policy::name::NAME_SEPARATOR);
        (qualified, Arc::new(policy.openapi_limits(section, Some(name))))
    });
    let limits = policy.openapi_limits(section, None);
    let exchange: Arc<dyn HttpExchange> = Arc::new(ServiceExchange {
        section: Arc::clone(section),
        granted: service_grants(section, services, &reached, &routes)?,
        tool_limits: tool_limits.collect(),
        call_permits: Semaphore::new(
            usize::try_from(limits.concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS),
        ),
        limits: Arc::new(limits),
    });
    let operations = imported.operations.into_iter();
    let tools = operations.map(|operation| tool_entry(section, services, operation, (&exchange, &routes)));
    Ok(Bundle { tools: tools.collect::<Result<_, _>>()?, reducers: Vec::new() })
}

/// The origins that the operations reach, each with all methods.
fn reached_origins(imported: &Import) -> Vec<NetRule> {
    let mut reached: Vec<NetRule> = Vec::new();
    for rule in imported.operations.iter().map(|operation| &operation.net_rule) {
        let same =
            |one: &&mut NetRule| (one.scheme, &one.host, one.port) == (rule.scheme, &rule.host, rule.port);
        match (reached.iter_mut().find(same).map(|one| &mut one.methods), &rule.methods) {
            (Some(Some(known)), Some(more)) => known.extend(more.iter().cloned()),
            (Some(_), _) => {}
            (None, _) => reached.push(rule.clone()),
        }
    }
    reached
}

/// The grants of a service's requests, without a profile and under each profile.
fn service_grants(
    section: &Arc<OpenApiService>,
    services: &Arc<Services>,
    reached: &[NetRule],
    routes: &Arc<Routes>,
) -> Result<GrantsByProfile, String> {
    let policy = &services.policy;
    let tool = ToolName::new("any").map_err(|e| e.to_string())?;
    let declare = |kind, target| Capability { kind, target, optional: true, reason: None };
    let nets = |rules: &[NetRule]| -> Vec<Capability> {
        rules.iter().map(|rule| declare(CapabilityKind::Net, rule.show(policy.workspace()))).collect()
    };
    let secrets: Vec<Capability> =
        section.secret_names().map(|name| declare(CapabilityKind::Secret, name.to_owned())).collect();
    let join = |grants: Grants, own, more| {
        let service = ServiceGrants {
            section: Arc::clone(section),
            operation_rules: own,
            redirect_rules: more,
            routes: routes.clone(),
        };
        let service = Some(Arc::new(service));
        Arc::new(ResolvedGrants { service, ..ResolvedGrants::new(services, tool.clone(), grants) })
    };
    let under = |profile: Option<&str>| {
        let of = |declared: &[Capability]| policy.openapi_grant(section, &tool, declared, reached, profile);
        let (own, more) = (of(&nets(reached)).net, of(&nets(&section.net)).net);
        let attachments = declare(CapabilityKind::Attachments, "create".to_owned());
        let all: Vec<Capability> =
            nets(reached).into_iter().chain(secrets.clone()).chain([attachments]).collect();
        join(of(&all), own, more)
    };
    let profiles = policy.profile_names().map(|profile| (profile.into(), under(Some(profile)))).collect();
    Ok(GrantsByProfile {
        no_profile: under(None),
        profiles,
        unknown_profile: join(Grants::default(), Vec::new(), Vec::new()),
    })
}

fn tool_entry(
    section: &Arc<OpenApiService>,
    services: &Arc<Services>,
    operation: ImportedOperation,
    (exchange, routes): (&Arc<dyn HttpExchange>, &Arc<Routes>),
) -> Result<ToolEntry, String> {
    let policy = &services.policy;
    let tool = ToolName::new(operation.def.own_name()).map_err(|e| e.to_string())?;
    let limits: CallLimits = policy.openapi_limits(section, Some(&tool));
    let broken = operation
        .unavailable
        .clone()
        .map(PolicyRefusal::from)
        .or_else(|| misplaced_secret(&services.policy, &operation));
    let under = |profile: Option<&str>| {
        let reached = std::slice::from_ref(&operation.net_rule);
        let grants = policy.openapi_grant(section, &tool, &operation.def.capabilities, reached, profile);
        let missing =
            || services.secrets.missing_secrets(&grants, policy).into_iter().next().map(|(_, why)| why);
        broken.clone().or_else(|| grants.unavailable()).or_else(missing)
    };
    let unavailable = under(None);
    let under_profiles =
        policy.profile_names().map(|profile| (Arc::from(profile), under(Some(profile)))).collect();
    let effects = effects(section, &operation);
    let mut operation = operation.with_encoded_slashes(section.encoded_slashes(&tool));
    operation.def.traits.needs_approval = section.needs_approval(&tool, operation.may_change_data());
    let reducer = section.reducer(&tool).map(|name| reducers::native(operation.def.name.as_str(), name));
    let entry = toolbay_openapi::tool_entry(operation, Arc::clone(exchange), Arc::clone(routes));
    let entry = entry.with_effects(effects);
    Ok(ToolEntry {
        availability: ToolAvailability {
            unavailable,
            by_profile: Some(Arc::new(under_profiles)),
            ..entry.availability
        },
        call: CallSettings {
            args_bytes: limits.args_bytes,
            result_chars: limits.result_chars,
            result_bytes: limits.result_bytes,
            serial: section.serial_queue(&tool),
            cache: section.cache(&tool),
            output: section.results(&tool).or(policy.results()),
            toolcall_reason: section.asks_reason(&tool),
        },
        reducer: reducer.transpose().map_err(|e| format!("`reduce`: {e}"))?.map(Arc::new),
        ..entry
    })
}

/// The effects that the section gives a tool, whatever its document says. A tool with a secret or access to a private
/// network is privileged. A request with `GET` or `HEAD` changes nothing (RFC 9110, section 9.2.1); any other may.
fn effects(section: &OpenApiService, operation: &ImportedOperation) -> Effects {
    Effects {
        network: true,
        privileged: !operation.credentials.is_empty() || !section.net_private.is_empty(),
        may_change: operation.may_change_data(),
        // A response body may become an attachment of the turn.
        adds: true,
        ..Effects::default()
    }
}

/// Why a secret must not go where the operation puts it.
pub(super) fn misplaced_secret(policy: &Policy, operation: &ImportedOperation) -> Option<PolicyRefusal> {
    let url = Url::parse(operation.base()).ok()?;
    let target = NetTarget::request("GET", &url).ok()?;
    operation.credentials.iter().find_map(|one| {
        let (name, rule) = policy.secrets().find(|(name, _)| *name == one.secret)?;
        let spot = match &one.placement {
            Placement::Header { name, .. } => SecretPosition::Header(name),
            Placement::Basic => SecretPosition::Header(DEFAULT_HEADER),
            Placement::Cookie(_) => SecretPosition::Header("cookie"),
            Placement::Query(name) => SecretPosition::Query(name),
        };
        rule.refusal(name, &target, spot)
    })
}
