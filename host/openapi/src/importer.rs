//! Imports one operation as a tool: its requirements, its requests, its description.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolbay_core::call::service_request::Credential;
use toolbay_core::tool::definition_text::Redact;
use toolbay_core::tool::schema::{self, Schema, SchemaReader};
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_policy::capability::net::NetRule;
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::{PluginId, QualifiedName, ToolName};
use toolbay_policy::name_list::list_all_names;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::rule::GrantRule as _;

use crate::body::BodyEncoder;
use crate::document::OpenApiDocument;
use crate::parameter::{self, OperationParameters, Parameter, ParameterLocation, ReservedField};
use crate::path_items::DocumentOperation;
use crate::path_template::{PathPiece, PathTemplate};
use crate::request::RequestPlan;
use crate::routes;
use crate::scalar::scalar_text;
use crate::schema::{SchemaConverter, SchemaTotals, plain_text};
use crate::security;
use crate::server::{self, ChosenServer};
use crate::style::{EscapeMode, ParameterStyle};

/// The longest description, in characters.
const MAX_DESCRIPTION: usize = 2000;
/// The longest search hint, in characters.
const MAX_HINT: usize = 200;
/// The most bytes of the schemas of all tools of a document.
const MAX_SCHEMA_BYTES: usize = 32 << 20;
/// The depths at which an argument schema is cut, in order. A schema that the host cannot take in full is still useful
/// in part.
const DEPTHS: [usize; 4] = [60, 8, 4, 2];

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

/// An operation and its location.
pub(crate) struct OperationImporter<'a> {
    pub(crate) document: &'a OpenApiDocument,
    pub(crate) options: &'a ImportOptions,
    pub(crate) operation: &'a DocumentOperation<'a>,
    /// The names of the service's credentials in requests.
    pub(crate) reserved: &'a Arc<[ReservedField]>,
    /// Removes the values of secrets.
    pub(crate) redact: Redact<'a>,
}

/// The totals over all operations of a document.
#[derive(Debug, Default)]
pub(crate) struct ImportTotals {
    known: SchemaTotals,
    /// The bytes of all schemas.
    bytes: usize,
    /// The servers of the document that are passed over.
    pub(crate) server_note: Option<String>,
}

impl ImportTotals {
    /// Refuses all operations after the one that reached the limit, before any work is done for them.
    fn check_bytes(&self) -> Result<(), String> {
        match self.bytes > MAX_SCHEMA_BYTES {
            true => Err(format!(
                "the document's tools have more than {MAX_SCHEMA_BYTES} bytes of schemas: choose some operations with `include`"
            )),
            false => Ok(()),
        }
    }
}

