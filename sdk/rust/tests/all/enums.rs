//! Enums with content under `#[data]`: every form of serde compiles, is described and is read.

use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json::{self, Value};
use toolbay_sdk::testing::{call, describe};

macro_rules! forms {
    ($($form:ident $tool:ident [$($attribute:tt)*];)*) => {$(
        /// What to draw.
        #[data]
        #[derive(Debug, PartialEq)]
        $($attribute)*
        pub enum $form {
            /// A circle.
            Circle {
                /// Its radius.
                #[schemars(range(min = 1))]
                radius: u32,
                /// Its colour.
                #[serde(default)]
                colour: Option<String>,
            },
            /// A square.
            Square { sides: Vec<Side> },
            Empty,
        }

        /// Draw.
        #[tool]
        pub fn $tool(shape: $form) -> Json<$form> {
            Json(shape)
        }
    )*};
}

forms! {
    External draw_external [];
    Internal draw_internal [#[serde(tag = "kind")]];
    Adjacent draw_adjacent [#[serde(tag = "kind", content = "of")]];
    Untagged draw_untagged [#[serde(untagged)]];
}

/// A side, which is an enum in an enum, with tuples.
#[data]
#[derive(Debug, PartialEq)]
pub enum Side {
    Long(u32),
    Pair(u32, u32),
    Named { length: u32 },
}

fn shape(input_schema: &str) -> Value {
    let schema: Value = serde_json::from_str(input_schema).unwrap();
    schema["properties"]["shape"]["oneOf"].clone()
}

#[test]
fn the_default_form_is_described_by_one_key_for_each_variant() {
    let shape = shape(&describe::<draw_external>().input_schema);
    assert_eq!(shape[0], json!({"type": "string", "enum": ["Empty"]}));
    let circle = &shape[1]["properties"]["Circle"];
    assert_eq!(shape[1]["required"], json!(["Circle"]));
    assert_eq!(shape[1]["additionalProperties"], json!(false));
    assert_eq!(
        circle["properties"]["radius"],
        json!({"type": "integer", "description": "Its radius.", "minimum": 1})
    );
    assert_eq!(circle["required"], json!(["radius"]));
    assert_eq!(shape[2]["properties"]["Square"]["properties"]["sides"]["type"], "array");
}

#[test]
fn a_tag_is_described_by_its_value() {
    let internal = shape(&describe::<draw_internal>().input_schema);
    assert_eq!(internal[0]["properties"]["kind"]["const"], "Circle");
    assert_eq!(internal[0]["required"], json!(["kind", "radius"]));
    let adjacent = shape(&describe::<draw_adjacent>().input_schema);
    assert_eq!(adjacent[0]["properties"]["of"]["required"], json!(["radius"]));
}

#[test]
fn every_form_is_read_and_written_as_serde_does() {
    let sides = json!([{"Long": 1}, {"Pair": [2, 3]}, {"Named": {"length": 4}}]);
    let circle = json!({"radius": 2, "colour": "red"});
    let external = [json!({"Circle": circle}), json!({"Square": {"sides": sides}}), json!("Empty")];
    for shape in external {
        let output = call::<draw_external>(json!({"shape": shape})).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&output.value).unwrap_or(json!(output.value)), shape);
    }
    let internal = json!({"kind": "Square", "sides": sides});
    let adjacent = json!({"kind": "Square", "of": {"sides": sides}});
    let untagged = json!({"sides": sides});
    let outputs = [
        (call::<draw_internal>(json!({"shape": internal})), internal),
        (call::<draw_adjacent>(json!({"shape": adjacent})), adjacent),
        (call::<draw_untagged>(json!({"shape": untagged})), untagged),
    ];
    for (output, expected) in outputs {
        assert_eq!(serde_json::from_str::<Value>(&output.unwrap().value).unwrap(), expected);
    }
    assert!(call::<draw_external>(json!({"shape": {"Circle": {}}})).is_err());
}
