//! What was cut from the results of a connection, as resources of it: `toolbay://output/ID`.

use rmcp::model::{Resource, ResourceContents};
use toolbay_core::output::untrusted::Mark;
use toolbay_core::session::Session;
use toolbay_core::session::spool::{Spool, SpoolId, Spooled};
use toolbay_policy::output::Truncation;

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
pub(crate) async fn list(spool: &dyn Spool, session: &Session) -> Vec<Resource> {
    let kept = match session.key() {
        Some(session) => spool.list(session).await,
        None => Vec::new(),
    };
    kept.iter().map(resource).collect()
}

/// Whether an address is one of such a text.
pub(crate) fn is_one(uri: &str) -> bool {
    uri.starts_with(PREFIX)
}

/// One text, marked if others may have written it; `None`: none of this address is kept for this session.
pub(crate) async fn read(spool: &dyn Spool, session: &Session, uri: &str) -> Option<ResourceContents> {
    let id = uri.strip_prefix(PREFIX).and_then(SpoolId::parse)?;
    let kept = spool.get(session.key()?, &id).await?;
    let text = if kept.untrusted {
        let total = kept.text.chars().count();
        Mark::new(&kept.source, &kept.tool).fit(&kept.text, usize::MAX, Truncation::Head, total, "")
    } else {
        kept.text.to_string()
    };
    let (uri, mime_type) = (uri.to_owned(), Some(MIME.to_owned()));
    Some(ResourceContents::TextResourceContents { uri, mime_type, text, meta: None })
}
