use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::fixture::plugin_tool;
use toolbay_core::tool::ToolDef;
use toolbay_core::tool::schema::Schema;

fn tool(name: &str, about: &str, tags: &[&str], parameters: &[&str], hint: &str) -> ToolDef {
    let mut def = plugin_tool("p", name).def.as_ref().clone();
    def.description = about.to_owned();
    def.keywords.tags = tags.iter().map(ToString::to_string).collect();
    let properties: serde_json::Map<_, _> =
        parameters.iter().map(|p| ((*p).to_owned(), serde_json::json!({"type": "string"}))).collect();
    let schema = serde_json::json!({"type": "object", "properties": properties});
    def.input_schema = Schema::input(&schema.to_string()).unwrap();
    let meta = serde_json::json!({"search_hint": hint}).to_string();
    def.meta = serde_json::value::RawValue::from_string(meta).ok();
    def
}

fn corpus() -> Vec<ToolDef> {
    let file = ["file_system", "read_only"];
    vec![
        tool("add_numbers", "Add two numbers together.", &[], &["a", "b"], ""),
        tool("multiply_numbers", "Multiply two numbers.", &[], &["a", "b"], ""),
        tool("read_file", "Read a file from disk.", &file, &["path"], "open load text content"),
        tool(
            "send_email",
            "Send an email message to a recipient.",
            &["network"],
            &["to", "subject", "body"],
            "",
        ),
        tool("search_web", "Search the web.", &["network"], &["query"], "google bing internet browse"),
    ]
}

fn index(tools: &[ToolDef]) -> Index {
    Index::new(
        tools
            .iter()
            .map(|def| ToolDocument { def, tags: def.keywords.tags.iter().map(String::as_str).collect() }),
    )
}

fn all(index: &Index) -> [IndexPart<'_>; 1] {
    [IndexPart { index, included: vec![true; index.tools.len()] }]
}

fn names(index: &Index, query: &str, most: usize) -> Vec<String> {
    names_in(&all(index), query, most)
}

