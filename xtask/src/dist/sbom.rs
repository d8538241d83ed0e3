//! The SBOM in CycloneDX 1.5: the packages that the program and the plugins are built from, as cargo resolves them for the
//! targets of a release. Packages that only run while building are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Release;
use crate::cargo;

/// Each target, with what the names of the packages that are built for it begin with.
const BUILT: [(&str, &str); 3] = [
    ("x86_64-unknown-linux-musl", "toolbay-cli"),
    ("aarch64-unknown-linux-musl", "toolbay-cli"),
    ("wasm32-wasip2", "plugin-"),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Clone, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
}

impl Package {
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// Packages by their URL, each with the URLs of those that it depends on.
type Graph = BTreeMap<String, (Package, BTreeSet<String>)>;

/// The document.
pub(super) fn document(release: &Release) -> Result<String> {
    let mut graph = Graph::new();
    let mut roots = BTreeSet::new();
    for (target, start) in BUILT {
        let metadata = cargo::metadata(&release.workspace, &["--filter-platform", target])?;
        let metadata = serde_json::from_slice(&metadata)?;
        roots.extend(add(&metadata, start, &mut graph)?);
    }
    let sums = checksums(release)?;
    let components: Vec<Value> = graph.values().map(|(package, _)| component(package, &sums)).collect();
    let whole = format!("toolbay@{}", release.version);
    let mut dependencies = vec![json!({"ref": whole, "dependsOn": roots})];
    dependencies.extend(graph.iter().map(|(url, (_, needs))| json!({"ref": url, "dependsOn": needs})));
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": whole,
                "name": "toolbay",
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

/// Adds what packages with this start of their name depend on, and returns the URLs of these packages.
fn add(metadata: &Metadata, start: &str, graph: &mut Graph) -> Result<Vec<String>> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let find = |id: &str| packages.get(id).copied().with_context(|| format!("no package `{id}`"));
    let roots: Vec<&Package> =
        metadata.packages.iter().filter(|package| package.name.starts_with(start)).collect();
    let mut waiting: Vec<&str> = roots.iter().map(|package| package.id.as_str()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        let package = find(id)?;
        let (_, needs) = graph.entry(package.url()).or_insert_with(|| (package.clone(), BTreeSet::new()));
        let node = nodes.get(id).with_context(|| format!("`{id}` is not resolved"))?;
        let is_linked =
            |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
        for dependency in node.deps.iter().filter(is_linked) {
            needs.insert(find(&dependency.pkg)?.url());
            waiting.push(&dependency.pkg);
        }
    }
    Ok(roots.into_iter().map(Package::url).collect())
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
    if let Some(license) = &package.license {
        // Older manifests separate alternatives by a slash.
        let expression = license.replace('/', " OR ").replace("  OR  ", " OR ");
        fields.insert("licenses".into(), json!([{"expression": expression}]));
    }
    if let Some(sum) = sums.get(&(package.name.clone(), package.version.clone())) {
        fields.insert("hashes".into(), json!([{"alg": "SHA-256", "content": sum}]));
    }
    component
}
