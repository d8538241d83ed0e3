//! The operations of a document as tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolbay_core::capability::{Capability, CapabilityKind};
use toolbay_core::name::{PluginId, QualifiedName, ToolName};
use toolbay_core::net::NetRule;
use toolbay_core::rule::Rule as _;
use toolbay_core::schema::Schema;
use toolbay_core::text::one_line;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};

use crate::body::Body;
use crate::document::{Document, DocumentError};
use crate::name::Named;
use crate::parameter::{self, Fixed, Place};
use crate::request::{Piece, Plan, pieces};
use crate::routes::{self, Routes};
use crate::schema::{Known, Schemas, plain};
use crate::security::Credential;
use crate::select::{Candidate, Pattern};
use crate::{name, security, server};

/// Most operations of one document that become tools, or would.
const MAX_OPERATIONS: usize = 5000;
/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 2000;
/// Most bytes of the schemas of all tools of a document.
const MAX_SCHEMA_BYTES: usize = 32 << 20;
/// Depths at which the schema of an operation's arguments is tried to be cut: a schema that the host does not take
/// whole is better known in part than not at all.
const DEPTHS: [usize; 4] = [60, 8, 4, 2];
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
pub struct Options {
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
pub struct Operation {
    /// The tool. Its capabilities are its requests, and the secrets in them.
    pub def: ToolDef,
    /// Why it can not be called: a secret that it demands is not named.
    pub unavailable: Option<String>,
    /// Where its requests go: method and origin.
    pub reaches: NetRule,
    /// The secrets that go into its requests.
    pub credentials: Vec<Credential>,
    pub(crate) plan: Plan,
}

impl Operation {
    /// What all its URLs begin with.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.plan.base
    }

    /// `GET /pets/{id}`, as the document has it.
    #[must_use]
    pub fn spoken(&self) -> &str {
        &self.plan.spoken
    }

    /// Whether its requests may change something.
    #[must_use]
    pub fn changes(&self) -> bool {
        !self.def.traits.read_only
    }
}

/// An operation that is no tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `GET /pets/{id}`.
    pub operation: String,
    /// Why.
    pub reason: String,
}

/// What a document came to.
#[derive(Debug, Clone, Default)]
pub struct Import {
    /// The tools, in the order of the document.
    pub operations: Vec<Operation>,
    /// What is no tool.
    pub problems: Vec<Problem>,
    /// Operations that the options leave out.
    pub left_out: usize,
    /// Lines of `include` that no operation fits.
    pub unused: Vec<String>,
}

impl Import {
    /// The requests of all its operations.
    #[must_use]
    pub fn routes(&self) -> Routes {
        Routes::of(self.operations.iter().map(|operation| &operation.plan))
    }
}

/// The lines of one list, each with whether an operation fits it.
struct Lines(Vec<(Pattern, bool)>);

impl Lines {
    fn read(lines: &[String]) -> Result<Self, DocumentError> {
        let read = |line: &String| Pattern::parse(line).map(|pattern| (pattern, false));
        lines.iter().map(read).collect::<Result<_, _>>().map(Self).map_err(DocumentError)
    }

    fn fit(&mut self, one: Candidate<'_>) -> bool {
        let mut any = false;
        for (pattern, used) in &mut self.0 {
            let fits = pattern.fits(one);
            (*used, any) = (*used || fits, any || fits);
        }
        any
    }

    fn unused<'a>(&self, lines: &'a [String]) -> impl Iterator<Item = &'a String> {
        self.0.iter().zip(lines).filter(|((_, used), _)| !used).map(|(_, line)| line)
    }
}

/// An operation where it is found.
struct Found<'a> {
    path: &'a String,
    item: &'a Map<String, Value>,
    method: &'static str,
    operation: &'a Value,
}

impl<'a> Found<'a> {
    fn id(&self) -> Option<&'a str> {
        self.operation.get("operationId").and_then(Value::as_str)
    }
}

/// Most operations that are looked at, those included that are left out: one item may be meant by many paths.
const MAX_SEEN: usize = 20_000;

