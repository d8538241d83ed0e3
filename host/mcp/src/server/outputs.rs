//! Saved outputs, which were too long for a result, as resources of the session: `toolbay://output/ID`.

use rmcp::model::{Resource, ResourceContents};
use toolbay_core::output::untrusted::UntrustedMark;
use toolbay_core::session::Session;
use toolbay_core::session::output_store::{OutputId, OutputStore, SavedOutput};
use toolbay_policy::output::Truncation;

use crate::protocol::uri::normalize_own_address;

/// Prefix of the URIs; the id follows.
const PREFIX: &str = "toolbay://output/";
/// Saved outputs are always text.
const MIME: &str = "text/plain";

/// The resource of a saved output, for lists and result links.
pub(crate) fn to_resource(saved: &SavedOutput) -> Resource {
    let mut resource = Resource::new(format!("{PREFIX}{}", saved.id), format!("output {}", saved.id));
    resource.title = Some(format!("Full result of {}", saved.tool));
    resource.mime_type = Some(MIME.to_owned());
    resource.size = Some(saved.bytes);
    resource
}

/// All saved outputs of a session: at most 1,000.
pub(crate) async fn list_resources(store: &dyn OutputStore, session: &Session) -> Vec<Resource> {
    let saved = match session.key() {
        Some(session) => store.list(session).await,
        None => Vec::new(),
    };
    saved.iter().map(to_resource).collect()
}

/// Whether a URI addresses a saved output.
pub(crate) fn is_output_uri(uri: &str) -> bool {
    uri.starts_with(PREFIX)
}

/// The id in the URI of a saved output, in any percent-encoding.
fn output_id(uri: &str) -> Option<OutputId> {
    normalize_own_address(uri)?.strip_prefix(PREFIX).and_then(OutputId::parse)
}

/// Reads a saved output, marked if it is untrusted. `None` if this session has no output with this URI.
pub(crate) async fn read_output(
    store: &dyn OutputStore,
    session: &Session,
    uri: &str,
) -> Option<ResourceContents> {
    let id = output_id(uri)?;
    let saved = store.get(session.key()?, &id).await?;
    let text = if saved.untrusted {
        let (text, total) = (&saved.text, saved.text.chars().count());
        UntrustedMark::new(&saved.source, &saved.tool).fit(text, usize::MAX, Truncation::Head, total, "")
    } else {
        saved.text.to_string()
    };
    let (uri, mime_type) = (uri.to_owned(), Some(MIME.to_owned()));
    Some(ResourceContents::TextResourceContents { uri, mime_type, text, meta: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_output_is_read_in_any_percent_encoding() {
        let id = OutputId::parse("0123456789abcdef").unwrap();
        for uri in ["toolbay://output/0123456789abcdef", "toolbay://output/%30123456789abcde%66"] {
            assert_eq!(output_id(uri).as_ref(), Some(&id), "{uri}");
        }
        for none in ["toolbay://output/", "toolbay://output/0123456789abcdef%2F", "output/0123456789abcdef"] {
            assert!(output_id(none).is_none(), "{none}");
        }
    }
}
