use super::*;
use serde_json::{Map, json};
use toolbay_core::tool::definition_text::{no_redaction, redact_fn};

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
    import(&OpenApiDocument::parse(PETS).unwrap(), &PluginId::new("pets").unwrap(), options, &no_redaction)
        .unwrap()
}

#[test]
fn the_schemas_of_all_operations_have_a_limit_of_bytes() {
    let fields: Map<String, Value> = (0..200)
        .map(|n| (format!("f{n}"), json!({"type": "string", "description": "x".repeat(1000)})))
        .collect();
    let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Big"}}}});
    let paths: Map<String, Value> =
        (0..1000).map(|n| (format!("/p{n}"), json!({"post": {"requestBody": body}}))).collect();
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths,
        "components": {"schemas": {"Big": {"type": "object", "properties": fields}}}});
    let document = OpenApiDocument::parse(&document.to_string()).unwrap();
    let found =
        import(&document, &PluginId::new("big").unwrap(), &ImportOptions::default(), &no_redaction).unwrap();
    let refused = |problem: &&ImportProblem| {
        problem.reason.for_operator().to_string().contains("bytes of schemas: choose some operations")
    };
    let past_the_limit = found.problems.iter().filter(refused).count();
    // 32 MiB hold 160 of these schemas.
    assert!(found.operations.len() > 100 && past_the_limit > 700, "{:?}", found.problems.first());
    assert_eq!(found.operations.len() + past_the_limit, 1000);
}

#[test]
fn a_broken_operation_does_not_affect_the_others() {
    let found = imported(&ImportOptions {
        secrets: [("key".to_owned(), "PETS".to_owned())].into(),
        ..ImportOptions::default()
    });
    let names: Vec<_> = found.operations.iter().map(|one| one.def.name.as_str()).collect();
    assert_eq!(names, ["pets__listPets", "pets__createPet", "pets__delete_pets_petId"]);
    let problems: Vec<_> =
        found.problems.iter().map(|p| (p.operation.as_str(), p.reason.text.as_str())).collect();
    assert_eq!(
        problems,
        [
            ("TRACE /pets", "the method TRACE is not supported"),
            ("* /elsewhere", "a reference to another document, `other.yaml`, which is not fetched"),
            ("GET /broken/{x}", "its path has `{x}`, which is not a parameter"),
        ]
    );
    let tools: Vec<_> = found.problems.iter().map(|p| p.tool.as_deref()).collect();
    assert_eq!(tools, [Some("traced"), None, Some("broken")]);
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
    assert!(import(&document, &pets, &odd, &no_redaction).is_err());
    let slip = ImportOptions { exclude: vec!["op:deletPet".to_owned()], ..ImportOptions::default() };
    let error = import(&document, &pets, &slip, &no_redaction).unwrap_err().to_string();
    assert!(error.contains("`exclude` has `op:deletPet`"), "{error}");
    let include = ["tag:pet", "tag:cats"].map(str::to_owned).to_vec();
    let found = imported(&ImportOptions { include, ..ImportOptions::default() });
    assert_eq!((found.unused, found.excluded_count), (vec!["tag:cats".to_owned()], 3));
}

#[test]
fn what_the_options_name_and_the_document_lacks_is_found() {
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let named = |all: &[&str]| all.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
    let document = OpenApiDocument::parse(PETS).unwrap();
    let options = ImportOptions {
        include: words(&["tag:write", "tag:cats"]),
        exclude: words(&["op:deletPet", "/*"]),
        secrets: named(&["key", "kye"]),
        variables: named(&["region"]),
        ..ImportOptions::default()
    };
    let found = unmatched_options(&document, &options).unwrap();
    let expected = UnmatchedOptions {
        include: words(&["tag:cats"]),
        exclude: words(&["op:deletPet"]),
        secrets: words(&["kye"]),
        variables: words(&["region"]),
    };
    assert_eq!(found, expected);
    let fixed = ImportOptions { server: Some("https://a.example".to_owned()), ..options };
    assert_eq!(unmatched_options(&document, &fixed).unwrap().variables, [""; 0]);
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
    let found =
        import(&document, &PluginId::new("a").unwrap(), &ImportOptions::default(), &no_redaction).unwrap();
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
    let error = import(&document, &PluginId::new("a").unwrap(), &ImportOptions::default(), &no_redaction)
        .unwrap_err();
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
        let error = import(&document, &PluginId::new("a").unwrap(), &ImportOptions::default(), &no_redaction)
            .unwrap_err()
            .to_string();
        assert!(error.contains("steps to read"), "{what}: {error}");
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "{what}");
    }
    let late = OpenApiDocument::parse(PETS).unwrap().with_deadline(std::time::Instant::now());
    let error =
        import(&late, &PluginId::new("a").unwrap(), &ImportOptions::default(), &no_redaction).unwrap_err();
    assert!(error.to_string().contains("too long to read"), "{error}");
}

