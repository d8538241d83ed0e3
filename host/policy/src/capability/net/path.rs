//! URL path patterns. A request is matched segment by segment, after its escapes are normalized.
//!
//! | pattern | matches | does not match |
//! |---|---|---|
//! | `/v1/chat` | `/v1/chat` | `/v1/chat/`, `/v1/chat/x` |
//! | `/repos/*` | `/repos/`, `/repos/me/x` | `/repos`, `/reposx` |
//! | `/repos/*/issues` | `/repos/me/issues` | `/repos/me/x/issues`, `/repos//issues` |
//!
//! Some servers interpret `%2f` or `..;` differently from this matcher. [`normalized_segments`] refuses ambiguous
//! paths, so only unambiguous ones are compared.

use std::sync::OnceLock;

use percent_encoding::percent_decode_str;
use url::Url;

/// Most segments of a pattern, and of a path that is matched.
const MAX_SEGMENTS: usize = 256;

/// A path pattern. A `*` as last segment matches one or more segments; elsewhere it matches one non-empty segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathPattern(Vec<PathSegment>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PathSegment {
    Literal(String),
    Any,
}

impl PathPattern {
    /// Parses a pattern that starts with `/`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("the path `{text}` {why}"));
        if text.contains(['?', '#', '\\']) || text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return wrong("has a `?`, `#`, `\\` or white space: write only a path");
        }
        // The URL parser normalizes request paths. The pattern uses the same parser.
        let Ok(url) = Url::parse(&format!("https://x{text}")) else { return wrong("cannot be parsed") };
        if url.path().split('/').count() != text.split('/').count() {
            return wrong("contains a `.` or `..`");
        }
        let path = normalized_segments(url.path())?;
        let segments = path.into_iter().map(|segment| match segment.as_str() {
            "*" => Ok(PathSegment::Any),
            part if part.contains('*') => {
                Err(format!("the path `{text}`: a `*` must stand for a whole segment, `/repos/*`"))
            }
            _ => Ok(PathSegment::Literal(segment)),
        });
        segments.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the exact intersection, or `None` if it is empty.
    pub(super) fn intersect(&self, other: &Self) -> Option<Self> {
        let (mut left, mut right) = (self.0.as_slice(), other.0.as_slice());
        let mut both = Vec::new();
        loop {
            match (left, right) {
                ([], []) => return Some(Self(both)),
                ([], _) | (_, []) => return None,
                ([PathSegment::Any], rest) | (rest, [PathSegment::Any]) => {
                    both.extend_from_slice(rest);
                    return Some(Self(both));
                }
                ([l, left_rest @ ..], [r, right_rest @ ..]) => {
                    both.push(l.intersect(r)?);
                    (left, right) = (left_rest, right_rest);
                }
            }
        }
    }

    /// Whether it matches the segments from [`normalized_segments`].
    pub(super) fn matches(&self, path: &[String]) -> bool {
        let mut left = path.iter();
        let mut pattern = self.0.iter().peekable();
        while let Some(segment) = pattern.next() {
            let Some(part) = left.next() else { return false };
            match segment {
                PathSegment::Any if pattern.peek().is_none() => return true,
                PathSegment::Any if part.is_empty() => return false,
                PathSegment::Literal(literal) if literal != part => return false,
                PathSegment::Any | PathSegment::Literal(_) => {}
            }
        }
        left.next().is_none()
    }
}

impl PathSegment {
    fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, Self::Literal(text)) | (Self::Literal(text), Self::Any) if text.is_empty() => None,
            (Self::Any, one) | (one, Self::Any) => Some(one.clone()),
            (Self::Literal(a), Self::Literal(b)) => (a == b).then(|| self.clone()),
        }
    }
}

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for segment in &self.0 {
            match segment {
                PathSegment::Literal(text) => write!(f, "/{text}")?,
                PathSegment::Any => f.write_str("/*")?,
            }
        }
        Ok(())
    }
}

/// The path of a request. Its segments are parsed once, when the first pattern needs them: most rules have no
/// pattern.
#[derive(Debug, Clone)]
pub(super) struct RequestPath {
    text: String,
    segments: OnceLock<Result<Vec<String>, String>>,
}

impl RequestPath {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), segments: OnceLock::new() }
    }

    /// The segments for matching, from [`normalized_segments`].
    pub(super) fn segments(&self) -> Result<&[String], String> {
        match self.segments.get_or_init(|| normalized_segments(&self.text)) {
            Ok(segments) => Ok(segments),
            Err(problem) => Err(problem.clone()),
        }
    }
}

