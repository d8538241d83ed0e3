//! The parameters of an operation, each with its argument.

use std::collections::HashSet;

use serde_json::{Map, Value};
use toolbay_policy::excerpt::one_line;

use crate::body::{self, ParameterContent};
use crate::document::OpenApiDocument;
use crate::examples;
use crate::name;
use crate::scalar::{is_absent, member_flag, member_text, scalar_text};
use crate::schema::SchemaConverter;
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

    pub(crate) fn is_same(&self, place: ParameterLocation, name: &str) -> bool {
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
    /// The form of a value that a media type describes instead of a style.
    pub(crate) content: Option<ParameterContent>,
    /// The name of the argument.
    pub(crate) argument: String,
    pub(crate) required: bool,
    /// The type of its values, if it is a scalar.
    pub(crate) scalar: Option<ScalarType>,
}

/// A type of scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarType {
    Text,
    Integer,
    Number,
    Boolean,
}

impl ScalarType {
    /// The type of a converted schema.
    fn of_schema(schema: &Value) -> Option<Self> {
        let types = match schema.get("type") {
            Some(Value::Array(types)) => types.iter().find(|one| *one != "null"),
            one => one,
        };
        match types.and_then(Value::as_str) {
            Some("string") => Some(Self::Text),
            Some("integer") => Some(Self::Integer),
            Some("number") => Some(Self::Number),
            Some("boolean") => Some(Self::Boolean),
            _ => None,
        }
    }

    /// Reads the text of a value. `None` if it is no value of this type.
    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Text => Some(Value::from(text)),
            Self::Integer => text.parse::<i64>().ok().map(Value::from),
            Self::Number => text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from),
            Self::Boolean => text.parse::<bool>().ok().map(Value::from),
        }
    }
}

/// The parameters of an operation.
#[derive(Debug, Default)]
pub(crate) struct OperationParameters {
    /// Each with the schema of its argument.
    pub(crate) all: Vec<(Parameter, Value)>,
    /// Optional parameters that cannot be sent, each with the reason.
    pub(crate) left_out: Vec<String>,
    /// How many more were left out.
    more: usize,
}

impl OperationParameters {
    fn leave_out(&mut self, what: &str, why: &str) {
        if self.left_out.len() < MAX_LEFT_OUT {
            self.left_out.push(format!("{what} is left out: {why}"));
        } else {
            self.more += 1;
        }
    }
}

/// The most parameters of an operation that are left out with a reason each.
const MAX_LEFT_OUT: usize = 5;

/// Reads the parameters of an operation, and those of its path that the operation does not override.
///
/// # Errors
/// A parameter that is required cannot be sent, or the schemas exceed a limit.
pub(crate) fn read_parameters(
    document: &OpenApiDocument,
    operation: Option<&Value>,
    path: Option<&Value>,
    fixed: &[ReservedField],
    schemas: &mut SchemaConverter<'_>,
) -> Result<OperationParameters, String> {
    let (mut seen, mut arguments) = (HashSet::new(), HashSet::from(["body".to_owned()]));
    let mut read = OperationParameters::default();
    for node in [operation, path].into_iter().flatten().flat_map(parameter_nodes) {
        document.work.spend(1)?;
        if is_absent(node) {
            continue;
        }
        let map = match document.resolve(node) {
            Ok(map) => map,
            Err(why) if node.as_object().and_then(|node| member_flag(node, "required")) == Some(true) => {
                return Err(why);
            }
            Err(why) => {
                document.work.spend(0)?;
                read.leave_out("a parameter", &format!("it is {why}"));
                continue;
            }
        };
        let name = member_text(map, "name");
        let place = ParameterLocation::parse(&member_text(map, "in").to_ascii_lowercase());
        if !seen.insert((name.to_string(), place)) {
            continue;
        }
        if place == Some(ParameterLocation::Header) && is_reserved_header(&name) {
            continue;
        }
        // A model cannot set a value that the operator, a credential or the path sets.
        if place.is_some_and(|place| fixed.iter().any(|one| one.is_same(place, &name))) {
            continue;
        }
        let form = parameter_form(map, &name, place).and_then(|form| match read.all.len() {
            MAX_PARAMETERS => Err(format!("more than {MAX_PARAMETERS} parameters")),
            _ => Ok(form),
        });
        let required = place == Some(ParameterLocation::Path) || member_flag(map, "required") == Some(true);
        let shown = one_line(&name, 60);
        match form {
            Ok(form) => read.all.push(
                read_parameter(document, (map, form), &mut arguments, schemas)
                    .map_err(|why| format!("the parameter `{shown}`: {why}"))?,
            ),
            Err(why) if required => return Err(why),
            Err(why) => read.leave_out(&format!("the parameter `{shown}`"), &why),
        }
    }
    if read.more > 0 {
        read.left_out.push(format!("{} more parameters are left out", read.more));
    }
    Ok(read)
}

