//! The SBOM in CycloneDX 1.5: the packages of a [`Graph`].

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::Release;
use super::graph::{Graph, Package};

/// The document of what is built from these packages.
pub(super) fn document(release: &Release, name: &str, graph: &Graph) -> Result<String> {
    let sums = checksums(release)?;
    let components: Vec<Value> = graph.packages().map(|(package, _)| component(package, &sums)).collect();
    let whole = format!("{name}@{}", release.version);
    let mut dependencies = vec![json!({"ref": whole, "dependsOn": graph.roots()})];
    let needs = graph.packages().map(|(package, needs)| json!({"ref": package.url(), "dependsOn": needs}));
    dependencies.extend(needs);
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": whole,
                "name": name,
                "version": release.version,
                "licenses": [{"expression": "Apache-2.0"}],
                "properties": [{"name": "toolbay:commit", "value": release.commit}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The checksums of the lock, by name and version.
fn checksums(release: &Release) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = fs::read_to_string(release.workspace.join("Cargo.lock"))?.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("the lock has no packages")?;
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let sums = packages.iter().filter_map(|package| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    });
    Ok(sums.collect())
}

fn component(package: &Package, sums: &BTreeMap<(String, String), String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": package.url(),
        "name": package.name,
        "version": package.version,
        "purl": package.url(),
    });
    let Some(fields) = component.as_object_mut() else { return component };
    if let Some(expression) = package.license_expression() {
        fields.insert("licenses".into(), json!([{"expression": expression}]));
    }
    if let Some(sum) = sums.get(&(package.name.clone(), package.version.clone())) {
        fields.insert("hashes".into(), json!([{"alg": "SHA-256", "content": sum}]));
    }
    component
}
