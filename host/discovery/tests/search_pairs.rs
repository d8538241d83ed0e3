//! Searches the tools of public OpenAPI documents for what users say, and compares the hits with the expected
//! operations of `tests/search/pairs.json`. `cargo test -p toolbay-discovery --test search_pairs -- --nocapture`
//! prints the figures.
//!
//! `tests/data/search` has what the search reads of the tools, as the importer made them. Its `README.md` says how the
//! files are written.
//!
//! The misses of the held pairs are counted but not named, so that nobody tunes the search for them.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests, data included: a failure is to stop them"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use toolbay_core::call::invoke::{BoxFuture, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::registry::view::{Filter, View};
use toolbay_core::registry::{Registry, ToolEntry};
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::{Keywords, ToolDef, ToolSource};
use toolbay_discovery as discovery;
use toolbay_policy::name::{PluginId, QualifiedName, ToolName};

/// The share of held operations that must be among the first [`WITHIN`] hits.
const MIN_RECALL: f64 = 0.9;
const WITHIN: usize = 5;

#[derive(Debug, Deserialize)]
struct Pairs {
    /// Pairs for which the search may be tuned.
    tune: Vec<Pair>,
    /// Pairs that only measure it.
    held: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    document: String,
    query: String,
    /// `GET /pets/{id}`.
    operation: String,
    /// The pair must be found among this number of hits.
    within: Option<usize>,
}

/// What the search reads of the tools of a document.
#[derive(Debug, Deserialize)]
struct SearchedDocument {
    tools: Vec<SearchedTool>,
}

#[derive(Debug, Deserialize)]
struct SearchedTool {
    name: String,
    /// `GET /pets/{id}`.
    operation: String,
    description: String,
    search_hint: Option<String>,
    toolset: Option<String>,
    tags: Vec<String>,
    /// The names of the arguments.
    parameters: Vec<String>,
    #[serde(default)]
    read_only: bool,
}

impl SearchedTool {
    fn into_entry(self, document: &PluginId) -> ToolEntry {
        let properties: Map<String, Value> =
            self.parameters.into_iter().map(|name| (name, json!({}))).collect();
        let schema = Schema::from_trusted(json!({"type": "object", "properties": properties}));
        let name = QualifiedName::join(document, &ToolName::new(&self.name).unwrap()).unwrap();
        let source = ToolSource::OpenApi { document: Arc::from(document.as_str()) };
        let mut def = ToolDef::new(name, self.description, schema, source);
        def.keywords = Keywords { toolset: self.toolset, tags: self.tags, search_hint: self.search_hint };
        def.traits.read_only = self.read_only;
        ToolEntry::new(def, Arc::new(Uncalled))
    }
}

/// The test calls no tool.
#[derive(Debug)]
struct Uncalled;

impl Invoke for Uncalled {
    fn invoke<'a>(&'a self, _: &'a AdmittedCall, _: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(std::future::pending())
    }
}

/// The tools of a document.
struct Service {
    view: View,
    /// The name of the tool of each operation.
    tools: BTreeMap<String, String>,
}

impl Service {
    fn load(name: &str) -> Self {
        let document: SearchedDocument = read(&format!("data/search/{name}.json"));
        let namespace = PluginId::new(name).unwrap();
        let (mut tools, mut entries) = (BTreeMap::new(), Vec::new());
        for tool in document.tools {
            let operation = tool.operation.clone();
            let entry = tool.into_entry(&namespace);
            tools.insert(operation, entry.def.name.to_string());
            entries.push(entry);
        }
        println!("{name}: {} tools", tools.len());
        let registry = Registry::default();
        registry.register(entries).unwrap();
        Self { view: View::new(registry.snapshot(), Filter::default()), tools }
    }

    /// The position of the expected tool among the hits, from 1.
    fn rank(&self, pair: &Pair) -> Option<usize> {
        let tool = self.tools.get(&pair.operation);
        let tool =
            tool.unwrap_or_else(|| panic!("`{}` has no operation `{}`", pair.document, pair.operation));
        let hits = discovery::search(&self.view, &pair.query, 10).unwrap();
        hits.iter().position(|hit| hit.entry.def.name.as_str() == tool).map(|place| place + 1)
    }
}

/// Reads a JSON file of the folder `tests` of the workspace.
fn read<T: DeserializeOwned>(file: &str) -> T {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn what_users_say_finds_the_operations_of_public_apis() {
    let pairs: Pairs = read("search/pairs.json");
    let services: BTreeMap<&str, Service> =
        ["github", "kubernetes", "stripe"].into_iter().map(|name| (name, Service::load(name))).collect();
    measure(&services, "tune", &pairs.tune, true);
    let recall = measure(&services, "held", &pairs.held, false);
    assert!(recall >= MIN_RECALL, "the recall of the held pairs is {recall:.2}, less than {MIN_RECALL}");
}

/// Prints the results of a list, and returns the share of pairs that are found among the first hits.
fn measure(services: &BTreeMap<&str, Service>, list: &str, pairs: &[Pair], named: bool) -> f64 {
    let mut ranks = Vec::new();
    for pair in pairs {
        let service = services.get(pair.document.as_str());
        let service = service.unwrap_or_else(|| panic!("there is no document `{}`", pair.document));
        let rank = service.rank(pair);
        if named && rank.is_none_or(|rank| rank > WITHIN) {
            let place = rank.map_or_else(|| "not found".to_owned(), |rank| format!("at {rank}"));
            println!("  {}: `{}`: {} is {place}", pair.document, pair.query, pair.operation);
        }
        if let Some(within) = pair.within {
            let found = rank.is_some_and(|rank| rank <= within);
            assert!(found, "`{}` does not find {} among the first {within} hits", pair.query, pair.operation);
        }
        ranks.push(rank);
    }
    let share = |most: usize| {
        let found = ranks.iter().flatten().filter(|rank| **rank <= most).count();
        found as f64 / ranks.len().max(1) as f64
    };
    println!(
        "{list}: {} pairs, recall@1 {:.2}, @3 {:.2}, @5 {:.2}, @10 {:.2}",
        ranks.len(),
        share(1),
        share(3),
        share(WITHIN),
        share(10)
    );
    share(WITHIN)
}
