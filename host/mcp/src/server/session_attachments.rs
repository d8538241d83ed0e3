//! Files that tools create, as resources of their session: `attachment:ID`.
//!
//! On a server that shares no state, files stay in memory until the session ends, for at most a day. Only the client of
//! the session can read them. A call sees only the files that it created.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use rmcp::model::{ContentBlock, Resource, ResourceContents};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::session::Session;
use toolbay_core::session::attachment::{Attachment, AttachmentError, Attachments};
use toolbay_core::session::attachment_store::AttachmentStore;

/// Prefix of the URIs; the id follows.
const PREFIX: &str = "attachment:";

/// The attachments of one call. `None` if the session has no key to store files under.
pub(crate) fn for_call(store: &Arc<dyn AttachmentStore>, session: &Session) -> Option<Arc<dyn Attachments>> {
    let session = session.key()?.into();
    Some(Arc::new(SessionCallAttachments { store: Arc::clone(store), session, created: Mutex::default() }))
}

/// All files of a session, oldest first.
pub(crate) async fn list_resources(store: &dyn AttachmentStore, session: &Session) -> Vec<Resource> {
    let Some(key) = session.key() else { return Vec::new() };
    store.list(key).await.iter().map(to_resource).collect()
}

/// Reads a file. The content is always a blob, so that clients do not treat it as text for the model.
pub(crate) async fn read_resource(
    store: &dyn AttachmentStore,
    session: &Session,
    uri: &str,
) -> Option<ResourceContents> {
    let (key, id) = (session.key()?, uri.strip_prefix(PREFIX)?);
    let about = store.list(key).await.into_iter().find(|file| file.id == id)?;
    let data = store.get(key, id).await;
    let data = data.inspect_err(|error| tracing::warn!(%error, "an attachment cannot be read")).ok()?;
    Some(ResourceContents::BlobResourceContents {
        uri: uri.to_owned(),
        mime_type: Some(about.media_type),
        blob: STANDARD.encode(&data),
        meta: None,
    })
}

/// Replaces the metadata of links to session files by the recorded metadata.
pub(crate) async fn fill_links(store: &dyn AttachmentStore, session: &Session, content: &mut [ContentBlock]) {
    let mut links = content.iter_mut().filter_map(|block| match block {
        ContentBlock::ResourceLink(link) if is_attachment_uri(&link.uri) => Some(link),
        _ => None,
    });
    let (Some(first), Some(key)) = (links.next(), session.key()) else { return };
    let files = store.list(key).await;
    for link in std::iter::once(first).chain(links) {
        let id = link.uri.strip_prefix(PREFIX);
        if let Some(about) = files.iter().find(|file| Some(file.id.as_str()) == id) {
            link.name.clone_from(&about.name);
            link.mime_type = Some(about.media_type.clone());
            link.size = Some(about.size);
        }
    }
}

/// A random id, so that the link to a removed file never leads to another one.
fn new_id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Whether a URI addresses a session file.
pub(crate) fn is_attachment_uri(uri: &str) -> bool {
    uri.starts_with(PREFIX)
}

fn to_resource(about: &Attachment) -> Resource {
    let mut resource = Resource::new(format!("{PREFIX}{}", about.id), about.name.clone());
    resource.mime_type = Some(about.media_type.clone());
    resource.size = Some(about.size);
    resource
}

/// The attachments of one call.
#[derive(Debug)]
struct SessionCallAttachments {
    store: Arc<dyn AttachmentStore>,
    session: Arc<str>,
    created: Mutex<Vec<Attachment>>,
}

impl SessionCallAttachments {
    fn find_own(&self, id: &str, most: u64) -> Result<(), AttachmentError> {
        let created = self.created.lock();
        let file = created.iter().find(|file| file.id == id).ok_or(AttachmentError::NotFound)?;
        if file.size > most { Err(AttachmentError::TooLarge(file.size)) } else { Ok(()) }
    }
}

impl Attachments for SessionCallAttachments {
    fn list(&self) -> BoxFuture<'_, Vec<Attachment>> {
        let created = self.created.lock().clone();
        Box::pin(async { created })
    }

    fn read<'a>(&'a self, id: &'a str, most: u64) -> BoxFuture<'a, Result<Vec<u8>, AttachmentError>> {
        Box::pin(async move {
            self.find_own(id, most)?;
            Ok(self.store.get(&self.session, id).await?.to_vec())
        })
    }

    fn create<'a>(
        &'a self,
        name: &'a str,
        media_type: &'a str,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<Attachment, AttachmentError>> {
        Box::pin(async move {
            let created = Attachment {
                id: new_id(),
                name: name.to_owned(),
                media_type: media_type.to_owned(),
                size: data.len() as u64,
            };
            self.store.put(&self.session, &created, data).await?;
            self.created.lock().push(created.clone());
            Ok(created)
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use toolbay_core::session::attachment_store::MemoryAttachmentStore;

    use super::*;

    #[test]
    fn a_call_sees_only_its_own_files() {
        let store: Arc<dyn AttachmentStore> = Arc::new(MemoryAttachmentStore::default());
        let session = Session::with_random_key();
        let (other, call) = (for_call(&store, &session).unwrap(), for_call(&store, &session).unwrap());
        let create = |call: &Arc<dyn Attachments>, name: &str| {
            call.create(name, "text/plain", b"words".to_vec()).now_or_never().unwrap().unwrap()
        };
        let hidden = create(&other, "a");
        assert!(call.list().now_or_never().unwrap().is_empty());
        assert_eq!(call.read(&hidden.id, 9).now_or_never().unwrap(), Err(AttachmentError::NotFound));
        let made = create(&call, "b");
        assert_eq!(call.read(&made.id, 9).now_or_never().unwrap().unwrap(), b"words");
        assert_eq!(call.read(&made.id, 2).now_or_never().unwrap(), Err(AttachmentError::TooLarge(5)));
        assert_eq!(call.list().now_or_never().unwrap(), [made]);
        assert!(for_call(&store, &Session::default()).is_none(), "a session without a key stores no files");
    }

    #[test]
    fn files_are_resources_of_their_session() {
        let store: Arc<dyn AttachmentStore> = Arc::new(MemoryAttachmentStore::default());
        let (session, other) = (Session::with_random_key(), Session::with_random_key());
        let call = for_call(&store, &session).unwrap();
        let made = call.create("a.bin", "a/b", vec![7; 3]).now_or_never().unwrap().unwrap();
        let uri = format!("attachment:{}", made.id);
        let listed = |session| list_resources(&*store, session).now_or_never().unwrap();
        assert_eq!(listed(&session).iter().map(|file| &file.uri).collect::<Vec<_>>(), [&uri]);
        assert!(listed(&other).is_empty());
        let read = |session| read_resource(&*store, session, &uri).now_or_never().unwrap();
        assert!(read(&session).is_some() && read(&other).is_none());
        let link = |uri: &str| ContentBlock::ResourceLink(Resource::new(uri, "?"));
        let mut content = [link(&uri), link("attachment:0"), link("file:///x")];
        fill_links(&*store, &session, &mut content).now_or_never().unwrap();
        let names: Vec<_> = content
            .iter()
            .map(|block| match block {
                ContentBlock::ResourceLink(link) => (link.name.as_str(), link.size),
                _ => panic!(),
            })
            .collect();
        assert_eq!(names, [("a.bin", Some(3)), ("?", None), ("?", None)]);
    }
}
