//! The reason why a component cannot be linked, as one sentence: the missing import with its version, and what to do.

use toolbay_policy::excerpt::one_line;

/// Maximum length of an interface's name in a message, in characters.
const MAX_NAME: usize = 120;

/// The WASI packages that the linker has, with their versions. A version with two numbers covers all its patches.
const PROVIDED: [(&str, &[&str]); 9] = [
    ("wasi:cli", &["0.2", "0.3"]),
    ("wasi:clocks", &["0.2", "0.3"]),
    ("wasi:config", &["0.2.0-rc.1"]),
    ("wasi:filesystem", &["0.2", "0.3"]),
    ("wasi:http", &["0.2", "0.3"]),
    ("wasi:io", &["0.2"]),
    ("wasi:keyvalue", &["0.2.0-draft"]),
    ("wasi:random", &["0.2", "0.3"]),
    ("wasi:sockets", &["0.2", "0.3"]),
];

/// The WASI packages that the linker has only with a feature, which this program was built without.
const LEFT_OUT: &[(&str, &str)] = &[
    #[cfg(not(feature = "net"))]
    ("wasi:http", "net"),
];

/// Describes the missing one of a component's `imports`. `reason` is the linker's message, which names it:
/// wasmtime has no type for it.
pub(super) fn describe<'a>(mut imports: impl Iterator<Item = &'a str>, reason: &str) -> String {
    let Some(name) = imports.find(|name| reason.contains(&format!("`{name}`"))) else {
        return format!("imports what this host does not provide: {reason}");
    };
    let (path, version) = name.split_once('@').unwrap_or((name, ""));
    let package = path.split_once('/').map_or(path, |(package, _)| package);
    let provided = PROVIDED.iter().find(|(known, _)| *known == package).map_or(&[][..], |(_, all)| *all);
    let shown = one_line(name, MAX_NAME);
    if let Some((_, feature)) = LEFT_OUT.iter().find(|(known, _)| *known == package) {
        return format!(
            "imports `{shown}`, but this program was built without the feature `{feature}` of the crate `toolbay`"
        );
    }
    if provided.is_empty() {
        return format!(
            "imports `{shown}`, which this host does not provide: rebuild it without this import, or compose it with a \
             component that exports it (`wac plug`)"
        );
    }
    if !provided.iter().any(|known| covers(known, version)) {
        return format!(
            "imports `{shown}`, but this host provides `{package}` {}: rebuild it for a version that the host provides",
            provided.join(" and ")
        );
    }
    // The interface exists only in part, or not in this package.
    match reason.split_once("instance export `").and_then(|(_, rest)| rest.split_once('`')) {
        Some((item, problem)) => format!(
            "imports `{}` of `{shown}`, which this host does not provide in this form ({}): rebuild it with released \
             WIT of `{package}@{version}`, or without this import",
            one_line(item, MAX_NAME),
            problem.rsplit(": ").next().unwrap_or_default()
        ),
        None => format!("imports `{shown}`, which does not fit: {reason}"),
    }
}

/// Whether a provided version serves an import of `version`.
fn covers(provided: &str, version: &str) -> bool {
    let rest = version.strip_prefix(provided);
    rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with('.') && !rest.contains('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_import_is_one_sentence_with_version_and_advice() {
        let linker = |name: &str| {
            format!(
                "component imports instance `{name}`, but a matching implementation was not found in the linker: \
                 instance export `f` has the wrong type: function implementation is missing"
            )
        };
        for (name, said) in [
            (
                "wasi:nn/graph@0.2.0-rc-2024-10-28",
                "imports `wasi:nn/graph@0.2.0-rc-2024-10-28`, which this host does not provide: rebuild it without \
                 this import, or compose it with a component that exports it (`wac plug`)",
            ),
            (
                "wasi:http/types@0.4.0",
                "imports `wasi:http/types@0.4.0`, but this host provides `wasi:http` 0.2 and 0.3: rebuild it for a \
                 version that the host provides",
            ),
            (
                "wasi:http/types@0.2.3",
                "imports `f` of `wasi:http/types@0.2.3`, which this host does not provide in this form (function \
                 implementation is missing): rebuild it with released WIT of `wasi:http@0.2.3`, or without this import",
            ),
        ] {
            assert_eq!(describe(["wasi:cli/run@0.2.0", name].into_iter(), &linker(name)), said);
        }
        assert!(describe(std::iter::empty(), "no such thing").contains("no such thing"));
    }
}
