//! `json_query`.

use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json::{self, Value};

use crate::query_path::{is_open, parse, walk};

/// The result of `json_query`.
#[data]
#[derive(Debug)]
pub struct QueryResult {
    /// The values, in the order of the document.
    pub matches: Vec<FoundValue>,
    /// The number of matches, shown or not.
    pub total: usize,
}

/// A value and its location.
#[data]
#[derive(Debug)]
pub struct FoundValue {
    /// JSON pointer to the value.
    pub pointer: String,
    /// The value.
    pub value: Value,
}

/// Take values out of a JSON document.
///
/// The query is a JSON pointer (`/items/0/name`) or a path: `items[0].name`, `items[-1]`, `items[1:3]`, `items[*].name`,
/// `*.id`, `["odd.key"]`. One place gives its value; a path with `*` or a slice gives a line with pointer and value for each.
#[tool(toolset = "text", tags = ["json", "query"], read_only, idempotent, closed_world)]
pub fn json_query(
    /// The JSON document, as text.
    json: String,
    /// JSON pointer or path; empty for the whole document.
    #[arg(default = "", length(max = 4096))]
    query: String,
    /// Show at most this many values.
    #[arg(default = 100, range(min = 1, max = 10_000))]
    max_matches: usize,
) -> Result<Rendered<QueryResult>> {
    let document: Value = serde_json::from_str(&json)
        .map_err(|error| Error::input(format!("not JSON: {error}")).at("/json"))?;
    let in_query = |message: String| Error::input(message).at("/query");
    let steps = parse(&query).map_err(in_query)?;
    let places = walk(&document, &steps).map_err(in_query)?;

    let total = places.len();
    let mut text = String::new();
    let mut matches = Vec::new();
    for place in places.into_iter().take(max_matches) {
        if is_open(&steps) {
            text.push_str(&format!("{}\t{}\n", place.pointer, place.value));
        } else {
            text = serde_json::to_string_pretty(place.value)?;
        }
        matches.push(FoundValue { pointer: place.pointer, value: place.value.clone() });
    }
    if total == 0 {
        text = "Nothing matches.".to_owned();
    } else if total > matches.len() {
        text.push_str(&format!(
            "[{} of {total} values shown; narrow the query or raise max_matches]\n",
            matches.len()
        ));
    }
    Ok(Rendered { text, data: QueryResult { matches, total } })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::call;

    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &str) {
        let document = r#"{"items": [{"id": 1}, {"id": 2}, {"id": 3}]}"#;
        let output = call::<json_query>(json!({"json": document, "query": query, "max_matches": 2})).unwrap();
        assert_eq!(output.value, expected);
    }

    #[test]
    fn one_place_gives_its_value_and_many_give_lines() {
        check("/items/0", "{\n  \"id\": 1\n}");
        check("items[-1].id", "3");
        check("items[:2].id", "/items/0/id\t1\n/items/1/id\t2\n");
        check("items[9:]", "Nothing matches.");
        check(
            "*[*].id",
            "/items/0/id\t1\n/items/1/id\t2\n[2 of 3 values shown; narrow the query or raise max_matches]\n",
        );
    }

    #[test]
    fn errors_point_at_the_argument() {
        let subject = |args| call::<json_query>(args).unwrap_err().subject().map(str::to_owned);
        assert_eq!(subject(json!({"json": "{"})).as_deref(), Some("/json"));
        assert_eq!(subject(json!({"json": "{}", "query": "a["})).as_deref(), Some("/query"));
        assert_eq!(subject(json!({"json": "{}", "query": "a"})).as_deref(), Some("/query"));
    }
}
