//! Compiles plugins and test guests, and writes a constant with the path of each.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let workspace = wasm::workspace()?;
    println!("cargo:rerun-if-env-changed=TOOLBAY_GUESTS");
    println!("cargo:rerun-if-env-changed=CARGO_TARGET_DIR");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets `OUT_DIR`")?);
    let folder = if let Some(prebuilt) = env::var_os("TOOLBAY_GUESTS") {
        let folder = workspace.join(prebuilt);
        println!("cargo:rerun-if-changed={}", folder.display());
        folder
    } else {
        for source in ["Cargo.toml", "Cargo.lock", "host/reducers", "plugins", "sdk", "tests/guests", "wit"] {
            println!("cargo:rerun-if-changed={}", workspace.join(source).display());
        }
        let folder = out.join("wasm");
        wasm::bundle(&workspace, &folder)?;
        folder
    };
    fs::write(out.join("gen.rs"), constants(&folder)?)?;
    Ok(())
}

/// The source of the constants for the components in `folder`.
fn constants(folder: &Path) -> Result<String> {
    let mut source = String::new();
    let mut all = String::new();
    for name in wasm::component_names(folder)? {
        let constant = name.to_uppercase();
        let file = folder.join(format!("{name}.wasm"));
        writeln!(source, "/// The guest `{name}`.\npub const {constant}: &str = {file:?};")?;
        write!(all, "({name:?}, {constant}), ")?;
    }
    writeln!(source, "/// All guests: name and path.\npub const ALL_GUESTS: &[(&str, &str)] = &[{all}];")?;
    let plugins = folder.join("plugins");
    let mut all = String::new();
    for id in wasm::component_names(&plugins)? {
        let constant = format!("PLUGIN_{}", id.to_uppercase().replace('-', "_"));
        let file = plugins.join(format!("{id}.wasm"));
        writeln!(source, "/// The plugin `{id}`.\npub const {constant}: &str = {file:?};")?;
        write!(all, "({id:?}, {constant}), ")?;
    }
    writeln!(
        source,
        "/// All first-party plugins: id and path.\npub const ALL_PLUGINS: &[(&str, &str)] = &[{all}];"
    )?;
    for name in wasm::component_names(&folder.join("programs"))? {
        let constant = format!("PROGRAM_{}", name.to_uppercase().replace('-', "_"));
        let file = folder.join("programs").join(format!("{name}.wasm"));
        writeln!(
            source,
            "/// The program `{name}` of the registry.\npub const {constant}: &str = {file:?};"
        )?;
    }
    writeln!(source, "const PLUGINS_DIR: &str = {plugins:?};")?;
    Ok(source)
}
