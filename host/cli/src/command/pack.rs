//! `toolbay pack`: a component for distribution, with its metadata in custom sections.
//!
//! | section | holds |
//! |---|---|
//! | `version`, `description`, `authors`, `licenses`, `homepage`, `source` | the values of the project's manifest |
//! | `.dep-v0` | the dependencies with their versions, in the format of auditing tools (JSON, zlib) |
//! | `toolbay:readme`, `toolbay:licence` | the files `README.md` and `LICENSE` |
//! | `toolbay:icon` | `icon.png`, `icon.webp` or `icon.jpg` |

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::json;

use crate::args::PackArgs;
use crate::author::component;
use crate::author::language::BuildProfile;
use crate::author::project::{Dependency, Project, ProjectMetadata};
use crate::output::{self, CommandError, CommandStatus, HEADING, TextTable, format, host_failure};
use crate::setup::SetupArgs;
use crate::setup::named_path::{path_failure, replace_atomically};

/// The section of the dependencies, under the name that auditing tools expect.
const DEPENDENCIES: &str = ".dep-v0";
/// The files to include: the possible names (the first existing file counts), the section, and the size limit in bytes.
/// People read these files, so a larger one is a mistake.
const FILES: [(&[&str], &str, u64); 3] = [
    (&["README.md"], "toolbay:readme", 256 << 10),
    (&["LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING"], "toolbay:licence", 256 << 10),
    (&["icon.png", "icon.webp", "icon.jpg"], "toolbay:icon", 64 << 10),
];

pub(crate) fn run(setup: &SetupArgs, args: &PackArgs) -> Result<CommandStatus> {
    let project = Project::find(setup.printer, args.project.folder.as_deref())?;
    let Some(built) = project.language.build(&project, BuildProfile::Release)? else {
        return Err(CommandError::new("build_failed", "the build failed; nothing was packed").into());
    };
    // After the build, which vendors the dependencies of a Python project.
    let metadata = project.language.metadata(&project)?;
    let mut sections = metadata_sections(&metadata);
    let packed =
        dependencies(&metadata.dependencies).context("the list of dependencies").map_err(host_failure)?;
    sections.push((DEPENDENCIES, packed));
    sections.extend(files(&project.folder)?);
    let bytes =
        fs::read(&built.file).with_context(|| format!("`{}`", built.file.display())).map_err(host_failure)?;
    let bytes = component::with_sections(&bytes, &sections).map_err(host_failure)?;
    let target = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.wasm", built.id)));
    let packed = replace_atomically(&target, |part| fs::write(part, &bytes)).with_context(|| {
        format!("`{}` cannot be written: name another file with --out FILE", target.display())
    });
    packed.map_err(path_failure)?;
    let missing = missing_metadata(&metadata);
    if setup.printer.is_json() {
        let sections = sections.iter().map(|(name, data)| json!({"name": name, "bytes": data.len()}));
        return Ok(output::print_json(&json!({
            "plugin": built.id.as_str(),
            "file": target,
            "bytes": bytes.len(),
            "sections": sections.collect::<Vec<_>>(),
            "missing": missing.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        }))?);
    }
    let mut out = output::stdout();
    writeln!(
        out,
        "{HEADING}{}{HEADING:#}: {}, {}",
        built.id,
        format::size(bytes.len() as u64),
        target.display()
    )?;
    drop(out);
    let mut table = TextTable::facts();
    for (name, data) in &sections {
        table.push_fact(name, format::size(data.len() as u64));
    }
    table.print()?;
    for (_, what) in missing {
        setup.printer.note(&format!("the manifest does not name {what}"));
    }
    Ok(CommandStatus::Success)
}

/// What a published plugin should have and the manifest does not name: the key, and what it is.
fn missing_metadata(metadata: &ProjectMetadata) -> Vec<(&'static str, &'static str)> {
    let ProjectMetadata { licenses, description, source, .. } = metadata;
    let all = [
        ("licenses", licenses, "a licence, without which others may not use the plugin"),
        ("description", description, "a description"),
        ("source", source, "the source repository"),
    ];
    all.into_iter().filter(|(_, text, _)| text.is_empty()).map(|(key, _, what)| (key, what)).collect()
}

fn metadata_sections(metadata: &ProjectMetadata) -> Vec<(&'static str, Vec<u8>)> {
    let ProjectMetadata { version, description, authors, licenses, homepage, source, .. } = metadata;
    let all = [
        ("version", version),
        ("description", description),
        ("authors", authors),
        ("licenses", licenses),
        ("homepage", homepage),
        ("source", source),
    ];
    let sections = all.into_iter().filter(|(_, text)| !text.is_empty());
    sections.map(|(name, text)| (name, text.as_bytes().to_vec())).collect()
}

/// The dependencies in the format of `.dep-v0`.
fn dependencies(all: &[Dependency]) -> std::io::Result<Vec<u8>> {
    let packages = all.iter().enumerate().map(|(index, one)| {
        let mut package = json!({"name": one.name, "version": one.version, "source": one.source});
        if !one.dependencies.is_empty() {
            output::insert_member(&mut package, "dependencies", one.dependencies.clone());
        }
        if index == 0 {
            output::insert_member(&mut package, "root", true);
        }
        package
    });
    let text = json!({"packages": packages.collect::<Vec<_>>()}).to_string();
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes())?;
    packed.finish()
}

fn files(folder: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let mut found = Vec::new();
    for (names, section, most) in FILES {
        let Some(file) = names.iter().map(|name| folder.join(name)).find(|file| file.is_file()) else {
            continue;
        };
        let read = fs::read(&file).with_context(|| format!("`{}` cannot be read", file.display()));
        let bytes = read?;
        if bytes.len() as u64 > most {
            bail!(
                "`{}` has {} bytes, and at most {most} can be packed; shorten it, or move it away",
                file.display(),
                bytes.len()
            );
        }
        found.push((section, bytes));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn dependencies_are_packed_as_auditing_tools_read_them() {
        let one = |name: &str, source, dependencies| Dependency {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            source,
            dependencies,
        };
        let packed = dependencies(&[one("a", "local", vec![1]), one("b", "crates.io", vec![])]).unwrap();
        let mut text = String::new();
        flate2::read::ZlibDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
        let expected = json!({"packages": [
            {"name": "a", "version": "1.0.0", "source": "local", "dependencies": [1], "root": true},
            {"name": "b", "version": "1.0.0", "source": "crates.io"},
        ]});
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
    }
}
