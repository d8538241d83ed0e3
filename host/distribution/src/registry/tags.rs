//! The tags of a repository (OCI distribution specification 1.1, "Listing Tags").

use bytes::Bytes;
use serde::Deserialize;
use url::Url;

use super::{RedirectRule, RegistryClient, RegistryError, read_body};
use crate::reference::is_tag;

/// Most tags of a repository.
const MAX_TAGS: usize = 10_000;
/// Tags that are asked for at once.
const PAGE: &str = "1000";
/// Largest page in bytes: a thousand tags of the greatest length.
const MAX_PAGE: usize = 256 << 10;

#[derive(Deserialize)]
struct TagsDocument {
    /// `null`: there are none.
    tags: Option<Vec<String>>,
}

impl RegistryClient {
    /// All tags of the repository, in the order of the registry.
    ///
    /// # Errors
    /// The registry failed, lists something that is not a tag, or has more than ten thousand.
    pub async fn tags(&self) -> Result<Vec<String>, RegistryError> {
        let refused = |why: String| RegistryError::Refused(format!("the list of tags is refused: {why}"));
        let mut url = self.url("tags/list")?;
        url.query_pairs_mut().append_pair("n", PAGE);
        let mut all = Vec::new();
        loop {
            let response =
                self.exchange("GET", url.clone(), Vec::new(), Bytes::new(), RedirectRule::Return).await?;
            let response = self.expect_success(response, "tags")?;
            let next = response.header("link").map(|link| self.next_page(&url, link)).transpose()?;
            let bytes = read_body(response, MAX_PAGE).await?;
            let page: TagsDocument = serde_json::from_slice(&bytes)
                .map_err(|_| refused("it is not a document with `tags`".to_owned()))?;
            let page = page.tags.unwrap_or_default();
            if let Some(tag) = page.iter().find(|tag| !is_tag(tag)) {
                let shown = toolbay_policy::excerpt::one_line(tag, 100);
                return Err(refused(format!("`{shown}` is not a tag")));
            }
            let is_last = page.is_empty();
            all.extend(page);
            if all.len() > MAX_TAGS {
                return Err(refused(format!("it has more than {MAX_TAGS} tags")));
            }
            match next {
                Some(next) if !is_last => url = next,
                _ => return Ok(all),
            }
        }
    }

    /// The page that a `link` header names (RFC 8288), which must be of the registry itself.
    fn next_page(&self, url: &Url, link: &str) -> Result<Url, RegistryError> {
        let target = link.trim_start().strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let next = target.and_then(|(target, _)| url.join(target).ok());
        next.filter(|next| self.is_own(next) && next.username().is_empty() && next.password().is_none())
            .ok_or_else(|| {
                let host = &self.reference.host;
                RegistryError::Refused(format!("`{host}` lists more tags in a place that is not its own"))
            })
    }
}