fn imported_from(document: &Value) -> Import {
    let document = OpenApiDocument::parse(&document.to_string()).unwrap();
    import(&document, &PluginId::new("api").unwrap(), &ImportOptions::default(), &no_redaction).unwrap()
}

/// Each operation of a document is a tool or has a line that says why not.
#[test]
fn no_operation_is_passed_over() {
    let operation = |id: &str| json!({ "operationId": id });
    let found = imported_from(
        &json!({"openapi": "3.2.0", "servers": [{"url": "https://a.example/v1"}], "paths": {
        "things": {"get": operation("noSlash")},
        "/capitals": {"GET": operation("capitals")},
        "/empty": {"get": [], "put": null, "post": {"requestBody": [], "parameters": [null, []], "security": null}},
        "/nothing": null, "/php": [], "/text": "x", "https://a.example/x": {"get": {}},
        "/old": {"options": operation("asked"), "trace": {}},
        "/new": {"query": operation("searched"), "additionalOperations": {"COPY": operation("copied")}},
        "/item": {"$ref": "#/components/pathItems/item", "get": operation("own"), "put": operation("kept")},
        "/gone": {"$ref": "other.yaml", "get": operation("stays")},
        "x-note": {"get": {}}},
        "components": {"pathItems": {"item": {"get": operation("replaced"), "delete": operation("added")}}}}),
    );
    let tools: Vec<_> = found.operations.iter().map(|one| (one.def.bare(), one.method_and_path())).collect();
    assert_eq!(
        tools,
        [
            ("noSlash", "GET /things"),
            ("capitals", "GET /capitals"),
            ("post_empty", "POST /empty"),
            ("own", "GET /item"),
            ("kept", "PUT /item"),
            ("added", "DELETE /item"),
            ("stays", "GET /gone"),
        ]
    );
    let lines: Vec<_> =
        found.problems.iter().map(|one| (one.operation.as_str(), one.tool.as_deref())).collect();
    assert_eq!(
        lines,
        [
            ("GET /empty", Some("get_empty")),
            ("PUT /empty", Some("put_empty")),
            ("* /text", None),
            ("GET https://a.example/x", Some("get_https_a_example_x")),
            ("OPTIONS /old", Some("asked")),
            ("TRACE /old", Some("trace_old")),
            ("QUERY /new", Some("searched")),
            ("COPY /new", Some("copied")),
            ("GET /item", Some("replaced")),
            ("* /gone", None),
        ]
    );
    assert!(found.operations[0].plan.request("{}", &json!({})).unwrap().url.ends_with("/v1/things"));
    for (operation, part) in [("QUERY /new", "new in OpenAPI 3.2"), ("COPY /new", "new in OpenAPI 3.2")] {
        let line = found.problems.iter().find(|one| one.operation == operation).unwrap();
        assert!(line.reason.text.contains(part), "{line:?}");
    }
}

#[test]
fn the_query_of_a_server_is_sent_with_each_request() {
    let server = json!([{"url": "https://a.example/base/?x={n}&y=1&api_key=mine#top", "variables": {"n": {"default": 7}}}]);
    let found = imported_from(&json!({"openapi": "3.1.0", "servers": server, "paths": {
        "/a": {"get": {"parameters": [{"name": "x", "in": "query"}, {"name": "q", "in": "query"}]}},
        "/b?y=2": {"get": {}}},
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}}}));
    let url = |n: usize, args: Value| found.operations[n].plan.request("{}", &args).unwrap().url;
    assert_eq!(url(0, json!({"x": 8, "q": 1})), "https://a.example/base/a?x=7&y=1&q=1");
    assert_eq!(url(1, json!({})), "https://a.example/base/b?x=7&y=2");
}

