//! The bindings in `sdk/rust/src/bindings` match what `wit-bindgen` generates from the contract. They are committed, so
//! that a plugin's build needs neither the generator nor its dependencies.

use std::fs;
use std::path::{Path, PathBuf};

use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator as _};
use wit_bindgen_rust::{Opts, WithOption};

const TYPES: &str = "crate::bindings::imports::toolbay::plugin::types";
/// The header of a generated file.
const HEAD: &str = "// Written by wit-bindgen from `wit/`. A test compares; see `tests/bindings` for how to write it anew.\n\n";

/// The file, its world, and the options of the generator.
fn worlds() -> [(&'static str, &'static str, Opts); 6] {
    let export = |macro_name: &str| Opts {
        with: vec![("toolbay:plugin/types@0.1.0".to_owned(), WithOption::Path(TYPES.to_owned()))],
        pub_export_macro: true,
        export_macro_name: Some(macro_name.to_owned()),
        format: true,
        ..Opts::default()
    };
    let imports = Opts {
        additional_derive_attributes: vec!["PartialEq".to_owned()],
        generate_all: true,
        generate_unused_types: true,
        format: true,
        ..Opts::default()
    };
    [
        ("imports", "imports-of-callers", imports),
        ("tools_world", "exports-tools", export("export_tools")),
        ("async_tools_world", "exports-tools-async", export("export_async_tools")),
        ("reducers_world", "exports-reducers", export("export_reducers")),
        ("about_world", "exports-about", export("export_about")),
        (
            "availability_world",
            "exports-availability",
            Opts { with: Vec::new(), ..export("export_availability") },
        ),
    ]
}

fn generated(wit: &Path, world: &str, options: Opts) -> String {
    let mut resolve = Resolve::default();
    resolve.features.extend(["tool-invoke", "async-tools"].map(str::to_owned));
    let (package, _) = resolve.push_path(wit).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let mut files = Files::default();
    options.build().generate(&mut resolve, world, &mut files).unwrap();
    let (_, source) = files.iter().next().unwrap();
    format!("{HEAD}{}", std::str::from_utf8(source).unwrap())
}

#[test]
fn the_bindings_are_those_of_the_contract() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/rust");
    let new = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bindings");
    let mut other = Vec::new();
    for (file, world, options) in worlds() {
        let source = generated(&sdk.join("wit"), world, options);
        let name = format!("{file}.rs");
        if fs::read_to_string(sdk.join("src/bindings").join(&name)).unwrap_or_default() != source {
            fs::create_dir_all(&new).unwrap();
            fs::write(new.join(&name), source).unwrap();
            other.push(name);
        }
    }
    assert!(
        other.is_empty(),
        "the contract or wit-bindgen changed: cp {}/*.rs sdk/rust/src/bindings/ ({other:?})",
        new.display()
    );
}
