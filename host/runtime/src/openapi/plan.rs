//! From a document and a section of the policy to tools in the registry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use toolbay_core::registry::{Bundle, CallSettings, Entry, ToolAvailability};
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::tags::Effects;
use toolbay_core::tool::wording;
use toolbay_openapi::{
    Credential, Document, Exchange, Import, Operation, Options, Placement, Problem, Routes, import,
};
use toolbay_policy::capability::net::{NetRule, Target};
use toolbay_policy::capability::secret::{DEFAULT_HEADER, Spot};
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::limits::Limits;
use toolbay_policy::name::ToolName;
use toolbay_policy::refusal::Refusal;
use toolbay_policy::rule::Rule as _;
use toolbay_policy::{Grants, Header, OpenApi};
use url::Url;

use super::wire::Wire;
use crate::capability::http::service::Service;
use crate::capability::{Granted, GrantedUnder, Services};
use crate::plugins::reducers;

/// Longest title of a service or of one of its tools, in characters.
const MAX_TITLE: usize = 100;
/// Longest description of a tool, in characters; documents are cut to less before.
const MAX_WORDS: usize = 4_000;

/// What a section came to.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) bundle: Bundle,
    pub(super) title: Option<String>,
    /// `GET /pets/{id}` by the tool's name.
    pub(super) operations: BTreeMap<String, String>,
    pub(super) problems: Vec<(String, String)>,
    pub(super) left_out: usize,
    pub(super) unused: Vec<String>,
}

/// Makes the tools of a section, and gives up at a time. Takes as long as the document is large: not for an async thread.
///
/// # Errors
/// What is wrong with the document, or with what the section says of it.
pub(super) fn plan(
    section: &Arc<OpenApi>,
    services: &Arc<Services>,
    text: &str,
    until: Instant,
) -> Result<Planned, String> {
    let document = Document::parse(text).map_err(|e| e.to_string())?.until(until);
    let mut came = import(&document, &section.name, &options(section)).map_err(|e| e.to_string())?;
    check_tools(section, &came)?;
    clean(&mut came, services);
    let problems =
        std::mem::take(&mut came.problems).into_iter().map(|problem| (problem.operation, problem.reason));
    let (problems, unused) = (problems.collect(), std::mem::take(&mut came.unused));
    let operations = came.operations.iter();
    let operations =
        operations.map(|one| (one.def.name.as_str().to_owned(), one.spoken().to_owned())).collect();
    let redact = wording::redacting(|text| services.redactor.text(text));
    let title = document.title().map(|title| wording::label(title, MAX_TITLE, &redact));
    let left_out = came.left_out;
    Ok(Planned { bundle: bundle(section, services, came)?, title, operations, problems, left_out, unused })
}

/// The words of a document are data: of its author, who is not the operator.
fn clean(came: &mut Import, services: &Services) {
    let redact = wording::redacting(|text| services.redactor.text(text));
    let (mut fit, mut problems) = (Vec::new(), Vec::new());
    for mut operation in std::mem::take(&mut came.operations) {
        let def = &mut operation.def;
        def.description = wording::text(&def.description, MAX_WORDS, &redact);
        def.title = def.title.take().map(|title| wording::label(&title, MAX_TITLE, &redact));
        def.keywords.tags =
            def.keywords.tags.iter().map(|tag| wording::label(tag, MAX_TITLE, &redact)).collect();
        let mut schema = def.input_schema.value().clone();
        match wording::schema(&mut schema, &redact) {
            Ok(_) => {
                def.input_schema = Schema::accepted_before(schema);
                fit.push(operation);
            }
            Err(why) => problems.push(Problem {
                operation: operation.spoken().to_owned(),
                reason: format!("its arguments: {why}"),
            }),
        }
    }
    came.operations = fit;
    came.problems.extend(problems);
}

