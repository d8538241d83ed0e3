//! Path templates: `/pets/{id}.json`.
//!
//! | a path ends in | what it means |
//! |---|---|
//! | `?beta=true` | the query parameter `beta` of every request, whatever the arguments are |
//! | `?id={id}` | the parameter `id` is sent there |
//! | `{?limit,page}` | a form of RFC 6570 for query parameters that the operation declares anyway |
//! | `#copy` | nothing: authors tell operations of one path apart in this way |
//!
//! `/pets/:id` is `/pets/{id}` if the operation has such a path parameter.

use std::collections::HashSet;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use toolbay_policy::excerpt::one_line;

/// What a path may not have as it is.
const PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'?').add(b'`').add(b'\\').add(b'}');
/// What a query may not have as it is.
const QUERY: &AsciiSet = &PATH.remove(b'?').add(b'\'').add(b'{').add(b'|').add(b'^').add(b';');

/// A piece of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathPiece {
    /// Literal text.
    Text(String),
    /// The value of this path parameter.
    Parameter(String),
}

/// A query parameter that the path has with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FixedQuery {
    /// The decoded name.
    pub(crate) name: String,
    /// `name=value` as it is sent.
    pub(crate) text: String,
}

/// A parsed template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PathTemplate {
    pub(crate) pieces: Vec<PathPiece>,
    pub(crate) query: Vec<FixedQuery>,
    /// Query parameters that are sent under another name: the name in the query, and the parameter.
    pub(crate) bound: Vec<(String, String)>,
    /// Query parameters that the template lists (RFC 6570).
    pub(crate) listed: Vec<String>,
}

impl PathTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// The path is invalid or ambiguous.
    pub(crate) fn parse(template: &str) -> Result<Self, String> {
        let (template, _) = split_outside_braces(template, '#');
        let (path, query) = split_outside_braces(template, '?');
        // A step up is refused in every spelling, also in the author's text.
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        if decoded.split(['/', '\\']).any(|segment| matches!(segment.split(';').next(), Some("." | ".."))) {
            return Err("its path contains a `.` or `..`".to_owned());
        }
        let mut out = Self::default();
        out.parse_path(path)?;
        out.parse_query(query.unwrap_or_default())?;
        Ok(out)
    }

    fn parse_path(&mut self, path: &str) -> Result<(), String> {
        let mut rest = path;
        while let Some((text, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("its path has a `{` without a `}`")?;
            if !text.is_empty() {
                self.pieces.push(PathPiece::Text(utf8_percent_encode(text, PATH).to_string()));
            }
            match name.strip_prefix(['?', '&']) {
                Some(names) => self.listed.extend(rfc_6570_names(names)),
                None => self.pieces.push(PathPiece::Parameter(name.to_owned())),
            }
            rest = after;
        }
        if !rest.is_empty() {
            self.pieces.push(PathPiece::Text(utf8_percent_encode(rest, PATH).to_string()));
        }
        Ok(())
    }

    /// Adds the query of a server. What the path says of a parameter wins.
    pub(crate) fn add_query(&mut self, server: Self) {
        let is_own = |name: &str| {
            self.query.iter().any(|one| one.name == name) || self.bound.iter().any(|(own, _)| own == name)
        };
        let new: Vec<FixedQuery> = server.query.into_iter().filter(|one| !is_own(&one.name)).collect();
        self.query.splice(..0, new);
    }

    /// Reads the path parameters that the path writes as `/:id`, in the style of Express.
    pub(crate) fn read_colons(&mut self, is_parameter: impl Fn(&str) -> bool) {
        for piece in std::mem::take(&mut self.pieces) {
            let PathPiece::Text(text) = piece else {
                self.pieces.push(piece);
                continue;
            };
            let mut parts = text.split("/:");
            let mut kept = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                kept.push('/');
                let segment = part.split('/').next().unwrap_or_default();
                let word = segment
                    .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .next()
                    .unwrap_or_default();
                let Some(name) = [segment, word].into_iter().find(|name| is_parameter(name)) else {
                    kept.extend([":", part]);
                    continue;
                };
                self.pieces.push(PathPiece::Text(std::mem::take(&mut kept)));
                self.pieces.push(PathPiece::Parameter(name.to_owned()));
                kept.push_str(part.get(name.len()..).unwrap_or_default());
            }
            if !kept.is_empty() {
                self.pieces.push(PathPiece::Text(kept));
            }
        }
    }

    fn parse_query(&mut self, query: &str) -> Result<(), String> {
        let mut names = HashSet::new();
        // `?v=1{&limit}`: the form ends the query.
        let (query, listed) = query.split_once("{&").unwrap_or((query, "}"));
        let listed = listed.strip_suffix('}').ok_or("its path has a `{` without a `}`")?;
        self.listed.extend(rfc_6570_names(listed));
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
            let decoded = percent_decode_str(&name.replace('+', " ")).decode_utf8_lossy().into_owned();
            if !names.insert(decoded.clone()) {
                return Err(format!("its path has the query parameter `{}` twice", one_line(&decoded, 60)));
            }
            let parameter = value.and_then(|value| value.strip_prefix('{')?.strip_suffix('}'));
            match parameter.filter(|parameter| !parameter.contains(['{', '}'])) {
                Some(parameter) if !name.contains(['{', '}']) => {
                    self.bound.push((decoded, parameter.to_owned()));
                }
                None if !part.contains(['{', '}']) => {
                    let text = utf8_percent_encode(part, QUERY).to_string();
                    self.query.push(FixedQuery { name: decoded, text });
                }
                _ => {
                    let shown = one_line(part, 60);
                    return Err(format!("its path has the query `{shown}`, which mixes text and parameters"));
                }
            }
        }
        Ok(())
    }
}

