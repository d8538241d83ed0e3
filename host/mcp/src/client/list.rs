//! Reads the lists of a server page by page, and keeps each item as raw JSON.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, json};
use tokio::time::Instant;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::quantity;

use super::bounds::{
    DISCOVER_TIMEOUT, MAX_CURSOR, MAX_LIST_BYTES, MAX_PAGES, MAX_PROBLEMS, MAX_RESOURCES, MAX_TOOLS,
};
use super::link_request::LinkError;
use super::session::{ClientSession, RequestExtra};
use super::tools;
use super::unusable_output::OutputNotes;
use crate::protocol::bounded::BoundedList;
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::members::Members;
use crate::protocol::message::METHOD_NOT_FOUND;
use crate::protocol::repair::Repair;

/// A list of a server.
#[derive(Debug, Default)]
pub(super) struct ServerList {
    /// Each item as raw JSON.
    pub(super) items: Vec<Box<RawValue>>,
    /// Why the list is incomplete, if it is.
    pub(super) problems: Vec<String>,
    /// Whether a part of it could not be read, so that what the server listed before may still hold. A list that was cut
    /// at a limit was read.
    pub(super) lacks_part: bool,
}

impl ServerList {
    /// A list that could not be read at all.
    pub(super) fn unread(problem: String) -> Self {
        Self { items: Vec::new(), problems: vec![problem], lacks_part: true }
    }

    /// Adds the problem of a part that could not be read.
    fn miss(&mut self, problem: String) {
        self.problems.push(problem);
        self.lacks_part = true;
    }

    /// If a part of this list could not be read, keeps the tools of the previous list that this one lacks. Both
    /// together have the limits of one list.
    pub(super) fn keep_tools(&mut self, before: &[Box<RawValue>]) {
        if !self.lacks_part {
            return;
        }
        let listed: HashSet<String> = self.items.iter().filter_map(|raw| tools::listed_name(raw)).collect();
        let used = self.items.iter().map(|raw| raw.get().len()).sum();
        let (mut room, count) = (MAX_LIST_BYTES.saturating_sub(used), self.items.len());
        let is_missing = |raw: &RawValue| tools::listed_name(raw).is_some_and(|name| !listed.contains(&name));
        let missing = before.iter().filter(|raw| is_missing(raw)).take(MAX_TOOLS.saturating_sub(count));
        let kept = missing.map_while(|raw| {
            room = room.checked_sub(raw.get().len())?;
            Some(raw.clone())
        });
        self.items.extend(kept);
        self.problems.extend(kept_problem(self.items.len() - count, ListKind::Tools));
    }
}

/// The problem that names how many items of the previous list stay. `None` if no item does.
pub(super) fn kept_problem(count: usize, list: ListKind) -> Option<String> {
    let items = if count == 1 { list.item_noun() } else { list.noun() };
    (count > 0).then(|| format!("until its list can be read, what it listed before stays: {count} {items}"))
}

/// The kind of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Tools,
    Resources,
    Templates,
}

impl ListKind {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The items, as messages name them.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resource templates",
        }
    }

    /// The member of a result that has the items.
    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// An item, as messages name it.
    pub(super) fn item_noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Resources => "resource",
            Self::Templates => "resource template",
        }
    }

    /// Most items of the list.
    fn max_items(self) -> usize {
        match self {
            Self::Tools => MAX_TOOLS,
            Self::Resources | Self::Templates => MAX_RESOURCES,
        }
    }
}

/// One page of a list.
#[derive(Debug, Default)]
struct ListPage<'a> {
    list: BoundedList<'a, MAX_TOOLS>,
    next_cursor: Option<&'a RawValue>,
    /// Whether the member with the items is absent.
    lacks_items: bool,
}

impl<'a> ListPage<'a> {
    /// Reads a page. A result may be the list alone.
    fn parse(result: &'a RawValue, list: ListKind) -> serde_json::Result<Self> {
        let page = match result.get() {
            "null" | "[]" => Members::default(),
            text if text.starts_with('[') => {
                let list = BoundedList::read(Some(result))?;
                return Ok(Self { list, ..Self::default() });
            }
            _ => Members::read(result, &["tools", "resources", "resourceTemplates", "nextCursor"])?,
        };
        let items = match list {
            ListKind::Tools | ListKind::Resources => page.present(list.member()),
            ListKind::Templates => page.present(list.member()).or(page.present("resources")),
        };
        let list = BoundedList::read(items)?;
        Ok(Self { list, next_cursor: page.raw("nextCursor"), lacks_items: items.is_none() })
    }
}