fn names_in(parts: &[IndexPart<'_>], query: &str, most: usize) -> Vec<String> {
    let found = search(parts, query, most).unwrap();
    found.iter().map(|hit| parts[hit.part].name(hit.tool).trim_start_matches("p__").to_owned()).collect()
}

#[test]
fn queries_find_the_expected_tool_first() {
    let tools = corpus();
    let index = index(&tools);
    for (query, first) in [
        ("add numbers", "add_numbers"),
        ("email message recipient", "send_email"),
        ("file_system", "read_file"),
        ("subject body", "send_email"),
        ("google internet browse", "search_web"),
        ("READ FILE", "read_file"),
        ("emails", "send_email"),
        ("send_email please", "send_email"),
    ] {
        assert_eq!(names(&index, query, 10).first().map(String::as_str), Some(first), "{query}");
    }
    assert_eq!(names(&index, "numbers", 1).len(), 1);
    assert_eq!(names(&index, "xyzzy plugh", 10), Vec::<String>::new());
    assert_eq!(names(&Index::default(), "anything", 10), Vec::<String>::new());
}

/// Operations of GitHub's API, with their summaries.
fn operations() -> Vec<ToolDef> {
    [
        ("issues_create", "Create an issue", "title body owner repo"),
        ("issues_create-comment", "Create an issue comment", "issue_number body owner repo"),
        ("issues_create-label", "Create a label", "name owner repo"),
        ("issues_delete-label", "Delete a label", "name owner repo"),
        ("issues_get", "Get an issue", "issue_number owner repo"),
        ("issues_list-for-repo", "List repository issues", "owner repo"),
        ("issues_update", "Update an issue", "issue_number title owner repo"),
        ("pulls_get", "Get a pull request", "pull_number owner repo"),
        ("pulls_list", "List pull requests\n\nLists pull requests in a repository.", "owner repo"),
        ("pulls_list-commits", "List commits on a pull request", "pull_number owner repo"),
        ("pulls_list-review-comments", "List review comments on a pull request", "pull_number owner repo"),
        ("pulls_merge", "Merge a pull request", "pull_number owner repo"),
        ("repos_get", "Get a repository", "owner repo"),
        ("repos_get-branch", "Get a branch", "branch owner repo"),
        ("repos_get-readme", "Get a repository README", "owner repo"),
        ("repos_list-branches", "List branches", "owner repo"),
        ("repos_list-languages", "List repository languages", "owner repo"),
        ("actions_cancel-workflow-run", "Cancel a workflow run", "run_id owner repo"),
        ("actions_re-run-workflow", "Re-run a workflow", "run_id owner repo"),
        ("readCoreV1NamespacedConfigMap", "read the specified ConfigMap", "name namespace"),
    ]
    .map(|(name, about, parameters)| {
        tool(name, about, &["network"], &parameters.split(' ').collect::<Vec<_>>(), "")
    })
    .into()
}

#[test]
fn the_operation_of_a_resource_comes_before_those_of_its_parts() {
    let tools = operations();
    let index = index(&tools);
    for (query, first) in [
        ("list pull requests", "pulls_list"),
        ("get a repository", "repos_get"),
        ("create an issue in a repository", "issues_create"),
        ("comment on an issue", "issues_create-comment"),
    ] {
        assert_eq!(names(&index, query, 10).first().map(String::as_str), Some(first), "{query}");
    }
}

#[test]
fn other_words_for_an_action_and_other_endings_find_the_tool() {
    let tools = operations();
    let index = index(&tools);
    for (query, first) in [
        ("remove labels", "issues_delete-label"),
        ("add a new label", "issues_create-label"),
        ("edit issues", "issues_update"),
        ("merging the pull requests", "pulls_merge"),
        ("stop a workflow", "actions_cancel-workflow-run"),
        ("fetch the configmap", "readCoreV1NamespacedConfigMap"),
        ("show the config maps", "readCoreV1NamespacedConfigMap"),
        ("list the branches of a repo", "repos_list-branches"),
    ] {
        assert_eq!(names(&index, query, 10).first().map(String::as_str), Some(first), "{query}");
    }
}

#[test]
fn tools_that_perform_the_action_of_the_query_come_first() {
    let tools: Vec<ToolDef> = [
        ("mark-notifications-as-read", "Mark notifications as read", false),
        ("list-notifications-for-user", "List notifications for the user", true),
        ("GetLinks", "Returns a list of links.", true),
        ("GetLinksLink", "Retrieves the link with an id.", true),
        ("PostLinks", "Creates a link.", false),
        ("PostLinksLink", "Updates a link.", false),
        ("createPod", "create a Pod", false),
        ("createPodEviction", "create eviction of a Pod", false),
        ("deletePod", "delete a Pod", false),
        ("readPod", "read the specified Pod", true),
    ]
    .map(|(name, about, read_only)| {
        let mut def = tool(name, about, &[], &[], "");
        def.traits.read_only = read_only;
        def
    })
    .into();
    let index = index(&tools);
    for (query, first) in [
        ("show my notifications", "list-notifications-for-user"),
        ("which links are there", "GetLinks"),
        ("show me the link", "GetLinksLink"),
        ("make a link", "PostLinks"),
        ("change the link", "PostLinksLink"),
        ("evict", "createPodEviction"),
        ("look at a pod", "readPod"),
    ] {
        assert_eq!(names(&index, query, 10).first().map(String::as_str), Some(first), "{query}");
    }
}

#[test]
fn a_tool_with_many_words_is_read_in_part() {
    let long = |last: &str| format!("First. {} {last}", "filler ".repeat(100_000));
    let tools = [tool("a", &long("needle"), &[], &[], ""), tool("b", "First needle.", &[], &[], "")];
    let index = index(&tools);
    assert_eq!(names(&index, "needle", 10), ["b"]);
    assert_eq!(names(&index, "filler", 10), ["a"]);
}

#[test]
fn an_exact_name_is_the_only_hit() {
    let tools = corpus();
    let index = index(&tools);
    for query in ["read_file", "Read-File", "p__read_file", "P/READ/FILE", " read file "] {
        let parts = all(&index);
        let hits = search(&parts, query, 10).unwrap();
        assert_eq!((hits.len(), hits[0].score, hits[0].exact), (1, 1.0, true), "{query}");
        assert_eq!(parts[0].name(hits[0].tool), "p__read_file");
    }
}

#[test]
fn a_literal_name_takes_precedence_over_other_separators() {
    let tools = ["a_b", "ab", "a-b"].map(|name| tool(name, "Same.", &[], &[], ""));
    let index = index(&tools);
    for name in ["a_b", "ab", "a-b"] {
        assert_eq!(names(&index, &format!("p__{name}"), 10), [name]);
    }
    let parts = all(&index);
    assert_eq!(find_exact(&parts, "P__A_B"), None, "the name is ambiguous");
    assert_eq!(find_exact(&parts, "a_b"), None, "the name without namespace is ambiguous, too");
}

#[test]
fn common_words_are_ignored() {
    let mut tools: Vec<_> =
        (0..39).map(|n| tool(&format!("tool_{n}"), "A tool for local files", &[], &[], "")).collect();
    tools.push(tool("pdf_to_text", "A tool for local pdf files", &[], &[], ""));
    let index = index(&tools);
    assert_eq!(names(&index, "a tool for pdf", 10), ["pdf_to_text"]);
    assert_eq!(names(&index, "local files", 10), Vec::<String>::new(), "all tools have both words");
    assert_eq!(names(&index, "for files", 10).len(), 10, "a stop word does not count as a word");
    assert!(names(&index, "files", 10).len() == 10, "a single word is never dropped");
    assert_eq!(names(&index, "a tool", 100).len(), 40, "the rarest word of a tool name is kept");
}

#[test]
fn excluded_tools_do_not_affect_the_ranking() {
    let mut tools: Vec<_> =
        (0..50).map(|n| tool(&format!("zip_{n}"), "Compress a zip archive", &[], &[], "")).collect();
    tools.push(tool("pack", "Compress a folder", &[], &[], ""));
    tools.push(tool("unpack", "Extract a folder", &[], &[], ""));
    let whole = index(&tools);
    let alone = index(&tools[50..]);
    let mut part = IndexPart { index: &whole, included: vec![false; 52] };
    part.included[50..].fill(true);
    for query in ["compress", "compress a folder", "zip archive", "zip_3", "p__pack", "folder"] {
        let hidden = search(std::slice::from_ref(&part), query, 10).unwrap();
        let absent = search(&all(&alone), query, 10).unwrap();
        let shown = |found: &[RankedTool], offset| -> Vec<_> {
            found.iter().map(|f| (f.tool - offset, f.score, f.exact)).collect()
        };
        assert_eq!(shown(&hidden, 50), shown(&absent, 0), "{query}");
    }
}

#[test]
fn several_indexes_are_searched_as_one() {
    let tools = corpus();
    let (first, second, whole) = (index(&tools[..2]), index(&tools[2..]), index(&tools));
    let parts = [&first, &second].map(|index| IndexPart { index, included: vec![true; index.tools.len()] });
    for query in ["numbers", "a file", "search_web", "send numbers file", "network"] {
        let (split, one) = (search(&parts, query, 9).unwrap(), search(&all(&whole), query, 9).unwrap());
        let scores = |found: &[RankedTool]| found.iter().map(|f| f.score).collect::<Vec<_>>();
        assert_eq!(scores(&split), scores(&one), "{query}");
        assert_eq!(names_in(&parts, query, 9), names(&whole, query, 9), "{query}");
    }
}

#[test]
fn an_empty_query_is_an_error() {
    let tools = corpus();
    let index = index(&tools);
    for query in ["", "   ", "?!…", "\u{0}", "_ __", "\u{202e}\u{200b}"] {
        assert_eq!(search(&all(&index), query, 5).unwrap_err(), QueryError::Empty, "{query:?}");
    }
    assert_eq!(search(&all(&index), "file", 0).unwrap_err(), QueryError::NoHits);
    assert!(search(&all(&index), &"word ".repeat(1_000_000), 5).is_ok());
    assert!(search(&all(&index), &"file_".repeat(1_000_000), usize::MAX).is_ok());
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec!["file", "read", "a", "web", "Straße", "ǅ", "data", "İ", "ﬁle", "数据"])
            .prop_map(str::to_owned),
        "\\PC{0,8}",
        any::<String>().prop_map(|text| text.chars().take(12).collect()),
    ]
}

