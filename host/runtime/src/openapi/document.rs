//! Where a document comes from: a file, or its server, with a copy on disk for when that cannot be reached.
//!
//! A copy is used without asking for as long as `refresh` says, or for ever if the policy pins the content. After that the
//! server is asked whether there is a newer one; if it does not answer, the copy is used and that is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use toolbay_openapi::Request;
use toolbay_policy::capability::net::NetRule;
use toolbay_policy::limits::Limits;
use toolbay_policy::name::ToolName;
use toolbay_policy::rule::Rule as _;
use toolbay_policy::{Grants, OpenApi, Place};
use url::Url;

use crate::capability::http::NetError;
use crate::capability::http::service::{self, Service};
use crate::capability::{Granted, Principal, Services};
use crate::plugins::digest::sha256;
use crate::storage::private;
use crate::storage::regular::read_regular;

/// Largest document, in bytes; the same as what is parsed.
pub(crate) const MAX_BYTES: u64 = 32 << 20;
/// How long a server may take to hand a document over.
const FETCH_TIME: Duration = Duration::from_secs(20);
/// Longest value of a header that is kept to ask again with.
const MAX_TAG: usize = 1024;
/// Largest first line of a copy.
const MAX_HEAD: u64 = 8 << 10;

/// A document as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    /// What it says.
    pub(crate) text: Arc<str>,
    /// SHA-256, in hex.
    pub(crate) digest: Arc<str>,
    /// What should be known of where it is from.
    pub(crate) warning: Option<String>,
}

impl Text {
    fn new(bytes: Vec<u8>, warning: Option<String>) -> Result<Self, String> {
        let digest = sha256(&bytes).to_string().into();
        let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        Ok(Self { text: text.into(), digest, warning })
    }

    fn pinned(self, section: &OpenApi) -> Result<Self, String> {
        match &section.sha256 {
            Some(pinned) if **pinned != *self.digest => {
                Err(format!("it has SHA-256 {}, but the policy pins {pinned}", self.digest))
            }
            _ => Ok(self),
        }
    }
}

/// Gets the document of a section. `cache` is the folder for copies; with `anew` no copy is used without asking.
///
/// # Errors
/// Why there is none.
pub(crate) async fn get(
    section: &Arc<OpenApi>,
    services: &Arc<Services>,
    cache: Option<PathBuf>,
    anew: bool,
) -> Result<Text, String> {
    match &section.document {
        Place::File(path) => {
            let path = path.clone();
            // A file system may hang.
            let read = tokio::task::spawn_blocking(move || read_file(&path));
            let read = tokio::time::timeout(FETCH_TIME, read).await;
            let read =
                read.map_err(|_| format!("it could not be read within {} seconds", FETCH_TIME.as_secs()))?;
            Text::new(read.map_err(|e| e.to_string())??, None)?.pinned(section)
        }
        Place::Url(url) => {
            let copy = cache.map(|dir| Copy::of(dir, url));
            fetched(section, url, services, copy, anew).await
        }
    }
}

/// Reads a regular file; anything else is not waited for.
fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    read_regular(path, MAX_BYTES).map_err(|e| format!("`{}` cannot be read: {e}", path.display()))
}

async fn fetched(
    section: &Arc<OpenApi>,
    url: &Url,
    services: &Arc<Services>,
    copy: Option<Copy>,
    anew: bool,
) -> Result<Text, String> {
    let held = match copy.clone() {
        Some(copy) => tokio::task::spawn_blocking(move || copy.read()).await.map_err(|e| e.to_string())?,
        None => None,
    };
    if let Some((head, text)) = &held
        && (section.sha256.as_deref() == Some(&*text.digest)
            || (section.sha256.is_none() && !anew && head.age() < section.refresh))
    {
        return Ok(text.clone());
    }
    let before = held.as_ref().filter(|_| section.sha256.is_none());
    match ask(section, url, services, before.map(|(head, _)| head)).await {
        Ok(Some((head, bytes))) => {
            let text = Text::new(bytes, None)?.pinned(section)?;
            keep(copy, head, &text).await;
            Ok(text)
        }
        Ok(None) => match held {
            Some((head, text)) => {
                keep(copy, Head { fetched: now(), ..head }, &text).await;
                Ok(text)
            }
            None => Err("its server says that it is as before, and there is no copy".to_owned()),
        },
        Err(why) => match before {
            Some((_, text)) => {
                let warning = format!("{why}; the copy of before is used");
                Ok(Text { warning: Some(warning), ..text.clone() })
            }
            None => Err(why),
        },
    }
}

