//! What a connection answers to those who ask what there is: lists, in pages, and resources that are read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{CacheScope, ErrorData, PaginatedRequestParams, ResourceContents};
use serde::Serialize;
use serde_json::json;
use toolbay_policy::text::one_line;

use super::{McpConnection, millis};
use crate::client::Address;
use crate::protocol::pages::Cursor;
use crate::server::changes::{self, Kind};
use crate::server::convert::ShownTool;
use crate::server::request::{Answer, Caching, RequestContext};
use crate::server::{outputs, prompts_and_resources, session_attachments};

/// Longest address that an error repeats, in characters.
const MAX_URI: usize = 2048;

impl McpConnection {
    /// How long a list may be kept, and by whom: what is listed depends on who asks. What is still to come is there at the
    /// next list.
    pub(super) fn caching(&self) -> Caching {
        let life = if self.server().is_settled() { self.options().list_ttl } else { Duration::ZERO };
        Caching { ttl_ms: millis(life), cache_scope: CacheScope::Private }
    }

    /// A page of a list.
    pub(super) async fn list(
        &self,
        kind: Kind,
        params: PaginatedRequestParams,
        context: &RequestContext,
    ) -> Result<Answer, ErrorData> {
        let server = self.server();
        server.listable().await;
        let cursor = Cursor::of(params)?;
        // Since when it is told what changes.
        let (since, view) = (server.changes(), server.view());
        // Later pages of a list do not count: what they belong to is the first one.
        if cursor.is_first() && !self.is_of_one_request {
            self.seen.note(kind, changes::number(server, &view, kind), &since);
        }
        Ok(match kind {
            Kind::Tools => {
                let shown = view.definitions().map(|entry| ShownTool(entry, context.era));
                let named = shown.map(|tool| (tool.0.def.name.as_str().into(), tool));
                self.page("tools", named, &cursor, context, self.caching())
            }
            Kind::Prompts => {
                let all = by_name(prompts_and_resources::prompts(&view));
                self.page("prompts", all, &cursor, context, self.caching())
            }
            Kind::Templates => {
                let all = by_name(server.templates(&view));
                self.page("resourceTemplates", all, &cursor, context, self.caching())
            }
            Kind::Resources => {
                let (mut all, session) = (server.resources(&view), &self.client.owner.session);
                let mut made = server.attachments.list(session);
                if let Some(spool) = server.pipeline.spool() {
                    made.extend(outputs::list(&**spool, session).await);
                }
                all.extend(made.into_iter().map(|resource| (resource.uri.clone(), resource)));
                // A call may add to it at any time.
                let caching = Caching { ttl_ms: 0, ..self.caching() };
                self.page("resources", by_name(all), &cursor, context, caching)
            }
        })
    }

    fn page<'a, T: Serialize>(
        &self,
        key: &'static str,
        things: impl Iterator<Item = (Cow<'a, str>, T)>,
        cursor: &Cursor,
        context: &RequestContext,
        caching: Caching,
    ) -> Answer {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Page<T: Serialize> {
            #[serde(flatten)]
            items: BTreeMap<&'static str, Vec<T>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            next_cursor: Option<String>,
        }
        let (items, next_cursor) = cursor.page(things, self.options().page_size);
        context.complete(Page { items: [(key, items)].into(), next_cursor }, Some(caching), None)
    }

    /// Reads a resource.
    pub(super) async fn read(&self, uri: &str) -> Result<Vec<ResourceContents>, ErrorData> {
        let absent = || {
            let data = json!({ "uri": one_line(uri, MAX_URI) });
            ErrorData::resource_not_found("Resource not found", Some(data))
        };
        let (server, session) = (self.server(), &self.client.owner.session);
        if Address::is_one(uri) {
            return server.read_of_others(uri).await.map_err(|error| error.unwrap_or_else(absent));
        }
        let contents = if outputs::is_one(uri) {
            let spool = server.pipeline.spool().ok_or_else(absent)?;
            outputs::read(&**spool, session, uri).await
        } else if session_attachments::is_one(uri) {
            server.attachments.read(session, uri)
        } else {
            server.loaded().await;
            prompts_and_resources::read(&server.view(), uri).transpose()?
        };
        Ok(vec![contents.ok_or_else(absent)?])
    }
}

fn by_name<T>(things: BTreeMap<String, T>) -> impl Iterator<Item = (Cow<'static, str>, T)> {
    things.into_iter().map(|(name, thing)| (name.into(), thing))
}
