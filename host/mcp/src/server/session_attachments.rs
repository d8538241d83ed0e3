//! Files that tools hand back, as resources of the session in which they were made: `attachment:ID`.
//!
//! They are held in memory for as long as the session lasts, for its client alone, a day at most. A call sees what it made
//! itself and no other call's files.

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

/// What the addresses of such files begin with; the id follows.
const PREFIX: &str = "attachment:";
/// Most files of one session, and bytes of them; the oldest go.
const MAX_FILES: usize = 256;
const MAX_SESSION_BYTES: u64 = 64 << 20;
/// Bytes of all sessions; the oldest go of the session that has most.
const MAX_BYTES: u64 = 256 << 20;
/// What a file costs beside its bytes: also many empty ones are bounded.
const FILE_BYTES: u64 = 1 << 10;
/// How long a file is kept at most: clients of 2026-07-28 have no session that ends.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// The files of all sessions of a server.
#[derive(Debug, Default)]
pub(crate) struct SessionAttachments(Mutex<HashMap<Arc<str>, AttachmentList>>);

/// The files of one session.
#[derive(Debug, Default)]
struct AttachmentList {
    bytes: u64,
    files: VecDeque<File>,
}

#[derive(Debug)]
struct File {
    about: Attachment,
    data: Arc<[u8]>,
    made: Instant,
}

impl File {
    fn weight(&self) -> u64 {
        self.about.size.saturating_add(FILE_BYTES)
    }
}

impl AttachmentList {
    /// Drops the oldest; returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let gone = self.files.pop_front();
        self.bytes -= gone.as_ref().map_or(0, File::weight);
        gone.is_some()
    }

    fn find(&self, id: &str) -> Option<&File> {
        self.files.iter().find(|file| file.about.id == id)
    }
}

impl SessionAttachments {
    /// The shelves, without what is too old.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, AttachmentList>> {
        let mut all = self.0.lock();
        all.retain(|_, list| {
            while list.files.front().is_some_and(|file| file.made.elapsed() > MAX_AGE) {
                list.drop_oldest();
            }
            !list.files.is_empty()
        });
        all
    }

    fn put(
        &self,
        session: &str,
        name: &str,
        media_type: &str,
        data: Vec<u8>,
    ) -> Result<Attachment, AttachmentError> {
        let about = Attachment {
            id: id(),
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            size: data.len() as u64,
        };
        let file = File { about: about.clone(), data: data.into(), made: Instant::now() };
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

    fn get(&self, session: &Session, uri: &str) -> Option<(Attachment, Arc<[u8]>)> {
        let (key, id) = (session.key()?, uri.strip_prefix(PREFIX)?);
        let all = self.lock();
        let file = all.get(key)?.find(id)?;
        Some((file.about.clone(), Arc::clone(&file.data)))
    }

    /// What one call of a session may make; `None`: nothing is kept for the session.
    pub(crate) fn of_call(self: &Arc<Self>, session: &Session) -> Option<Arc<dyn Attachments>> {
        let session = session.key()?.into();
        Some(Arc::new(OfCall { attachments: Arc::clone(self), session, made: Mutex::default() }))
    }

    /// Forgets the files of a session that is over.
    pub(crate) fn forget(&self, session: &Session) {
        if let Some(key) = session.key() {
            self.lock().remove(key);
        }
    }

    /// All files of a session, the oldest first.
    pub(crate) fn list(&self, session: &Session) -> Vec<Resource> {
        let all = self.lock();
        let list = session.key().and_then(|key| all.get(key));
        list.into_iter().flat_map(|list| &list.files).map(|file| resource(&file.about)).collect()
    }

    /// One file, as bytes whatever it is: it is no word to a model.
    pub(crate) fn read(&self, session: &Session, uri: &str) -> Option<ResourceContents> {
        let (about, data) = self.get(session, uri)?;
        Some(ResourceContents::BlobResourceContents {
            uri: uri.to_owned(),
            mime_type: Some(about.media_type),
            blob: STANDARD.encode(&data),
            meta: None,
        })
    }

    /// Says of the files that a result links to what is known of them, whatever the tool says.
    pub(crate) fn complete(&self, session: &Session, content: &mut [ContentBlock]) {
        for block in content {
            if let ContentBlock::ResourceLink(link) = block
                && let Some((about, _)) = self.get(session, &link.uri)
            {
                link.name.clone_from(&about.name);
                link.mime_type = Some(about.media_type);
                link.size = Some(about.size);
            }
        }
    }
}

/// An id that no other file has: a link to a file that is gone never leads to another.
fn id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Whether an address is one of such a file.
pub(crate) fn is_one(uri: &str) -> bool {
    uri.starts_with(PREFIX)
}

fn resource(about: &Attachment) -> Resource {
    let mut resource = Resource::new(format!("{PREFIX}{}", about.id), about.name.clone());
    resource.mime_type = Some(about.media_type.clone());
    resource.size = Some(about.size);
    resource
}

/// The files of one call.
#[derive(Debug)]
struct OfCall {
    attachments: Arc<SessionAttachments>,
    session: Arc<str>,
    made: Mutex<Vec<Attachment>>,
}

impl OfCall {
    fn look(&self, id: &str, most: u64) -> Result<Vec<u8>, AttachmentError> {
        if !self.made.lock().iter().any(|one| one.id == id) {
            return Err(AttachmentError::NotFound);
        }
        let all = self.attachments.lock();
        let file = all.get(&self.session).and_then(|list| list.find(id)).ok_or(AttachmentError::NotFound)?;
        if file.about.size > most {
            return Err(AttachmentError::TooLarge(file.about.size));
        }
        Ok(file.data.to_vec())
    }
}