/// Asks the server; `None`: it has nothing newer.
async fn ask(
    section: &Arc<OpenApi>,
    url: &Url,
    services: &Arc<Services>,
    before: Option<&Head>,
) -> Result<Option<(Head, Vec<u8>)>, String> {
    let mut headers = vec![("Accept".to_owned(), "application/json, application/yaml, */*;q=0.5".to_owned())];
    if let Some(Head { tag: Some(tag), .. }) = before {
        headers.push(("If-None-Match".to_owned(), tag.clone()));
    }
    let request =
        Request { method: "GET", url: url.to_string(), headers, body: None, credentials: Vec::new() };
    let who = Principal {
        plugin: section.name.clone(),
        granted: Some(Arc::new(granted(section, url, services)?)),
        limits: Arc::new(Limits {
            timeout: FETCH_TIME,
            http_bytes: MAX_BYTES + 1,
            host_call_bytes: MAX_BYTES + 1,
            ..services.policy.openapi_limits(section, None)
        }),
        ctx: None,
    };
    let sent = service::send(request, MAX_BYTES + 1, who, Instant::now() + FETCH_TIME).await;
    let response = sent.map_err(|error| match error {
        NetError::Timeout => format!("its server took more than {} seconds", FETCH_TIME.as_secs()),
        other => other.to_string(),
    })?;
    if response.status == 304 && before.is_some() {
        return Ok(None);
    }
    if response.status != 200 {
        return Err(format!("its server answered {}", response.status));
    }
    if response.truncated || response.body.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    let tag = response.headers.iter().find(|(name, _)| name == "etag").map(|(_, value)| value.clone());
    let tag = tag.filter(|tag| tag.len() <= MAX_TAG && tag.bytes().all(|b| (0x20..0x7f).contains(&b)));
    Ok(Some((Head { url: url.to_string(), fetched: now(), tag }, response.body)))
}

/// A document's own origin, to read from; and where the section lets it lead.
fn granted(section: &Arc<OpenApi>, url: &Url, services: &Arc<Services>) -> Result<Granted, String> {
    let origin = NetRule::parse(&format!("GET {}", url.origin().ascii_serialization()), Path::new("/"))?;
    let grants = Grants { net_private: section.net_private.clone(), ..Grants::default() };
    let service = Service {
        about: Arc::clone(section),
        own: vec![origin.clone()],
        more: std::iter::once(origin).chain(section.net.iter().cloned()).collect(),
        routes: Arc::default(),
    };
    let tool = ToolName::new("document").map_err(|e| e.to_string())?;
    Ok(Granted { service: Some(Arc::new(service)), ..Granted::new(services, tool, grants) })
}

async fn keep(copy: Option<Copy>, head: Head, text: &Text) {
    let Some(copy) = copy else { return };
    let text = text.clone();
    let write = tokio::task::spawn_blocking(move || copy.write(&head, &text));
    if let Ok(Err(problem)) = write.await {
        tracing::warn!("a document is not kept: {problem}");
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What is known of a copy: its first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Head {
    url: String,
    /// When it was fetched, or last found to be as before; seconds since 1970.
    fetched: u64,
    /// What its server calls this content.
    tag: Option<String>,
}

impl Head {
    fn age(&self) -> Duration {
        // A copy from the future is none that was just fetched.
        now().checked_sub(self.fetched).map_or(Duration::MAX, Duration::from_secs)
    }
}

/// A copy on disk, in a folder that only its user can write.
#[derive(Debug, Clone)]
struct Copy {
    dir: PathBuf,
    file: PathBuf,
    url: String,
}

impl Copy {
    fn of(dir: PathBuf, url: &Url) -> Self {
        let file = dir.join(format!("{}.openapi", sha256(url.as_str().as_bytes())));
        Self { dir, file, url: url.to_string() }
    }

    /// The copy, if there is one and it can be believed.
    fn read(&self) -> Option<(Head, Text)> {
        if self.dir.exists()
            && let Err(problem) = private::check_dir(&self.dir)
        {
            tracing::warn!("no copies of documents: {problem}");
            return None;
        }
        let bytes = private::read(&self.file, MAX_BYTES + MAX_HEAD)
            .inspect_err(|problem| tracing::warn!("a copy of a document is not used: {problem}"))
            .ok()??;
        let end = bytes.iter().position(|b| *b == b'\n')?;
        let (head, text) = bytes.split_at_checked(end + 1)?;
        let head: Head = serde_json::from_slice(head).ok()?;
        let text = Text::new(text.to_vec(), None).ok()?;
        (head.url == self.url).then_some((head, text))
    }

    fn write(&self, head: &Head, text: &Text) -> Result<(), String> {
        private::make_dir(&self.dir)?;
        let head = serde_json::to_string(head).map_err(|e| e.to_string())?;
        private::put(&self.file, &[head.as_bytes(), b"\n", text.text.as_bytes()]).map_err(|e| e.to_string())
    }
}
