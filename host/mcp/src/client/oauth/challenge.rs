//! What `WWW-Authenticate` of an MCP server says (RFC 6750, section 3; RFC 9728, section 5.1). Only a `Bearer` challenge
//! counts. The parameters are the server's claims; the caller checks them.

use std::collections::BTreeSet;

use toolbay_core::http_challenge::HttpChallenge;

/// Longest value of a parameter that is kept, in bytes.
const MAX_VALUE: usize = 2048;
/// Most scopes of one list.
pub(super) const MAX_SCOPES: usize = 64;
/// Longest scope, in bytes.
const MAX_SCOPE: usize = 256;

/// What a server wants before it answers a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Challenge {
    /// The URL of the metadata of the protected resource.
    pub(super) resource_metadata: Option<String>,
    /// The scopes that the request needs. Empty if the server names none.
    pub(super) scopes: BTreeSet<String>,
    /// Whether the token is valid and has too few scopes.
    pub(in super::super) insufficient_scope: bool,
}

impl Challenge {
    /// Reads the headers of a response with status 401 or 403. `None` if no `Bearer` challenge is among them.
    pub(in super::super) fn from_headers(headers: &[(String, String)]) -> Option<Self> {
        let all = HttpChallenge::from_headers(headers);
        let bearer = all.iter().find(|challenge| challenge.has_scheme("bearer"))?;
        let parameter = |name: &str| bearer.parameter(name).filter(|value| value.len() <= MAX_VALUE);
        Some(Self {
            resource_metadata: parameter("resource_metadata").map(str::to_owned),
            scopes: parameter("scope").map(parse_scopes).unwrap_or_default(),
            insufficient_scope: parameter("error") == Some("insufficient_scope"),
        })
    }
}

/// The scopes of a list with spaces (RFC 6749, section 3.3). Invalid and surplus scopes are left out.
pub(super) fn parse_scopes(text: &str) -> BTreeSet<String> {
    collect_scopes(text.split(' '))
}

/// A list with spaces (RFC 6749, section 3.3).
pub(super) fn join_scopes(scopes: &BTreeSet<String>) -> String {
    scopes.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// The valid scopes among some texts, at most [`MAX_SCOPES`].
pub(super) fn collect_scopes<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let sound = |scope: &&str| {
        (1..=MAX_SCOPE).contains(&scope.len())
            && scope.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'))
    };
    texts.filter(sound).take(MAX_SCOPES).map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Option<Challenge> {
        let headers: Vec<_> =
            values.iter().map(|value| ("www-authenticate".to_owned(), (*value).to_owned())).collect();
        Challenge::from_headers(&headers)
    }

    #[test]
    fn a_bearer_challenge_is_found_among_others() {
        let expect = Challenge {
            resource_metadata: Some("https://a.example/m,x".to_owned()),
            scopes: ["a:1", "b"].map(str::to_owned).into(),
            insufficient_scope: true,
        };
        for values in [
            &[
                "Bearer error=\"insufficient_scope\", scope=\"a:1 b\", resource_metadata=\"https://a.example/m,x\"",
            ][..],
            &[
                "bearer scope=\"b a:1\",error=insufficient_scope,resource_metadata=\"https://a.example/m\\,x\"",
            ],
            &[
                "Basic realm=\"Bearer scope=evil\"",
                "Bearer SCOPE=\"a:1 b\", resource_metadata=\"https://a.example/m,x\", error=\"insufficient_scope\"",
            ],
            &[
                "Digest qop=\"a\", Bearer scope=\"a:1 b\", resource_metadata=\"https://a.example/m,x\", error=\"insufficient_scope\", Basic scope=\"z\"",
            ],
        ] {
            assert_eq!(parse(values), Some(expect.clone()), "{values:?}");
        }
        assert_eq!(parse(&["Bearer"]), Some(Challenge::default()));
        for none in ["", "Basic realm=\"x\"", "DPoP scope=\"a\"", "x=\"Bearer\""] {
            assert_eq!(parse(&[none]), None, "{none}");
        }
    }

    #[test]
    fn a_long_challenge_is_bounded() {
        let scopes: Vec<String> = (0..1000).map(|n| format!("s{n}")).collect();
        assert_eq!(parse_scopes(&scopes.join(" ")).len(), MAX_SCOPES);
        assert_eq!(parse_scopes("a\"b c\\d \u{e9} ok"), ["ok".to_owned()].into());
        assert_eq!(parse_scopes(&"x".repeat(MAX_SCOPE + 1)), BTreeSet::new());
        assert_eq!(parse(&[&format!("Bearer scope=\"{}\"", "x ".repeat(8 << 10))]), None);
        let long = format!("Bearer resource_metadata=\"https://a.example/{}\"", "x".repeat(MAX_VALUE));
        assert_eq!(parse(&[&long]), Some(Challenge::default()));
    }
}
