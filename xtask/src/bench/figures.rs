//! The figures of a run: the required ones, and the comparable ones.

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

use super::machine;

/// The figures that every quick run must measure.
const HEADLINE: [&str; 14] = [
    "floor_fresh_us",
    "library_fresh_us",
    "floor_two_threads_per_s",
    "library_two_workers_per_s",
    "native_tool_us",
    "native_tool_allocations",
    "stdio_p50_us",
    "rmcp_native_stdio_p50_us",
    "list_10000_ms",
    "list_10000_rss_mb",
    "serve_100_warm_cpu_ms",
    "idle_100_rss_mb",
    "spin16_neighbour_p99_us",
    "quiet_p99_us",
];

/// Only these figures of two runs are compared: each is a ratio of two sides that alternated in one run.
const RATIOS: [(&str, &str, &str); 4] = [
    ("a fresh call, to bare wasmtime", "library_fresh_us", "floor_fresh_us"),
    ("two workers, to two bare threads", "library_two_workers_per_s", "floor_two_threads_per_s"),
    ("over stdio, to the MCP library alone", "stdio_p50_us", "rmcp_native_stdio_p50_us"),
    ("p99 beside 16 that spin, to alone", "spin16_neighbour_p99_us", "quiet_p99_us"),
];

/// The figures of a file.
pub(crate) fn read(file: &str) -> Result<Map<String, Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{file}`"))?;
    serde_json::from_str(&text).with_context(|| format!("`{file}` has no figures"))
}

pub(crate) fn write(file: &str, figures: &Map<String, Value>) -> Result<()> {
    let text = serde_json::to_string_pretty(figures)? + "\n";
    std::fs::write(file, text).with_context(|| format!("cannot write `{file}`"))
}

/// An error that names the headline figures that are missing or not numbers.
pub(crate) fn complete(figures: &Map<String, Value>) -> Result<()> {
    let there = |name: &str| figures.get(name).and_then(Value::as_f64).is_some_and(|value| value > 0.0);
    let missing: Vec<&str> = HEADLINE.into_iter().filter(|name| !there(name)).collect();
    if !missing.is_empty() {
        bail!("the run left no `{}`: see above what its benchmark says", missing.join("`, `"));
    }
    Ok(())
}

/// Prints the ratios of two runs side by side. Refuses a run on a loaded machine.
pub(crate) fn compare(earlier: &Map<String, Value>, now: &Map<String, Value>) -> Result<()> {
    for (run, figures) in [("the earlier run", earlier), ("this run", now)] {
        if let Some(why) = machine::loaded(figures) {
            bail!("not compared: in {run}, {why}; run it again when nothing else does");
        }
    }
    println!("\n| ratio | earlier | now |\n|---|---|---|");
    for (name, above, below) in RATIOS {
        let ratio = |figures: &Map<String, Value>| {
            let figure = |name: &str| figures.get(name).and_then(Value::as_f64);
            Some(format!("{:.2}", figure(above)? / figure(below)?))
        };
        let [earlier, now] = [earlier, now].map(|figures| ratio(figures).unwrap_or_else(|| "–".to_owned()));
        println!("| {name} | {earlier} | {now} |");
    }
    println!("\nseconds of two runs are not compared, whatever the machine did");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures() -> Map<String, Value> {
        let conditions = [("busy_percent".to_owned(), json!(1)), ("stolen_percent".to_owned(), json!(0))];
        HEADLINE.iter().map(|name| ((*name).to_owned(), json!(1.5))).chain(conditions).collect()
    }

    #[test]
    fn a_figure_that_is_missing_is_named() {
        assert!(complete(&figures()).is_ok());
        for (name, instead) in [("list_10000_ms", None), ("quiet_p99_us", Some(json!(0)))] {
            let mut some = figures();
            some.remove(name);
            some.extend(instead.map(|value| (name.to_owned(), value)));
            let error = complete(&some).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }

    #[test]
    fn runs_on_a_loaded_machine_are_not_compared() {
        assert!(compare(&figures(), &figures()).is_ok());
        for (name, value, said) in
            [("busy_percent", 60, "others took 60 %"), ("stolen_percent", 9, "hypervisor")]
        {
            let mut loaded = figures();
            loaded.insert(name.to_owned(), json!(value));
            let error = compare(&figures(), &loaded).unwrap_err().to_string();
            assert!(error.contains("in this run") && error.contains(said), "{error}");
            let error = compare(&loaded, &figures()).unwrap_err().to_string();
            assert!(error.contains("in the earlier run"), "{error}");
        }
        // Figures of versions that did not record this.
        assert!(compare(&Map::new(), &figures()).is_err());
    }
}
