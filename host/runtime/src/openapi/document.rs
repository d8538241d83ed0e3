//! Fetches OpenAPI documents from a file or a server, with a [copy](super::copies) on disk for when the server is not
//! reachable.
//!
//! A copy is used without a request while it is younger than `refresh`, or always if the policy pins the content.
//! Otherwise the server is asked for a newer version. If the request fails, the copy is used with a warning.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use toolbay_capabilities::http::NetError;
use toolbay_capabilities::http::service;
use toolbay_capabilities::service_grants::ServiceGrants;
use toolbay_capabilities::{Grantee, ResolvedGrants, Services};
use toolbay_core::call::service_request::ServiceRequest;
use toolbay_openapi::Routes;
use toolbay_policy::capability::net::NetRule;
use toolbay_policy::limits::CallLimits;
use toolbay_policy::name::ToolName;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::rule::GrantRule as _;
use toolbay_policy::{DocumentLocation, Grants, OpenApiService};
use toolbay_state::regular::read_regular;
use url::Url;

use super::copies::{CopyHeader, DocumentCopies, DocumentCopy};
use super::document_text::{DocumentText, MAX_BYTES};

/// Time limit for a fetch.
const FETCH_TIME: Duration = Duration::from_secs(20);
/// Maximum length of a stored `ETag`, in bytes.
const MAX_ETAG_BYTES: usize = 1024;

/// Fetches the document of a section. With `refresh`, no copy is used without a request.
///
/// # Errors
/// The reason why there is no document.
pub(super) async fn fetch_document(
    section: &Arc<OpenApiService>,
    services: &Arc<Services>,
    copies: Option<&DocumentCopies>,
    refresh: bool,
) -> Result<DocumentText, PolicyRefusal> {
    match &section.document {
        DocumentLocation::File(path) => {
            let path = path.clone();
            // A time-out, because the file system may hang.
            let read = move || read_file(&path).and_then(|bytes| DocumentText::new(bytes, None));
            let read = tokio::task::spawn_blocking(read);
            let read = tokio::time::timeout(FETCH_TIME, read).await;
            let read =
                read.map_err(|_| format!("it could not be read within {} seconds", FETCH_TIME.as_secs()))?;
            Ok(read.map_err(|e| e.to_string())??.check_pin(section)?)
        }
        DocumentLocation::Url(url) => {
            let copy = copies.map(|copies| copies.copy_of(url));
            fetch_with_copy(section, url, services, copy, refresh).await
        }
    }
}

/// Reads a regular file. Does not block on anything else.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    read_regular(path, MAX_BYTES).map_err(|e| format!("`{}` cannot be read: {e}", path.display()))
}

async fn fetch_with_copy(
    section: &Arc<OpenApiService>,
    url: &Url,
    services: &Arc<Services>,
    copy: Option<DocumentCopy>,
    refresh: bool,
) -> Result<DocumentText, PolicyRefusal> {
    let held = match copy.clone() {
        Some(copy) => tokio::task::spawn_blocking(move || copy.read()).await.map_err(|e| e.to_string())?,
        None => None,
    };
    if let Some((header, text)) = &held
        && (section.sha256.as_deref() == Some(&*text.digest)
            || (section.sha256.is_none() && !refresh && header.age() < section.refresh))
    {
        return Ok(text.clone());
    }
    let before = held.as_ref().filter(|_| section.sha256.is_none());
    match request_document(section, url, services, before.map(|(header, _)| header)).await {
        Ok(Some((header, bytes))) => {
            let text = tokio::task::spawn_blocking(move || DocumentText::new(bytes, None)).await;
            let text = text.map_err(|e| e.to_string())??.check_pin(section)?;
            store_copy(copy, header, &text).await;
            Ok(text)
        }
        Ok(None) => match held {
            Some((header, text)) => {
                store_copy(copy, header.confirmed(), &text).await;
                Ok(text)
            }
            None => Err("its server answered 304 Not Modified, but there is no copy".into()),
        },
        Err(why) => match before {
            Some((_, text)) => {
                let warning = format!("{}; the cached copy is used", why.for_operator());
                Ok(text.clone().with_warning(warning))
            }
            None => Err(why),
        },
    }
}

/// Requests the document. Returns `None` if the copy is current.
async fn request_document(
    section: &Arc<OpenApiService>,
    url: &Url,
    services: &Arc<Services>,
    before: Option<&CopyHeader>,
) -> Result<Option<(CopyHeader, Vec<u8>)>, PolicyRefusal> {
    let mut headers = vec![("Accept".to_owned(), "application/json, application/yaml, */*;q=0.5".to_owned())];
    if let Some(CopyHeader { tag: Some(tag), .. }) = before {
        headers.push(("If-None-Match".to_owned(), tag.clone()));
    }
    let request =
        ServiceRequest { method: "GET", url: url.to_string(), headers, body: None, credentials: Vec::new() };
    let hint = Arc::new(OnceLock::new());
    let who = Grantee {
        plugin: section.name.clone(),
        granted: Some(Arc::new(document_grants(section, url, services)?)),
        limits: Arc::new(CallLimits {
            timeout: FETCH_TIME,
            http_bytes: MAX_BYTES + 1,
            host_call_bytes: MAX_BYTES + 1,
            ..services.policy.openapi_limits(section, None)
        }),
        ctx: None,
        hint: Some(Arc::clone(&hint)),
    };
    let sent = service::send(request, MAX_BYTES + 1, who, Instant::now() + FETCH_TIME).await;
    let response = sent.map_err(|error| match error {
        NetError::Timeout => {
            format!("its server did not answer within {} seconds", FETCH_TIME.as_secs()).into()
        }
        other => PolicyRefusal { text: other.to_string(), hint: hint.get().cloned() },
    })?;
    if response.status == 304 && before.is_some() {
        return Ok(None);
    }
    if response.status != 200 {
        return Err(format!("its server answered {}", response.status).into());
    }
    if response.truncated || response.body.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes").into());
    }
    let tag = response.headers.iter().find(|(name, _)| name == "etag").map(|(_, value)| value.clone());
    let tag = tag.filter(|tag| tag.len() <= MAX_ETAG_BYTES && tag.bytes().all(|b| (0x20..0x7f).contains(&b)));
    Ok(Some((CopyHeader::new(url, tag), response.body)))
}

/// Grants the document's own origin, and redirects to where the section allows.
fn document_grants(
    section: &Arc<OpenApiService>,
    url: &Url,
    services: &Arc<Services>,
) -> Result<ResolvedGrants, String> {
    let origin = NetRule::parse(&format!("GET {}", url.origin().ascii_serialization()), Path::new("/"))?;
    let grants = Grants { net_private: section.net_private.clone(), ..Grants::default() };
    let service = ServiceGrants {
        section: Arc::clone(section),
        operation_rules: vec![origin.clone()],
        redirect_rules: std::iter::once(origin).chain(section.net.iter().cloned()).collect(),
        routes: Arc::new(Routes::default()),
    };
    let tool = ToolName::new("document").map_err(|e| e.to_string())?;
    Ok(ResolvedGrants { service: Some(Arc::new(service)), ..ResolvedGrants::new(services, tool, grants) })
}

async fn store_copy(copy: Option<DocumentCopy>, header: CopyHeader, text: &DocumentText) {
    let Some(copy) = copy else { return };
    let text = text.clone();
    let write = tokio::task::spawn_blocking(move || copy.write(&header, &text));
    if let Ok(Err(problem)) = write.await {
        tracing::warn!("the copy of a document was not saved: {problem}");
    }
}