/// The parameters of a list. Some authors write one parameter in its place, or parameters by name.
fn parameter_nodes(list: &Value) -> Vec<&Value> {
    let is_text = |member: Option<&Value>| member.is_some_and(|member| scalar_text(member).is_some());
    match list {
        Value::Array(all) => all.iter().collect(),
        Value::Object(map) if !["name", "in", "$ref"].iter().any(|key| is_text(map.get(*key))) => {
            map.values().collect()
        }
        one => vec![one],
    }
}

/// Where and how a parameter is sent.
///
/// # Errors
/// Fails if the parameter cannot be sent.
fn parameter_form(
    map: &Map<String, Value>,
    name: &str,
    place: Option<ParameterLocation>,
) -> Result<(ParameterLocation, ParameterStyle), String> {
    let shown = one_line(name, 60);
    let Some(place) = place else {
        return Err(match &*member_text(map, "in") {
            "querystring" => format!(
                "the parameter `{shown}` is in the `querystring`, which is new in OpenAPI 3.2 and is not supported"
            ),
            _ => format!("the parameter `{shown}` has no valid `in`"),
        });
    };
    if name.is_empty() || (place == ParameterLocation::Header && !is_token(name)) {
        return Err(format!("the parameter name `{shown}` is invalid"));
    }
    let default = match place {
        ParameterLocation::Path | ParameterLocation::Header => ParameterStyle::Simple,
        ParameterLocation::Query | ParameterLocation::Cookie => ParameterStyle::Form,
    };
    let style = match map.get("style").and_then(Value::as_str) {
        Some(style) => ParameterStyle::parse(style).ok_or_else(|| {
            format!("the parameter `{shown}`: the style `{}` is not known", one_line(style, 40))
        })?,
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
        return Err(format!("the parameter `{shown}`: the style is not allowed in the {}", place.name()));
    }
    Ok((place, style))
}

