//! Plugins in Rust: a crate, cargo, and the SDK in `vendor/`.

mod cargo;
mod flags;
mod lock;
mod sdk;

use anyhow::Result;

use super::language::BuildProfile;
use super::project::{BuiltComponent, Project, ProjectMetadata};
use super::template::{TemplateFile, TemplatePlan};
use crate::output::host_failure;

/// Names that cargo or the compiler reserve, apart from keywords.
const RESERVED: [&str; 11] = [
    "alloc",
    "build",
    "core",
    "deps",
    "examples",
    "incremental",
    "proc_macro",
    "std",
    "test",
    "toolbay_sdk",
    "toolbay_sdk_macros",
];
/// The keywords of Rust, including reserved ones.
const KEY_WORDS: [&str; 52] = [
    "Self", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

/// Checks a name against the rules of cargo.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(format!("`{name}` cannot name a crate: the name of a crate starts with a letter"));
    }
    let ident = name.replace('-', "_");
    if KEY_WORDS.contains(&ident.as_str()) || RESERVED.contains(&ident.as_str()) {
        return Err(format!("`{name}` cannot name a crate: Rust reserves the word"));
    }
    Ok(())
}

/// The files of a new crate, including the SDK.
pub(super) fn template(plan: &TemplatePlan<'_>) -> Result<Vec<TemplateFile>> {
    let named = |text: &str| text.replace("{{name}}", plan.name);
    let (source, about) = if plan.reducer {
        (include_str!("../../templates/rust/reducer.rs"), "Shortens results of a tool")
    } else {
        (include_str!("../../templates/rust/tool.rs"), "Says hello")
    };
    let manifest = named(include_str!("../../templates/rust/manifest.toml")).replace("{{about}}", about);
    let mut files = vec![
        TemplateFile::new("Cargo.toml", manifest),
        TemplateFile::new("src/lib.rs", source),
        TemplateFile::new("README.md", named(include_str!("../../templates/rust/README.md"))),
        TemplateFile::new(".gitignore", "/target\n"),
        TemplateFile::new("Cargo.lock", lock::subset(sdk::lock(), &sdk::NAMES)),
    ];
    files.extend(sdk::vendored().map_err(host_failure)?);
    Ok(files)
}

/// Builds the crate's component.
pub(super) fn build(project: &Project, profile: BuildProfile) -> Result<Option<BuiltComponent>> {
    let toolchain = cargo::Toolchain::find(&project.folder)?;
    let package = toolchain.package()?;
    let id = package.id()?;
    toolchain.ensure_target(project.printer)?;
    Ok(toolchain.build(&package, profile)?.map(|file| BuiltComponent { id, file, base: None }))
}

/// The metadata of the manifest.
pub(super) fn metadata(project: &Project) -> Result<ProjectMetadata> {
    Ok(cargo::Toolchain::find(&project.folder)?.package()?.metadata())
}

/// Runs the crate's tests on this machine.
pub(super) fn test(project: &Project) -> Result<bool> {
    cargo::Toolchain::find(&project.folder)?.test()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_refuses_are_refused() {
        for name in ["9lives", "fn", "test", "proc-macro", "toolbay-sdk"] {
            assert!(check_name(name).unwrap_err().contains(name), "{name}");
        }
        for name in ["notes", "word-count", "a1_b", "testing"] {
            check_name(name).unwrap();
        }
    }
}
