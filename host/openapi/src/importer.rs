//! Imports one operation as a tool: its requirements, its requests, its description.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_policy::capability::net::NetRule;
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::name::{PluginId, QualifiedName, ToolName};
use toolbay_policy::rule::GrantRule as _;
use toolbay_policy::text::one_line;

use crate::body::BodyEncoder;
use crate::document::OpenApiDocument;
use crate::operation::{DocumentOperation, ImportOptions, ImportedOperation};
use crate::parameter::{self, ParameterLocation, ReservedField};
use crate::request::{PathPiece, RequestPlan, parse_template};
use crate::schema::{SchemaConverter, SchemaTotals, plain_text};
use crate::{routes, security, server};

/// The longest description, in characters.
const MAX_DESCRIPTION: usize = 2000;
/// The longest search hint, in characters.
const MAX_HINT: usize = 200;
/// The most bytes of the schemas of all tools of a document.
const MAX_SCHEMA_BYTES: usize = 32 << 20;
/// The depths at which an argument schema is cut, in order. A schema that the host cannot take in full is still useful
/// in part.
const DEPTHS: [usize; 4] = [60, 8, 4, 2];

/// An operation and its location.
pub(crate) struct OperationImporter<'a> {
    pub(crate) document: &'a OpenApiDocument,
    pub(crate) options: &'a ImportOptions,
    pub(crate) operation: &'a DocumentOperation<'a>,
    /// The names of the service's credentials in requests.
    pub(crate) reserved: &'a Arc<[ReservedField]>,
}

/// The totals over all operations of a document.
#[derive(Debug, Default)]
pub(crate) struct ImportTotals {
    known: SchemaTotals,
    /// The bytes of all schemas.
    bytes: usize,
}

