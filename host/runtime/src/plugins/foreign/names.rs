//! Names of tools from names of exports: as short as they can be while no two are the same.
//!
//! A function that is exported by itself keeps its name. One of an interface gets `INTERFACE-FUNCTION`; where two would
//! be the same, the package stands before that, then its name space, then the version behind the interface.

use std::collections::BTreeMap;

use super::Export;

/// As many names as there are for one function.
const STEPS: usize = 4;

/// The name of each; `None`: there is none that no other has.
pub(super) fn of(exports: &[Export]) -> Vec<Option<String>> {
    let mut steps = vec![0; exports.len()];
    // Each round takes at least one of them a step further.
    loop {
        let names: Vec<String> =
            exports.iter().zip(&steps).map(|(export, step)| name(export, *step)).collect();
        let mut users: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            users.entry(name).or_default().push(index);
        }
        let mut moved = false;
        for user in users.values().filter(|users| users.len() > 1).flatten() {
            let Some((step, export)) = steps.get_mut(*user).zip(exports.get(*user)) else { continue };
            if export.interface.is_some() && *step + 1 < STEPS {
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

/// The name after so many steps.
fn name(export: &Export, step: usize) -> String {
    let Some(interface) = &export.interface else { return legal(&export.function) };
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
    legal(&parts.join("-"))
}

/// Names of WIT have letters, digits and `-`; versions and nested packages have more.
fn legal(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
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
            // One that went further met one that had not.
            (vec!["get-page", "b-get-page", "a:b/get#page"], vec!["get-page", "b-get-page", "a-b-get-page"]),
            (vec!["get#page", "a:b/get-page#x"], vec!["get-page", "get-page-x"]),
        ] {
            let exports: Vec<Export> = exports.into_iter().map(parse).collect();
            assert_eq!(of(&exports), names.into_iter().map(|name| Some(name.to_owned())).collect::<Vec<_>>());
        }
        // Two that cannot be told apart have no name.
        let twins = ["get-page", "get#page"].map(parse);
        assert_eq!(of(&twins), [None, None]);
    }

    fn parse(text: &str) -> Export {
        let (interface, function) = match text.split_once('#') {
            Some((interface, function)) => (Some(interface.to_owned()), function),
            None => (None, text),
        };
        Export { interface, function: function.to_owned() }
    }
}
