//! The query language of `json_query`, and where its paths lead.
//!
//! | query | meaning |
//! |---|---|
//! | empty, `.` or `$` | the whole document |
//! | `/a/0/b` | a JSON pointer (RFC 6901): anything that starts with `/` |
//! | `name`, `.name` | the member `name` of an object |
//! | `["a.b"]` | a member whose name holds `.`, `[` or the like, as a JSON string |
//! | `[2]`, `[-1]` | an element of an array; negative counts from the end |
//! | `[1:3]`, `[:2]`, `[-2:]` | elements from the first number up to, not including, the second |
//! | `[*]`, `.*` | every element of an array, every member of an object |
//!
//! A path that uses `*` or a slice may lead to many places or none; any other leads to exactly one or is an error.

use toolbay_sdk::serde_json::{self, Value};

/// One step down a document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// A member of an object, or, written as a number in a pointer, an element of an array.
    Member(String),
    /// An element of an array.
    Index(i64),
    /// Some elements of an array.
    Slice(Option<i64>, Option<i64>),
    /// Everything one level down.
    All,
}

/// A value, and the JSON pointer that leads to it.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    pub(crate) pointer: String,
    pub(crate) value: &'a Value,
}

/// Parses a query; the error tells what is wrong with it.
pub(crate) fn parse(query: &str) -> Result<Vec<Step>, String> {
    if query.starts_with('/') {
        let unescape = |token: &str| Step::Member(token.replace("~1", "/").replace("~0", "~"));
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
fn member(rest: &str, first: bool) -> Result<(Step, &str), String> {
    let name = match rest.strip_prefix('.') {
        Some(name) => name,
        None if first => rest,
        None => return Err(format!("expected `.` or `[` before `{rest}`")),
    };
    let (name, rest) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
    match name {
        "" => Err("a name is missing after `.`".to_owned()),
        "*" => Ok((Step::All, rest)),
        _ => Ok((Step::Member(name.to_owned()), rest)),
    }
}

/// Parses what comes after `[`.
fn bracket(inner: &str) -> Result<(Step, &str), String> {
    if inner.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(inner).into_iter::<String>();
        let name = names.next().and_then(Result::ok).ok_or("a name in `[\"…\"]` is a JSON string")?;
        let rest = inner.get(names.byte_offset()..).unwrap_or_default();
        let rest = rest.strip_prefix(']').ok_or("a `]` is missing after a name")?;
        return Ok((Step::Member(name), rest));
    }
    let (inside, rest) = inner.split_once(']').ok_or("a `]` is missing")?;
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("`{text}` is no whole number"));
    let bound = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
    let step = match (inside.trim(), inside.split_once(':')) {
        ("*", _) => Step::All,
        (_, Some((start, end))) => Step::Slice(bound(start)?, bound(end)?),
        (index, None) => Step::Index(number(index)?),
    };
    Ok((step, rest))
}

/// Tells whether a path may lead to many places.
pub(crate) fn is_open(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::All | Step::Slice(..)))
}

/// Returns the places a path leads to.
///
/// On a path to exactly one place, the error tells where the way ended; elsewhere what does not fit is left out.
pub(crate) fn walk<'a>(document: &'a Value, steps: &[Step]) -> Result<Vec<Place<'a>>, String> {
    let open = is_open(steps);
    let mut places = vec![Place { pointer: String::new(), value: document }];
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

fn step_down<'a>(place: &Place<'a>, step: &Step) -> Vec<Place<'a>> {
    let named = |(name, value): (&String, &'a Value)| {
        let name = name.replace('~', "~0").replace('/', "~1");
        Place { pointer: format!("{}/{name}", place.pointer), value }
    };
    let numbered = |(index, value)| Place { pointer: format!("{}/{index}", place.pointer), value };
    match (place.value, step) {
        (Value::Object(members), Step::Member(name)) => {
            members.get_key_value(name).map(named).into_iter().collect()
        }
        (Value::Object(members), Step::All) => members.iter().map(named).collect(),
        (Value::Array(elements), Step::All) => elements.iter().enumerate().map(numbered).collect(),
        (Value::Array(elements), Step::Member(name)) => {
            let index = name.parse::<usize>().ok();
            index
                .and_then(|index| elements.get(index).map(|value| numbered((index, value))))
                .into_iter()
                .collect()
        }
        (Value::Array(elements), Step::Index(index)) => {
            let index = from_end(*index, elements.len());
            index
                .and_then(|index| elements.get(index).map(|value| numbered((index, value))))
                .into_iter()
                .collect()
        }
        (Value::Array(elements), Step::Slice(start, end)) => {
            let clamp = |bound: i64| from_end(bound, elements.len()).unwrap_or(0);
            let end = end.map_or(elements.len(), clamp);
            elements.iter().enumerate().take(end).skip(start.map_or(0, clamp)).map(numbered).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns an index from the start; `None` if it lies before it.
fn from_end(index: i64, length: usize) -> Option<usize> {
    let magnitude = usize::try_from(index.unsigned_abs()).ok()?;
    if index < 0 { length.checked_sub(magnitude) } else { Some(magnitude) }
}

fn dead_end(place: &Place<'_>, step: &Step) -> String {
    /// As many names as fit into a line.
    const NAMES: usize = 20;
    let here = if place.pointer.is_empty() { "the document" } else { &place.pointer };
    match (place.value, step) {
        (Value::Object(members), Step::Member(name)) => {
            let names: Vec<_> = members.keys().take(NAMES).map(String::as_str).collect();
            let more = if members.len() > NAMES { ", …" } else { "" };
            format!("{here} has no member `{name}`; it has: {}{more}", names.join(", "))
        }
        (Value::Array(elements), Step::Member(_) | Step::Index(_)) => {
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
