//! The query language of `json_query`, and the evaluation of its paths.
//!
//! | query | meaning |
//! |---|---|
//! | empty, `.` or `$` | the whole document |
//! | `/a/0/b` | a JSON pointer (RFC 6901): anything that starts with `/` |
//! | `name`, `.name` | the member `name` of an object |
//! | `["a.b"]` | a member whose name contains `.`, `[` or similar, as a JSON string |
//! | `[2]`, `[-1]` | an element of an array; negative counts from the end |
//! | `[1:3]`, `[:2]`, `[-2:]` | elements from the first number up to, not including, the second |
//! | `[*]`, `.*` | every element of an array, every member of an object |
//!
//! A path with `*` or a slice may lead to any number of values; any other path leads to exactly one or is an error.

use toolbay_sdk::serde_json::{self, Value};

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PathStep {
    /// A member of an object or, for a number in a pointer, an element of an array.
    Member(String),
    /// An element of an array.
    Index(i64),
    /// A slice of an array.
    Slice(Option<i64>, Option<i64>),
    /// All children.
    All,
}

/// A value and its JSON pointer.
#[derive(Debug, Clone)]
pub(crate) struct QueryTarget<'a> {
    pub(crate) pointer: String,
    pub(crate) value: &'a Value,
}

/// Parses a query. The error names the mistake.
pub(crate) fn parse(query: &str) -> Result<Vec<PathStep>, String> {
    if query.starts_with('/') {
        let unescape = |token: &str| PathStep::Member(token.replace("~1", "/").replace("~0", "~"));
        return Ok(query.split('/').skip(1).map(unescape).collect());
    }
    let mut rest = query.strip_prefix('$').unwrap_or(query);
    if rest == "." {
        return Ok(Vec::new());
    }
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let step;
        (step, rest) = match rest.strip_prefix('[') {
            Some(inner) => bracket(inner)?,
            None => member(rest, steps.is_empty())?,
        };
        steps.push(step);
    }
    Ok(steps)
}

/// Parses `.name`; at the start the dot may be missing.
fn member(rest: &str, first: bool) -> Result<(PathStep, &str), String> {
    let name = match rest.strip_prefix('.') {
        Some(name) => name,
        None if first => rest,
        None => return Err(format!("expected `.` or `[` before `{rest}`")),
    };
    let (name, rest) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
    match name {
        "" => Err("a name is missing after `.`".to_owned()),
        "*" => Ok((PathStep::All, rest)),
        _ => Ok((PathStep::Member(name.to_owned()), rest)),
    }
}

/// Parses the text after `[`.
fn bracket(inner: &str) -> Result<(PathStep, &str), String> {
    if inner.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(inner).into_iter::<String>();
        let name = names.next().and_then(Result::ok).ok_or("a name in `[\"…\"]` is a JSON string")?;
        let rest = inner.get(names.byte_offset()..).unwrap_or_default();
        let rest = rest.strip_prefix(']').ok_or("a `]` is missing after a name")?;
        return Ok((PathStep::Member(name), rest));
    }
    let (inside, rest) = inner.split_once(']').ok_or("a `]` is missing")?;
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("`{text}` is no whole number"));
    let bound = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
    let step = match (inside.trim(), inside.split_once(':')) {
        ("*", _) => PathStep::All,
        (_, Some((start, end))) => PathStep::Slice(bound(start)?, bound(end)?),
        (index, None) => PathStep::Index(number(index)?),
    };
    Ok((step, rest))
}

/// Returns whether a path may lead to several values.
pub(crate) fn is_open(steps: &[PathStep]) -> bool {
    steps.iter().any(|step| matches!(step, PathStep::All | PathStep::Slice(..)))
}

/// Returns the values to which a path leads.
///
/// For a path to exactly one value, the error names the step that failed. Otherwise values that do not fit are skipped.
pub(crate) fn walk<'a>(document: &'a Value, steps: &[PathStep]) -> Result<Vec<QueryTarget<'a>>, String> {
    let open = is_open(steps);
    let mut places = vec![QueryTarget { pointer: String::new(), value: document }];
    for step in steps {
        let mut next = Vec::new();
        for place in &places {
            let found = step_down(place, step);
            if found.is_empty() && !open {
                return Err(dead_end(place, step));
            }
            next.extend(found);
        }
        places = next;
    }
    Ok(places)
}

