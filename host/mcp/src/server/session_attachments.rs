//! Files that tools create, as resources of their session: `attachment:ID`.
//!
//! Files stay in memory until the session ends, for at most a day, and only its client can read them. A call sees only
//! the files that it created.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{ContentBlock, Resource, ResourceContents};
use tokio::time::Instant;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::session::Session;
use toolbay_core::session::attachment::{Attachment, AttachmentError, Attachments};

/// Prefix of the URIs; the id follows.
const PREFIX: &str = "attachment:";
/// Most files of one session. The oldest are dropped first.
const MAX_FILES: usize = 256;
/// Most bytes of one session.
const MAX_SESSION_BYTES: u64 = 64 << 20;
/// Most bytes of all sessions. The largest session drops its oldest files first.
const MAX_BYTES: u64 = 256 << 20;
/// Overhead that is counted per file, so that empty files are bounded, too.
const FILE_OVERHEAD: u64 = 1 << 10;
/// Longest lifetime of a file, since sessions of 2026-07-28 have no end.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// The files of all sessions of a server.
#[derive(Debug, Default)]
pub(crate) struct SessionAttachments(Mutex<HashMap<Arc<str>, AttachmentList>>);

/// The files of one session.
#[derive(Debug, Default)]
struct AttachmentList {
    bytes: u64,
    files: VecDeque<SessionFile>,
}

#[derive(Debug)]
struct SessionFile {
    metadata: Attachment,
    data: Arc<[u8]>,
    created_at: Instant,
}

impl SessionFile {
    fn weight(&self) -> u64 {
        self.metadata.size.saturating_add(FILE_OVERHEAD)
    }
}

impl AttachmentList {
    /// Drops the oldest file; returns `false` if there was none.
    fn drop_oldest(&mut self) -> bool {
        let gone = self.files.pop_front();
        self.bytes -= gone.as_ref().map_or(0, SessionFile::weight);
        gone.is_some()
    }

    fn find(&self, id: &str) -> Option<&SessionFile> {
        self.files.iter().find(|file| file.metadata.id == id)
    }
}

