//! `WWW-Authenticate` and `Proxy-Authenticate` (RFC 9110, sections 11.6.1 and 11.7.1):
//!
//! ```text
//! SCHEME [KEY="VALUE" *( "," KEY=VALUE )] *( "," SCHEME … )
//! ```
//!
//! The parameters are claims of a server; the caller checks them. Values without quotes may contain any character but
//! commas and spaces, because servers write URLs like that.

use std::collections::BTreeMap;

/// Longest header that is read, in bytes. A longer one counts as absent.
const MAX_HEADER: usize = 8 << 10;

/// A challenge of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpChallenge {
    /// In lower case.
    scheme: String,
    /// With names in lower case.
    parameters: BTreeMap<String, String>,
}

impl HttpChallenge {
    /// Whether the challenge has a scheme, which is in lower case.
    #[must_use]
    pub fn has_scheme(&self, scheme: &str) -> bool {
        self.scheme == scheme
    }

    /// The scheme, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The value of a parameter, whose name is in lower case.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// The challenges of a response, whose header names are in lower case.
    #[must_use]
    pub fn from_headers(headers: &[(String, String)]) -> Vec<Self> {
        let values = headers.iter().filter(|(name, _)| name == "www-authenticate");
        values.flat_map(|(_, value)| Self::parse_all(value)).collect()
    }

    /// The challenges in the value of a header, up to the first one that cannot be read.
    #[must_use]
    pub fn parse_all(header: &str) -> Vec<Self> {
        let mut challenges: Vec<Self> = Vec::new();
        if header.len() > MAX_HEADER {
            return challenges;
        }
        let mut rest = header.trim_start_matches([',', ' ', '\t']);
        while !rest.is_empty() {
            let (word, after) = split_token(rest);
            if word.is_empty() {
                break;
            }
            let after_space = after.trim_start();
            if let Some(value) = after_space.strip_prefix('=') {
                let Some((value, after)) = split_value(value.trim_start()) else { break };
                let Some(challenge) = challenges.last_mut() else { break };
                // The first one counts: a second realm must not replace the one that was checked.
                challenge.parameters.entry(word.to_ascii_lowercase()).or_insert(value);
                rest = after;
            } else {
                challenges.push(Self { scheme: word.to_ascii_lowercase(), parameters: BTreeMap::new() });
                rest = after_space;
            }
            rest = rest.trim_start_matches([',', ' ', '\t']);
        }
        challenges
    }
}

fn split_token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

/// The text up to a comma or space, or a quoted text without its escapes.
fn split_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([',', ' ', '\t']).unwrap_or(text.len()));
        return Some((value.to_owned(), rest));
    };
    let (mut value, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(chars.next()?),
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let shown = |header: &str| {
            let all = HttpChallenge::parse_all(header).into_iter().map(|one| {
                let parameters = one.parameters.iter().map(|(key, value)| format!(" {key}={value}"));
                format!("{}{}", one.scheme, parameters.collect::<String>())
            });
            all.collect::<Vec<_>>().join("; ")
        };
        for (header, expected) in [
            (r#"Basic realm="a b""#, "basic realm=a b"),
            (
                r#"Bearer realm="https://a/t",service="s",scope="x,y""#,
                "bearer realm=https://a/t scope=x,y service=s",
            ),
            (r#"Basic realm=x, BEARER realm="y""#, "basic realm=x; bearer realm=y"),
            ("Bearer realm=https://a/t, service=s", "bearer realm=https://a/t service=s"),
            (r#"Bearer realm="a", realm="b""#, "bearer realm=a"),
            (r#"Bearer realm="a\"b""#, "bearer realm=a\"b"),
            (r#"Bearer realm="a"#, "bearer"),
            ("Negotiate, Bearer", "negotiate; bearer"),
            ("realm=x", ""),
            ("", ""),
            (",,", ""),
        ] {
            assert_eq!(shown(header), expected, "{header}");
        }
        // A character at the limit is not cut in two.
        let long = format!("Bearer realm=\"{}\u{e9}\"", "x".repeat(MAX_HEADER - 15));
        assert_eq!(shown(&long), "");
        assert!(!shown(long.trim_end_matches('"').get(..MAX_HEADER - 2).unwrap()).is_empty());
    }
}
