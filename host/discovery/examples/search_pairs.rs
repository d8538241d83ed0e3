//! Searches the tools of real OpenAPI documents for what users say, and compares the hits with the expected operations.
//!
//! `search_pairs PAIRS NAME=DOCUMENT…` reads the pairs and the documents, and fails if too few operations are found. The
//! misses of the held pairs are counted but not named, so that nobody tunes the search for them.

#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use toolbay_core::call::CallContext;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::registry::Registry;
use toolbay_core::registry::view::{Filter, View};
use toolbay_discovery as discovery;
use toolbay_openapi::{
    ExchangeError, HttpExchange, ImportOptions, OpenApiDocument, ServiceRequest, ServiceResponse, import,
    tool_entry,
};
use toolbay_policy::name::PluginId;

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

/// The tools of a document.
struct Service {
    view: View,
    /// The name of the tool of each operation.
    tools: BTreeMap<String, String>,
}

/// Sends nothing.
#[derive(Debug)]
struct NoExchange;

impl HttpExchange for NoExchange {
    fn send<'a>(
        &'a self,
        _: ServiceRequest,
        _: &'a Arc<CallContext>,
    ) -> BoxFuture<'a, Result<ServiceResponse, ExchangeError>> {
        Box::pin(async { Err(ExchangeError::Failed("this program sends nothing".to_owned())) })
    }
}

impl Service {
    fn load(name: &str, file: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let document = OpenApiDocument::parse(&text)?;
        let server = Some("https://example.invalid".to_owned());
        let options = ImportOptions { server, ..ImportOptions::default() };
        let imported = import(&document, &PluginId::new(name)?, &options)?;
        let names = imported
            .operations
            .iter()
            .map(|one| (one.method_and_path().to_owned(), one.def.name.to_string()));
        let tools = names.collect();
        // Without its secrets an operation is unavailable, and is not found.
        let available = imported.operations.into_iter().map(|mut one| {
            one.unavailable = None;
            one
        });
        let entries: Vec<_> = available.map(|one| tool_entry(one, Arc::new(NoExchange))).collect();
        let registry = Registry::default();
        registry.register(entries)?;
        Ok(Self { view: View::new(registry.snapshot(), Filter::default()), tools })
    }

    /// The position of the expected tool among the hits, from 1.
    fn rank(&self, pair: &Pair) -> Result<Option<usize>> {
        let tool = self.tools.get(&pair.operation);
        let tool =
            tool.with_context(|| format!("`{}` has no operation `{}`", pair.document, pair.operation))?;
        let hits = discovery::search(&self.view, &pair.query, 10)?;
        Ok(hits.iter().position(|hit| hit.entry.def.name.as_str() == tool).map(|place| place + 1))
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let pairs = std::fs::read_to_string(args.next().context("no file of pairs")?)?;
    let pairs: Pairs = serde_json::from_str(&pairs)?;
    let mut services = BTreeMap::new();
    for arg in args {
        let (name, file) = arg.split_once('=').context("write NAME=DOCUMENT")?;
        let service =
            Service::load(name, Path::new(file)).with_context(|| format!("cannot load `{file}`"))?;
        println!("{name}: {} tools", service.tools.len());
        services.insert(name.to_owned(), service);
    }
    measure(&services, "tune", &pairs.tune, true)?;
    let recall = measure(&services, "held", &pairs.held, false)?;
    if recall < MIN_RECALL {
        bail!("the recall of the held pairs is {recall:.2}, less than {MIN_RECALL}");
    }
    Ok(())
}

/// Prints the results of a list, and returns the share of pairs that are found among the first hits.
fn measure(services: &BTreeMap<String, Service>, list: &str, pairs: &[Pair], named: bool) -> Result<f64> {
    let (mut ranks, mut slowest) = (Vec::new(), Duration::ZERO);
    for pair in pairs {
        let service = services.get(&pair.document);
        let service = service.with_context(|| format!("there is no document `{}`", pair.document))?;
        let started = Instant::now();
        let rank = service.rank(pair)?;
        slowest = slowest.max(started.elapsed());
        if named && rank.is_none_or(|rank| rank > WITHIN) {
            let place = rank.map_or_else(|| "not found".to_owned(), |rank| format!("at {rank}"));
            println!("  {}: `{}`: {} is {place}", pair.document, pair.query, pair.operation);
        }
        if let Some(within) = pair.within.filter(|within| rank.is_none_or(|rank| rank > *within)) {
            bail!("`{}` does not find {} among the first {within} hits", pair.query, pair.operation);
        }
        ranks.push(rank);
    }
    let share = |most: usize| {
        let found = ranks.iter().flatten().filter(|rank| **rank <= most).count();
        found as f64 / ranks.len().max(1) as f64
    };
    println!(
        "{list}: {} pairs, recall@1 {:.2}, @3 {:.2}, @5 {:.2}, @10 {:.2}; the slowest took {:.1} ms",
        ranks.len(),
        share(1),
        share(3),
        share(WITHIN),
        share(10),
        slowest.as_secs_f64() * 1e3
    );
    Ok(share(WITHIN))
}
