//! Pagination of lists. A cursor contains the name of the last item of a page. That item may be gone when the next page
//! is requested, since a list can change in between.

use std::borrow::Cow;

use rmcp::model::{ErrorData, PaginatedRequestParams};

/// Prefix of a cursor; the name of the last item follows.
const CURSOR: &str = "after:";
/// Longest accepted cursor, in bytes.
const MAX_CURSOR: usize = 1024;

/// The start of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor(Option<String>);

impl Cursor {
    /// Reads the cursor of a request.
    ///
    /// # Errors
    /// The cursor was not issued by this server.
    pub(crate) fn from_request(request: PaginatedRequestParams) -> Result<Self, ErrorData> {
        let Some(cursor) = request.cursor else { return Ok(Self(None)) };
        let legal = |name: &&str| {
            !name.is_empty() && name.len() <= MAX_CURSOR && name.bytes().all(|b| b.is_ascii_graphic())
        };
        match cursor.strip_prefix(CURSOR).filter(legal) {
            Some(name) => Ok(Self(Some(name.to_owned()))),
            None => Err(ErrorData::invalid_params("`cursor` was not issued by this server", None)),
        }
    }

    /// Whether it is the first page.
    pub(crate) fn is_first(&self) -> bool {
        self.0.is_none()
    }

    /// Returns at most `size` items after the cursor, and the cursor of the next page if there is one. `things` must be
    /// sorted by name.
    pub(crate) fn page<'a, T>(
        &self,
        things: impl Iterator<Item = (Cow<'a, str>, T)>,
        size: usize,
    ) -> (Vec<T>, Option<String>) {
        let after = self.0.as_deref();
        let mut rest = things.skip_while(|(name, _)| after.is_some_and(|after| &**name <= after)).peekable();
        let (mut page, mut last) = (Vec::new(), None);
        for (name, thing) in rest.by_ref().take(size.max(1)) {
            page.push(thing);
            last = Some(name);
        }
        let next = rest.peek().and(last).map(|last| format!("{CURSOR}{last}"));
        (page, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other() {
        let names = ["a", "b", "c", "d", "e"];
        let page = |cursor: &Cursor| cursor.page(names.iter().map(|name| (Cow::from(*name), *name)), 2);
        let (mut cursor, mut seen) = (Cursor(None), vec![]);
        loop {
            let (page, next) = page(&cursor);
            seen.push(page);
            let Some(next) = next else { break };
            let mut request = PaginatedRequestParams::default();
            request.cursor = Some(next);
            cursor = Cursor::from_request(request).unwrap();
        }
        assert_eq!(seen, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
        assert_eq!(page(&Cursor(Some("bb".to_owned()))).0, ["c", "d"], "the named item may be gone");
        assert_eq!(page(&Cursor(Some("z".to_owned()))), (vec![], None));
    }
}