fn rfc_6570_names(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(|name| name.trim_end_matches('*').to_owned()).filter(|name| !name.is_empty())
}

/// Splits a text at the first `at` that no braces enclose.
fn split_outside_braces(text: &str, at: char) -> (&str, Option<&str>) {
    let mut depth = 0_usize;
    for (n, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ if c == at && depth == 0 => {
                let (before, after) = text.split_at_checked(n).unwrap_or((text, ""));
                return (before, after.get(c.len_utf8()..));
            }
            _ => {}
        }
    }
    (text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_names_a_parameter_that_the_operation_has() {
        let text = |text: &str| PathPiece::Text(text.to_owned());
        let parameter = |name: &str| PathPiece::Parameter(name.to_owned());
        for (path, pieces) in [
            ("/f/:id", vec![text("/f/"), parameter("id")]),
            ("/:id/x/:pet-id", vec![text("/"), parameter("id"), text("/x/"), parameter("pet-id")]),
            ("/f/:id.json", vec![text("/f/"), parameter("id"), text(".json")]),
            ("/f/{id}:cancel/:other", vec![text("/f/"), parameter("id"), text(":cancel/:other")]),
            ("/f/:idle", vec![text("/f/:idle")]),
        ] {
            let mut read = PathTemplate::parse(path).unwrap();
            read.read_colons(|name| ["id", "pet-id"].contains(&name));
            assert_eq!(read.pieces, pieces, "{path}");
        }
    }

    #[test]
    fn a_query_of_a_path_is_read() {
        let names = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        for (path, query, bound, listed) in [
            ("/m?beta=true", vec![("beta", "beta=true")], vec![], vec![]),
            ("/m#copy", vec![], vec![], vec![]),
            ("/m?a=b%20c&publish#copy", vec![("a", "a=b%20c"), ("publish", "publish")], vec![], vec![]),
            ("/m?a=\" <'", vec![("a", "a=%22%20%3C%27")], vec![], vec![]),
            ("/m?id={key}&v=2", vec![("v", "v=2")], vec![("id", "key")], vec![]),
            ("/m{?limit,page*}", vec![], vec![], vec!["limit", "page"]),
            ("/m?v=1{&limit}", vec![("v", "v=1")], vec![], vec!["limit"]),
            ("/m?", vec![], vec![], vec![]),
        ] {
            let read = PathTemplate::parse(path).unwrap();
            assert_eq!(read.pieces, [PathPiece::Text("/m".to_owned())], "{path}");
            let fixed: Vec<_> = read.query.iter().map(|one| (one.name.clone(), one.text.clone())).collect();
            assert_eq!((fixed, read.bound), (names(&query), names(&bound)), "{path}");
            assert_eq!(read.listed, listed, "{path}");
        }
        for (path, part) in [
            ("/m?a={x}y", "mixes text and parameters"),
            ("/m?a={x}{y}", "mixes text and parameters"),
            ("/m?{x}=1", "mixes text and parameters"),
            ("/m?a=1&a=2", "`a` twice"),
            ("/m?a=1&%61=2", "`a` twice"),
            ("/a/{b", "without a `}`"),
            ("/a?x=1{&b", "without a `}`"),
            ("/a/../b?x", "`.` or `..`"),
            ("/a/%2e%2E/b", "`.` or `..`"),
        ] {
            let error = PathTemplate::parse(path).unwrap_err();
            assert!(error.contains(part), "{path}: {error}");
        }
    }
}
