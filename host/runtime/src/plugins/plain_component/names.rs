//! Derives tool names from export names: as short as possible, but distinct.
//!
//! A function at the top level keeps its name. A function of an interface gets `INTERFACE-FUNCTION`. If two names are
//! equal, the package is put in front, then its namespace, and then the version after the interface.

use std::collections::BTreeMap;

use super::ExportPath;

/// The number of names that are tried for one function.
const MAX_STEPS: usize = 4;

/// The tool name of each export; `None` if no distinct name exists.
pub(super) fn tool_names(exports: &[ExportPath]) -> Vec<Option<String>> {
    let mut steps = vec![0; exports.len()];
    // Each round advances at least one export.
    loop {
        let names: Vec<String> =
            exports.iter().zip(&steps).map(|(export, step)| name_at_step(export, *step)).collect();
        let mut users: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            users.entry(name).or_default().push(index);
        }
        let mut moved = false;
        for user in users.values().filter(|users| users.len() > 1).flatten() {
            let Some((step, export)) = steps.get_mut(*user).zip(exports.get(*user)) else { continue };
            if export.interface.is_some() && *step + 1 < MAX_STEPS {
                *step += 1;
                moved = true;
            }
        }
        if !moved {
            let alone = |name: &String| users.get(name.as_str()).is_some_and(|users| users.len() == 1);
            return names.iter().map(|name| alone(name).then(|| name.clone())).collect();
        }
    }
}

/// The name of an export at a step.
fn name_at_step(export: &ExportPath, step: usize) -> String {
    let Some(interface) = &export.interface else { return sanitize(&export.function) };
    let (path, version) =
        interface.split_once('@').map_or((interface.as_str(), None), |(path, v)| (path, Some(v)));
    let (package, short) =
        path.rsplit_once('/').map_or((None, path), |(package, short)| (Some(package), short));
    let (space, package) = match package.map(|package| package.rsplit_once(':').unwrap_or(("", package))) {
        Some((space, package)) => (Some(space), Some(package)),
        None => (None, None),
    };
    let parts = [
        space.filter(|_| step >= 2),
        package.filter(|_| step >= 1),
        Some(short),
        version.filter(|_| step >= 3),
        Some(export.function.as_str()),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    sanitize(&parts.join("-"))
}

/// WIT names have letters, digits and `-`; versions and nested packages have other characters.
fn sanitize(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_distinct() {
        for (exports, names) in [
            (vec!["fetch", "fetch-all"], vec!["fetch", "fetch-all"]),
            (vec!["a:b/get@1.0.0#page", "c:d/put#page"], vec!["get-page", "put-page"]),
            (vec!["a:b/get#page", "a:c/get#page"], vec!["b-get-page", "c-get-page"]),
            (vec!["a:b/get#page", "x:b/get#page"], vec!["a-b-get-page", "x-b-get-page"]),
            (
                vec!["a:b/get@1.0.0#page", "a:b/get@2.0.0#page"],
                vec!["a-b-get-1-0-0-page", "a-b-get-2-0-0-page"],
            ),
            (vec!["get-page", "a:b/get#page"], vec!["get-page", "b-get-page"]),
            // A longer name can collide with a name that was distinct before.
            (vec!["get-page", "b-get-page", "a:b/get#page"], vec!["get-page", "b-get-page", "a-b-get-page"]),
            (vec!["get#page", "a:b/get-page#x"], vec!["get-page", "get-page-x"]),
        ] {
            let exports: Vec<ExportPath> = exports.into_iter().map(parse).collect();
            assert_eq!(
                tool_names(&exports),
                names.into_iter().map(|name| Some(name.to_owned())).collect::<Vec<_>>()
            );
        }
        // Two exports without distinct names.
        let twins = ["get-page", "get#page"].map(parse);
        assert_eq!(tool_names(&twins), [None, None]);
    }

    fn parse(text: &str) -> ExportPath {
        let (interface, function) = match text.split_once('#') {
            Some((interface, function)) => (Some(interface.to_owned()), function),
            None => (None, text),
        };
        ExportPath { interface, function: function.to_owned() }
    }
}
