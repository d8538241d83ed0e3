//! Selects the operations that become tools.

use toolbay_policy::wildcard::text_matches;

use crate::name::OperationIdentity;
use crate::path_items::METHODS;

/// A line of `include` or `exclude`: `tag:NAME`, `op:ID`, `GET`, `/path/*`, or `GET /path/*`; `*` matches any run of
/// characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperationPattern {
    Tag(String),
    Id(String),
    Path(Option<String>, String),
}

impl OperationPattern {
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        if let Some(tag) = line.strip_prefix("tag:") {
            return Ok(Self::Tag(tag.to_owned()));
        }
        if let Some(id) = line.strip_prefix("op:") {
            return Ok(Self::Id(id.to_owned()));
        }
        if line.starts_with('/') {
            return Ok(Self::Path(None, line.to_owned()));
        }
        match line.split_once(' ') {
            Some((method, path))
                if path.starts_with('/') && method.bytes().all(|b| b.is_ascii_alphabetic()) =>
            {
                Ok(Self::Path(Some(method.to_ascii_uppercase()), path.to_owned()))
            }
            None if METHODS.iter().any(|(_, method)| line.eq_ignore_ascii_case(method)) => {
                Ok(Self::Path(Some(line.to_ascii_uppercase()), "*".to_owned()))
            }
            _ => Err(format!(
                "`{}` selects nothing: write `tag:NAME`, `op:ID`, `GET`, `/path/*` or `GET /path/*`",
                toolbay_policy::excerpt::one_line(line, 80)
            )),
        }
    }

    pub(crate) fn matches(&self, one: OperationIdentity<'_>, tags: &[String]) -> bool {
        match self {
            Self::Tag(tag) => tags.iter().any(|have| text_matches(tag, have)),
            Self::Id(id) => one.id.is_some_and(|have| text_matches(id, have)),
            Self::Path(method, path) => {
                method.as_ref().is_none_or(|method| method == one.method) && text_matches(path, one.path)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn include_and_exclude_match_tags_ids_methods_and_paths() {
        let tags = ["pet".to_owned(), "store admin".to_owned()];
        let one = OperationIdentity { id: Some("getPet"), method: "GET", path: "/pets/{id}" };
        for (include, exclude, expected) in [
            (vec![], vec![], true),
            (vec!["tag:pet"], vec![], true),
            (vec!["tag:other"], vec![], false),
            (vec!["tag:store*"], vec![], true),
            (vec!["op:get*"], vec!["op:*Pet"], false),
            (vec!["/pets/*"], vec![], true),
            (vec!["/pets"], vec![], false),
            (vec!["POST /pets/*", "get /pets/*"], vec![], true),
            (vec!["POST /pets/*"], vec![], false),
            (vec!["get"], vec![], true),
            (vec![], vec!["GET"], false),
            (vec!["DELETE"], vec![], false),
            (vec![], vec!["*"], true),
            (vec!["/*p*s/*}"], vec!["/*x*"], true),
        ] {
            let read = |lines: &[&str]| {
                lines.iter().filter_map(|line| OperationPattern::parse(line).ok()).collect::<Vec<_>>()
            };
            let fits = |lines: &[&str]| read(lines).iter().any(|pattern| pattern.matches(one, &tags));
            let wanted = (include.is_empty() || fits(&include)) && !fits(&exclude);
            assert_eq!(wanted, expected, "{include:?} {exclude:?}");
        }
        for line in ["", "*", "pets", "G/T /x", "GET pets"] {
            assert!(OperationPattern::parse(line).unwrap_err().contains("selects nothing"), "{line}");
        }
    }
}
