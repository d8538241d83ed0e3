//! What a connection answers to those who ask what there is: lists, in pages, and resources that are read.

use std::borrow::Cow;
use std::time::Duration;

use rmcp::model::{
    CacheScope, ErrorData, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, MetaObject,
    PaginatedRequestParams, ReadResourceResult,
};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolbay_core::registry::view::View;
use toolbay_policy::text::one_line;

use super::{McpConnection, millis};
use crate::client::Address;
use crate::protocol::lifecycle::Era;
use crate::protocol::pages::Cursor;
use crate::server::changes::{self, Kind};
use crate::server::request::Answer;
use crate::server::{convert, outputs, prompts_and_resources, session_attachments};

/// Longest address that an error repeats, in characters.
const MAX_URI: usize = 2048;

/// A page of `tools/list`, with each tool as it was written once.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolPage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    tools: Vec<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_scope: Option<CacheScope>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<MetaObject>,
}

impl McpConnection {
    /// How long a list may be kept, and by whom.
    fn kept(&self, era: Era) -> (Option<u64>, Option<CacheScope>) {
        match era {
            Era::Legacy => (None, None),
            // What is listed depends on who asks. What is still to come is there at the next list.
            Era::Modern => {
                let life = if self.server().is_settled() { self.options().list_ttl } else { Duration::ZERO };
                (Some(millis(life)), Some(CacheScope::Private))
            }
        }
    }

    /// What a list is made from, and since when it is told what changes.
    fn look(&self) -> (watch::Receiver<u64>, View) {
        let since = self.server().changes();
        (since, self.server().view())
    }

    /// Notes that a list was given out. Later pages of a list do not count: what they belong to is the first one.
    fn saw(&self, kind: Kind, cursor: &Cursor, (since, view): (&watch::Receiver<u64>, &View)) {
        if cursor.is_first() && !self.is_of_one_request {
            self.seen.note(kind, changes::number(self.server(), view, kind), since);
        }
    }

    pub(super) async fn list_tools(
        &self,
        request: PaginatedRequestParams,
        era: Era,
    ) -> Result<Answer, ErrorData> {
        self.server().listable().await;
        let (cursor, (since, view)) = (Cursor::of(request)?, self.look());
        self.saw(Kind::Tools, &cursor, (&since, &view));
        let tools = view.definitions().map(|entry| (entry.def.name.as_str().into(), entry));
        let (tools, next_cursor) = cursor.page(tools, self.options().page_size);
        let (ttl_ms, cache_scope) = self.kept(era);
        let mut page = ToolPage {
            result_type: (era == Era::Modern).then_some("complete"),
            tools: tools.into_iter().map(|entry| convert::tool(entry, era)).collect(),
            next_cursor,
            ttl_ms,
            cache_scope,
            meta: None,
        };
        convert::sign(&mut page.meta, era);
        Answer::new(&page, None)
    }

    pub(super) async fn list_prompts(
        &self,
        request: PaginatedRequestParams,
        era: Era,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.server().listable().await;
        let (cursor, (since, view)) = (Cursor::of(request)?, self.look());
        self.saw(Kind::Prompts, &cursor, (&since, &view));
        let all =
            prompts_and_resources::prompts(&view).into_iter().map(|(name, prompt)| (name.into(), prompt));
        let (prompts, next) = cursor.page(all, self.options().page_size);
        let mut page = ListPromptsResult::with_all_items(prompts);
        page.next_cursor = next;
        (page.ttl_ms, page.cache_scope) = self.kept(era);
        convert::sign(&mut page.meta, era);
        Ok(page)
    }

    pub(super) async fn list_resources(
        &self,
        request: PaginatedRequestParams,
        era: Era,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.server().listable().await;
        let (cursor, (since, view)) = (Cursor::of(request)?, self.look());
        self.saw(Kind::Resources, &cursor, (&since, &view));
        let mut all = self.server().resources(&view);
        if let Some(spool) = self.server().pipeline().spool() {
            let kept = outputs::list(&**spool, &self.client.owner.session).await;
            all.extend(kept.into_iter().map(|resource| (resource.uri.clone(), resource)));
        }
        let files = self.server().attachments().list(&self.client.owner.session);
        all.extend(files.into_iter().map(|resource| (resource.uri.clone(), resource)));
        let all = all.into_iter().map(|(uri, resource)| (uri.into(), resource));
        let (resources, next) = cursor.page(all, self.options().page_size);
        let mut page = ListResourcesResult::with_all_items(resources);
        page.next_cursor = next;
        if era == Era::Modern {
            // A call may add to it at any time.
            page.ttl_ms = Some(0);
            page.cache_scope = Some(CacheScope::Private);
        }
        convert::sign(&mut page.meta, era);
        Ok(page)
    }

    pub(super) async fn list_templates(
        &self,
        request: PaginatedRequestParams,
        era: Era,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.server().listable().await;
        let (cursor, (since, view)) = (Cursor::of(request)?, self.look());
        self.saw(Kind::Templates, &cursor, (&since, &view));
        let all = self.server().templates(&view).into_iter().map(|(uri, template)| (uri.into(), template));
        let (templates, next) = cursor.page(all, self.options().page_size);
        let mut page = ListResourceTemplatesResult::with_all_items(templates);
        page.next_cursor = next;
        (page.ttl_ms, page.cache_scope) = self.kept(era);
        convert::sign(&mut page.meta, era);
        Ok(page)
    }

    pub(super) async fn read(&self, uri: &str, era: Era) -> Result<ReadResourceResult, ErrorData> {
        let absent = || {
            let data = json!({ "uri": one_line(uri, MAX_URI) });
            ErrorData::resource_not_found("Resource not found", Some(data))
        };
        let mut result = if outputs::is_one(uri) {
            let spool = self.server().pipeline().spool().ok_or_else(absent)?;
            outputs::read(&**spool, &self.client.owner.session, uri).await.ok_or_else(absent)?
        } else if session_attachments::is_one(uri) {
            self.server().attachments().read(&self.client.owner.session, uri).ok_or_else(absent)?
        } else if Address::is_one(uri) {
            let contents = self.server().read_of_others(uri).await;
            ReadResourceResult::new(contents.map_err(|error| error.unwrap_or_else(absent))?)
        } else {
            self.server().loaded().await;
            let contents = prompts_and_resources::read(&self.server().view(), uri).ok_or_else(absent)??;
            ReadResourceResult::new(vec![contents])
        };
        // The same address of a kept text is the same text, but it may be gone.
        (result.ttl_ms, result.cache_scope) = self.kept(era);
        convert::sign(&mut result.meta, era);
        Ok(result)
    }
}
