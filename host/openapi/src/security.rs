//! The security requirements of operations, and the secrets that satisfy them.

use std::collections::BTreeMap;

use serde_json::Value;
use toolbay_core::call::service_request::{Credential, Placement};
use toolbay_policy::excerpt::one_line;

use crate::document::OpenApiDocument;
use crate::parameter::{ParameterLocation, ReservedField, is_token};
use crate::scalar::member_text;

/// The longest name of a key in a request.
const MAX_NAME: usize = 128;

/// The location that a secret fills, so that no argument does.
pub(crate) fn reserved_field(placement: &Placement) -> ReservedField {
    match placement {
        Placement::Header { name, .. } => ReservedField(ParameterLocation::Header, name.clone()),
        Placement::Basic => ReservedField(ParameterLocation::Header, "Authorization".to_owned()),
        Placement::Query(name) => ReservedField(ParameterLocation::Query, name.clone()),
        Placement::Cookie(name) => ReservedField(ParameterLocation::Cookie, name.clone()),
    }
}

/// The secrets that satisfy an operation: those of the first alternative in the document whose secrets are all
/// configured.
///
/// # Errors
/// Returns a line with the secrets that are missing.
pub(crate) fn credentials(
    document: &OpenApiDocument,
    operation: &Value,
    secrets: &BTreeMap<String, String>,
) -> Result<Vec<Credential>, String> {
    let own = operation.get("security").filter(|own| !own.is_null());
    let demands = own.or_else(|| document.root().get("security"));
    let alternatives = demands.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if alternatives.is_empty() {
        return Ok(Vec::new());
    }
    document.work.spend(alternatives.len())?;
    let mut problem = None;
    // An alternative without requirements comes last, because a configured secret should be used.
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

/// The most security schemes of a document whose names are reserved.
const MAX_SCHEMES: usize = 200;

/// The location of every credential of the document, for all operations.
///
/// # Errors
/// The document has too many security schemes.
pub(crate) fn reserved_fields(document: &OpenApiDocument) -> Result<Vec<ReservedField>, String> {
    let all = document.root().pointer("/components/securitySchemes").and_then(Value::as_object);
    let Some(all) = all else { return Ok(Vec::new()) };
    if all.len() > MAX_SCHEMES {
        return Err(format!("it has more than {MAX_SCHEMES} security schemes"));
    }
    // A scheme that cannot be used reserves nothing.
    Ok(all
        .values()
        .filter_map(|scheme| read_placement(document, scheme).ok())
        .map(|one| reserved_field(&one))
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
                format!("it requires the security scheme `{shown}`: configure a secret for it, `secrets = {{ \"{shown}\" = \"SECRET\" }}`")
            })?;
            Ok(Credential { secret: secret.clone(), placement })
        })
        .collect()
}

fn read_placement(document: &OpenApiDocument, scheme: &Value) -> Result<Placement, String> {
    let scheme = document.resolve(scheme)?;
    let member = |key: &str| member_text(scheme, key);
    let bearer = || Placement::Header { name: "Authorization".to_owned(), prefix: "Bearer ".to_owned() };
    match (&*member("type"), &*member("in"), member("scheme").to_ascii_lowercase().as_str()) {
        ("apiKey", place, _) if !is_name(place, &member("name")) => {
            Err("one with an invalid `name`".to_owned())
        }
        ("apiKey", "header", _) => {
            Ok(Placement::Header { name: member("name").into_owned(), prefix: String::new() })
        }
        ("apiKey", "query", _) => Ok(Placement::Query(member("name").into_owned())),
        ("apiKey", "cookie", _) => Ok(Placement::Cookie(member("name").into_owned())),
        ("http", _, "basic") => Ok(Placement::Basic),
        ("http", _, "bearer") | ("oauth2" | "openIdConnect", _, _) => Ok(bearer()),
        (kind, place, scheme) => Err(format!(
            "of a kind that is not supported: {}",
            one_line(&format!("{kind} {place} {scheme}"), 60)
        )),
    }
}

/// Whether a key can have this name: names of headers and cookies are tokens.
fn is_name(place: &str, name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && (place == "query" || is_token(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_alternative_with_all_secrets_is_used() {
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
                Err("configure a secret for it, `secrets = { \"key\" = \"SECRET\" }`"),
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