/// Each operation below a skipped path has its own line, and a call of its name says why.
#[test]
fn a_path_costs_only_its_operations() {
    let long = format!("/{}", "x".repeat(10_000));
    let operation = |id: &str| json!({ "operationId": id });
    let found = imported_from(
        &json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": {
        "/e?u=http://localhost/": {"get": operation("query")},
        "/x://y": {"get": operation("colon")},
        "/{u}/proxy": {"get": {"operationId": "bound", "parameters": [{"name": "u", "in": "path"}]}},
        "http://evil.example/abs": {"get": operation("absolute"), "trace": operation("traced"), "$ref": "#/components/pathItems/p"},
        long: {"put": operation("long")}},
        "components": {"pathItems": {"p": {"post": operation("shared")}}}}),
    );
    let tools: Vec<_> = found.operations.iter().map(|one| one.def.bare()).collect();
    assert_eq!(tools, ["query", "colon", "bound"]);
    let lines: Vec<_> =
        found.problems.iter().map(|one| (one.tool.as_deref().unwrap(), one.reason.text.as_str())).collect();
    assert_eq!(
        lines,
        [
            ("traced", "its path is a URL"),
            ("absolute", "its path is a URL"),
            ("shared", "its path is a URL"),
            ("long", "its path has more than 8192 bytes"),
        ]
    );
}

#[test]
fn a_path_parameter_has_a_place_in_the_path_or_a_line() {
    let id = json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}});
    let found =
        imported_from(&json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": {
        "/f/:id": {"get": {"operationId": "colon", "parameters": [id]}},
        "/g": {"get": {"operationId": "lost", "parameters": [id]}},
        "/h/{id}": {"get": {"operationId": "single", "parameters": id}}}}));
    let url = |n: usize, args: Value| found.operations[n].plan.request("{}", &args).unwrap().url;
    assert_eq!(url(0, json!({"id": "7"})), "https://a.example/f/7");
    assert_eq!(url(2, json!({"id": "7"})), "https://a.example/h/7");
    assert!(found.operations[1].def.input_schema.check(&json!({})).is_ok());
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(
        warning.operation == "GET /g" && warning.reason.text.contains("no place for `id`"),
        "{warning:?}"
    );
}

#[test]
fn a_broken_reference_costs_only_what_it_describes() {
    let found =
        imported_from(&json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": {
        "/a": {"post": {"parameters": [
            {"name": "q", "in": "query", "schema": {"$ref": "common.yaml#/Q"}},
            {"$ref": "#/components/parameters/gone"}, "x"],
            "requestBody": {"content": {"application/json": {"schema": {"properties": {
                "a": {"type": "string"}, "b": {"$ref": "#/components/schemas/Gone"}}}}}}}}}}));
    let [one] = found.operations.as_slice() else { panic!("{:?}", found.problems) };
    let schema = &one.def.input_schema;
    assert!(schema.check(&json!({"q": 1, "body": {"a": "x", "b": 2}})).is_ok());
    assert!(schema.check(&json!({"body": {"a": 7}})).is_err());
    let lines: Vec<_> = found.warnings.iter().map(|one| one.reason.text.as_str()).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for part in ["`q`: it may be anything", "`body.b`: it may be anything", "a parameter is left out"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:?}");
    }
}

#[test]
fn an_operation_of_any_key_has_a_line() {
    let operation = |id: &str| json!({ "operationId": id });
    let many: Map<String, Value> = (0..5000).map(|n| (format!("m{n}"), json!({}))).collect();
    let found = imported_from(
        &json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": {
        "/a": {"get": operation("a"), "GET": operation("again"), "purge": operation("purged"), "search": {}, "Link": {},
            "connect": {}, "x-purge": {}, "summary": {}, "tags": ["x"], "parameters": []},
        "/b": {"$ref": "#/components/pathItems/b", "get": operation("own")},
        "/many": many},
        "components": {"pathItems": {"b": {"get": operation("other"), "put": operation("put"), "copy": {}}}}}),
    );
    let tools: Vec<_> = found.operations.iter().map(|one| one.def.bare()).collect();
    assert_eq!(tools, ["a", "own", "put"]);
    let lines: Vec<_> =
        found.problems.iter().map(|one| (one.operation.as_str(), one.reason.text.as_str())).collect();
    for (operation, part) in [
        ("GET /a", "twice"),
        ("PURGE /a", "no such method"),
        ("SEARCH /a", "no such method"),
        ("LINK /a", "no such method"),
        ("CONNECT /a", "no such method"),
        ("GET /b", "beside the reference"),
        ("COPY /b", "no such method"),
        ("* /many", "4900 more"),
    ] {
        assert!(
            lines.iter().any(|line| line.0 == operation && line.1.contains(part)),
            "{operation}: {lines:?}"
        );
    }
    assert_eq!(lines.len(), 7 + 101, "{lines:?}");
}

