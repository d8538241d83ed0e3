//! Lists of tools on their way out, as text. A tool looks the same in each list, so it is written as JSON once; the
//! library's lists own their tools, and each would be copied and written again. A transport of ours finds the text by the
//! id of the request, and puts it where the library's answer has an empty list.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;

/// Pages that wait to be sent. One stays behind for each request that was cancelled in the moment it was answered.
const MAX_PAGES: usize = 64;
/// How an answer ends up that has no tools.
const EMPTY: &[u8] = b"\"tools\":[]";

/// Pages of tools, by the requests they answer.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<HashMap<RequestId, String>>);

impl Lists {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the tools of a page, as JSON with commas between them; returns whether there was room.
    pub(crate) fn keep(&self, id: &RequestId, tools: String) -> bool {
        let mut pages = self.lock();
        let room = pages.len() < MAX_PAGES;
        if room {
            pages.insert(id.clone(), tools);
        }
        room
    }

    /// The tools of the page that answers a request.
    pub(crate) fn take(&self, id: &RequestId) -> Option<String> {
        self.lock().remove(id)
    }
}

/// The two parts of an answer between which its tools belong. A text in it can not look like that: its quotes are escaped.
pub(crate) fn around(answer: &[u8]) -> Option<(&[u8], &[u8])> {
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
        assert!((0..MAX_PAGES).all(|n| lists.keep(&id(n), n.to_string())));
        assert!(!lists.keep(&id(MAX_PAGES), String::new()));
        assert_eq!(lists.take(&id(3)).as_deref(), Some("3"));
        assert!(lists.keep(&id(MAX_PAGES), String::new()));
        assert_eq!(lists.take(&id(3)), None);
    }
}
