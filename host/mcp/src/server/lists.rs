//! Lists of tools on their way out. A tool looks the same in each list, so it is written as JSON once; the library's lists
//! own their tools, and each would be copied and written again. A transport of ours finds the tools by the id of the
//! request, and writes them where the library's answer has an empty list.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;
use tokio_util::bytes::{BufMut, BytesMut};
use toolbay_core::registry::view::Entry;

use crate::server::convert::{self, Era};

/// Pages that wait to be sent. One stays behind for each request that was cancelled in the moment it was answered.
const MAX_PAGES: usize = 64;
/// How an answer ends up that has no tools.
const EMPTY: &[u8] = b"\"tools\":[]";

/// Pages of tools, by the requests they answer.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<HashMap<RequestId, Page>>);

/// Some tools, as clients of an era see them.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) tools: Vec<Arc<Entry>>,
    pub(crate) era: Era,
}

impl Lists {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Page>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the page that answers a request; gives it back if there is no room.
    pub(crate) fn keep(&self, id: &RequestId, page: Page) -> Result<(), Page> {
        let mut pages = self.lock();
        if pages.len() >= MAX_PAGES {
            return Err(page);
        }
        pages.insert(id.clone(), page);
        Ok(())
    }

    /// The page that answers a request.
    pub(crate) fn take(&self, id: &RequestId) -> Option<Page> {
        self.lock().remove(id)
    }
}

impl Page {
    /// Writes an answer that has no tools, with these; `None`: it has no place for them.
    pub(crate) fn write(&self, answer: &[u8], buffer: &mut BytesMut) -> Option<()> {
        let (before, after) = around(answer)?;
        buffer.put_slice(before);
        for (n, tool) in self.tools.iter().enumerate() {
            if n > 0 {
                buffer.put_u8(b',');
            }
            buffer.put_slice(convert::written(tool, self.era).as_bytes());
        }
        buffer.put_slice(after);
        Some(())
    }
}

/// The two parts of an answer between which its tools belong. A text in it can not look like that: its quotes are escaped.
fn around(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = answer.windows(EMPTY.len()).position(|part| part == EMPTY)?;
    answer.split_at_checked(at + EMPTY.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_belong_into_the_list_and_into_no_text() {
        let answer = br#"{"id":"\"tools\":[]","result":{"tools":[],"nextCursor":"x"}}"#;
        let (before, after) = around(answer).unwrap();
        assert_eq!(before, br#"{"id":"\"tools\":[]","result":{"tools":["#);
        assert_eq!(after, br#"],"nextCursor":"x"}}"#);
        assert_eq!(around(br#"{"result":{}}"#), None);
    }

    #[test]
    fn pages_of_requests_that_nobody_answers_take_no_more_than_that() {
        let lists = Lists::default();
        let id = |n: usize| RequestId::Number(i64::try_from(n).unwrap());
        let page = || Page { tools: Vec::new(), era: Era::Legacy };
        assert!((0..MAX_PAGES).all(|n| lists.keep(&id(n), page()).is_ok()));
        assert!(lists.keep(&id(MAX_PAGES), page()).is_err());
        assert!(lists.take(&id(3)).is_some() && lists.take(&id(3)).is_none());
        assert!(lists.keep(&id(MAX_PAGES), page()).is_ok());
    }
}