impl OperationImporter<'_> {
    /// Creates the tool, and says what it lacks. Its toolset is the operator's section, and its labels are prefixed with the section's name,
    /// because the operator's lists and rules must not match names that a document chose.
    pub(crate) fn import(
        &self,
        namespace: &PluginId,
        tool: &str,
        tags: &[String],
        gathered: &mut ImportTotals,
    ) -> Result<(ImportedOperation, Vec<String>), PolicyRefusal> {
        gathered.check_bytes()?;
        // Bounds the work per part of the operation.
        self.document.work.spend_value(self.operation.node)?;
        self.operation
            .item
            .get("parameters")
            .map_or(Ok(()), |shared| self.document.work.spend_value(shared))?;
        let demanded = security::credentials(self.document, self.operation.node, &self.options.secrets);
        let (mut credentials, unavailable) = match demanded {
            Ok(credentials) => (credentials, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        for more in &self.options.credentials {
            // The operator's values replace parameters of the document.
            let field = security::reserved_field(&more.placement);
            credentials.retain(|one| security::reserved_field(&one.placement) != field);
            credentials.push(more.clone());
        }
        let of_operator = self
            .options
            .headers
            .iter()
            .map(|(name, _)| ReservedField(ParameterLocation::Header, name.clone()));
        let fixed: Vec<ReservedField> = credentials
            .iter()
            .map(|one| security::reserved_field(&one.placement))
            .chain(of_operator)
            .collect();
        let (plan, schema) = self.plan_within_limits(&fixed, gathered)?;
        gathered.bytes += schema.value().to_string().len();
        gathered.check_bytes()?;
        let (shown, origin) = routes::net_rules(&plan).ok_or("its server is not a URL")?;
        let nowhere = std::path::Path::new("/");
        let reaches = NetRule::parse(&origin, nowhere)?;
        // A path that no pattern can express is granted by its origin.
        let target = if NetRule::parse(&shown, nowhere).is_ok() { shown } else { origin };
        let tool = ToolName::new(tool).map_err(|e| e.to_string())?;
        let name = QualifiedName::join(namespace, &tool).map_err(|e| e.to_string())?;
        let source = ToolSource::OpenApi { document: Arc::from(namespace.as_str()) };
        let mut def = ToolDef::new(name, self.description(), schema, source);
        def.title = self.text_of("summary").map(|summary| one_line(&summary, 100));
        def.keywords.toolset = Some(format!("openapi:{namespace}"));
        def.keywords.tags = tags.iter().map(|tag| format!("{namespace}.{tag}")).collect();
        // A truncated name is found by all of its words.
        let id = self.operation.identity().id.filter(|id| id.len() > def.bare().len());
        def.keywords.search_hint = id.map(|id| one_line(id, MAX_HINT));
        def.capabilities = std::iter::once((CapabilityKind::Net, target))
            .chain(credentials.iter().map(|one| (CapabilityKind::Secret, one.secret.clone())))
            .map(|(kind, target)| Capability { kind, target, optional: false, reason: None })
            .collect();
        let method = self.operation.identity().method;
        let reads = matches!(method, "GET" | "HEAD");
        def.traits = ToolTraits {
            read_only: reads,
            idempotent: reads || matches!(method, "PUT" | "DELETE"),
            untrusted_output: true,
            ..ToolTraits::default()
        };
        let mut plan =
            RequestPlan { credentials: credentials.clone(), reserved: self.reserved_fields(&fixed), ..plan };
        let warnings = std::mem::take(&mut plan.lacks);
        Ok((ImportedOperation { def, unavailable, net_rule: reaches, credentials, plan }, warnings))
    }

    /// The names of credentials in requests, including those that the operator adds.
    fn reserved_fields(&self, fixed: &[ReservedField]) -> Arc<[ReservedField]> {
        let more: Vec<&ReservedField> = fixed.iter().filter(|one| !self.reserved.contains(one)).collect();
        if more.is_empty() {
            return Arc::clone(self.reserved);
        }
        self.reserved.iter().chain(more).cloned().collect()
    }

    /// The request plan and the schema, as deep as the host reads it in full, or else in outline.
    fn plan_within_limits(
        &self,
        fixed: &[ReservedField],
        totals: &mut ImportTotals,
    ) -> Result<(RequestPlan, Schema), PolicyRefusal> {
        let reader = SchemaReader::for_servers(self.redact);
        let mut last = Err(PolicyRefusal::default());
        for depth in DEPTHS {
            last = self.plan_at_depth(depth, fixed, totals).map(|(plan, schema)| (plan, schema.to_string()));
            let Ok((_, text)) = &last else { continue };
            // Reading a schema only to find that it is too long would take most of the import.
            if text.len() > schema::MAX_SCHEMA_BYTES {
                continue;
            }
            let schema = reader.input(Some(text));
            if !schema.is_outline() {
                return last.map(|(plan, _)| (plan, schema));
            }
        }
        last.map(|(plan, text)| (plan, reader.input(Some(&text))))
    }

    fn plan_at_depth(
        &self,
        depth: usize,
        fixed: &[ReservedField],
        ImportTotals { known, server_note, .. }: &mut ImportTotals,
    ) -> Result<(RequestPlan, Value), PolicyRefusal> {
        let mut template = PathTemplate::parse(self.operation.identity().path)?;
        let ChosenServer { url: server, passed_over, of_document } = self.server()?;
        template.add_query(PathTemplate::parse(&format!("?{}", server.query))?);
        // Credentials have the names in the document and those that the operator adds.
        let reserved = |name: &str| {
            self.reserved.iter().chain(fixed).any(|one| one.collides(ParameterLocation::Query, name))
        };
        template.query.retain(|one| !reserved(&one.name));
        template
            .bound
            .retain(|(name, _)| !fixed.iter().any(|one| one.is_same(ParameterLocation::Query, name)));
        if let Some((name, _)) = template.bound.iter().find(|(name, bound)| name != bound && reserved(name)) {
            return Err(format!(
                "its path has an argument in place of the credential `{}`",
                one_line(name, 60)
            )
            .into());
        }
        let of_path =
            template.query.iter().map(|one| ReservedField(ParameterLocation::Query, one.name.clone()));
        let fixed: Vec<ReservedField> = fixed.iter().cloned().chain(of_path).collect();
        let mut schemas = SchemaConverter::new(self.document, depth, known);
        let (own, shared) = (self.operation.node.get("parameters"), self.operation.item.get("parameters"));
        let OperationParameters { all: mut parameters, left_out: mut lacks, .. } =
            parameter::read_parameters(self.document, own, shared, &fixed, &mut schemas)?;
        match passed_over {
            // One line for the whole document.
            Some(line) if of_document => *server_note = Some(line),
            line => lacks.extend(line),
        }
        let body = BodyEncoder::read(self.document, self.operation.node, &mut schemas)?;
        lacks.extend(body.iter().filter_map(|(body, _)| body.unread.clone()));
        template.read_colons(|name| {
            parameters.iter().any(|(one, _)| one.place == ParameterLocation::Path && one.name == name)
        });
        bind_parameters(&template, &mut parameters)?;
        lacks.extend(remove_unplaced(&template, &mut parameters));
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for (one, schema) in &parameters {
            properties.insert(one.argument.clone(), schema.clone());
            if one.required {
                required.push(one.argument.clone());
            }
        }
        let body = body.map(|(body, schema)| {
            properties.insert("body".to_owned(), schema);
            if body.required {
                required.push("body".to_owned());
            }
            body
        });
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if let Some(map) = schema.as_object_mut() {
            if !required.is_empty() {
                map.insert("required".to_owned(), json!(required));
            }
            schemas.add_definitions(map)?;
        }
        lacks.extend(schemas.into_losses());
        let (accept, unread) = self.accept_header()?;
        lacks.extend(unread);
        let plan = RequestPlan {
            method: self.operation.identity().method,
            base: server.base,
            path: template.pieces,
            query: template.query,
            parameters: parameters.into_iter().map(|(one, _)| one).collect(),
            body,
            accept,
            headers: self.options.headers.clone(),
            credentials: Vec::new(),
            reserved: Arc::default(),
            method_and_path: self.method_and_path(),
            encoded_slashes: false,
            lacks,
        };
        Ok((plan, schema))
    }

    fn server(&self) -> Result<ChosenServer, PolicyRefusal> {
        let levels = [
            self.operation.node.get("servers"),
            self.operation.item.get("servers"),
            self.document.root().get("servers"),
        ];
        for servers in levels.into_iter().flatten() {
            server::tried_servers(servers).iter().try_for_each(|one| self.document.work.spend_value(one))?;
        }
        let (given, from) = (self.options.server.as_deref(), self.options.document_url.as_deref());
        server::server_url(given, from, &self.options.variables, levels)
    }

    /// The media types of successful responses; JSON is preferred. The second text names a response that is not read.
    fn accept_header(&self) -> Result<(String, Option<String>), String> {
        let responses = self.operation.node.get("responses").and_then(Value::as_object).into_iter().flatten();
        let (mut contents, mut unread) = (Vec::new(), None);
        for (status, response) in responses.filter(|(status, _)| status.starts_with('2')) {
            match self.document.resolve(response) {
                Ok(response) => {
                    let content = response.get("content").and_then(Value::as_object);
                    self.document.work.spend(content.map_or(0, Map::len))?;
                    contents.extend(content);
                }
                // Nothing is written there.
                Err(_) if response.get("$ref").is_none() => self.document.work.spend(0)?,
                Err(why) => {
                    self.document.work.spend(0)?;
                    let line = || {
                        format!(
                            "the media types of its response {} are not known: it is {why}",
                            one_line(status, 20)
                        )
                    };
                    unread.get_or_insert_with(line);
                }
            }
        }
        let media = contents
            .into_iter()
            .flat_map(Map::keys)
            .filter(|media| media.len() <= 100 && media.bytes().all(|b| (0x20..0x7f).contains(&b)));
        let mut all: Vec<&str> = media.map(String::as_str).collect();
        all.sort_by_key(|media| !media.contains("json"));
        all.dedup();
        all.truncate(4);
        let accept = if all.is_empty() { "application/json, */*;q=0.5".to_owned() } else { all.join(", ") };
        Ok((accept, unread))
    }

    fn text_of(&self, key: &str) -> Option<Cow<'_, str>> {
        let text = self.operation.node.get(key).and_then(scalar_text)?;
        Some(text).filter(|text| !text.trim().is_empty())
    }

    fn method_and_path(&self) -> String {
        let identity = self.operation.identity();
        one_line(&format!("{} {}", identity.method, identity.path), 200)
    }

    fn description(&self) -> String {
        let (summary, description) = (self.text_of("summary"), self.text_of("description"));
        let (summary, description) =
            (summary.as_deref().map(str::trim), description.as_deref().map(str::trim));
        let mut parts: Vec<&str> = Vec::new();
        if self.operation.node.get("deprecated") == Some(&Value::Bool(true)) {
            parts.push("Deprecated.");
        }
        parts.extend(summary);
        parts.extend(description.filter(|text| Some(*text) != summary));
        let call = self.method_and_path();
        if summary.or(description).is_none() {
            parts.push(&call);
        }
        plain_text(&parts.join("\n\n"), MAX_DESCRIPTION)
    }
}

