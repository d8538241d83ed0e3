//! Lists and reads the resources of one server in its current session.

use std::sync::Arc;

use rmcp::model::{ErrorData, ResourceContents};
use serde_json::{Map, json};
use toolbay_policy::quantity;

use super::address::ResourceAddress;
use super::bounds::MAX_PROBLEMS;
use super::link::Link;
use super::link_request::LinkError;
use super::resources::{RemoteResources, convert_contents, list_resources, text_part};
use super::session::{ClientSession, RequestExtra};
use super::supervisor::Supervisor;
use super::unusable_output::OutputNotes;
use crate::protocol::message::INVALID_PARAMS;
use crate::protocol::mirror;

/// Error code of legacy servers for an unknown resource.
const NOT_FOUND: i64 = -32002;
/// Steps to clean, redact and mark a byte of a resource.
const STEPS_PER_BYTE: u64 = 8;

impl Supervisor {
    /// Reads the lists of resources and templates. A failure does not affect the tools.
    pub(super) async fn refresh_resources(&self, session: &ClientSession) {
        let (server, connector) = (&self.server, &self.context.connector);
        let wanted = server.resources.as_ref().is_none_or(|some| !some.is_empty());
        let mut imported = RemoteResources::default();
        if wanted && session.negotiated.has_resources {
            imported = list_resources(session, server, connector, &self.resources()).await;
        }
        imported.problems.truncate(MAX_PROBLEMS);
        for problem in &mut imported.problems {
            *problem = self.sanitize(problem);
        }
        if self.stop.is_cancelled() || session.inbox.closure.is_closed() {
            return;
        }
        let mut now = self.resources.lock();
        if imported.problems != now.problems {
            for problem in &imported.problems {
                tracing::warn!(server = self.name(), "{problem}");
            }
        }
        let same = now.resources == imported.resources && now.templates == imported.templates;
        *now = Arc::new(imported);
        drop(now);
        if !same {
            self.context.changes.send_modify(|count| *count += 1);
        }
    }

    /// Reads a resource of the server.
    ///
    /// # Errors
    /// The resource could not be read, or, with `None`, does not exist.
    pub(super) async fn read_resource(
        &self,
        asked: ResourceAddress<'_>,
    ) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let most = self.server.timeout;
        match tokio::time::timeout(most, self.request_resource(asked)).await {
            Ok(read) => read,
            Err(_) => Err(self.read_error(&format!("no response within {}", quantity::show_duration(most)))),
        }
    }

    async fn request_resource(
        &self,
        asked: ResourceAddress<'_>,
    ) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let session = self.session(self.server.timeout).await;
        let session =
            session.map_err(|failure| Some(ErrorData::internal_error(failure.to_string(), None)))?;
        if !session.negotiated.has_resources {
            return Err(None);
        }
        tracing::info!(server = self.name(), "a client reads a resource");
        let params: Map<_, _> = [("uri".to_owned(), json!(asked.server_uri))].into_iter().collect();
        let mut headers = Vec::new();
        if session.negotiated.modern && matches!(session.link, Link::Http(_)) {
            headers.push(("mcp-name".to_owned(), mirror::encode_value(asked.server_uri)));
        }
        let notes = Arc::<OutputNotes>::default();
        let extra =
            || RequestExtra { headers: headers.clone(), notes: Some(&notes), ..RequestExtra::default() };
        let mut read = session.request("resources/read", params.clone(), extra()).await;
        if let Err(LinkError::SessionLost(_)) = read {
            let session = self.session(self.server.timeout).await;
            let session =
                session.map_err(|failure| Some(ErrorData::internal_error(failure.to_string(), None)))?;
            read = session.request("resources/read", params, extra()).await;
        }
        match read {
            Ok(raw) => {
                let (uri, server) = (asked.server_uri.to_owned(), Arc::clone(&self.server));
                let connector = Arc::clone(&self.context.connector);
                let steps = (raw.get().len() as u64).saturating_mul(STEPS_PER_BYTE);
                let convert = move || {
                    let asked = ResourceAddress { server: server.name.as_str(), server_uri: &uri };
                    convert_contents(&raw, asked, &server, &*connector)
                };
                let queue = self.context.compute.queue(self.label().into(), self.stop.clone());
                let read = queue.run(steps, convert).await.unwrap_or_else(|stopped| Err(stopped.message));
                let mut parts = read.map_err(|why| self.read_error(&why))?;
                parts.extend(notes.take_repair().and_then(|repair| {
                    let note = format!("[repaired: the resource was not valid JSON: {repair}]");
                    Some(text_part(asked.client_uri()?, note))
                }));
                Ok(parts)
            }
            Err(LinkError::Rpc(error)) if matches!(error.code, NOT_FOUND | INVALID_PARAMS) => Err(None),
            Err(error) => {
                let why = error.refusal();
                if why.hint.is_some() {
                    // The client may belong to a model, so only the log has the hint.
                    let why = self.sanitize_refusal(&why).for_operator();
                    tracing::warn!(server = self.name(), "a resource cannot be read: {why}");
                }
                Err(self.read_error(&why.text))
            }
        }
    }

    fn read_error(&self, why: &str) -> Option<ErrorData> {
        let text =
            format!("cannot read a resource of the MCP server `{}`: {}", self.name(), self.sanitize(why));
        Some(ErrorData::internal_error(text, None))
    }
}
