//! Handlers of list requests, with pagination, and of `resources/read`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{CacheScope, ErrorData, PaginatedRequestParams, ResourceContents};
use serde::Serialize;
use serde_json::json;
use toolbay_policy::excerpt::one_line;

use super::McpConnection;
use crate::client::ResourceAddress;
use crate::protocol::pages::Cursor;
use crate::server::changes::{self, ServedList};
use crate::server::convert::{ToolForm, ToolListItem, to_millis};
use crate::server::request::{CacheHints, EncodedResult, RequestContext};
use crate::server::{outputs, prompts_and_resources, session_attachments};

/// How long a client of 2026-07-28 may cache a list. Changes are announced; this is for clients that do not listen.
pub(super) const LIST_TTL: Duration = Duration::from_secs(60);
/// Longest URI in an error, in characters.
const MAX_SHOWN_URI: usize = 2048;

impl McpConnection {
    /// The cache hints of a list. The content depends on the client, so the scope is private. An incomplete list must
    /// not be cached.
    pub(super) fn cache_hints(&self) -> CacheHints {
        let life = if self.server().is_settled() { LIST_TTL } else { Duration::ZERO };
        CacheHints { ttl_ms: to_millis(life), cache_scope: CacheScope::Private }
    }

    /// Returns a page of a list.
    pub(super) async fn list_page(
        &self,
        kind: ServedList,
        params: PaginatedRequestParams,
        context: &RequestContext,
    ) -> Result<EncodedResult, ErrorData> {
        let server = self.server();
        server.wait_listable().await;
        let cursor = Cursor::from_request(params)?;
        // Changes after this point are announced.
        let (since, view) = (server.subscribe_changes(), server.view());
        // The first page determines the version of the list.
        if cursor.is_first() && !self.is_single_request {
            self.baseline.record(kind, changes::list_fingerprint(server, &view, kind), &since);
        }
        Ok(match kind {
            ServedList::Tools => {
                let form = ToolForm::from_version(context.version.as_ref());
                let usage_meta = server.shows_usage_meta();
                let shown = view.definitions().map(|entry| ToolListItem { entry, form, usage_meta });
                let named = shown.map(|tool| (tool.entry.def.name.as_str().into(), tool));
                let missing = server.missing_sources();
                self.encode_partial_page("tools", named, &cursor, context, self.cache_hints(), missing)
            }
            ServedList::Prompts => {
                let all = into_named(prompts_and_resources::list_prompts(&view));
                self.encode_page("prompts", all, &cursor, context, self.cache_hints())
            }
            ServedList::Templates => {
                let all = into_named(server.templates(&view));
                self.encode_page("resourceTemplates", all, &cursor, context, self.cache_hints())
            }
            ServedList::Resources => {
                let (mut all, session) = (server.resources(&view), &self.client.owner.session);
                let store = server.attachment_store(session);
                let mut of_session = session_attachments::list_resources(&**store, session).await;
                if let Some(output_store) = server.pipeline.output_store() {
                    of_session.extend(outputs::list_resources(&**output_store, session).await);
                }
                all.extend(of_session.into_iter().map(|resource| (resource.uri.clone(), resource)));
                // A call may add a resource at any time.
                let caching = CacheHints { ttl_ms: 0, ..self.cache_hints() };
                self.encode_page("resources", into_named(all), &cursor, context, caching)
            }
        })
    }

    pub(super) fn encode_page<'a, T: Serialize>(
        &self,
        key: &'static str,
        things: impl Iterator<Item = (Cow<'a, str>, T)>,
        cursor: &Cursor,
        context: &RequestContext,
        caching: CacheHints,
    ) -> EncodedResult {
        self.encode_partial_page(key, things, cursor, context, caching, BTreeMap::new())
    }

    /// Encodes a page of a list that may lack the items of the `missing` sources.
    fn encode_partial_page<'a, T: Serialize>(
        &self,
        key: &'static str,
        things: impl Iterator<Item = (Cow<'a, str>, T)>,
        cursor: &Cursor,
        context: &RequestContext,
        caching: CacheHints,
        missing: BTreeMap<String, &'static str>,
    ) -> EncodedResult {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct PageResult<T: Serialize> {
            #[serde(flatten)]
            items: BTreeMap<&'static str, Vec<T>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            next_cursor: Option<String>,
        }
        let (items, next_cursor) = cursor.page(things, self.options().page_size);
        let page = PageResult { items: [(key, items)].into(), next_cursor };
        context.complete_list(page, Some(caching), None, missing)
    }

    /// Reads a resource.
    pub(super) async fn read_resource(&self, uri: &str) -> Result<Vec<ResourceContents>, ErrorData> {
        let absent = || {
            let data = json!({ "uri": one_line(uri, MAX_SHOWN_URI) });
            ErrorData::resource_not_found("Resource not found", Some(data))
        };
        let (server, session) = (self.server(), &self.client.owner.session);
        if ResourceAddress::has_bridge_prefix(uri) {
            return server.read_bridged_resource(uri).await.map_err(|error| error.unwrap_or_else(absent));
        }
        let contents = if outputs::is_output_uri(uri) {
            let output_store = server.pipeline.output_store().ok_or_else(absent)?;
            outputs::read_output(&**output_store, session, uri).await
        } else if session_attachments::is_attachment_uri(uri) {
            session_attachments::read_resource(&**server.attachment_store(session), session, uri).await
        } else {
            server.wait_loaded().await;
            prompts_and_resources::read_resource(&server.view(), uri).transpose()?
        };
        Ok(vec![contents.ok_or_else(absent)?])
    }
}

pub(super) fn into_named<T>(things: BTreeMap<String, T>) -> impl Iterator<Item = (Cow<'static, str>, T)> {
    things.into_iter().map(|(name, thing)| (name.into(), thing))
}
