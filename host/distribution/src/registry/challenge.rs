//! `WWW-Authenticate` (RFC 9110, section 11.6.1), as far as registries use it:
//!
//! ```text
//! SCHEME [KEY="VALUE" *( "," KEY=VALUE )] *( "," SCHEME … )
//! ```

use std::collections::BTreeMap;

/// Longest header that is parsed, in bytes.
const MAX_HEADER: usize = 8 << 10;

/// A challenge of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Challenge {
    /// In lower case.
    scheme: String,
    /// With names in lower case.
    parameters: BTreeMap<String, String>,
}

impl Challenge {
    pub(super) fn is(&self, scheme: &str) -> bool {
        self.scheme == scheme
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// The challenges of a response.
    pub(super) fn from_headers(headers: &[(String, String)]) -> Vec<Self> {
        let values = headers.iter().filter(|(name, _)| name == "www-authenticate");
        values.flat_map(|(_, value)| Self::parse_all(value)).collect()
    }

    /// The challenges of a header. What is not understood ends the list.
    fn parse_all(header: &str) -> Vec<Self> {
        let mut challenges: Vec<Self> = Vec::new();
        let mut rest = header.get(..MAX_HEADER).unwrap_or(header).trim_start();
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

/// A token, or a quoted text without its escapes.
fn split_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = split_token(text);
        return Some((token.to_owned(), rest));
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
    fn challenges_of_registries_are_parsed() {
        let shown = |header: &str| {
            let all = Challenge::parse_all(header).into_iter().map(|one| {
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
            (r#"Bearer realm="a", realm="b""#, "bearer realm=a"),
            (r#"Bearer realm="a\"b""#, "bearer realm=a\"b"),
            (r#"Bearer realm="a"#, "bearer"),
            ("realm=x", ""),
            ("", ""),
            (",,", ""),
        ] {
            assert_eq!(shown(header), expected, "{header}");
        }
    }
}
