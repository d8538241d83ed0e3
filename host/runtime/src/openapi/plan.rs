//! Turns a document and its section of the policy into registry entries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use toolbay_core::registry::{Bundle, CallSettings, ToolAvailability, ToolEntry};
use toolbay_core::tool::definition_text;
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::tags::Effects;
use toolbay_openapi::{
    Credential, HttpExchange, Import, ImportOptions, ImportProblem, ImportedOperation, OpenApiDocument,
    Placement, Routes, import,
};
use toolbay_policy::capability::net::{NetRule, NetTarget};
use toolbay_policy::capability::secret::{DEFAULT_HEADER, SecretPosition};
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::limits::CallLimits;
use toolbay_policy::name::ToolName;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::rule::GrantRule as _;
use toolbay_policy::{Grants, OpenApiService, ServiceHeader};
use url::Url;

use super::exchange::ServiceExchange;
use crate::capability::http::service::ServiceGrants;
use crate::capability::{GrantsByProfile, ResolvedGrants, Services};
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
    pub(super) problems: Vec<(String, String)>,
    pub(super) left_out: usize,
    pub(super) unused: Vec<String>,
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
    let mut imported =
        import(&document, &section.name, &import_options(section)).map_err(|e| e.to_string())?;
    check_tools(section, &imported)?;
    sanitize(&mut imported, services);
    let problems =
        std::mem::take(&mut imported.problems).into_iter().map(|problem| (problem.operation, problem.reason));
    let (problems, unused) = (problems.collect(), std::mem::take(&mut imported.unused));
    let operations = imported.operations.iter();
    let operations =
        operations.map(|one| (one.def.name.as_str().to_owned(), one.method_and_path().to_owned())).collect();
    let redact = definition_text::redact_fn(|text| services.redactor.redact_text(text));
    let title = document.title().map(|title| definition_text::sanitize_label(title, MAX_TITLE, &redact));
    let left_out = imported.excluded_count;
    Ok(ToolPlan {
        bundle: tool_bundle(section, services, imported)?,
        title,
        operations,
        problems,
        left_out,
        unused,
    })
}

/// Cleans up the texts of a document, whose author is not the operator.
fn sanitize(imported: &mut Import, services: &Services) {
    let redact = definition_text::redact_fn(|text| services.redactor.redact_text(text));
    let (mut fit, mut problems) = (Vec::new(), Vec::new());
    for mut operation in std::mem::take(&mut imported.operations) {
        let def = &mut operation.def;
        def.description = definition_text::sanitize_text(&def.description, MAX_DESCRIPTION, &redact);
        def.title = def.title.take().map(|title| definition_text::sanitize_label(&title, MAX_TITLE, &redact));
        def.keywords.tags = def
            .keywords
            .tags
            .iter()
            .map(|tag| definition_text::sanitize_label(tag, MAX_TITLE, &redact))
            .collect();
        let mut schema = def.input_schema.value().clone();
        match definition_text::sanitize_schema(&mut schema, &redact) {
            Ok(_) => {
                def.input_schema = Schema::from_trusted(schema);
                fit.push(operation);
            }
            Err(why) => problems.push(ImportProblem {
                operation: operation.method_and_path().to_owned(),
                reason: format!("its arguments: {why}"),
            }),
        }
    }
    imported.operations = fit;
    imported.problems.extend(problems);
}

fn import_options(section: &OpenApiService) -> ImportOptions {
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

/// Rejects a section for a tool that does not exist. Most likely the name is misspelt, and its restrictions would not
/// apply.
fn check_tools(section: &OpenApiService, imported: &Import) -> Result<(), String> {
    let there = |name: &ToolName| imported.operations.iter().any(|one| one.def.bare() == name.as_str());
    match section.tools.keys().find(|name| !there(name)) {
        Some(name) => Err(format!(
            "it has no tool `{name}`, for which the policy has a section ([openapi.{}.tools.{name}])",
            section.name
        )),
        None => Ok(()),
    }
}

fn tool_bundle(
    section: &Arc<OpenApiService>,
    services: &Arc<Services>,
    imported: Import,
) -> Result<Bundle, String> {
    let policy = &services.policy;
    let routes = Arc::new(imported.routes());
    let reached = reached_origins(&imported);
    let names: Vec<ToolName> = section.tools.keys().cloned().collect();
    let tool_limits = names.iter().map(|name| {
        let qualified = format!("{}{}{name}", section.name, toolbay_policy::name::NAME_SEPARATOR);
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
    let tools =
        imported.operations.into_iter().map(|operation| tool_entry(section, services, operation, &exchange));
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

/// What requests of a service may reach, without a profile and under each profile.
fn service_grants(
    section: &Arc<OpenApiService>,
    services: &Arc<Services>,
    reached: &[NetRule],
    routes: &Arc<Routes>,
) -> Result<GrantsByProfile, String> {
    let policy = &services.policy;
    let tool = ToolName::new("any").map_err(|e| e.to_string())?;
    let wish = |kind, target| Capability { kind, target, optional: true, reason: None };
    let nets = |rules: &[NetRule]| -> Vec<Capability> {
        rules.iter().map(|rule| wish(CapabilityKind::Net, rule.show(policy.workspace()))).collect()
    };
    let secrets: Vec<Capability> =
        section.secret_names().map(|name| wish(CapabilityKind::Secret, name.to_owned())).collect();
    let join = |grants: Grants, own, more| {
        let service = ServiceGrants {
            section: Arc::clone(section),
            operation_rules: own,
            redirect_rules: more,
            routes: Arc::clone(routes),
        };
        let service = Some(Arc::new(service));
        Arc::new(ResolvedGrants { service, ..ResolvedGrants::new(services, tool.clone(), grants) })
    };
    let under = |profile: Option<&str>| {
        let of = |declared: &[Capability]| policy.openapi_grant(section, &tool, declared, reached, profile);
        let (own, more) = (of(&nets(reached)).net, of(&nets(&section.net)).net);
        let attachments = wish(CapabilityKind::Attachments, "create".to_owned());
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
    exchange: &Arc<dyn HttpExchange>,
) -> Result<ToolEntry, String> {
    let policy = &services.policy;
    let tool = ToolName::new(operation.def.bare()).map_err(|e| e.to_string())?;
    let limits: CallLimits = policy.openapi_limits(section, Some(&tool));
    let broken = operation
        .unavailable
        .clone()
        .map(PolicyRefusal::from)
        .or_else(|| misplaced_secret(services, &operation));
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
    let entry = toolbay_openapi::tool_entry(operation, Arc::clone(exchange)).with_effects(effects);
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
fn misplaced_secret(services: &Services, operation: &ImportedOperation) -> Option<PolicyRefusal> {
    let url = Url::parse(operation.base()).ok()?;
    let target = NetTarget::request("GET", &url).ok()?;
    operation.credentials.iter().find_map(|one| {
        let (name, rule) = services.policy.secrets().find(|(name, _)| *name == one.secret)?;
        let spot = match &one.placement {
            Placement::Header { name, .. } => SecretPosition::Header(name),
            Placement::Basic => SecretPosition::Header(DEFAULT_HEADER),
            Placement::Cookie(_) => SecretPosition::Header("cookie"),
            Placement::Query(name) => SecretPosition::Query(name),
        };
        rule.refusal(name, &target, spot)
    })
}
