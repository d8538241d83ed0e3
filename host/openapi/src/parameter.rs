//! The parameters of an operation, each with its argument.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use toolbay_policy::text::one_line;

use crate::document::OpenApiDocument;
use crate::name;
use crate::schema::{MAX_DESCRIPTION, SchemaConverter, plain_text};
use crate::style::{EscapeMode, ParameterStyle};

/// The most parameters of one operation.
const MAX_PARAMETERS: usize = 200;
/// The longest argument name that all vendors accept.
const MAX_ARGUMENT: usize = 64;

/// Header fields that cannot be parameters: three by the specification, those that the client sets, and those that
/// make some servers misinterpret a request.
const RESERVED_HEADERS: [&str; 20] = [
    "accept",
    "content-type",
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "expect",
    "trailer",
    "cookie",
    "te",
    "upgrade",
    "http2-settings",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "accept-encoding",
];

/// Whether a header field is reserved.
fn is_reserved_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
    RESERVED_HEADERS.contains(&name.as_str()) || name.starts_with("proxy-")
}

/// The location of a value in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
}

impl ParameterLocation {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "path" => Self::Path,
            "query" => Self::Query,
            "header" => Self::Header,
            "cookie" => Self::Cookie,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }
}

/// A location that is filled by something other than an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReservedField(pub(crate) ParameterLocation, pub(crate) String);

impl ReservedField {
    /// Whether some server may treat two names of query parameters or cookies as equal. The standards compare them
    /// exactly (RFC 3986, section 6.2.2.1; RFC 6265, section 5.4), but many servers ignore case, leading blanks or
    /// bracket suffixes, or treat a dot as an underscore.
    pub(crate) fn collides(&self, location: ParameterLocation, name: &str) -> bool {
        fn folded(name: &str) -> String {
            let plain = name.trim().to_ascii_lowercase();
            plain.chars().map(|c| if matches!(c, '.' | ' ') { '_' } else { c }).collect()
        }
        let (own, other) = (folded(&self.1), folded(name));
        let before = other.split('[').next().unwrap_or_default();
        self.0 == location && (own == other || own == before)
    }

    fn is_same(&self, place: ParameterLocation, name: &str) -> bool {
        self.0 == place
            && if place == ParameterLocation::Header {
                self.1.eq_ignore_ascii_case(name)
            } else {
                self.1 == name
            }
    }
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) place: ParameterLocation,
    pub(crate) style: ParameterStyle,
    pub(crate) explode: bool,
    pub(crate) escape_mode: EscapeMode,
    /// Whether the value is encoded as JSON.
    pub(crate) json: bool,
    /// The name of the argument.
    pub(crate) argument: String,
    pub(crate) required: bool,
}

/// Reads the parameters of an operation, and those of its path that the operation does not override. The second member
/// of each pair is the schema of the argument.
pub(crate) fn read_parameters(
    document: &OpenApiDocument,
    operation: Option<&Value>,
    path: Option<&Value>,
    fixed: &[ReservedField],
    schemas: &mut SchemaConverter<'_>,
) -> Result<Vec<(Parameter, Value)>, String> {
    let (mut seen, mut arguments) = (HashSet::new(), HashSet::from(["body".to_owned()]));
    let mut all = Vec::new();
    for node in [operation, path].into_iter().flatten().flat_map(|list| list.as_array().into_iter().flatten())
    {
        document.work.spend(1)?;
        let map = document.resolve(node)?;
        let said = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
        let shown = one_line(said("name"), 60);
        let place = ParameterLocation::parse(said("in"))
            .ok_or_else(|| format!("the parameter `{shown}` has no valid `in`"))?;
        if !seen.insert((said("name").to_owned(), place)) {
            continue;
        }
        if place == ParameterLocation::Header && is_reserved_header(said("name")) {
            continue;
        }
        // A model cannot set a value that the operator or a credential sets.
        if fixed.iter().any(|one| one.is_same(place, said("name"))) {
            continue;
        }
        if said("name").is_empty() || (place == ParameterLocation::Header && !is_token(said("name"))) {
            return Err(format!("the parameter name `{shown}` is invalid"));
        }
        if all.len() == MAX_PARAMETERS {
            return Err(format!("more than {MAX_PARAMETERS} parameters"));
        }
        all.push(
            read_parameter(map, place, &mut arguments, schemas)
                .map_err(|why| format!("the parameter `{shown}`: {why}"))?,
        );
    }
    Ok(all)
}