fn step_down<'a>(place: &QueryTarget<'a>, step: &PathStep) -> Vec<QueryTarget<'a>> {
    let named = |(name, value): (&String, &'a Value)| {
        let name = name.replace('~', "~0").replace('/', "~1");
        QueryTarget { pointer: format!("{}/{name}", place.pointer), value }
    };
    let numbered = |(index, value)| QueryTarget { pointer: format!("{}/{index}", place.pointer), value };
    match (place.value, step) {
        (Value::Object(members), PathStep::Member(name)) => {
            members.get_key_value(name).map(named).into_iter().collect()
        }
        (Value::Object(members), PathStep::All) => members.iter().map(named).collect(),
        (Value::Array(elements), PathStep::All) => elements.iter().enumerate().map(numbered).collect(),
        (Value::Array(elements), PathStep::Member(name)) => {
            let index = name.parse::<usize>().ok();
            index
                .and_then(|index| elements.get(index).map(|value| numbered((index, value))))
                .into_iter()
                .collect()
        }
        (Value::Array(elements), PathStep::Index(index)) => {
            let index = from_end(*index, elements.len());
            index
                .and_then(|index| elements.get(index).map(|value| numbered((index, value))))
                .into_iter()
                .collect()
        }
        (Value::Array(elements), PathStep::Slice(start, end)) => {
            let clamp = |bound: i64| from_end(bound, elements.len()).unwrap_or(0);
            let end = end.map_or(elements.len(), clamp);
            elements.iter().enumerate().take(end).skip(start.map_or(0, clamp)).map(numbered).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns an index from the start; `None` if it lies before the start.
fn from_end(index: i64, length: usize) -> Option<usize> {
    let magnitude = usize::try_from(index.unsigned_abs()).ok()?;
    if index < 0 { length.checked_sub(magnitude) } else { Some(magnitude) }
}

fn dead_end(place: &QueryTarget<'_>, step: &PathStep) -> String {
    /// As many names as fit into a line.
    const NAMES: usize = 20;
    let here = if place.pointer.is_empty() { "the document" } else { &place.pointer };
    match (place.value, step) {
        (Value::Object(members), PathStep::Member(name)) => {
            let names: Vec<_> = members.keys().take(NAMES).map(String::as_str).collect();
            let more = if members.len() > NAMES { ", …" } else { "" };
            format!("{here} has no member `{name}`; it has: {}{more}", names.join(", "))
        }
        (Value::Array(elements), PathStep::Member(_) | PathStep::Index(_)) => {
            format!("{here} has no such element; it has {} elements", elements.len())
        }
        (value, _) => {
            let kind = match value {
                Value::Null => "null",
                Value::Bool(_) => "a boolean",
                Value::Number(_) => "a number",
                Value::String(_) => "a string",
                Value::Array(_) => "an array",
                Value::Object(_) => "an object",
            };
            format!("{here} is {kind} and has nothing of that kind below it")
        }
    }
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::serde_json::json;

    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[&str]) {
        let document = json!({"a": {"b": [10, 20, 30, {"c/d": 1}]}, "e.f": [[1], [2, 3]], "~": null});
        let places = walk(&document, &parse(query).unwrap()).unwrap();
        let pointers: Vec<_> = places.iter().map(|place| place.pointer.as_str()).collect();
        assert_eq!(pointers, expected, "{query}");
        for place in places {
            assert_eq!(document.pointer(&place.pointer), Some(place.value), "pointers lead back");
        }
    }

    #[test]
    fn every_form_of_the_table() {
        for whole in ["", ".", "$"] {
            check(whole, &[""]);
        }
        check("/a/b/0", &["/a/b/0"]);
        check("/a/b/3/c~1d", &["/a/b/3/c~1d"]);
        check("/~0", &["/~0"]);
        check("a.b", &["/a/b"]);
        check(".a.b[0]", &["/a/b/0"]);
        check("$.a.b[-1]", &["/a/b/3"]);
        check("a.b[-1][\"c/d\"]", &["/a/b/3/c~1d"]);
        check("a.b[1:3]", &["/a/b/1", "/a/b/2"]);
        check("a.b[:1]", &["/a/b/0"]);
        check("a.b[-2:]", &["/a/b/2", "/a/b/3"]);
        check("a.b[:-3]", &["/a/b/0"]);
        check("a.b[-9:9]", &["/a/b/0", "/a/b/1", "/a/b/2", "/a/b/3"]);
        check("[\"e.f\"][*][*]", &["/e.f/0/0", "/e.f/1/0", "/e.f/1/1"]);
        check("a.*", &["/a/b"]);
        check("*.b[3:1]", &[]);
    }

    #[test]
    fn malformed_queries_are_refused() {
        for query in ["a.", "a..b", "a[", "a[x]", "a[1:2:3]", "a[\"b]", "a[\"b\"", "a[0]b"] {
            assert!(parse(query).is_err(), "{query}");
        }
    }

    #[test]
    fn a_dead_end_tells_what_there_is() {
        let document = json!({"a": [1], "b": 2});
        let error = |query| walk(&document, &parse(query).unwrap()).unwrap_err();
        assert_eq!(error("c"), "the document has no member `c`; it has: a, b");
        assert_eq!(error("a[1]"), "/a has no such element; it has 1 elements");
        assert_eq!(error("b.c"), "/b is a number and has nothing of that kind below it");
        assert_eq!(error("[0]"), "the document is an object and has nothing of that kind below it");
    }
}
