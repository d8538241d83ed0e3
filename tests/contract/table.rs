//! The features that every SDK has, and how many cases show each of them in each language.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::cases::Comparison;

/// `table.toml`, with the results.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    #[serde(rename = "row")]
    rows: Vec<TableRow>,
}

/// A feature. The documentation shows its name in each language.
#[derive(Debug, Deserialize)]
struct TableRow {
    feature: String,
    /// The tools of its cases, or the pointers that they inspect.
    shown_by: Vec<String>,
    /// Passed and failed cases by language.
    #[serde(skip)]
    results: BTreeMap<&'static str, (usize, usize)>,
}

impl Table {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(folder.join("table.toml"))?;
        toml::from_str(&text).context("`table.toml`")
    }

    /// Counts a case in the rows that it shows.
    pub(crate) fn count(&mut self, language: &'static str, case: &Comparison<'_>) -> Result<()> {
        let shows = |row: &&mut TableRow| {
            case.subject.is_empty() || row.shown_by.iter().any(|one| one == case.subject)
        };
        let mut found = false;
        for row in self.rows.iter_mut().filter(shows) {
            found = true;
            let (passed, failed) = row.results.entry(language).or_default();
            match case.problem {
                // The declarations as a whole show no single feature, but must be equal.
                None => *passed += usize::from(!case.subject.is_empty()),
                Some(_) => *failed += 1,
            }
        }
        ensure!(found, "no row of `table.toml` is shown by `{}`", case.subject);
        Ok(())
    }

    /// Prints the rows: for each language the passed cases, and the failed ones.
    pub(crate) fn print(&self) {
        println!();
        for row in &self.rows {
            let results = row.results.iter().map(|(language, (passed, failed))| match failed {
                0 => format!("{language} {passed}"),
                _ => format!("{language} {passed}, {failed} FAILED"),
            });
            println!("{:<30}{}", row.feature, results.collect::<Vec<_>>().join("  "));
        }
    }

    /// Fails unless each row was shown in each language, and nothing failed.
    pub(crate) fn check(&self, languages: usize) -> Result<()> {
        for TableRow { feature, results, .. } in &self.rows {
            ensure!(results.len() == languages, "`{feature}` is not shown in every language");
            for (language, (passed, failed)) in results {
                ensure!(
                    *failed == 0 && *passed > 0,
                    "{language}: {passed} cases of `{feature}` passed, {failed} failed"
                );
            }
        }
        Ok(())
    }
}