impl OperationImporter<'_> {
    /// Creates the tool. Its toolset is the operator's section, and its labels are prefixed with the section's name,
    /// because the operator's lists and rules must not match names that a document chose.
    pub(crate) fn import(
        &self,
        namespace: &PluginId,
        tool: &str,
        tags: &[String],
        gathered: &mut ImportTotals,
    ) -> Result<ImportedOperation, String> {
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
            credentials.retain(|one| one.placement.reserved_field() != more.placement.reserved_field());
            credentials.push(more.clone());
        }
        let of_operator = self
            .options
            .headers
            .iter()
            .map(|(name, _)| ReservedField(ParameterLocation::Header, name.clone()));
        let fixed: Vec<ReservedField> =
            credentials.iter().map(|one| one.placement.reserved_field()).chain(of_operator).collect();
        let (plan, schema) = self.plan_within_limits(&fixed, &mut gathered.known)?;
        gathered.bytes += schema.to_string().len();
        if gathered.bytes > MAX_SCHEMA_BYTES {
            return Err(format!(
                "the document's tools have more than {MAX_SCHEMA_BYTES} bytes of schemas: choose some operations with `include`"
            ));
        }
        let (shown, origin) = routes::net_rules(&plan).ok_or("its server is not a URL")?;
        let nowhere = std::path::Path::new("/");
        let reaches = NetRule::parse(&origin, nowhere)?;
        // A path that no pattern can express is granted by its origin.
        let target = if NetRule::parse(&shown, nowhere).is_ok() { shown } else { origin };
        let tool = ToolName::new(tool).map_err(|e| e.to_string())?;
        let name = QualifiedName::join(namespace, &tool).map_err(|e| e.to_string())?;
        let source = ToolSource::OpenApi { document: Arc::from(namespace.as_str()) };
        let mut def = ToolDef::new(name, self.description(), Schema::from_trusted(schema), source);
        def.title = self.text_of("summary").map(|summary| one_line(summary, 100));
        def.keywords.toolset = Some(format!("openapi:{namespace}"));
        def.keywords.tags = tags.iter().map(|tag| format!("{namespace}.{tag}")).collect();
        // A truncated name is found by all of its words.
        let id = self.operation.identity.id.filter(|id| id.len() > def.bare().len());
        def.keywords.search_hint = id.map(|id| one_line(id, MAX_HINT));
        def.capabilities = std::iter::once((CapabilityKind::Net, target))
            .chain(credentials.iter().map(|one| (CapabilityKind::Secret, one.secret.clone())))
            .map(|(kind, target)| Capability { kind, target, optional: false, reason: None })
            .collect();
        let reads = matches!(self.operation.identity.method, "GET" | "HEAD");
        def.traits = ToolTraits {
            read_only: reads,
            idempotent: reads || matches!(self.operation.identity.method, "PUT" | "DELETE"),
            untrusted_output: true,
            ..ToolTraits::default()
        };
        let plan =
            RequestPlan { credentials: credentials.clone(), reserved: self.reserved_fields(&fixed), ..plan };
        Ok(ImportedOperation { def, unavailable, net_rule: reaches, credentials, plan })
    }

    /// The names of credentials in requests, including those that the operator adds.
    fn reserved_fields(&self, fixed: &[ReservedField]) -> Arc<[ReservedField]> {
        let more: Vec<&ReservedField> = fixed.iter().filter(|one| !self.reserved.contains(one)).collect();
        if more.is_empty() {
            return Arc::clone(self.reserved);
        }
        self.reserved.iter().chain(more).cloned().collect()
    }

    /// The request plan and the schema, as deep as the host accepts it.
    fn plan_within_limits(
        &self,
        fixed: &[ReservedField],
        known: &mut SchemaTotals,
    ) -> Result<(RequestPlan, Value), String> {
        let mut problem = String::new();
        for depth in DEPTHS {
            let tried = self.plan_at_depth(depth, fixed, known).and_then(|(plan, schema)| {
                // Compiled once as a check. The validator is built again at the first call.
                Schema::input(&schema.to_string()).map_err(|e| e.to_string())?;
                Ok((plan, schema))
            });
            match tried {
                Ok(found) => return Ok(found),
                Err(why) => problem = why,
            }
        }
        Err(problem)
    }

    fn plan_at_depth(
        &self,
        depth: usize,
        fixed: &[ReservedField],
        known: &mut SchemaTotals,
    ) -> Result<(RequestPlan, Value), String> {
        let mut schemas = SchemaConverter::new(self.document, depth, known);
        let (own, shared) = (self.operation.node.get("parameters"), self.operation.item.get("parameters"));
        let parameters = parameter::read_parameters(self.document, own, shared, fixed, &mut schemas)?;
        let body = BodyEncoder::read(self.document, self.operation.node, &mut schemas)?;
        let path = parse_template(self.operation.identity.path)?;
        let of_path = |name: &str| {
            parameters.iter().any(|(one, _)| one.place == ParameterLocation::Path && one.name == name)
        };
        for piece in &path {
            if let PathPiece::Parameter(name) = piece
                && !of_path(name)
            {
                return Err(format!("its path has `{{{}}}`, which is not a parameter", one_line(name, 60)));
            }
        }
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
            let definitions = schemas.definitions()?;
            if !definitions.is_empty() {
                map.insert("$defs".to_owned(), Value::Object(definitions));
            }
        }
        let levels = [
            self.operation.node.get("servers"),
            self.operation.item.get("servers"),
            self.document.root().get("servers"),
        ];
        for servers in levels.into_iter().flatten() {
            self.document.work.spend_value(servers.get(0).unwrap_or(servers))?;
        }
        let (given, from) = (self.options.server.as_deref(), self.options.document_url.as_deref());
        let plan = RequestPlan {
            method: self.operation.identity.method,
            base: server::base_url(given, from, &self.options.variables, levels)?,
            path,
            parameters: parameters.into_iter().map(|(one, _)| one).collect(),
            body,
            accept: self.accept_header(),
            headers: self.options.headers.clone(),
            credentials: Vec::new(),
            reserved: Arc::default(),
            method_and_path: one_line(
                &format!("{} {}", self.operation.identity.method, self.operation.identity.path),
                200,
            ),
            encoded_slashes: false,
        };
        Ok((plan, schema))
    }

    /// The successful response of the operation; JSON is preferred.
    fn accept_header(&self) -> String {
        let responses = self.operation.node.get("responses").and_then(Value::as_object).into_iter().flatten();
        let good = responses.filter(|(status, _)| status.starts_with('2'));
        let content = |response| {
            let content = self.document.resolve(response).ok()?.get("content")?.as_object()?;
            self.document.work.spend(content.len()).ok().map(|()| content)
        };
        let media = good
            .filter_map(|(_, response)| content(response))
            .flat_map(|content| content.keys())
            .filter(|media| media.len() <= 100 && media.bytes().all(|b| (0x20..0x7f).contains(&b)));
        let mut all: Vec<&str> = media.map(String::as_str).collect();
        all.sort_by_key(|media| !media.contains("json"));
        all.dedup();
        all.truncate(4);
        if all.is_empty() { "application/json, */*;q=0.5".to_owned() } else { all.join(", ") }
    }

    fn text_of(&self, key: &str) -> Option<&str> {
        self.operation.node.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
    }

    fn description(&self) -> String {
        let mut parts: Vec<&str> = Vec::new();
        if self.operation.node.get("deprecated") == Some(&Value::Bool(true)) {
            parts.push("Deprecated.");
        }
        let (summary, description) = (self.text_of("summary"), self.text_of("description"));
        parts.extend(summary);
        parts.extend(description.filter(|text| Some(*text) != summary));
        let call =
            one_line(&format!("{} {}", self.operation.identity.method, self.operation.identity.path), 200);
        if summary.or(description).is_none() {
            parts.push(&call);
        }
        plain_text(&parts.join("\n\n"), MAX_DESCRIPTION)
    }
}