/// The name or the URI of an item, for a message.
fn item_name(raw: &RawValue) -> Option<String> {
    let item = Members::read(raw, &["uri", "uriTemplate", "name"]).ok()?;
    let text = item.raw("uri").or(item.raw("uriTemplate")).or(item.raw("name"))?;
    let text: String = serde_json::from_str(text.get()).ok()?;
    Some(one_line(&text, MAX_UNREDACTED_CHARS))
}

/// Names the items of a page that are not valid JSON as the server wrote them.
fn repaired_items(result: &RawValue, items: &[&RawValue], repair: &Repair, list: ListKind) -> Vec<String> {
    let start = |item: &RawValue| item.get().as_ptr().addr() - result.get().as_ptr().addr();
    let find = |place: &usize| {
        let next = items.partition_point(|item| start(item) <= *place);
        let index = next.checked_sub(1)?;
        items.get(index).filter(|item| *place < start(item) + item.get().len()).map(|_| index)
    };
    let touched: BTreeSet<usize> = repair.places.iter().filter_map(find).collect();
    let (noun, mut named) = (list.item_noun(), Vec::new());
    for item in touched.into_iter().take(MAX_PROBLEMS).filter_map(|index| items.get(index)) {
        let what = match item_name(item) {
            Some(name) => format!("the {noun} `{name}`"),
            None => format!("a {noun}"),
        };
        named.push(format!("{what} is not valid JSON: {repair}"));
    }
    if named.is_empty() {
        named.push(format!("its list of {} is not valid JSON: {repair}", list.noun()));
    }
    named
}

/// The position of the next page of a list.
#[derive(Debug, PartialEq, Eq)]
enum NextPage {
    End,
    Cursor(String),
    Unreadable,
}

impl NextPage {
    /// Reads a cursor. Servers write numbers for texts, and an empty text, `null` or `false` for none.
    fn from_cursor(raw: Option<&RawValue>) -> Self {
        let Some(raw) = raw.map(RawValue::get) else { return Self::End };
        match serde_json::from_str::<String>(raw) {
            Ok(cursor) if cursor.is_empty() => Self::End,
            Ok(cursor) => Self::Cursor(cursor),
            Err(_) if matches!(raw, "null" | "false") => Self::End,
            Err(_) if raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                Self::Cursor(raw.to_owned())
            }
            Err(_) => Self::Unreadable,
        }
    }
}

/// Reads the list of tools of a server that declares nothing. It may have forgotten to.
///
/// # Errors
/// The connection is closed.
pub(super) async fn read_undeclared_tools(session: &ClientSession) -> Result<ServerList, LinkError> {
    let most = DISCOVER_TIMEOUT;
    let reading = read_list(session, ListKind::Tools, later_pages_deadline(Instant::now(), most));
    let mut listed = ServerList::default();
    let why = match tokio::time::timeout(most, reading).await {
        Ok(Ok(read)) if !read.items.is_empty() => return Ok(read),
        Ok(Ok(read)) => {
            listed = read;
            "lists none".to_owned()
        }
        Ok(Err(error @ LinkError::Closed(_))) => return Err(error),
        Ok(Err(error)) => {
            listed.lacks_part = true;
            format!("refuses `tools/list`: {}", error.refusal().for_operator())
        }
        Err(_) => {
            listed.lacks_part = true;
            "does not answer `tools/list`".to_owned()
        }
    };
    listed.problems.insert(0, format!("it declares no tools, resources or prompts, and {why}"));
    Ok(listed)
}

/// Reads the list of tools of a server that declares some. A server that does not know the method has none.
///
/// # Errors
/// As [`read_list`].
pub(super) async fn read_declared_tools(
    session: &ClientSession,
    deadline: Instant,
) -> Result<ServerList, LinkError> {
    match read_list(session, ListKind::Tools, deadline).await {
        Err(LinkError::Rpc(error)) if error.code == METHOD_NOT_FOUND => {
            let problem = format!("it declares tools, but refuses `tools/list`: {}", error.describe());
            Ok(ServerList::unread(problem))
        }
        read => read,
    }
}

/// When to stop waiting for a further page of a list that must be read within `most` from `start`. The rest of the time
/// is for the import of what was read.
pub(super) fn later_pages_deadline(start: Instant, most: Duration) -> Instant {
    start + most / 10 * 9
}