/// All operations of a document in their order, and the paths that lead to none.
fn all(document: &Document) -> (Vec<Found<'_>>, Vec<Problem>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for (path, node) in document.paths().filter(|(path, _)| path.starts_with('/')) {
        if found.len() + problems.len() >= MAX_SEEN {
            problems.push(problem("*", path, format!("the document has more than {MAX_SEEN} operations")));
            break;
        }
        match document.resolve(node) {
            Ok(item) => found.extend(METHODS.into_iter().filter_map(|(key, method)| {
                let operation = item.get(key).filter(|operation| operation.is_object())?;
                Some(Found { path, item, method, operation })
            })),
            Err(reason) => problems.push(problem("*", path, reason)),
        }
    }
    (found, problems)
}

fn problem(method: &str, path: &str, reason: String) -> Problem {
    Problem { operation: one_line(&format!("{method} {path}"), 200), reason }
}

/// Makes tools of the operations of a document. `namespace` is what the operator calls it, and stands before the names.
///
/// # Errors
/// When a line of the options says nothing, a line of `exclude` leaves nothing out, or the document has too many
/// operations. What is wrong with one operation is among the problems.
pub fn import(document: &Document, namespace: &PluginId, options: &Options) -> Result<Import, DocumentError> {
    let (mut include, mut exclude) = (Lines::read(&options.include)?, Lines::read(&options.exclude)?);
    let (all, problems) = all(document);
    let named: Vec<Named<'_>> =
        all.iter().map(|one| Named { id: one.id(), method: one.method, path: one.path }).collect();
    let names = name::of_all(namespace, &named);
    let mut came = Import { problems, ..Import::default() };
    let (mut known, mut bytes) = (Known::default(), 0);
    for (one, tool) in all.iter().zip(&names) {
        let tags = tags(one.operation);
        let candidate = Candidate { id: one.id(), method: one.method, path: one.path, tags: &tags };
        // Both are asked, so that a line is known to fit.
        let (included, excluded) = (include.fit(candidate), exclude.fit(candidate));
        if excluded || !(included || options.include.is_empty()) {
            came.left_out += 1;
            continue;
        }
        if came.operations.len() + came.problems.len() >= MAX_OPERATIONS {
            let text = format!("it has more than {MAX_OPERATIONS} operations: choose some with `include`");
            return Err(DocumentError(text));
        }
        let site = Site {
            document,
            options,
            item: one.item,
            path: one.path,
            method: one.method,
            operation: one.operation,
        };
        match site.tool(namespace, tool, tags, (&mut known, &mut bytes)) {
            Ok(operation) => came.operations.push(operation),
            Err(reason) => came.problems.push(problem(one.method, one.path, reason)),
        }
    }
    // Who excludes something wants it gone: that nothing is, is most likely a slip of the pen.
    if let Some(line) = exclude.unused(&options.exclude).next() {
        let shown = one_line(line, 100);
        return Err(DocumentError(format!(
            "`exclude` has `{shown}`, which no operation of the document fits"
        )));
    }
    came.unused = include.unused(&options.include).cloned().collect();
    Ok(came)
}

fn tags(operation: &Value) -> Vec<String> {
    let all = operation.get("tags").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|tag| Some(one_line(tag.as_str()?, 64))).take(16).collect()
}

/// One operation where it stands.
struct Site<'a> {
    document: &'a Document,
    options: &'a Options,
    item: &'a Map<String, Value>,
    path: &'a str,
    method: &'static str,
    operation: &'a Value,
}

