//! Tests of hostile types at each limit, and of types without a schema.

use serde_json::Value;
use toolbay_sandbox::engine::{AsyncSupport, Engine, EngineKind, Metering};
use wasmtime::component::Component;

use super::super::{functions, values};
use super::*;

/// The function `f` with one parameter `x`, a list of the type `$t` that the definitions end with.
fn function(types: &str) -> ComponentFunc {
    let text = format!(
        r#"(component
            (core module $m
                (memory (export "memory") 1)
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
                (func (export "f") (param i32 i32)))
            (core instance $i (instantiate $m))
            {types}
            (func (export "f") (param "x" (list $t))
                (canon lift (core func $i "f")
                    (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#
    );
    let kind = EngineKind { metering: Metering::Fuel, async_support: AsyncSupport::On };
    let engine = Engine::for_compiling(kind).unwrap();
    let component = Component::new(&engine.wasmtime, wat::parse_str(&text).unwrap()).unwrap();
    let mut found = functions(&engine, &component.component_type()).unwrap();
    found.pop().unwrap().ty
}

/// A named record, exported because the types of functions must be.
fn record(name: &str, fields: &str) -> String {
    format!("(type ${name}-inner (record {fields})) (export ${name} \"{name}\" (type ${name}-inner))")
}

fn fields(count: usize, ty: &str) -> String {
    (0..count).map(|n| format!("(field \"f{n}\" {ty})")).collect()
}

#[test]
fn shared_types_are_counted_at_each_use() {
    // One part each for the parameter's name, the list and the record, and two for each field.
    let wide = |count| function_schemas(&function(&record("t", &fields(count, "u8"))));
    let max = (MAX_PARTS - 3) / 2;
    assert!(wide(max).is_ok());
    assert!(wide(max + 1).unwrap_err().contains("more than 2000 parts"), "{:?}", wide(max + 1));
    // Each record has ten fields of the previous record: 10^5 parts. The engine rejects types of more than a million
    // parts.
    let mut types = record("r0", &fields(10, "u8"));
    for level in 1..=4 {
        types += &record(&format!("r{level}"), &fields(10, &format!("$r{}", level - 1)));
    }
    types += &record("t", "(field \"a\" $r4)");
    let start = std::time::Instant::now();
    assert!(function_schemas(&function(&types)).unwrap_err().contains("more than 2000 parts"));
    assert!(start.elapsed() < std::time::Duration::from_secs(30));
}

#[test]
fn the_depth_of_types_is_bounded() {
    let nested = |depth: usize| {
        let lists: String = (1..depth).map(|n| format!("(type $l{n} (list {}))", inner(n))).collect();
        function_schemas(&function(&format!("{lists}(type $t (list {}))", inner(depth))))
    };
    fn inner(level: usize) -> String {
        if level <= 1 { "u32".to_owned() } else { format!("$l{}", level - 1) }
    }
    // The list around it and the number in it are levels, too.
    let (schema, _) = nested(MAX_DEPTH - 2).unwrap();
    let problem = nested(MAX_DEPTH - 1).unwrap_err();
    assert!(problem.contains("deeper than 16"), "{problem}");
    // The host accepts the schema of the deepest allowed type.
    toolbay_core::tool::schema::Schema::input(&schema.to_string()).unwrap();
}

#[test]
fn the_deepest_types_make_a_schema_that_the_host_takes() {
    let mut types = "(type $t0 (option u8))".to_owned();
    for n in 1..MAX_DEPTH - 3 {
        types += &format!("(type $t{n} (option $t{}))", n - 1);
    }
    types += &format!("(type $t (option $t{}))", MAX_DEPTH - 4);
    let (schema, _) = function_schemas(&function(&types)).unwrap();
    toolbay_core::tool::schema::Schema::input(&schema.to_string()).unwrap();
}

#[test]
fn the_bytes_of_names_are_bounded() {
    let long = |bytes: usize| {
        function_schemas(&function(&record("t", &format!("(field \"{}\" u8)", "a".repeat(bytes)))))
    };
    assert!(long(MAX_NAMES - 1).is_ok(), "with the parameter's own name it is as many");
    let problem = long(MAX_NAMES).unwrap_err();
    assert!(problem.contains("bytes of names") && problem.len() < 300, "{problem}");
}

#[test]
fn a_type_without_a_json_form_is_refused() {
    let resource = "(type $r (resource (rep i32))) (export $e \"r\" (type $r)) (type $t (own $e))";
    let problem = function_schemas(&function(resource)).unwrap_err();
    assert_eq!(problem, "its parameter `x` is a resource, which has no JSON form");
}

/// `{}` stands for a record of 900 options.
#[test]
fn small_json_that_expands_to_many_values_is_bounded() {
    let ty = function(&record("t", &fields(900, "(option u64)").replace("(option u64)", "$o")).replacen(
        "(type $t-inner",
        "(type $o (option u64)) (type $t-inner",
        1,
    ));
    let arguments = |records: usize| {
        let args = json!({"x": vec![json!({}); records]});
        values::from_arguments(&ty, values::arguments_object(&args).unwrap())
    };
    assert!(arguments(100).is_ok());
    let start = std::time::Instant::now();
    let error = arguments(100_000).unwrap_err();
    assert!(error.message.contains("more than 67108864 bytes"), "{error}");
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn bytes_are_counted_before_they_are_decoded() {
    let ty = function("(type $t (list u8))");
    let arguments = |bytes: usize| {
        let args = json!({"x": ["A".repeat(bytes)]});
        values::from_arguments(&ty, values::arguments_object(&args).unwrap())
    };
    assert!(arguments(4000).is_ok());
    assert!(arguments(4 << 20).unwrap_err().message.contains("more than 67108864 bytes"));
    let error = values::from_arguments(&ty, values::arguments_object(&json!({"x": ["AAAA", "!"]})).unwrap())
        .unwrap_err();
    assert_eq!(error.subject.as_deref(), Some("/x/1"), "{error}");
    assert!(error.message.contains("is not base64"), "{error}");
}

#[test]
fn an_option_may_be_left_out() {
    let ty = function(&format!("(type $o (option u8)) {}", record("t", "(field \"a\" u8) (field \"b\" $o)")));
    let (schema, answer) = function_schemas(&ty).unwrap();
    let item: &Value = &schema["properties"]["x"]["items"];
    assert_eq!(item["required"], json!(["a"]));
    assert_eq!(item["properties"]["b"]["anyOf"][1], json!({"type": "null"}));
    assert_eq!(answer, ResultShape::Nothing);
}
