//! Lists in pages. A cursor names the last thing of a page, which need not be there any more when the next is asked
//! for: a list may change between pages.

use std::borrow::Cow;

use rmcp::model::{ErrorData, PaginatedRequestParams};

/// Starts a cursor; the name of the last thing of the page follows.
const CURSOR: &str = "after:";
/// Longest cursor that is read, in bytes.
const MAX_CURSOR: usize = 1024;

/// Where a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor(Option<String>);

impl Cursor {
    /// The cursor of a request.
    ///
    /// # Errors
    /// One that this server gave to nobody.
    pub(crate) fn of(request: PaginatedRequestParams) -> Result<Self, ErrorData> {
        let Some(cursor) = request.cursor else { return Ok(Self(None)) };
        let legal = |name: &&str| {
            !name.is_empty() && name.len() <= MAX_CURSOR && name.bytes().all(|b| b.is_ascii_graphic())
        };
        match cursor.strip_prefix(CURSOR).filter(legal) {
            Some(name) => Ok(Self(Some(name.to_owned()))),
            None => Err(ErrorData::invalid_params("`cursor` is not one this server gave out", None)),
        }
    }

    /// Whether it is the first page.
    pub(crate) fn is_first(&self) -> bool {
        self.0.is_none()
    }

    /// At most `size` things from there on, and the cursor of the next page, if there is one. `things` come in the
    /// order of their names.
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
            cursor = Cursor::of(request).unwrap();
        }
        assert_eq!(seen, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
        assert_eq!(page(&Cursor(Some("bb".to_owned()))).0, ["c", "d"], "what it names may be gone");
        assert_eq!(page(&Cursor(Some("z".to_owned()))), (vec![], None));
    }
}