fn options(section: &OpenApi) -> Options {
    let (mut headers, mut credentials) = (Vec::new(), Vec::new());
    for (name, header) in &section.headers {
        match header {
            Header::Plain(text) => headers.push((name.clone(), text.clone())),
            Header::Secret { secret, prefix } => credentials.push(Credential {
                secret: secret.clone(),
                placement: Placement::Header { name: name.clone(), prefix: prefix.clone() },
            }),
        }
    }
    Options {
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

/// A section for a tool that is not there is a narrowing that would not hold: most likely a name is misspelt.
fn check_tools(section: &OpenApi, came: &Import) -> Result<(), String> {
    let there = |name: &ToolName| came.operations.iter().any(|one| one.def.bare() == name.as_str());
    match section.tools.keys().find(|name| !there(name)) {
        Some(name) => Err(format!(
            "it has no tool `{name}`, for which the policy has a section ([openapi.{}.tools.{name}])",
            section.name
        )),
        None => Ok(()),
    }
}

fn bundle(section: &Arc<OpenApi>, services: &Arc<Services>, came: Import) -> Result<Bundle, String> {
    let policy = &services.policy;
    let routes = Arc::new(came.routes());
    let reached = origins(&came);
    let names: Vec<ToolName> = section.tools.keys().cloned().collect();
    let of_tools = names.iter().map(|name| {
        let qualified = format!("{}{}{name}", section.name, toolbay_policy::name::SEAM);
        (qualified, Arc::new(policy.openapi_limits(section, Some(name))))
    });
    let limits = policy.openapi_limits(section, None);
    let wire: Arc<dyn Exchange> = Arc::new(Wire {
        section: Arc::clone(section),
        granted: granted(section, services, &reached, &routes)?,
        of_tools: of_tools.collect(),
        places: Semaphore::new(
            usize::try_from(limits.concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS),
        ),
        limits: Arc::new(limits),
    });
    let tools = came.operations.into_iter().map(|operation| entry(section, services, operation, &wire));
    Ok(Bundle { tools: tools.collect::<Result<_, _>>()?, reducers: Vec::new() })
}

/// Each origin that operations reach, with all methods.
fn origins(came: &Import) -> Vec<NetRule> {
    let mut reached: Vec<NetRule> = Vec::new();
    for rule in came.operations.iter().map(|operation| &operation.reaches) {
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

/// What requests of a service reach without a profile and under each.
fn granted(
    section: &Arc<OpenApi>,
    services: &Arc<Services>,
    reached: &[NetRule],
    routes: &Arc<Routes>,
) -> Result<GrantedUnder, String> {
    let policy = &services.policy;
    let tool = ToolName::new("any").map_err(|e| e.to_string())?;
    let wish = |kind, target| Capability { kind, target, optional: true, reason: None };
    let nets = |rules: &[NetRule]| -> Vec<Capability> {
        NetRule::show_list(rules, policy.workspace())
            .into_iter()
            .map(|t| wish(CapabilityKind::Net, t))
            .collect()
    };
    let secrets: Vec<Capability> =
        section.named_secrets().map(|name| wish(CapabilityKind::Secret, name.to_owned())).collect();
    let join = |grants: Grants, own, more| {
        let service = Service { about: Arc::clone(section), own, more, routes: Arc::clone(routes) };
        let service = Some(Arc::new(service));
        Arc::new(Granted { service, ..Granted::new(services, tool.clone(), grants) })
    };
    let under = |profile: Option<&str>| {
        let of = |declared: &[Capability]| policy.openapi_grant(section, &tool, declared, reached, profile);
        let (own, more) = (of(&nets(reached)).net, of(&nets(&section.net)).net);
        let attachments = wish(CapabilityKind::Attachments, "create".to_owned());
        let all: Vec<Capability> =
            nets(reached).into_iter().chain(secrets.clone()).chain([attachments]).collect();
        join(of(&all), own, more)
    };
    let profiles = policy.profiles().map(|profile| (profile.into(), under(Some(profile)))).collect();
    Ok(GrantedUnder {
        no_profile: under(None),
        profiles,
        nothing: join(Grants::default(), Vec::new(), Vec::new()),
    })
}

fn entry(
    section: &Arc<OpenApi>,
    services: &Arc<Services>,
    operation: Operation,
    wire: &Arc<dyn Exchange>,
) -> Result<Entry, String> {
    let policy = &services.policy;
    let tool = ToolName::new(operation.def.bare()).map_err(|e| e.to_string())?;
    let limits: Limits = policy.openapi_limits(section, Some(&tool));
    let broken = operation.unavailable.clone().map(Refusal::from).or_else(|| misplaced(services, &operation));
    let under = |profile: Option<&str>| {
        let reached = std::slice::from_ref(&operation.reaches);
        let grants = policy.openapi_grant(section, &tool, &operation.def.capabilities, reached, profile);
        let missing = || services.secrets.missing(&grants, policy).into_iter().next().map(|(_, why)| why);
        broken.clone().or_else(|| grants.unavailable()).or_else(missing)
    };
    let unavailable = under(None);
    let under_profiles =
        policy.profiles().map(|profile| (Arc::from(profile), under(Some(profile)))).collect();
    let effects = effects(section, &operation);
    let mut operation = operation.with_encoded_slashes(section.encoded_slashes(&tool));
    operation.def.traits.needs_approval = section.needs_approval(&tool, operation.changes());
    let reducer = section.reducer(&tool).map(|name| reducers::native(operation.def.name.as_str(), name));
    let entry = toolbay_openapi::tool(operation, Arc::clone(wire)).with_effects(effects);
    let asks = section.asks_reason(&tool).unwrap_or_else(|| policy.asks_reason(None));
    let entry = Entry {
        availability: ToolAvailability {
            unavailable,
            under_profiles: Some(Arc::new(under_profiles)),
            ..entry.availability
        },
        call: CallSettings {
            args_bytes: limits.args_bytes,
            result_chars: limits.result_chars,
            result_bytes: limits.result_bytes,
            serial: section.lane(&tool),
            cache: section.cache(&tool),
            delivery: section.results(&tool).or(policy.results()),
        },
        reducer: reducer.transpose().map_err(|e| format!("`reduce`: {e}"))?.map(Arc::new),
        ..entry
    };
    Ok(if asks { entry.asking_reason() } else { entry })
}

/// What the section lets a tool do, whatever its document says: with a secret, or into a private network, it does what few
/// should. A request of `GET` or `HEAD` changes nothing (RFC 9110, 9.2.1), and any other may.
fn effects(section: &OpenApi, operation: &Operation) -> Effects {
    Effects {
        network: true,
        privileged: !operation.credentials.is_empty() || !section.net_private.is_empty(),
        may_change: operation.changes(),
        // The file of a response may become an attachment of the turn.
        adds: true,
        ..Effects::default()
    }
}

/// Why a secret may not go where the operation puts it.
fn misplaced(services: &Services, operation: &Operation) -> Option<Refusal> {
    let url = Url::parse(operation.base()).ok()?;
    let target = Target::request("GET", &url).ok()?;
    operation.credentials.iter().find_map(|one| {
        let (name, rule) = services.policy.secrets().find(|(name, _)| *name == one.secret)?;
        let spot = match &one.placement {
            Placement::Header { name, .. } => Spot::Header(name),
            Placement::Basic => Spot::Header(DEFAULT_HEADER),
            Placement::Cookie(_) => Spot::Header("cookie"),
            Placement::Query(name) => Spot::Query(name),
        };
        rule.refusal(name, &target, spot)
    })
}
