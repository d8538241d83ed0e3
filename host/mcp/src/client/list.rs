//! Reads the lists of a server page by page, and keeps each item as raw JSON.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};
use toolbay_policy::quantity;

use super::bounds::{MAX_CURSOR, MAX_LIST_BYTES, MAX_PAGES, MAX_RESOURCES, MAX_TOOLS};
use super::link::LinkError;
use super::session::{ClientSession, RequestExtra};
use crate::protocol::bounded::BoundedList;
use crate::protocol::message;

/// A list of a server.
#[derive(Debug, Default)]
pub(super) struct ServerList {
    /// Each item as raw JSON.
    pub(super) items: Vec<Box<RawValue>>,
    /// Why the list is incomplete, if it is.
    pub(super) problems: Vec<String>,
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
    fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resource templates",
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListPage<'a> {
    #[serde(borrow, alias = "resources", alias = "resourceTemplates")]
    tools: BoundedList<'a, MAX_TOOLS>,
    next_cursor: Option<String>,
}

/// Reads all pages of a list, within its limits.
///
/// # Errors
/// The first page cannot be read. A failure on a later page makes the list incomplete.
pub(super) async fn read_list(session: &ClientSession, list: ListKind) -> Result<ServerList, LinkError> {
    let (mut listed, mut seen, mut bytes) = (ServerList::default(), HashSet::new(), 0);
    let (items, most) = (list.noun(), list.max_items());
    let mut cursor: Option<String> = None;
    for page in 0..MAX_PAGES {
        let mut params = Map::new();
        if let Some(cursor) = &cursor {
            params.insert("cursor".to_owned(), json!(cursor));
        }
        let result = match session.request(list.method(), params, RequestExtra::default()).await {
            Err(error) if page > 0 && !matches!(error, LinkError::Closed(_)) => {
                listed
                    .problems
                    .push(format!("page {} of its list of {items} cannot be read: {error}", page + 1));
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
        let page: ListPage<'_> = message::parse_object(&result).map_err(|error| {
            LinkError::InvalidResponse(format!("its list of {items} cannot be read: {error}"))
        })?;
        let room = most - listed.items.len();
        let more = !page.tools.truncated && page.tools.items.len() <= room;
        if !more {
            listed.problems.push(format!("it lists more than {most} {items}; the rest is left out"));
        }
        listed.items.extend(page.tools.items.into_iter().take(room).map(ToOwned::to_owned));
        match page.next_cursor {
            Some(next) if more => {
                if next.len() > MAX_CURSOR || !seen.insert(next.clone()) {
                    let problem = format!(
                        "its list of {items} has a repeated or oversized cursor; the rest is left out"
                    );
                    listed.problems.push(problem);
                    return Ok(listed);
                }
                cursor = Some(next);
            }
            Some(_) | None => return Ok(listed),
        }
    }
    let problem = format!("its list of {items} has more than {MAX_PAGES} pages; the rest is left out");
    listed.problems.push(problem);
    Ok(listed)
}
