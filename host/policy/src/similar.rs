//! Names that may have been meant.

use crate::name;

/// The names most like one that does not exist, best first: at most three.
#[must_use]
pub fn similar_names<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = normalize(&name.chars().take(100).collect::<String>());
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| {
            let bare = name::split_qualified(name).map_or(0.0, |(_, bare)| similarity(&wanted, &normalize(bare)));
            (similarity(&wanted, &normalize(name)).max(bare), name)
        })
        .filter(|(likeness, _)| *likeness >= 0.5)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The one sentence that suggests names, behind what says that there is none: `. Did you mean: a, b?`; nothing without
/// a name.
#[must_use]
pub fn did_you_mean(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!(". Did you mean: {}?", names.join(", ")) }
}

/// Common letter pairs forgive another order of the parts; what is mistyped in a short name leaves few of them.
fn similarity(one: &str, other: &str) -> f64 {
    let typed = strsim::normalized_damerau_levenshtein(one, other);
    strsim::sorensen_dice(one, other).max(if typed < 0.6 { 0.0 } else { typed })
}

/// A name as names are compared: in lower case, without separators.
#[must_use]
pub fn normalize(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '/' | ' ' | '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Whether two names differ in nothing but case and separators.
#[must_use]
pub fn same_name(one: &str, other: &str) -> bool {
    normalize(one) == normalize(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_proposed() {
        let names = ["p__read_file", "p__write_file", "q__search_web"];
        assert_eq!(similar_names("p__readfile", names), ["p__read_file", "p__write_file"]);
        assert_eq!(similar_names("p__rite_file", names), ["p__write_file", "p__read_file"]);
        assert_eq!(similar_names("serach_web", names), ["q__search_web"]);
        assert_eq!(similar_names("zzz", names), Vec::<&str>::new());
        assert_eq!(similar_names("", names), Vec::<&str>::new());
    }
}
