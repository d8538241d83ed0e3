//! What an operation demands of who calls it, and which secrets answer it.

use std::collections::BTreeMap;

use serde_json::Value;
use toolbay_policy::text::one_line;

use crate::document::OpenApiDocument;
use crate::parameter::{ParameterLocation, ReservedField, is_token};

/// Longest name under which a key is sent.
const MAX_NAME: usize = 128;

/// Where the value of a secret goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// A header field, with what stands before the value.
    Header {
        /// Its name.
        name: String,
        /// `Bearer ` or nothing.
        prefix: String,
    },
    /// `Authorization: Basic`, of a value `user:password`.
    Basic,
    /// A parameter of the query.
    Query(String),
    /// A cookie.
    Cookie(String),
}

impl Placement {
    /// What it fills, so that no argument does.
    pub(crate) fn reserved_field(&self) -> ReservedField {
        match self {
            Self::Header { name, .. } => ReservedField(ParameterLocation::Header, name.clone()),
            Self::Basic => ReservedField(ParameterLocation::Header, "Authorization".to_owned()),
            Self::Query(name) => ReservedField(ParameterLocation::Query, name.clone()),
            Self::Cookie(name) => ReservedField(ParameterLocation::Cookie, name.clone()),
        }
    }
}

/// A secret that a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its name in the policy.
    pub secret: String,
    /// Where its value goes.
    pub placement: Placement,
}

/// The secrets that answer an operation's demands: of the alternatives that the document names, the first for which
/// everything is given.
///
/// # Errors
/// What would have to be given.
pub(crate) fn credentials(
    document: &OpenApiDocument,
    operation: &Value,
    secrets: &BTreeMap<String, String>,
) -> Result<Vec<Credential>, String> {
    let demands = operation.get("security").or_else(|| document.root().get("security"));
    let alternatives = demands.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if alternatives.is_empty() {
        return Ok(Vec::new());
    }
    document.work.spend(alternatives.len())?;
    let mut problem = None;
    // An alternative without demands is the last resort, wherever it stands: who gave a secret wants it used.
    let demanding = |one: &&Value| one.as_object().is_some_and(|map| !map.is_empty());
    for alternative in alternatives.iter().filter(demanding) {
        document.work.spend_value(alternative)?;
        match credentials_for(document, alternative, secrets) {
            Ok(credentials) => return Ok(credentials),
            Err(why) => problem = problem.or(Some(why)),
        }
    }
    match problem {
        Some(problem) if alternatives.iter().all(|one| demanding(&one)) => Err(problem),
        _ => Ok(Vec::new()),
    }
}

/// Most security schemes of a document whose names are kept from arguments.
const MAX_SCHEMES: usize = 200;

/// Every place in which the document has a credential sent, whoever's operation asks for it.
///
/// # Errors
/// It has too many to tell.
pub(crate) fn reserved_fields(document: &OpenApiDocument) -> Result<Vec<ReservedField>, String> {
    let all = document.root().pointer("/components/securitySchemes").and_then(Value::as_object);
    let Some(all) = all else { return Ok(Vec::new()) };
    if all.len() > MAX_SCHEMES {
        return Err(format!("it has more than {MAX_SCHEMES} security schemes"));
    }
    // One that cannot be sent reserves nothing.
    Ok(all
        .values()
        .filter_map(|scheme| read_placement(document, scheme).ok())
        .map(|one| one.reserved_field())
        .collect())
}

fn credentials_for(
    document: &OpenApiDocument,
    alternative: &Value,
    secrets: &BTreeMap<String, String>,
) -> Result<Vec<Credential>, String> {
    let schemes = alternative.as_object().into_iter().flatten();
    schemes
        .map(|(name, _)| {
            let shown = one_line(name, 60);
            let scheme = document.root().pointer("/components/securitySchemes").and_then(|all| all.get(name));
            let scheme = scheme.ok_or_else(|| format!("the document does not describe the security scheme `{shown}`"))?;
            let placement = read_placement(document, scheme).map_err(|why| format!("the security scheme `{shown}` is {why}"))?;
            let secret = secrets.get(name).ok_or_else(|| {
                format!("it demands the security scheme `{shown}`: name a secret for it, `secrets = {{ \"{shown}\" = \"SECRET\" }}`")
            })?;
            Ok(Credential { secret: secret.clone(), placement })
        })
        .collect()
}

