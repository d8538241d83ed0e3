//! What was cut from the results of a connection, as resources of it: `toolbay://output/ID`.

use rmcp::model::{ErrorData, ListResourcesResult, ReadResourceResult, Resource, ResourceContents};
use toolbay_core::budget::Truncation;
use toolbay_core::session::Session;
use toolbay_core::spool::{Spool, SpoolId, Spooled};
use toolbay_core::untrusted::Mark;

/// What the URIs of kept texts begin with; the id follows.
const PREFIX: &str = "toolbay://output/";
/// All of them are texts.
const MIME: &str = "text/plain";

/// A kept text as a list or a result shows it.
pub(crate) fn resource(kept: &Spooled) -> Resource {
    let mut resource = Resource::new(format!("{PREFIX}{}", kept.id), format!("output {}", kept.id));
    resource.title = Some(format!("Full result of {}", kept.tool));
    resource.mime_type = Some(MIME.to_owned());
    resource.size = Some(kept.bytes);
    resource
}

/// All that is kept for a session: a thousand at most.
pub(crate) async fn list(spool: &dyn Spool, session: &Session) -> ListResourcesResult {
    let kept = match session.key() {
        Some(session) => spool.list(session).await,
        None => Vec::new(),
    };
    ListResourcesResult::with_all_items(kept.iter().map(resource).collect())
}

/// One text, marked if others may have written it.
pub(crate) async fn read(
    spool: &dyn Spool,
    session: &Session,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let absent = || ErrorData::resource_not_found("no text of this URI is kept for this connection", None);
    let id = uri.strip_prefix(PREFIX).and_then(SpoolId::parse).ok_or_else(absent)?;
    let session = session.key().ok_or_else(absent)?;
    let kept = spool.get(session, &id).await.ok_or_else(absent)?;
    let text = if kept.untrusted {
        let total = kept.text.chars().count();
        Mark::new(&kept.source, &kept.tool).fit(&kept.text, usize::MAX, Truncation::Head, total, "")
    } else {
        kept.text.to_string()
    };
    let (uri, mime_type) = (uri.to_owned(), Some(MIME.to_owned()));
    Ok(ReadResourceResult::new(vec![ResourceContents::TextResourceContents {
        uri,
        mime_type,
        text,
        meta: None,
    }]))
}
