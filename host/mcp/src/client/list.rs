//! A server's lists, page by page, each item by itself.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};
use toolbay_policy::quantity;

use super::bounds::{MAX_CURSOR, MAX_LIST_BYTES, MAX_PAGES, MAX_RESOURCES, MAX_TOOLS};
use super::link::LinkError;
use super::session::{Extra, Session};
use crate::protocol::bounded::First;
use crate::protocol::message;

/// What a server listed.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Each item as it stands in the list.
    pub(super) items: Vec<Box<RawValue>>,
    /// Why the list is not whole, if it is not.
    pub(super) problems: Vec<String>,
}

/// A list that servers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Tools,
    Resources,
    Templates,
}

impl List {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// What is in it, for people.
    fn items(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resource templates",
        }
    }

    /// How many of them are taken.
    fn most(self) -> usize {
        match self {
            Self::Tools => MAX_TOOLS,
            Self::Resources | Self::Templates => MAX_RESOURCES,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow, alias = "resources", alias = "resourceTemplates")]
    tools: First<'a, MAX_TOOLS>,
    next_cursor: Option<String>,
}

/// Reads a whole list, as far as it is sound and not too long.
///
/// # Errors
/// When there is no first page; later ones only cost what they would have brought.
pub(super) async fn read(session: &Session, list: List) -> Result<Listed, LinkError> {
    let (mut listed, mut seen, mut bytes) = (Listed::default(), HashSet::new(), 0);
    let (items, most) = (list.items(), list.most());
    let mut cursor: Option<String> = None;
    for page in 0..MAX_PAGES {
        let mut params = Map::new();
        if let Some(cursor) = &cursor {
            params.insert("cursor".to_owned(), json!(cursor));
        }
        let result = match session.ask(list.method(), params, Extra::default()).await {
            Err(error) if page > 0 && !matches!(error, LinkError::Closed(_)) => {
                listed
                    .problems
                    .push(format!("page {} of its list of {items} could not be had: {error}", page + 1));
                return Ok(listed);
            }
            result => result?,
        };
        bytes += result.get().len();
        if bytes > MAX_LIST_BYTES {
            let most = quantity::show_bytes(MAX_LIST_BYTES as u64);
            listed.problems.push(format!("its list of {items} has more than {most}; the rest is left out"));
            return Ok(listed);
        }
        let page: Page<'_> = message::object(&result)
            .map_err(|error| LinkError::Bad(format!("its list of {items} cannot be read: {error}")))?;
        let room = most - listed.items.len();
        let more = !page.tools.more && page.tools.items.len() <= room;
        if !more {
            listed.problems.push(format!("it lists more than {most} {items}; the rest is left out"));
        }
        listed.items.extend(page.tools.items.into_iter().take(room).map(ToOwned::to_owned));
        match page.next_cursor {
            Some(next) if more => {
                if next.len() > MAX_CURSOR || !seen.insert(next.clone()) {
                    let problem = format!("its list of {items} leads back into itself; the rest is left out");
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