impl PartialEq for RequestPath {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for RequestPath {}

/// Returns the segments of a URL path with normalized escapes (RFC 3986, section 6.2.2): only necessary escapes, in
/// upper case.
///
/// # Errors
/// Some server could interpret a segment as several segments or as `..`.
pub(super) fn normalized_segments(path: &str) -> Result<Vec<String>, String> {
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    if segments.len() > MAX_SEGMENTS {
        return Err(format!("the path has more than {MAX_SEGMENTS} segments"));
    }
    for segment in &segments {
        if is_ambiguous(segment) {
            return Err(
                "the path has an encoded slash, a backslash, a `..` or a control character, so no path pattern matches it"
                    .to_owned(),
            );
        }
    }
    Ok(segments.into_iter().map(normalize_escapes).collect())
}

/// Whether a segment could be several segments or `..` after decoding, even if a server decodes it repeatedly.
#[must_use]
pub fn is_ambiguous(segment: &str) -> bool {
    let mut text = segment.as_bytes().to_vec();
    for _ in 0..4 {
        if text.iter().any(|b| matches!(b, b'/' | b'\\') || b.is_ascii_control()) {
            return true;
        }
        // Servers that support path parameters treat `..;x=y` as `..`.
        let name = text.split(|b| *b == b';').next().unwrap_or_default();
        if matches!(name, b"." | b"..") {
            return true;
        }
        let decoded: Vec<u8> = percent_decode_str(&String::from_utf8_lossy(&text)).collect();
        if decoded == text {
            return false;
        }
        text = decoded;
    }
    true
}

fn normalize_escapes(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        // `from_str_radix` alone would accept a sign.
        let digits = escape.get(1..3).filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = digits.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let Some(code) = code else {
            out.push_str("%25");
            rest = escape.get(1..).unwrap_or_default();
            continue;
        };
        if code.is_ascii_alphanumeric() || matches!(code, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(code));
        } else {
            out.push_str(&format!("%{code:02X}"));
        }
        rest = escape.get(3..).unwrap_or_default();
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_escape_is_a_percent_sign() {
        for (segment, text) in [
            ("%+8x", "%25+8x"),
            ("%", "%25"),
            ("%4", "%254"),
            ("%41%2b", "A%2B"),
            ("%g1", "%25g1"),
            ("%-1", "%25-1"),
        ] {
            assert_eq!(normalize_escapes(segment), text);
        }
    }

    #[test]
    fn paths_match_segment_by_segment() {
        for (pattern, path, matches) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/*", "/", true),
            ("/*", "/a/b", true),
            ("/v1/chat", "/v1/chat", true),
            ("/v1/chat", "/v1/chat/", false),
            ("/v1/chat", "/v1/Chat", false),
            ("/repos/*", "/repos/", true),
            ("/repos/*", "/repos/a/b", true),
            ("/repos/*", "/repos", false),
            ("/repos/*", "/reposevil", false),
            ("/repos/*", "//repos/a", false),
            ("/repos/*/issues", "/repos/me/issues", true),
            ("/repos/*/issues", "/repos//issues", false),
            ("/repos/*/issues", "/repos/a/b/issues", false),
            ("/%61b", "/ab", true),
            ("/ü", "/%c3%bc", true),
            ("/a%2Ab", "/a%2ab", true),
        ] {
            let url = Url::parse(&format!("https://x{path}")).unwrap();
            let found =
                PathPattern::parse(pattern).unwrap().matches(&normalized_segments(url.path()).unwrap());
            assert_eq!(found, matches, "{pattern} {path}");
        }
        for pattern in
            ["/a*", "/*a/b", "/a/../b", "/./a", "/a?b", "/a#b", "/a\\b", "/a b", "/a%2fb", "/%2e%2e/a"]
        {
            assert!(PathPattern::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn an_ambiguous_path_is_refused() {
        for path in [
            "/repos/..%2fadmin",
            "/repos/..%2Fadmin",
            "/repos/%2e%2e%2fadmin",
            "/repos/..%5cadmin",
            "/repos/..;/admin",
            "/repos/%2e%2e;x=y/admin",
            "/repos/%252e%252e/admin",
            "/repos/%25252e%25252e/admin",
            "/repos/x%252fadmin",
            "/repos/%00",
            "/repos/a%0d%0ab",
            "/repos/%2525252525252525252e",
        ] {
            let url = Url::parse(&format!("https://x{path}")).unwrap();
            assert!(normalized_segments(url.path()).is_err(), "{path}");
        }
        for (path, stays) in
            [("/repos/../admin", "/admin"), ("/repos/%2e%2e/admin", "/admin"), ("/a\\..\\b", "/b")]
        {
            assert_eq!(
                Url::parse(&format!("https://x{path}")).unwrap().path(),
                stays,
                "the parser resolves it"
            );
        }
    }
}