#[test]
fn the_losses_of_a_document_are_warnings() {
    let text = r##"{"openapi": "3.1.0", "servers": [{"url": "/v1"}, {"url": "https://a.example"}], "paths": {
        "/a": {"get": {"operationId": "a", "description": "cut \ud83d", "parameters": [
            {"name": "q", "in": "query", "schema": {"type": "number", "maximum": 1e400}}]}},
        "/b": {"get": {"tags": ["a"], "tags": ["b"], "responses": {"200": {"$ref": "#/gone"}}}},
        "/c": {"servers": [{"url": "/v2"}, {"url": "https://c.example"}], "get": {}}}}"##;
    let document = OpenApiDocument::parse(text).unwrap();
    let options = ImportOptions::default();
    let found = import(&document, &PluginId::new("api").unwrap(), &options, &no_redaction).unwrap();
    assert_eq!((found.operations.len(), found.problems.len()), (3, 0), "{:?}", found.problems);
    let first = &found.operations[0].def;
    assert_eq!(first.description, "cut \u{fffd}");
    assert!(
        first.input_schema.check(&json!({"q": 1e300})).is_ok()
            && first.input_schema.check(&json!({"q": "x"})).is_err()
    );
    let bases: Vec<_> = found.operations.iter().map(ImportedOperation::base).collect();
    assert_eq!(bases, ["https://a.example", "https://a.example", "https://c.example"]);
    let lines: Vec<String> =
        found.warnings.iter().map(|one| format!("{}: {}", one.operation, one.reason.text)).collect();
    for part in [
        "line 2, column ",
        "line 3, column ",
        "/paths/~1b/get/tags: the document has it twice",
        "GET /b: the media types of its response 200 are not known",
        "GET /c: `https://c.example` is used instead",
        "/servers: `https://a.example` is used instead",
    ] {
        assert_eq!(lines.iter().filter(|line| line.starts_with(part)).count(), 1, "{part}: {lines:?}");
    }
    assert_eq!(lines.len(), 6, "{lines:?}");
    let base = document.server(None).unwrap();
    assert_eq!(base, "https://a.example");
}

#[test]
fn skipped_operations_are_chosen_like_others_and_their_number_is_bounded() {
    let many: Map<String, Value> = (0..5000).map(|n| (format!("M{n}"), json!({}))).collect();
    let text = json!({"openapi": "3.2.0", "servers": [{"url": "https://a.example"}], "paths": {
        "/a": {"trace": {"tags": ["t"]}, "get": {}}, "/many": {"additionalOperations": many}}});
    let document = OpenApiDocument::parse(&text.to_string()).unwrap();
    let of = |options: ImportOptions| {
        import(&document, &PluginId::new("api").unwrap(), &options, &no_redaction).unwrap()
    };
    let all = of(ImportOptions::default());
    assert_eq!(all.problems.len(), 1 + 100 + 1);
    assert!(all.problems.last().unwrap().reason.text.contains("4900 more"), "{:?}", all.problems.last());
    let some = of(ImportOptions { include: vec!["GET".to_owned()], ..ImportOptions::default() });
    assert_eq!((some.operations.len(), some.problems.len(), some.excluded_count), (1, 1, 101));
    let tagged = of(ImportOptions { include: vec!["tag:t".to_owned()], ..ImportOptions::default() });
    assert_eq!((tagged.operations.len(), tagged.problems[0].operation.as_str()), (0, "TRACE /a"));
}