impl Site<'_> {
    fn tool(
        &self,
        namespace: &PluginId,
        tool: &str,
        tags: Vec<String>,
        (known, bytes): (&mut Known, &mut usize),
    ) -> Result<Operation, String> {
        let demanded = security::credentials(self.document, self.operation, &self.options.secrets);
        let (mut credentials, unavailable) = match demanded {
            Ok(credentials) => (credentials, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        for more in &self.options.credentials {
            // What the operator sends takes the place of what the document asks for there.
            credentials.retain(|one| one.placement.fixed() != more.placement.fixed());
            credentials.push(more.clone());
        }
        let of_operator = self.options.headers.iter().map(|(name, _)| Fixed(Place::Header, name.clone()));
        let fixed: Vec<Fixed> =
            credentials.iter().map(|one| one.placement.fixed()).chain(of_operator).collect();
        let (plan, schema) = self.sound(&fixed, known)?;
        *bytes += schema.to_string().len();
        if *bytes > MAX_SCHEMA_BYTES {
            return Err(format!(
                "the document's tools have more than {MAX_SCHEMA_BYTES} bytes of schemas: choose some operations with `include`"
            ));
        }
        let (shown, origin) = routes::rules(&plan).ok_or("its server is no URL")?;
        let nowhere = std::path::Path::new("/");
        let reaches = NetRule::parse(&origin, nowhere)?;
        // A path that no pattern can say is named by its origin.
        let target = if NetRule::parse(&shown, nowhere).is_ok() { shown } else { origin };
        let tool = ToolName::new(tool).map_err(|e| e.to_string())?;
        let name = QualifiedName::join(namespace, &tool).map_err(|e| e.to_string())?;
        let source = ToolSource::OpenApi { document: Arc::from(namespace.as_str()) };
        let mut def = ToolDef::new(name, self.description(), Schema::accepted_before(schema), source);
        def.title = self.said("summary").map(|summary| one_line(summary, 100));
        def.toolset = tags.first().cloned();
        def.tags = tags;
        def.capabilities = std::iter::once((CapabilityKind::Net, target))
            .chain(credentials.iter().map(|one| (CapabilityKind::Secret, one.secret.clone())))
            .map(|(kind, target)| Capability { kind, target, optional: false, reason: None })
            .collect();
        let reads = matches!(self.method, "GET" | "HEAD");
        def.traits = ToolTraits {
            read_only: reads,
            idempotent: reads || matches!(self.method, "PUT" | "DELETE"),
            untrusted_output: true,
            ..ToolTraits::default()
        };
        let plan = Plan { credentials: credentials.clone(), ..plan };
        Ok(Operation { def, unavailable, reaches, credentials, plan })
    }

    /// The plan and the schema, as deep as the host takes it.
    fn sound(&self, fixed: &[Fixed], known: &mut Known) -> Result<(Plan, Value), String> {
        let mut problem = String::new();
        for depth in DEPTHS {
            let tried = self.planned(depth, fixed, known).and_then(|(plan, schema)| {
                // Looked through once; the validator is built again when the tool is called first.
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

    fn planned(&self, depth: usize, fixed: &[Fixed], known: &mut Known) -> Result<(Plan, Value), String> {
        let mut schemas = Schemas::new(self.document, depth, known);
        let (own, shared) = (self.operation.get("parameters"), self.item.get("parameters"));
        let parameters = parameter::read(self.document, own, shared, fixed, &mut schemas)?;
        let body = Body::read(self.document, self.operation, &mut schemas)?;
        let path = pieces(self.path)?;
        let of_path =
            |name: &str| parameters.iter().any(|(one, _)| one.place == Place::Path && one.name == name);
        for piece in &path {
            if let Piece::Parameter(name) = piece
                && !of_path(name)
            {
                return Err(format!("its path has `{{{}}}`, which is no parameter", one_line(name, 60)));
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
        let levels =
            [self.operation.get("servers"), self.item.get("servers"), self.document.root().get("servers")];
        let (given, from) = (self.options.server.as_deref(), self.options.document_url.as_deref());
        let plan = Plan {
            method: self.method,
            base: server::base(given, from, &self.options.variables, levels)?,
            path,
            parameters: parameters.into_iter().map(|(one, _)| one).collect(),
            body,
            accept: self.accept(),
            headers: self.options.headers.clone(),
            credentials: Vec::new(),
            spoken: one_line(&format!("{} {}", self.method, self.path), 200),
        };
        Ok((plan, schema))
    }

    /// What the operation answers with when it succeeds; JSON first.
    fn accept(&self) -> String {
        let responses = self.operation.get("responses").and_then(Value::as_object).into_iter().flatten();
        let good = responses.filter(|(status, _)| status.starts_with('2'));
        let media = good
            .filter_map(|(_, response)| self.document.resolve(response).ok()?.get("content")?.as_object())
            .flat_map(|content| content.keys())
            .filter(|media| media.len() <= 100 && media.bytes().all(|b| (0x20..0x7f).contains(&b)));
        let mut all: Vec<&str> = media.map(String::as_str).collect();
        all.sort_by_key(|media| !media.contains("json"));
        all.dedup();
        all.truncate(4);
        if all.is_empty() { "application/json, */*;q=0.5".to_owned() } else { all.join(", ") }
    }

    fn said(&self, key: &str) -> Option<&str> {
        self.operation.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
    }

    fn description(&self) -> String {
        let mut parts: Vec<&str> = Vec::new();
        if self.operation.get("deprecated") == Some(&Value::Bool(true)) {
            parts.push("Deprecated.");
        }
        let (summary, description) = (self.said("summary"), self.said("description"));
        parts.extend(summary);
        parts.extend(description.filter(|text| Some(*text) != summary));
        let call = one_line(&format!("{} {}", self.method, self.path), 200);
        if summary.or(description).is_none() {
            parts.push(&call);
        }
        plain(&parts.join("\n\n"), MAX_DESCRIPTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PETS: &str = r##"
openapi: 3.0.3
info: {title: Pets, version: 1.0.0}
servers: [{url: https://pets.example.com/v1}]
security: [{key: []}]
paths:
  /pets:
    parameters: [{name: X-Trace, in: header, schema: {type: string}}]
    get:
      operationId: listPets
      tags: [pet]
      summary: Lists pets
      description: Lists pets, a page at a time.
      security: []
      parameters:
        - {name: limit, in: query, required: false, schema: {type: integer, maximum: 100}}
      responses: {200: {content: {application/xml: {}, application/json: {}}}}
    post:
      operationId: createPet
      tags: [pet, write]
      deprecated: true
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}
    trace: {operationId: traced}
  /pets/{petId}:
    delete:
      parameters: [{name: petId, in: path, required: true, schema: {type: string}}]
  /broken/{x}:
    get: {operationId: broken}
  /elsewhere:
    $ref: other.yaml
  x-note: {get: {}}
components:
  securitySchemes: {key: {type: apiKey, in: header, name: X-Key}}
  schemas:
    Pet:
      type: object
      required: [id, name]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string, nullable: true}
        mother: {$ref: "#/components/schemas/Pet"}
"##;

    fn imported(options: &Options) -> Import {
        import(&Document::parse(PETS).unwrap(), &PluginId::new("pets").unwrap(), options).unwrap()
    }

    #[test]
    fn operations_become_tools_and_a_bad_one_costs_no_other() {
        let found = imported(&Options {
            secrets: [("key".to_owned(), "PETS".to_owned())].into(),
            ..Options::default()
        });
        let names: Vec<_> = found.operations.iter().map(|one| one.def.name.as_str()).collect();
        assert_eq!(names, ["pets__listPets", "pets__createPet", "pets__delete_pets_petId"]);
        let problems: Vec<_> =
            found.problems.iter().map(|p| (p.operation.as_str(), p.reason.as_str())).collect();
        assert_eq!(
            problems,
            [
                ("* /elsewhere", "a reference to another document, `other.yaml`, which is not fetched"),
                ("GET /broken/{x}", "its path has `{x}`, which is no parameter"),
            ]
        );
        let [list, create, delete] = found.operations.as_slice() else { panic!() };
        assert_eq!(list.def.description, "Lists pets\n\nLists pets, a page at a time.");
        assert_eq!(
            (list.def.toolset.as_deref(), list.plan.accept.as_str()),
            (Some("pet"), "application/json, application/xml")
        );
        assert!(
            list.def.traits.read_only && list.def.traits.untrusted_output && list.plan.credentials.is_empty()
        );
        assert_eq!(
            list.def.input_schema.value(),
            &json!({"type": "object", "additionalProperties": false, "properties": {
                "limit": {"type": "integer", "maximum": 100}, "X-Trace": {"type": "string"}}})
        );
        assert!(create.def.description.starts_with("Deprecated.") && !create.def.traits.idempotent);
        let check = |args: Value| create.def.input_schema.check(&args);
        assert!(check(json!({"body": {"name": null, "mother": {"name": "x"}}})).is_ok());
        assert!(check(json!({"body": {}})).is_err() && check(json!({})).is_err());
        assert_eq!(create.plan.credentials.len(), 1);
        assert!(delete.def.traits.idempotent && !delete.def.traits.read_only);
        assert_eq!(delete.def.description, "DELETE /pets/{petId}");
    }

    #[test]
    fn what_is_chosen_and_what_is_missing() {
        let found = imported(&Options { include: vec!["tag:write".to_owned()], ..Options::default() });
        assert_eq!((found.operations.len(), found.problems.len()), (1, 1));
        let why = found.operations[0].unavailable.as_deref().unwrap();
        assert!(why.contains("secrets = { \"key\" = \"SECRET\" }"), "{why}");
        let exclude = Options { exclude: vec!["/*".to_owned()], ..Options::default() };
        assert!(imported(&exclude).operations.is_empty());
        let odd = Options { include: vec!["nothing".to_owned()], ..Options::default() };
        let document = Document::parse(PETS).unwrap();
        let pets = PluginId::new("pets").unwrap();
        assert!(import(&document, &pets, &odd).is_err());
        let slip = Options { exclude: vec!["op:deletPet".to_owned()], ..Options::default() };
        let error = import(&document, &pets, &slip).unwrap_err().to_string();
        assert!(error.contains("`exclude` has `op:deletPet`"), "{error}");
        let include = ["tag:pet", "tag:cats"].map(str::to_owned).to_vec();
        let found = imported(&Options { include, ..Options::default() });
        assert_eq!((found.unused, found.left_out), (vec!["tag:cats".to_owned()], 2));
    }

    #[test]
    fn what_the_operator_sends_is_not_asked_for() {
        let options = Options {
            secrets: [("key".to_owned(), "PETS".to_owned())].into(),
            headers: vec![("x-trace".to_owned(), "mine".to_owned())],
            ..Options::default()
        };
        let found = imported(&options);
        let list = &found.operations[0];
        assert!(list.def.input_schema.value().pointer("/properties/X-Trace").is_none());
        assert_eq!(list.def.capabilities[0].target, "GET https://pets.example.com/v1/pets");
        let create = &found.operations[1];
        let wishes: Vec<&str> = create.def.capabilities.iter().map(|wish| wish.target.as_str()).collect();
        assert_eq!(wishes, ["POST https://pets.example.com/v1/pets", "PETS"]);
        let delete = &found.operations[2];
        assert_eq!(delete.def.capabilities[0].target, "DELETE https://pets.example.com/v1/pets/*");
        assert_eq!((delete.spoken(), delete.base()), ("DELETE /pets/{petId}", "https://pets.example.com/v1"));
    }

    #[test]
    fn a_schema_that_is_too_much_is_known_in_part() {
        let wide: Map<String, Value> =
            (0..60).map(|n| (format!("p{n}"), json!({"$ref": "#/components/schemas/S"}))).collect();
        let fields: Map<String, Value> =
            (0..600).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
        let text = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}],
            "paths": {"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": {
                "type": "object", "properties": wide}}}}}}},
            "components": {"schemas": {"S": {"type": "object", "properties": fields}}}});
        let document = Document::parse(&text.to_string()).unwrap();
        let found = import(&document, &PluginId::new("a").unwrap(), &Options::default()).unwrap();
        assert_eq!(found.problems, []);
        let schema = &found.operations[0].def.input_schema;
        assert!(schema.check(&json!({"body": {"p0": {"f0": "x"}}})).is_ok());
        assert!(schema.check(&json!({"body": []})).is_err());
    }

    #[test]
    fn too_many_operations_are_refused_with_the_way_out() {
        let paths: Map<String, Value> =
            (0..=MAX_OPERATIONS).map(|n| (format!("/{n}"), json!({"get": {}}))).collect();
        let text = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths});
        let document = Document::parse(&text.to_string()).unwrap();
        let error = import(&document, &PluginId::new("a").unwrap(), &Options::default()).unwrap_err();
        assert!(error.to_string().contains("choose some with `include`"), "{error}");
    }
}
