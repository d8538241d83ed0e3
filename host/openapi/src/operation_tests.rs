use super::*;
use serde_json::json;

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

fn imported(options: &ImportOptions) -> Import {
    import(&OpenApiDocument::parse(PETS).unwrap(), &PluginId::new("pets").unwrap(), options).unwrap()
}

#[test]
fn a_broken_operation_does_not_affect_the_others() {
    let found = imported(&ImportOptions {
        secrets: [("key".to_owned(), "PETS".to_owned())].into(),
        ..ImportOptions::default()
    });
    let names: Vec<_> = found.operations.iter().map(|one| one.def.name.as_str()).collect();
    assert_eq!(names, ["pets__listPets", "pets__createPet", "pets__delete_pets_petId"]);
    let problems: Vec<_> = found.problems.iter().map(|p| (p.operation.as_str(), p.reason.as_str())).collect();
    assert_eq!(
        problems,
        [
            ("* /elsewhere", "a reference to another document, `other.yaml`, which is not fetched"),
            ("GET /broken/{x}", "its path has `{x}`, which is not a parameter"),
        ]
    );
    let [list, create, delete] = found.operations.as_slice() else { panic!() };
    assert_eq!(list.def.description, "Lists pets\n\nLists pets, a page at a time.");
    assert_eq!(
        (list.def.keywords.toolset.as_deref(), list.plan.accept.as_str()),
        (Some("openapi:pets"), "application/json, application/xml")
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
fn include_and_exclude_select_operations() {
    let found =
        imported(&ImportOptions { include: vec!["tag:write".to_owned()], ..ImportOptions::default() });
    assert_eq!((found.operations.len(), found.problems.len()), (1, 1));
    let why = found.operations[0].unavailable.as_deref().unwrap();
    assert!(why.contains("secrets = { \"key\" = \"SECRET\" }"), "{why}");
    let exclude = ImportOptions { exclude: vec!["/*".to_owned()], ..ImportOptions::default() };
    assert!(imported(&exclude).operations.is_empty());
    let odd = ImportOptions { include: vec!["nothing".to_owned()], ..ImportOptions::default() };
    let document = OpenApiDocument::parse(PETS).unwrap();
    let pets = PluginId::new("pets").unwrap();
    assert!(import(&document, &pets, &odd).is_err());
    let slip = ImportOptions { exclude: vec!["op:deletPet".to_owned()], ..ImportOptions::default() };
    let error = import(&document, &pets, &slip).unwrap_err().to_string();
    assert!(error.contains("`exclude` has `op:deletPet`"), "{error}");
    let include = ["tag:pet", "tag:cats"].map(str::to_owned).to_vec();
    let found = imported(&ImportOptions { include, ..ImportOptions::default() });
    assert_eq!((found.unused, found.excluded_count), (vec!["tag:cats".to_owned()], 2));
}

#[test]
fn the_operators_headers_are_not_arguments() {
    let options = ImportOptions {
        secrets: [("key".to_owned(), "PETS".to_owned())].into(),
        headers: vec![("x-trace".to_owned(), "mine".to_owned())],
        ..ImportOptions::default()
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
    assert_eq!(
        (delete.method_and_path(), delete.base()),
        ("DELETE /pets/{petId}", "https://pets.example.com/v1")
    );
}

#[test]
fn a_schema_that_is_too_large_is_cut() {
    let wide: Map<String, Value> =
        (0..60).map(|n| (format!("p{n}"), json!({"$ref": "#/components/schemas/S"}))).collect();
    let fields: Map<String, Value> = (0..600).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}],
        "paths": {"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": {
            "type": "object", "properties": wide}}}}}}},
        "components": {"schemas": {"S": {"type": "object", "properties": fields}}}});
    let document = OpenApiDocument::parse(&text.to_string()).unwrap();
    let found = import(&document, &PluginId::new("a").unwrap(), &ImportOptions::default()).unwrap();
    assert_eq!(found.problems, []);
    let schema = &found.operations[0].def.input_schema;
    assert!(schema.check(&json!({"body": {"p0": {"f0": "x"}}})).is_ok());
    assert!(schema.check(&json!({"body": []})).is_err());
}

#[test]
fn too_many_operations_are_refused_with_a_hint() {
    let paths: Map<String, Value> =
        (0..=MAX_OPERATIONS).map(|n| (format!("/{n}"), json!({"get": {}}))).collect();
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths});
    let document = OpenApiDocument::parse(&text.to_string()).unwrap();
    let error = import(&document, &PluginId::new("a").unwrap(), &ImportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("choose some with `include`"), "{error}");
}

/// Operation names in a document become neither toolsets nor labels of the operator.
#[test]
fn toolsets_and_labels_have_the_name_of_the_section() {
    let found = imported(&ImportOptions::default());
    for one in &found.operations {
        assert_eq!(one.def.keywords.toolset.as_deref(), Some("openapi:pets"));
        assert!(
            one.def.keywords.tags.iter().all(|tag| tag.starts_with("pets.")),
            "{:?}",
            one.def.keywords.tags
        );
    }
    assert_eq!(found.operations[1].def.keywords.tags, ["pets.pet", "pets.write"]);
}

/// Each part is small, and thousands of references lead to one part. The sum is bounded.
#[test]
fn a_shared_part_is_counted_at_each_use() {
    let of = |shared: Value, component: Value, item: Value| {
        let paths: Map<String, Value> = (0..4000).map(|n| (format!("/{n}"), item.clone())).collect();
        json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths,
            "security": shared, "components": {"pathItems": {"p": component}, "requestBodies": {"b": {"content": {
                "application/json": {"schema": {"enum": vec![0; 100_000]}}}}}}})
    };
    let many = |value: Value| Value::Array(vec![value; 100_000]);
    let meant = json!({"$ref": "#/components/pathItems/p"});
    let item = |operation: Value| json!({"get": operation});
    for (what, document) in [
        ("tags", of(json!([]), item(json!({"tags": many(json!(7))})), meant.clone())),
        (
            "parameters",
            of(
                json!([]),
                json!({"get": {}, "parameters": many(json!({"name": "a", "in": "query"}))}),
                meant.clone(),
            ),
        ),
        ("alternatives", of(many(json!({})), item(json!({})), meant.clone())),
        ("a long name", of(json!([]), item(json!({"operationId": "x".repeat(10_000_000)})), meant.clone())),
        (
            "words that are not seen",
            of(json!([]), item(json!({"description": "\u{200b}".repeat(1_000_000)})), meant.clone()),
        ),
        (
            "a body",
            of(
                json!([]),
                json!({}),
                json!({"post": {"requestBody": {"$ref": "#/components/requestBodies/b"}}}),
            ),
        ),
    ] {
        let mut document = OpenApiDocument::parse(&document.to_string()).unwrap();
        document.work = crate::budget::ParseBudget::most(2_000_000);
        let started = std::time::Instant::now();
        let error = import(&document, &PluginId::new("a").unwrap(), &ImportOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("steps to read"), "{what}: {error}");
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "{what}");
    }
    let late = OpenApiDocument::parse(PETS).unwrap().with_deadline(std::time::Instant::now());
    let error = import(&late, &PluginId::new("a").unwrap(), &ImportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("too long to read"), "{error}");
}