fn read_parameter(
    map: &Map<String, Value>,
    place: ParameterLocation,
    arguments: &mut HashSet<String>,
    schemas: &mut SchemaConverter<'_>,
) -> Result<(Parameter, Value), String> {
    let name = map.get("name").and_then(Value::as_str).unwrap_or_default();
    let flag = |key: &str| map.get(key).and_then(Value::as_bool);
    let default = match place {
        ParameterLocation::Path | ParameterLocation::Header => ParameterStyle::Simple,
        ParameterLocation::Query | ParameterLocation::Cookie => ParameterStyle::Form,
    };
    let style = match map.get("style").and_then(Value::as_str) {
        Some(style) => ParameterStyle::parse(style)
            .ok_or_else(|| format!("the style `{}` is not known", one_line(style, 40)))?,
        None => default,
    };
    let of_place = match place {
        ParameterLocation::Path => {
            matches!(style, ParameterStyle::Simple | ParameterStyle::Label | ParameterStyle::Matrix)
        }
        ParameterLocation::Query => matches!(
            style,
            ParameterStyle::Form
                | ParameterStyle::SpaceDelimited
                | ParameterStyle::PipeDelimited
                | ParameterStyle::DeepObject
        ),
        ParameterLocation::Header => style == ParameterStyle::Simple,
        ParameterLocation::Cookie => style == ParameterStyle::Form,
    };
    if !of_place {
        return Err(format!("the style is not allowed in the {}", place.name()));
    }
    let content = map.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
    let schema = match (map.get("schema"), content) {
        (Some(schema), _) => schema,
        (None, Some((_, media))) => media.get("schema").unwrap_or(&Value::Bool(true)),
        (None, None) => &Value::Bool(true),
    };
    let mut schema = schemas.convert(schema)?;
    if schema.is_boolean() {
        schema = json!({});
    }
    if let Some(description) = map.get("description").and_then(Value::as_str)
        && let Some(schema) = schema.as_object_mut()
    {
        schema.entry("description").or_insert_with(|| Value::from(plain_text(description, MAX_DESCRIPTION)));
    }
    let escape = match place {
        ParameterLocation::Header => EscapeMode::None,
        ParameterLocation::Query if flag("allowReserved") == Some(true) => EscapeMode::Reserved,
        _ => EscapeMode::Strict,
    };
    let parameter = Parameter {
        name: name.to_owned(),
        place,
        style,
        explode: flag("explode")
            .unwrap_or(style == ParameterStyle::Form || style == ParameterStyle::DeepObject),
        escape_mode: escape,
        json: content.is_some() && map.get("schema").is_none(),
        argument: argument_name(name, place, arguments)?,
        required: place == ParameterLocation::Path || flag("required") == Some(true),
    };
    Ok((parameter, schema))
}

/// The name of the argument: the parameter's name, if vendors accept it.
fn argument_name(
    name: &str,
    place: ParameterLocation,
    taken: &mut HashSet<String>,
) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let fits = name.len() <= MAX_ARGUMENT && name.chars().all(legal);
    let short = if fits { name.to_owned() } else { name::legal_name(name, MAX_ARGUMENT - 12) };
    let short = if short.is_empty() { place.name().to_owned() } else { short };
    let numbered = (2..=MAX_PARAMETERS).map(|n| format!("{short}_{n}"));
    let free = [short.clone(), format!("{short}_{}", place.name())].into_iter().chain(numbered);
    let found = free.into_iter().find(|one| !taken.contains(one)).ok_or("no argument name is left for it")?;
    taken.insert(found.clone());
    Ok(found)
}