fn tools() -> impl Strategy<Value = Vec<ToolDef>> {
    let one = ("[a-z]{1,6}(_[a-z]{1,4})?", prop::collection::vec(word(), 0..8));
    prop::collection::vec(one, 0..20).prop_map(|list| {
        let mut seen = BTreeSet::new();
        let fresh = list.into_iter().filter(|(name, _)| seen.insert(name.clone()));
        fresh.map(|(name, about)| tool(&name, &about.join(" "), &[], &["path"], "")).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_search_is_bounded_sorted_and_deterministic(
        tools in tools(),
        query in prop::collection::vec(word(), 0..6),
        seed in any::<u64>(),
        most in 1_usize..8,
    ) {
        let index = index(&tools);
        let counts: Vec<bool> = (0..tools.len()).map(|n| seed >> (n % 64) & 1 == 1).collect();
        let part = [IndexPart { index: &index, included: counts.clone() }];
        // For any query: no panic, only included tools, at most `most`, sorted, deterministic.
        match search(&part, &query.join(" "), most) {
            Ok(found) => {
                prop_assert!(found.len() <= most);
                prop_assert!(found.iter().all(|hit| counts[hit.tool] && hit.score.is_finite() && hit.score > 0.0));
                let ordered = |pair: &[RankedTool]| {
                    let (a, b) = (&pair[0], &pair[1]);
                    a.score > b.score || (a.score == b.score && part[0].name(a.tool) < part[0].name(b.tool))
                };
                prop_assert!(found.windows(2).all(ordered));
                prop_assert_eq!(&found, &search(&part, &query.join(" "), most).unwrap());
                let more = search(&part, &query.join(" "), most + 1).unwrap();
                prop_assert_eq!(&found[..], &more[..found.len()], "a longer result starts with the shorter one");
            }
            Err(error) => prop_assert_eq!(error, QueryError::Empty),
        }
        // A name is the only hit if the tool is included, and no hit otherwise.
        for (place, def) in tools.iter().enumerate() {
            let found = search(&part, def.name.as_str(), most).unwrap();
            prop_assert_eq!(found.iter().any(|hit| hit.tool == place), counts[place]);
            prop_assert!(!counts[place] || (found.len() == 1 && found[0].exact));
        }
    }
}