/// Reads all pages of a list, within its limits. A page that is no list is empty, with a problem.
///
/// # Errors
/// The first page was not received. A failure on a later page, or none until `deadline`, makes the list incomplete.
pub(super) async fn read_list(
    session: &ClientSession,
    list: ListKind,
    deadline: Instant,
) -> Result<ServerList, LinkError> {
    let (mut listed, mut seen, mut bytes) = (ServerList::default(), HashSet::new(), 0);
    let (items, most) = (list.noun(), list.max_items());
    let mut cursor: Option<String> = None;
    let notes = Arc::<OutputNotes>::default();
    for page in 1..=MAX_PAGES {
        let mut params = Map::new();
        if let Some(cursor) = &cursor {
            params.insert("cursor".to_owned(), json!(cursor));
        }
        let extra = RequestExtra { notes: Some(&notes), ..RequestExtra::default() };
        let answer = session.request(list.method(), params, extra);
        let answer = match page {
            1 => answer.await,
            _ => tokio::time::timeout_at(deadline, answer)
                .await
                .unwrap_or_else(|_| Err(LinkError::InvalidResponse("no answer came in time".into()))),
        };
        let result = match answer {
            Err(error) if page > 1 && !matches!(error, LinkError::Closed(_)) => {
                let why = error.refusal().for_operator();
                let problem =
                    format!("page {page} of its list of {items} cannot be read: {why}; the rest is left out");
                listed.miss(problem);
                return Ok(listed);
            }
            result => result?,
        };
        bytes += result.get().len();
        if bytes > MAX_LIST_BYTES {
            let most = quantity::show_bytes(MAX_LIST_BYTES as u64);
            listed.problems.push(format!("its list of {items} exceeds {most}; the rest is left out"));
            return Ok(listed);
        }
        let ListPage { list: found, next_cursor, lacks_items } = match ListPage::parse(&result, list) {
            Ok(found) => found,
            Err(error) => {
                let error = one_line(&error.to_string(), MAX_UNREDACTED_CHARS);
                listed.miss(format!("page {page} of its list of {items} cannot be read: {error}"));
                return Ok(listed);
            }
        };
        if lacks_items {
            let (method, member) = (list.method(), list.member());
            listed.miss(format!("its answer to `{method}` has no `{member}`"));
        }
        if let Some(repair) = notes.take_repair() {
            listed.problems.extend(repaired_items(&result, &found.items, &repair, list));
        }
        let room = most - listed.items.len();
        let more = !found.truncated && found.items.len() <= room;
        if !more {
            listed.problems.push(format!("it lists more than {most} {items}; the rest is left out"));
        }
        listed.items.extend(found.items.into_iter().take(room).map(ToOwned::to_owned));
        match NextPage::from_cursor(next_cursor) {
            NextPage::Cursor(next) if more => {
                if next.len() > MAX_CURSOR || !seen.insert(next.clone()) {
                    let problem = format!(
                        "its list of {items} has a repeated or oversized cursor; the rest is left out"
                    );
                    listed.miss(problem);
                    return Ok(listed);
                }
                cursor = Some(next);
            }
            NextPage::Unreadable if more => {
                let problem =
                    format!("its list of {items} has a cursor that is no text; the rest is left out");
                listed.miss(problem);
                return Ok(listed);
            }
            NextPage::Cursor(_) | NextPage::Unreadable | NextPage::End => return Ok(listed),
        }
    }
    let problem = format!("its list of {items} has more than {MAX_PAGES} pages; the rest is left out");
    listed.problems.push(problem);
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

    use super::super::link::Link;
    use super::super::stdio::tests::pipe_link;
    use super::*;

    #[test]
    fn a_cursor_is_read_in_every_form_that_servers_write() {
        let cursor = |text: &str| NextPage::Cursor(text.to_owned());
        for (raw, expect) in [
            ("null", NextPage::End),
            ("\"\"", NextPage::End),
            ("false", NextPage::End),
            ("\"a\"", cursor("a")),
            ("2", cursor("2")),
            ("-1.5", cursor("-1.5")),
            ("{\"page\":2}", NextPage::Unreadable),
        ] {
            let text = format!("{{\"tools\":[{{}}],\"nextCursor\":{raw}}}");
            let raw = RawValue::from_string(text).unwrap();
            let page = ListPage::parse(&raw, ListKind::Tools).unwrap();
            assert_eq!(page.list.items.len(), 1);
            assert_eq!(NextPage::from_cursor(page.next_cursor), expect, "{raw}");
        }
        assert_eq!(NextPage::from_cursor(None), NextPage::End);
    }

    /// Answers each request with the next of these results or errors, and none after them.
    async fn serve(pipe: DuplexStream, answers: &[Value]) -> Vec<Value> {
        let (reader, mut writer) = tokio::io::split(pipe);
        let (mut lines, mut seen) = (BufReader::new(reader).lines(), Vec::new());
        for answer in answers {
            let line = lines.next_line().await.unwrap().unwrap();
            let request: Value = serde_json::from_str(&line).unwrap();
            let mut answer = answer.clone();
            answer["id"] = request["id"].clone();
            seen.push(request["params"].clone());
            writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(100)).await;
        seen
    }

    async fn listed(answers: &[Value]) -> (ServerList, Vec<Value>) {
        let (link, inbox, pipe) = pipe_link();
        let session = ClientSession::new(Link::Stdio(link), inbox);
        let (listed, seen) = tokio::join!(read_undeclared_tools(&session), serve(pipe, answers));
        (listed.unwrap(), seen)
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_goes_on_at_a_number_and_ends_at_an_empty_text() {
        let page = |next: Value| json!({"result": {"tools": [{}], "nextCursor": next}});
        let (list, seen) = listed(&[page(json!(2)), page(json!(""))]).await;
        assert_eq!((list.items.len(), list.problems), (2, Vec::new()));
        assert_eq!(seen, [json!({}), json!({"cursor": "2"})]);
        let (list, _) = listed(&[page(json!([1]))]).await;
        assert!(list.items.len() == 1 && list.problems[0].contains("a cursor that is no text"));
    }

    /// Reads the declared tools, or another list, within 100 seconds. An answer is a line without its id and its end.
    async fn read(list: ListKind, answers: &[&[u8]]) -> Result<ServerList, LinkError> {
        let (link, inbox, pipe) = pipe_link();
        let session = ClientSession::new(Link::Stdio(link), inbox);
        let serve = async {
            let (reader, mut writer) = tokio::io::split(pipe);
            let mut lines = BufReader::new(reader).lines();
            for (id, answer) in answers.iter().enumerate() {
                lines.next_line().await.unwrap().unwrap();
                let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},", id + 1);
                writer.write_all(&[head.as_bytes(), answer, b"}\n"].concat()).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let deadline = later_pages_deadline(Instant::now(), Duration::from_secs(100));
        let read = async {
            match list {
                ListKind::Tools => read_declared_tools(&session, deadline).await,
                other => read_list(&session, other, deadline).await,
            }
        };
        let read = tokio::time::timeout(Duration::from_secs(100), read);
        tokio::select! {
            read = read => read.unwrap(),
            () = serve => unreachable!(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_a_list_costs_only_the_list() {
        for (answer, part) in [
            (&b"\"result\":{}"[..], "has no `tools`"),
            (b"\"result\":[]", "has no `tools`"),
            (b"\"result\":null", "has no `tools`"),
            (b"\"result\":7", "cannot be read"),
            (b"\"result\":{\"tools\":[],\"tools\":[]}", "duplicate"),
            (b"\"error\":{\"code\":-32601,\"message\":\"no\"}", "declares tools, but refuses"),
        ] {
            let list = read(ListKind::Tools, &[answer]).await.unwrap();
            assert!(list.items.is_empty() && list.problems.len() == 1, "{part}: {list:?}");
            assert!(list.problems[0].contains(part) && list.lacks_part, "{part}: {list:?}");
        }
        let busy = b"\"error\":{\"code\":-32603,\"message\":\"not yet\"}";
        assert!(read(ListKind::Tools, &[busy]).await.is_err(), "it may have tools later");
        for (list, part) in
            [(ListKind::Resources, "no `resources`"), (ListKind::Templates, "no `resourceTemplates`")]
        {
            let list = read(list, &[b"\"result\":{}"]).await.unwrap();
            assert!(list.items.is_empty() && list.problems[0].contains(part), "{list:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_read_in_every_form() {
        for (list, answer, count) in [
            (ListKind::Tools, r#"{"tools":null}"#, 0),
            (ListKind::Tools, r#"{"tools":{"0":{"name":"a"},"1":{"name":"b"}}}"#, 2),
            (ListKind::Tools, r#"{"tools":{"name":"a"}}"#, 1),
            (ListKind::Tools, r#"[{"name":"a"}]"#, 1),
            (ListKind::Tools, r#"{"tools":[{"name":"a"}],"resources":[1,2]}"#, 1),
            (ListKind::Resources, r#"{"resources":{"0":{"uri":"a"},"2":{"uri":"b"}}}"#, 2),
            (ListKind::Templates, r#"{"resourceTemplates":{"1":{"uriTemplate":"a"}}}"#, 1),
        ] {
            let list = read(list, &[format!("\"result\":{answer}").as_bytes()]).await.unwrap();
            assert_eq!(
                (list.items.len(), list.problems, list.lacks_part),
                (count, Vec::new(), false),
                "{answer}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_never_comes_costs_only_the_rest() {
        for (list, first) in [
            (ListKind::Tools, &br#""result":{"tools":[{}],"nextCursor":"b"}"#[..]),
            (ListKind::Resources, br#""result":{"resources":[{}],"nextCursor":"b"}"#),
            (ListKind::Templates, br#""result":{"resourceTemplates":[{}],"nextCursor":"b"}"#),
        ] {
            let read = read(list, &[first]).await.unwrap();
            assert!(read.items.len() == 1 && read.lacks_part, "{read:?}");
            assert!(
                read.problems[0].contains("page 2") && read.problems[0].contains("no answer came in time"),
                "{read:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_that_is_not_json_is_repaired_and_named() {
        let whole = br#""result":{"ttl":1,"tools":[{"name":"a"},{"name":"odd","x":"@"},{"name":"c"}]}"#;
        for (odd, what) in [(&b"NaN"[..], "null"), (b"\"a\tb\"", "control"), (b"\"\xe9\"", "not UTF-8")] {
            let at = whole.windows(3).position(|part| part == b"\"@\"").unwrap();
            let answer = [&whole[..at], odd, &whole[at + 3..]].concat();
            let list = read(ListKind::Tools, &[&answer]).await.unwrap();
            assert_eq!((list.items.len(), list.problems.len()), (3, 1), "{list:?}");
            assert!(list.problems[0].starts_with("the tool `odd` is not valid JSON"), "{list:?}");
            assert!(list.problems[0].contains(what), "{list:?}");
        }
        let outside = br#""result":{"ttl":NaN,"resources":[{"uri":"a"}]}"#;
        let list = read(ListKind::Resources, &[outside]).await.unwrap();
        assert!(list.problems[0].starts_with("its list of resources is not valid JSON"), "{list:?}");
    }

    #[test]
    fn a_list_that_lacks_a_part_keeps_what_the_one_before_had_within_the_limits_of_one() {
        let tool = |name: &str| RawValue::from_string(format!("{{\"name\":\"{name}\"}}")).unwrap();
        let before = [tool("a"), tool("b"), RawValue::from_string("7".to_owned()).unwrap()];
        let mut whole = ServerList { items: vec![tool("a")], ..ServerList::default() };
        whole.keep_tools(&before);
        assert_eq!((whole.items.len(), whole.problems.len()), (1, 0), "it no longer has `b`");
        let mut part =
            ServerList { items: vec![tool("a"), tool("c")], ..ServerList::unread("no".to_owned()) };
        part.keep_tools(&before);
        let names: Vec<_> = part.items.iter().filter_map(|raw| tools::listed_name(raw)).collect();
        assert_eq!(names, ["a", "c", "b"]);
        assert!(part.problems[1].ends_with("stays: 1 tool"), "{:?}", part.problems);
        // A server cannot collect tools by lists that break off.
        let many: Vec<_> = (0..MAX_TOOLS).map(|n| tool(&format!("old{n}"))).collect();
        part.keep_tools(&many);
        assert_eq!(part.items.len(), MAX_TOOLS);
        let long = tool(&"x".repeat(MAX_LIST_BYTES));
        let mut none = ServerList::unread("no".to_owned());
        none.keep_tools(&[long]);
        assert!(none.items.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn tools_that_were_not_declared_are_listed_or_the_reason_is_told() {
        let (list, _) = listed(&[json!({"result": {"tools": [{}]}})]).await;
        assert_eq!((list.items.len(), list.problems), (1, Vec::new()));
        let (list, _) = listed(&[json!({"error": {"code": -32601, "message": "no"}})]).await;
        assert!(list.problems[0].contains("declares no tools") && list.problems[0].contains("-32601"));
        assert!(list.lacks_part);
        let (list, _) = listed(&[json!({"result": {"tools": []}})]).await;
        assert!(list.items.is_empty() && list.problems[0].contains("lists none") && !list.lacks_part);
        let (list, _) = listed(&[]).await;
        assert!(list.problems[0].contains("does not answer `tools/list`"));
    }
}
