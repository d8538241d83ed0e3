//! Suggestions for mistyped names.

use crate::name;

/// Returns the up to three names that are most similar to `name`, best first.
#[must_use]
pub fn similar_names<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = normalize(&name.chars().take(100).collect::<String>());
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| {
            let bare =
                name::split_qualified(name).map_or(0.0, |(_, bare)| similarity(&wanted, &normalize(bare)));
            (similarity(&wanted, &normalize(name)).max(bare), name)
        })
        .filter(|(likeness, _)| *likeness >= 0.5)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Formats the suggestion for a mistyped name: ``did you mean `a`?``, ``did you mean `a`, `b` or `c`?``. `None` without
/// names.
#[must_use]
pub fn did_you_mean(names: &[&str]) -> Option<String> {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let (last, others) = quoted.split_last()?;
    let names = if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) };
    Some(format!("did you mean {names}?"))
}

/// Takes the better of two measures. Shared letter pairs tolerate reordered parts; the edit distance covers typos in
/// short names, which share few pairs.
fn similarity(one: &str, other: &str) -> f64 {
    let typed = strsim::normalized_damerau_levenshtein(one, other);
    strsim::sorensen_dice(one, other).max(if typed < 0.6 { 0.0 } else { typed })
}

/// Normalizes a name for comparison: lower case, without separators.
#[must_use]
pub fn normalize(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '/' | ' ' | '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Whether two names are equal apart from case and separators.
#[must_use]
pub fn same_name(one: &str, other: &str) -> bool {
    normalize(one) == normalize(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested() {
        let names = ["p__read_file", "p__write_file", "q__search_web"];
        assert_eq!(similar_names("p__readfile", names), ["p__read_file", "p__write_file"]);
        assert_eq!(similar_names("p__rite_file", names), ["p__write_file", "p__read_file"]);
        assert_eq!(similar_names("serach_web", names), ["q__search_web"]);
        assert_eq!(similar_names("zzz", names), Vec::<&str>::new());
        assert_eq!(similar_names("", names), Vec::<&str>::new());
    }

    #[test]
    fn a_suggestion_quotes_each_name() {
        for (names, expected) in [
            (&[][..], None),
            (&["a"], Some("did you mean `a`?")),
            (&["a", "b"], Some("did you mean `a` or `b`?")),
            (&["a", "b", "c"], Some("did you mean `a`, `b` or `c`?")),
        ] {
            assert_eq!(did_you_mean(names).as_deref(), expected);
        }
    }
}