fn read_parameter(
    document: &OpenApiDocument,
    (map, (place, style)): (&Map<String, Value>, (ParameterLocation, ParameterStyle)),
    arguments: &mut HashSet<String>,
    schemas: &mut SchemaConverter<'_>,
) -> Result<(Parameter, Value), String> {
    let name = member_text(map, "name");
    let flag = |key: &str| member_flag(map, key);
    let argument = argument_name(&name, place, arguments)?;
    let content = map.get("content").and_then(Value::as_object).filter(|_| map.get("schema").is_none());
    let content = content.and_then(|content| content.iter().next());
    let media = match content.filter(|(_, media)| media.is_object()).map(|(_, media)| document.resolve(media))
    {
        Some(Err(why)) => {
            document.work.spend(0)?;
            schemas.name_loss(&argument, &format!("it may be anything, because its content is {why}"));
            None
        }
        media => media.and_then(Result::ok),
    };
    let any = Value::Bool(true);
    let declared = map.get("schema").or_else(|| media?.get("schema")).unwrap_or(&any);
    let content = content.map(|(name, _)| body::parameter_content(document, name, media, declared));
    let schema = schemas.convert(&argument, declared)?;
    let examples = examples::read(document, map, |why| schemas.name_loss(&argument, why))?;
    let schema = examples::annotate(schema, map.get("description"), examples);
    let escape = match place {
        ParameterLocation::Header => EscapeMode::None,
        ParameterLocation::Query if flag("allowReserved") == Some(true) => EscapeMode::Reserved,
        _ => EscapeMode::Strict,
    };
    let parameter = Parameter {
        place,
        style,
        explode: flag("explode")
            .unwrap_or(style == ParameterStyle::Form || style == ParameterStyle::DeepObject),
        escape_mode: escape,
        content,
        argument,
        required: place == ParameterLocation::Path || flag("required") == Some(true),
        scalar: ScalarType::of_schema(&schema),
        name: name.into_owned(),
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
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::schema::SchemaTotals;

    fn parameters(operation: &Value, path: &Value) -> Result<Vec<(Parameter, Value)>, String> {
        all_parameters(operation, path).map(|read| read.all)
    }

    fn all_parameters(operation: &Value, path: &Value) -> Result<OperationParameters, String> {
        let document = OpenApiDocument::parse(
            r##"{"openapi": "3.0.0", "paths": {}, "components": {"examples": {"two": {"value": 2}}, "parameters": {
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
        assert!(
            found[3].0.explode && found[5].0.content == Some(ParameterContent::Json) && !found[4].0.explode
        );
    }

    #[test]
    fn the_media_type_of_a_parameter_decides_its_form() {
        let text = json!({"type": "string"});
        for (media, schema, content) in [
            ("application/json", json!({}), ParameterContent::Json),
            ("application/vnd.a+json; charset=utf-8", json!({}), ParameterContent::Json),
            ("text/plain", text.clone(), ParameterContent::Text),
            ("application/xml", text.clone(), ParameterContent::Text),
            ("image/png", text.clone(), ParameterContent::Text),
            ("*/*", text.clone(), ParameterContent::Text),
            ("*/*", json!({"type": "object"}), ParameterContent::Json),
            ("application/x-www-form-urlencoded", json!({}), ParameterContent::Form(BTreeMap::new())),
        ] {
            let own = json!([{"name": "a", "in": "query", "content": {media: {"schema": schema}}}]);
            assert_eq!(parameters(&own, &json!([])).unwrap()[0].0.content, Some(content), "{media}");
        }
        let own = json!([{"name": "a", "in": "query", "content": {"text/plain": {"$ref": "#/gone"}}}]);
        let read = parameters(&own, &json!([])).unwrap();
        assert_eq!((read[0].1.clone(), read[0].0.content.clone()), (json!({}), Some(ParameterContent::Text)));
        let own = json!([{"name": "a", "in": "query", "schema": {}, "content": {"application/json": {}}}]);
        assert_eq!(parameters(&own, &json!([])).unwrap()[0].0.content, None);
    }

    #[test]
    fn names_may_be_numbers_and_examples_come_with_the_argument() {
        let own = json!([
            null,
            {"name": 7, "in": "Query", "required": "true", "example": "a", "schema": {"type": "string", "example": "b"}},
            {"name": true, "in": "query", "schema": {"type": "integer"}, "examples": {
                "one": {"value": 1}, "two": {"$ref": "#/components/examples/two"}, "far": {"externalValue": "x"},
                "three": {"dataValue": 3}, "long": {"value": "x".repeat(300)}}},
        ]);
        let found = parameters(&own, &json!([])).unwrap();
        assert_eq!((found[0].0.name.as_str(), found[0].0.scalar), ("7", Some(ScalarType::Text)));
        assert!(found[0].0.required && !found[1].0.required);
        assert_eq!(found[0].1, json!({"type": "string", "examples": ["a"]}));
        assert_eq!((found[1].0.name.as_str(), found[1].0.scalar), ("true", Some(ScalarType::Integer)));
        assert_eq!(found[1].1, json!({"type": "integer", "examples": [1, 2, 3]}));
    }

    #[test]
    fn parameters_may_stand_alone_or_have_keys() {
        let (a, b) = (json!({"name": "a", "in": "query"}), json!({"name": "name", "in": "query"}));
        for (list, names) in [
            (a.clone(), vec!["a"]),
            (json!({"one": a, "name": b}), vec!["a", "name"]),
            (json!({"$ref": "#/components/parameters/limit"}), vec!["limit"]),
            (json!({}), vec![]),
        ] {
            let read = parameters(&list, &json!([])).unwrap();
            assert_eq!(read.iter().map(|(one, _)| one.name.as_str()).collect::<Vec<_>>(), names, "{list}");
        }
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
    fn an_invalid_parameter_costs_its_operation_only_if_it_is_required() {
        for (one, part) in [
            (json!({"name": "a", "in": "body"}), "no valid `in`"),
            (json!({"name": "", "in": "query"}), "is invalid"),
            (json!({"name": "a b", "in": "header"}), "is invalid"),
            (json!({"name": "a", "in": "query", "style": "matrix"}), "is not allowed"),
            (json!({"name": "a", "in": "query", "style": "odd"}), "not known"),
            (json!({"name": "a", "in": "querystring"}), "new in OpenAPI 3.2"),
            (json!({"name": "a", "in": "cookie", "style": "cookie"}), "`cookie` is not known"),
            (json!({"$ref": "#/components/parameters/none"}), "without a target"),
        ] {
            let mut required = one.clone();
            required["required"] = json!(true);
            let error = parameters(&json!([required]), &json!([])).unwrap_err();
            assert!(error.contains(part), "{one}: {error}");
            let read = all_parameters(&json!([one, {"name": "b", "in": "query"}]), &json!([])).unwrap();
            assert_eq!((read.all.len(), read.left_out.len()), (1, 1), "{one}");
            assert!(read.left_out[0].contains(part), "{:?}", read.left_out);
        }
        // A text is not a parameter, and `null` is nothing.
        let read = all_parameters(&json!(["x", null, 7, {"name": "b", "in": "query"}]), &json!("y")).unwrap();
        assert_eq!((read.all.len(), read.left_out.len()), (1, 3), "{:?}", read.left_out);
        let many: Vec<Value> =
            (0..=MAX_PARAMETERS).map(|n| json!({"name": n.to_string(), "in": "query"})).collect();
        let read = all_parameters(&json!(many), &json!([])).unwrap();
        assert!(read.all.len() == MAX_PARAMETERS && read.left_out[0].contains("more than 200"));
        let odd: Vec<Value> = (0..50).map(|n| json!({"name": n.to_string(), "in": "body"})).collect();
        assert_eq!(all_parameters(&json!(odd), &json!([])).unwrap().left_out.len(), MAX_LEFT_OUT + 1);
    }
}
