//! Registers the tools of one server, replaces them when its list changes, and removes them.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;
use toolbay_core::registry::{Bundle, ReducerEntry, SourceState, ToolEntry};
use toolbay_core::tool::json;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name::MCP_PREFIX;

use super::bounds::{MAX_PROBLEMS, MAX_SCHEMA_VALUES};
use super::link_request::LinkError;
use super::list::{self, ServerList};
use super::remote::RemoteTool;
use super::session::ClientSession;
use super::supervisor::Supervisor;
use super::tools::{self, ImportedTool};
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;

impl Supervisor {
    /// Reads the list of tools and replaces the registered ones. Pages after the first that do not come until `deadline` are
    /// left out.
    pub(super) async fn refresh_tools(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        deadline: Instant,
    ) -> Result<(), LinkError> {
        let negotiated = &session.negotiated;
        let listed = match negotiated.has_tools {
            true => list::read_declared_tools(session, deadline).await?,
            false if negotiated.declares_nothing => list::read_undeclared_tools(session).await?,
            false => ServerList::default(),
        };
        self.replace_tools(session, listed).await
    }

    /// Replaces the registered tools by those of a list. If a part of it could not be read, those of the list before stay.
    pub(super) async fn replace_tools(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        mut listed: ServerList,
    ) -> Result<(), LinkError> {
        let (supervisor, of) = (Arc::clone(self), Arc::clone(session));
        // Importing thousands of schemas, and redacting megabytes, would block an async worker thread.
        let import = tokio::task::spawn_blocking(move || {
            listed.keep_tools(&supervisor.listed_tools.lock());
            let version = of.negotiated.version.as_ref();
            supervisor.register_tools(&listed, version, || of.inbox.closure.is_closed());
            (supervisor.encode_list(&of, &listed), listed)
        });
        let (encoded, listed) =
            import.await.map_err(|_| LinkError::Closed("its tools could not be imported".into()))?;
        self.save_list(encoded).await;
        *self.listed_tools.lock() = listed.items;
        Ok(())
    }

    /// Replaces the registered tools by those of a list, unless the supervisor was stopped or `is_over` returns true.
    pub(super) fn register_tools(
        self: &Arc<Self>,
        listed: &ServerList,
        version: Option<&Arc<str>>,
        is_over: impl FnOnce() -> bool,
    ) {
        let (tools, mut problems) = (&listed.items, listed.problems.clone());
        let (mut bundle, mut names, mut values) = (Bundle::default(), HashSet::new(), 0);
        for (index, raw) in tools.iter().enumerate() {
            values += json::max_value_count(raw.get());
            if values > MAX_SCHEMA_VALUES {
                let left = tools.len() - index;
                problems.insert(
                    0,
                    format!("its tools contain more than {MAX_SCHEMA_VALUES} JSON values; the last {left} tools are left out"),
                );
                break;
            }
            match tools::import_tool(raw, &self.server, version, &*self.context.connector) {
                Ok(Some(imported)) if names.insert(imported.def.name.clone()) => {
                    problems.extend(imported.warning.clone());
                    if let Err(problem) = self.add_tool(&mut bundle, imported) {
                        problems.push(problem);
                    }
                }
                Ok(Some(imported)) => problems.push(format!(
                    "the tool `{}` is listed twice, or its name maps to that of another tool; the first one is used",
                    one_line(&imported.remote_name, MAX_UNREDACTED_CHARS)
                )),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        problems.extend(self.unknown_tools(tools));
        let wanted = bundle.tools.len();
        // Neither a supervisor that was stopped meanwhile nor a closed session may register tools.
        let mut has_tools = self.registered.lock();
        if self.stop.is_cancelled() || is_over() {
            return;
        }
        if !(*has_tools && self.is_registered(&bundle)) {
            let registered = self.context.registry.replace_source(&self.label(), bundle);
            problems.extend(
                registered.skipped.iter().map(|name| format!("`{name}`: the name is taken by another tool")),
            );
            *has_tools = true;
        }
        drop(has_tools);
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        for problem in &mut problems {
            *problem = self.sanitize(problem);
        }
        let mut status = self.lock_status();
        if status.problems != problems {
            for problem in &problems {
                tracing::warn!(server = self.name(), "{problem}");
            }
        }
        status.tools = wanted;
        status.problems = problems;
    }

    /// Warnings about sections of the policy for tools that the list does not have.
    fn unknown_tools(&self, listed: &[Box<RawValue>]) -> Vec<String> {
        if self.server.tool_overrides.is_empty() {
            return Vec::new();
        }
        let names: HashSet<String> = listed.iter().filter_map(|raw| tools::listed_name(raw)).collect();
        let unknown = self.server.unknown_tools(|tool| names.contains(tool));
        unknown.map(|tool| self.server.unknown_tool_warning(tool)).collect()
    }

    /// Whether the registry already has the same tools.
    fn is_registered(&self, bundle: &Bundle) -> bool {
        let catalog = self.context.registry.snapshot();
        let label = self.label();
        let mut registered = catalog.from_source(&label);
        let mut new: Vec<&ToolEntry> = bundle.tools.iter().collect();
        new.sort_by(|a, b| a.def.name.cmp(&b.def.name));
        let same = |old: &ToolEntry, new: &ToolEntry| {
            let (old, new) = (&old.def, &new.def);
            old.name == new.name
                && old.title == new.title
                && old.description == new.description
                && old.input_schema == new.input_schema
                && old.output_schema == new.output_schema
                && old.traits == new.traits
                && old.source == new.source
        };
        new.iter().all(|new| registered.next().is_some_and(|old| same(old, new)))
            && registered.next().is_none()
    }

    fn add_tool(self: &Arc<Self>, bundle: &mut Bundle, imported: ImportedTool) -> Result<(), String> {
        let ImportedTool { remote_name: own_name, def, rules, mirror, .. } = imported;
        let name = def.name.to_string();
        let timeout = rules.timeout.unwrap_or(self.server.timeout);
        let tool = RemoteTool { supervisor: Arc::clone(self), remote_name: own_name, mirror, timeout };
        let entry = ToolEntry::new(def, Arc::new(tool)).with_effects(tools::server_effects(&self.server));
        let entry = tools::with_settings(entry, &rules);
        bundle.tools.push(entry);
        let Some(wanted) = rules.reduce else { return Ok(()) };
        let found = self.context.reducer.as_ref().and_then(|find| find(&wanted));
        let reducer =
            found.ok_or_else(|| format!("`{name}`: unknown reducer `{wanted}`; results are not reduced"))?;
        bundle.reducers.push(ReducerEntry { target: name, declared: wanted, owner: None, reducer });
        Ok(())
    }

    /// Stops the supervisor and removes its tools.
    pub(super) fn shut_down(&self) {
        // `register_tools` takes the same lock, so no tools are registered afterwards.
        let mut has_tools = self.registered.lock();
        self.stop.cancel();
        if std::mem::take(&mut *has_tools) {
            self.context.registry.replace_source(&self.label(), Bundle::default());
        }
        self.context.registry.set_source_state(&self.namespace(), &self.label(), None);
    }

    /// Passes the state of the server to the registry, which explains missing tools with it.
    pub(super) fn publish_state(&self, state: Option<SourceState>) {
        // `shut_down` takes the same lock, and the state of a server that was stopped is that of the next one.
        let _registered = self.registered.lock();
        if !self.stop.is_cancelled() {
            self.context.registry.set_source_state(&self.namespace(), &self.label(), state);
        }
    }

    /// What the names of its tools begin with.
    fn namespace(&self) -> String {
        format!("{MCP_PREFIX}{}", self.server.name)
    }
}
