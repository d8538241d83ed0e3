//! A server's list of tools, page by page, each tool by itself.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};
use toolbay_core::quantity;

use super::bounded::First;
use super::bounds::{MAX_CURSOR, MAX_LIST_BYTES, MAX_PAGES, MAX_TOOLS};
use super::link::LinkError;
use super::session::{Extra, Session};
use super::wire;

/// What a server listed.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Each tool as it stands in the list.
    pub(super) tools: Vec<Box<RawValue>>,
    /// Why the list is not whole, if it is not.
    pub(super) problems: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    tools: First<'a, MAX_TOOLS>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Reads the whole list, as far as it is sound and not too long.
///
/// # Errors
/// When there is no first page; later ones only cost what they would have brought.
pub(super) async fn tools(session: &Session) -> Result<Listed, LinkError> {
    let (mut listed, mut seen, mut bytes) = (Listed::default(), HashSet::new(), 0);
    let mut cursor: Option<String> = None;
    for page in 0..MAX_PAGES {
        let mut params = Map::new();
        if let Some(cursor) = &cursor {
            params.insert("cursor".to_owned(), json!(cursor));
        }
        let result = match session.ask("tools/list", params, Extra::default()).await {
            Err(error) if page > 0 && !matches!(error, LinkError::Closed(_)) => {
                listed.problems.push(format!("page {} of its list could not be had: {error}", page + 1));
                return Ok(listed);
            }
            result => result?,
        };
        bytes += result.get().len();
        if bytes > MAX_LIST_BYTES {
            let most = quantity::show_bytes(MAX_LIST_BYTES as u64);
            listed.problems.push(format!("its list has more than {most}; the rest is left out"));
            return Ok(listed);
        }
        let page: Page<'_> = wire::object(&result)
            .map_err(|error| LinkError::Bad(format!("its list of tools can not be read: {error}")))?;
        let room = MAX_TOOLS - listed.tools.len();
        let more = !page.tools.more && page.tools.items.len() <= room;
        if !more {
            listed.problems.push(format!("it lists more than {MAX_TOOLS} tools; the rest is left out"));
        }
        listed.tools.extend(page.tools.items.into_iter().take(room).map(ToOwned::to_owned));
        match page.next_cursor {
            Some(next) if more => {
                if next.len() > MAX_CURSOR || !seen.insert(next.clone()) {
                    listed.problems.push("its list leads back into itself; the rest is left out".to_owned());
                    return Ok(listed);
                }
                cursor = Some(next);
            }
            Some(_) | None => return Ok(listed),
        }
    }
    listed.problems.push(format!("its list has more than {MAX_PAGES} pages; the rest is left out"));
    Ok(listed)
}