/// Gives each parameter of a template its place, and refuses a template with others.
fn bind_parameters(template: &PathTemplate, parameters: &mut [(Parameter, Value)]) -> Result<(), String> {
    let missing = |name: &str| format!("its path has `{{{}}}`, which is not a parameter", one_line(name, 60));
    for (name, bound) in &template.bound {
        let place = [ParameterLocation::Query, ParameterLocation::Path];
        let found = place.iter().find_map(|place| {
            parameters.iter().position(|(one, _)| one.place == *place && one.name == *bound)
        });
        let (parameter, _) = found.and_then(|at| parameters.get_mut(at)).ok_or_else(|| missing(bound))?;
        if parameter.place == ParameterLocation::Path {
            parameter.place = ParameterLocation::Query;
            (parameter.style, parameter.escape_mode) = (ParameterStyle::Form, EscapeMode::Strict);
        }
        parameter.name.clone_from(name);
    }
    let has = |place: ParameterLocation, name: &str| {
        parameters.iter().any(|(one, _)| one.place == place && one.name == name)
    };
    let names = template.pieces.iter().filter_map(|piece| match piece {
        PathPiece::Parameter(name) => Some((ParameterLocation::Path, name)),
        PathPiece::Text(_) => None,
    });
    let listed = template.listed.iter().map(|name| (ParameterLocation::Query, name));
    match names.chain(listed).find(|(place, name)| !has(*place, name)) {
        Some((_, name)) => Err(missing(name)),
        None => Ok(()),
    }
}

/// Removes the path parameters that have no place in the path. Returns a line that names them.
fn remove_unplaced(template: &PathTemplate, parameters: &mut Vec<(Parameter, Value)>) -> Option<String> {
    let is_placed = |one: &Parameter| {
        let is_piece = |piece: &PathPiece| matches!(piece, PathPiece::Parameter(name) if *name == one.name);
        one.place != ParameterLocation::Path || template.pieces.iter().any(is_piece)
    };
    let unplaced = list_all_names(
        parameters.iter().map(|(one, _)| one).filter(|one| !is_placed(one)).map(|one| &one.name),
    );
    parameters.retain(|(one, _)| is_placed(one));
    let shown = one_line(&unplaced, 200);
    (!unplaced.is_empty()).then(|| format!("its path has no place for {shown}, which is left out"))
}