impl Attachments for OfCall {
    fn list(&self) -> BoxFuture<'_, Vec<Attachment>> {
        let made = self.made.lock().clone();
        Box::pin(async { made })
    }

    fn read<'a>(&'a self, id: &'a str, most: u64) -> BoxFuture<'a, Result<Vec<u8>, AttachmentError>> {
        Box::pin(async move { self.look(id, most) })
    }

    fn create<'a>(
        &'a self,
        name: &'a str,
        media_type: &'a str,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<Attachment, AttachmentError>> {
        Box::pin(async move {
            let made = self.attachments.put(&self.session, name, media_type, data)?;
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
        attachments.of_call(session).unwrap().create("a.bin", "a/b", data).now_or_never().unwrap()
    }

    #[test]
    fn a_session_keeps_so_much_and_the_oldest_go() {
        let (attachments, one, other) =
            (Arc::new(SessionAttachments::default()), Session::fresh(), Session::fresh());
        put(&attachments, &other, 10).unwrap();
        assert!(matches!(put(&attachments, &one, MAX_SESSION_BYTES + 1), Err(AttachmentError::TooLarge(_))));
        let made: Vec<_> = (0..MAX_FILES + 3).map(|_| put(&attachments, &one, 1).unwrap()).collect();
        assert_eq!(attachments.list(&one).len(), MAX_FILES);
        assert_eq!(attachments.list(&one)[0].uri, format!("attachment:{}", made[3].id));
        put(&attachments, &one, MAX_SESSION_BYTES - FILE_BYTES).unwrap();
        assert_eq!(attachments.list(&one).len(), 1);
        assert_eq!(attachments.list(&other).len(), 1, "another's stay");
        attachments.forget(&one);
        assert!(attachments.list(&one).is_empty() && !attachments.list(&other).is_empty());
        assert!(attachments.of_call(&Session::default()).is_none(), "nobody could ask for them later");
    }

    #[test]
    fn all_sessions_keep_so_much_and_the_largest_pays() {
        let attachments = Arc::new(SessionAttachments::default());
        let sessions: Vec<Session> = (0..5).map(|_| Session::fresh()).collect();
        put(&attachments, &sessions[0], 1).unwrap();
        for session in &sessions[1..] {
            put(&attachments, session, MAX_SESSION_BYTES / 2 - FILE_BYTES).unwrap();
            put(&attachments, session, MAX_SESSION_BYTES / 2 - FILE_BYTES).unwrap();
        }
        put(&attachments, &sessions[0], 1 << 20).unwrap();
        assert_eq!(attachments.list(&sessions[0]).len(), 2);
        assert_eq!(sessions[1..].iter().map(|session| attachments.list(session).len()).sum::<usize>(), 7);
        let all = || attachments.lock().values().map(|list| list.bytes).sum::<u64>();
        assert!(all() <= MAX_BYTES, "{}", all());
    }

    /// Who may choose the names of sessions can choose many.
    #[test]
    fn many_sessions_with_empty_files_are_bounded_too() {
        let attachments = Arc::new(SessionAttachments::default());
        // As if there were room for a few more.
        let file = |size| Attachment { id: id(), name: String::new(), media_type: String::new(), size };
        let bytes = MAX_BYTES - 5 * FILE_BYTES;
        let large = File { about: file(bytes - FILE_BYTES), data: [].into(), made: Instant::now() };
        attachments.0.lock().insert("large".into(), AttachmentList { bytes, files: [large].into() });
        for n in 0..20 {
            put(&attachments, &Session::named(&n.to_string()), 0).unwrap();
        }
        assert!(!attachments.lock().contains_key("large"), "the largest paid");
        assert_eq!(attachments.lock().len(), 20);
        for n in 0..20 {
            attachments.forget(&Session::named(&n.to_string()));
        }
        assert!(attachments.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_old_is_gone() {
        let (attachments, session) = (Arc::new(SessionAttachments::default()), Session::named("client"));
        let uri = |made: Attachment| format!("attachment:{}", made.id);
        let one = uri(put(&attachments, &session, 5).unwrap());
        tokio::time::advance(MAX_AGE / 2).await;
        let two = uri(put(&attachments, &session, 6).unwrap());
        assert!(attachments.read(&session, &one).is_some());
        tokio::time::advance(MAX_AGE / 2 + Duration::from_secs(1)).await;
        assert!(attachments.read(&session, &one).is_none());
        assert!(attachments.read(&session, &two).is_some());
        tokio::time::advance(MAX_AGE).await;
        assert!(attachments.lock().is_empty(), "nothing is left of the session");
    }

    #[test]
    fn a_call_sees_its_own_files_alone() {
        let (attachments, session) = (Arc::new(SessionAttachments::default()), Session::fresh());
        let other = put(&attachments, &session, 3).unwrap();
        let call = attachments.of_call(&session).unwrap();
        assert!(call.list().now_or_never().unwrap().is_empty());
        assert_eq!(call.read(&other.id, 9).now_or_never().unwrap(), Err(AttachmentError::NotFound));
        let made = call.create("b", "text/plain", b"words".to_vec()).now_or_never().unwrap().unwrap();
        assert_eq!(call.read(&made.id, 9).now_or_never().unwrap().unwrap(), b"words");
        assert_eq!(call.read(&made.id, 2).now_or_never().unwrap(), Err(AttachmentError::TooLarge(5)));
        assert_eq!(call.list().now_or_never().unwrap(), [made]);
    }
}
