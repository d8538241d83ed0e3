//! The operations of a document as tools.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolbay_core::name::{PluginId, QualifiedName, ToolName};
use toolbay_core::schema::Schema;
use toolbay_core::text::one_line;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};

use crate::body::Body;
use crate::document::{Document, DocumentError};
use crate::parameter::{self, Place};
use crate::request::{Piece, Plan, pieces};
use crate::schema::Schemas;
use crate::select::{Candidate, Pattern, wanted};
use crate::{name, security, server};

/// Most operations of one document.
const MAX_OPERATIONS: usize = 5000;
/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 2000;
/// Depths at which the schema of an operation's arguments is tried to be cut: a schema that the host does not take
/// whole is better known in part than not at all.
const DEPTHS: [usize; 4] = [60, 8, 4, 2];
/// The methods that become tools.
const METHODS: [(&str, &str); 6] = [
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
    /// Which operations become tools: `tag:NAME`, `op:ID`, `/path/*`, `GET /path/*`; none: all.
    pub include: Vec<String>,
    /// Which do not, written the same.
    pub exclude: Vec<String>,
    /// Names of secrets by the names of the document's security schemes.
    pub auth: BTreeMap<String, String>,
}

/// One operation as a tool.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The tool.
    pub def: ToolDef,
    /// Why it can not be called: a secret that it demands is not named.
    pub unavailable: Option<String>,
    pub(crate) plan: Plan,
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
}

/// Makes tools of the operations of a document. `namespace` is what the operator calls it, and stands before the names.
///
/// # Errors
/// When a line of the options says nothing, or the document has too many operations. What is wrong with one operation is
/// among the problems.
pub fn import(document: &Document, namespace: &PluginId, options: &Options) -> Result<Import, DocumentError> {
    let read =
        |lines: &[String]| lines.iter().map(|line| Pattern::parse(line)).collect::<Result<Vec<_>, _>>();
    let (include, exclude) =
        (read(&options.include).map_err(DocumentError)?, read(&options.exclude).map_err(DocumentError)?);
    let (mut found, mut taken) = (Import::default(), HashSet::new());
    for (path, node) in document.paths().filter(|(path, _)| path.starts_with('/')) {
        let problem = |method: &str, reason: String| Problem {
            operation: one_line(&format!("{method} {path}"), 200),
            reason,
        };
        let item = match document.resolve(node) {
            Ok(item) => item,
            Err(reason) => {
                found.problems.push(problem("*", reason));
                continue;
            }
        };
        for (key, method) in METHODS {
            let Some(operation) = item.get(key).filter(|operation| operation.is_object()) else { continue };
            let id = operation.get("operationId").and_then(Value::as_str);
            let tags = tags(operation);
            if !wanted(&include, &exclude, Candidate { id, method, path, tags: &tags }) {
                continue;
            }
            if found.operations.len() + found.problems.len() == MAX_OPERATIONS {
                let text =
                    format!("it has more than {MAX_OPERATIONS} operations: choose some with `include`");
                return Err(DocumentError(text));
            }
            let tool = name::of_operation(namespace, id, method, path, &mut taken);
            let site = Site { document, options, item, path, method, operation };
            match site.tool(namespace, &tool, tags) {
                Ok(operation) => found.operations.push(operation),
                Err(reason) => found.problems.push(problem(method, reason)),
            }
        }
    }
    Ok(found)
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
    fn tool(&self, namespace: &PluginId, tool: &str, tags: Vec<String>) -> Result<Operation, String> {
        let (mut plan, schema) = self.sound()?;
        let credentials = security::credentials(self.document, self.operation, &self.options.auth);
        let unavailable = match credentials {
            Ok(credentials) => {
                plan.credentials = credentials;
                None
            }
            Err(why) => Some(why),
        };
        let tool = ToolName::new(tool).map_err(|e| e.to_string())?;
        let name = QualifiedName::join(namespace, &tool).map_err(|e| e.to_string())?;
        let source = ToolSource::OpenApi { document: Arc::from(namespace.as_str()) };
        let mut def = ToolDef::new(name, self.description(), schema, source);
        def.title = self.said("summary").map(|summary| one_line(summary, 100));
        def.toolset = tags.first().cloned();
        def.tags = tags;
        let reads = matches!(self.method, "GET" | "HEAD");
        def.traits = ToolTraits {
            read_only: reads,
            idempotent: reads || matches!(self.method, "PUT" | "DELETE"),
            untrusted_output: true,
            ..ToolTraits::default()
        };
        Ok(Operation { def, unavailable, plan })
    }

    /// The plan and the schema, as deep as the host takes it.
    fn sound(&self) -> Result<(Plan, Schema), String> {
        let mut problem = String::new();
        for depth in DEPTHS {
            let tried = self.planned(depth).and_then(|(plan, schema)| {
                let schema = Schema::input(&schema.to_string()).map_err(|e| e.to_string())?;
                Ok((plan, schema))
            });
            match tried {
                Ok(found) => return Ok(found),
                Err(why) => problem = why,
            }
        }
        Err(problem)
    }

    fn planned(&self, depth: usize) -> Result<(Plan, Value), String> {
        let mut schemas = Schemas::new(self.document, depth);
        let (own, shared) = (self.operation.get("parameters"), self.item.get("parameters"));
        let parameters = parameter::read(self.document, own, shared, &mut schemas)?;
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
            credentials: Vec::new(),
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
        let call = format!("{} {}", self.method, self.path);
        if summary.or(description).is_none() {
            parts.push(&call);
        }
        let text: String = parts.join("\n\n").chars().filter(|c| !c.is_control() || *c == '\n').collect();
        text.chars().take(MAX_DESCRIPTION).collect()
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
        let found =
            imported(&Options { auth: [("key".to_owned(), "PETS".to_owned())].into(), ..Options::default() });
        let names: Vec<_> = found.operations.iter().map(|one| one.def.name.as_str()).collect();
        assert_eq!(names, ["pets__listPets", "pets__createPet", "pets__delete_pets_petId"]);
        let problems: Vec<_> =
            found.problems.iter().map(|p| (p.operation.as_str(), p.reason.as_str())).collect();
        assert_eq!(
            problems,
            [
                ("GET /broken/{x}", "its path has `{x}`, which is no parameter"),
                ("* /elsewhere", "a reference to another document, `other.yaml`, which is not fetched"),
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
        assert!(why.contains("auth = { \"key\" = \"SECRET\" }"), "{why}");
        let exclude = Options { exclude: vec!["/*".to_owned()], ..Options::default() };
        assert!(imported(&exclude).operations.is_empty());
        let odd = Options { include: vec!["nothing".to_owned()], ..Options::default() };
        let document = Document::parse(PETS).unwrap();
        assert!(import(&document, &PluginId::new("pets").unwrap(), &odd).is_err());
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