/// The grammar of header field names (RFC 9110, section 5.6.2).
pub(crate) fn is_token(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SchemaTotals;

    fn parameters(operation: &Value, path: &Value) -> Result<Vec<(Parameter, Value)>, String> {
        let document = OpenApiDocument::parse(
            r##"{"openapi": "3.0.0", "paths": {}, "components": {"parameters": {
                "limit": {"name": "limit", "in": "query", "schema": {"type": "integer"}, "description": "how many"}}}}"##,
        )
        .unwrap();
        let mut known = SchemaTotals::default();
        let fixed = [
            ReservedField(ParameterLocation::Header, "x-key".to_owned()),
            ReservedField(ParameterLocation::Query, "key".to_owned()),
        ];
        read_parameters(
            &document,
            Some(operation),
            Some(path),
            &fixed,
            &mut SchemaConverter::new(&document, 20, &mut known),
        )
    }

    #[test]
    fn operation_parameters_come_first_and_argument_names_are_unique() {
        let own = json!([
            {"$ref": "#/components/parameters/limit"},
            {"name": "id", "in": "query", "schema": {"type": "string"}},
            {"name": "body", "in": "query"},
            {"name": "filter[name]", "in": "query", "style": "deepObject"},
            {"name": "X-Trace", "in": "header", "required": true},
            {"name": "authorization", "in": "header", "required": true},
            {"name": "X_HTTP_Method.Override", "in": "header"},
            {"name": "X-Key", "in": "header", "required": true},
            {"name": "key", "in": "query"},
            {"name": "q", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
        ]);
        let path = json!([{"name": "id", "in": "path", "schema": {"type": "integer"}}, {"name": "limit", "in": "query"}]);
        let found = parameters(&own, &path).unwrap();
        let named: Vec<_> = found.iter().map(|(p, _)| (p.argument.as_str(), p.place, p.required)).collect();
        assert_eq!(
            named,
            [
                ("limit", ParameterLocation::Query, false),
                ("id", ParameterLocation::Query, false),
                ("body_query", ParameterLocation::Query, false),
                ("filter_name", ParameterLocation::Query, false),
                ("X-Trace", ParameterLocation::Header, true),
                ("q", ParameterLocation::Query, false),
                ("id_path", ParameterLocation::Path, true),
            ]
        );
        assert_eq!(found[0].1, json!({"type": "integer", "description": "how many"}));
        assert!(found[3].0.explode && found[5].0.json && !found[4].0.explode);
    }

    #[test]
    fn a_name_that_a_server_could_read_as_a_credential_collides() {
        let key = ReservedField(ParameterLocation::Query, "api_key".to_owned());
        for name in ["api_key", "API_Key", " api_key", "api_key[]", "api_key[0][a]", "api.key", "api key"] {
            assert!(key.collides(ParameterLocation::Query, name), "{name}");
            assert!(!key.collides(ParameterLocation::Cookie, name), "{name}");
        }
        for name in ["api_keys", "my_api_key", "key", "filter[api_key]", ""] {
            assert!(!key.collides(ParameterLocation::Query, name), "{name}");
        }
        let nested = ReservedField(ParameterLocation::Query, "filter[key]".to_owned());
        assert!(
            nested.collides(ParameterLocation::Query, "filter[key]")
                && !nested.collides(ParameterLocation::Query, "filter[other]")
        );
    }

    #[test]
    fn an_invalid_parameter_is_refused() {
        for (one, part) in [
            (json!({"name": "a", "in": "body"}), "no valid `in`"),
            (json!({"name": "", "in": "query"}), "is invalid"),
            (json!({"name": "a b", "in": "header"}), "is invalid"),
            (json!({"name": "a", "in": "query", "style": "matrix"}), "is not allowed"),
            (json!({"name": "a", "in": "query", "style": "odd"}), "not known"),
            (json!({"name": "a", "in": "query", "schema": {"$ref": "b.yaml"}}), "not fetched"),
            (json!({"$ref": "#/components/parameters/none"}), "without a target"),
        ] {
            let error = parameters(&json!([one]), &json!([])).unwrap_err();
            assert!(error.contains(part), "{one}: {error}");
        }
        let many: Vec<Value> =
            (0..=MAX_PARAMETERS).map(|n| json!({"name": n.to_string(), "in": "query"})).collect();
        assert!(parameters(&json!(many), &json!([])).unwrap_err().contains("more than 200"));
    }
}