impl SessionAttachments {
    /// Locks the files of all sessions, and drops expired ones.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, AttachmentList>> {
        let mut all = self.0.lock();
        all.retain(|_, list| {
            while list.files.front().is_some_and(|file| file.created_at.elapsed() > MAX_AGE) {
                list.drop_oldest();
            }
            !list.files.is_empty()
        });
        all
    }

    fn store(
        &self,
        session: &str,
        name: &str,
        media_type: &str,
        data: Vec<u8>,
    ) -> Result<Attachment, AttachmentError> {
        let about = Attachment {
            id: new_id(),
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            size: data.len() as u64,
        };
        let file = SessionFile { metadata: about.clone(), data: data.into(), created_at: Instant::now() };
        let weight = file.weight();
        if weight > MAX_SESSION_BYTES {
            return Err(AttachmentError::TooLarge(about.size));
        }
        let mut all = self.lock();
        if let Some(list) = all.get_mut(session) {
            while list.files.len() >= MAX_FILES || list.bytes + weight > MAX_SESSION_BYTES {
                if !list.drop_oldest() {
                    break;
                }
            }
        }
        while all.values().map(|list| list.bytes).sum::<u64>() + weight > MAX_BYTES {
            let largest = all.values_mut().max_by_key(|list| list.bytes);
            if !largest.is_some_and(AttachmentList::drop_oldest) {
                break;
            }
        }
        let list = all.entry(session.into()).or_default();
        list.bytes += weight;
        list.files.push_back(file);
        Ok(about)
    }

    fn find_file(&self, session: &Session, uri: &str) -> Option<(Attachment, Arc<[u8]>)> {
        let (key, id) = (session.key()?, uri.strip_prefix(PREFIX)?);
        let all = self.lock();
        let file = all.get(key)?.find(id)?;
        Some((file.metadata.clone(), Arc::clone(&file.data)))
    }

    /// The attachments of one call. `None` if the session has no key to store files under.
    pub(crate) fn for_call(self: &Arc<Self>, session: &Session) -> Option<Arc<dyn Attachments>> {
        let session = session.key()?.into();
        Some(Arc::new(SessionCallAttachments {
            attachments: Arc::clone(self),
            session,
            made: Mutex::default(),
        }))
    }

    /// Removes the files of a session that has ended.
    pub(crate) fn remove_session(&self, session: &Session) {
        if let Some(key) = session.key() {
            self.lock().remove(key);
        }
    }

    /// All files of a session, oldest first.
    pub(crate) fn list(&self, session: &Session) -> Vec<Resource> {
        let all = self.lock();
        let list = session.key().and_then(|key| all.get(key));
        list.into_iter().flat_map(|list| &list.files).map(|file| to_resource(&file.metadata)).collect()
    }

    /// Reads a file. The content is always a blob, so that clients do not treat it as text for the model.
    pub(crate) fn read(&self, session: &Session, uri: &str) -> Option<ResourceContents> {
        let (about, data) = self.find_file(session, uri)?;
        Some(ResourceContents::BlobResourceContents {
            uri: uri.to_owned(),
            mime_type: Some(about.media_type),
            blob: STANDARD.encode(&data),
            meta: None,
        })
    }

    /// Replaces the metadata of links to session files by the recorded metadata.
    pub(crate) fn fill_links(&self, session: &Session, content: &mut [ContentBlock]) {
        for block in content {
            if let ContentBlock::ResourceLink(link) = block
                && let Some((about, _)) = self.find_file(session, &link.uri)
            {
                link.name.clone_from(&about.name);
                link.mime_type = Some(about.media_type);
                link.size = Some(about.size);
            }
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
    attachments: Arc<SessionAttachments>,
    session: Arc<str>,
    made: Mutex<Vec<Attachment>>,
}

impl SessionCallAttachments {
    fn read_own(&self, id: &str, most: u64) -> Result<Vec<u8>, AttachmentError> {
        if !self.made.lock().iter().any(|one| one.id == id) {
            return Err(AttachmentError::NotFound);
        }
        let all = self.attachments.lock();
        let file = all.get(&self.session).and_then(|list| list.find(id)).ok_or(AttachmentError::NotFound)?;
        if file.metadata.size > most {
            return Err(AttachmentError::TooLarge(file.metadata.size));
        }
        Ok(file.data.to_vec())
    }
}

impl Attachments for SessionCallAttachments {
    fn list(&self) -> BoxFuture<'_, Vec<Attachment>> {
        let made = self.made.lock().clone();
        Box::pin(async { made })
    }

    fn read<'a>(&'a self, id: &'a str, most: u64) -> BoxFuture<'a, Result<Vec<u8>, AttachmentError>> {
        Box::pin(async move { self.read_own(id, most) })
    }

    fn create<'a>(
        &'a self,
        name: &'a str,
        media_type: &'a str,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<Attachment, AttachmentError>> {
        Box::pin(async move {
            let made = self.attachments.store(&self.session, name, media_type, data)?;
            self.made.lock().push(made.clone());
            Ok(made)
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn put(
        attachments: &Arc<SessionAttachments>,
        session: &Session,
        bytes: u64,
    ) -> Result<Attachment, AttachmentError> {
        let data = vec![7; usize::try_from(bytes).unwrap()];
        attachments.for_call(session).unwrap().create("a.bin", "a/b", data).now_or_never().unwrap()
    }

    #[test]
    fn a_session_is_bounded_and_drops_its_oldest_files() {
        let (attachments, one, other) =
            (Arc::new(SessionAttachments::default()), Session::with_random_key(), Session::with_random_key());
        put(&attachments, &other, 10).unwrap();
        assert!(matches!(put(&attachments, &one, MAX_SESSION_BYTES + 1), Err(AttachmentError::TooLarge(_))));
        let made: Vec<_> = (0..MAX_FILES + 3).map(|_| put(&attachments, &one, 1).unwrap()).collect();
        assert_eq!(attachments.list(&one).len(), MAX_FILES);
        assert_eq!(attachments.list(&one)[0].uri, format!("attachment:{}", made[3].id));
        put(&attachments, &one, MAX_SESSION_BYTES - FILE_OVERHEAD).unwrap();
        assert_eq!(attachments.list(&one).len(), 1);
        assert_eq!(attachments.list(&other).len(), 1, "files of other sessions stay");
        attachments.remove_session(&one);
        assert!(attachments.list(&one).is_empty() && !attachments.list(&other).is_empty());
        assert!(
            attachments.for_call(&Session::default()).is_none(),
            "a session without a key stores no files"
        );
    }

    #[test]
    fn all_sessions_are_bounded_and_the_largest_drops_files() {
        let attachments = Arc::new(SessionAttachments::default());
        let sessions: Vec<Session> = (0..5).map(|_| Session::with_random_key()).collect();
        put(&attachments, &sessions[0], 1).unwrap();
        for session in &sessions[1..] {
            put(&attachments, session, MAX_SESSION_BYTES / 2 - FILE_OVERHEAD).unwrap();
            put(&attachments, session, MAX_SESSION_BYTES / 2 - FILE_OVERHEAD).unwrap();
        }
        put(&attachments, &sessions[0], 1 << 20).unwrap();
        assert_eq!(attachments.list(&sessions[0]).len(), 2);
        assert_eq!(sessions[1..].iter().map(|session| attachments.list(session).len()).sum::<usize>(), 7);
        let all = || attachments.lock().values().map(|list| list.bytes).sum::<u64>();
        assert!(all() <= MAX_BYTES, "{}", all());
    }

    /// A client that chooses session names can create many sessions.
    #[test]
    fn many_sessions_with_empty_files_are_bounded_too() {
        let attachments = Arc::new(SessionAttachments::default());
        // Leaves space for only a few more files.
        let file = |size| Attachment { id: new_id(), name: String::new(), media_type: String::new(), size };
        let bytes = MAX_BYTES - 5 * FILE_OVERHEAD;
        let large = SessionFile {
            metadata: file(bytes - FILE_OVERHEAD),
            data: [].into(),
            created_at: Instant::now(),
        };
        attachments.0.lock().insert("large".into(), AttachmentList { bytes, files: [large].into() });
        for n in 0..20 {
            put(&attachments, &Session::with_name(&n.to_string()), 0).unwrap();
        }
        assert!(!attachments.lock().contains_key("large"), "the largest session drops its files");
        assert_eq!(attachments.lock().len(), 20);
        for n in 0..20 {
            attachments.remove_session(&Session::with_name(&n.to_string()));
        }
        assert!(attachments.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn expired_files_are_removed() {
        let (attachments, session) = (Arc::new(SessionAttachments::default()), Session::with_name("client"));
        let uri = |made: Attachment| format!("attachment:{}", made.id);
        let one = uri(put(&attachments, &session, 5).unwrap());
        tokio::time::advance(MAX_AGE / 2).await;
        let two = uri(put(&attachments, &session, 6).unwrap());
        assert!(attachments.read(&session, &one).is_some());
        tokio::time::advance(MAX_AGE / 2 + Duration::from_secs(1)).await;
        assert!(attachments.read(&session, &one).is_none());
        assert!(attachments.read(&session, &two).is_some());
        tokio::time::advance(MAX_AGE).await;
        assert!(attachments.lock().is_empty(), "the session has no entry left");
    }

    #[test]
    fn a_call_sees_only_its_own_files() {
        let (attachments, session) = (Arc::new(SessionAttachments::default()), Session::with_random_key());
        let other = put(&attachments, &session, 3).unwrap();
        let call = attachments.for_call(&session).unwrap();
        assert!(call.list().now_or_never().unwrap().is_empty());
        assert_eq!(call.read(&other.id, 9).now_or_never().unwrap(), Err(AttachmentError::NotFound));
        let made = call.create("b", "text/plain", b"words".to_vec()).now_or_never().unwrap().unwrap();
        assert_eq!(call.read(&made.id, 9).now_or_never().unwrap().unwrap(), b"words");
        assert_eq!(call.read(&made.id, 2).now_or_never().unwrap(), Err(AttachmentError::TooLarge(5)));
        assert_eq!(call.list().now_or_never().unwrap(), [made]);
    }
}