fn read_placement(document: &OpenApiDocument, scheme: &Value) -> Result<Placement, String> {
    let scheme = document.resolve(scheme)?;
    let said = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
    let bearer = || Placement::Header { name: "Authorization".to_owned(), prefix: "Bearer ".to_owned() };
    match (said("type"), said("in"), said("scheme").to_ascii_lowercase().as_str()) {
        ("apiKey", place, _) if !is_name(place, said("name")) => {
            Err("one whose `name` cannot be sent".to_owned())
        }
        ("apiKey", "header", _) => {
            Ok(Placement::Header { name: said("name").to_owned(), prefix: String::new() })
        }
        ("apiKey", "query", _) => Ok(Placement::Query(said("name").to_owned())),
        ("apiKey", "cookie", _) => Ok(Placement::Cookie(said("name").to_owned())),
        ("http", _, "basic") => Ok(Placement::Basic),
        ("http", _, "bearer") | ("oauth2" | "openIdConnect", _, _) => Ok(bearer()),
        (kind, place, scheme) => Err(format!(
            "of a kind that is not supported: {}",
            one_line(&format!("{kind} {place} {scheme}"), 60)
        )),
    }
}

/// Whether a key can be sent under a name: a header and a cookie have tokens as names.
fn is_name(place: &str, name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && (place == "query" || is_token(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_alternative_that_can_be_answered() {
        let text = json!({"openapi": "3.1.0", "paths": {}, "security": [{"key": []}],
            "components": {"securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
                "q": {"type": "apiKey", "in": "query", "name": "api_key"},
                "c": {"type": "apiKey", "in": "cookie", "name": "sid"},
                "user": {"type": "http", "scheme": "Basic"},
                "oauth": {"type": "oauth2", "flows": {}},
                "tls": {"type": "mutualTLS"}}}});
        let document = OpenApiDocument::parse(&text.to_string()).unwrap();
        let secrets = |names: &[&str]| {
            names.iter().map(|name| ((*name).to_owned(), name.to_uppercase())).collect::<BTreeMap<_, _>>()
        };
        let header = |name: &str, prefix: &str| Placement::Header {
            name: name.to_owned(),
            prefix: String::from(prefix),
        };
        for (operation, given, expected) in [
            (json!({}), vec!["key"], Ok(vec![("KEY", header("X-Key", ""))])),
            (json!({"security": []}), vec![], Ok(vec![])),
            (
                json!({"security": [{"q": [], "c": []}, {"user": []}]}),
                vec!["user"],
                Ok(vec![("USER", Placement::Basic)]),
            ),
            (
                json!({"security": [{"q": [], "c": []}, {"user": []}]}),
                vec!["user", "q", "c"],
                Ok(vec![
                    ("Q", Placement::Query("api_key".to_owned())),
                    ("C", Placement::Cookie("sid".to_owned())),
                ]),
            ),
            (json!({"security": [{}, {"oauth": ["a"]}]}), vec![], Ok(vec![])),
            (
                json!({"security": [{}, {"oauth": ["a"]}]}),
                vec!["oauth"],
                Ok(vec![("OAUTH", header("Authorization", "Bearer "))]),
            ),
            (
                json!({"security": [{"key": []}]}),
                vec![],
                Err("name a secret for it, `secrets = { \"key\" = \"SECRET\" }`"),
            ),
            (json!({"security": [{"tls": []}]}), vec!["tls"], Err("not supported: mutualTLS")),
            (json!({"security": [{"gone": []}]}), vec!["gone"], Err("does not describe")),
        ] {
            let found = credentials(&document, &operation, &secrets(&given));
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    let found: Vec<_> = found.into_iter().map(|c| (c.secret, c.placement)).collect();
                    let expected: Vec<_> = expected.into_iter().map(|(s, p)| (s.to_owned(), p)).collect();
                    assert_eq!(found, expected, "{operation}");
                }
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (found, expected) => panic!("{operation}: {found:?}, not {expected:?}"),
            }
        }
    }
}