#[test]
fn paths_that_differ_in_their_query_are_different_operations() {
    let operation = |id: &str| {
        json!({ "operationId": id, "parameters": [
        {"name": "beta", "in": "query", "schema": {"type": "string"}}, {"name": "page", "in": "query"}]})
    };
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": {
        "/v1/messages": {"post": operation("messages")},
        "/v1/messages?beta=true": {"post": operation("betaMessages")},
        "/v1/messages#copy": {"post": {}},
        "/v1/files?id={id}&{?}": {"get": {}},
        "/v1/one?id={key}": {"get": {"operationId": "one", "parameters": [
            {"name": "key", "in": "path", "required": true, "schema": {"type": "string"}}]}},
        "/v1/keyed?api_key=demo&v=1": {"get": {"operationId": "keyed"}},
        "/v1/stolen?api_key={free}": {"get": {"operationId": "stolen", "parameters": [{"name": "free", "in": "query"}]}},
        "/v1/listed{?page}": {"get": operation("listed")}},
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}}});
    let found = imported_from(&text);
    let url = |id: &str, args: Value| {
        let one = found.operations.iter().find(|one| one.def.bare() == id).unwrap_or_else(|| panic!("{id}"));
        one.plan.request("{}", &args).unwrap().url
    };
    assert_eq!(url("messages", json!({"beta": "x"})), "https://a.example/v1/messages?beta=x");
    assert_eq!(url("betaMessages", json!({"page": 2})), "https://a.example/v1/messages?beta=true&page=2");
    assert_eq!(url("post_v1_messages_copy", json!({})), "https://a.example/v1/messages");
    assert_eq!(url("one", json!({"key": "a b"})), "https://a.example/v1/one?id=a%20b");
    // The credential takes its place, and no argument may.
    assert_eq!(url("keyed", json!({})), "https://a.example/v1/keyed?v=1");
    assert_eq!(url("listed", json!({"page": 1})), "https://a.example/v1/listed?page=1");
    let beta = found.operations.iter().find(|one| one.def.bare() == "betaMessages").unwrap();
    assert!(beta.def.input_schema.value().pointer("/properties/beta").is_none());
    assert_eq!(beta.method_and_path(), "POST /v1/messages?beta=true");
    let problems: Vec<_> = found.problems.iter().map(|one| one.operation.as_str()).collect();
    assert_eq!(problems, ["GET /v1/files?id={id}&{?}", "GET /v1/stolen?api_key={free}"]);
    let document = OpenApiDocument::parse(&text.to_string()).unwrap();
    let include = vec!["POST /v1/messages".to_owned()];
    let options = ImportOptions { include, ..ImportOptions::default() };
    let chosen = import(&document, &PluginId::new("api").unwrap(), &options, &no_redaction).unwrap();
    assert_eq!(chosen.operations.len(), 1, "the text of the document is compared");
}

#[test]
fn what_openapi_3_2_adds_to_a_body_is_named() {
    let found =
        imported_from(&json!({"openapi": "3.2.0", "servers": [{"url": "https://a.example"}], "paths": {
        "/a": {"post": {"operationId": "lines", "requestBody": {"content": {
            "application/jsonl": {"itemSchema": {"type": "object"}}}}}},
        "/b": {"post": {"operationId": "referenced", "requestBody": {"content": {
            "application/json": {"$ref": "#/components/mediaTypes/note"}}}}}},
        "components": {"mediaTypes": {"note": {"schema": {"type": "object", "required": ["text"]}}}}}));
    assert_eq!(found.operations.len(), 2);
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(warning.operation == "POST /a" && warning.reason.text.contains("`itemSchema`"), "{warning:?}");
    let referenced = &found.operations[1].def.input_schema;
    assert!(
        referenced.check(&json!({"body": {}})).is_err()
            && referenced.check(&json!({"body": {"text": 1}})).is_ok()
    );
}

/// A schema is read once, with its secrets removed: a second reading would not know what the first one lost.
#[test]
fn a_schema_with_the_value_of_a_secret_keeps_the_keywords_that_it_lost() {
    let body = json!({"type": "object", "properties": {
        "a": {"type": "string", "pattern": "(?=a)b", "description": "such as hunter22"},
        "b": {"type": "string", "enum": ["hunter22", "other"]}}});
    let operation = json!({"requestBody": {"content": {"application/json": {"schema": body}}}});
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}],
        "paths": {"/x": {"post": operation}}});
    let document = OpenApiDocument::parse(&text.to_string()).unwrap();
    let redact = redact_fn(|text| text.replace("hunter22", "[secret T]").into());
    let found =
        import(&document, &PluginId::new("api").unwrap(), &ImportOptions::default(), &redact).unwrap();
    let schema = &found.operations[0].def.input_schema;
    assert!(!schema.value().to_string().contains("hunter22"), "{}", schema.value());
    let lost: Vec<_> = schema.dropped().unwrap().listed().iter().map(|one| one.pointer.as_str()).collect();
    assert!(lost.iter().any(|pointer| pointer.ends_with("/pattern")), "{lost:?}");
    assert!(lost.iter().any(|pointer| pointer.ends_with("/enum")), "{lost:?}");
}
