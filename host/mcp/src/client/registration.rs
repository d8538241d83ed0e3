//! Registers the tools of one server, replaces them when its list changes, and removes them.

use std::collections::HashSet;
use std::sync::Arc;

use toolbay_core::registry::{Bundle, ReducerEntry, ToolEntry};
use toolbay_core::tool::json;
use toolbay_policy::text::one_line;

use super::bounds::{MAX_PROBLEMS, MAX_SCHEMA_VALUES};
use super::link::LinkError;
use super::list::{self, ListKind, ServerList};
use super::remote::RemoteTool;
use super::session::ClientSession;
use super::supervisor::Supervisor;
use super::tools::{self, ImportedTool};
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;

impl Supervisor {
    /// Reads the list of tools and replaces the registered ones.
    pub(super) async fn refresh_tools(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
    ) -> Result<(), LinkError> {
        let listed = match session.negotiated.has_tools {
            true => list::read_list(session, ListKind::Tools).await?,
            false => ServerList::default(),
        };
        let (supervisor, session) = (Arc::clone(self), Arc::clone(session));
        // Importing thousands of schemas would block an async worker thread.
        let made = tokio::task::spawn_blocking(move || {
            let version = session.negotiated.version.clone();
            supervisor.register_tools(&listed, version.as_ref(), || session.inbox.closure.is_closed());
            (listed, version)
        });
        let (listed, version) =
            made.await.map_err(|_| LinkError::Closed("its tools could not be imported".to_owned()))?;
        self.save_list(version.as_deref(), &listed).await;
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
                Ok(Some(taken)) if names.insert(taken.def.name.clone()) => {
                    problems.extend(taken.warning.clone());
                    if let Err(problem) = self.add_tool(&mut bundle, taken) {
                        problems.push(problem);
                    }
                }
                Ok(Some(taken)) => problems.push(format!(
                    "the tool `{}` is listed twice, or its name maps to that of another tool; the first one is used",
                    one_line(&taken.remote_name, MAX_UNREDACTED_CHARS)
                )),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        let wanted = bundle.tools.len();
        // Neither a supervisor that was stopped meanwhile nor a closed session may register tools.
        let mut placed = self.registered.lock();
        if self.stop.is_cancelled() || is_over() {
            return;
        }
        if !(*placed && self.is_registered(&bundle)) {
            let registered = self.context.registry.replace_source(&self.label(), bundle);
            problems.extend(
                registered.skipped.iter().map(|name| format!("`{name}`: the name is taken by another tool")),
            );
            *placed = true;
        }
        drop(placed);
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

    /// Whether the registry already has the same tools.
    fn is_registered(&self, bundle: &Bundle) -> bool {
        let catalog = self.context.registry.snapshot();
        let label = self.label();
        let mut there = catalog.from_source(&label);
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
        new.iter().all(|new| there.next().is_some_and(|old| same(old, new))) && there.next().is_none()
    }

    fn add_tool(self: &Arc<Self>, bundle: &mut Bundle, taken: ImportedTool) -> Result<(), String> {
        let ImportedTool { remote_name: own_name, def, rules, mirror, .. } = taken;
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
        let mut placed = self.registered.lock();
        self.stop.cancel();
        if std::mem::take(&mut *placed) {
            self.context.registry.replace_source(&self.label(), Bundle::default());
        }
    }
}
